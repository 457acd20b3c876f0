"""The order in which values enter a certified bound (docs/theory/observations.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kbo.optimize.surrogates.surrogate import Evaluation


class Order(NamedTuple):
    """The trials that have entered a bound, and those that wait.

    Attributes:
        next: The first trial that has not entered; the one after the latest, where values enter at once.
        waiting: The evaluations that wait for it, by the number of their trial.
        mixed: Whether values of trials at one point were exchanged among them.
        unreported: The number of trials that had not reported when a later one did, where that is declared harmless.
    """

    next: int = 0
    waiting: Mapping[int, Evaluation] = {}
    mixed: bool = False
    unreported: int = 0

    def after(self, evaluation: Evaluation) -> tuple[Order, list[Evaluation]]:
        """Return the order after an evaluation, and the values that enter then, in the order of their starts."""
        waiting = {**self.waiting, evaluation.number: evaluation}
        end = usable_prefix(self.next, waiting)
        entering = []
        for number in range(self.next, end):
            entered = waiting.pop(number)
            if entered.value is not None:
                entering.append(entered)
        points = {e.features for e in entering}
        mixed = self.mixed or len(points) < len(entering)
        return self._replace(next=end, waiting=waiting, mixed=mixed), entering

    def at_once(self, evaluation: Evaluation) -> tuple[Order, list[Evaluation]]:
        """Return the order after an evaluation whose value enters at once, and that value.

        For runs where completion is declared to be independent of the noise.
        """
        unreported = self.unreported + max(evaluation.number - self.next, 0)
        following = max(self.next, evaluation.number + 1)
        order = self._replace(next=following, unreported=unreported)
        if evaluation.value is None:
            return order, []
        return order, [evaluation]


def usable_prefix(first: int, waiting: Mapping[int, Evaluation]) -> int:
    """Return the end of the trials from ``first`` on that a bound may use: all of them have reported.

    Trials at one point that ran at once exchange values, so all of them that have reported enter, or none.

    Args:
        first: The first trial that has not entered.
        waiting: The evaluations from there on that have been reported, by the number of their trial.
    """
    end = first
    while end in waiting:
        end += 1
    if end == first:
        return end
    last_at = {}
    for number in sorted(waiting):
        if waiting[number].value is not None:
            last_at[waiting[number].features] = number
    for number in reversed(range(first, end)):
        evaluation = waiting[number]
        if evaluation.value is not None and last_at[evaluation.features] >= end:
            end = number
    return end
