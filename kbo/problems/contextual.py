"""Contextual bandits with ten actions on a line (Zenati et al. 2022, Sec. 5 and App. F)."""

from __future__ import annotations

import torch
from torch import Tensor

from kbo import checks
from kbo.errors import InvalidInput
from kbo.problems.base import Bandit
from kbo.problems.rkhs import stationary_kernel

ACTIONS = (0.08, 0.70, 0.82, 0.28, 0.63, 0.0, 0.05, 0.50, 0.81, 0.04)
"""The actions of every round, in the order of the paper's code."""


class ContextualBandit(Bandit):
    """Every round shows a context x, uniform in [0, 1]^d, and offers the joint points (x, a) of ten actions a.

    The rewards have edges or kinks, so they are in the RKHS of no smooth kernel: ``norm_bound`` is a nominal number and
    a bound that rests on it holds for nothing. The best the actions allow is often below the best of all reals.

    Args:
        lengthscale: Lengthscale of the Gaussian kernel on (x, a); on ``Bump``, 0.1 makes all contexts strangers.
        noise_std: Standard deviation of the Gaussian noise.
        norm_bound: What methods are told.
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
        # Two streams, so that the contexts and the noise of round t do not depend on what was played before.
        self._contexts, self._noise = (torch.Generator().manual_seed(3 * seed + i) for i in (1, 2))

    def arms(self) -> Tensor:
        """The joint points (x, a) [A d+1] of the next round, whose context x is drawn now."""
        self.context = torch.rand(self.context_dim, generator=self._contexts, dtype=torch.float64)
        return torch.cat([self.context.expand(self.n_arms, -1), self.actions], -1)

    def observe(self, X: Tensor) -> Tensor:  # noqa: D102
        noise = torch.randn(len(X), generator=self._noise, dtype=X.dtype)
        return self.mean(X) + self.noise_std * noise

    def _split(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Contexts [n d] and actions [n] of joint points X [n d+1]."""
        checks.points("X", X)
        if X.ndim != 2 or X.shape[-1] != self.context_dim + 1:
            raise InvalidInput(
                f"X must have shape [n {self.context_dim + 1}], a context and an action a row, got {tuple(X.shape)}."
            )
        return X[:, :-1], X[:, -1]


class Bump(ContextualBandit):
    """``max(0, 1 - |a - 0.81| - <w, x - x0>)`` for contexts of five numbers."""

    context_dim = 5

    def mean(self, X: Tensor) -> Tensor:  # noqa: D102
        x, a = self._split(X)
        offset = (x - x.new_tensor(_BUMP_CENTRE)) @ x.new_tensor(_BUMP_SLOPE)
        return (1 - (a - 0.81).abs() - offset).clamp_min(0)


_BUMP_CENTRE = (0.10854, 0.51165, 0.90977, 0.21838, 0.36310)
_BUMP_SLOPE = (0.70995, 0.42278, -0.21411, -0.53740, -0.23965)


class Chessboard(ContextualBandit):
    """A reward per cell (floor(4x), floor(4a)): 1 on three cells, 0.5 on three others, else 0."""

    def mean(self, X: Tensor) -> Tensor:  # noqa: D102
        x, a = self._split(X)
        i, j = (4 * x[:, 0]).floor(), (4 * a).floor()
        reward = torch.zeros_like(a)
        for (row, column), value in _CHESSBOARD.items():
            reward[(i == row) & (j == column)] = value
        return reward


_CHESSBOARD = {(1, 0): 1.0, (1, 2): 1.0, (3, 2): 1.0, (0, 1): 0.5, (2, 1): 0.5, (2, 3): 0.5}


class StepDiagonal(ContextualBandit):
    """1 where ``|x - (a + 0.15)| < 0.1``; else 0.5 where ``|x - (a - 0.15)| < 0.1``; else 0."""

    def mean(self, X: Tensor) -> Tensor:  # noqa: D102
        x, a = self._split(X)
        upper, lower = ((x[:, 0] - (a + shift)).abs() < 0.1 for shift in (0.15, -0.15))
        return torch.where(upper, 1.0, torch.where(lower, 0.5, 0.0)).to(X)
