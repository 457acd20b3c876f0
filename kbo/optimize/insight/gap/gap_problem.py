"""The input of a gap: surrogates, limits, a search, and the work that a proof may take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kbo.optimize.constraints.feasibility import ConstraintSurrogate
from kbo.optimize.run.trials import Trial
from kbo.optimize.search.search import Search
from kbo.optimize.surrogates.surrogate import Surrogate
from kbo.space import Space


@dataclass(frozen=True)
class GapProblem:
    """The surrogates, limits and search from which a gap is computed, and the work that a proof may take.

    Attributes:
        surrogates: The surrogates of the objectives, with bounds, by name.
        constraints: The constraints with their surrogates.
        search: A search of the whole space.
        objection: The reason why the bounds have no guarantee; empty if they have one.
        evaluations: The largest number of points at which each proof computes bounds; 0 for no proof.
        goal: The proof ends when the gap is at most this.
        counted: Called after each step of a proof with the number of points that it examined.
    """

    surrogates: Mapping[str, Surrogate]
    constraints: Sequence[ConstraintSurrogate]
    search: Search
    objection: str
    evaluations: int
    goal: float
    counted: Callable[[int], object]

    @property
    def space(self) -> Space:
        """The search space."""
        return self.search.space

    @property
    def surrogate(self) -> Surrogate:
        """The surrogate of the only objective."""
        (surrogate,) = self.surrogates.values()
        return surrogate


def objection_to_bounds(
    surrogates: Mapping[str, Surrogate],
    constraints: Sequence[ConstraintSurrogate],
    finished: Sequence[Trial],
) -> str:
    """Return the reason why bounds of an objective or a constraint have no guarantee; empty if all have one.

    Args:
        surrogates: The surrogates of the objectives, by name.
        constraints: The constraints with their surrogates.
        finished: The trials that have ended. The reason names the first of them that is a part of it.
    """
    named = [(f"{name}: ", surrogate) for name, surrogate in surrogates.items()]
    if len(surrogates) == 1:
        named = [("", surrogate) for surrogate in surrogates.values()]
    named += [(f"{entry.constraint.name}: ", entry.surrogate) for entry in constraints]
    for prefix, surrogate in named:
        guarantee = surrogate.guarantee()
        if guarantee:
            continue
        objection = f"{prefix}{guarantee.text}"
        if guarantee.kind == "not certified":
            objection = f"{prefix}{guarantee.statement}"
        for trial in finished:
            if not guarantee.selected.isdisjoint(trial.selected):
                return f"{objection} (first trial {trial.number})"
        return objection
    return ""
