"""Exact kernel ridge regression that grows by one row in O(n^2).

Notation: A = K + ridge C^-1 over the rows of ``observations.py``, A = L L', W = L^-1 k(X, x), z = L^-1 y.

On paper                         | in code
``mean = k(x)'A^-1 y``           | ``W.T @ z``
``variance = k - k(x)'A^-1 k(x)``| ``prior - (W * W).sum(0)``
``ln det(I + K / ridge)``        | ``2 sum ln L_ii - sum ln(ridge / c)``
``y'(I + K / ridge)^-1 y``       | ``within + ridge * z'z``
"""

from __future__ import annotations

import copy
import warnings

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo import checks
from kbo.errors import IllConditionedWarning, InvalidInput
from kbo.kernels import DenseKernel, freeze
from kbo.linalg import GrowingCholesky, GrowingTensor, ill_conditioned_ratio
from kbo.regression.base import Regression, Ridge, as_ridges, floored
from kbo.regression.observations import Observations

_CHUNK = {"cpu": 2**20, "cuda": 2**25}
"""Entries of k(X, x) that are evaluated at once, whatever the number of points; the peak is several times that."""

_MOST_FACTORS = 64
"""Ridges whose factor is kept; the least recently used one is dropped and would be recomputed."""


class KernelRidge(Regression):
    """The exact posterior: a growing Cholesky factor for every ridge that is asked for.

    One new row costs O(n^2) per ridge in use, a prediction O(n^2) per point. A ridge that was not used before
    costs one factorisation, O(n^3). Repeated points are counted (see ``observations.py``), so n may
    be far larger than the number of distinct points. Hyper-parameters are copied at construction.

    Args:
        kernel: An unbatched GPyTorch kernel.
        ridge: The regulariser, in units of the kernel; the noise variance in the GP reading.

    Raises:
        InvalidInput: The ridge is not positive, or the kernel cannot be used.

    Attributes:
        data: The observations, grouped into rows; None before the first.
        trace: ``Tr K``, the sum of ``k(x, x)`` over the observations.

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
        self.trace = torch.zeros(())
        self._k: DenseKernel | None = None
        self._kappa = 0.0
        self._factors: dict[float, _Factor] = {}
        self._cross: tuple[int, int, Tensor, Tensor] | None = None

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
        self.trace = self.trace + prior.sum()
        self._kappa = max(self._kappa, float(prior.max()))
        if self.data.epoch != epoch:
            self._factors.clear()

    def _begin(self, data: Observations) -> None:
        """From here on the state has the dtype and device of its data."""
        self.data = data
        self._k = freeze(self.kernel, data.X)
        self.trace = (self._k.diagonal(data.X) * data.counts).sum()

    def predict(self, X: Tensor, ridge: Ridge = None) -> tuple[Tensor, Tensor]:  # noqa: D102
        self.check(X)
        ridges, single = as_ridges(self.ridge if ridge is None else ridge)
        factors = self.factors(ridges) if self.data else []
        flat = X.reshape(-1, X.shape[-1])
        size = max(1, _CHUNK.get(X.device.type, 2**20) // max(1, self.data.rows if self.data else 1))
        parts = [self._predict(chunk, ridges, factors) for chunk in flat.split(size)]
        mean, variance = (torch.cat(part, -1) for part in zip(*parts, strict=True))
        shape = X.shape[:-1] if single else (len(ridges), *X.shape[:-1])
        return mean.reshape(shape), variance.reshape(shape)

    def _predict(self, X: Tensor, ridges: list[float], factors: list[_Factor]) -> tuple[Tensor, Tensor]:
        k = self._kernel_for(X)
        prior = k.diagonal(X)
        if self.data is None:
            return prior.new_zeros(len(ridges), len(X)), prior.expand(len(ridges), len(X))
        cross = k(self.data.X, X)
        means, variances = [], []
        for ridge, factor in zip(ridges, factors, strict=True):
            W = factor.cholesky.solve(cross)
            means.append(factor.z.value @ W)
            variances.append(floored(prior - (W * W).sum(0), prior, ridge, self.trace))
        return torch.stack(means), torch.stack(variances)

    def whitened(self, X: Tensor, ridge: float | None = None) -> tuple[Tensor, Tensor]:
        """Mean [... q] and W [... m q] with ``covariance(x, x') = k(x, x') - W(x)'W(x')``, for X [... q d]."""
        self.check(X)
        if self.data is None:
            return X.new_zeros(X.shape[:-1]), X.new_zeros(*X.shape[:-2], 0, X.shape[-2])
        flat = X.reshape(-1, X.shape[-1])
        factor = self.factor(self.ridge if ridge is None else ridge)
        W = factor.cholesky.solve(self._kernel_for(X)(self.data.X, flat))
        mean = (factor.z.value @ W).reshape(X.shape[:-1])
        return mean, W.reshape(len(W), *X.shape[:-1]).movedim(0, -2)

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
            W = self.whitened(X, r)[1]
            out.append(prior - W.mT @ (W if Z is X else self.whitened(Z, r)[1]))
        return out[0] if single else torch.stack(out)

    def log_det(self, ridge: Ridge = None) -> Tensor:  # noqa: D102
        return self._each(ridge, lambda factor: factor.log_det)

    def quad(self, ridge: Ridge = None) -> Tensor:  # noqa: D102
        return self._each(ridge, lambda factor: factor.quad)

    def effective_dimension(self, ridge: Ridge = None) -> Tensor:
        """``Tr K (K + ridge I)^-1`` in O(n^3)."""
        return self._each(ridge, lambda factor: factor.effective_dimension())

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
        if state:
            self._begin(Observations.from_state_dict(state))
            self.trace = state["trace"].clone()
            self._kappa = float(self.prior_variance(state["X"]).max())

    def factors(self, ridges: list[float]) -> list[_Factor]:
        """The factors of ``K + ridge C^-1``, grown to all rows."""
        try:
            return [self._factor(ridge) for ridge in ridges]
        finally:
            self._cross = None  # shared by the factors, but too large to keep

    def factor(self, ridge: float) -> _Factor:
        """The factor for one ridge; see ``factors``."""
        return self.factors([ridge])[0]

    def _factor(self, ridge: float) -> _Factor:
        assert self.data is not None
        factor = self._factors.pop(ridge, None)
        if factor is None:
            if ridge < ill_conditioned_ratio(self.data.X.dtype) * self._kappa:
                warnings.warn(
                    f"ridge = {ridge:.3g} is below the precision of {self.data.X.dtype} for a kernel of size "
                    f"{self._kappa:.3g}: bounds may be off by rounding. Use a larger ridge.",
                    IllConditionedWarning,
                    stacklevel=3,
                )
            factor = _Factor(ridge, self.data)
        for start, stop in self.data.blocks_after(factor.n):
            factor.extend(stop, *self._kernel_columns(start, stop))
        self._factors[ridge] = factor  # at the end of the dict: the most recently used
        if len(self._factors) > _MOST_FACTORS:
            del self._factors[next(iter(self._factors))]
        return factor

    @torch.no_grad()
    def _kernel_columns(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """k(old rows, new rows) and k(new rows, new rows); several factors in turn ask for the same."""
        if self._cross is None or self._cross[:2] != (start, stop):
            assert self.data is not None
            X, new = self.data.X, self.data.X[start:stop]
            k = self._kernel_for(X)
            self._cross = start, stop, k(X[:start], new), k(new, new)
        return self._cross[2:]

    def _kernel_for(self, X: Tensor) -> DenseKernel:
        return freeze(self.kernel, X) if self._k is None else self._k

    def check(self, X: Tensor) -> None:
        """Raise InvalidInput unless X [... d] is finite and fits the data in dtype, device and columns."""
        data = self.data
        checks.points("X", X, data.X if data else None, data.X.shape[-1] if data else None)

    def _each(self, ridge: Ridge, number) -> Tensor:
        ridges, single = as_ridges(self.ridge if ridge is None else ridge)
        factors = self.factors(ridges) if self.data else []
        out = torch.stack([number(factor) for factor in factors] or [self._zero() for _ in ridges])
        return out[0] if single else out

    def _zero(self) -> Tensor:
        return torch.zeros((), dtype=torch.float64) if self.data is None else self.data.within.new_zeros(())


class _Factor:
    """L, z = L^-1 y and the running determinant for one ridge."""

    def __init__(self, ridge: float, data: Observations) -> None:
        self.ridge, self.data = ridge, data
        self.cholesky = GrowingCholesky(data.X)
        self.z = GrowingTensor(data.y[:0])
        self.log_det = data.within.new_zeros(())

    @property
    def n(self) -> int:
        return self.cholesky.n

    @property
    def quad(self) -> Tensor:
        return self.data.within + self.ridge * self.z.value.square().sum()

    @torch.no_grad()
    def extend(self, stop: int, cross: Tensor, block: Tensor) -> None:
        """Take in the rows up to ``stop``, given their kernel columns."""
        start = self.n
        noise = self.ridge / self.data.counts[start:stop]
        regularised = block.clone()
        regularised.diagonal().add_(noise)
        self.cholesky.append(cross, regularised)
        left, corner = self.cholesky.rows(start, stop)
        rest = (self.data.y[start:stop] - left @ self.z.value).unsqueeze(-1)
        z = rest / corner if stop - start == 1 else torch.linalg.solve_triangular(corner, rest, upper=False)
        self.z.append(z.squeeze(-1))
        self.log_det = self.log_det + (corner.diagonal().square() / noise).log().sum()

    @torch.no_grad()
    def effective_dimension(self) -> Tensor:
        """``sum_r 1 - (ridge / c_r) [A^-1]_rr``: the sum of leverages over observations."""
        identity = torch.eye(self.n, dtype=self.data.X.dtype, device=self.data.X.device)
        inverse_diagonal = self.cholesky.solve(identity).square().sum(0)
        return (1 - self.ridge / self.data.counts * inverse_diagonal).sum()

    def fork(self, data: Observations) -> _Factor:
        copy = object.__new__(_Factor)
        copy.ridge, copy.data, copy.log_det = self.ridge, data, self.log_det
        copy.cholesky, copy.z = self.cholesky.fork(), self.z.fork()
        return copy
