"""The trials of a study as data for an optimiser of kbo, and the attributes that a sampler stores in the study.

Only this module and ``KBOSampler.after_trial`` use private names of Optuna. A new major version may change them, so
``pyproject.toml`` limits the version.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from optuna.samplers import PartialFixedSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from kbo._base import checks
from kbo.errors import InvalidInput
from kbo.integrations.optuna.space import SearchSpace
from kbo.integrations.replay import Ended
from kbo.optimize import Constraint
from kbo.optimize.objectives.objective import Objective, objective_of, objectives_of
from kbo.optimize.run.outcome import OBJECTIVE, SEM
from kbo.optimize.run.trials import in_words, out_of_order

_FINISHED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)

_CHOSEN = "kbo:chosen"
"""System attribute of a trial: the parameters chosen for it, stored before the objective requests them."""

_EXPLANATION = "kbo:explanation"
"""System attribute of a trial: the explanation of the choice of its parameters, as text."""

_STUDY = "kbo:study:"
"""Prefix of the system attribute that names a study; samplers that start at the same time may store several names."""

_PROPOSED = "kbo:proposed"
"""System attribute of a trial that KBOSampler proposed: a name of the study, and the number of the trial in it.

A copy of the trial in another study keeps it, and so is recognised as a copy.
"""


def several_objectives(study: Study) -> tuple[Objective, ...]:
    """Return the objectives of a study with several; an empty tuple if there is one.

    Their names are those of ``study.set_metric_names``, otherwise "values_0", "values_1" and so on, as in
    ``study.trials_dataframe()``.

    Raises:
        InvalidInput: Two objectives have the same name, or one has a name that kbo reserves.
    """
    if len(study.directions) == 1:
        return ()
    names = study.metric_names
    if names is None:
        names = [f"values_{index}" for index in range(len(study.directions))]
    objectives = []
    with checks.inside("study.set_metric_names"):
        for name, direction in zip(names, study.directions, strict=True):
            objectives.append(objective_of(name, direction == StudyDirection.MAXIMIZE))
        return objectives_of(objectives, maximize=False)


def begun(study: Study) -> list[FrozenTrial]:
    """Return the finished and the running trials in the order of their numbers."""
    return study.get_trials(deepcopy=False, states=(*_FINISHED, TrialState.RUNNING))


def finished(study: Study) -> list[FrozenTrial]:
    """Return the finished trials in the order of their ends, which is the same in every process."""
    trials = study.get_trials(deepcopy=False, states=_FINISHED)
    return sorted(trials, key=lambda trial: (trial.datetime_complete or datetime.min, trial.number))


def _running(study: Study) -> list[FrozenTrial]:
    """Return the running trials in the order of their numbers."""
    return study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))


def ended(
    trial: FrozenTrial, search_space: SearchSpace, objectives: Sequence[Objective]
) -> Ended | None:
    """Return a finished trial; None if a needed parameter or all are missing, or a value is outside its distribution.

    Args:
        trial: The trial.
        search_space: The space of the model.
        objectives: The objectives of the study, if there are several.
    """
    values = search_space.complete(trial.params)
    if values is None or search_space.needed - trial.params.keys():
        return None
    value = None
    measured = dict(trial.constraints)
    trial_values = _values_of(trial)
    if trial_values is not None:
        value = trial_values[0]
        for objective, further_value in zip(objectives[1:], trial_values[1:], strict=True):
            measured[objective.name] = further_value
    error = trial.user_attrs.get(SEM)
    if isinstance(error, float | int) and 0 <= error < math.inf:  # NaN means unknown
        measured[SEM] = float(error)
    reports = []
    for step, reported in sorted(trial.intermediate_values.items()):
        if math.isfinite(reported):
            reports.append((step, reported))
    is_pruned = trial.state == TrialState.PRUNED
    return Ended(trial.number, values, value, measured, is_pruned, tuple(reports))


def _values_of(trial: FrozenTrial) -> list[float] | None:
    """Return the values of a finished trial, one for each objective; None if it is pruned or one is not finite."""
    if trial.state != TrialState.COMPLETE or not trial.values:
        return None
    if not all(map(math.isfinite, trial.values)):
        return None
    return trial.values


def constraints_of(
    trials: Iterable[FrozenTrial], known: Sequence[Constraint], objectives: Sequence[Objective]
) -> list[Constraint]:
    """Return the constraints that complete trials have; values of at most 0 are feasible.

    Args:
        trials: The trials.
        known: The constraints that the sampler was given; they come first, and the others are sorted by name.
        objectives: The objectives of the study, if there are several.

    Raises:
        InvalidInput: A constraint has the name of the value or of an objective.
    """
    names: set[str] = set()
    for trial in trials:
        if trial.state == TrialState.COMPLETE:
            names.update(trial.constraints)
    for taken in (OBJECTIVE, *(objective.name for objective in objectives)):
        if taken in names:
            raise InvalidInput(
                f"constraint {taken!r}: that is the name of the value; call the constraint another way."
            )
    names -= {constraint.name for constraint in known}
    return [*known, *(Constraint(name, upper=0.0) for name in sorted(names))]


def selected(study: Study) -> list[str]:
    """Return the ways in which noise may have selected the data (``kbo.optimize.run.trials``)."""
    trials = finished(study)
    names = _names(study)
    n_lost = 0
    n_foreign = 0
    for trial in trials:
        n_lost += _values_of(trial) is None
        mark_of_trial = trial.system_attrs.get(_PROPOSED)
        n_foreign += not any(mark_of_trial == [name, trial.number] for name in names)
    starts = [(t.datetime_start or datetime.min, t.number) for t in [*trials, *_running(study)]]
    ways = {
        "failed or pruned": n_lost,
        "that KBOSampler did not propose in this study, perhaps with values that were known before": n_foreign,
        "that ended after later ones": out_of_order(starts),
    }
    return in_words(ways)


def pending_values(
    study: Study, search_space: SearchSpace, trial: FrozenTrial
) -> dict[int, dict[str, Any]]:
    """Return the parameters of running trials other than ``trial``, by number, as values in the space of kbo.

    A parameter that the objective has not requested yet has the value that was chosen for it.
    """
    pending: dict[int, dict[str, Any]] = {}
    for other in _running(study):
        params = {**chosen(other, search_space), **enqueued(other), **other.params}
        values = search_space.complete(params)
        if other.number != trial.number and values is not None:
            pending[other.number] = values
    return pending


def enqueued(trial: FrozenTrial) -> dict[str, Any]:
    """Return the parameters that ``enqueue_trial`` fixed for a trial."""
    return trial.system_attrs.get("fixed_params", {})


def chosen(trial: FrozenTrial, search_space: SearchSpace) -> dict[str, Any]:
    """Return the parameters that were chosen for a trial, also if the objective has not requested them yet."""
    internal = trial.system_attrs.get(_CHOSEN, {})
    params: dict[str, Any] = {}
    for name, d in search_space.distributions.items():
        if name in internal:
            params[name] = d.to_external_repr(internal[name])
    return params


def publish(
    study: Study,
    trial: FrozenTrial,
    search_space: SearchSpace,
    params: Mapping[str, Any],
    explanation: str,
) -> None:
    """Store the parameters that were chosen for a trial, for other workers, and the explanation of the choice."""
    internal: dict[str, float] = {}
    for name, value in params.items():
        internal[name] = search_space.distributions[name].to_internal_repr(value)
    _set_attribute(study, trial, _CHOSEN, internal)
    if explanation:
        _set_attribute(study, trial, _EXPLANATION, explanation)


def mark(study: Study, trial: FrozenTrial) -> None:
    """Mark a trial, before it has a value, as proposed in this study."""
    names = _names(study)
    if not names:
        names = [f"{_STUDY}{secrets.token_hex(8)}"]
        study._storage.set_study_system_attr(study._study_id, names[0], True)
    _set_attribute(study, trial, _PROPOSED, [names[0], trial.number])


def _set_attribute(study: Study, trial: FrozenTrial, name: str, value: Any) -> None:
    """Store a system attribute of a trial."""
    study._storage.set_trial_system_attr(trial._trial_id, name, value)


def _names(study: Study) -> list[str]:
    """Return the names of a study that its marked trials have."""
    attributes = study._storage.get_study_system_attrs(study._study_id)
    return [name for name in attributes if name.startswith(_STUDY)]


def fixed_by_wrappers(study: Study) -> dict[str, Any]:
    """Return the values of parameters that a ``PartialFixedSampler`` around this sampler fixes."""
    values: dict[str, Any] = {}
    sampler = study.sampler
    while isinstance(sampler, PartialFixedSampler):
        values = {**sampler._fixed_params, **values}
        sampler = sampler._base_sampler
    return values
