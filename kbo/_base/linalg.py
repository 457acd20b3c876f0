"""Linear algebra of growing matrices; all checks of positive definiteness are here.

On paper                                  | in code
``A = L L'``                              | ``cholesky``
``A = L L'``, A grows by rows and columns | ``GrowingCholesky``
``L^{-1} B``                              | ``GrowingCholesky.solve``
``L^{-T} B``                              | ``GrowingCholesky.solve_transposed``

The growing factor is kept in panels of ``panel_rows`` rows. A panel has the rectangle left of the
diagonal block, the diagonal block, and the inverse of the diagonal block. New rows are written into
the last panel or open a new one. So existing rows are never copied, half of the square is never
allocated, a solve takes a few matrix products, and a fork shares every full panel with the
original.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor

from kbo._base.devices import read
from kbo._base.stateful import Stateful
from kbo.errors import NotPositiveDefinite

_EXTRA = 14
"""Extra length of a grown axis, because columns a power of two apart would share cache lines."""

_PANEL = 128
"""Rows of a panel on the CPU: enough that matrix products dominate, few enough for stable inverses."""

_PANEL_ELSEWHERE = 512
"""Rows of a panel on other devices, where the time of a solve depends on the number of products."""


class GrowingTensor(Stateful):
    """A tensor that grows along its leading axes.

    Args:
        like: The tensor to begin with; copied.

    Attributes:
        value: The tensor so far, to read and to write: a view of a larger buffer. Rows that are
            appended later never change an earlier view.
    """

    def __init__(self, like: Tensor) -> None:
        self._buffer = like.clone()
        self.value: Tensor = self._buffer

    @property
    def n(self) -> int:
        """Length of the first axis."""
        return self.value.shape[0]

    def append(self, rows: Tensor) -> None:
        """Add rows [r ...] at the end of the first axis."""
        start = self.n
        self._resize(start + len(rows), *self.value.shape[1:])
        self.value[start:] = rows

    def grow(self, *by: int) -> None:
        """Enlarge the leading axes by these numbers of zeros."""
        old = self.value.shape
        new = list(old)
        for axis, length in enumerate(by):
            new[axis] += length
        self._resize(*new)
        for axis, length in enumerate(by):
            self.value.narrow(axis, old[axis], length).zero_()

    def _resize(self, *shape: int) -> None:
        """Enlarge the value, in a larger buffer if there is no room; new entries are not set."""
        old = self.value.shape
        capacity = self._buffer.shape
        if any(map(operator.gt, shape, capacity)):
            larger_capacity = list(capacity)
            for axis, length in enumerate(shape):
                if length > capacity[axis]:
                    larger_capacity[axis] = max(length, 2 * old[axis] + _EXTRA)
            larger = self._buffer.new_empty(larger_capacity)
            larger[_corner(old)] = self.value
            self._buffer = larger
        self.value = self._buffer[_corner(shape)]

    def _fork_with(self, forks: dict[int, Any]) -> Self:
        """Return a copy with the same memory layout, which determines the last bits of products."""
        fork = object.__new__(type(self))
        fork._buffer = self._buffer.new_empty_strided(self._buffer.shape, self._buffer.stride())
        fork.value = fork._buffer[_corner(self.value.shape)]
        fork.value.copy_(self.value)
        return fork

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make the value a view of the buffer again, after ``pickle`` has copied both."""
        vars(self).update(state)
        self.value = self._buffer[_corner(self.value.shape)]


def _corner(shape: Sequence[int]) -> tuple[slice, ...]:
    """Return the index of the leading block of a tensor with this shape."""
    return tuple(map(slice, shape))


def panel_rows(device: torch.device) -> int:
    """Return the number of rows of a panel on a device."""
    if device.type == "cpu":
        return _PANEL
    return _PANEL_ELSEWHERE


def safe_sqrt(x: Tensor) -> Tensor:
    """Return the square root of ``x >= 0``, with gradient zero instead of infinity at zero."""
    if not x.requires_grad:
        return x.clamp_min(0).sqrt()
    zero = x <= 0
    return x.masked_fill(zero, 1).sqrt().masked_fill(zero, 0)


def ill_conditioned_ratio(dtype: torch.dtype) -> float:
    """Return the ridge, relative to ``k(x, x)``, below which log-determinants lose their digits."""
    return 1e-10 if dtype == torch.float64 else 1e-4


def cholesky(A: Tensor, first_row: int = 0) -> Tensor:
    """Return the lower Cholesky factor of A [... n n], without jitter.

    Args:
        A: Symmetric matrices.
        first_row: Number of the first row in the error message.

    Raises:
        NotPositiveDefinite: A has no factor in its dtype.
    """
    return cholesky_and_log(A, first_row)[0]


def cholesky_and_log(
    A: Tensor, first_row: int = 0, offset: float | Tensor = 0.0
) -> tuple[Tensor, float]:
    """Return the factor L, and the sum of ``ln L_ii`` (half of ``ln det A``) minus ``offset``.

    The sum is over all matrices of a batch. Other arguments and errors are those of ``cholesky``.
    """
    if A.shape[-1] == 1:  # without LAPACK
        L = A.sqrt()
        sum_of_logs = L.detach().log().sum()
    else:
        L, failed_row = torch.linalg.cholesky_ex(A)
        logs = L.detach().diagonal(dim1=-2, dim2=-1).log()
        sum_of_logs = logs.sum().masked_fill((failed_row != 0).any(), math.nan)
    # Only one number is read from the device, so a failure is shown by NaN in it. A row of L that is
    # not finite has a diagonal entry that is not finite.
    half_log_det = float(sum_of_logs - offset)
    if not math.isfinite(half_log_det):
        # On the CPU, because other devices name a later row if an entry is infinite.
        failed_row = torch.linalg.cholesky_ex(A.detach().cpu())[1]
        raise _not_positive_definite(A, first_row + max(int(failed_row.max()), 1))
    return L, half_log_det


def _not_positive_definite(like: Tensor, row: int) -> NotPositiveDefinite:
    """Return the error for a matrix, of the dtype of ``like``, whose factorisation fails at a row."""
    return NotPositiveDefinite(
        f"The kernel matrix plus ridge is not positive definite in {like.dtype} at row {row}: the "
        "ridge is below the rounding error of the kernel, or the function is no kernel. If it is one, "
        "use a larger ridge (bounds stay valid for it; jitter would break them), or float64."
    )


class _Panel:
    """Rows ``start .. start + n`` of a factor, and the inverse of their diagonal block.

    Attributes:
        rows: [size, start + size]; the first n rows are set.
        inverse: [size, size]; the identity beyond the first n rows.
    """

    def __init__(self, start: int, size: int, like: Tensor) -> None:
        self.start: int = start
        self.n: int = 0
        self.rows: Tensor = like.new_empty(size, start + size)
        self.rows[:, start:] = 0
        self.inverse: Tensor = torch.eye(size, dtype=like.dtype, device=like.device)

    def append(self, C: Tensor, L: Tensor) -> None:
        """Add the rows ``[C' | L]`` of the factor, C [start + n, r] and L [r r]."""
        old = self.n
        new = old + len(L)
        self.rows[old:new, : self.start + old] = C.mT
        self.rows[old:new, self.start + old : self.start + new] = L
        identity = torch.eye(len(L), dtype=L.dtype, device=L.device)
        inverse = torch.linalg.solve_triangular(L, identity, upper=False)
        self.inverse[old:new, old:new] = inverse
        self.inverse[old:new, :old] = -inverse @ (C[self.start :].mT @ self.inverse[:old, :old])
        self.n = new

    def append_row(self, c: Tensor, pivot: float) -> None:
        """Add the row ``[c' | pivot]``, c [start + n], with half of the operations of ``append``."""
        old = self.n
        row = self.rows[old]
        row[: self.start + old] = c
        row[self.start + old] = pivot
        inverse = self.inverse[: old + 1, : old + 1]
        # The new row of the inverse was a row of the identity before.
        inverse[old].addmv_(inverse[:old].mT, c[self.start :], beta=1 / pivot, alpha=-1 / pivot)
        self.n = old + 1

    def fork(self) -> _Panel:
        """Return a copy of the written rows; the rest of the memory is not read."""
        fork = object.__new__(_Panel)
        fork.start = self.start
        fork.n = self.n
        fork.rows = torch.empty_like(self.rows)
        fork.rows[: self.n] = self.rows[: self.n]
        fork.rows[self.n :, self.start :] = 0
        fork.inverse = self.inverse.clone()
        return fork


class GrowingCholesky(Stateful):
    """The lower Cholesky factor L of ``A + N``, N diagonal, that grows by rows and columns.

    Appending r rows to n costs O(n^2 r). Rows never change afterwards, so results from the first n
    rows stay valid while the factor grows.

    Args:
        like: A tensor of the dtype and device of A.

    Attributes:
        n: Number of rows.
        log_det: ``ln det(A + N) - ln det N``.
    """

    def __init__(self, like: Tensor) -> None:
        self._like = like.new_empty(0)
        self._size = panel_rows(like.device)
        self._panels: list[_Panel] = []
        self._z = GrowingTensor(self._like)
        self.n: int = 0
        self.log_det: float = 0.0

    @property
    def z(self) -> Tensor:
        """``L^-1 y``, [n], to read and to write."""
        return self._z.value

    def append(self, cross: Tensor, block: Tensor, noise: Tensor, y: Tensor) -> None:
        """Grow A to ``[[A, cross], [cross', block]]``.

        Args:
            cross: New columns against the old rows, [n r].
            block: New rows against themselves, [r r]; [1] for one row.
            noise: New diagonal of N, [r].
            y: New right-hand sides, [r].

        Raises:
            NotPositiveDefinite: The grown matrix has no Cholesky factor in this dtype.
        """
        r = len(y)
        if r == 1:
            self._append_row(cross, block, noise, y)
            return
        start = 0
        while start < r:
            room = self._size - self._open_panel().n
            stop = min(r, start + room)
            new = slice(start, stop)
            above = torch.cat([cross[:, new], block[:start, new]])
            self._append_to_panel(above, block[new, new], noise[new], y[new])
            start = stop

    def _append_to_panel(self, cross: Tensor, block: Tensor, noise: Tensor, y: Tensor) -> None:
        """Append rows that have room in the open panel."""
        C = self._solve(cross)
        schur = block - C.mT @ C
        schur.diagonal().add_(noise)
        L, half_log_det = cholesky_and_log(schur, self.n, noise.log().sum() / 2)
        residual = (y - self.z @ C).unsqueeze(-1)
        self._open_panel().append(C, L)
        self._z.append(torch.linalg.solve_triangular(L, residual, upper=False).squeeze(-1))
        self.n += len(L)
        self.log_det += 2 * half_log_det

    def _append_row(self, cross: Tensor, block: Tensor, noise: Tensor, y: Tensor) -> None:
        """Append one row, by plain numbers: ``l = L^-1 cross``, ``pivot^2 = block + noise - |l|^2``."""
        row = self._solve(cross)[:, 0]
        diagonal, explained, target, fitted, ridge = read(block, row @ row, y, row @ self.z, noise)
        square = diagonal + ridge - explained
        if not 0 < square < math.inf:
            raise _not_positive_definite(row, self.n + 1)
        pivot = math.sqrt(square)
        self._open_panel().append_row(row, pivot)
        self._z.grow(1)
        self.z[-1] = (target - fitted) / pivot
        self.n += 1
        self.log_det += math.log(square / ridge)

    def _open_panel(self) -> _Panel:
        """Return the last panel, or a new one if it is full."""
        if not self._panels or self._panels[-1].n == self._size:
            self._panels.append(_Panel(self.n, self._size, self._like))
        return self._panels[-1]

    def solve(self, B: Tensor) -> Tensor:
        """Return ``L^{-1} B`` for B [n] or [n q]; differentiable in B.

        If B has fewer rows, the leading block of L is used.
        """
        if not B.requires_grad:
            return self._solve(B)
        return _Solve.apply(B, self, False)  # pyright: ignore[reportReturnType]

    def solve_transposed(self, B: Tensor) -> Tensor:
        """Return ``L^{-T} B`` for B [n] or [n q]; differentiable in B."""
        return _Solve.apply(B, self, True)  # pyright: ignore[reportReturnType]

    def rows(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Return ``L[start:stop, :start]`` and ``L[start:stop, start:stop]``."""
        rows = self._like.new_zeros(stop - start, stop)
        for panel in self._panels[start // self._size : -(-stop // self._size)]:
            panel_start = max(start, panel.start)
            panel_stop = min(stop, panel.start + self._size)
            of_panel = panel.rows[panel_start - panel.start : panel_stop - panel.start, :panel_stop]
            rows[panel_start - start : panel_stop - start, :panel_stop] = of_panel
        return rows[:, :start], rows[:, start:]

    def _fork_with(self, forks: dict[int, Any]) -> Self:
        """Return a copy that can grow separately, in O(n panel_rows); full panels are shared."""
        fork = super()._fork_with(forks)
        if fork._panels and fork._panels[-1].n < self._size:
            fork._panels[-1] = fork._panels[-1].fork()
        return fork

    def _solve(self, B: Tensor) -> Tensor:
        """Return ``L^{-1} B`` for B [n] or [n q], panel by panel from the first one."""
        if B.ndim == 1:
            return self._solve(B.unsqueeze(-1)).squeeze(-1)
        n = B.shape[0]
        if 0 < n <= self._size:
            return self._panels[0].inverse[:n, :n] @ B
        solution = torch.empty_like(B, memory_format=torch.contiguous_format)
        for panel in self._panels[: -(-n // self._size)]:
            start = panel.start
            stop = min(start + self._size, n)
            r = stop - start
            rest = B[start:stop]
            if start:
                rest = torch.addmm(rest, panel.rows[:r, :start], solution[:start], alpha=-1)
            torch.mm(panel.inverse[:r, :r], rest, out=solution[start:stop])
        return solution

    def _solve_transposed(self, B: Tensor) -> Tensor:
        """Return ``L^{-T} B`` for B [n] or [n q], panel by panel from the last one."""
        if B.ndim == 1:
            return self._solve_transposed(B.unsqueeze(-1)).squeeze(-1)
        n = B.shape[0]
        if 0 < n <= self._size:
            return self._panels[0].inverse[:n, :n].mT @ B
        # Computing the transposed solution reads panels in memory order, which is twice as fast.
        solution = B.mT.clone(memory_format=torch.contiguous_format)
        for panel in reversed(self._panels[: -(-n // self._size)]):
            start = panel.start
            stop = min(start + self._size, n)
            r = stop - start
            solved = solution[:, start:stop] @ panel.inverse[:r, :r]
            solution[:, start:stop] = solved
            solution[:, :start].addmm_(solved, panel.rows[:r, :start], alpha=-1)
        return solution.mT


class _Solve(torch.autograd.Function):
    """A triangular solve, differentiable in the right-hand side but not in the factor."""

    @staticmethod
    def forward(ctx, B: Tensor, factor: GrowingCholesky, transposed: bool) -> Tensor:
        ctx.factor = factor
        ctx.transposed = transposed
        return factor._solve_transposed(B) if transposed else factor._solve(B)

    @staticmethod
    def backward(ctx, grad: Tensor):
        return _Solve.apply(grad, ctx.factor, not ctx.transposed), None, None


class GrowingFactor(Stateful):
    """A lower Cholesky factor L and its inverse, which grow row by row and stay accurate.

    A new column a with corner h adds the row ``[b', p]`` to L and ``[-c', 1] / p`` to its inverse,
    where

        L b = a,    L'c = b,    p^2 = h - |b|^2.

    Both systems are solved with L itself. Products with the existing inverse would be as cheap. But
    every row would multiply the errors of earlier rows by up to 1/p, and after some dozens of nearly
    dependent points no digit would be right.

    Args:
        L: The factor to begin with, [m m].
    """

    def __init__(self, L: Tensor) -> None:
        identity = torch.eye(len(L), dtype=L.dtype, device=L.device)
        inverse = torch.linalg.solve_triangular(L, identity, upper=False)
        # Storing L' by rows stores L by columns. Solving with L stored by rows would copy it.
        self._transposed = GrowingTensor(L.mT.contiguous())
        self._inverse = GrowingTensor(inverse.contiguous())

    @property
    def L(self) -> Tensor:
        """The factor, [m m]."""
        return self._transposed.value.mT

    @property
    def inverse(self) -> Tensor:
        """``L^-1``, [m m], for products with many right-hand sides."""
        return self._inverse.value

    def solve(self, B: Tensor) -> Tensor:
        """Return ``L^-1 B`` for B [m q]."""
        return torch.linalg.solve_triangular(self.L, B, upper=False)

    def coefficients(self, b: Tensor) -> Tensor:
        """Return ``c = L'^-1 b`` for b [m]: the combination of rows that is nearest to the new row."""
        return torch.linalg.solve_triangular(self.L.mT, b.unsqueeze(-1), upper=True).squeeze(-1)

    def append(self, b: Tensor, c: Tensor, pivot: float) -> None:
        """Add the row ``[b', pivot]`` to L, given ``L'c = b``."""
        m = len(b)
        self._transposed.grow(1, 1)
        self._transposed.value[:m, m] = b
        self._transposed.value[m, m] = pivot
        self._inverse.grow(1, 1)
        self._inverse.value[m, :m] = c / -pivot
        self._inverse.value[m, m] = 1 / pivot
