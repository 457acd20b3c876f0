"""The race of a few candidates: confidence bounds of each by its own values, and their comparison.

Each candidate has a confidence sequence of its median, or with a declared range of its mean. It holds for all numbers
of values at once, under any rule for the next candidate and for the stop (docs/theory/confirm.md).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR
from typing import NamedTuple

from kbo._base.terminal import significant
from kbo.confidence.repeated import bounded_mean, median, median_bounds
from kbo.optimize.run.table import format_params
from kbo.space import Params

_REPEATED = 0.5
"""Share of equal values of a candidate from which on their median says too little."""


@dataclass(frozen=True)
class Finalist:
    """A candidate of a confirmation, with its new values.

    Attributes:
        name: Its name.
        params: Its parameters.
        values: Its new values, in the order of the starts, up to the first that is missing.
        lower, upper: Confidence bounds of its median, or with ``value_range`` of its mean; infinite for few values.
        measured: For each of these values, all measurements of the evaluation by name; the value is "objective".
    """

    name: str
    params: Params
    values: Sequence[float]
    lower: float
    upper: float
    measured: Sequence[Mapping[str, float]] = ()

    def __str__(self) -> str:
        params = format_params(self.params)
        n = len(self.values)
        if not n:
            return f"{self.name}: no value: {params}"
        plural = "" if n == 1 else "s"
        estimates = f"median {self.median:.4g}, mean {self.mean:.4g} of {n} evaluation{plural}"
        return f"{self.name}: {estimates}{_bounds(self)}: {params}"

    @property
    def mean(self) -> float | None:
        """The mean of the values; None without any."""
        if not self.values:
            return None
        return math.fsum(value / len(self.values) for value in self.values)

    @property
    def median(self) -> float | None:
        """The median of the values; None without any."""
        if not self.values:
            return None
        return median(self.values)

    @property
    def repeated(self) -> tuple[float, int] | None:
        """The most frequent value and its count, if it is at least half of the values, but not all; else None."""
        if not self.values:
            return None
        ((value, count),) = Counter(self.values).most_common(1)
        if 1 < count < len(self.values) and count >= _REPEATED * len(self.values):
            return value, count
        return None


def _bounds(finalist: Finalist) -> str:
    """Return the finite bounds of a candidate, rounded outwards, in words; empty without one."""
    lower = significant(finalist.lower, 4, ROUND_FLOOR)
    upper = significant(finalist.upper, 4, ROUND_CEILING)
    has_lower = math.isfinite(finalist.lower)
    has_upper = math.isfinite(finalist.upper)
    if has_lower and has_upper:
        return f", bounds {lower} to {upper}"
    if has_lower:
        return f", bound at least {lower}"
    if has_upper:
        return f", bound at most {upper}"
    return ""


class Standing(NamedTuple):
    """The standing of a race, by the values so far.

    Attributes:
        best: The candidate with the best estimate; None before each candidate has a value.
        rival: The other candidate with the best bound on the good side; None before each has a value.
        largest_lead: The largest lead of the rival over the best one, if the bounds hold, at least 0; may be infinite.
    """

    best: Finalist | None
    rival: Finalist | None
    largest_lead: float


@dataclass(frozen=True)
class Race:
    """The rules of a race: bounds of the candidates, their comparison, and which are evaluated next.

    Attributes:
        n_candidates: The number of candidates.
        maximize: Whether larger values are better.
        delta: Probability, at most, that the statement is wrong.
        value_range: The least and the largest possible value. With a range means are compared, without one medians.
    """

    n_candidates: int
    maximize: bool
    delta: float
    value_range: tuple[float, float] | None

    def bounds(self, values: Sequence[float]) -> tuple[float, float]:
        """Return the lower and the upper bound of the median that values [n] have, or with a range of their mean.

        A statement about medians is wrong only if the optimistic bound of the truly best candidate fails, or the
        pessimistic bound of another one (docs/theory/confirm.md, "The statement").
        """
        if self.value_range is not None:
            return bounded_mean(values, self.delta / self.n_candidates, *self.value_range)
        good_side = self.delta / 2
        bad_side = self.delta / (2 * (self.n_candidates - 1))
        if self.maximize:
            return median_bounds(values, bad_side, good_side)
        return median_bounds(values, good_side, bad_side)

    def standing(self, finalists: Sequence[Finalist]) -> Standing:
        """Return the best candidate so far, its strongest rival, and the largest possible lead of the rival."""
        if any(not finalist.values for finalist in finalists):
            return Standing(None, None, math.inf)
        best = max(finalists, key=self._estimate)
        others = [finalist for finalist in finalists if finalist is not best]
        rival = max(others, key=self._good_bound)
        largest_lead = max(self._good_bound(rival) - self._bad_bound(best), 0.0)
        return Standing(best, rival, largest_lead)

    def worth_evaluating(self, finalists: Sequence[Finalist]) -> list[str]:
        """Return the names of the candidates that need evaluations most."""
        best, rival, largest_lead = self.standing(finalists)
        if best is None or rival is None:
            return [finalist.name for finalist in finalists if not finalist.values]
        if math.isfinite(largest_lead):
            return [best.name, rival.name]
        unbounded = [
            finalist.name for finalist in finalists if math.isinf(self._good_bound(finalist))
        ]
        if math.isinf(self._bad_bound(best)):
            unbounded.append(best.name)
        return unbounded or [best.name, rival.name]  # finite bounds, infinite difference

    def more_needed(self, finalists: Sequence[Finalist], tolerance: float) -> int | None:
        """Return roughly how many more evaluations are needed until no rival can lead by more than the tolerance.

        It is assumed that the estimates of the best candidate and its rival stay, and that the widths of their bounds
        shrink as 1 / sqrt(number of evaluations). None while a bound is infinite.
        """
        best, rival, largest_lead = self.standing(finalists)
        if best is None or rival is None or not math.isfinite(largest_lead):
            return None
        lead = max(self._estimate(best) - self._estimate(rival), 0.0)
        factor = ((largest_lead + lead) / (tolerance + lead)) ** 2
        n_of_both = len(best.values) + len(rival.values)
        return math.ceil(max(factor - 1, 0.0) * n_of_both)

    def objection(self, finalists: Sequence[Finalist]) -> str:
        """Return the reason why the values allow no statement; an empty text if they allow one."""
        if self.value_range is not None:
            return ""
        for finalist in finalists:
            if finalist.repeated is None:
                continue
            value, count = finalist.repeated
            return (
                f"{count} of {len(finalist.values)} values of {finalist.name} are {value:.6g}, and medians of "
                "values that repeat hide differences; give value_range, the least and the largest possible value "
                "(with another journal), then the statement is about means"
            )
        return ""

    def _estimate(self, finalist: Finalist) -> float:
        """Return the median of a candidate, or with a range the mean, with the sign for which larger is better."""
        estimate = finalist.mean
        if self.value_range is None:
            estimate = finalist.median
        assert estimate is not None
        if self.maximize:
            return estimate
        return -estimate

    def _good_bound(self, finalist: Finalist) -> float:
        """Return the optimistic bound of a candidate, with the sign for which larger is better."""
        if self.maximize:
            return finalist.upper
        return -finalist.lower

    def _bad_bound(self, finalist: Finalist) -> float:
        """Return the pessimistic bound of a candidate, with the sign for which larger is better."""
        if self.maximize:
            return finalist.lower
        return -finalist.upper
