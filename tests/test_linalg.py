"""The growing factor equals LAPACK's, however it grew."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from kbo._base.linalg import GrowingCholesky, panel_rows, safe_sqrt
from kbo.errors import NotPositiveDefinite
from tests.conftest import DEVICE
from tests.dense import close

pytestmark = pytest.mark.usefixtures("device")

PANEL = panel_rows(torch.empty(0, device=DEVICE).device)


def matrix(n: int) -> Tensor:
    B = torch.randn(n, n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    return (B @ B.T / n + torch.eye(n, dtype=torch.float64)).to(DEVICE)


def grown(A: Tensor, cuts=()) -> GrowingCholesky:
    factor = GrowingCholesky(A)
    ends = [*sorted(cuts), len(A)]
    for a, b in zip([0, *ends], ends, strict=False):
        grow(factor, A[:a, a:b], A[a:b, a:b])
    return factor


def grow(factor: GrowingCholesky, cross: Tensor, block: Tensor) -> None:
    """Half of the diagonal's 1 as noise; right-hand sides are row numbers."""
    n, r = cross.shape
    y = torch.arange(n, n + r).to(block)
    factor.append(cross, block - 0.5 * torch.eye(r).to(block), torch.full_like(y, 0.5), y)


def whole(factor: GrowingCholesky) -> Tensor:
    return factor.rows(0, factor.n)[1]


@settings(max_examples=5)
@given(cuts=st.lists(st.integers(0, 2 * PANEL + 30), max_size=6))
def test_equals_the_cholesky_factor_however_it_grew(cuts):
    A = matrix(max(cuts, default=PANEL + 30))
    factor, L = grown(A, cuts), torch.linalg.cholesky(A)
    close(whole(factor), L, 1e-11)
    close(L @ factor.z, torch.arange(len(A)).to(A), 1e-9)
    assert factor.log_det == pytest.approx(float(torch.logdet(2 * A)), abs=1e-9)
    assert factor.n == len(A)
    for m in (0, len(A) // 2, len(A)):  # fewer rows are solved against the leading block
        B = torch.ones(m, 3).to(A).cumsum(0)
        close(factor.solve(B), torch.linalg.solve_triangular(L[:m, :m], B, upper=False), 1e-10)
        left, corner = factor.rows(m // 2, m)
        close(torch.cat([left, corner], -1), L[m // 2 : m, :m], 1e-11)
    close(factor.solve(B[:, 0]), factor.solve(B)[:, 0], 1e-12)
    close(factor.solve_transposed(B), torch.linalg.solve_triangular(L.T, B, upper=True), 1e-10)


@pytest.mark.parametrize("n", [10, PANEL])
def test_a_fork_grows_on_its_own(n):
    A = matrix(n + 20)
    parent = grown(A[:n, :n])
    before = whole(parent).clone()
    child = parent.fork()
    grow(child, A[:n, n:], A[n:, n:])
    grow(parent, 2 * A[:n, n : n + 1] * 0, 5 * A[n : n + 1, n : n + 1])
    close(whole(child), torch.linalg.cholesky(A), 1e-11)
    assert torch.equal(parent.rows(0, n)[1], before)


def test_solves_are_differentiable_twice():
    factor = grown(matrix(6), [2])
    B = matrix(6)[:, :2].clone().requires_grad_()
    for solve in (factor.solve, factor.solve_transposed):
        assert gradcheck(solve, B)
        assert gradgradcheck(solve, B)
    assert gradcheck(factor.solve, B.detach()[:4].requires_grad_())


@pytest.mark.parametrize(
    ("row", "value", "advice"),
    [
        (0, -1.0, "no kernel"),
        (5, 0.0, "larger ridge"),
        (PANEL + 5, float("nan"), "larger ridge"),
        (5, float("inf"), "larger ridge"),
    ],
)
def test_a_matrix_without_a_factor_is_an_error_that_names_the_row(row, value, advice):
    A = torch.eye(PANEL + 20).double().to(DEVICE)
    A[row, row] = value
    with pytest.raises(NotPositiveDefinite, match=advice):
        grown(A)
    with pytest.raises(NotPositiveDefinite, match=rf"row {row + 1}\b"):
        grown(A, [row])


def test_safe_sqrt_is_the_root_with_gradient_zero_at_zero():
    x = torch.tensor([0.0, 0.25, 4.0]).double().to(DEVICE).requires_grad_()
    root = safe_sqrt(x)
    root.sum().backward()
    assert root.tolist() == [0, 0.5, 2]
    assert x.grad.tolist() == [0, 1, 0.25]
