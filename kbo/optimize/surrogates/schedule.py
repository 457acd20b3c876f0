"""When the practical setting fits a model, and whether the values have noise: functions of the values alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from kbo.optimize.surrogates.outcome_transform import OutcomeTransform, linear
from kbo.optimize.surrogates.surrogate import Evaluation

REFIT_GROWTH = 1.3
"""The data grow by this factor between fits, so fits stay rare; waiting for a doubling found clearly worse optima."""

LARGEST, _OUTSIDE = 1e300, 1e50
"""Size at which values are cut, so that their differences stay finite; and standard deviations from the mean at which a
value asks for a fit at once, since powers of it would overflow."""

_ROUNDING = 1e-9
"""Differences of values at one point, in ranges of all values, that are rounding and no noise."""


def cut(value: float) -> float:
    """Return a value, cut to the largest size."""
    return min(max(value, -LARGEST), LARGEST)


class Schedule(NamedTuple):
    """State of the fits after some values, before any model.

    Attributes:
        next_fit: Number of values at which the model is fitted next.
        exact: Whether the values have no noise; None if that is not known.
        n: The number of values.
        n_fitted: The number of values to which the model is fitted; 0 if there is none yet.
        fitted_exactly: Whether it was known then that they have no noise.
        repetition: Numbers of the first trials with equal parameters whose values decided ``exact``, the earlier one
            first; None if there are none.
        plain: The standardisation of the values to which the model is fitted.
        lowest, highest: The least and the largest value.
    """

    next_fit: float
    exact: bool | None
    n: int = 0
    n_fitted: int = 0
    fitted_exactly: bool = False
    repetition: tuple[int, int] | None = None
    plain: OutcomeTransform = OutcomeTransform()
    lowest: float = math.inf
    highest: float = -math.inf

    def after(self, values: Sequence[Evaluation], estimated: bool) -> Schedule:
        """Return the schedule after more values.

        Args:
            values: All evaluations with a value, those that the schedule knows first; they are ``cut``.
            estimated: Whether the noise level is estimated; else ``exact`` is given.
        """
        schedule, first = self, {}
        for one in values[: self.n]:
            if not one.predicted:
                first.setdefault(one.features, one)
        for one in values[self.n :]:
            same = one if one.predicted else first.setdefault(one.features, one)
            schedule = schedule._after(values, same, estimated)
        return schedule

    def _after(self, values: Sequence[Evaluation], same: Evaluation, estimated: bool) -> Schedule:
        """Return the schedule after one value more, of which ``same`` is the first evaluation at its point."""
        new, exact, repetition = values[self.n], self.exact, self.repetition
        y: Any = new.value
        if new.error and not new.predicted and estimated:
            exact = False
        if same is not new and estimated and exact is not False:
            found = abs(y - same.value) <= _ROUNDING * (self.highest - self.lowest)  # pyright: ignore
            if found is not exact:
                exact, repetition = found, (same.number, new.number)
        n, lowest, highest = self.n + 1, min(self.lowest, y), max(self.highest, y)
        known = self._replace(
            n=n, exact=exact, repetition=repetition, lowest=lowest, highest=highest
        )
        outside = (
            self.n_fitted
            and abs(max(y, self.plain.floor) - self.plain.centre) > _OUTSIDE * self.plain.spread
        )
        if n < self.next_fit and not outside:
            return known
        plain = linear(torch.tensor([one.value for one in values[:n]], dtype=torch.float64))
        next_fit = math.ceil(REFIT_GROWTH * n)
        return known._replace(
            next_fit=next_fit, n_fitted=n, fitted_exactly=bool(exact), plain=plain
        )
