"""Bounds under a Gaussian-process prior, for one round only, or without any guarantee."""

from __future__ import annotations

import torch
from torch import Tensor

from kbo import checks
from kbo.confidence import widths
from kbo.confidence.base import SubGaussian, WidthConfidence
from kbo.regression import Posterior


class FiniteSet(WidthConfidence):
    """GP-UCB: the union bound of Srinivas et al. (2010), Theorem 1, over a finite set and all rounds.

    Valid if the function is a draw from the prior and the state's ridge is the noise variance; t is the
    number of observations plus one.

    Args:
        n_points: Size of the finite set.
        delta: Probability that the bounds may fail.
    """

    covers_weights = True

    def __init__(self, n_points: int, delta: float) -> None:
        self.n_points = int(checks.positive("n_points", n_points))
        self.delta = checks.probability("delta", delta)
        self.guarantee = gaussian_statement(f"{self.n_points} points", self.delta)

    def width(self, state: Posterior) -> Tensor:  # noqa: D102
        return torch.tensor(widths.srinivas(self.n_points, state.n + 1, self.delta), dtype=torch.float64)


class WangDeFreitas(SubGaussian, WidthConfidence):
    """Comparison only: Durand et al. (2018), Lemma 3, at ridge ``noise_std^2``; one round at a time, no guarantee.

    Args:
        noise_std, norm_bound: As for ``SelfNormalized``.
        delta: Probability that the bound fails at one given round.
    """

    def __init__(self, noise_std: float, norm_bound: float, delta: float) -> None:
        super().__init__(noise_std, norm_bound, delta)
        self.guarantee = None

    def ridge(self, state: Posterior) -> float:
        """Return ``noise_std^2``, the only ridge of the lemma."""
        return self.noise_std**2

    def width(self, state: Posterior) -> Tensor:  # noqa: D102
        log_det = state.log_det(self.noise_std**2)
        return widths.wang_de_freitas(log_det, self.noise_std, self.norm_bound, self.delta)


class FixedWidth(WidthConfidence):
    """A fixed multiplier of the standard deviation: common in practice, without a guarantee.

    Args:
        multiplier: The width, at least 0.
    """

    def __init__(self, multiplier: float) -> None:
        self.multiplier = checks.non_negative("multiplier", multiplier)

    def reported(self) -> None:
        """Return None: the multiplier ranks points and bounds nothing."""

    def width(self, state: Posterior) -> Tensor:  # noqa: D102
        return torch.tensor(self.multiplier, dtype=torch.float64)


class AlternatingWidth(FixedWidth):
    """Fixed multipliers in turn, one after every observation, without a guarantee.

    A small width refines the best region found, a large one looks for others; taking turns needs no choice of one.

    Args:
        multipliers: The widths, each at least 0.
    """

    def __init__(self, *multipliers: float) -> None:
        super().__init__(max(multipliers, default=-1.0))
        self.multipliers = tuple(checks.non_negative("multipliers", m) for m in multipliers)

    def width(self, state: Posterior) -> Tensor:  # noqa: D102
        return torch.tensor(self.multipliers[state.n % len(self.multipliers)], dtype=torch.float64)


def gaussian_statement(points: str, delta: float) -> str:
    """Return the guarantee of a bound for draws of the prior over a finite set, in words."""
    return (
        f"holds for all rounds and all {points} at once with probability at least 1 - {delta:g}, if the function is "
        "drawn from the Gaussian-process prior and the noise is Gaussian with the ridge as variance"
    )
