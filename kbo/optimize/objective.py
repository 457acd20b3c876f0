"""Several objectives of a run, and the reference point that makes their values comparable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from kbo._base import checks
from kbo.bandit import methods
from kbo.errors import InvalidInput
from kbo.optimize.run.outcome import OBJECTIVE, SEM

_LEAST = 2
"""Number of objectives from which on there is a front."""


@dataclass(frozen=True)
class Objective:
    """A quantity to optimise, which the objective function returns by name.

    Args:
        name: The key of the quantity in the returned dict.

    Attributes:
        maximize: Whether larger values are better.
    """

    name: str

    maximize: ClassVar[bool]

    def __post_init__(self) -> None:
        name = checks.text("the name of an objective", self.name)
        if name in (OBJECTIVE, SEM):
            raise InvalidInput(f"an objective cannot be called {name!r}: give it another name.")

    @property
    def sign(self) -> int:
        """1 if larger values are better, else -1."""
        return 1 if self.maximize else -1

    def describe(self) -> dict[str, Any]:
        """Return the objective as plain JSON values."""
        return {"name": self.name, "maximize": self.maximize}

    def __str__(self) -> str:
        return f"{self.name} ({'larger' if self.maximize else 'smaller'} is better)"


class Minimize(Objective):
    """A quantity whose smaller values are better."""

    maximize = False


class Maximize(Objective):
    """A quantity whose larger values are better."""

    maximize = True


def objective_of(entry: Mapping[str, Any]) -> Objective:
    """Return the objective that plain JSON values describe."""
    if entry["maximize"]:
        return Maximize(entry["name"])
    return Minimize(entry["name"])


def objectives_of(objectives: Any, maximize: bool) -> tuple[Objective, ...]:
    """Return several objectives; none if there is only that of the run.

    Args:
        objectives: Objectives, or names of quantities that are all minimised, or all maximised.
        maximize: Whether names are of quantities that are maximised.

    Raises:
        InvalidInput: Not a list of at least two objectives, or two of one name.
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
    return tuple(found)


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
