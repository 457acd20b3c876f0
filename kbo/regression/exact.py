"""``KernelRidge``: exact kernel ridge regression that streams.

Notation: A = K + ridge C^-1 over the rows of ``observations.py``, A = L L', W = L^-1 k(X, x), z = L^-1 y. The factor
grows by one row in O(n^2).

On paper                         | in code
``mean = k(x)'A^-1 y``           | ``z @ W``
``variance = k - k(x)'A^-1 k(x)``| ``prior - (W * W).sum(0)``
``ln det(I + K / ridge)``        | ``2 sum ln L_ii - sum ln(ridge / c)``
``y'(I + K / ridge)^-1 y``       | ``within + ridge * z'z``
"""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo._base import checks
from kbo._base.devices import read
from kbo._base.linalg import GrowingCholesky, GrowingTensor, ill_conditioned_ratio
from kbo._base.stateful import Stateful, passed_on
from kbo.kernels import DenseKernel, freeze
from kbo.regression.all_ridges import AllRidges
from kbo.regression.eigenbasis import Eigenbasis, SpectralRidges
from kbo.regression.numerics import (
    block_of,
    clamped,
    differentiable_once,
    in_chunks,
    warn_below_precision,
)
from kbo.regression.observations import Observations
from kbo.regression.posterior import (
    MOST_JOINT,
    Followed,
    LowRankPosteriorAt,
    Posterior,
    PosteriorAt,
)
from kbo.regression.provenance import Error, Rounding
from kbo.regression.sampling import SamplePath

_BLOCK = 2**20
"""Entries of k(X, x) that are evaluated at once, whatever the number of points; the peak is several times that."""

_MOST_FACTORS = 8
"""Ridges whose factor is kept; the least recently used one is dropped and would be recomputed."""

_MOST_FOLLOWED = 4
"""Ridges at which fixed points are followed, likewise."""


class KernelRidge(Posterior):
    """The exact posterior.

    ``at(ridge)`` has a growing factor: one new row costs O(n^2), a prediction O(n^2) per point, a ridge that was not
    used before one factorisation, O(n^3). ``across()`` shares one eigendecomposition, which is refreshed when the
    data have grown by a thirty-second, at least 16 rows: a prediction costs O(n^2) per point and little per ridge.
    Repeated points are counted (see ``observations.py``), so n may be far larger than the number of distinct points.
    Hyper-parameters are copied at construction.

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

    saved: tuple[str, ...] = ("data", "trace")

    def __init__(self, kernel: Kernel, ridge: float) -> None:
        self._kernel: Kernel = copy.deepcopy(checks.kernel(kernel))
        self._frozen: dict[tuple[torch.dtype, torch.device], DenseKernel] = {}
        self._begin(None)
        super().__init__(ridge)

    def __repr__(self) -> str:
        rows = self.data.rows if self.data else 0
        return f"KernelRidge({type(self.kernel).__name__}, ridge={self.ridge:.4g}, n={self.n}, rows={rows})"

    def _begin(self, data: Observations | None) -> None:
        """Replace the data; from the first observation on the state has their dtype and device."""
        self.data = data
        self.like: Tensor = Posterior.like if data is None else data.X[:0].clone()
        self._factors: dict[float, Factor] = {}
        self._basis: Eigenbasis | None = None

    @property
    def kernel(self) -> Kernel:
        """The kernel that was copied at construction."""
        return self._kernel

    @property
    def n(self) -> int:
        return self.data.n if self.data else 0

    @torch.no_grad()
    def update(self, X: Tensor, y: Tensor, weights: Tensor | None = None) -> None:
        host = self.check_data(X, y, weights)
        if not host.places:
            return
        k = self._kernel_for(X)
        trace, largest = self._prior_of(k, X, weights, host)
        if self.data is None:
            self._begin(Observations(X, y))
        assert self.data is not None
        layout, error = self.data.layout, k.error(X)
        try:
            self.data.append(X, y, weights, host)
            self.data.trace, self.data.largest = (
                self.data.trace + trace,
                max(self.data.largest, largest),
            )
            self.data.kernel_error = max(self.data.kernel_error, error)
            if self.data.layout != layout:
                self._factors.clear()
                self._basis = None
        finally:  # an interrupt leaves no answers of the data before
            if (weighted := self.data.weight_range != (1.0, 1.0)) or self.data.repeats[0]:
                self.note(weighted=weighted, repeats=self.data.repeats)
            self.changed()

    def _prior_of(
        self, k: DenseKernel, X: Tensor, weights: Tensor | None, host: checks.OnHost
    ) -> tuple[float, float]:
        """Return the sum of ``w k(x, x)`` over new observations, and the largest ``k(x, x)``."""
        if k.constant is not None and self.data is not None:
            return k.constant * sum(host.weights or [1] * len(host.places)), k.constant
        prior = k.diagonal(X)  # which tests the number of columns
        trace, largest = read((prior if weights is None else weights * prior).sum(), prior.max())
        return trace, largest

    def _at(self, ridge: float) -> PosteriorAt:
        """In O(n^2) per new row for a ridge that was used before, else O(n^3)."""
        return OneRidge(self, self.factor(ridge))

    def across(self, X: Tensor | None = None) -> AllRidges:
        if X is not None:
            self.check(X)
        if self.data is None:
            return AllRidges(self, X)
        return self.basis().across(self, X)

    def follow(self, points: Tensor) -> Followed:
        return FollowedExact(self, points)

    def prior(self, X: Tensor, Z: Tensor) -> Tensor:
        return self._kernel_for(X)(X, Z)

    def prior_variance(self, X: Tensor) -> Tensor:
        return self._kernel_for(X).diagonal(X)

    @property
    def trace(self) -> float:
        return self.data.trace if self.data else 0.0

    @property
    def error(self) -> Error:
        return _ExactError(self)

    @property
    def locations(self) -> tuple[Tensor, Tensor] | None:
        return None if self.data is None else (self.data.X, self.data.counts)

    def factor(self, ridge: float) -> Factor:
        """Return the factor of ``K + ridge C^-1``, grown to all rows."""
        assert self.data is not None
        factor = self._factors.pop(ridge, None)
        if factor is None:
            warn_below_precision(ridge, self.error.least_ridge)
            factor = Factor(ridge, self.data, self._kernel_for(self.like))
        if factor.cholesky.n < self.data.rows:
            factor.grow()
        self._factors[ridge] = factor  # at the end of the dict: the most recently used
        if len(self._factors) > _MOST_FACTORS:
            del self._factors[next(iter(self._factors))]
        return factor

    def basis(self) -> Eigenbasis:
        """Return the eigenbasis for every ridge, grown to all rows."""
        assert self.data is not None
        self._basis = (self._basis or Eigenbasis(self.data, self._kernel_for(self.like))).grown()
        return self._basis

    def _load(self, state: dict[str, Any]) -> None:
        data = None
        if (saved := state["data"]) is not None:
            data = Observations(saved["_X"]["value"], saved["_y"]["value"])
            data.load_state_dict(saved)
            k = self._kernel_for(data.X)
            data.trace, data.largest = float(state["trace"]), float(k.diagonal(data.X).max())
            data.kernel_error = k.error(data.X)
        self._begin(data)

    def _kernel_for(self, X: Tensor) -> DenseKernel:
        key = X.dtype, X.device
        if key not in self._frozen:
            self._frozen[key] = freeze(self.kernel, X)
        return self._frozen[key]


class _ExactError(Error):
    """Rounding alone."""

    @property
    def least_ridge(self) -> float:
        data = self.state.data
        largest = (data.largest or 1.0) * data.weight_range[1] if data else 1.0
        return ill_conditioned_ratio(self.state.like.dtype) * largest

    @property
    def terms(self) -> int:
        return self.state.data.rows if self.state.data else 0

    @property
    def rounding(self) -> Rounding:
        data = self.state.data
        return Rounding.of_algebra(self.terms, self.state.trace, data.kernel_error if data else 0.0)


class Factor(Stateful):
    """L, z = L^-1 y and the determinant for one ridge, over the first n rows of the data."""

    def __init__(self, ridge: float, data: Observations, k: DenseKernel) -> None:
        self.ridge = ridge
        self.data = data
        self.k = k
        self.cholesky: GrowingCholesky = GrowingCholesky(data.y)

    z: Tensor = passed_on("cholesky.z")

    def grow(self) -> None:
        """Take in all rows of the data, which have no gradients."""
        data = self.data
        for start, stop in data.blocks_after(self.cholesky.n):
            new = data.X[start:stop]
            block = self.k.diagonal(new) if stop - start == 1 else self.k(new, new)
            noise = self.ridge if data.uniform else self.ridge / data.counts[start:stop]
            self.cholesky.append(self.k(data.X[:start], new), block, noise, data.y[start:stop])


class OneRidge(LowRankPosteriorAt):
    """Answers of an exact posterior with data, from its factor, which has grown to all rows."""

    def __init__(self, state: Posterior, factor: Factor) -> None:
        super().__init__(state, factor.ridge)
        self.factor = factor
        self.data: Observations = factor.data
        self.k: DenseKernel = factor.k

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        self.state.check(X)
        size = max(1, block_of(_BLOCK, X.device) // self.data.rows)
        if X.ndim == 2:
            return in_chunks(self._mean_and_variance, X, size)
        mean, variance = in_chunks(self._mean_and_variance, X.reshape(-1, X.shape[-1]), size)
        return mean.reshape(X.shape[:-1]), variance.reshape(X.shape[:-1])

    def _mean_and_variance(self, X: Tensor) -> tuple[Tensor, Tensor]:
        prior = self.k.diagonal(X)
        if X.requires_grad:
            mean, explained = _MeanAndExplained.apply(X, self.factor)  # pyright: ignore[reportGeneralTypeIssues]
        else:
            W = self.factor.cholesky.solve(self.k(self.data.X, X))
            mean, explained = self.factor.z @ W, (W * W).sum(0)
        return mean, clamped(prior - explained, prior, self.ridge, self.data.trace)

    def factored(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the mean [... q] and W, W [... n q]: ``covariance(x, z) = k(x, z) - W(x)'W(z)``."""
        self.state.check(X)
        W = self.factor.cholesky.solve(self.k(self.data.X, X.reshape(-1, X.shape[-1])))
        mean = (self.factor.z @ W).reshape(X.shape[:-1])
        W = W.reshape(len(W), *X.shape[:-1]).movedim(0, -2)
        return mean, W, W

    def log_det(self) -> Tensor:
        return self.data.within.new_full((), self.factor.cholesky.log_det)

    def quad(self) -> Tensor:
        return self.data.within + self.ridge * self.factor.z.dot(self.factor.z)

    @torch.no_grad()
    def rss(self) -> Tensor:
        """In O(n^2): the residuals of the rows are ``ridge C^-1 A^-1 y``."""
        solved = self.factor.cholesky.solve_transposed(self.factor.z)
        return self.data.within + self.ridge**2 * (solved.square() / self.data.counts).sum()

    @torch.no_grad()
    def effective_dimension(self) -> Tensor:
        """``sum_r 1 - (ridge / c_r) [A^-1]_rr``, in O(n^3): the sum of leverages over observations."""
        identity = torch.eye(self.data.rows, dtype=self.data.X.dtype, device=self.data.X.device)
        inverse_diagonal = self.factor.cholesky.solve(identity).square().sum(0)
        return (1 - self.ridge / self.data.counts * inverse_diagonal).sum()

    @torch.no_grad()
    def _draw_function(self, like: Tensor, generator: torch.Generator | None) -> SamplePath:
        """Matheron's rule: ``h(x) - k(x, X) A^-1 (h(X) + eps)``, h from the prior."""
        prior, X, k, cholesky = (
            self.state.draw_prior(like, generator),
            self.data.X,
            self.k,
            self.factor.cholesky,
        )
        noise = torch.randn(len(X), generator=generator, dtype=X.dtype, device="cpu").to(X.device)
        noise = noise * (self.ridge / self.data.counts).sqrt()
        weights = -cholesky.solve_transposed(cholesky.solve(prior(X) + noise))
        return SamplePath(prior, partial(k, X), weights)


class _MeanAndExplained(torch.autograd.Function):
    """``z'W`` and ``|W|^2`` of each of the points [q d]; the gradient of both takes one solve more."""

    @staticmethod
    def forward(ctx, X: Tensor, factor: Factor) -> tuple[Tensor, Tensor]:
        k, ctx.gradient = factor.k.with_gradient(factor.data.X, X)
        W, z, ctx.cholesky = factor.cholesky.solve(k), factor.z, factor.cholesky
        ctx.W, ctx.z = W, z  # not saved tensors: z is a part of a buffer that grows behind it
        return z @ W, (W * W).sum(0)

    @staticmethod
    @differentiable_once
    def backward(ctx, mean: Tensor, explained: Tensor):
        W, z = ctx.W, ctx.z
        return ctx.gradient(
            ctx.cholesky.solve_transposed(torch.outer(z, mean) + 2 * W * explained)
        ), None


class FollowedExact(Followed):
    """Answers for fixed points that follow an exact posterior.

    A row of the factor turns into a row of ``W = L^-1 k(X, points)`` by one product, so mean and variance of A points
    follow a new observation in O(n A) instead of O(n^2 A):

        w = (k(x_new, points) - l'W) / l_nn,   mean += z_new w,   variance -= w^2.

    For every ridge at once, the coordinates of the points in the eigenbasis are kept as long as the basis is. That is
    O(n A) numbers of memory for each ridge, and for the eigenbasis.
    """

    state: Any  # a KernelRidge, which makes this

    def __init__(self, state: Any, points: Tensor) -> None:
        super().__init__(state, points)
        self.prior: Tensor = state.prior_variance(points)
        self.columns: dict[float, _Columns] = {}
        self._vectors: Tensor | None = None  # of the eigenbasis in which the points are kept
        self._joint: Tensor | None = None

    def predict(self, ridge: float) -> tuple[Tensor, Tensor]:
        if self.state.data is None:
            return torch.zeros_like(self.prior), self.prior.clone()
        columns = self._current(ridge)
        return columns.mean.clone(), clamped(
            columns.variance, self.prior, ridge, self.state.data.trace
        )

    def covariance(self, ridge: float) -> Tensor:
        """Return the joint covariance [A A], in O(n A^2) for up to ``MOST_JOINT`` points."""
        if self.state.data is None or len(self.points) > MOST_JOINT:
            return super().covariance(ridge)
        joint, W = self._joint, self._current(ridge).W.value
        if joint is None:
            joint = self._joint = self.state.prior(self.points, self.points)
        return joint - W.mT @ W

    @torch.no_grad()
    def across(self) -> AllRidges:
        """Return the points, whose coordinates follow the eigenbasis, at any ridge."""
        if self.state.data is None:
            return super().across()
        basis, prior = self.state.basis(), self.prior.unsqueeze(-1)
        if self._vectors is not basis.vectors:
            self._vectors, (self._p, border) = basis.vectors, basis.coordinates(self.points)
            self._border = GrowingTensor(border)
        start = len(self._p) + self._border.n
        new = basis.k(basis.data.X[start:], self.points)
        self._border.append(basis.data.counts[start:].sqrt().unsqueeze(-1) * new)
        return SpectralRidges(
            self.state, basis, self._p, self._border.value, prior.unsqueeze(-1), prior
        )

    @torch.no_grad()
    def _current(self, ridge: float) -> _Columns:
        factor = self.state.factor(ridge)
        data, columns = factor.data, self.columns.pop(ridge, None)
        if columns is None or columns.layout != data.layout:
            columns = _Columns(data.layout, self.prior)
        self.columns[ridge] = columns  # at the end of the dict: the most recently used
        if len(self.columns) > _MOST_FOLLOWED:
            del self.columns[next(iter(self.columns))]
        for start, stop in data.blocks_after(columns.W.n):
            left, corner = factor.cholesky.rows(start, stop)
            rest = factor.k(data.X[start:stop], self.points) - left @ columns.W.value
            w = torch.linalg.solve_triangular(corner, rest, upper=False)
            columns.W.append(w)
            columns.mean = columns.mean + factor.z[start:stop] @ w
            columns.variance = columns.variance - w.square().sum(0)
        return columns


class _Columns(Stateful):
    """W, mean and variance of the points at one ridge, for rows of one layout."""

    def __init__(self, layout: int, prior: Tensor) -> None:
        self.layout = layout
        self.W = GrowingTensor(prior.new_empty(0, len(prior)))
        self.mean, self.variance = torch.zeros_like(prior), prior
