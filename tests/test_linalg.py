"""The growing factor equals LAPACK's, however it grew."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from kbo.errors import NotPositiveDefinite
from kbo.linalg import PANEL, GrowingCholesky, GrowingTensor, safe_sqrt
from tests.dense import close


def matrix(n: int, device) -> Tensor:
    B = torch.randn(n, n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    return (B @ B.T / n + torch.eye(n, dtype=torch.float64)).to(device)


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
    factor.append(cross, block - 0.5 * torch.eye(r).to(block), 0.5, y)


def whole(factor: GrowingCholesky) -> Tensor:
    return factor.rows(0, factor.n)[1]


@settings(max_examples=5)
@given(cuts=st.lists(st.integers(0, 2 * PANEL + 30), max_size=6))
def test_equals_the_cholesky_factor_however_it_grew(device, cuts):
    A = matrix(max(cuts, default=2 * PANEL), device)
    factor, L = grown(A, cuts), torch.linalg.cholesky(A)
    close(whole(factor), L, 1e-11)
    close(L @ factor.z, torch.arange(len(A)).to(A), 1e-9)
    assert factor.log_det == pytest.approx(float(torch.logdet(2 * A)), abs=1e-9)
    assert factor.n == len(A)


@pytest.mark.parametrize("shape", [(), (3,)])
def test_solves_equal_triangular_solves(device, shape):
    n = PANEL + 40
    A, B = matrix(n, device), torch.ones(n, *shape, dtype=torch.float64, device=device).cumsum(0)
    factor, L = grown(A, [100]), torch.linalg.cholesky(A)
    columns = B.reshape(n, -1)
    close(factor.solve(B), torch.linalg.solve_triangular(L, columns, upper=False).reshape(B.shape), 1e-10)
    close(factor.solve_transposed(B), torch.linalg.solve_triangular(L.T, columns, upper=True).reshape(B.shape), 1e-10)


def test_fewer_rows_are_solved_against_the_leading_block_and_rows_are_split_at_the_diagonal_block(device):
    A = matrix(PANEL + 40, device)
    factor, L = grown(A, [17]), torch.linalg.cholesky(A)
    for m in (0, 1, PANEL - 30, PANEL, PANEL + 7):
        B = torch.ones(m, 2, dtype=torch.float64, device=device)
        close(factor.solve(B), torch.linalg.solve_triangular(L[:m, :m], B, upper=False), 1e-10)
    for start, stop in [(0, 5), (3, 3), (PANEL - 2, PANEL + 3), (PANEL, PANEL + 5), (10, PANEL + 40)]:
        left, corner = factor.rows(start, stop)
        close(left, L[start:stop, :start], 1e-11)
        close(corner, L[start:stop, start:stop], 1e-11)


@pytest.mark.parametrize("n", [10, PANEL])
def test_a_fork_grows_on_its_own(device, n):
    A = matrix(n + 20, device)
    parent = grown(A[:n, :n])
    before, child = whole(parent).clone(), parent.fork()
    grow(child, A[:n, n:], A[n:, n:])
    grow(parent, 2 * A[:n, n : n + 1] * 0, 5 * A[n : n + 1, n : n + 1])
    close(whole(child), torch.linalg.cholesky(A), 1e-11)
    torch.testing.assert_close(parent.rows(0, n)[1], before, rtol=0, atol=0)


def test_solves_are_differentiable_twice(device):
    factor, B = (
        grown(matrix(6, device), [2]),
        torch.randn(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)),
    )
    B = B.to(device).requires_grad_()
    for solve in (factor.solve, factor.solve_transposed):
        assert gradcheck(solve, B)
        assert gradgradcheck(solve, B)
    assert gradcheck(factor.solve, B.detach()[:4].requires_grad_())


@pytest.mark.parametrize(("row", "value"), [(0, -1.0), (5, 0.0), (PANEL + 5, float("nan")), (5, float("inf"))])
def test_a_matrix_without_a_factor_is_an_error_that_names_the_row(device, row, value):
    A = torch.eye(PANEL + 20, dtype=torch.float64, device=device)
    A[row, row] = value
    with pytest.raises(NotPositiveDefinite, match="larger ridge"):
        grown(A)
    with pytest.raises(NotPositiveDefinite, match=f"row {row + 1}:"):
        grown(A, [row])


def test_a_growing_tensor_keeps_old_views_and_forks(device):
    rows = torch.arange(200, dtype=torch.float64, device=device).reshape(100, 2)
    growing, views = GrowingTensor(rows[:0]), []
    for i, row in enumerate(rows.split(3)):
        growing.append(row)
        views.append(growing.value)
        if i == 5:
            fork = growing.fork()
            fork.append(-row)
    for view in views:
        assert torch.equal(view, rows[: len(view)])
    assert torch.equal(growing.value, rows)
    assert torch.equal(fork.value, torch.cat([rows[:18], -rows[15:18]]))


def test_safe_sqrt_is_the_root_with_gradient_zero_at_zero(device):
    x = torch.tensor([0.0, 0.25, 4.0], dtype=torch.float64, device=device, requires_grad=True)
    root = safe_sqrt(x)
    root.sum().backward()
    assert root.tolist() == [0, 0.5, 2]
    assert x.grad.tolist() == [0, 1, 0.25]
