"""Objectives: the quantities of a run with several of them, and the reference that makes their values comparable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo._base import checks
from kbo.bandit import methods
from kbo.errors import InvalidInput
from kbo.optimize.hypotheses import (
    Hypothesis,
    check_assumptions,
    has_assumptions,
    owns_kernel,
)
from kbo.optimize.run.outcome import OBJECTIVE, SEM
from kbo.optimize.run.trials import Trial

_LEAST = 2
"""Number of objectives from which on there is a front."""


@owns_kernel
@dataclass(frozen=True, eq=False)
class Objective:
    """A quantity to optimise, which the objective function returns by name.

    The assumptions about the first objective are those of the setting; the others have their own.

    Args:
        name: The key of the quantity in the returned dict.
        noise_std: In the certified setting the sub-Gaussian constant of its noise, which is needed unless the method
            bounds it online; in the practical setting its standard deviation, if it is known.
        norm_bound: Bound of its RKHS norm, needed in the certified setting, and only there; its prior mean is 0.
        kernel: Its kernel in the certified setting, which is copied; by default that of the setting. Or a list of
            ``kbo.Hypothesis``, without the two numbers: the bounds hold if one of them is true.

    Attributes:
        maximize: Whether larger values are better.

    Raises:
        InvalidInput: No name, or a number out of its range.
    """

    name: str
    _: KW_ONLY
    noise_std: float | None = None
    norm_bound: float | None = None
    kernel: Kernel | Sequence[Hypothesis] | None = None

    maximize: ClassVar[bool]

    def __post_init__(self) -> None:
        name = checks.text("the name of an objective", self.name)
        if name in (OBJECTIVE, SEM):
            raise InvalidInput(f"an objective cannot be called {name!r}: give it another name.")
        with checks.inside(self.title):
            check_assumptions(self)

    @property
    def title(self) -> str:
        """The objective in messages."""
        return f"objective {self.name!r}"

    @property
    def sign(self) -> int:
        """1 if larger values are better, else -1."""
        return 1 if self.maximize else -1

    def describe(self) -> dict[str, Any]:
        """Return the direction and the numbers as plain JSON values, without the kernel."""
        numbers = {"name": self.name, "maximize": self.maximize}
        for name in ("noise_std", "norm_bound"):
            if getattr(self, name) is not None:
                numbers[name] = getattr(self, name)
        return numbers

    def __str__(self) -> str:
        return f"{self.name} ({'larger' if self.maximize else 'smaller'} is better)"


class Minimize(Objective):
    """A quantity whose smaller values are better."""

    maximize = False


class Maximize(Objective):
    """A quantity whose larger values are better."""

    maximize = True


def objective_of(entry: Mapping[str, Any]) -> Objective:
    """Return the objective that plain JSON values describe, without its kernel."""
    kind = Maximize if entry["maximize"] else Minimize
    return kind(
        entry["name"],
        noise_std=entry.get("noise_std"),
        norm_bound=entry.get("norm_bound"),
    )


def recorded_objectives(header: Mapping[str, Any]) -> list[Objective]:
    """Return the several objectives that the header of a journal describes; none of one."""
    return [objective_of(entry) for entry in header.get("objectives", ())]


def objectives_of(objectives: Any, maximize: bool) -> tuple[Objective, ...]:
    """Return several objectives; none if there is only that of the run.

    Args:
        objectives: Objectives, or names of quantities that are all minimised, or all maximised.
        maximize: Whether names are of quantities that are maximised.

    Raises:
        InvalidInput: Not a list of at least two objectives, two of one name, or assumptions about the first one, which
            are those of the setting.
    """
    if isinstance(objectives, (str, Mapping)) or not isinstance(objectives, Sequence):
        raise InvalidInput(
            "objectives must be a list of names, kbo.Minimize(name) and kbo.Maximize(name), got "
            f"{checks.shown(objectives)}."
        )
    default = Maximize if maximize else Minimize
    found: list[Objective] = []
    for entry in objectives:
        objective = entry
        if not isinstance(entry, Objective):
            objective = default(entry)
        if objective.name in [other.name for other in found]:
            raise InvalidInput(f"objectives: there are two called {objective.name!r}.")
        found.append(objective)
    if len(found) == 1:
        raise InvalidInput(
            f"objectives needs at least {_LEAST}, got one: leave it out, and return a number."
        )
    if found and has_assumptions(found[0]):
        raise InvalidInput(
            f"{found[0].title}: noise_std, norm_bound and kernel of the first objective belong to the setting."
        )
    return tuple(found)


def targets_of(trials: Sequence[Trial], objectives: Sequence[Objective]) -> Tensor:
    """Return the observed values [n m] of several objectives in the completed trials, times -1 if minimised."""
    signs = torch.tensor([objective.sign for objective in objectives], dtype=torch.float64)
    values = []
    for trial in trials:
        if trial.value is not None:
            others = [trial.measured[objective.name] for objective in objectives[1:]]
            values.append([trial.value, *others])
    return signs * torch.tensor(values, dtype=torch.float64).reshape(-1, len(objectives))


def check_has_bounds(method: str) -> None:
    """Raise InvalidInput if a method has no bounds, which the search for a front needs."""
    if not methods.get(method).has_bounds:
        raise InvalidInput(
            f"method {method!r} has no bounds, which the search for a front needs: leave method out."
        )


def reference_of(
    reference: Any, objectives: Sequence[Objective]
) -> tuple[float | None, ...] | None:
    """Return the values of the objectives that are just not acceptable; None where they are not given.

    Args:
        reference: A dict of values by the names of some objectives, or a list of all in their order.
        objectives: The objectives.

    Raises:
        InvalidInput: Another number of values, an unknown name, or no finite number.
    """
    if reference is None:
        return None
    names = [objective.name for objective in objectives]
    expected = f"reference must have numbers for the objectives {names}"
    if not objectives:
        raise InvalidInput("reference is for several objectives, and there is one: leave it out.")
    values: Any = reference
    if isinstance(reference, Mapping):
        if not set(reference) <= set(names):
            raise InvalidInput(f"{expected}, got {checks.shown(reference)}.")
        values = [reference.get(name) for name in names]
    if not isinstance(values, Sequence) or isinstance(values, str) or len(values) != len(names):
        raise InvalidInput(f"{expected}, got {checks.shown(reference)}.")
    numbers = []
    for name, value in zip(names, values, strict=True):
        numbers.append(checks.maybe(checks.number, f"reference of {name!r}", value))
    if not any(number is not None for number in numbers):
        return None
    return tuple(numbers)
