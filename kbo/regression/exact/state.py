"""Exact kernel ridge regression that grows by one row in O(n^2), at one ridge or at every ridge.

Notation: A = K + ridge C^-1 over the rows of ``observations.py``, A = L L', W = L^-1 k(X, x), z = L^-1 y.

On paper                         | in code
``mean = k(x)'A^-1 y``           | ``W.T @ z``
``variance = k - k(x)'A^-1 k(x)``| ``prior - (W * W).sum(0)``
``ln det(I + K / ridge)``        | ``2 sum ln L_ii - sum ln(ridge / c)``
``y'(I + K / ridge)^-1 y``       | ``within + ridge * z'z``

That is the growing factor of one ridge, given as a number. Ridges given as a list or tensor are answered by one
eigenbasis for all of them (``eigenbasis.py``).
"""

from __future__ import annotations

import copy

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo import checks
from kbo.errors import InvalidInput
from kbo.kernels import DenseKernel, freeze
from kbo.linalg import ill_conditioned_ratio
from kbo.regression.exact.all_ridges import Eigenbasis
from kbo.regression.exact.observations import Observations
from kbo.regression.exact.one_ridge import Factor
from kbo.regression.posterior import Posterior, Ridge, as_ridges, floored, in_chunks, warn_below_precision
from kbo.regression.resolvent import SpectralPath

_CHUNK = {"cpu": 2**20, "cuda": 2**25}
"""Entries of k(X, x) that are evaluated at once, whatever the number of points; the peak is several times that."""

_MOST_FACTORS = 8
"""Ridges whose factor is kept; the least recently used one is dropped and would be recomputed."""


class KernelRidge(Posterior):
    """The exact posterior: a growing Cholesky factor for one ridge, an eigenbasis for many or changing ones.

    A ridge given as a number has a factor of its own: one new row costs O(n^2), a prediction O(n^2) per point, a ridge
    that was not used before one factorisation, O(n^3). Ridges given as a list or tensor, however many and however they
    change, share one eigendecomposition, which is refreshed when the data have grown by a thirty-second: a
    prediction costs O(n^2) per point and little per ridge. Repeated points are counted (see ``observations.py``), so n
    may be far larger than the number of distinct points. Hyper-parameters are copied at construction.

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
        if not isinstance(kernel, Kernel):
            raise InvalidInput(f"kernel must be a gpytorch.kernels.Kernel, got {type(kernel).__name__}.")
        if kernel.batch_shape:
            raise InvalidInput(f"kernel has batch shape {tuple(kernel.batch_shape)}; kbo needs an unbatched kernel.")
        self.ridge = checks.positive("ridge", ridge)
        self.kernel = copy.deepcopy(kernel)
        self.data: Observations | None = None
        self._trace = torch.zeros(())
        self._k: DenseKernel | None = None
        self._kappa = 0.0
        self._factors: dict[float, Factor] = {}
        self._basis: Eigenbasis | None = None

    def __repr__(self) -> str:
        rows = self.data.rows if self.data else 0
        return f"KernelRidge({type(self.kernel).__name__}, ridge={self.ridge:.4g}, n={self.n}, rows={rows})"

    @property
    def n(self) -> int:
        """Number of observations, repeats included."""
        return self.data.n if self.data else 0

    @torch.no_grad()
    def update(self, X: Tensor, y: Tensor) -> None:
        """Add observations in place. The factors grow when they are next asked for.

        Args:
            X: Points [r d], any number of rows; repeats are normal.
            y: Targets [r].

        Raises:
            InvalidInput: Wrong shape, dtype or device, or values that are not finite; nothing is added.
        """
        data = self.data
        checks.observations(X, y, data.X if data else None, data.X.shape[-1] if data else None)
        if len(X) == 0:
            return
        prior = self.prior_variance(X)
        if self.data is None:
            self._begin(Observations(X, y))
        assert self.data is not None
        epoch = self.data.epoch
        self.data.append(X, y)
        self._trace = self._trace + prior.sum()
        self._kappa = max(self._kappa, float(prior.max()))
        if self.data.epoch != epoch:
            self._factors.clear()
            self._basis = None

    def _begin(self, data: Observations) -> None:
        """From here on the state has the dtype and device of its data."""
        self.data = data
        self._k = freeze(self.kernel, data.X)
        self._trace = (self._k.diagonal(data.X) * data.counts).sum()

    def predict(self, X: Tensor, ridge: Ridge = None) -> tuple[Tensor, Tensor]:  # noqa: D102
        self.check(X)
        ridges, single = as_ridges(self.ridge if ridge is None else ridge)
        flat = X.reshape(-1, X.shape[-1])
        size = max(1, _CHUNK.get(X.device.type, 2**20) // max(1, self.data.rows if self.data else 1))
        ask = self._predict if single else self._predict_many
        mean, variance = in_chunks(lambda part: ask(part, ridges), flat, size)
        shape = X.shape[:-1] if single else (len(ridges), *X.shape[:-1])
        return mean.reshape(shape), variance.reshape(shape)

    def _predict(self, X: Tensor, ridges: list[float]) -> tuple[Tensor, Tensor]:
        k = self._kernel_for(X)
        prior = k.diagonal(X)
        if self.data is None:
            return torch.zeros_like(prior), prior
        factor = self.factor(ridges[0])
        W = factor.cholesky.solve(k(self.data.X, X))
        return factor.z.value @ W, floored(prior - (W * W).sum(0), prior, ridges[0], self.trace)

    def _predict_many(self, X: Tensor, ridges: list[float]) -> tuple[Tensor, Tensor]:
        moments = self.ridge_path(X.unsqueeze(-2)).grid(self._tensor(ridges, X))
        return moments.mean.squeeze(-1), moments.covariance[..., 0, 0]

    def ridge_path(self, X: Tensor) -> SpectralPath:
        """The posterior of groups X [... g d] as a function of the ridge, over the eigenbasis."""
        self.check(X)
        X = X.reshape(-1, *X.shape[-2:])
        k, basis = self._kernel_for(X), self.eigenbasis(X)
        prior = k(X, X) if X.shape[-2] > 1 else k.diagonal(X).unsqueeze(-1)
        coordinates = basis.coordinates(k(basis.data.X, X.reshape(-1, X.shape[-1])))
        return SpectralPath(basis, *coordinates, prior, k.diagonal(X), self.trace.to(X))

    def whitened(self, X: Tensor, ridge: float | None = None) -> tuple[Tensor, Tensor]:
        """Mean [... q] and W [... m q] with ``covariance(x, x') = k(x, x') - W(x)'W(x')``, for X [... q d]."""
        return self._whitened(X, self.ridge if ridge is None else ridge, single=True)

    def _whitened(self, X: Tensor, ridge: float, single: bool) -> tuple[Tensor, Tensor]:
        self.check(X)
        if self.data is None:
            return X.new_zeros(X.shape[:-1]), X.new_zeros(*X.shape[:-2], 0, X.shape[-2])
        cross = self._kernel_for(X)(self.data.X, X.reshape(-1, X.shape[-1]))
        if single:
            factor = self.factor(ridge)
            W = factor.cholesky.solve(cross)
            mean = factor.z.value @ W
        else:
            mean, W = self.eigenbasis().whitened(cross, self._tensor([ridge], cross)[0])
        return mean.reshape(X.shape[:-1]), W.reshape(len(W), *X.shape[:-1]).movedim(0, -2)

    def explained(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """U and V [r N] with ``covariance(x, z) = prior(x, z) - U(x)'V(z)`` at the state's ridge, for X [N d]."""
        W = self.whitened(X)[1]
        return W, W

    def prior(self, X: Tensor, Z: Tensor) -> Tensor:
        """The kernel ``k(X, Z)`` [... a b] itself."""
        return self._kernel_for(X)(X, Z)

    def prior_variance(self, X: Tensor) -> Tensor:
        """``k(x, x)`` [...] for X [... d]."""
        return self._kernel_for(X).diagonal(X)

    def covariance(self, X: Tensor, Z: Tensor, ridge: Ridge = None) -> Tensor:  # noqa: D102
        self.check(X)
        self.check(Z)
        ridges, single = as_ridges(self.ridge if ridge is None else ridge)
        prior = self.prior(X, Z)
        out = []
        for r in ridges:
            W = self._whitened(X, r, single)[1]
            out.append(prior - W.mT @ (W if Z is X else self._whitened(Z, r, single)[1]))
        return out[0] if single else torch.stack(out)

    def log_det(self, ridge: Ridge = None) -> Tensor:  # noqa: D102
        return self._number(ridge, lambda factor: factor.log_det, Eigenbasis.log_det)

    def quad(self, ridge: Ridge = None) -> Tensor:  # noqa: D102
        return self._number(ridge, lambda factor: factor.quad, Eigenbasis.quad)

    def rss(self, ridge: Ridge = None) -> Tensor:  # noqa: D102
        return self._number(ridge, Factor.rss, Eigenbasis.rss)

    def effective_dimension(self, ridge: Ridge = None) -> Tensor:
        """``Tr K (K + ridge I)^-1`` in O(n^3) for a number, and in little for each of several ridges."""
        return self._number(ridge, Factor.effective_dimension, Eigenbasis.effective_dimension)

    @property
    def trace(self) -> Tensor:  # noqa: D102
        return self._trace

    @property
    def least_ridge(self) -> float:  # noqa: D102
        dtype = torch.float64 if self.data is None else self.data.X.dtype
        return ill_conditioned_ratio(dtype) * (self._kappa or 1.0)

    @property
    def residual_trace(self) -> Tensor:
        """Zero: the state is exact."""
        return self._zero()

    def residual_norm(self) -> Tensor:
        """Zero: the state is exact."""
        return self._zero()

    def fork(self) -> KernelRidge:
        """A copy to update hypothetically: O(n) plus the last rows of the factors, which are otherwise shared."""
        fork = object.__new__(KernelRidge)
        vars(fork).update(vars(self))
        if self.data is not None:
            fork.data = self.data.fork()
            fork._factors = {ridge: factor.fork(fork.data) for ridge, factor in self._factors.items()}
            fork._basis = self._basis and self._basis.fork(fork.data)
        else:
            fork._factors = {}
        return fork

    def state_dict(self) -> dict[str, Tensor]:
        """The data as plain tensors (safe for ``torch.save`` and ``torch.load(weights_only=True)``)."""
        return {**self.data.state_dict(), "trace": self.trace.clone()} if self.data else {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Replace the data by those of ``state_dict``; kernel and ridge are those of this object."""
        self.data, self._k, self._kappa = None, None, 0.0
        self._factors.clear()
        self._basis = None
        if state:
            self._begin(Observations.from_state_dict(state))
            self._trace = state["trace"].clone()
            self._kappa = float(self.prior_variance(state["X"]).max())

    def factor(self, ridge: float) -> Factor:
        """The factor of ``K + ridge C^-1``, grown to all rows."""
        assert self.data is not None
        factor = self._factors.pop(ridge, None)
        if factor is None:
            warn_below_precision(ridge, self)
            factor = Factor(ridge, self.data)
        for start, stop in self.data.blocks_after(factor.n):
            factor.extend(stop, *self._kernel_columns(start, stop))
        self._factors[ridge] = factor  # at the end of the dict: the most recently used
        if len(self._factors) > _MOST_FACTORS:
            del self._factors[next(iter(self._factors))]
        return factor

    def eigenbasis(self, like: Tensor | None = None) -> Eigenbasis:
        """The basis for every ridge, grown to all rows; without data an empty one in the dtype of ``like``."""
        if (data := self.data) is None:
            assert like is not None
            empty = like.reshape(-1, like.shape[-1])[:0]
            return Eigenbasis(Observations(empty, empty[:, 0]), self._kernel_for(empty))
        if self._basis is None:
            self._basis = Eigenbasis(data, self._kernel_for(data.X))
        elif self._basis.rows < data.rows:
            self._basis = self._basis.fork(data)  # paths over the old one stay what they are
            self._basis.grow()
        return self._basis

    @torch.no_grad()
    def _kernel_columns(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """k(old rows, new rows) and k(new rows, new rows)."""
        assert self.data is not None
        new = self.data.X[start:stop]
        return self.prior(self.data.X[:start], new), self.prior(new, new)

    def _kernel_for(self, X: Tensor) -> DenseKernel:
        return freeze(self.kernel, X) if self._k is None else self._k

    def check(self, X: Tensor) -> None:
        """Raise InvalidInput unless X [... d] is finite and fits the data in dtype, device and columns."""
        data = self.data
        checks.points("X", X, data.X if data else None, data.X.shape[-1] if data else None)

    def _tensor(self, ridges: list[float], like: Tensor) -> Tensor:
        if self.data is not None:
            warn_below_precision(min(ridges), self)
        return torch.tensor(ridges, dtype=like.dtype, device=like.device)

    def _number(self, ridge: Ridge, of_factor, of_basis) -> Tensor:
        ridges, single = as_ridges(self.ridge if ridge is None else ridge)
        if self.data is None:
            return self._zero() if single else torch.zeros(len(ridges), dtype=torch.float64)
        if single:
            return of_factor(self.factor(ridges[0]))
        return of_basis(self.eigenbasis(), self._tensor(ridges, self.data.y))

    def _zero(self) -> Tensor:
        return torch.zeros((), dtype=torch.float64) if self.data is None else self.data.within.new_zeros(())
