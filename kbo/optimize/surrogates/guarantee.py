"""The guarantee of reported intervals: the proved statement, or the reasons why nothing is proved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kbo._base.terminal import beside

WITHOUT_BOUND = "the method has no bounds, or there are too few trials to compute them"

NO_BOUND = f"none: {WITHOUT_BOUND}"
"""The guarantee of a run without a bound, as text."""


@dataclass(frozen=True)
class Guarantee:
    """The guarantee of the reported intervals; its truth value is whether it is proved.

    Attributes:
        kind: "certified", "not certified", "practical, not certified", or "none" where there is no bound.
        statement: The statement, or the objections, in one sentence.
        delta: Probability, at most, that the statement fails; nominal if there are objections.
        objections: The reasons why nothing is proved.
        selected: Those of ``kbo.optimize.run.trials.WAYS`` that are among the objections.
    """

    kind: Literal["certified", "not certified", "practical, not certified", "none"]
    statement: str
    delta: float
    objections: tuple[str, ...] = ()
    selected: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return not self.objections

    @property
    def text(self) -> str:
        """The kind and the statement, as reports show them."""
        return f"{self.kind}: {self.statement}"

    def __str__(self) -> str:
        return self.text


def joint_guarantee(guarantees: Mapping[str, Guarantee]) -> Guarantee:
    """Return the guarantee of the intervals of several objectives at once, from those of each by name."""
    delta = sum(guarantee.delta for guarantee in guarantees.values())
    unproved = {name: guarantee for name, guarantee in guarantees.items() if not guarantee}
    if unproved:
        first = next(iter(unproved.values()))
        objections = _statements(unproved)
        return Guarantee(first.kind, "; ".join(objections), delta, tuple(objections))
    joint = f"with probability at least {beside(1 - delta, 1.0)} for all objectives at once"
    statement = "; ".join([joint, *_statements(guarantees)])
    return Guarantee("certified", statement, delta)


def _statements(guarantees: Mapping[str, Guarantee]) -> list[str]:
    """Return the statement of each objective, with its name before it."""
    return [f"{name}: {guarantee.statement}" for name, guarantee in guarantees.items()]
