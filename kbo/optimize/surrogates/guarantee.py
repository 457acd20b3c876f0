"""The guarantee of reported intervals: the proved statement, or the reasons why nothing is proved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
