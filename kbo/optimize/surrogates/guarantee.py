"""The guarantee of an interval: the statement that holds for it, or the reasons why none is proved."""

from __future__ import annotations

from dataclasses import dataclass

NO_BOUND = "none: the method has no bounds, or there are too few trials to compute them"


@dataclass(frozen=True)
class Guarantee:
    """The statement that holds for the reported intervals; true if it is proved.

    Attributes:
        text: The statement, or the objections, in one sentence.
        delta: Probability that the statement fails, which is nominal where there are objections; None without bounds.
        objections: The reasons why nothing is proved.
    """

    text: str
    delta: float | None
    objections: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return not self.objections

    def __str__(self) -> str:
        return self.text


def no_bound() -> Guarantee:
    """Return the guarantee of a surrogate without bounds."""
    return Guarantee(NO_BOUND, None, (NO_BOUND.removeprefix("none: "),))
