"""The inverse of ``M = B B' + ridge I`` as a square root that follows new columns and rows of B.

    S S' = M^-1.

On paper                                              | in code
a column b is added to B: ``M <- M + b b'``           | ``InverseRoot.add``
``S <- S - u v' / (a + sqrt(a))``                     |
with ``v = S'b``, ``a = 1 + |v|^2``, ``u = S v``      |
``z'M^-1 z <- z'M^-1 z - (u'z)^2 / a``                | ``events``
a row is added to B, M grows by a border (g, h)       | ``InverseRoot.border``
S gains the column ``s = (-M^-1 g, 1) / q``           |
with ``q^2 = h - g'M^-1 g``                           |
``z'M^-1 z <- z'M^-1 z + (s'z)^2``                    | ``events``

The first is Potter's form of the rank-one update (Bierman 1977). The square root keeps twice the
digits of an updated inverse, and quadratic forms stay sums of squares. Both updates cost O(m^2).
After ``REFRESH`` columns S must be computed again from ``B B'``, so that rounding errors do not add
up.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kbo._base.linalg import GrowingTensor
from kbo._base.linalg.cholesky import cholesky_and_log
from kbo._base.stateful import Stateful, fresh_version

REFRESH = 512
"""Columns after which S is computed again from ``B B'``."""


class InverseRoot(Stateful):
    """S with ``S S' = (G + ridge I)^-1``, and ``ln det(I + G / ridge)``.

    Args:
        G: ``B B'``, [m m].
        ridge: The ridge.

    Attributes:
        log_det: ``ln det(I + G / ridge)``.
        columns: Number of columns that were added since S was computed from G.
        events: Changes since S was computed from G, as factors f and vectors u. Each changes
            quadratic forms, ``z'M^-1 z <- z'M^-1 z + f (u'z)^2``.
        generation: A version that changes whenever S is computed from G.
    """

    def __init__(self, G: Tensor, ridge: float) -> None:
        self.ridge = ridge
        self.refresh(G)

    @property
    def S(self) -> Tensor:
        """The square root, [m m], to read and to write."""
        return self._S.value

    def refresh(self, G: Tensor) -> None:
        """Compute S from G [m m], O(m^3)."""
        m = len(G)
        identity = torch.eye(m, dtype=G.dtype, device=G.device)
        L = identity
        log_of_diagonal = 0.0
        if m:
            L, log_of_diagonal = cholesky_and_log(G + self.ridge * identity)
        inverse = torch.linalg.solve_triangular(L, identity, upper=False)
        # S is stored by columns, which makes products with S' from the left a third faster.
        self._S = GrowingTensor(inverse.contiguous().mT)
        self.log_det: float = 2 * log_of_diagonal - m * math.log(self.ridge)
        self.events: list[tuple[float, Tensor]] = []
        self.columns: int = 0
        self.generation: int = fresh_version()

    def add(self, v: Tensor, square: float) -> None:
        """Add a column b to B, given ``v = S'b`` [m] and ``|v|^2``."""
        a = 1 + square
        u = self.S @ v
        self.S.addr_(u, v, alpha=-1 / (a + math.sqrt(a)))
        self.log_det += math.log(a)
        self.events.append((-1 / a, u))
        self.columns += 1

    def border(self, G: Tensor) -> None:
        """Add a row to B, given the new G [m + 1, m + 1]."""
        m = len(G) - 1
        g = G[-1, :-1]
        solved = self.S @ (g @ self.S)  # M^-1 g
        q_square = float(G[-1, -1] - g @ solved) + self.ridge
        if q_square < 0.5 * self.ridge:  # a rounding error: exactly it is at least the ridge
            self.refresh(G)
            return
        q = math.sqrt(q_square)
        self._S.grow(1, 1)
        self.S[:m, m] = solved / -q
        self.S[m, m] = 1 / q
        self.log_det += math.log(q_square / self.ridge)
        self.events.append((1, self.S[:, m].clone()))
