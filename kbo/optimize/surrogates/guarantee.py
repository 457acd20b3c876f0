"""The statement that holds for reported intervals, or the reasons why nothing is proved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

WITHOUT_BOUND = "the method has no bounds, or there are too few trials to compute them"

NO_BOUND = f"none: {WITHOUT_BOUND}"
"""The text about the guarantee of a run without a bound."""


@dataclass(frozen=True)
class Guarantee:
    """The statement that holds for the reported intervals; true if it is proved.

    Attributes:
        kind: "certified", "not certified", "practical, not certified", or "none" where there is no bound.
        statement: The statement, or the objections, in one sentence.
        delta: Probability that the statement fails, which is nominal where there are objections.
        objections: The reasons why nothing is proved.
        selected: Those of ``kbo.optimize.run.trials.WAYS`` that are among these reasons.
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
