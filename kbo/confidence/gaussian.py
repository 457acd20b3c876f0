"""Bounds under a Gaussian-process prior, or without any guarantee."""

from __future__ import annotations

import math

import torch
from scipy.special import ndtri_exp
from torch import Tensor

from kbo._base import checks
from kbo._base.linalg import safe_sqrt
from kbo.confidence import rounding
from kbo.confidence.base import OverPoints, WidthConfidence, checked_state, finite_set
from kbo.regression import Posterior

_SPREAD = 4.0
"""Multiple of the prior variance: any is valid; docs/validity.md has the widths that follow from this one."""


class FiniteSet(OverPoints):
    """Bounds over a finite set, all rounds at once, for functions that are drawn from the Gaussian-process prior.

    They hold if the state's ridge is the noise variance and the noise is Gaussian.

    * "mixture", a union over the points: ``sqrt(v (1 + v / 4k) (ln(1 + 4k / v) + 2 ln(N / delta)))`` is the half width
      at a point of variance v and prior variance k.
    * "quantile", a union over points and rounds: sqrt(v) times the normal quantile at ``1 - 3 delta / (pi^2 t^2 N)``,
      t = n + 1.
    * "paper", the same union: ``sqrt(v) sqrt(2 ln(N t^2 pi^2 / (6 delta)))``.

    "paper" is GP-UCB of Srinivas et al. (2010), Theorem 1. "mixture" is the narrowest from a few observations on
    (docs/validity.md); docs/theory/gaussian.md has the proofs.

    Args:
        points: The finite set [N d], in units of the state, or its size N. Bounds that are computed at other points, or
            at more than N, have no guarantee from then on.
        delta: Probability that the bounds may fail.
        variant: One of these; chosen before there are data.

    Raises:
        InvalidInput: A number out of its range, or an unknown variant.
    """

    covers: frozenset[str] = frozenset({"weights"})

    n_points: int

    def __init__(self, points: Tensor | int, delta: float, variant: str = "mixture") -> None:
        if isinstance(points, Tensor):
            self.points: Tensor | None = finite_set(points).detach().clone()
        self.n_points = (
            len(points) if isinstance(points, Tensor) else checks.whole("points", points, 1)
        )
        self.delta: float = checks.probability("delta", delta)
        self.variant: str = checks.one_of("variant", variant, ("mixture", "quantile", "paper"))
        self.guarantee: str | None = gaussian_statement(f"{self.n_points} points", self.delta)

    def interval(self, state: Posterior, X: Tensor) -> tuple[Tensor, Tensor]:
        mean, variance = checked_state(state).predict(X)
        self._note_queries(X)
        if self.variant == "mixture":
            tiny = torch.finfo(variance.dtype).tiny
            ratio = (variance / (_SPREAD * state.prior_variance(X)).clamp_min(tiny)).clamp_min(tiny)
            width = torch.sqrt(
                (1 + ratio) * (torch.log1p(1 / ratio) + 2 * math.log(self.n_points / self.delta))
            )
        else:
            width = srinivas(self.n_points, state.n + 1, self.delta)
            width = exact_tail(width) if self.variant == "quantile" else width
        width = rounding.widened(state, width, state.at().quad(), state.ridge)
        margin = width.to(mean) * safe_sqrt(variance)
        return mean - margin, mean + margin


def srinivas(n_points: int, t: int, delta: float) -> float:
    """Return ``sqrt(2 ln(N t^2 pi^2 / (6 delta)))``: Srinivas et al. (2010), Theorem 1; t >= 1 counts the rounds."""
    return math.sqrt(2 * math.log(n_points * t**2 * math.pi**2 / (6 * delta)))


def exact_tail(width: float) -> float:
    """Return the w with ``P(|Z| > w) = exp(-width^2 / 2)`` for a standard normal Z; at most ``width``.

    Union bounds such as ``srinivas`` bound each of their tails by ``exp(-width^2 / 2)``; with the exact quantile every
    event keeps its share of delta (docs/theory/gaussian.md).
    """
    return -float(ndtri_exp(-(width**2) / 2 - math.log(2)))


class FixedWidth(WidthConfidence):
    """A fixed multiplier of the standard deviation: common in practice, without a guarantee.

    Args:
        multiplier: The width, at least 0.
    """

    def __init__(self, multiplier: float) -> None:
        self.multiplier: float = checks.non_negative("multiplier", multiplier)
        self._width = torch.tensor(self.multiplier, dtype=torch.float64, device="cpu")

    def reported(self) -> None:
        """Return None: the multiplier ranks points and bounds nothing."""

    def width(self, state: Posterior) -> Tensor:
        return self._width


class AlternatingWidth(FixedWidth):
    """Fixed multipliers in turn, one after every observation, without a guarantee.

    A small width refines the best region found, a large one looks for others; taking turns needs no choice of one.

    Args:
        multipliers: The widths, each at least 0.
    """

    def __init__(self, *multipliers: float) -> None:
        super().__init__(max(multipliers, default=-1.0))
        self.multipliers: tuple[float, ...] = tuple(
            checks.non_negative("multipliers", m) for m in multipliers
        )

    def width(self, state: Posterior) -> Tensor:
        return self.for_trial(state.n).width(state)

    def for_trial(self, number: int) -> FixedWidth:
        """Return the bound for the trial of that number, also while trials before it are pending."""
        return FixedWidth(self.multipliers[number % len(self.multipliers)])


def gaussian_statement(points: str, delta: float) -> str:
    """Return the guarantee of a bound for draws of the prior over a finite set, in words."""
    return (
        f"holds for all rounds and all {points} at once with probability at least 1 - {delta:g}, if the function is "
        "drawn from the Gaussian-process prior, the noise is Gaussian with the ridge as variance, and both were fixed "
        "beforehand"
    )
