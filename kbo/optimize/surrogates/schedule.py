"""The schedule of the practical setting: when it fits a model, and whether the values have noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from kbo.optimize.surrogates.evaluation import Evaluation
from kbo.optimize.surrogates.outcome_transform import OutcomeTransform, linear

REFIT_GROWTH = 1.3
"""Growth of the data between fits, so that fits stay rare; waiting for a doubling gave clearly worse optima."""

LARGEST = 1e300
"""Largest absolute value for a model: differences of larger ones may overflow."""

_OUTSIDE = 1e50
"""Standard deviations from the mean of the fitted values, beyond which a value asks for a fit at once: powers of it
would overflow."""

_ROUNDING = 1e-9
"""Largest difference of values at one point, in ranges of all values, that is rounding and not noise."""


def cut(value: float) -> float:
    """Return a value cut to the range from ``-LARGEST`` to ``LARGEST``."""
    return min(max(value, -LARGEST), LARGEST)


class Schedule(NamedTuple):
    """When to fit a model, and whether there is noise: numbers that follow from the values of a run alone.

    Attributes:
        next_fit: The number of values at which the model is fitted next.
        noiseless: Whether the values have no noise; None if that is not known.
        n: The number of values.
        n_fitted: The number of values to which the model is fitted; 0 if there is no model yet.
        fitted_noiseless: Whether the values were known to have no noise at that fit.
        repetition: The numbers of the two trials at equal parameters whose values decided ``noiseless``, the earlier
            one first; None if no trials did.
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
            values: All evaluations with a value, ``cut``, in the order of their ends. The schedule counts the first
                ``n`` of them already.
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
        """Return the schedule after one more value, where ``first`` is the first evaluation at its point."""
        new = values[self.n]
        y: Any = new.value
        noiseless = self.noiseless
        repetition = self.repetition
        if estimated:
            noiseless, repetition = self._noise_after(new, first)
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

    def _noise_after(
        self, new: Evaluation, first: Evaluation
    ) -> tuple[bool | None, tuple[int, int] | None]:
        """Return ``noiseless`` and ``repetition`` after one more evaluation.

        A value with an error bar has noise. Otherwise equal values at one point mean that there is no noise, and
        different values that there is; later equal values do not change this.

        Args:
            new: The evaluation.
            first: The first evaluation at its point, which may be ``new``.
        """
        if self.noiseless is False or (new.error and not new.predicted):
            return False, self.repetition
        if first is new:
            return self.noiseless, self.repetition
        y: Any = new.value
        first_y: Any = first.value
        is_equal = abs(y - first_y) <= _ROUNDING * (self.highest - self.lowest)
        if is_equal is self.noiseless:
            return self.noiseless, self.repetition
        return is_equal, (first.number, new.number)

    def _is_outside(self, y: float) -> bool:
        """Return whether a value is too far from the fitted values for the power of their transform."""
        if not self.n_fitted:
            return False
        distance = abs(max(y, self.plain.floor) - self.plain.centre)
        return distance > _OUTSIDE * self.plain.spread
