"""Bounds that trust a Gaussian-process prior, hold for one round only, or promise nothing at all."""

from __future__ import annotations

import torch
from torch import Tensor

from kbo import checks
from kbo.confidence import widths
from kbo.confidence.base import WidthConfidence
from kbo.regression import Posterior


class FiniteSet(WidthConfidence):
    """GP-UCB: the union bound of Srinivas et al. (2010), Theorem 1, over a finite set and all rounds.

    Valid if the function is a draw from the prior and the state's ridge is the noise variance; t is the
    number of observations plus one.

    Args:
        n_points: Size of the finite set.
        delta: Probability that the bounds may fail.
    """

    def __init__(self, n_points: int, delta: float) -> None:
        self.n_points = int(checks.positive("n_points", n_points))
        self.delta = checks.probability("delta", delta)
        self.guarantee = (
            f"holds for all rounds and all {self.n_points} points at once with probability at least 1 - {delta:g}, if "
            "the function is drawn from the Gaussian-process prior and the noise is Gaussian with the ridge as variance"
        )

    def width(self, state: Posterior) -> Tensor:  # noqa: D102
        return torch.tensor(widths.srinivas(self.n_points, state.n + 1, self.delta), dtype=torch.float64)


class WangDeFreitas(WidthConfidence):
    """Comparison only: Durand et al. (2018), Lemma 3, at ridge ``noise_std^2``; one round at a time.

    Args:
        noise_std: Standard deviation of the noise.
        norm_bound: Bound of the RKHS norm of the function.
        delta: Probability that the bound fails at one given round.
    """

    def __init__(self, noise_std: float, norm_bound: float, delta: float) -> None:
        self.noise_std = checks.positive("noise_std", noise_std)
        self.norm_bound = checks.positive("norm_bound", norm_bound)
        self.delta = checks.probability("delta", delta)

    def ridge(self, state: Posterior) -> float:
        """``noise_std^2``, the only ridge at which the lemma holds."""
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
        self._width = torch.tensor(self.multiplier, dtype=torch.float64)

    def width(self, state: Posterior) -> Tensor:  # noqa: D102
        return self._width


class AlternatingWidth(FixedWidth):
    """Fixed multipliers in turn, one after every observation: careful and curious by turns, without a guarantee.

    A small width finds the bottom of the valley it is in, a large one other valleys; which is needed nobody knows.

    Args:
        multipliers: The widths, each at least 0.
    """

    def __init__(self, *multipliers: float) -> None:
        super().__init__(max(multipliers, default=-1.0))
        self.multipliers = tuple(checks.non_negative("multipliers", m) for m in multipliers)

    def width(self, state: Posterior) -> Tensor:  # noqa: D102
        return self._width.new_tensor(self.multipliers[state.n % len(self.multipliers)])
