"""The model of the practical setting: kernel, noise level and targets for some values, and the points of a sketch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from gpytorch.kernels import Kernel
from torch import Tensor

from kbo._base import checks
from kbo.errors import InvalidInput
from kbo.optimize.surrogates.fitting import LEAST_NOISE, MOST, Fit, bowl, fit
from kbo.optimize.surrogates.outcome_transform import OutcomeTransform, around, least_skewed, linear
from kbo.optimize.surrogates.predictive import Predictive
from kbo.regression import GreedyDictionary
from kbo.regression.sketch.dictionary import Observed, pivots


@dataclass(frozen=True)
class Fitted:
    """The numbers that were fitted to some observations.

    Args:
        kernel: The kernel, on the features of the space.
        noise_std: The noise level, in units of the targets.
        targets: The map from values of the objective to targets.
        height: The height h of a bowl in the prior mean ``-h q(x)`` (``fitting.bowl``); 0 for a prior mean of 0.
        gain: The log-likelihood of the values, less that of a constant and noise alone.
        predictive: Returns the distribution for reports after points [n D], targets [n], their standard errors [n]
            besides the noise, its relative variances [n], and whether they are predicted [n]; without it intervals are
            those of the posterior with this kernel.
    """

    kernel: Kernel
    noise_std: float
    targets: OutcomeTransform
    height: float = 0.0
    gain: float = math.inf
    predictive: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Predictive] | None = None

    def __post_init__(self) -> None:
        checks.kernel(self.kernel, "Fitted")
        checks.positive("noise_std of Fitted", self.noise_std)
        checks.instance("targets of Fitted", self.targets, OutcomeTransform)
        checks.number("height of Fitted", self.height)


@dataclass(frozen=True)
class Trend:
    """The prior mean ``-h q(x)`` of targets at points of the unit cube.

    Args:
        height: The height h of the bowl q.
    """

    height: float

    def __call__(self, X: Tensor) -> Tensor:
        """Return the prior mean [...] at points X [... D]."""
        return -self.height * bowl(X)


_MOST_NOISE = 1e50
"""Largest noise level in standard deviations of the values: squares of larger ones would overflow."""


def fit_values(
    X: Tensor,
    y: Tensor,
    noise_std: float | None = None,
    errors: Tensor | None = None,
    ratios: Tensor | None = None,
    *,
    cut: bool = True,
) -> Fitted:
    """Fit kernel, noise level and trend to values y [n] in units of the objective, larger ones better, at X [n D].

    Values are standardised; if that makes them more likely, under their own trend, they are made less skewed, too. Of
    many values the trend is constant: these say themselves where the objective is good.

    Args:
        X: Points of the unit cube.
        y: Values.
        noise_std: The noise level in units of the objective, if it is known: then values are standardised only,
            and a level below a hundredth of their spread counts as that; 0 if there is no noise: then the "noise" that
            is fitted is the part that the kernel does not explain.
        errors: Standard errors [n] of the values besides the noise, of those that are predicted; zeros by default.
        ratios: Relative noise variances [n], by which that of ``noise_std`` is multiplied; ones by default.
        cut: Whether values far on the bad side are cut first, which hides how bad they are; else they are compressed.

    Raises:
        InvalidInput: Arguments that cannot be used.
    """
    n = len(checks.rows("X", X))
    if checks.points("y", y).shape != (n,) or y.dtype != X.dtype or not n:
        raise InvalidInput(
            f"y must be one value for each row of X, at least one, a tensor [{n}] of {X.dtype}, got {list(y.shape)} of "
            f"{y.dtype}."
        )
    checks.maybe(checks.non_negative, "noise_std", noise_std)
    plain = linear(y, cut)
    candidates = [plain] if noise_std else [plain, least_skewed(y, cut)]
    return _fitted(candidates, X, y, noise_std, errors, ratios, with_bowl=n <= MOST)


def fit_limited(limit: float, X: Tensor, y: Tensor, noise_std: float | None = None) -> Fitted:
    """Fit the model of a quantity that is to reach a limit; arguments as for ``fit_values``.

    If that makes the values more likely, those far from the limit are drawn together, on both sides.
    """
    powers = (1.0,) if noise_std else (1.0, 0.0)
    return _fitted(
        [around(limit, y, power) for power in powers], X, y, noise_std, None, None, with_bowl=False
    )


def _fitted(
    candidates: Sequence[OutcomeTransform],
    X: Tensor,
    y: Tensor,
    noise_std: float | None,
    errors: Tensor | None,
    ratios: Tensor | None,
    *,
    with_bowl: bool,
) -> Fitted:
    """Fit a model for each of several targets, and return the one under which the values are likeliest."""
    exact = noise_std == 0

    def level(targets: OutcomeTransform) -> float | None:
        given = noise_std and min(
            max(noise_std / targets.spread / targets.unit, LEAST_NOISE), _MOST_NOISE
        )
        return given or None

    def fit_of(targets: OutcomeTransform) -> Fit:
        extra = None if errors is None else targets.errors(y, errors)
        return fit(X, targets(y), level(targets), extra, ratios, exact=exact, with_bowl=with_bowl)

    fits = [(targets, fit_of(targets)) for targets in dict.fromkeys(candidates)]
    part = min(len(y), MOST)
    targets, found = max(fits, key=lambda pair: pair[1].log_density + part * pair[0].log_slope(y))
    predictive = partial(Predictive, noise_std=level(targets), exact=exact, with_bowl=with_bowl)
    above = targets.above(found.constant)
    return Fitted(found.kernel, found.noise_std, above, found.height, found.gain, predictive)


class FocusedDictionary(GreedyDictionary):
    """Close to each other where the targets are largest, and sparse elsewhere.

    The first observations, which come together, are drawn from. Later ones, which come one by one, enter as in a greedy
    dictionary until it is full; then all are drawn from again. A draw is a pivoted Cholesky factorisation in which what
    is unexplained of a location is divided by the rank of its target, as in the weighted designs of Moss, Ober &
    Picheny (2023). Observations that are left out count through the features of those that stay.

    Args:
        threshold: As for ``GreedyDictionary``.
        most: Number of points at which it is full.
        kept: Largest number of points that are drawn, fewer.
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
        rank = 1 + (rows.sums / rows.counts).argsort(descending=True).argsort()
        self.capped |= rows.n > self.kept
        least = 1e-9 * float(rows.prior.max())
        return pivots(
            lambda i: sketch.k(rows.X[i : i + 1], rows.X)[0], rows.prior, self.kept, least, 1 / rank
        )[0]
