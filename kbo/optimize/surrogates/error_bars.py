"""Error bars of values: their noise relative to each other, and the standard errors of predicted values."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import torch
from torch import Tensor

from kbo.optimize.surrogates.evaluation import Evaluation

_ADDED = 0.5
"""Share of the variance of the median error bar that is added to that of each value, where the noise is fitted."""

_LEAST, _LARGEST = 1e-3, 1e6
"""Least and largest error bar, in units of the common noise level. Smaller and larger ones count as these."""


def prediction_errors(values: Sequence[Evaluation]) -> Tensor:
    """Return the standard errors [n] of values besides their noise: 0, except for predicted values."""
    errors = [e.error if e.predicted else 0.0 for e in values]
    return torch.tensor(errors, dtype=torch.float64)


def median_bar(values: Sequence[Evaluation]) -> float | None:
    """Return the median of the error bars of observed values; None if there are none, or if it is 0."""
    bars = [e.error for e in values if e.error is not None and not e.predicted]
    if not bars:
        return None
    return median(bars) or None


def noise_ratios(
    values: Sequence[Evaluation], fitted: Sequence[Evaluation], noise_std: float | None
) -> Tensor:
    """Return the noise variances [n] of values relative to the common one; 1 for values without an error bar.

        ratio = ((error / common)^2 + added) / (1 + added)

    If the common noise level is fitted, ``common`` is the median error bar and ``added`` is a half, since error bars of
    a few repetitions can be far too small by chance (experiments/records/tuning.md). If the level is given, it is
    ``common``, and ``added`` is 0.

    Args:
        values: The values.
        fitted: The values to which the model is fitted.
        noise_std: The common noise level if it is given; None if it is fitted.
    """
    if noise_std is None:
        common = median_bar(fitted)
        added = _ADDED
    else:
        common = noise_std or None
        added = 0.0
    ratios = torch.ones(len(values), dtype=torch.float64)
    if common is None:
        return ratios
    for i, evaluation in enumerate(values):
        if evaluation.error is not None and not evaluation.predicted:
            relative = min(max(evaluation.error / common, _LEAST), _LARGEST)
            ratios[i] = (relative**2 + added) / (1 + added)
    return ratios
