"""``KernelRidge``: exact kernel ridge regression that streams."""

from __future__ import annotations

import copy
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo import checks
from kbo.devices import read
from kbo.kernels import DenseKernel, freeze
from kbo.linalg import ill_conditioned_ratio
from kbo.regression.exact.all_ridges import Eigenbasis, ExactRidges
from kbo.regression.exact.follow import FollowedExact
from kbo.regression.exact.observations import Observations
from kbo.regression.exact.one_ridge import Factor, OneRidge
from kbo.regression.numerics import algebra_error, warn_below_precision
from kbo.regression.posterior import PARTLY_LOADED, AllRidges, Answers, Followed, Posterior
from kbo.regression.provenance import Error
from kbo.regression.sampling import Function, draw_prior

_MOST_FACTORS = 8
"""Ridges whose factor is kept; the least recently used one is dropped and would be recomputed."""


class KernelRidge(Posterior):
    """The exact posterior.

    ``at(ridge)`` has a growing factor: one new row costs O(n^2), a prediction O(n^2) per point, a ridge that was not
    used before one factorisation, O(n^3). ``all_ridges()`` shares one eigendecomposition, which is refreshed when the
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

    saved: tuple[str, ...] = ("data", "trace", "assumed")

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
        host = checks.observations(X, y, self.like if self.data else None, self.dimension, weights=weights)
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
            self.data.trace, self.data.largest = self.data.trace + trace, max(self.data.largest, largest)
            self.data.kernel_error = max(self.data.kernel_error, error)
            if self.data.layout != layout:
                self._factors.clear()
                self._basis = None
        finally:  # an interrupt leaves no answers of the data before
            self.note(weighted=self.data.weight_range != (1.0, 1.0), repeats=self.data.repeats)
            self.changed()

    def _prior_of(self, k: DenseKernel, X: Tensor, weights: Tensor | None, host: checks.OnHost) -> tuple[float, float]:
        """Return the sum of ``w k(x, x)`` over new observations, and the largest ``k(x, x)``."""
        if k.constant is not None and self.data is not None:
            return k.constant * sum(host.weights or [1] * len(host.places)), k.constant
        prior = k.diagonal(X)  # which tests the number of columns
        trace, largest = read((prior if weights is None else weights * prior).sum(), prior.max())
        return trace, largest

    def answer(self, ridge: float) -> Answers:
        """In O(n^2) per new row for a ridge that was used before, else O(n^3)."""
        return OneRidge(self, self.factor(ridge))

    def all_ridges(self) -> AllRidges:
        return AllRidges(self) if self.data is None else ExactRidges(self, self.basis())

    def follow(self, points: Tensor) -> Followed:
        return FollowedExact(self, points)

    def prior(self, X: Tensor, Z: Tensor) -> Tensor:
        return self._kernel_for(X)(X, Z)

    def prior_variance(self, X: Tensor) -> Tensor:
        return self._kernel_for(X).diagonal(X)

    def draw_prior(self, like: Tensor, generator: torch.Generator | None = None) -> Function:
        return draw_prior(self.kernel, like, generator)

    def radial(self, X: Tensor) -> tuple[Tensor, Function] | None:
        return self._kernel_for(X).radial(X)

    @property
    def trace(self) -> Tensor:
        return self.like.new_full((), self.data.trace if self.data else 0.0)

    @property
    def error(self) -> Error:
        return _ExactError(self)

    @property
    def locations(self) -> tuple[Tensor, Tensor] | None:
        return None if self.data is None else (self.data.X, self.data.counts)

    @property
    def hyperparameters(self) -> list[Tensor]:
        return [*self.kernel.parameters(), *self.kernel.buffers()]

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

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replace data and ridge by those of a state dict; the kernel is that of this object."""
        self.check_state_dict(state)
        data = None
        if (saved := state["data"]) is not None:
            data = Observations(saved["_X"]["value"], saved["_y"]["value"])
            data.load_state_dict(saved)
            k = self._kernel_for(data.X)
            data.trace, data.largest = read(state["trace"], k.diagonal(data.X).max())
            data.kernel_error = k.error(data.X)
        self.add_caveat(PARTLY_LOADED)
        self._begin(data)
        self.changed()
        self.assumed = state["assumed"]
        self.changed()

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
        return ill_conditioned_ratio(self.state.dtype) * largest

    @property
    def terms(self) -> int:
        return self.state.data.rows if self.state.data else 0

    def rounding(self, ridge: float | Tensor) -> Tensor:
        """Return e as for any posterior, on the host as far as the ridge is."""
        data = self.state.data
        e = algebra_error(self.terms, data.trace if data else 0.0, ridge, data.kernel_error if data else 0.0)
        return e if isinstance(e, Tensor) else self.state.like.new_full((), e)
