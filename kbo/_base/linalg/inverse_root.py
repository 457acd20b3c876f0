"""The inverse of ``M = B B' + ridge I`` as a square root that follows new columns and new rows of B.

    S S' = M^-1.

On paper                                              | in code
a column b is added to B: ``M <- M + b b'``           | ``add``: ``S <- S - u v' / (a + sqrt(a))``
with ``v = S'b``, ``a = 1 + |v|^2``, ``u = S v``; so ``z'M^-1 z <- z'M^-1 z - (u'z)^2 / a``
a row is added to B, M grows by a border (g, h)       | ``border``: S gains the column ``s``
with ``q^2 = h - g'M^-1 g``, ``s = (-M^-1 g, 1) / q``; so ``z'M^-1 z <- z'M^-1 z + (s'z)^2``

The first is Potter's form of the rank-one update (Bierman 1977): the square root keeps twice the digits of an
updated inverse, and quadratic forms stay sums of squares. Both cost O(m^2). At the latest with the column of number
``REFRESH`` S needs to be computed again from G, so that rounding does not pile up.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kbo._base.linalg.buffers import GrowingTensor
from kbo._base.linalg.cholesky import cholesky_and_log
from kbo._base.stateful import Stateful, fresh_version, passed_on

REFRESH = 512
"""Columns after which S is computed again from G."""


class InverseRoot(Stateful):
    """S with ``S S' = (G + ridge I)^-1``, and ``ln det(I + G / ridge)``.

    Args:
        G: ``B B'``, [m m].
        ridge: The ridge.

    Attributes:
        log_det: ``ln det(I + G / ridge)``.
        events: What happened since S was last computed from G: factors f and vectors u by which quadratic forms
            followed, ``z'M^-1 z <- z'M^-1 z + f (u'z)^2``.
        generation: A version that changes whenever S is computed from G.
    """

    saved: tuple[str, ...] = ("_S", "log_det", "columns")

    def __init__(self, G: Tensor, ridge: float) -> None:
        self.ridge = ridge
        self.refresh(G)

    def refresh(self, G: Tensor) -> None:
        """Compute S from G [m m]."""
        m = len(G)
        identity = torch.eye(m, dtype=G.dtype, device=G.device)
        L, log = cholesky_and_log(G + self.ridge * identity) if m else (identity, 0.0)
        # By columns: products with S' from the left, those of predictions, are a third faster.
        self._S = GrowingTensor(
            torch.linalg.solve_triangular(L, identity, upper=False).contiguous().mT
        )
        self.log_det: float = 2 * log - m * math.log(self.ridge)
        self.events: list[tuple[float, Tensor]] = []
        self.columns: int = 0
        self.generation: int = fresh_version()

    S: Tensor = passed_on("_S.value")

    def add(self, v: Tensor, square: float) -> None:
        """Take in a column b of B, given ``v = S'b`` [m] and ``|v|^2``."""
        self.columns += 1
        a = 1 + square
        Sv = self.S @ v
        self.S.addr_(Sv, v, alpha=-1 / (a + math.sqrt(a)))
        self.log_det += math.log(a)
        self.events.append((-1 / a, Sv))

    def border(self, G: Tensor) -> None:
        """Take in a row of B: M grows by the last row of G [m + 1, m + 1]."""
        g = G[-1, :-1]
        s = self.S @ (g @ self.S)
        q2 = float(G[-1, -1] - g @ s) + self.ridge
        if q2 < 0.5 * self.ridge:  # at least the ridge but for rounding
            self.refresh(G)
            return
        m, q = len(g), math.sqrt(q2)
        self._S.grow(1, 1)
        self.S[:m, m] = s / -q
        self.S[m, m] = 1 / q
        self.log_det += math.log(q2 / self.ridge)
        self.events.append((1, self.S[:, m].clone()))

    def _restored(self) -> None:
        self.events = []
        self.generation = fresh_version()
