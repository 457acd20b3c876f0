"""A bandit with a thousand arms as something to tune: a function of known norm on a grid of whole numbers."""

from __future__ import annotations

import torch

from kbo.problems.base import TuningProblem
from kbo.problems.rkhs import RKHSBandit
from kbo.space import Int, Params, Space


class GridBandit(TuningProblem):
    """The negative of a function of RKHS norm 5 (Matern 5/2, lengthscale 0.3) on a grid of arms, observed with noise.

    Arms may be pulled again and again, and with noise as large as the function's spread they have to be.

    Args:
        side: Arms along each axis.
        dim: Number of axes.
        noise_std: Standard deviation of the Gaussian noise.
        seed: Seed of function and noise; None draws from the system.
    """

    name = "arms"

    def __init__(self, side: int = 10, dim: int = 3, noise_std: float = 1.0, seed: int | None = None) -> None:
        self.side, self.noise_std = side, noise_std
        self.space = Space({f"x{i}": Int(0, side - 1) for i in range(dim)})
        chosen = torch.Generator().seed() % 2**31 if seed is None else seed
        self._bandit = RKHSBandit("matern52", 0.3, dim, norm=5.0, noise_std=noise_std, seed=chosen)
        axis = torch.linspace(0, 1, side, dtype=torch.float64)
        self._arms = torch.cartesian_prod(*[axis] * dim)
        self.optimum = -float(self._bandit.mean(self._arms).max())

    def __call__(self, params: Params) -> float:  # noqa: D102
        return -float(self._bandit.observe(self._arm(params)))

    def noiseless(self, params: Params) -> float:  # noqa: D102
        return -float(self._bandit.mean(self._arm(params)))

    def _arm(self, params: Params) -> torch.Tensor:
        assert isinstance(params, dict)
        return torch.tensor([list(params.values())], dtype=torch.float64) / (self.side - 1)
