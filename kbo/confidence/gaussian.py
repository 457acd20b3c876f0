"""Bounds over a finite set of N points, for functions drawn from the Gaussian-process prior.

On paper: width at round t, with r = variance / (4 prior variance)      | in code
``sqrt(2 ln(N t^2 pi^2 / (6 delta)))``, Srinivas et al. (2010), Thm 1  | ``srinivas``
the normal quantile of the same probability                            | ``exact_tail``
``sqrt((1 + r) (ln(1 + 1/r) + 2 ln(N / delta)))``, no union over t     | ``prior_posterior_ratio``

docs/theory/gaussian.md has the proofs.
"""

from __future__ import annotations

import math

import torch
from scipy.special import ndtri_exp
from torch import Tensor

from kbo._base import checks
from kbo._base.linalg import safe_sqrt
from kbo.confidence import rounding
from kbo.confidence.base import Confidence, checked_state
from kbo.errors import InvalidInput
from kbo.regression import Posterior

_SPREAD = 4.0
"""tau of Theorem 2 in docs/theory/gaussian.md, in units of the prior variance; any fixed value is valid."""


class OverPoints(Confidence):
    """The base of bounds over a finite set, which have no guarantee once computed at other points.

    With a given set, bounds at another point end the guarantee on that posterior until its next
    observation. With a size N alone, the set is the first N distinct points at which bounds are
    computed, on any posterior. One more point ends the guarantee for good, so use one object for
    one function.

    Args:
        points: The finite set [N d], its size N, or None for no fixed set.

    Attributes:
        points: The finite set [N d]; None if only its size is known, or there is no fixed set.
        n_points: The size N; None if there is no fixed set.
    """

    points: Tensor | None = None
    n_points: int | None = None

    def __init__(self, points: Tensor | int | None) -> None:
        if isinstance(points, Tensor):
            self.points = finite_set(points).detach().clone()
            self.n_points = len(points)
        elif points is not None:
            self.n_points = checks.whole("points", points, 1)
        # Versions of posteriors with queries outside the set. Replaced, never changed, for copies.
        self._versions_outside: frozenset[int] = frozenset()
        self._queried: frozenset[tuple[float, ...]] = frozenset()  # if only N is given

    def _note_queries(self, state: Posterior, X: Tensor) -> None:
        """Remember the points X [... d] at which bounds are computed, if they are not in the set."""
        if self.n_points is None:
            return
        if self.points is None:
            if len(self._queried) <= self.n_points:
                self._queried = self._queried | _rows(X)
            return
        if state.version in self._versions_outside:
            return
        points = self.points.to(X)
        if X.shape == points.shape and torch.equal(X, points):
            return
        if not _rows(X) <= _rows(points):
            self._versions_outside = self._versions_outside | {state.version}

    def objections(self, state: Posterior) -> list[str]:
        """Return the objections of any confidence, and one if points were outside the set."""
        reasons = super().objections(state)
        if self.n_points is None:
            return reasons
        if len(self._queried) > self.n_points or state.version in self._versions_outside:
            reasons.append(
                f"bounds were computed at points other than the {self.n_points} that the theorem "
                "is about"
            )
        return reasons


class FiniteSet(OverPoints):
    """Bounds over a finite set of points, for functions drawn from a Gaussian process; GP-UCB.

    They hold for all rounds at once, if the state's ridge is the noise variance and the noise is
    independent and Gaussian. The variants are

    * "mixture", ``prior_posterior_ratio``: the narrowest after a few observations
      (experiments/records/bounds.md)
    * "quantile", ``exact_tail``
    * "paper", ``srinivas``: GP-UCB of Srinivas et al. (2010), Theorem 1.

    Args:
        points: The finite set [N d], in units of the state; or its size N, for a set that is fixed
            before there are data. Bounds at other points end the guarantee: of a given set until
            the next observation, of a size N for good, with the (N + 1)-th distinct point of all
            calls (use one object for one function).
        delta: Probability that the bounds may fail.
        variant: "mixture", "quantile" or "paper", chosen before there are data.

    Raises:
        InvalidInput: A number out of its range, or an unknown variant.
    """

    covers: frozenset[str] = frozenset({"weights"})

    n_points: int

    def __init__(self, points: Tensor | int, delta: float, variant: str = "mixture") -> None:
        super().__init__(points)
        self.delta: float = checks.probability("delta", delta)
        self.variant: str = checks.one_of("variant", variant, ("mixture", "quantile", "paper"))
        self.guarantee: str | None = gaussian_statement(f"{self.n_points} points", self.delta)

    def interval(self, state: Posterior, X: Tensor) -> tuple[Tensor, Tensor]:
        posterior = checked_state(state).at()
        mean, variance = posterior.predict(X)
        self._note_queries(state, X)
        if self.variant == "mixture":
            width = prior_posterior_ratio(
                variance, state.prior_variance(X), self.n_points, self.delta
            )
        elif self.variant == "quantile":
            width = exact_tail(srinivas(self.n_points, state.n + 1, self.delta))
        else:
            width = srinivas(self.n_points, state.n + 1, self.delta)
        width = rounding.widened(state, width, posterior.quad(), state.ridge)
        margin = width.to(mean) * safe_sqrt(variance)
        return mean - margin, mean + margin


def srinivas(n_points: int, t: int, delta: float) -> float:
    """Return ``sqrt(2 ln(N t^2 pi^2 / (6 delta)))``, the width of GP-UCB in round t >= 1.

    Srinivas et al. (2010), Theorem 1.
    """
    return math.sqrt(2 * math.log(n_points * t**2 * math.pi**2 / (6 * delta)))


def exact_tail(width: float) -> float:
    """Return the normal quantile w with ``P(|Z| > w) = exp(-width^2 / 2)``, at most ``width``.

    Union bounds such as ``srinivas`` bound the probability of each tail by ``exp(-width^2 / 2)``.
    The exact quantile of this probability is narrower, and every event keeps its share of delta
    (docs/theory/gaussian.md).
    """
    return -float(ndtri_exp(-(width**2) / 2 - math.log(2)))


def prior_posterior_ratio(variance: Tensor, prior: Tensor, n_points: int, delta: float) -> Tensor:
    """Return the width [...] from the martingale ``N(f; m, v + 4 k) / N(f; m, v)``.

    f is the value of the function at a point, m and v are its posterior mean and variance, and k is
    its prior variance. The width is ``sqrt((1 + r) (ln(1 + 1 / r) + 2 ln(N / delta)))`` with r =
    ``v / (4 k)``. It needs a union over the points but not over rounds (docs/theory/gaussian.md,
    Theorem 2 with tau = 4 k). The name is from the limit of large tau, the ratio of prior and
    posterior density.

    Args:
        variance: The posterior variances v [...].
        prior: The prior variances k [...].
        n_points: The number N of points.
        delta: Probability that the bounds may fail.
    """
    tiny = torch.finfo(variance.dtype).tiny
    r = (variance / (_SPREAD * prior).clamp_min(tiny)).clamp_min(tiny)
    return torch.sqrt((1 + r) * (torch.log1p(1 / r) + 2 * math.log(n_points / delta)))


def gaussian_statement(points: str, delta: float) -> str:
    """Return the guarantee of a bound over a finite set, for draws from the prior, in words."""
    return (
        f"holds for all rounds and all {points} at once with probability at least 1 - {delta:g}, "
        "if the function is drawn from the Gaussian-process prior, the noise is independent and "
        "Gaussian with the ridge as variance, and prior, ridge and points were chosen "
        "without these data"
    )


def finite_set(points: Tensor) -> Tensor:
    """Return the points [N d] of a finite set, N > 0, or raise InvalidInput for another shape."""
    checks.points("points", points)
    if points.ndim != 2 or not len(points):
        raise InvalidInput(f"points must have shape [N d] with N > 0, got {tuple(points.shape)}.")
    return points


def _rows(X: Tensor) -> frozenset[tuple[float, ...]]:
    """Return the distinct rows of X [... d]."""
    return frozenset(map(tuple, X.detach().reshape(-1, X.shape[-1]).tolist()))
