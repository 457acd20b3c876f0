"""Every posterior that must obey the laws of ``test_states.py``: a new one is added by one entry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from gpytorch.kernels import Kernel, MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel
from torch import Tensor

from kbo import AdaptiveRidge, KernelRidge
from kbo.kernels import PrecomputedKernel
from kbo.optimize.surrogates.practical_posterior import FocusedDictionary
from kbo.regression import (
    BatchedResampling,
    Dictionary,
    FixedDictionary,
    GreedyDictionary,
    LeverageResampling,
    NystromRidge,
    OnlineRowSampling,
    Posterior,
)
from tests.dense import Dense, Sketched
from tests.dense_noise import noise_bounds
from tests.third_party_posterior import LinearRegression


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def unit_square(n: int, seed: int) -> Tensor:
    return torch.rand(n, 2, generator=seeded(seed), dtype=torch.float64)


def normal(n: int, seed: int) -> Tensor:
    return torch.randn(n, generator=seeded(seed), dtype=torch.float64)


def numbers(n: int, seed: int) -> Tensor:
    return torch.randperm(400, generator=seeded(seed))[:n].double().unsqueeze(-1)


@dataclass(frozen=True)
class State:
    """How to build one posterior, and distinct points that it understands.

    ``exact``: it conditions on every observation, so hypothetical ones change it as real ones would.
    ``living``: the data and their order choose its dictionary, which the formulas take from the state.
    """

    name: str
    kernel: Callable[[], Kernel]
    make: Callable[[Kernel, float], Posterior] = KernelRidge
    points: Callable[[int, int], Tensor] = unit_square
    exact: bool = True
    living: bool = False
    dictionary: Tensor | None = None

    def data(self, n: int, device, seed: int = 0) -> tuple[Tensor, Tensor]:
        return self.points(n, seed).to(device), normal(n, seed + 100).to(device)

    def fed(self, X: Tensor, y: Tensor, ridge: float = 0.1) -> Posterior:
        state = self.make(self.kernel(), ridge)
        state.update(X, y)
        return state

    def formulas(
        self, state: Posterior, X: Tensor, y: Tensor, weights: Tensor | None = None
    ) -> Dense:
        """What a state with these data must answer."""
        if self.exact:
            return Dense(self.kernel(), X, y, weights)
        points = state.anchors if self.living else self.dictionary.to(X)
        return Sketched(self.kernel(), X, y, points, weights)


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
    kernel.base_kernel.period_length = 1.7
    kernel.base_kernel.lengthscale = 0.9
    kernel.outputscale = 0.7
    return kernel


class FeatureKernel(Kernel):
    """The kernel of explicit features, for ``tests.third_party_posterior``."""

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params) -> Tensor:
        A = features(x1)
        B = features(x2)
        return (A * B).sum(-1) if diag else A @ B.mT


def features(X: Tensor) -> Tensor:
    """Ten cosines [... 10] of points [... 2]."""
    directions = torch.randn(2, 10, generator=seeded(8), dtype=torch.float64).to(X)
    return 0.6 * torch.cos(3 * X @ directions + torch.arange(10).to(X))


def features_of(kernel: Kernel) -> Callable[[Tensor], Tensor]:
    """The features of a ``FeatureKernel`` or a multiple of one."""
    if isinstance(kernel, ScaleKernel):
        scale = kernel.outputscale.detach().clone().sqrt()
        return lambda X: scale.to(X) * features(X)
    return features


class Whitened(Kernel):
    """``sqrt(w) k(x, z) sqrt(v)`` of points with weights, (x, w) and (z, v): noise levels without ``weights``."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params) -> Tensor:
        scale = x1[..., -1:].sqrt()
        other = x2[..., -1:].sqrt()
        plain = self.kernel(x1[..., :-1], x2[..., :-1], diag)
        return (scale * other)[..., 0] * plain if diag else scale * plain.to_dense() * other.mT


def precomputed() -> Kernel:
    objects = torch.rand(400, 3, generator=seeded(7), dtype=torch.float64)
    return PrecomputedKernel(
        1.3 * torch.exp(-(objects.unsqueeze(0) - objects.unsqueeze(1)).norm(dim=-1))
    )


def sketched(name: str, kernel: Callable[[], Kernel], points: Tensor) -> State:
    return State(
        f"sketched-{name}",
        kernel,
        lambda k, ridge: NystromRidge(k, ridge, FixedDictionary(points)),
        exact=False,
        dictionary=points,
    )


def living(
    name: str, kernel: Callable[[], Kernel], dictionary: Callable[[float], Dictionary], **kwargs
) -> State:
    """``dictionary`` is a function of the ridge, so that it has the units of the kernel."""
    return State(
        f"living-{name}",
        kernel,
        lambda k, ridge: NystromRidge(k, ridge, dictionary(ridge)),
        exact=False,
        living=True,
        **kwargs,
    )


def adaptive(name: str, kernel: Callable[[], Kernel], variant: str, **kwargs) -> State:
    """A ridge that follows bounds of the noise level and begins at the one that is given."""
    base = kwargs.pop("base", KernelRidge)
    return State(
        f"adaptive-{name}",
        kernel,
        lambda k, ridge: AdaptiveRidge(
            base(k, ridge), noise_bounds(variant, 50.0, 0.1, first=ridge)
        ),
        **kwargs,
    )


STATES = [
    State("exact", lambda: matern(2.5)),
    sketched("fixed", rbf, unit_square(9, 30)),
    living("online", rbf, lambda ridge: OnlineRowSampling(ridge, gamma=3.0)),
    living("resampled", lambda: matern(0.5), lambda ridge: LeverageResampling(1.5)),
    adaptive("exact", lambda: matern(1.5), "tight+grid"),
    adaptive(
        "sketched",
        lambda: matern(2.5),
        "tight+grid",
        base=lambda k, ridge: NystromRidge(k, ridge, FixedDictionary(unit_square(15, 33))),
        exact=False,
        dictionary=unit_square(15, 33),
    ),
    State("third-party", FeatureKernel, lambda k, ridge: LinearRegression(features_of(k), ridge)),
]
"""One for each way to compute a posterior: all laws."""

DICTIONARIES = [
    living("greedy", lambda: matern(1.5), lambda ridge: GreedyDictionary(5 * ridge)),
    living("focused", lambda: matern(2.5), lambda ridge: FocusedDictionary(ridge, 12, 8)),
    living("batched", lambda: matern(2.5), lambda ridge: BatchedResampling(1.5, growth=2.0)),
    living(
        "capped-precomputed",
        precomputed,
        lambda ridge: OnlineRowSampling(ridge, most=15),
        points=numbers,
    ),
]
"""Other dictionaries: the laws that depend on how a dictionary changes; ``test_dictionaries.py`` has more."""

VARIANTS = [
    State("exact-generic", periodic),
    State("exact-precomputed", precomputed, points=numbers),
    sketched("more-points-than-data", lambda: matern(1.5), unit_square(80, 31)),
    sketched("one-point", lambda: matern(2.5), unit_square(1, 32)),
    adaptive("mixture", rbf, "mixture"),
]
"""The same computations with other kernels and schedules: the values only."""
