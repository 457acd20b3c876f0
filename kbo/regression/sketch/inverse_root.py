"""The inverse of ``M = B B' + ridge I`` as a square root, and the variance of points by it.

The square root follows new columns and rows of B:

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

The variance is that of the deterministic training conditional (DTC). With features z = z(x) of the
dictionary and B = [z(x_1) .. z(x_n)]::

    variance(x) = k(x, x) - (B'z)'(B'B + ridge I)^-1 B'z                                        (1)
                = k(x, x) - |z|^2 + ridge z'M^-1 z                                              (2)

(Quinonero-Candela & Rasmussen 2005, Sec. 5; eq. 2 of BKB, Calandriello et al. 2019; Prop. 4.2 of
EK-UCB, Zenati et al. 2022). (1) is the variance of an exact posterior with the kernel matrix B'B
and the kernel column B'z, but with the true prior variance k(x, x). (2) follows from ``B (B'B +
ridge I)^-1 B' = I - ridge M^-1``. It is not an upper bound of the exact variance.

``dtc_variance`` is (2), for one ridge. ``across()`` computes (1), for every ridge, in the
eigenbasis of B'B, by the formula of the exact posterior (``SpectralRidges``). ``NystromAt.predict``
does the same for very many points. ``numerics.clamped`` then raises variances that rounding made
too small.
"""

from __future__ import annotations

import math
from typing import TypeVar

import torch
from torch import Tensor

from kbo._base.linalg import GrowingTensor, cholesky_and_log
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


Number = TypeVar("Number", float, Tensor)


def dtc_variance(residual: Number, form: Number, ridge: float) -> Number:
    """Return the variance of points, [...], in units of the kernel.

    Args:
        residual: ``k(x, x) - |z(x)|^2``, [...]: the variance that the dictionary does not explain.
        form: ``z(x)'M^-1 z(x)``, [...].
        ridge: The ridge.
    """
    return residual + ridge * form
