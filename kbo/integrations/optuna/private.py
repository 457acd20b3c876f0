"""The private names of Optuna that kbo needs. No other module uses one.

A new major version of Optuna may change them, so ``pyproject.toml`` limits the version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optuna.samplers import PartialFixedSampler
from optuna.samplers._base import _process_constraints_after_trial as process_constraints
from optuna.study import Study
from optuna.trial import FrozenTrial

__all__ = [
    "attributes_of",
    "fixed_by_wrappers",
    "process_constraints",
    "set_attribute",
    "set_trial_attribute",
]


def set_trial_attribute(study: Study, trial: FrozenTrial, name: str, value: Any) -> None:
    """Store a system attribute of a trial."""
    study._storage.set_trial_system_attr(trial._trial_id, name, value)


def set_attribute(study: Study, name: str, value: Any) -> None:
    """Store a system attribute of a study."""
    study._storage.set_study_system_attr(study._study_id, name, value)


def attributes_of(study: Study) -> Mapping[str, Any]:
    """Return the system attributes of a study, by name."""
    return study._storage.get_study_system_attrs(study._study_id)


def fixed_by_wrappers(study: Study) -> dict[str, Any]:
    """Return the values of parameters that a ``PartialFixedSampler`` around this sampler fixes."""
    values: dict[str, Any] = {}
    sampler = study.sampler
    while isinstance(sampler, PartialFixedSampler):
        values = {**sampler._fixed_params, **values}
        sampler = sampler._base_sampler
    return values
