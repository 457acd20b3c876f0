"""Every posterior that must obey the laws of ``test_states.py``: a new one joins by one line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from gpytorch.kernels import Kernel, MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel
from torch import Tensor

from kbo import KernelRidge
from kbo.kernels import PrecomputedKernel
from kbo.regression import FixedDictionary, NystromRidge, Regression
from tests.dense import Dense, Sketched


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def unit_square(n: int, seed: int) -> Tensor:
    return torch.rand(n, 2, generator=seeded(seed), dtype=torch.float64)


def numbers(n: int, seed: int) -> Tensor:
    return torch.randperm(400, generator=seeded(seed))[:n].double().unsqueeze(-1)


@dataclass(frozen=True)
class State:
    """How to build one posterior, and distinct points that it understands.

    ``exact``: it conditions on every observation, so it can be tracked, saved and conditioned on hypothetical ones.
    """

    name: str
    kernel: Callable[[], Kernel]
    make: Callable[[Kernel, float], Regression] = KernelRidge
    points: Callable[[int, int], Tensor] = unit_square
    reference: Callable[[Kernel, Tensor, Tensor], Dense] = Dense
    differentiable: bool = True
    exact: bool = True

    def data(self, n: int, device, seed: int = 0) -> tuple[Tensor, Tensor]:
        y = torch.randn(n, generator=seeded(seed + 100), dtype=torch.float64)
        return self.points(n, seed).to(device), y.to(device)

    def fed(self, X: Tensor, y: Tensor, ridge: float = 0.1) -> Regression:
        state = self.make(self.kernel(), ridge)
        state.update(X, y)
        return state


def rbf(**kwargs) -> Kernel:
    kernel = RBFKernel(**kwargs).double()
    kernel.lengthscale = 0.4
    return kernel


def matern(nu: float) -> Kernel:
    kernel = ScaleKernel(MaternKernel(nu=nu, ard_num_dims=2)).double()
    kernel.base_kernel.lengthscale = torch.tensor([[0.3, 0.8]])
    kernel.outputscale = torch.tensor(2.3, dtype=torch.float64)
    return kernel


def composite() -> Kernel:
    first, second = rbf(active_dims=[0]), MaternKernel(nu=1.5, active_dims=[1]).double()
    return first * second + matern(2.5)


def periodic() -> Kernel:
    kernel = ScaleKernel(PeriodicKernel()).double()
    kernel.base_kernel.period_length, kernel.base_kernel.lengthscale, kernel.outputscale = 1.7, 0.9, 0.7
    return kernel


def precomputed() -> Kernel:
    objects = torch.rand(400, 3, generator=seeded(7), dtype=torch.float64)
    return PrecomputedKernel(1.3 * torch.exp(-(objects.unsqueeze(0) - objects.unsqueeze(1)).norm(dim=-1)))


def sketched(name: str, kernel: Callable[[], Kernel], points: Tensor) -> State:
    return State(
        f"sketched-{name}",
        kernel,
        lambda k, ridge: NystromRidge(k, ridge, FixedDictionary(points)),
        reference=lambda k, X, y: Sketched(k, X, y, points.to(X)),
        exact=False,
    )


STATES = [
    State("exact-rbf", rbf),
    State("exact-matern12", lambda: matern(0.5)),
    State("exact-matern32", lambda: matern(1.5)),
    State("exact-matern52", lambda: matern(2.5)),
    State("exact-product-and-sum", composite),
    State("exact-generic", periodic),
    State("exact-precomputed", precomputed, points=numbers, differentiable=False),
    sketched("rbf", rbf, unit_square(9, 30)),
    sketched("matern32", lambda: matern(1.5), unit_square(40, 31)),
    sketched("one-point", lambda: matern(2.5), unit_square(1, 32)),
]
