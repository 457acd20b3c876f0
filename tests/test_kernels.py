"""Frozen kernels equal GPyTorch's, and are exact where GPyTorch rounds."""

from __future__ import annotations

import pytest
import torch
from botorch.models.kernels import CategoricalKernel
from gpytorch.kernels import (
    AdditiveKernel,
    CosineKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    RBFKernel,
    ScaleKernel,
)
from torch import Tensor
from torch.autograd import gradcheck

from kbo.errors import InvalidInput
from kbo.kernels import PrecomputedKernel, freeze, measured_error
from kbo.regression import KernelRidge
from tests.conftest import DEVICE
from tests.dense import close, gram
from tests.laws.states import seeded

pytestmark = pytest.mark.usefixtures("device")


def points(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=seeded(seed), dtype=torch.float64).to(DEVICE)


def tuned(kernel: Kernel, lengthscale=0.4) -> Kernel:
    kernel = kernel.double()
    kernel.lengthscale = torch.as_tensor(lengthscale, dtype=torch.float64)
    return kernel


def scaled(kernel: Kernel, scale: float = 2.3, **kwargs) -> Kernel:
    kernel = ScaleKernel(kernel, **kwargs).double()
    kernel.outputscale = torch.tensor(scale, dtype=torch.float64)
    return kernel


def tilted(kind: type[Kernel]) -> type[Kernel]:
    """A subclass with a formula of its own, which it must keep."""

    class Tilted(kind):
        def forward(self, x1, x2, **params):
            return 3 * super().forward(x1, x2, **params)

    return Tilted


ARD = [[0.3, 0.7, 1.9]]
STATIONARY = {
    "rbf-ard": lambda: tuned(RBFKernel(ard_num_dims=3), ARD),
    "matern12": lambda: tuned(MaternKernel(nu=0.5)),
    "active-dims-ard": lambda: tuned(
        MaternKernel(nu=2.5, ard_num_dims=2, active_dims=[2, 0]), [[0.2, 0.9]]
    ),
    "scaled-twice": lambda: scaled(scaled(tuned(RBFKernel(active_dims=[1]))), 0.3),
    "scale-with-active-dims": lambda: scaled(tuned(RBFKernel()), active_dims=[0, 2]),
    "scaled-sum-of-products": lambda: scaled(
        tuned(RBFKernel(active_dims=[0])) * tuned(MaternKernel(nu=2.5), 0.9)
        + scaled(tuned(MaternKernel(nu=1.5)))
    ),
    "scaled-sum-with-active-dims": lambda: scaled(
        tuned(RBFKernel()) + tuned(MaternKernel()), active_dims=[0, 1]
    ),
}
STEPS = {
    "categorical": lambda: scaled(tuned(CategoricalKernel(ard_num_dims=3), ARD)),
    "mixed": lambda: (
        tuned(RBFKernel(active_dims=[0]))
        * tuned(CategoricalKernel(ard_num_dims=2, active_dims=[1, 2]), [[1.0, 2.0]])
    ),
}
OTHERS = {
    "periodic": lambda: scaled(tuned(PeriodicKernel())),
    "cosine": lambda: CosineKernel().double(),
    "linear-plus-rbf": lambda: LinearKernel().double() + tuned(RBFKernel()),
    "subclasses": lambda: tilted(ScaleKernel)(
        tilted(AdditiveKernel)(tilted(RBFKernel)(), RBFKernel())
    ).double(),
}
KERNELS = STATIONARY | STEPS | OTHERS


@pytest.mark.parametrize("name", KERNELS)
def test_equals_gpytorch_in_any_batch_and_dtype(name):
    kernel = KERNELS[name]()
    X = points(2, 4, 9, 3)
    Z = points(2, 4, 5, 3, seed=1)
    Z[:, :, :2] = X[:, :, 3:5]
    k = freeze(kernel, X)
    actual = k(X, Z)
    diagonal = k.diagonal(X)
    assert (actual.shape, diagonal.shape) == ((2, 4, 9, 5), (2, 4, 9))
    close(actual[1, 2], gram(kernel, X[1, 2], Z[1, 2]), 1e-12)
    close(diagonal[1, 2], gram(kernel, X[1, 2], X[1, 2]).diagonal(), 1e-12)
    gpytorch = kernel.to(DEVICE)(X, Z).to_dense().detach()
    close(actual, gpytorch, 2e-7)  # GPyTorch takes distances from inner products
    single = freeze(kernel, X.float())
    assert single(X.float(), Z.float()).dtype == single.diagonal(X.float()).dtype == torch.float32
    close(single(X.float(), Z.float()).double(), actual, 1e-4)
    assert all(p.dtype == torch.float64 and p.requires_grad for p in kernel.parameters())
    with torch.no_grad():
        for parameter in kernel.parameters():
            parameter += 1
    assert torch.equal(k(X, Z), actual)  # later changes are ignored
    X = points(300, 3)
    close(k(X[7:8], X[3:4]), k(X, X)[7:8, 3:4], 1e-14)  # whatever the other rows


@pytest.mark.parametrize("name", STATIONARY | STEPS)
def test_repeated_points_equal_the_diagonal_exactly(name):
    X = 100 + points(40, 3)  # far from the origin, where inner products round
    k = freeze(KERNELS[name](), X)
    assert torch.equal(k(X, X.clone()).diagonal(), k.diagonal(X).contiguous())
    assert torch.equal(k(X, X), k(X, X).T)


@pytest.mark.parametrize("name", STATIONARY | OTHERS)
def test_gradients_are_exact_and_finite_at_a_repeated_point(name):
    X = points(5, 3)
    Z = points(3, 3, seed=1).requires_grad_()
    k = freeze(KERNELS[name](), X)
    assert gradcheck(k, (X[:4].clone().requires_grad_(), Z))
    Z.data[0] = X[2]  # where a distance has no gradient
    Z.data[1] = X[3] + 1e-8
    weights = points(5, 3, seed=2) - 0.5
    assert torch.autograd.grad(k(X, Z), Z, weights)[0].isfinite().all()


def test_steps_have_no_gradient():
    state = KernelRidge(STEPS["categorical"](), 0.1)
    X = points(5, 3)
    state.update(X, X[:, 0])
    with pytest.raises(InvalidInput, match="no gradient"):
        state.predict(X.clone().requires_grad_())


def test_anything_but_a_single_kernel_is_refused():
    X = points(3, 3)
    for wrong in (lambda x, z: x @ z.T, None, RBFKernel(batch_shape=torch.Size([2]))):
        with pytest.raises(InvalidInput):
            freeze(wrong, X)


# Precomputed


def index(*values) -> Tensor:
    return torch.tensor(values).double().unsqueeze(-1).to(DEVICE)


def test_a_precomputed_kernel_looks_up_its_matrix_and_refuses_what_is_no_row_number():
    A = points(12, 5)
    objects = A @ A.T
    kernel = PrecomputedKernel(objects)
    k = freeze(kernel, objects)
    X = index(3, 0, 3, 11)
    Z = index(0, 3, 5)
    assert torch.equal(k(X, Z), objects[[3, 0, 3, 11]][:, [0, 3, 5]])
    assert torch.equal(k.diagonal(X), objects.diagonal()[[3, 0, 3, 11]])
    assert torch.equal(k(X.reshape(2, 2, 1), Z[:2].expand(2, 2, 1))[1], k(X[2:], Z[:2]))
    assert torch.equal(k(kernel.points, kernel.points), objects)
    assert "12 objects" in repr(kernel)
    for wrong in (index(-1.0), index(12.0), index(0.5)):
        for evaluate in (lambda X: k(X, X), lambda X: k(Z, X), k.diagonal):
            with pytest.raises(InvalidInput, match=r"row numbers 0 \.\. 11"):
                evaluate(wrong)
    for columns in (X.expand(4, 2), X[:, :0]):
        with pytest.raises(InvalidInput, match="row numbers"):
            k.diagonal(columns)


def test_a_precomputed_kernel_refuses_what_is_no_gram_matrix(monkeypatch):
    one = torch.eye(3).double()
    asymmetric = one.tril() + one.roll(1, 0).tril()
    wrong = [one[:2], asymmetric, one * torch.nan, one.long(), one.tolist()]
    for matrix in wrong:
        with pytest.raises(InvalidInput):
            PrecomputedKernel(matrix)
    similar = torch.tensor([[1.0, 0.9, 0.0], [0.9, 1.0, 0.9], [0.0, 0.9, 1.0]]).double()
    large = torch.eye(600).double()
    large[17, 423] = large[423, 17] = 3.0
    for matrix, most in (
        (similar, 600),
        (-one, 600),
        (large, 4),
    ):  # each pair of similar is possible
        monkeypatch.setattr("kbo.kernels._MOST_CHECKED", most)  # of larger ones pairs are checked
        with pytest.raises(InvalidInput, match="positive semi-definite"):
            PrecomputedKernel(matrix)
    least = float(torch.linalg.eigvalsh(similar)[0])
    for matrix in (similar + (1e-9 - least) * one, 0 * one, torch.ones(50, 50)):
        PrecomputedKernel(matrix)


class Expanded(Kernel):
    """``exp(-|x - z|)`` with the distance from ``|x|^2 - 2xz + |z|^2``."""

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params) -> Tensor:
        if diag:
            return x1.new_ones(x1.shape[:-1])
        squares = x1.square().sum(-1).unsqueeze(-1) + x2.square().sum(-1).unsqueeze(-2)
        return torch.exp(-(squares - 2 * x1 @ x2.mT).clamp_min(0).sqrt())


def test_the_error_of_an_unknown_formula_is_about_that_of_its_distances():
    X = 10 + points(51, 2)  # of an odd number, one is compared with itself
    exact = torch.exp(-torch.linalg.vector_norm(X.unsqueeze(-2) - X, dim=-1))
    error = float((Expanded().forward(X, X) - exact).abs().max())
    assert error > 1e-8
    assert error / 10 < measured_error(Expanded(), X) < 100 * error


class Warped(Kernel):
    """A kernel whose lengthscale belongs to a module that is no kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.warp = torch.nn.Module()
        self.warp.lengthscale = torch.tensor(0.01)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params) -> Tensor:
        if diag:
            return x1.new_ones(x1.shape[:-1])
        return torch.exp(-torch.cdist(x1 / self.warp.lengthscale, x2 / self.warp.lengthscale))


def test_rounding_counts_a_lengthscale_of_any_module_of_a_kernel():
    X = 1000 + points(5, 2)
    assert freeze(Warped(), X).error(X) > 1e-11


@pytest.mark.parametrize("kind", [RBFKernel, MaternKernel, PeriodicKernel, LinearKernel])
def test_a_kernel_that_reads_a_column_which_points_have_not_is_refused(kind):
    kernel = ScaleKernel(RBFKernel() + kind(active_dims=[0, 3]))
    with pytest.raises(InvalidInput, match=r"columns 0 \.\. 1 .* got \[0, 3\]"):
        KernelRidge(kernel, 0.1).update(points(5, 2), points(5, 1)[:, 0])
