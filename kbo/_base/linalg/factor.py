"""A lower Cholesky factor and its inverse, which grow row by row and stay accurate.

A new column a with corner h adds the row ``[b', p]`` to L and ``[-c', 1] / p`` to its inverse,
where

    L b = a,    L'c = b,    p^2 = h - |b|^2.

Both systems are solved with L itself. Products with the existing inverse would be as cheap. But
every row would multiply the errors of earlier rows by up to 1/p, and after some dozens of nearly
dependent points no digit would be right.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kbo._base.linalg.buffers import GrowingTensor
from kbo._base.stateful import Stateful


class GrowingFactor(Stateful):
    """A lower triangular factor L, with its inverse, that grows by rows.

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
