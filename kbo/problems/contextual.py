"""Contextual bandits with ten actions on a line (Zenati et al. 2022, Sec. 5 and App. F)."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from kbo import checks
from kbo.problems.base import Bandit, generators
from kbo.problems.rkhs import stationary_kernel

ACTIONS = (0.08, 0.70, 0.82, 0.28, 0.63, 0.0, 0.05, 0.50, 0.81, 0.04)
"""The actions of every round, in the order of the paper's code."""


class ContextualBandit(Bandit):
    """Every round shows a context x, uniform in [0, 1]^d, and offers the joint points (x, a) of ten actions a.

    The rewards have edges or kinks, so they are in the RKHS of no smooth kernel: ``norm_bound`` is a nominal number and
    a bound that rests on it has no guarantee. The best of the ten actions is often below the best of all real numbers.

    Args:
        lengthscale: Lengthscale of the Gaussian kernel on (x, a); on ``Bump``, 0.1 makes all contexts nearly
            uncorrelated.
        noise_std: Standard deviation of the Gaussian noise.
        norm_bound: Norm bound given to methods.
        seed: Seed of contexts and noise.

    Attributes:
        actions: The actions [A 1].
        context: The context [d] of the present round; None before the first.
    """

    context_dim = 1

    def __init__(
        self, lengthscale: float = 0.1, noise_std: float = 0.1, norm_bound: float = 1.0, seed: int = 0
    ) -> None:
        self.kernel = stationary_kernel("rbf", lengthscale)
        self.noise_std = checks.positive("noise_std", noise_std)
        self.norm_bound = checks.positive("norm_bound", norm_bound)
        self.actions = torch.tensor(ACTIONS, dtype=torch.float64).unsqueeze(-1)
        self.n_arms = len(ACTIONS)
        self.context: Tensor | None = None
        self._context_rng, self.noise_rng = generators(3 * seed + 1, 3 * seed + 2)

    def arms(self) -> Tensor:
        """The joint points (x, a) [A d+1] of the next round, whose context x is drawn now."""
        self.context = torch.rand(self.context_dim, generator=self._context_rng, dtype=torch.float64)
        return torch.cat([self.context.expand(self.n_arms, -1), self.actions], -1)

    def mean(self, X: Tensor) -> Tensor:  # noqa: D102
        checks.rows("X", X, dim=self.context_dim + 1)
        return self.reward(X[:, :-1], X[:, -1])

    @abstractmethod
    def reward(self, x: Tensor, a: Tensor) -> Tensor:
        """Mean reward [n] of actions a [n] in contexts x [n d]."""

    def standard_noise(self, X: Tensor) -> Tensor:  # noqa: D102
        return torch.randn(len(X), generator=self.noise_rng, dtype=X.dtype)


class Bump(ContextualBandit):
    """``max(0, 1 - |a - 0.81| - <w, x - x0>)`` for contexts of five numbers."""

    context_dim = 5

    def reward(self, x: Tensor, a: Tensor) -> Tensor:  # noqa: D102
        offset = (x - x.new_tensor(_BUMP_CENTRE)) @ x.new_tensor(_BUMP_SLOPE)
        return (1 - (a - 0.81).abs() - offset).clamp_min(0)


_BUMP_CENTRE = (0.10854, 0.51165, 0.90977, 0.21838, 0.36310)
_BUMP_SLOPE = (0.70995, 0.42278, -0.21411, -0.53740, -0.23965)


class Chessboard(ContextualBandit):
    """A reward per cell (floor(4x), floor(4a)): 1 on three cells, 0.5 on three others, else 0."""

    def reward(self, x: Tensor, a: Tensor) -> Tensor:  # noqa: D102
        i, j = (4 * x[:, 0]).floor(), (4 * a).floor()
        reward = torch.zeros_like(a)
        for (row, column), value in _CHESSBOARD.items():
            reward[(i == row) & (j == column)] = value
        return reward


_CHESSBOARD = {(1, 0): 1.0, (1, 2): 1.0, (3, 2): 1.0, (0, 1): 0.5, (2, 1): 0.5, (2, 3): 0.5}


class StepDiagonal(ContextualBandit):
    """1 where ``|x - (a + 0.15)| < 0.1``; else 0.5 where ``|x - (a - 0.15)| < 0.1``; else 0."""

    def reward(self, x: Tensor, a: Tensor) -> Tensor:  # noqa: D102
        upper, lower = ((x[:, 0] - (a + shift)).abs() < 0.1 for shift in (0.15, -0.15))
        return torch.where(upper, 1.0, torch.where(lower, 0.5, 0.0)).to(a)
