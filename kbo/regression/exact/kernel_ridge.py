"""``KernelRidge``: exact kernel ridge regression that streams.

Notation: A = K + ridge C^-1 over the m rows of ``observations.py``, with targets y; A = L L', z =
L^-1 y and W = L^-1 k(X, x). ``update`` appends rows to the data, ``factor(ridge)`` appends them to
L and z, O(m^2) each, and ``ExactAt`` computes the numbers. Formulas: Rasmussen & Williams (2006),
Algorithm 2.1.

On paper                                                      | in code
``mean = k(x)'A^-1 y = z'W``                                  | ``ExactAt.predict``
``variance = k(x, x) - k(x)'A^-1 k(x) = k(x, x) - |W|^2``     | ``ExactAt.predict``
``covariance(x, z) = k(x, z) - W(x)'W(z)``                    | ``ExactAt.factored``
``ln det(I + K / ridge) = 2 sum ln L_ii - sum ln(ridge / c)`` | ``GrowingCholesky.log_det``
``y'(I + K / ridge)^-1 y = within + ridge z'z``               | ``ExactAt.quad``
"""

from __future__ import annotations

import copy
import operator
from functools import partial
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo._base import checks
from kbo._base.linalg import GrowingCholesky, GrowingTensor, ill_conditioned_ratio
from kbo._base.stateful import Stateful, delegated_to
from kbo.errors import NotPositiveDefinite
from kbo.kernels import DenseKernel, freeze
from kbo.regression.all_ridges import AllRidges
from kbo.regression.error import Error
from kbo.regression.exact.eigenbasis import Eigenbasis
from kbo.regression.exact.observations import Observations
from kbo.regression.numerics import (
    block_of,
    clamped,
    in_chunks,
    keep_latest,
    kernel_columns,
    warn_below_precision,
)
from kbo.regression.posterior import (
    Columns,
    LeastSquares,
    LowRankPosteriorAt,
    Posterior,
    PosteriorAt,
)
from kbo.regression.sampling import SamplePath
from kbo.regression.spectral_ridges import SpectralRidges, spectral_ridges

_BLOCK = 2**20
"""Number of entries of k(X, x) evaluated at once; the peak of memory is several times that."""

_MOST_FACTORS = 8
"""Number of ridges whose factor is kept; the least recently used one is dropped."""


class KernelRidge(Posterior):
    """The exact posterior of a function, updated in place, for up to a few thousand distinct points.

    ``at(ridge)`` uses a growing Cholesky factor: a new row costs O(n^2), a prediction O(n^2) per
    point, and a new ridge one factorisation, O(n^3).

    ``across()`` uses one eigendecomposition for all ridges: a prediction costs O(n^2) per point and
    little per ridge. The decomposition is computed again when the data have grown by 1/32, but by
    at least 16 rows.

    Repeated points are counted (``observations.py``), so n may be far larger than the number of
    distinct points. The kernel is copied at construction.

    Args:
        kernel: An unbatched GPyTorch kernel.
        ridge: The regulariser, in units of the kernel; the noise variance in the GP reading.

    Raises:
        InvalidInput: The ridge is not positive, or the kernel cannot be used.

    Attributes:
        data: The observations, grouped into rows; None before the first.

    Example:
        >>> state = KernelRidge(RBFKernel(), ridge=0.1)
        >>> state.update(X, y)
        >>> mean, variance = state.predict(candidates)
    """

    def __init__(self, kernel: Kernel, ridge: float) -> None:
        self._kernel: Kernel = copy.deepcopy(checks.kernel(kernel))
        self._dense_kernels: dict[tuple[torch.dtype, torch.device], DenseKernel] = {}
        self._factors: dict[float, GrowingCholesky] = {}
        self._basis: Eigenbasis | None = None
        self._trace: float = 0.0
        self._largest_variance: float = 0.0
        self._kernel_error: float = 0.0
        self.data: Observations | None = None
        super().__init__(ridge)

    def __repr__(self) -> str:
        rows = self.data.rows if self.data else 0
        kernel = type(self.kernel).__name__
        return f"KernelRidge({kernel}, ridge={self.ridge:.4g}, n={self.n}, rows={rows})"

    @property
    def kernel(self) -> Kernel:
        """The kernel that was copied at construction."""
        return self._kernel

    @property
    def n(self) -> int:
        return self.data.n if self.data else 0

    @property
    def trace(self) -> float:
        return self._trace

    @property
    def error(self) -> Error:
        return _ExactError(self)

    @property
    def locations(self) -> tuple[Tensor, Tensor] | None:
        return (self.data.X, self.data.counts) if self.data else None

    @property
    def least_squares(self) -> LeastSquares | None:
        data = self.data
        return LeastSquares(data.X, data.y, data.counts, data.within) if data else None

    def prior(self, X: Tensor, Z: Tensor) -> Tensor:
        return self._kernel_for(X)(X, Z)

    def prior_variance(self, X: Tensor) -> Tensor:
        return self._kernel_for(X).diagonal(X)

    @property
    def dense_kernel(self) -> DenseKernel:
        """The kernel in the dtype and on the device of the data."""
        return self._kernel_for(self.like)

    def _kernel_for(self, X: Tensor) -> DenseKernel:
        """Return the kernel in the dtype and on the device of X."""
        key = X.dtype, X.device
        if key not in self._dense_kernels:
            self._dense_kernels[key] = freeze(self.kernel, X)
        return self._dense_kernels[key]

    @torch.no_grad()
    def update(self, X: Tensor, y: Tensor, weights: Tensor | None = None) -> None:
        host = self.check_data(X, y, weights)
        if not host.locations:
            return
        k = self._kernel_for(X)
        kernel_error = k.error(X)
        variances = k.diagonal(X).tolist()
        trace = sum(variances)
        if host.weights is not None:
            trace = sum(map(operator.mul, host.weights, variances))
        if self.data is None:
            self.data = Observations(X, y)
            self.like: Tensor = X[:0].clone()
        layout = self.data.layout
        try:
            self.data.append(X, y, weights, host)
            self._trace += trace
            self._largest_variance = max(self._largest_variance, *variances)
            self._kernel_error = max(self._kernel_error, kernel_error)
            if self.data.layout != layout:
                self._factors.clear()
                self._basis = None
        finally:  # also after an interrupt, when the data may have changed
            weighted = self.data.weight_range != (1.0, 1.0)
            if weighted or self.data.repeats[0]:
                self.note(weighted=weighted, repeats=self.data.repeats)
            self.changed()

    def factor(self, ridge: float) -> GrowingCholesky:
        """Return L and z of ``A = K + ridge C^-1`` over all rows of the data.

        It costs O(n^2) per new row at a ridge that was used before, else O(n^3).
        """
        data = self.data
        assert data is not None
        factor = self._factors.pop(ridge, None)
        if factor is None:
            warn_below_precision(ridge, self.error.least_ridge)
            factor = GrowingCholesky(data.y)
        k = self.dense_kernel
        for start, stop in data.blocks_after(factor.n):
            new = data.X[start:stop]
            block = k.diagonal(new) if len(new) == 1 else k(new, new)
            noise = ridge / data.counts[start:stop]
            try:
                factor.append(k(data.X[:start], new), block, noise, data.y[start:stop])
            except NotPositiveDefinite:
                self.error.refuse_no_kernel()
                raise
        keep_latest(self._factors, ridge, factor, _MOST_FACTORS)
        return factor

    def basis(self) -> Eigenbasis:
        """Return the eigenbasis of all rows of the data, for every ridge."""
        assert self.data is not None
        if self._basis is None:
            self._basis = Eigenbasis(self.data, self.dense_kernel)
        self._basis = self._basis.grown()
        return self._basis

    def compute_at(self, ridge: float) -> PosteriorAt:
        return ExactAt(self, ridge, self.factor(ridge))

    def across(self, X: Tensor | None = None) -> AllRidges:
        if X is not None:
            self.check(X)
        if self.data is None:
            return AllRidges(self, X)
        return spectral_ridges(self, self.basis(), X)

    def columns(self, points: Tensor) -> ExactColumns:
        return ExactColumns(self, points)


class _ExactError(Error):
    """The errors of a ``KernelRidge``: by rounding alone."""

    @property
    def least_ridge(self) -> float:
        state = self.state
        largest = state._largest_variance or 1.0
        if state.data:
            _, largest_weight = state.data.weight_range
            largest *= largest_weight
        return ill_conditioned_ratio(state.like.dtype) * largest

    @property
    def terms(self) -> int:
        return self.state.data.rows if self.state.data else 0

    of_coordinates: float = delegated_to("state._kernel_error")


class ExactAt(LowRankPosteriorAt):
    """An exact posterior with data at one ridge.

    Args:
        state: The posterior.
        ridge: The ridge.
        factor: L and z of ``A = K + ridge C^-1`` over all rows.
    """

    def __init__(self, state: KernelRidge, ridge: float, factor: GrowingCholesky) -> None:
        super().__init__(state, ridge)
        assert state.data is not None
        self.factor = factor
        self.data: Observations = state.data
        self.k: DenseKernel = state.dense_kernel

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        self.state.check(X)
        size = max(1, block_of(_BLOCK, X.device) // self.data.rows)
        mean, variance = in_chunks(self._mean_and_variance, X.reshape(-1, X.shape[-1]), size)
        return mean.reshape(X.shape[:-1]), variance.reshape(X.shape[:-1])

    def _mean_and_variance(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``z'W`` and ``k(x, x) - |W|^2`` [N] at X [N d]."""
        prior = self.k.diagonal(X)
        W = self.factor.solve(kernel_columns(self.k, self.data.X, X))
        variance = clamped(prior - (W * W).sum(0), prior, self.ridge, self.state.trace)
        return self.factor.z @ W, variance

    def factored(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the mean [... q], and W [... m q] twice, as U and V."""
        self.state.check(X)
        W = self.factor.solve(self.k(self.data.X, X.reshape(-1, X.shape[-1])))
        mean = (self.factor.z @ W).reshape(X.shape[:-1])
        W = W.reshape(len(W), *X.shape[:-1]).movedim(0, -2)
        return mean, W, W

    def log_det(self) -> Tensor:
        return self.data.within.new_full((), self.factor.log_det)

    def quad(self) -> Tensor:
        return self.data.within + self.ridge * self.factor.z.dot(self.factor.z)

    @torch.no_grad()
    def rss(self) -> Tensor:
        """Return ``|y - mean(X)|^2``, [], in O(n^2).

        The residuals of the rows are ``ridge C^-1 A^-1 y``.
        """
        solved = self.factor.solve_transposed(self.factor.z)
        return self.data.within + self.ridge**2 * (solved.square() / self.data.counts).sum()

    @torch.no_grad()
    def effective_dimension(self) -> Tensor:
        """Return ``Tr K (K + ridge I)^-1``, [], in O(n^3).

        It is ``sum_r 1 - (ridge / c_r) [A^-1]_rr``.
        """
        identity = torch.eye(self.data.rows, dtype=self.data.X.dtype, device=self.data.X.device)
        inverse_diagonal = self.factor.solve(identity).square().sum(0)
        return (1 - self.ridge / self.data.counts * inverse_diagonal).sum()

    @torch.no_grad()
    def compute_drawn_function(self, like: Tensor, generator: torch.Generator | None) -> SamplePath:
        """Return ``h(x) - k(x, X) A^-1 (h(X) + eps)``, h from the prior, by Matheron's rule."""
        prior = self.state.draw_prior(like, generator)
        X = self.data.X
        normal = torch.randn(len(X), generator=generator, dtype=X.dtype, device="cpu").to(X.device)
        noise = normal * (self.ridge / self.data.counts).sqrt()
        weights = -self.factor.solve_transposed(self.factor.solve(prior(X) + noise))
        return SamplePath(prior, partial(self.k, X), weights)


_MOST_RIDGES = 4
"""Number of ridges at which W is kept; the least recently used one is dropped."""


class ExactColumns(Columns):
    """Mean and variance of a ``KernelRidge`` at fixed points P, [A], for ``FixedPoints``.

    With W = L^-1 k(X, P), a new row ``[l', p]`` of L and a new entry z_new of z add the row w to W.
    This costs O(n A), a solve O(n^2 A):

        w = (k(x_new, P) - l'W) / p,    mean += z_new w,    variance -= w^2.

    It keeps O(n A) numbers for each ridge in use, and O(n A) for ``across``: the kernel columns of
    the points in the eigenbasis.
    """

    def __init__(self, state: Any, points: Tensor) -> None:
        super().__init__(state, points)
        self.prior: Tensor = state.prior_variance(points)
        self._moments: dict[float, _Moments] = {}
        self._in_eigenbasis: _KernelColumns | None = None

    def predict(self, ridge: float) -> tuple[Tensor, Tensor]:
        moments = self._updated(ridge)
        variance = clamped(moments.variance, self.prior, ridge, self.state.trace)
        return moments.mean.clone(), variance

    @torch.no_grad()
    def _updated(self, ridge: float) -> _Moments:
        """Return the moments at a ridge after all rows of the data."""
        data = self.state.data
        k = self.state.dense_kernel
        factor = self.state.factor(ridge)
        moments = self._moments.pop(ridge, None)
        if moments is None or moments.layout != data.layout:
            moments = _Moments(data.layout, self.prior)
        for start, stop in data.blocks_after(moments.W.n):
            rectangle, corner = factor.rows(start, stop)
            columns = k(data.X[start:stop], self.points) - rectangle @ moments.W.value
            w = torch.linalg.solve_triangular(corner, columns, upper=False)
            moments.W.append(w)
            moments.mean = moments.mean + factor.z[start:stop] @ w
            moments.variance = moments.variance - w.square().sum(0)
        keep_latest(self._moments, ridge, moments, _MOST_RIDGES)
        return moments

    @torch.no_grad()
    def across(self) -> AllRidges:
        basis = self.state.basis()
        columns = self._in_eigenbasis
        if columns is None or columns.vectors is not basis.vectors:
            columns = _KernelColumns(basis, self.points)
            self._in_eigenbasis = columns
        columns.extend(basis, self.points)
        variance = self.prior.unsqueeze(-1)
        prior = variance.unsqueeze(-1)
        return SpectralRidges(self.state, basis, columns.p, columns.border.value, prior, variance)


class _KernelColumns(Stateful):
    """The kernel columns of the points in an eigenbasis and at its border.

    Attributes:
        vectors: The eigenvectors of the basis, by which a change of basis is noticed.
        p: The kernel columns in the basis, [n0 A].
        border: The kernel columns at the border, [b A].
    """

    def __init__(self, basis: Eigenbasis, points: Tensor) -> None:
        p, border = basis.coordinates(points)
        self.vectors: Tensor = basis.vectors
        self.p: Tensor = p
        self.border: GrowingTensor = GrowingTensor(border)

    def extend(self, basis: Eigenbasis, points: Tensor) -> None:
        """Add the rows of the data that the border has gained."""
        start = len(self.p) + self.border.n
        rows = basis.k(basis.data.X[start:], points)
        self.border.append(basis.data.counts[start:].sqrt().unsqueeze(-1) * rows)


class _Moments(Stateful):
    """W, and mean and variance of the points, at one ridge, after the first n rows of the data.

    Attributes:
        layout: The version of the rows of the data from which W was computed.
        W: ``L^-1 k(X, P)``, [n A].
        mean: The mean at the points, [A].
        variance: The variance at the points, [A].
    """

    def __init__(self, layout: int, prior: Tensor) -> None:
        self.layout: int = layout
        self.W: GrowingTensor = GrowingTensor(prior.new_empty(0, len(prior)))
        self.mean: Tensor = torch.zeros_like(prior)
        self.variance: Tensor = prior
