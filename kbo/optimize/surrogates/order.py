"""The order in which values enter a certified bound (docs/theory/observations.md).

Values enter in the order in which their points were chosen. Each waits until all earlier trials have reported, since
the noise of a trial may decide when and whether it reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kbo.optimize.surrogates.evaluation import Evaluation


class Order(NamedTuple):
    """Which trials have entered a bound, and which wait.

    Attributes:
        next: The number of the first trial that has not entered; if values enter at once, the number after the latest.
        waiting: The evaluations that wait for that trial, each by its own number.
        mixed: Whether parallel trials at one point entered together, so that their values may have been exchanged.
        unreported: The number of trials that had not reported when a later one did; only counted if values enter at
            once.
    """

    next: int = 0
    waiting: Mapping[int, Evaluation] = {}
    mixed: bool = False
    unreported: int = 0

    def after(self, evaluation: Evaluation) -> tuple[Order, list[Evaluation]]:
        """Return the order after an evaluation, and the evaluations that then enter, in the order of their starts."""
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
        """Return the order after an evaluation that enters at once, and this evaluation if it has a value.

        It is used if completion is declared to be independent of the noise.
        """
        unreported = self.unreported + max(evaluation.number - self.next, 0)
        following = max(self.next, evaluation.number + 1)
        order = self._replace(next=following, unreported=unreported)
        if evaluation.value is None:
            return order, []
        return order, [evaluation]


def usable_prefix(first: int, waiting: Mapping[int, Evaluation]) -> int:
    """Return the number of the first trial that a bound may not use yet: all earlier ones have reported.

    Parallel trials at one point may exchange their values. So those of them that have reported enter together, or wait
    together.

    Args:
        first: The number of the first trial that has not entered.
        waiting: The reported evaluations from this trial on, by the numbers of their trials.
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
