"""Several objectives of a run, and the reference values of their hypervolume."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from kbo._base import checks
from kbo.bandit import methods
from kbo.errors import InvalidInput
from kbo.optimize.assumptions.hypotheses import KERNELS
from kbo.optimize.assumptions.measured import Measured
from kbo.optimize.run.outcome import OBJECTIVE, SEM
from kbo.optimize.run.trials import Trial, measurements


@dataclass(frozen=True, eq=False)
class Objective(Measured):
    """A quantity to optimise, which the objective function returns under its name.

    The setting has the assumptions about the first objective; the other objectives have their own.

    Args:
        name: The key of the quantity in the returned dict.
        noise_std: Noise of the quantity. In the certified setting its sub-Gaussian constant, needed unless the method
            bounds it online; in the practical setting its standard deviation, if it is known.
        norm_bound: Bound of the RKHS norm of the quantity, whose prior mean is 0. Needed in the certified setting, and
            only there.
        kernel: Kernel of the quantity in the certified setting, which is copied; by default that of the setting. Or a
            list of ``kbo.Hypothesis``, without ``noise_std`` and ``norm_bound``: the bounds hold if one hypothesis is
            true.

    Attributes:
        maximize: Whether larger values are better.

    Raises:
        InvalidInput: No name, or a number out of its range.
    """

    kind: ClassVar[str] = "objective"
    maximize: ClassVar[bool]

    def __post_init__(self) -> None:
        name = checks.text("the name of an objective", self.name)
        if name in (OBJECTIVE, SEM):
            raise InvalidInput(f"an objective cannot be called {name!r}: give it another name.")
        with checks.inside(self.title):
            self.check_assumptions()

    @property
    def sign(self) -> int:
        """1 if larger values are better, else -1."""
        return 1 if self.maximize else -1

    def in_code(self, assumptions: str) -> str:
        return f"objectives=[..., kbo.{type(self).__name__}({self.name!r}, {assumptions})]"

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "maximize": self.maximize}

    def __str__(self) -> str:
        return f"{self.name} ({'larger' if self.maximize else 'smaller'} is better)"


class Minimize(Objective):
    """A quantity to minimise."""

    maximize = False


class Maximize(Objective):
    """A quantity to maximise."""

    maximize = True


def objective_of(name: Any, maximize: bool, **assumptions: Any) -> Objective:
    """Return the objective of a name and a direction; assumptions as for ``Objective``."""
    if maximize:
        return Maximize(name, **assumptions)
    return Minimize(name, **assumptions)


def recorded_objectives(header: Mapping[str, Any]) -> list[Objective]:
    """Return the objectives in the header of a journal, without their kernels; empty if the run has a single one."""
    objectives = []
    for entry in header.get("objectives", ()):
        arguments = {name: value for name, value in entry.items() if name not in KERNELS}
        objectives.append(objective_of(**arguments))
    return objectives


def main_of(objectives: Sequence[Objective]) -> str:
    """Return the name of the quantity in ``Trial.value``: the first of several objectives, or "objective"."""
    if objectives:
        return objectives[0].name
    return OBJECTIVE


def objectives_of(objectives: Any, maximize: bool) -> tuple[Objective, ...]:
    """Return the checked argument ``objectives``; empty if the run has a single objective.

    Args:
        objectives: Objectives, or names of quantities that are all minimised, or all maximised.
        maximize: Whether quantities that are given by name are maximised.

    Raises:
        InvalidInput: Not a list of at least two objectives, two with the same name, or assumptions about the first one,
            which belong to the setting.
    """
    if isinstance(objectives, (str, bytes, Mapping)) or not isinstance(objectives, Sequence):
        raise InvalidInput(
            "objectives must be a list of names, kbo.Minimize(name) and kbo.Maximize(name), got "
            f"{checks.shown(objectives)}."
        )
    checked: list[Objective] = []
    for objective in objectives:
        if not isinstance(objective, Objective):
            objective = objective_of(objective, maximize)
        if objective.name in [other.name for other in checked]:
            raise InvalidInput(f"objectives: there are two called {objective.name!r}.")
        checked.append(objective)
    if len(checked) == 1:
        raise InvalidInput(
            "objectives needs at least 2, got one: leave it out, and return a number."
        )
    if checked and checked[0].has_assumptions:
        raise InvalidInput(
            f"{checked[0].title}: noise_std, norm_bound and kernel of the first objective belong to the setting."
        )
    return tuple(checked)


def targets_of(trials: Sequence[Trial], objectives: Sequence[Objective]) -> Tensor:
    """Return the observed values [n m] of objectives in completed trials, times -1 for those that are minimised."""
    targets = []
    for trial in trials:
        values = measurements(trial, main_of(objectives))
        targets.append([objective.sign * values[objective.name] for objective in objectives])
    return torch.tensor(targets, dtype=torch.float64).reshape(-1, len(objectives))


def check_has_bounds(method: str) -> None:
    """Raise InvalidInput if a method has no bounds: the search for a front needs them."""
    if not methods.get(method).has_bounds:
        raise InvalidInput(
            f"method {method!r} has no bounds, which the search for a front needs: leave method out."
        )


def reference_of(reference: Any, objectives: Sequence[Objective]) -> dict[str, float]:
    """Return the checked argument ``reference``: values that are just not acceptable, by the name of the objective.

    Args:
        reference: A dict of values by the names of some objectives, or None.
        objectives: The objectives.

    Raises:
        InvalidInput: No such dict, an unknown name, or no finite number.
    """
    if reference is None:
        return {}
    if not objectives:
        raise InvalidInput("reference is for several objectives, and there is one: leave it out.")
    names = [objective.name for objective in objectives]
    if not isinstance(reference, Mapping) or not set(reference) <= set(names):
        raise InvalidInput(
            f"reference must be a dict with numbers for some of the objectives {names}, got "
            f"{checks.shown(reference)}."
        )
    return {name: checks.number(f"reference of {name!r}", reference[name]) for name in reference}
