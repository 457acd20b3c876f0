"""Bounds by a fixed multiple of the standard deviation: common in practice, without a guarantee."""

from __future__ import annotations

from kbo._base import checks
from kbo.confidence.base import WidthConfidence
from kbo.errors import InvalidInput
from kbo.regression import Posterior


class FixedWidth(WidthConfidence):
    """Bounds ``mean +- multiplier * sqrt(variance)``, without a guarantee.

    Args:
        multiplier: The width, at least 0.
    """

    def __init__(self, multiplier: float) -> None:
        self.multiplier: float = checks.non_negative("multiplier", multiplier)

    def width(self, state: Posterior) -> float:
        return self.multiplier

    def reported(self) -> None:
        """Return None, because these bounds only rank points."""


class AlternatingWidth(WidthConfidence):
    """Bounds ``mean +- multiplier * sqrt(variance)`` whose multiplier changes from trial to trial.

    A search with a small width refines the best region so far; one with a large width finds other
    regions.

    Args:
        multipliers: The widths, each at least 0, in the order in which they take turns.

    Raises:
        InvalidInput: A width out of its range, or none at all.
    """

    def __init__(self, *multipliers: float) -> None:
        if not multipliers:
            raise InvalidInput("AlternatingWidth needs at least one multiplier: pass its widths.")
        self.multipliers: tuple[float, ...] = tuple(
            checks.non_negative("multipliers", multiplier) for multiplier in multipliers
        )

    def width(self, state: Posterior) -> float:
        return self.for_trial(state.n).multiplier

    def for_trial(self, number: int) -> FixedWidth:
        """Return the bound of trial ``number``, which may begin while earlier trials are pending."""
        return FixedWidth(self.multipliers[number % len(self.multipliers)])

    def reported(self) -> None:
        """Return None, because these bounds only rank points."""
