"""The schedule of the practical setting: when it fits a model, and whether the values have noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

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


@dataclass
class Schedule:
    """When to fit a model, and whether there is noise: numbers that follow from the values of a run alone.

    Attributes:
        next_fit: The number of values at which the model is fitted next.
        noiseless: Whether the values have no noise; None if that is not known.
        estimated: Whether the noise level is estimated; else ``noiseless`` is given.
        needed_if_tied: The number of equal repetitions that mean no noise if values are tied.
        n: The number of values.
        n_fitted: The number of values to which the model is fitted; 0 if there is no model yet.
        fitted_noiseless: Whether the values were known to have no noise at that fit.
        repetition: The numbers of the two trials at equal parameters whose values decided ``noiseless``, the earlier
            one first; None if no trials did.
        plain: The standardisation of the values to which the model is fitted.
        lowest, highest: The least and the largest value.
        tied: Whether values at different points are equal.
        n_equal: The number of repetitions with the value of the first evaluation at their point.
        first_at: The first evaluation at each point; predictions do not count.
        first_with: The first evaluation with each value.
    """

    next_fit: float
    noiseless: bool | None
    estimated: bool
    needed_if_tied: int = 1
    n: int = 0
    n_fitted: int = 0
    fitted_noiseless: bool = False
    repetition: tuple[int, int] | None = None
    plain: OutcomeTransform = field(default_factory=OutcomeTransform)
    lowest: float = math.inf
    highest: float = -math.inf
    tied: bool = False
    n_equal: int = 0
    first_at: dict[tuple[float, ...], Evaluation] = field(default_factory=dict)
    first_with: dict[float | None, Evaluation] = field(default_factory=dict)

    @property
    def repetitions_needed(self) -> int:
        """The number of equal repetitions that mean no noise."""
        if self.tied:
            return self.needed_if_tied
        return 1

    def after(self, values: Sequence[Evaluation]) -> Schedule:
        """Return the schedule after more values.

        Args:
            values: All evaluations with a value, ``cut``, in the order of their ends. The schedule counts the first
                ``n`` of them already.
        """
        schedule = replace(self, first_at=dict(self.first_at), first_with=dict(self.first_with))
        for evaluation in values[self.n :]:
            schedule._add(evaluation)
            if schedule.n >= schedule.next_fit or schedule._is_outside(evaluation):
                schedule._fit(values)
        return schedule

    def _add(self, new: Evaluation) -> None:
        """Count one more evaluation."""
        if self.estimated and self.noiseless is not False and not new.predicted:
            self._learn_noise(new)
        y: Any = new.value
        self.n += 1
        self.lowest = min(self.lowest, y)
        self.highest = max(self.highest, y)

    def _learn_noise(self, new: Evaluation) -> None:
        """Set ``noiseless`` and ``repetition`` after one more evaluation, which is no prediction.

        A value with an error bar has noise. Otherwise different values at one point mean that there is noise, which
        later equal values do not change. Equal values mean that there is none, as soon as there are enough of them.
        """
        first = self.first_at.setdefault(new.features, new)
        first_with_value = self.first_with.setdefault(new.value, new)
        self.tied |= first_with_value.features != new.features
        if new.error:
            self.noiseless = False
            return
        if first is not new:
            pair = (first.number, new.number)
            if not self._is_equal(new, first):
                self.noiseless = False
                self.repetition = pair
                return
            self.n_equal += 1
            self.repetition = self.repetition or pair
        if self.n_equal >= self.repetitions_needed:
            self.noiseless = True
        else:
            self.noiseless = None
            self.repetition = None

    def _is_equal(self, new: Evaluation, first: Evaluation) -> bool:
        """Return whether two values are equal but for rounding."""
        y: Any = new.value
        first_y: Any = first.value
        return abs(y - first_y) <= _ROUNDING * (self.highest - self.lowest)

    def _is_outside(self, evaluation: Evaluation) -> bool:
        """Return whether a value is too far from the fitted values for the power of their transform."""
        if not self.n_fitted:
            return False
        y: Any = evaluation.value
        distance = abs(max(y, self.plain.floor) - self.plain.centre)
        return distance > _OUTSIDE * self.plain.spread

    def _fit(self, values: Sequence[Evaluation]) -> None:
        """Note that the model is fitted to the values so far, the first ``n`` of some values."""
        y = torch.tensor([e.value for e in values[: self.n]], dtype=torch.float64)
        self.next_fit = math.ceil(REFIT_GROWTH * self.n)
        self.n_fitted = self.n
        self.fitted_noiseless = bool(self.noiseless)
        self.plain = linear(y)
