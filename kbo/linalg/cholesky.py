"""Cholesky factors of kernel matrices, fixed and growing.

On paper                                  | in code
``A = L L'``                              | ``cholesky(A)``
``A = L L'``, A grows by rows and columns | ``GrowingCholesky``
``L^{-1} B``, ``L^{-T} B``                | ``factor.solve(B)``, ``factor.solve_transposed(B)``

The factor is kept in row panels of ``PANEL`` rows: the rectangle to the left of the diagonal block, the
diagonal block and its inverse. Growing writes into the last panel or opens a new one, so no growth ever
copies what is already there, half of the square is never allocated, a solve is a handful of matrix
products, and a fork shares every full panel with its parent.
"""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from kbo.errors import NotPositiveDefinite
from kbo.stateful import Stateful

PANEL = 128
"""Rows of a panel: large enough for matrix products to dominate, small enough to invert stably."""


def safe_sqrt(x: Tensor) -> Tensor:
    """Square root of ``x >= 0`` whose gradient at zero is zero instead of infinite."""
    if not x.requires_grad:
        return x.clamp_min(0).sqrt()
    positive = x > 0
    return torch.where(positive, torch.where(positive, x, torch.ones_like(x)).sqrt(), torch.zeros_like(x))


def ill_conditioned_ratio(dtype: torch.dtype) -> float:
    """The ridge, as a fraction of ``sup k(x, x)``, below which log-determinants lose their digits."""
    return 1e-10 if dtype == torch.float64 else 1e-4


def cholesky(A: Tensor, first_row: int = 0) -> Tensor:
    """The lower Cholesky factor of A [... n n], without jitter; ``first_row`` only numbers the rows in the error.

    Raises:
        NotPositiveDefinite: A has no factor in its dtype.
    """
    L, info = torch.linalg.cholesky_ex(A)
    if bool(info.any()) or not bool(torch.isfinite(L).all()):
        raise NotPositiveDefinite(
            f"The kernel matrix plus ridge is not positive definite in {A.dtype} at row "
            f"{first_row + max(int(info.max()), 1)}: the ridge is below the rounding error of the kernel. "
            "Use a larger ridge (every bound stays valid for it; jitter would break them), or float64."
        )
    return L


class _Panel:
    """Rows ``start .. start + PANEL`` of a factor."""

    def __init__(self, start: int, like: Tensor) -> None:
        self.start, self.n = start, 0
        self.left = like.new_empty(PANEL, start)
        self.block = like.new_zeros(PANEL, PANEL)
        self.inverse = like.new_zeros(PANEL, PANEL)

    def append(self, left: Tensor, corner: Tensor, block: Tensor) -> None:
        """Add rows ``[left | corner | block]`` of the factor."""
        a, b = self.n, self.n + block.shape[0]
        self.left[a:b] = left
        self.block[a:b, :a] = corner
        self.block[a:b, a:b] = block
        if b - a == 1:
            inverse = 1 / block
        else:
            identity = torch.eye(b - a, dtype=block.dtype, device=block.device)
            inverse = torch.linalg.solve_triangular(block, identity, upper=False)
        self.inverse[a:b, a:b] = inverse
        self.inverse[a:b, :a] = -inverse @ (corner @ self.inverse[:a, :a])
        self.n = b

    def fork(self) -> _Panel:
        copy = object.__new__(_Panel)
        copy.start, copy.n = self.start, self.n
        copy.left = torch.empty_like(self.left)
        copy.left[: self.n] = self.left[: self.n]  # memory that was never written is never touched
        copy.block, copy.inverse = self.block.clone(), self.inverse.clone()
        return copy


class GrowingCholesky(Stateful):
    """The lower Cholesky factor of a symmetric matrix, like ``like``, that grows by rows and columns.

    Appending r rows to n costs O(n^2 r); the first n0 rows are never touched again, so results
    computed from them stay valid while the factor grows.
    """

    def __init__(self, like: Tensor) -> None:
        self._like = like.new_empty(0)
        self._panels: list[_Panel] = []
        self.n: int = 0

    def append(self, cross: Tensor, block: Tensor) -> None:
        """Grow A to ``[[A, cross], [cross', block]]``.

        Args:
            cross: New columns against the old rows, [n r].
            block: New rows against themselves, [r r].

        Raises:
            NotPositiveDefinite: The grown matrix has no Cholesky factor in this dtype.
        """
        done, r = 0, block.shape[0]
        while done < r:
            if not self._panels or self._panels[-1].n == PANEL:
                self._panels.append(_Panel(self.n, self._like))
            panel = self._panels[-1]
            new = slice(done, min(r, done + PANEL - panel.n))
            columns = torch.cat([cross[:, new], block[:done, new]]) if done else cross[:, new]
            C = self._solve(columns)
            L = cholesky(block[new, new] - C.T @ C, self.n)
            panel.append(C[: panel.start].T, C[panel.start :].T, L)
            self.n += L.shape[0]
            done = new.stop

    def solve(self, B: Tensor) -> Tensor:
        """``L^{-1} B`` for B [n] or [n q]; differentiable in B.

        With fewer than n rows, B is solved against the leading block of L.
        """
        if not B.requires_grad:
            return self._solve(B)
        return _Solve.apply(B, self, False)  # pyright: ignore[reportReturnType]

    def solve_transposed(self, B: Tensor) -> Tensor:
        """``L^{-T} B`` for B [n] or [n q]; differentiable in B."""
        return _Solve.apply(B, self, True)  # pyright: ignore[reportReturnType]

    def rows(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Rows ``start .. stop`` of L as ``(L[start:stop, :start], L[start:stop, start:stop])``."""
        full = self._like.new_zeros(stop - start, stop)
        for panel in self._panels:
            a, b = max(start, panel.start), min(stop, panel.start + panel.n)
            if a < b:
                here = slice(a - panel.start, b - panel.start)
                full[a - start : b - start, : panel.start] = panel.left[here]
                width = min(PANEL, stop - panel.start)
                full[a - start : b - start, panel.start : panel.start + width] = panel.block[here, :width]
        return full[:, :start], full[:, start:]

    def diagonal(self) -> Tensor:
        """The diagonal of L, [n]."""
        if not self._panels:
            return self._like
        return torch.cat([panel.block.diagonal()[: panel.n] for panel in self._panels])

    def fork_with(self, memo: dict[int, Any]) -> Self:
        """Return a copy that may grow on its own; full panels are shared, O(PANEL n)."""
        twin = super().fork_with(memo)
        if twin._panels and twin._panels[-1].n < PANEL:
            twin._panels[-1] = twin._panels[-1].fork()
        return twin

    def _solve(self, B: Tensor) -> Tensor:
        out = torch.empty_like(B, memory_format=torch.contiguous_format)
        n = B.shape[0]
        for panel in self._panels:
            a, b = panel.start, min(panel.start + panel.n, n)
            if a >= n:
                break
            rest = B[a:b] - panel.left[: b - a] @ out[:a] if a else B[a:b]
            out[a:b] = panel.inverse[: b - a, : b - a] @ rest
        return out

    def _solve_transposed(self, B: Tensor) -> Tensor:
        out = B.clone(memory_format=torch.contiguous_format)
        n = B.shape[0]
        for panel in reversed(self._panels):
            a, b = panel.start, min(panel.start + panel.n, n)
            if a >= n:
                continue
            out[a:b] = panel.inverse[: b - a, : b - a].T @ out[a:b]
            out[:a] -= panel.left[: b - a].T @ out[a:b]
        return out


class _Solve(torch.autograd.Function):
    """Triangular solve against a factor that is a constant of differentiation."""

    @staticmethod
    def forward(ctx, B: Tensor, factor: GrowingCholesky, transposed: bool) -> Tensor:
        ctx.factor, ctx.transposed = factor, transposed
        return factor._solve_transposed(B) if transposed else factor._solve(B)

    @staticmethod
    def backward(ctx, grad: Tensor):
        return _Solve.apply(grad, ctx.factor, not ctx.transposed), None, None
