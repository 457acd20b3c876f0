"""Upper bounds of the error of a sketched kernel matrix, without forming it.

E = K - B'B is positive semi-definite. Cut the observations into blocks in the order of arrival: the norm of a positive
semi-definite matrix is at most the sum of the norms of its diagonal blocks (``|E| = |V|^2`` for E = V'V, and
``|[V_1 V_2]|^2 <= |V_1|^2 + |V_2|^2``), so

    |E| <= sum over complete blocks of |E_bb| + Tr E over the rest.

Every norm on the right is computed in full, and everything is rounded up by an estimate of its rounding error, so that
the result is not below |E| (an estimate is no proof: see ``rounding``). Against the trace it gains a factor of about
the effective rank of the residual within a block. Norms are computed when they are needed. More anchors only make E
smaller, so norms that were computed before they came stay valid.
"""

from __future__ import annotations

import math
from typing import TypeVar

import torch
from torch import Tensor

from kbo._base.stateful import Stateful
from kbo.kernels import DenseKernel
from kbo.regression.sketch.features import Features
from kbo.regression.sketch.rows import Rows

BLOCK = 1024
"""Observations of a complete block: its norm costs BLOCK^3 once, so BLOCK^2 per observation."""

_EPS = torch.finfo(torch.float64).eps

_LEAST = 32
"""Observations of the smallest block whose norm is computed; fewer count with their trace."""


class ErrorNorm(Stateful):
    """A running upper bound of ``|K - B'B|`` over the entries of ``Rows.order``.

    Complete blocks have ``block`` observations, a power of two of at least 64, or are what is left of merged repeats;
    the entries after the last of them are cut into blocks of half that size, a quarter, .. 32, as their number is in
    binary.
    """

    saved: tuple[str, ...] = ("_block", "_complete", "_done", "_norms", "_merged")

    def __init__(self, block: int = BLOCK) -> None:
        self._block = block
        self.restart()

    def restart(self, merged: int = 0) -> None:
        """Begin with the first entry; the first ``merged`` ones have many repeats, and are a complete block if few."""
        self._complete, self._done, self._merged = 0.0, 0, merged
        self._norms: dict[tuple[int, int], float] = {}

    @torch.no_grad()
    def bound(self, k: DenseKernel, rows: Rows) -> float:
        """A number that is not below the operator norm of E."""
        while (size := self._next(len(rows.order))) > 0:
            self._complete += block_norm(k, rows, self._done, size)
            self._done += size
            self._norms = {}
        total, start, size = self._complete, self._done, self._block // 2
        while size >= _LEAST:
            if len(rows.order) - start >= size:
                if (start, size) not in self._norms:
                    self._norms[start, size] = block_norm(k, rows, start, size)
                total, start = total + self._norms[start, size], start + size
            size //= 2
        if start == len(rows.order):
            return total
        which, weights = rows.order[start:], rows.residual.new_tensor(rows.weights[start:])
        rounding_error = rounding(rows.m, rows.prior[which], rows.spread[which])
        return total + float(weights @ (rows.residual[which] + rounding_error))

    def _next(self, entries: int) -> int:
        """Return the size of the next complete block; 0 if there is none."""
        if self._done < self._merged:
            return min(self._block, self._merged - self._done)
        return self._block if entries - self._done >= self._block else 0


Number = TypeVar("Number", float, Tensor)


def rounding(m: int, prior: Number, spread: Number) -> Number:
    """Expected amount by which rounding has lowered the residual of a point with these numbers, under m anchors.

    An estimate of the usual size, not a worst case. The factor of the dictionary is that of ``k(Z, Z) + delta``, delta
    an error of the size of rounding, whose norm is about ``sqrt(m) eps k``. So ``|z(x)|^2`` is off by ``c'delta c``,
    where c are the coefficients of x, and ``|c| <= sum_j |z_j| |row j of L^-1|``, the ``spread``. The first term is the
    rounding of ``|z|^2`` itself.
    """
    return _EPS * (4 * m + math.sqrt(m) * prior * spread * spread) * prior


def stretching(features: Features, k: DenseKernel) -> float:
    """Expected factor, less one, by which rounding in the dictionary stretches squared norms of functions.

    With the error delta of ``rounding``, features are those of ``k(Z, Z) + delta``, and the function with coefficients
    w in them has a squared norm of ``|w|^2 - w'L^-1 delta L^-T w``. Of usual size, as there.
    """
    size = k.diagonal(features.anchors).sum() if features.m else 0.0
    return float(_EPS / math.sqrt(max(features.m, 1)) * size * features.row_norms.square().sum())


def block_norm(k: DenseKernel, rows: Rows, start: int, size: int) -> float:
    """An upper bound of the operator norm of E over a block of observations, rounded up."""
    block = slice(start, start + size)
    root = rows.residual.new_tensor(rows.weights[block]).sqrt()
    which = rows.order[block]
    X, features = rows.X[which], root.unsqueeze(-1) * rows.features_of(which)
    K = root.unsqueeze(-1) * k(X, X) * root
    largest = torch.linalg.eigvalsh(K - features @ features.mT)[-1].clamp_min(0)
    largest = largest + 4 * torch.finfo(K.dtype).eps * size * K.diagonal().max()
    rounding_error = rounding(features.shape[1], rows.prior[which], rows.spread[which])
    return float(largest + root.square() @ rounding_error)
