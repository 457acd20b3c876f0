"""Test functions of BoTorch with Gaussian noise."""

from __future__ import annotations

import torch
from botorch.test_functions import (
    Ackley,
    Branin,
    Hartmann,
    Levy,
    SyntheticTestFunction,
)

from kbo.problems.base import TuningProblem
from kbo.space import Params, Space


class NoisyFunction(TuningProblem):
    """A test function to minimise, or one to maximise with its sign changed, observed with Gaussian noise.

    Args:
        name: Name of the problem.
        function: A synthetic test function of BoTorch.
        noise_std: Standard deviation of the noise.
        seed: Seed of the noise; None draws from the system.
    """

    def __init__(self, name: str, function: SyntheticTestFunction, noise_std: float, seed: int | None = None) -> None:
        self.name, self.noise_std = name, noise_std
        self.function = function.to(torch.float64)
        self.space = Space([tuple(pair) for pair in self.function.bounds.T.tolist()])
        self._sign = 1 if self.function.is_minimization_problem else -1
        self.optimum = self._sign * float(self.function.optimal_value)
        self._generator = torch.Generator()
        if seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(seed)

    def __call__(self, params: Params) -> float:  # noqa: D102
        noise = torch.randn((), generator=self._generator, dtype=torch.float64)
        return self.noiseless(params) + self.noise_std * float(noise)

    def noiseless(self, params: Params) -> float:  # noqa: D102
        return self._sign * float(self.function(torch.tensor(list(params), dtype=torch.float64)))


def branin(noise_std: float = 1.0, seed: int | None = None) -> NoisyFunction:
    """Branin on its usual box, minimum 0.398."""
    return NoisyFunction("branin", Branin(), noise_std, seed)


def hartmann6(noise_std: float = 0.1, seed: int | None = None) -> NoisyFunction:
    """Hartmann in six dimensions, minimum -3.322."""
    return NoisyFunction("hartmann6", Hartmann(dim=6), noise_std, seed)


def ackley(dim: int = 5, noise_std: float = 0.3, seed: int | None = None) -> NoisyFunction:
    """Ackley, minimum 0 at the origin."""
    return NoisyFunction("ackley", Ackley(dim=dim), noise_std, seed)


def levy(dim: int = 4, noise_std: float = 1.0, seed: int | None = None) -> NoisyFunction:
    """Levy on [-10, 10]^dim, minimum 0 at (1, ..., 1)."""
    return NoisyFunction("levy", Levy(dim=dim), noise_std, seed)
