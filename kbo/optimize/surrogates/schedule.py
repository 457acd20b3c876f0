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

LARGEST = 1e300
"""Size at which values are cut, so that their differences stay finite."""

_OUTSIDE = 1e50
"""Standard deviations from the mean at which a value asks for a fit at once, since powers of it would overflow."""

_ROUNDING = 1e-9
"""Differences of values at one point, in ranges of all values, that are rounding and no noise."""


def cut(value: float) -> float:
    """Return a value, cut to the largest size."""
    return min(max(value, -LARGEST), LARGEST)


class Schedule(NamedTuple):
    """State of the fits after some values, before any model.

    Attributes:
        next_fit: Number of values at which the model is fitted next.
        noiseless: Whether the values have no noise; None if that is not known.
        n: The number of values.
        n_fitted: The number of values to which the model is fitted; 0 if there is none yet.
        fitted_noiseless: Whether it was known then that they have no noise.
        repetition: Numbers of the first trials with equal parameters whose values decided ``noiseless``, the earlier
            one first; None if there are none.
        plain: The standardisation of the values to which the model is fitted.
        lowest, highest: The least and the largest value.
    """

    next_fit: float
    noiseless: bool | None
    n: int = 0
    n_fitted: int = 0
    fitted_noiseless: bool = False
    repetition: tuple[int, int] | None = None
    plain: OutcomeTransform = OutcomeTransform()
    lowest: float = math.inf
    highest: float = -math.inf

    def after(self, values: Sequence[Evaluation], estimated: bool) -> Schedule:
        """Return the schedule after more values.

        Args:
            values: All evaluations with a value, the ones that the schedule knows first; they are ``cut``.
            estimated: Whether the noise level is estimated; else ``noiseless`` is given.
        """
        schedule = self
        first_at = {}
        if estimated and self.noiseless is not False:
            for evaluation in values[: self.n]:
                if not evaluation.predicted:
                    first_at.setdefault(evaluation.features, evaluation)
        for evaluation in values[self.n :]:
            first = evaluation
            if not evaluation.predicted:
                first = first_at.setdefault(evaluation.features, evaluation)
            schedule = schedule._after(values, first, estimated)
        return schedule

    def _after(self, values: Sequence[Evaluation], first: Evaluation, estimated: bool) -> Schedule:
        """Return the schedule after one value more, ``first`` being the first evaluation at its point."""
        new = values[self.n]
        y: Any = new.value
        noiseless = self.noiseless
        repetition = self.repetition
        if new.error and not new.predicted and estimated:
            noiseless = False
        if first is not new and estimated and noiseless is not False:
            first_y: Any = first.value
            is_equal = abs(y - first_y) <= _ROUNDING * (self.highest - self.lowest)
            if is_equal is not noiseless:
                noiseless = is_equal
                repetition = first.number, new.number
        n = self.n + 1
        schedule = self._replace(
            n=n,
            noiseless=noiseless,
            repetition=repetition,
            lowest=min(self.lowest, y),
            highest=max(self.highest, y),
        )
        if n < self.next_fit and not self._is_outside(y):
            return schedule
        return schedule._replace(
            next_fit=math.ceil(REFIT_GROWTH * n),
            n_fitted=n,
            fitted_noiseless=bool(noiseless),
            plain=linear(torch.tensor([e.value for e in values[:n]], dtype=torch.float64)),
        )

    def _is_outside(self, y: float) -> bool:
        """Return whether a value is too far from the fitted ones for the powers of their transform."""
        if not self.n_fitted:
            return False
        distance = abs(max(y, self.plain.floor) - self.plain.centre)
        return distance > _OUTSIDE * self.plain.spread
