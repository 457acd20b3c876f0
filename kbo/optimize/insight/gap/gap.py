"""The optimality gap of a run, and whether it is proved."""

from __future__ import annotations

from typing import NamedTuple

from kbo._base.terminal import rounded_up
from kbo.space import Space

NOT_REQUESTED = "no proof was asked for: pass evaluations="
"""Reason why nothing is proved, if no proof was requested."""

WHOLE = "over the whole space"
"""Scope of a gap that bounds the improvement at every point."""


class Gap(NamedTuple):
    """The optimality gap: how much better the optimum may be than the recommendation, at most.

    Attributes:
        value: If the bounds hold, the largest possible improvement on the recommendation, in units of the objective.
            With several objectives it is the largest possible lead over the front, as a share of its extent.
        proved: Whether the bounds are certified, and the gap holds for all points in the scope, not only for those that
            a search has found.
        scope: The points that were compared, in words.
        exact: Whether the bounds were computed at every point; False after a search from many starts.
        final: Whether the scope stays the same after later trials. In the safe setting more points may become safe.
        found: The gap by the bounds of the method, at every point or at those of a search.
        reason: The reason why nothing is proved. For a proved gap below ``found``, it names the bound that excludes
            more than the bounds of the method (docs/theory/gaps.md). Otherwise empty.
    """

    value: float
    proved: bool
    scope: str
    exact: bool
    final: bool = True
    found: float = 0.0
    reason: str = ""

    def __str__(self) -> str:
        if self.proved:
            return f"at most {rounded_up(self.value, 4)} ({self.scope})"
        return f"{self.value:.4g}, not guaranteed ({self.scope})"


def exact_gap(value: float, space: Space, objection: str) -> Gap:
    """Return a gap with bounds that were computed at every point; it is proved if there is no objection to them."""
    scope = WHOLE
    if space.constraints:
        scope = "over all points that satisfy the constraints"
    return Gap(value, not objection, scope, exact=True, found=value, reason=objection)


def proved_gap(value: float, found: float, scope: str, reason: str) -> Gap:
    """Return a proved gap; ``reason`` says why it is below the found gap, if it is."""
    scope += f", proved; {found:.4g} was found"
    if value >= found:
        return Gap(value, True, scope, exact=False, found=found)
    reason += " (docs/theory/gaps.md)"
    return Gap(value, True, f"{scope}, but {reason}", exact=False, found=found, reason=reason)


def unproved_gap(found: float, reason: str) -> Gap:
    """Return a gap that a search has found, with the reason why it is not proved."""
    scope = "by a search from many starts"
    if reason != NOT_REQUESTED:
        scope += f"; not proved: {reason}"
    return Gap(found, False, scope, exact=False, found=found, reason=reason)
