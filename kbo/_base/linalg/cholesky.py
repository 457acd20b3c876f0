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

import math
from typing import Any, Self

import torch
from torch import Tensor

from kbo._base.devices import read
from kbo._base.linalg.buffers import GrowingTensor
from kbo._base.stateful import Stateful, passed_on
from kbo.errors import NotPositiveDefinite

PANEL = 128
"""Rows of a panel: large enough for matrix products to dominate, small enough to invert stably."""


def safe_sqrt(x: Tensor) -> Tensor:
    """Square root of ``x >= 0`` whose gradient at zero is zero instead of infinite."""
    if not x.requires_grad:
        return x.clamp_min(0).sqrt()
    zero = x <= 0
    return x.masked_fill(zero, 1).sqrt().masked_fill(zero, 0)


def ill_conditioned_ratio(dtype: torch.dtype) -> float:
    """The ridge, as a fraction of ``sup k(x, x)``, below which log-determinants lose their digits."""
    return 1e-10 if dtype == torch.float64 else 1e-4


def cholesky(A: Tensor, first_row: int = 0) -> Tensor:
    """The lower Cholesky factor of A [... n n], without jitter; ``first_row`` only numbers the rows in the error.

    Raises:
        NotPositiveDefinite: A has no factor in its dtype.
    """
    return cholesky_and_log(A, first_row)[0]


def cholesky_and_log(
    A: Tensor, first_row: int = 0, less: float | Tensor = 0.0
) -> tuple[Tensor, float]:
    """The same, with the sum of the logarithms of its diagonal, half of ``ln det A`` of all matrices, ``less`` []."""
    info = None
    if A.shape[-1] == 1:  # without LAPACK
        L = A.sqrt()
        total = L.detach().log().sum()
    else:
        L, info = torch.linalg.cholesky_ex(A)
        total = L.detach().diagonal(dim1=-2, dim2=-1).log().sum() / (info == 0).all()
    log = float(total - less)
    if not math.isfinite(
        log
    ):  # one read: what is not finite in a row of L is not in its diagonal either
        raise _not_positive_definite(
            A, first_row + (1 if info is None else max(int(info.max()), 1))
        )
    return L, log


def _not_positive_definite(A: Tensor, row: int) -> NotPositiveDefinite:
    return NotPositiveDefinite(
        f"The kernel matrix plus ridge is not positive definite in {A.dtype} at row {row}: the ridge is below the "
        "rounding error of the kernel. Use a larger ridge (every bound stays valid for it; jitter would break "
        "them), or float64."
    )


class _Panel:
    """Rows ``start .. start + PANEL`` of a factor, and the inverse of their diagonal block."""

    def __init__(self, start: int, like: Tensor) -> None:
        self.start, self.n = start, 0
        self.rows = like.new_empty(PANEL, start + PANEL)
        self.rows[:, start:] = 0
        self.inverse = torch.eye(PANEL, dtype=like.dtype, device=like.device)

    def append(self, C: Tensor, L: Tensor) -> None:
        """Add rows ``[C' | L]`` of the factor, for C [start + n, r]."""
        a, b = self.n, self.n + len(L)
        self.rows[a:b, : self.start + a] = C.mT
        self.rows[a:b, self.start + a : self.start + b] = L
        identity = torch.eye(b - a, dtype=L.dtype, device=L.device)
        inverse = torch.linalg.solve_triangular(L, identity, upper=False)
        self.inverse[a:b, a:b] = inverse
        self.inverse[a:b, :a] = -inverse @ (C[self.start :].mT @ self.inverse[:a, :a])
        self.n = b

    def append_row(self, c: Tensor, pivot: float) -> None:
        """Add the row ``[c | pivot]``: the same in half of the operations."""
        a = self.n
        row = self.rows[a]
        row[: self.start + a] = c
        row[self.start + a] = pivot
        inverse = self.inverse[: a + 1, : a + 1]
        inverse[a].addmv_(
            inverse[:a].mT, c[self.start :], beta=1 / pivot, alpha=-1 / pivot
        )  # it was a row of I
        self.n = a + 1

    def fork(self) -> _Panel:
        copy = object.__new__(_Panel)
        copy.start, copy.n = self.start, self.n
        copy.rows = torch.empty_like(self.rows)
        copy.rows[: self.n] = self.rows[: self.n]  # memory that was never written is never touched
        copy.rows[self.n :, self.start :] = 0
        copy.inverse = self.inverse.clone()
        return copy


class GrowingCholesky(Stateful):
    """The lower Cholesky factor L of ``A + N``, N diagonal, that grows by rows and columns.

    Appending r rows to n costs O(n^2 r); the first n0 rows are never touched again, so results
    computed from them stay valid while the factor grows.

    Args:
        like: A tensor of the same dtype and device.

    Attributes:
        n: Number of rows.
        z: ``L^-1 y``, [n].
        log_det: ``ln det(A + N) - ln det N``.
    """

    def __init__(self, like: Tensor) -> None:
        self._like = like.new_empty(0)
        self._panels: list[_Panel] = []
        self._z = GrowingTensor(self._like)
        self.n: int = 0
        self.log_det: float = 0.0

    z: Tensor = passed_on("_z.value")

    def append(self, cross: Tensor, block: Tensor, noise: float | Tensor, y: Tensor) -> None:
        """Grow A to ``[[A, cross], [cross', block]]``.

        Args:
            cross: New columns against the old rows, [n r].
            block: New rows against themselves, [r r].
            noise: New diagonal of N, [r], or a number for all.
            y: New right-hand sides, [r].

        Raises:
            NotPositiveDefinite: The grown matrix has no Cholesky factor in this dtype.
        """
        if y.shape[0] == 1:
            self._append_row(cross, block, noise, y)
            return
        noise, done = noise if isinstance(noise, Tensor) else y.new_full(y.shape, noise), 0
        while done < len(y):
            panel = self._open_panel()
            new = slice(done, min(len(y), done + PANEL - panel.n))
            C = self._solve(
                torch.cat([cross[:, new], block[:done, new]]) if done else cross[:, new]
            )
            rest = block[new, new] - C.mT @ C
            rest.diagonal().add_(noise[new])
            L, half = cholesky_and_log(rest, self.n, noise[new].log().sum() / 2)
            panel.append(C, L)
            self._z.append(
                torch.linalg.solve_triangular(L, (y[new] - self.z @ C).unsqueeze(-1), upper=False)[
                    :, 0
                ]
            )
            self.n, self.log_det, done = self.n + len(L), self.log_det + 2 * half, new.stop

    def _append_row(self, cross: Tensor, block: Tensor, noise: float | Tensor, y: Tensor) -> None:
        c = self._solve(cross)[:, 0]
        read_too = (noise,) if isinstance(noise, Tensor) else ()
        diagonal, explained, target, fitted, *noises = read(block, c @ c, y, c @ self.z, *read_too)
        level = noises[0] if noises else noise
        square = diagonal + level - explained
        if not 0 < square < math.inf:
            raise _not_positive_definite(c, self.n + 1)
        self._open_panel().append_row(c, pivot := math.sqrt(square))
        self._z.grow(1)
        self.z[-1] = (target - fitted) / pivot
        self.n, self.log_det = self.n + 1, self.log_det + math.log(square / level)

    def _open_panel(self) -> _Panel:
        if not self._panels or self._panels[-1].n == PANEL:
            self._panels.append(_Panel(self.n, self._like))
        return self._panels[-1]

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
        for panel in self._panels[start // PANEL : -(-stop // PANEL)]:
            a, b = max(start, panel.start), min(stop, panel.start + PANEL)
            width = min(stop, panel.start + PANEL)
            full[a - start : b - start, :width] = panel.rows[
                a - panel.start : b - panel.start, :width
            ]
        return full[:, :start], full[:, start:]

    def _fork_with(self, memo: dict[int, Any]) -> Self:
        """Return a copy that may grow on its own; full panels are shared, O(PANEL n)."""
        twin = super()._fork_with(memo)
        if twin._panels and twin._panels[-1].n < PANEL:
            twin._panels[-1] = twin._panels[-1].fork()
        return twin

    def _solve(self, B: Tensor) -> Tensor:
        if B.ndim == 1:
            return self._solve(B.unsqueeze(-1)).squeeze(-1)
        n = B.shape[0]
        if 0 < n <= PANEL:
            return self._panels[0].inverse[:n, :n] @ B
        out = torch.empty_like(B, memory_format=torch.contiguous_format)
        for panel in self._panels[: -(-n // PANEL)]:
            a, b = panel.start, min(panel.start + PANEL, n)
            rest = torch.addmm(B[a:b], panel.rows[: b - a, :a], out[:a], alpha=-1) if a else B[a:b]
            torch.mm(panel.inverse[: b - a, : b - a], rest, out=out[a:b])
        return out

    def _solve_transposed(self, B: Tensor) -> Tensor:
        if B.ndim == 1:
            return self._solve_transposed(B.unsqueeze(-1)).squeeze(-1)
        n = B.shape[0]
        if 0 < n <= PANEL:
            return self._panels[0].inverse[:n, :n].mT @ B
        out = B.mT.clone(
            memory_format=torch.contiguous_format
        )  # panels are read as they lie: twice as fast
        for panel in reversed(self._panels[: -(-n // PANEL)]):
            a, b = panel.start, min(panel.start + PANEL, n)
            solved = out[:, a:b] @ panel.inverse[: b - a, : b - a]
            out[:, a:b] = solved
            out[:, :a].addmm_(solved, panel.rows[: b - a, :a], alpha=-1)
        return out.mT


class _Solve(torch.autograd.Function):
    """Triangular solve against a factor that is a constant of differentiation."""

    @staticmethod
    def forward(ctx, B: Tensor, factor: GrowingCholesky, transposed: bool) -> Tensor:
        ctx.factor, ctx.transposed = factor, transposed
        return factor._solve_transposed(B) if transposed else factor._solve(B)

    @staticmethod
    def backward(ctx, grad: Tensor):
        return _Solve.apply(grad, ctx.factor, not ctx.transposed), None, None
