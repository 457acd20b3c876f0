"""Functions that are no kernels have no bound, and kernels are never taken for one of them."""

from __future__ import annotations

import pytest
import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import (
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    PolynomialKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kbo import AdaptiveRidge, KernelRidge
from kbo.confidence import (
    AdaptiveMixture,
    AdaptiveSelfNormalized,
    MixtureNoiseBounds,
    NoiseBounds,
    certify,
    norm_lower_bound,
)
from kbo.errors import NotPositiveDefinite
from kbo.kernels import PrecomputedKernel
from kbo.regression import FixedDictionary, GreedyDictionary, NystromRidge, Posterior
from tests.laws.confidences import BOUNDS, Setting
from tests.laws.states import seeded, unit_square


class Difference(Kernel):
    """``k - c h``, which is no kernel."""

    def __init__(self, c: float) -> None:
        super().__init__()
        self.c = c
        self.smooth = stationary(MaternKernel(nu=2.5), 0.5)
        self.rough = stationary(MaternKernel(nu=1.5), 0.1)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params) -> Tensor:
        smooth = self.smooth.forward(x1, x2, diag=diag)
        return smooth - self.c * self.rough.forward(x1, x2, diag=diag)


def stationary(kernel: Kernel, lengthscale: float) -> Kernel:
    kernel = kernel.double()
    kernel.lengthscale = lengthscale
    return kernel


def adaptive(bounds):
    return lambda kernel: AdaptiveRidge(KernelRidge(kernel, bounds.ridge), bounds)


X = unit_square(20, 0)
Y = (5 * X).sin().sum(-1)
STATES = {
    "exact": lambda kernel: KernelRidge(kernel, 0.01),
    "greedy": lambda kernel: NystromRidge(kernel, 0.01, GreedyDictionary(1e-3)),
    "fixed": lambda kernel: NystromRidge(kernel, 0.01, FixedDictionary(X[::4])),
    "mixture": adaptive(MixtureNoiseBounds(0.1, 0.1)),
    "noise": adaptive(NoiseBounds(0.1, 0.1)),
}
CONFIDENCES = {bound.name: bound.make(Setting(noise_std=0.01, norm_bound=0.1)) for bound in BOUNDS}
ADAPTIVE = {"mixture": AdaptiveMixture("cmm"), "noise": AdaptiveSelfNormalized()}


def observed(state: Posterior, *sizes: int) -> Posterior:
    for x, y in zip(X.split(sizes), Y.split(sizes), strict=True):
        state.update(x, y)
    return state


def confidences(name: str):
    return {name: ADAPTIVE[name]} if name in ADAPTIVE else CONFIDENCES


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("c", [0.03, 0.005])
@pytest.mark.parametrize("sizes", [[20], [1] * 20])
def test_no_bound_is_valid_of_a_function_that_is_no_kernel(name, c, sizes):
    """The ridge hides the negative eigenvalue; neither it nor the numbers of the bound are to blame."""
    least = float(torch.linalg.eigvalsh(Difference(c)(X, X).to_dense().detach())[0])
    assert least < -1e-4
    try:
        state = observed(STATES[name](Difference(c)), *sizes)
    except NotPositiveDefinite as error:  # noise bounds read many ridges
        assert_blames_the_kernel(error)
        return
    for confidence in confidences(name).values():
        reasons = confidence.objections(state)
        blames = [text for text in reasons if "no kernel" in text]
        if any(text.startswith("no theorem covers") for text in reasons):
            assert not blames  # nothing to test
            continue
        (reason,) = blames
        assert f"{least:.2g}" in reason
        assert confidence.guarantee_on(state) is None
        try:
            confidence.interval(state, X)
        except NotPositiveDefinite as error:
            assert_blames_the_kernel(error)


def assert_blames_the_kernel(error: NotPositiveDefinite) -> None:
    assert "no kernel" in str(error)
    assert "larger ridge" not in str(error)


def test_no_norm_and_no_certificate_of_a_function_that_is_no_kernel():
    state = observed(STATES["exact"](Difference(0.005)), 20)
    for prove in (
        lambda: norm_lower_bound(state, 0.1, 0.1),
        lambda: certify(CONFIDENCES["cmm"], state, X[0]),
    ):
        with pytest.raises(NotPositiveDefinite, match="no kernel"):
            prove()


def periodic(lengthscale: float) -> Kernel:
    kernel = stationary(PeriodicKernel(), lengthscale)
    kernel.period_length = 0.37
    return kernel


class Expanded(Kernel):
    """``exp(-|x - z|^2)`` with the distance from ``|x|^2 - 2xz + |z|^2``, which rounding changes."""

    def __init__(self, lengthscale: float) -> None:
        super().__init__()
        self.scale = lengthscale

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params) -> Tensor:
        if diag:
            return x1.new_ones(x1.shape[:-1])
        x1 = x1 / self.scale
        x2 = x2 / self.scale
        squares = x1.square().sum(-1).unsqueeze(-1) + x2.square().sum(-1).unsqueeze(-2)
        return torch.exp(2 * x1 @ x2.mT - squares)


KERNELS = {
    "unknown formula": Expanded,
    "rbf": lambda s: stationary(RBFKernel(), s),
    "matern12": lambda s: stationary(MaternKernel(nu=0.5), s),
    "matern32": lambda s: stationary(MaternKernel(nu=1.5), s),
    "matern52": lambda s: stationary(MaternKernel(nu=2.5), s),
    "rational": lambda s: stationary(RQKernel(), s),
    "periodic": periodic,
    "linear": lambda s: ScaleKernel(LinearKernel()).double(),
    "cubic": lambda s: PolynomialKernel(power=3).double(),
    "additive": lambda s: (
        stationary(RBFKernel(active_dims=[0]), s)
        + stationary(MaternKernel(nu=1.5, active_dims=[1]), 0.2)
    ),
    "product": lambda s: stationary(RBFKernel(), s) * LinearKernel().double() * periodic(1.0),
}


def designs(n: int, seed: int) -> list[Tensor]:
    """Sets of n points: spread, repeated, close to each other, far from zero, on a line, on a grid."""
    points = unit_square(n, seed)
    some = torch.randint(0, max(1, n // 5), (n,), generator=seeded(seed))
    line = torch.linspace(0, 1, n, dtype=torch.float64).unsqueeze(-1)
    return [
        points,
        points[some],
        points[some] + 1e-9 * points,
        1e5 + points,
        line.expand(n, 2),
        (4 * points).round() / 4,
    ]


@pytest.mark.parametrize("kernel", KERNELS)
@given(
    log_lengthscale=st.floats(-8, 8),
    n=st.integers(1, 60),
    seed=st.integers(0, 99),
    part=st.integers(5, 60),
)
@settings(max_examples=20)
def test_a_kernel_is_never_taken_for_none(kernel, log_lengthscale, n, seed, part):
    for points in designs(n, seed):
        state = KernelRidge(KERNELS[kernel](10**log_lengthscale), 0.1)
        for new in points.split(part):
            state.update(new, new.sum(-1))
            assert state.error.negative_eigenvalue() == 0


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_of_a_thousand_points_is_one(kernel):
    points = unit_square(1000, 1)
    state = KernelRidge(KERNELS[kernel](1.0), 0.1)
    for part in points.split(400):
        state.update(part, part.sum(-1))
        assert state.error.negative_eigenvalue() == 0


class Shifted(MaternKernel):
    """A subclass with another formula, ``k - 1/2``, which is no kernel."""

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params) -> Tensor:
        return super().forward(x1, x2, diag=diag, **params) - 0.5


def negative_multiple() -> Kernel:
    kernel = ScaleKernel(RBFKernel(), outputscale_constraint=Interval(-1.0, 1.0))
    kernel.outputscale = -0.5
    return kernel.double()


def test_a_function_is_taken_for_a_kernel_without_a_test_only_if_a_theorem_says_so(monkeypatch):
    """Of a subclass and of a negative multiple, also within sums and products, no theorem does."""
    matern = stationary(MaternKernel(nu=2.5), 0.3)
    shifted = stationary(Shifted(nu=2.5), 0.3)
    for function in (shifted, ScaleKernel(shifted).double(), matern + negative_multiple()):
        state = observed(KernelRidge(function, 2.0), 20)
        assert state.error.negative_eigenvalue() < -1e-3

    monkeypatch.setattr(KernelRidge, "prior", None)
    for kernel in (matern, ScaleKernel(matern).double(), matern * matern + matern):
        state = observed(KernelRidge(kernel, 2.0), 20)
        assert state.error.negative_eigenvalue() == 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_gram_matrix_that_is_accepted_is_a_kernel(dtype):
    """It was computed elsewhere, so its eigenvalues may be below zero by rounding of that formula."""
    features = torch.randn(30, 3, generator=seeded(0), dtype=torch.float64)
    gram = features @ features.mT
    _, vectors = torch.linalg.eigh(gram)
    slack = 90 * torch.finfo(dtype).eps * gram.trace()
    gram = gram - slack * vectors[:, :1] @ vectors[:, :1].mT
    kernel = PrecomputedKernel(((gram + gram.mT) / 2).to(dtype))
    state = KernelRidge(kernel, 0.1)
    state.update(kernel.points, torch.zeros(30, dtype=dtype))
    assert state.error.negative_eigenvalue() == 0


def test_the_eigenvalue_is_computed_once_for_the_same_locations(monkeypatch):
    state = observed(KernelRidge(Difference(0.03), 0.1), 10, 10)
    eigenvalue = state.error.negative_eigenvalue()
    assert eigenvalue < 0
    state.move_ridge(0.2)
    with monkeypatch.context() as patch:
        patch.setattr(torch.linalg, "eigvalsh", None)
        assert state.error.negative_eigenvalue() == eigenvalue
    state.update(unit_square(1, 9), Y[:1])
    assert state.error.negative_eigenvalue() != eigenvalue
