"""The values of one quantity at the ends of trials, with their error bars, to which surrogates are fitted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor

from kbo.space import Space

ANY = (-math.inf, math.inf)
"""The span of a quantity without a declared range."""

_ADDED = 0.5
"""Share of the variance of the median error bar that is added to that of each value, where the noise is fitted."""

_LEAST_BAR, _LARGEST_BAR = 1e-3, 1e6
"""Least and largest error bar, in units of the common noise level. Smaller and larger ones count as these."""


class Evaluation(NamedTuple):
    """The end of a trial, for the surrogate of one quantity.

    Attributes:
        number: The number of the trial, from 0 in the order of the starts.
        features: Its features [D].
        value: The value of the quantity; None without one.
        selected: Those of ``kbo.optimize.run.trials.WAYS`` in which its noise may have decided which values were
            observed.
        error: The standard error of the value, as reported or of a prediction; None without one.
        predicted: Whether the value is predicted, because the trial was stopped early.
    """

    number: int
    features: tuple[float, ...]
    value: float | None
    selected: Sequence[str] = ()
    error: float | None = None
    predicted: bool = False


def data(
    evaluations: Sequence[Evaluation], device: torch.device | None = None
) -> tuple[Tensor, Tensor]:
    """Return features [n D] and values [n] of evaluations, which all have a value, on a device; by default the CPU."""
    X = torch.tensor([e.features for e in evaluations], dtype=torch.float64, device=device)
    return X, X.new_tensor([e.value for e in evaluations])


class SearchProblem(NamedTuple):
    """The method and the search space of a run, and the range of one quantity.

    Attributes:
        method: A name of ``kbo.bandit.names()``.
        n_trials: The planned number of trials, for methods that need it.
        space: The search space.
        span: The least and the largest possible value of the quantity, larger ones better.
    """

    method: str
    n_trials: int | None
    space: Space
    span: tuple[float, float] = ANY


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
            relative = min(max(evaluation.error / common, _LEAST_BAR), _LARGEST_BAR)
            ratios[i] = (relative**2 + added) / (1 + added)
    return ratios
