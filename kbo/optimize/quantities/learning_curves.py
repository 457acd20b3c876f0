"""Predicted final values of trials that were stopped early, by the reports of completed trials (learning curves)."""

from __future__ import annotations

import bisect
import math
import operator
from collections.abc import Iterable

import numpy as np

from kbo.optimize.run.trials import Trial

FEWEST = 6
"""Least number of completed trials with the same step for a regression."""

_LEAST = 3
"""Least number of completed trials with the same step for a prediction."""


def curves_at(step: int, trials: Iterable[Trial]) -> np.ndarray:
    """Return the last report up to a step, and the final value, of the completed trials with such a report, [n 2]."""
    curves = []
    for trial in trials:
        if trial.value is None:
            continue
        n_reports = bisect.bisect_right(trial.reports, step, key=operator.itemgetter(0))
        if n_reports:
            curves.append((trial.reports[n_reports - 1][1], trial.value))
    return np.array(curves).reshape(-1, 2)


def regression(report: float, curves: np.ndarray) -> tuple[float, float]:
    """Return the prediction of a final value from a report, and its standard error, by linear regression.

    It is the prediction of a new value (Seber & Lee 2003, ch. 5) from the n pairs (x, y) whose reports x are nearest to
    the report. The slope is at least 0:

        mean = mean(y) + slope (report - mean(x))
        error^2 = sum(residual^2) / (n - 2) (1 + 1 / n + (report - mean(x))^2 / sum((x - mean(x))^2))

    Args:
        report: The report.
        curves: Reports at the same step, and final values [n 2].
    """
    n = _n_nearest(len(curves))
    scale = max(abs(report), float(abs(curves).max())) or 1.0
    report = report / scale  # squares of very large numbers would overflow
    curves = curves / scale
    order = np.argsort(abs(curves[:, 0] - report), kind="stable")
    x, y = curves[order[:n]].T
    dx = x - x.mean()
    dy = y - y.mean()
    distance = report - x.mean()
    spread = dx @ dx
    slope = 0.0
    leverage = 0.0
    if spread > 0:
        slope = max(dx @ dy / spread, 0.0)
        leverage = distance**2 / spread
    residual = dy - slope * dx
    error = math.sqrt(residual @ residual / (n - 2) * (1 + 1 / n + leverage))
    return scale * float(y.mean() + slope * distance), scale * error


def degrees_of_freedom(n: int) -> int:
    """Return the degrees of freedom of the error of ``regression`` with n completed trials."""
    return _n_nearest(n) - 2


def _n_nearest(n: int) -> int:
    """Return the number of trials that ``regression`` uses, of n completed ones."""
    return max(FEWEST, math.ceil(n / 2))


def prediction(
    trial: Trial, complete: Iterable[Trial], maximize: bool
) -> tuple[float, float] | None:
    """Return the predicted final value of a pruned trial, as ``Curves`` predicts it, and its standard error.

    With fewer than six completed trials it is the final value that has the same rank as the report has among their
    reports. A prediction is never better than the best final value, and never worse than both the worst final value and
    the report. Its error grows with its distance to the nearest final value.

    Args:
        trial: The pruned trial.
        complete: Completed trials.
        maximize: Whether larger values are better.

    Returns:
        The prediction and its standard error. None without a report, with fewer than three completed trials that
        reported up to this step, and if they cannot be computed.
    """
    if not trial.reports:
        return None
    step, report = trial.reports[-1]
    curves = curves_at(step, complete)
    if len(curves) < _LEAST:
        return None
    if len(curves) < FEWEST:
        mean, error = _by_rank(report, curves)
    else:
        mean, error = regression(report, curves)
    values = curves[:, 1]
    low = values.min()
    high = values.max()
    if maximize:
        low = min(report, low)
    else:
        high = max(report, high)
    mean = float(min(max(mean, low), high))
    error = math.hypot(error, float(abs(mean - values).min()) / 4)
    if not math.isfinite(mean) or not math.isfinite(error):
        return None
    return mean, error


def _by_rank(report: float, curves: np.ndarray) -> tuple[float, float]:
    """Return the final value with the rank of a report among curves [n 2], interpolated, and its standard error.

    The error combines the root mean square error over the completed trials with the extent of their values divided by
    n.
    """
    reports, values = curves.T
    by_rank = np.sort(reports), np.sort(values)
    mean = float(np.interp(report, *by_rank))
    missed = np.interp(reports, *by_rank) - values  # of the completed trials
    root_mean_square = math.hypot(*missed) / math.sqrt(len(values))
    return mean, math.hypot(root_mean_square, float(np.ptp(values)) / len(values))
