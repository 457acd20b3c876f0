"""The posterior of the practical setting: that of a method with the fitted model, or a sketch for many values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kbo.bandit import methods
from kbo.bandit.method import Method
from kbo.optimize.surrogates.evaluation import (
    Evaluation,
    SearchProblem,
    data,
    noise_ratios,
    prediction_errors,
)
from kbo.optimize.surrogates.model import Fitted
from kbo.optimize.surrogates.process import Trend
from kbo.regression import GreedyDictionary, KernelRidge, NystromRidge, Posterior, PriorMean
from kbo.regression.sketch.dictionary import Observed, pivots

RIDGES = tuple(10 ** (-1 + 0.4 * i) for i in range(9))
"""Multiples of the mixture ridge for the practical "dmm-ucb": 0.1 to about 160."""

MOST_EXACT = 500
"""Largest number of observations with an exact posterior; more have a sketch."""

MOST_POINTS = 320
"""Number of inducing points at which they are chosen again."""

N_DRAWN = 224
"""Number of inducing points that are then chosen."""

LEFT_OUT = 0.1
"""Variance of an observation that the sketch may leave unexplained, in noise variances."""


@dataclass(frozen=True)
class PracticalArguments:
    """The arguments of ``kbo.Practical`` that a surrogate uses.

    Attributes:
        delta, scale, norm_factor, noise_std: As for ``kbo.Practical``.
        subclass: The name of the subclass of ``kbo.Practical``; empty for the class itself.
    """

    delta: float
    scale: float
    norm_factor: float
    noise_std: float | None
    subclass: str


def method_of(
    arguments: PracticalArguments, problem: SearchProblem, fitted: Fitted, norm_bound: float
) -> Method:
    """Return the method of a problem with the fitted kernel and numbers."""
    named_method = methods.get(problem.method)
    noise_std = fitted.noise_std
    ridges = None
    if "ridges" in named_method.options:
        ridges = [multiple * noise_std**2 / arguments.scale for multiple in RIDGES]
    return named_method.make(
        fitted.kernel,
        noise_std,
        norm_bound,
        arguments.delta,
        scale=arguments.scale,
        horizon=problem.n_trials,
        ridges=ridges,
    )


def empty_posterior(
    arguments: PracticalArguments, problem: SearchProblem, fitted: Fitted, n_fitted: int
) -> Posterior:
    """Return the posterior without data: exact, or a sketch if the model is fitted to more than 500 values."""
    posterior = method_of(arguments, problem, fitted, norm_bound=1.0).state()
    if n_fitted > MOST_EXACT and type(posterior) is KernelRidge:
        dictionary = FocusedDictionary(LEFT_OUT * fitted.noise_std**2, MOST_POINTS, N_DRAWN)
        posterior = NystromRidge(posterior.kernel, posterior.ridge, dictionary)
    if not fitted.height:
        return posterior
    return PriorMean(posterior, Trend(fitted.height, fitted.bowl))


def observe(
    posterior: Posterior,
    values: Sequence[Evaluation],
    fitted: Fitted,
    fitted_values: Sequence[Evaluation],
    noise_std: float | None,
    device: torch.device,
) -> None:
    """Add values to a posterior, with weights if some of them have a standard error.

    Args:
        posterior: The posterior, which is changed.
        values: The values.
        fitted: The model.
        fitted_values: The values to which it is fitted.
        noise_std: The noise level, if it is given.
        device: The device of the posterior.
    """
    X, y = data(values, device)
    weights = None
    if any(e.error is not None for e in values):
        ratios = noise_ratios(values, fitted_values, noise_std).to(y)
        weights = fitted.weights(y, prediction_errors(values).to(y), ratios)
    posterior.update(X, fitted.transform(y), weights)


class FocusedDictionary(GreedyDictionary):
    """A dictionary of inducing points: dense where the targets are largest, and sparse elsewhere.

    The first observations come together, and the points are chosen from them. Later observations come one by one and
    enter as in a greedy dictionary, until it is full; then the points are chosen again, from all. They are the pivots
    of a Cholesky factorisation in which the unexplained variance of a location is divided by the rank of its target (as
    in the weighted designs of Moss, Ober & Picheny 2023). Other observations count through the features of the points.

    Args:
        threshold: As for ``GreedyDictionary``.
        most: Number of points at which the dictionary is full.
        kept: Largest number of points that one choice keeps; less than ``most``.
    """

    in_blocks = True

    def __init__(self, threshold: float, most: int, kept: int) -> None:
        super().__init__(threshold, most)
        self.kept = kept

    def redraws(self, sketch: Observed) -> list[int] | None:
        if 0 < sketch.m < (self.most or 1):
            return None
        return self.chosen(sketch)

    def chosen(self, sketch: Observed) -> list[int]:
        rows = sketch.rows
        means = rows.sums / rows.counts
        rank = 1 + means.argsort(descending=True).argsort()
        self.capped |= rows.n > self.kept
        least = 1e-9 * float(rows.prior.max())

        def covariance(i: int) -> Tensor:
            return sketch.k(rows.X[i : i + 1], rows.X)[0]

        return pivots(covariance, rows.prior, self.kept, least, 1 / rank)[0]
