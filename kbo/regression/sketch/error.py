"""Upper bounds of the error of a sketched kernel matrix, ``E = K - B'B >= 0``, without forming it.

On paper                                                 | in code
``Tr E = sum_i w_i (k(x_i, x_i) - |z(x_i)|^2)``          | ``NystromError.trace``
``ln det(I + E / a) <= sum_i ln(1 + E_ii / a)``, Hadamard | ``NystromError.log_det``
``|E|``, below                                           | ``ErrorNorm.bound``
rounding of the residuals and of the features            | ``rounding``, ``stretching``

The norm: cut the observations into blocks in the order of arrival. The norm of a positive
semi-definite matrix is at most the sum of the norms of its diagonal blocks (``|E| = |V|^2`` for
E = V'V, and ``|[V_1 V_2]|^2 <= |V_1|^2 + |V_2|^2``), so

    |E| <= sum over complete blocks of |E_bb| + Tr E over the rest.

Every norm on the right is computed in full and rounded up by an estimate of its rounding error. The
result is an upper bound of |E| if this estimate is right (``rounding``). It is smaller than the
trace by a factor of about the effective rank of E within a block. Norms are computed when they are
needed. More inducing points only make E smaller, so earlier norms stay valid.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import torch
from torch import Tensor

from kbo._base.linalg import ill_conditioned_ratio
from kbo._base.stateful import Stateful, delegated_to
from kbo.kernels import DenseKernel
from kbo.regression.error import Error, Rounding
from kbo.regression.numerics import keep_latest
from kbo.regression.sketch.features import Features
from kbo.regression.sketch.rows import Rows

BLOCK = 1024
"""Observations in a complete block. Its norm costs BLOCK^3 once, so BLOCK^2 per observation."""

SMALL_BLOCK = 64
"""Observations in a block of a dictionary that is drawn again, which makes all norms invalid."""

_LEAST = 32
"""Observations in the smallest block whose norm is computed; fewer enter by their trace."""

_MOST_RIDGES = 32
"""Number of ridges whose log-determinant of E is kept."""

_EPS = torch.finfo(torch.float64).eps

_ROUNDING_OF_QUAD = 1e-13
"""Upper bound of the relative rounding error of ``y'y``."""

Number = TypeVar("Number", float, Tensor)


class NystromError(Error):
    """The errors of a ``NystromRidge``, by its dictionary and by rounding."""

    sketch: Any = delegated_to("state.sketch")
    of_coordinates: float = delegated_to("state.sketch.kernel_error")

    @property
    def trace(self) -> float:
        """``Tr E``, rounded up by its rounding error."""
        return self.sketch.residual_sums.trace(self.sketch.rows)

    def norm(self) -> float:
        if self.sketch.n == 0:
            return 0.0
        return min(self.sketch.error_norm.bound(self.sketch.k, self.sketch.rows), self.trace)

    def log_det(self, ridge: float) -> float:
        return self.sketch.residual_sums.log_det(self.sketch.rows, ridge)

    @property
    def least_ridge(self) -> float:
        return ill_conditioned_ratio(torch.float64) * (self.sketch.kappa or 1.0)

    @property
    def of_quad(self) -> float:
        return _ROUNDING_OF_QUAD * self.sketch.yy

    @property
    def terms(self) -> int:
        """The number of inducing points plus the root of n, as rounding errors partly cancel."""
        return self.sketch.m + math.isqrt(self.sketch.n)

    @property
    def rounding(self) -> Rounding:
        """The rounding error of the algebra, and of norms and features by the dictionary."""
        sketch = self.sketch
        algebra = super().rounding
        of_features = sketch.residual_sums.rounding(sketch.rows)
        return Rounding(
            algebra.flat + stretching(sketch.features, sketch.k), algebra.steep + of_features
        )


class ResidualSums(Stateful):
    """Sums over the diagonal of E, rounded up, to which new observations are added.

    The residuals of earlier observations stay the same while the inducing points do. So a sum costs
    O(r) for r observations since the last call, for any n.
    """

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Begin again, after the residuals or the order of the observations have changed."""
        self._n_added = 0  # entries of Rows.order that are in the sums
        self._trace = 0.0
        self._rounding = 0.0
        self._log_dets: dict[float, float] = {}  # by the ridge

    def trace(self, rows: Rows) -> float:
        """Return ``Tr E``, rounded up."""
        self._add_observations(rows)
        return self._trace

    def rounding(self, rows: Rows) -> float:
        """Return the sum of the rounding errors of the residuals."""
        self._add_observations(rows)
        return self._rounding

    def log_det(self, rows: Rows, ridge: float) -> float:
        """Return ``sum_i ln(1 + E_ii / ridge)`` over distinct locations i, rounded up."""
        self._add_observations(rows)
        if ridge not in self._log_dets:
            rounding_of_residual = rounding(rows.m, rows.prior, rows.spread)
            diagonal = rows.counts * (rows.residual + rounding_of_residual)
            log_det = float((diagonal / ridge).log1p().sum())
            keep_latest(self._log_dets, ridge, log_det, _MOST_RIDGES)
        return self._log_dets[ridge]

    @torch.no_grad()
    def _add_observations(self, rows: Rows) -> None:
        """Add the observations since the last time to all sums."""
        if self._n_added == len(rows.order):
            return
        if self._n_added == 0:
            changed_rows = slice(None)
            added = rows.counts  # weight that the observations add to each of these rows
        else:
            entries = torch.tensor(rows.order[self._n_added :], device=rows.residual.device)
            changed_rows, position = torch.unique(entries, return_inverse=True)
            weights = rows.residual.new_tensor(rows.weights[self._n_added :])
            added = weights.new_zeros(len(changed_rows)).index_add_(0, position, weights)
        rounding_of_residual = rounding(rows.m, rows.prior[changed_rows], rows.spread[changed_rows])
        residual = rows.residual[changed_rows] + rounding_of_residual
        after = rows.counts[changed_rows]
        before = after - added
        sums = [(added * residual).sum(), (added * rounding_of_residual).sum()]
        for ridge in self._log_dets:
            gain = (after * residual / ridge).log1p() - (before * residual / ridge).log1p()
            sums.append(gain.sum())
        trace, rounding_of_trace, *gains = torch.stack(sums).tolist()
        self._trace += trace
        self._rounding += rounding_of_trace
        for ridge, gain in zip(list(self._log_dets), gains, strict=True):
            self._log_dets[ridge] += gain
        self._n_added = len(rows.order)


class ErrorNorm(Stateful):
    """A running upper bound of the operator norm of E, over the entries of ``Rows.order``.

    A complete block has ``block`` entries, a power of two of at least 64. Later entries are cut into
    blocks of half that size, a quarter, ..., 32, by the binary digits of their number.
    """

    def __init__(self, block: int = BLOCK) -> None:
        self._block = block
        self.restart()

    def restart(self) -> None:
        """Begin again at the first entry."""
        self._norm_of_blocks = 0.0  # sum over complete blocks
        self._n_in_blocks = 0  # entries in complete blocks
        self._norms: dict[tuple[int, int], float] = {}  # of smaller blocks, by start and size

    @torch.no_grad()
    def bound(self, k: DenseKernel, rows: Rows) -> float:
        """Return an upper bound of the operator norm of E, rounded up by an estimate."""
        entries = len(rows.order)
        while entries - self._n_in_blocks >= self._block:
            self._norm_of_blocks += block_norm(k, rows, self._n_in_blocks, self._block)
            self._n_in_blocks += self._block
            self._norms = {}
        total = self._norm_of_blocks
        start = self._n_in_blocks
        size = self._block // 2
        while size >= _LEAST:
            if entries - start >= size:
                if (start, size) not in self._norms:
                    self._norms[start, size] = block_norm(k, rows, start, size)
                total += self._norms[start, size]
                start += size
            size //= 2
        if start == entries:
            return total
        remaining = rows.order[start:]
        weights = rows.residual.new_tensor(rows.weights[start:])
        rounding_of_residual = rounding(rows.m, rows.prior[remaining], rows.spread[remaining])
        return total + float(weights @ (rows.residual[remaining] + rounding_of_residual))


def block_norm(k: DenseKernel, rows: Rows, start: int, size: int) -> float:
    """Return an upper bound of the operator norm of E over a block, rounded up by an estimate."""
    block = slice(start, start + size)
    row_numbers = rows.order[block]
    weights = rows.residual.new_tensor(rows.weights[block])
    scale = weights.sqrt().unsqueeze(-1)
    X = rows.X[row_numbers]
    B = scale * rows.features_of(row_numbers)  # [size m]
    K = scale * k(X, X) * scale.mT
    largest = torch.linalg.eigvalsh(K - B @ B.mT)[-1].clamp_min(0)
    of_eigenvalue = 4 * _EPS * size * K.diagonal().max()
    of_residuals = weights @ rounding(rows.m, rows.prior[row_numbers], rows.spread[row_numbers])
    return float(largest + of_eigenvalue + of_residuals)


def rounding(m: int, prior: Number, spread: Number) -> Number:
    """Return the expected amount by which rounding lowers the residual of a point.

    It is an estimate of the usual size, not a worst case. The computed Cholesky factor of the m
    inducing points is that of ``k(Z, Z) + delta``, where delta is a rounding error of norm about
    ``sqrt(m) eps k``. So ``|z(x)|^2`` has the error ``c'delta c``, where c are the coefficients of
    x, and ``|c| <= sum_j |z_j| |row j of L^-1|``, the ``spread``. The first term is the rounding of
    ``|z|^2`` itself.
    """
    return _EPS * (4 * m + math.sqrt(m) * prior * spread * spread) * prior


def stretching(features: Features, k: DenseKernel) -> float:
    """Return the expected factor, less one, by which rounding increases squared norms of functions.

    With the error delta of ``rounding``, features are those of ``k(Z, Z) + delta``. A function with
    coefficients w in them has the squared norm ``|w|^2 - w'L^-1 delta L^-T w``. This is an estimate
    of the usual size too.
    """
    if features.m == 0:
        return 0.0
    size = k.diagonal(features.anchors).sum()
    return float(_EPS / math.sqrt(features.m) * size * features.row_norms.square().sum())
