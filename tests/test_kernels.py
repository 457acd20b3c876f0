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
    PolynomialKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)
from torch import Tensor
from torch.autograd import gradcheck

from kbo.errors import InvalidInput
from kbo.kernels import PrecomputedKernel, freeze
from tests.dense import close, gram


def points(*shape: int, device="cpu", seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(device)


def tuned(kernel: Kernel, lengthscale=0.4) -> Kernel:
    kernel = kernel.double()
    kernel.lengthscale = torch.as_tensor(lengthscale, dtype=torch.float64)
    return kernel


def scaled(kernel: Kernel, scale: float = 2.3, **kwargs) -> Kernel:
    kernel = ScaleKernel(kernel, **kwargs).double()
    kernel.outputscale = torch.tensor(scale, dtype=torch.float64)
    return kernel


ARD = [[0.3, 0.7, 1.9]]

STATIONARY = {
    "rbf": lambda: tuned(RBFKernel()),
    "rbf-ard": lambda: tuned(RBFKernel(ard_num_dims=3), ARD),
    "matern12": lambda: tuned(MaternKernel(nu=0.5)),
    "matern32": lambda: tuned(MaternKernel(nu=1.5)),
    "matern52-ard": lambda: tuned(MaternKernel(nu=2.5, ard_num_dims=3), ARD),
    "active-dims": lambda: tuned(RBFKernel(active_dims=[2, 0])),
    "active-dims-ard": lambda: tuned(MaternKernel(nu=2.5, ard_num_dims=2, active_dims=[0, 2]), [[0.2, 0.9]]),
    "active-dims-twice": lambda: tuned(MaternKernel(nu=1.5, active_dims=[2, 0, 0])),
    "scaled": lambda: scaled(tuned(MaternKernel(nu=1.5))),
    "scaled-twice": lambda: scaled(scaled(tuned(RBFKernel(ard_num_dims=3), ARD)), 0.3),
    "scaled-active-dims": lambda: scaled(scaled(tuned(RBFKernel(active_dims=[1])))),
    "scale-with-active-dims": lambda: scaled(tuned(RBFKernel()), active_dims=[0, 2]),
    "sum": lambda: tuned(RBFKernel(active_dims=[0])) + scaled(tuned(MaternKernel(nu=2.5))),
    "product": lambda: tuned(RBFKernel(active_dims=[0])) * scaled(tuned(MaternKernel(nu=0.5, active_dims=[1, 2]))),
    "scaled-sum-of-products": lambda: scaled(
        tuned(RBFKernel()) * tuned(MaternKernel(nu=2.5), 0.9) + scaled(tuned(MaternKernel(nu=1.5)))
    ),
    "scaled-sum-with-active-dims": lambda: scaled(tuned(RBFKernel()) + tuned(MaternKernel()), active_dims=[0, 1]),
}
CATEGORICAL = {
    "categorical": lambda: scaled(tuned(CategoricalKernel(ard_num_dims=3), ARD)),
    "mixed": lambda: (
        tuned(RBFKernel(active_dims=[0])) * tuned(CategoricalKernel(ard_num_dims=2, active_dims=[1, 2]), [[1.0, 2.0]])
    ),
}
OTHERS = {
    "periodic": lambda: scaled(tuned(PeriodicKernel())),
    "rational-quadratic": lambda: tuned(RQKernel()),
    "cosine": lambda: CosineKernel().double(),
    "linear": lambda: LinearKernel().double(),
    "polynomial": lambda: PolynomialKernel(power=2).double(),
    "linear-plus-rbf": lambda: LinearKernel().double() + tuned(RBFKernel()),
    "scaled-linear-with-active-dims": lambda: scaled(LinearKernel(active_dims=[1]).double()),
}
KERNELS = STATIONARY | CATEGORICAL | OTHERS

every_kernel = pytest.mark.parametrize("make", KERNELS.values(), ids=KERNELS)
every_stationary_kernel = pytest.mark.parametrize("make", STATIONARY.values(), ids=STATIONARY)
every_smooth_kernel = pytest.mark.parametrize("make", (STATIONARY | OTHERS).values(), ids=STATIONARY | OTHERS)


@every_kernel
def test_equals_gpytorch(make, device):
    X, Z, kernel = points(40, 3, device=device), points(30, 3, device=device, seed=1), make().to(device)
    Z[:5] = X[3:8]
    k = freeze(kernel, X)
    close(k(X, Z), gram(kernel, X, Z), 1e-12)
    close(k(X, Z), kernel(X, Z).to_dense().detach(), 2e-7)  # GPyTorch takes distances from inner products
    close(k.diagonal(X), gram(kernel, X, X).diagonal(), 1e-12)


@every_kernel
def test_batches_equal_one_by_one(make, device):
    X, Z = points(2, 4, 7, 3, device=device), points(2, 4, 5, 3, device=device, seed=1)
    k = freeze(make(), X)
    actual, diagonal = k(X, Z), k.diagonal(X)
    assert actual.shape == (2, 4, 7, 5)
    assert diagonal.shape == (2, 4, 7)
    for i, j in [(0, 0), (1, 2)]:
        close(actual[i, j], k(X[i, j], Z[i, j]), 1e-12)
        close(diagonal[i, j], k.diagonal(X[i, j]), 1e-12)


@every_kernel
def test_an_entry_does_not_depend_on_the_other_rows(make, device):
    X, Z = points(300, 3, device=device), points(90, 3, device=device, seed=1)
    k = freeze(make(), X)
    close(k(X[7:8], Z[3:4]), k(X, Z)[7:8, 3:4], 1e-14)


@pytest.mark.parametrize("make", (STATIONARY | CATEGORICAL).values(), ids=STATIONARY | CATEGORICAL)
def test_repeated_points_equal_the_diagonal_exactly(make, device):
    X = 100 + points(40, 3, device=device)  # far from the origin, where inner products round
    k = freeze(make(), X)
    assert torch.equal(k(X, X.clone()).diagonal(), k.diagonal(X).contiguous())
    assert torch.equal(k(X, X), k(X, X).T)


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_repeated_points_equal_the_diagonal_of_other_kernels(make, device):
    X = points(40, 3, device=device)
    k = freeze(make(), X)
    close(k(X, X.clone()).diagonal(), k.diagonal(X), 1e-12)


@every_smooth_kernel
def test_gradients_are_exact(make, device):
    X, Z = points(4, 3, device=device).requires_grad_(), points(3, 3, device=device, seed=1).requires_grad_()
    k = freeze(make(), X)
    assert gradcheck(k, (X, Z))
    assert gradcheck(lambda X: k(X, Z) @ torch.ones_like(Z), X)


@every_smooth_kernel
def test_a_weighted_sum_has_the_gradient_of_autograd(make, device):
    X, Z = points(5, 3, device=device), points(3, 3, device=device, seed=1).requires_grad_()
    Z.data[0] = X[2]  # where a distance has no gradient
    Z.data[1] = X[3] + 1e-8
    weights, k = points(5, 3, device=device, seed=2) - 0.5, freeze(make(), X)
    value, gradient = k.with_gradient(X, Z.detach())
    close(value, k(X, Z).detach(), 1e-14)
    close(gradient(weights), torch.autograd.grad(k(X, Z), Z, weights)[0], 1e-12)


def test_steps_have_no_gradient(device):
    X = points(5, 3, device=device)
    value, gradient = freeze(CATEGORICAL["categorical"](), X).with_gradient(X, X)
    with pytest.raises(InvalidInput, match="no gradient"):
        gradient(value)


@every_stationary_kernel
def test_gradients_at_a_repeated_point_are_finite(make, device):
    X = points(4, 3, device=device)
    Z = X.clone().requires_grad_()
    freeze(make(), X)(Z, X).sum().backward()
    assert Z.grad.isfinite().all()


@every_kernel
def test_float32_stays_float32(make, device):
    X = points(6, 3, device=device)
    kernel = make()
    single = freeze(kernel, X.float())
    assert single(X.float(), X.float()).dtype == single.diagonal(X.float()).dtype == torch.float32
    close(single(X.float(), X.float()).double(), freeze(kernel, X)(X, X), 1e-4)
    assert all(p.dtype == torch.float64 and p.requires_grad for p in kernel.parameters())


def test_a_frozen_kernel_ignores_later_changes(device):
    kernel, X = scaled(tuned(RBFKernel())), points(5, 3, device=device)
    k = freeze(kernel, X)
    before = k(X, X)
    kernel.base_kernel.lengthscale, kernel.outputscale = 3.0, 7.0
    assert torch.equal(k(X, X), before)


class Tilted(RBFKernel):
    def forward(self, x1, x2, diag=False, **params):
        return 3 * super().forward(x1, x2, diag=diag, **params)


class TiltedScale(ScaleKernel):
    def forward(self, x1, x2, diag=False, **params):
        return 3 * super().forward(x1, x2, diag=diag, **params)


class TiltedSum(AdditiveKernel):
    def forward(self, x1, x2, diag=False, **params):
        return 3 * super().forward(x1, x2, diag=diag, **params)


@pytest.mark.parametrize("kernel", [Tilted(), TiltedScale(RBFKernel()), TiltedSum(RBFKernel())], ids=type)
def test_a_subclass_keeps_its_own_formula(kernel, device):
    kernel, X = kernel.double().to(device), points(5, 3, device=device)
    close(freeze(kernel, X)(X, X), gram(kernel, X, X), 1e-12)


def test_anything_but_a_single_kernel_is_refused():
    X = points(3, 3)
    for wrong in (lambda x, z: x @ z.T, None, RBFKernel(batch_shape=torch.Size([2]))):
        with pytest.raises(InvalidInput):
            freeze(wrong, X)


# Precomputed


@pytest.fixture
def objects(device) -> Tensor:
    A = points(12, 5, device=device)
    return A @ A.T


def index(values, device) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, device=device).unsqueeze(-1)


def test_a_precomputed_kernel_looks_up_its_matrix(objects, device):
    k = freeze(PrecomputedKernel(objects), objects)
    X, Z = index([3, 0, 3, 11], device), index([0, 3, 5], device)
    assert torch.equal(k(X, Z), objects[[3, 0, 3, 11]][:, [0, 3, 5]])
    assert torch.equal(k.diagonal(X), objects.diagonal()[[3, 0, 3, 11]])
    assert torch.equal(k(X.reshape(2, 2, 1), Z[:2].expand(2, 2, 1))[1], k(X[2:], Z[:2]))


@pytest.mark.parametrize("wrong", [[-1.0], [12.0], [0.5]])
def test_a_precomputed_kernel_refuses_what_is_no_row_number(objects, device, wrong):
    k = freeze(PrecomputedKernel(objects), objects)
    for evaluate in (lambda X: k(X, X), lambda X: k(index([0], device), X), k.diagonal):
        with pytest.raises(InvalidInput, match=r"row numbers 0 \.\. 11"):
            evaluate(index(wrong, device))


def test_a_precomputed_kernel_takes_one_column(objects, device):
    k = freeze(PrecomputedKernel(objects), objects)
    columns = torch.zeros(3, 2, dtype=torch.float64, device=device)
    for evaluate in (lambda: k(columns, columns), lambda: k.diagonal(columns), lambda: k.diagonal(columns[:, :0])):
        with pytest.raises(InvalidInput, match="row numbers"):
            evaluate()


NOT_GRAMS = {
    "not square": torch.ones(3, 4),
    "a vector": torch.ones(3),
    "not symmetric": torch.tensor([[1.0, 0.5], [0.2, 1.0]]),
    "NaN": torch.full((2, 2), torch.nan),
    "infinite": torch.full((2, 2), torch.inf),
    "integers": torch.eye(3, dtype=torch.long),
    "a list": [[1.0, 0.0], [0.0, 1.0]],
}


@pytest.mark.parametrize("gram", NOT_GRAMS.values(), ids=NOT_GRAMS)
def test_a_precomputed_kernel_refuses_what_is_no_gram_matrix(gram):
    with pytest.raises(InvalidInput):
        PrecomputedKernel(gram)


def test_indefinite_matrices_are_refused_as_far_as_they_are_checked(monkeypatch):
    similar = torch.tensor([[1.0, 0.9, 0.0], [0.9, 1.0, 0.9], [0.0, 0.9, 1.0]]).double()  # every pair is possible
    with pytest.raises(InvalidInput, match="positive semi-definite"):
        PrecomputedKernel(similar)
    with pytest.raises(InvalidInput, match="positive semi-definite"):
        PrecomputedKernel(-torch.eye(3).double())
    PrecomputedKernel(similar + (-torch.linalg.eigvalsh(similar)[0] + 1e-9) * torch.eye(3).double())
    PrecomputedKernel(torch.zeros(3, 3).double())
    PrecomputedKernel(torch.ones(50, 50))  # of rank one, in float32
    monkeypatch.setattr("kbo.kernels._CHECKED", 4)
    large = torch.eye(600).double()
    large[17, 423] = large[423, 17] = 3.0
    with pytest.raises(InvalidInput, match="positive semi-definite"):
        PrecomputedKernel(large)


def test_a_precomputed_kernel_knows_its_points():
    kernel = PrecomputedKernel(torch.eye(4).double())
    assert kernel.points.shape == (4, 1)
    close(freeze(kernel, kernel.points)(kernel.points, kernel.points), torch.eye(4).double(), 0)
    assert "4 objects" in repr(kernel)
