"""Sketched kernel ridge regression: the DTC posterior of a dictionary, at a cost that does not grow with n.

Notation: dictionary Z of m points, L = chol k(Z, Z), z(x) = L^-1 k(Z, x), B = [z(x_1) .. z(x_n)], M = B B' + ridge I.

On paper                                       | in code
``mean = z'M^-1 B y``                          | ``SketchedResolvent`` with A = B B'
``variance = k - |z|^2 + ridge z'M^-1 z``      | the same
``ln det(I + B'B / ridge)``                    | ``log_det``
``y'y - (By)'M^-1 By``                         | ``quad``
``E = K - B'B >= 0``                           | ``residual_trace``, ``residual_norm``

This is the posterior of BKB (Calandriello et al. 2019) and EK-UCB (Zenati et al. 2022, Prop. 4.2) in a whitened form
without explicit inverses. Its variance is that of the deterministic training conditional: not an upper bound of the
exact one.
"""

from __future__ import annotations

import copy

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo import checks
from kbo.errors import InvalidInput
from kbo.kernels import DenseKernel, freeze
from kbo.linalg import cholesky, ill_conditioned_ratio
from kbo.regression.base import Regression, Ridge, as_ridges, warn_below_precision
from kbo.regression.dictionaries import FixedDictionary, anchors
from kbo.regression.path import CastPath, RidgePath
from kbo.regression.residual import ResidualNorm
from kbo.regression.spectral import Resolvent, SpectralPath

_CHUNK = {"cpu": 2**20, "cuda": 2**25}
"""Entries of k(Z, x) that are evaluated at once."""


class NystromRidge(Regression):
    """The posterior seen through the features of a dictionary: memory and time per step do not grow with n.

    Every ridge is answered exactly from one eigendecomposition of ``B B'``, made anew after every change. Features of
    nearly dependent points need all digits there are, so the state computes in float64 and answers in the dtype of
    its data.

    Args:
        kernel: An unbatched GPyTorch kernel.
        ridge: The regulariser, in units of the kernel; the noise variance in the GP reading.
        dictionary: The points that span the sketch; dependent ones are left out.

    Raises:
        InvalidInput: The ridge is not positive, or kernel or dictionary cannot be used.

    Attributes:
        anchors: The points of the dictionary that are in use, [m d].

    Example:
        >>> state = NystromRidge(RBFKernel(), 0.01, FixedDictionary(torch.rand(100, 2, dtype=torch.double)))
        >>> state.update(X, y)
        >>> mean, variance = state.predict(candidates)
    """

    def __init__(self, kernel: Kernel, ridge: float, dictionary: FixedDictionary) -> None:
        if not isinstance(dictionary, FixedDictionary):
            raise InvalidInput(f"dictionary must be a kbo.regression.FixedDictionary, got {type(dictionary).__name__}.")
        self.ridge = checks.positive("ridge", ridge)
        self.dictionary = dictionary
        self.kernel = copy.deepcopy(kernel)
        self._begin(dictionary.points)

    def __repr__(self) -> str:
        return f"NystromRidge({type(self.kernel).__name__}, ridge={self.ridge:.4g}, n={self.n}, m={len(self.anchors)})"

    @torch.no_grad()
    def _begin(self, Z: Tensor) -> None:
        """No observations, on the device of Z, to be answered in its dtype."""
        self._like = Z[:0]
        Z = Z.double()
        self._k: DenseKernel = freeze(self.kernel, Z)
        gram = self._k(Z, Z)
        kept = anchors(gram)
        self.anchors = Z[kept]
        m = len(kept)
        L = cholesky(gram[kept][:, kept])
        self._whitener = torch.linalg.solve_triangular(L, torch.eye(m).to(Z), upper=False)
        self._n, self._kappa = 0, 0.0
        self._trace, self._residual_trace = Z.new_zeros(()), Z.new_zeros(())
        self._basis = SketchedResolvent(m, Z)
        self._residual = ResidualNorm(Z)

    @property
    def n(self) -> int:
        """Number of observations, repeats included."""
        return self._n

    @torch.no_grad()
    def update(self, X: Tensor, y: Tensor) -> None:
        """Add observations X [r d], y [r] in place: O(m^2) each, and O(m^3) once for the next question.

        Raises:
            InvalidInput: Wrong shape, dtype or device, or values that are not finite; nothing is added.
        """
        self._adopt(X)
        checks.observations(X, y, self._like, self.anchors.shape[-1])
        if len(X) == 0:
            return
        X, y = X.detach().to(torch.float64, copy=True), y.detach().double()  # the caller may change theirs
        features, prior = self.features(X), self.prior_variance(X)
        # Lifted by its rounding error, so that rounding never makes the sketch look better than it is.
        rounding = 4 * torch.finfo(torch.float64).eps * len(self.anchors) * prior
        residual = (prior - features.square().sum(0)).clamp_min(0) + rounding
        self._n += len(X)
        self._trace = self._trace + prior.sum()
        self._residual_trace = self._residual_trace + residual.sum()
        self._kappa = max(self._kappa, float(prior.max()))
        self._basis.update(features, y)
        self._residual.update(self._k, X, features, residual)

    def features(self, X: Tensor) -> Tensor:
        """``z(x)``, [m N] for X [N d]."""
        return self._whitener @ self._k(self.anchors, X)

    def predict(self, X: Tensor, ridge: Ridge = None) -> tuple[Tensor, Tensor]:  # noqa: D102
        self.check(X)
        ridges, single = as_ridges(self.ridge if ridge is None else ridge)
        flat = X.reshape(-1, 1, X.shape[-1])
        size = max(1, _CHUNK.get(X.device.type, 2**20) // max(1, len(self.anchors)))
        self._warn(ridges)
        asked = X.new_tensor(ridges)
        parts = [self.ridge_path(chunk).grid(asked)[:2] for chunk in flat.split(size)]
        mean, covariance = (torch.cat(part, 1) for part in zip(*parts, strict=True))
        shape = X.shape[:-1] if single else (len(ridges), *X.shape[:-1])
        return mean.reshape(shape), covariance.reshape(shape)

    def _answer(self, value: Tensor) -> Tensor:
        """In the dtype of the data."""
        return value.to(self._like.dtype)

    def ridge_path(self, X: Tensor) -> RidgePath:
        """The posterior of groups X [... g d] as a function of the ridge."""
        self.check(X)
        dtype, X = X.dtype, X.reshape(-1, *X.shape[-2:]).double()
        B, g = X.shape[:2]
        Z = self.features(X.reshape(B * g, X.shape[-1]))
        grouped = Z.reshape(len(Z), B, g)
        variance = self.prior_variance(X)
        if g > 1:
            residual = self._k(X, X) - torch.einsum("mbg,mbh->bgh", grouped, grouped)
        else:
            residual = (variance - grouped.square().sum(0)).clamp_min(0).unsqueeze(-1)
        basis = self._basis.current()
        path = SpectralPath(basis, *basis.coordinates(Z), residual, variance, self._trace)
        return path if dtype == torch.float64 else CastPath(path, dtype)

    def covariance(self, X: Tensor, Z: Tensor, ridge: Ridge = None) -> Tensor:  # noqa: D102
        self.check(X)
        self.check(Z)
        ridges, single = as_ridges(self.ridge if ridge is None else ridge)
        X, Z = X.double(), Z.double()
        prior = self._k(X, Z)
        f, g = (self.features(P.reshape(-1, P.shape[-1])) for P in (X, Z))
        self._warn(ridges)
        residual, basis = prior - _pairs(f, g, X, Z), self._basis.current()
        out = []
        for r in X.new_tensor(ridges):
            a, b = (basis.whiten(*basis.coordinates(p), r)[0] for p in (f, g))
            out.append(residual + r * _pairs(a, b, X, Z))
        return self._answer(out[0] if single else torch.stack(out))

    def log_det(self, ridge: Ridge = None) -> Tensor:  # noqa: D102
        return self._number(ridge, SketchedResolvent.log_det)

    def quad(self, ridge: Ridge = None) -> Tensor:  # noqa: D102
        return self._number(ridge, SketchedResolvent.quad)

    def effective_dimension(self, ridge: Ridge = None) -> Tensor:
        """``Tr B'B (B'B + ridge I)^-1``, the effective dimension of the sketched kernel matrix."""
        return self._number(ridge, SketchedResolvent.effective_dimension)

    @property
    def trace(self) -> Tensor:  # noqa: D102
        return self._answer(self._trace)

    @property
    def least_ridge(self) -> float:  # noqa: D102
        return ill_conditioned_ratio(self._like.dtype) * (self._kappa or 1.0)

    @property
    def residual_trace(self) -> Tensor:
        """``Tr E``, a running sum of ``k(x, x) - |z(x)|^2``."""
        return self._answer(self._residual_trace)

    def residual_norm(self) -> Tensor:
        """An upper bound of the operator norm of E; see ``residual.py``."""
        return self._answer(torch.minimum(self._residual.bound(self._k), self._residual_trace))

    def prior(self, X: Tensor, Z: Tensor) -> Tensor:
        """The kernel ``k(X, Z)`` [... a b] itself."""
        return self._k(X.double(), Z.double()).to(X.dtype)

    def prior_variance(self, X: Tensor) -> Tensor:
        """``k(x, x)`` [...] for X [... d]."""
        return self._k.diagonal(X.double()).to(X.dtype)

    def check(self, X: Tensor) -> None:
        """Raise InvalidInput unless X [... d] is finite and fits the dictionary in dtype, device and columns."""
        self._adopt(X)
        checks.points("X", X, self._like, self.anchors.shape[-1])

    def _adopt(self, X: Tensor) -> None:
        """Before the first observation the state moves to the dtype and device of whatever it is shown."""
        fits = isinstance(X, Tensor) and X.dtype in (torch.float64, torch.float32)
        if fits and not self.n and (X.dtype, X.device) != (self._like.dtype, self._like.device):
            self._begin(self.dictionary.points.to(X))

    def fork(self) -> NystromRidge:
        """A copy to update hypothetically; tensors are shared until they change."""
        fork = object.__new__(NystromRidge)
        vars(fork).update(vars(self))
        fork._basis, fork._residual = copy.copy(self._basis), self._residual.fork()
        return fork

    def _warn(self, ridges: list[float]) -> None:
        if self.n:
            warn_below_precision(min(ridges), self)

    def _number(self, ridge: Ridge, of_basis) -> Tensor:
        ridges, single = as_ridges(self.ridge if ridge is None else ridge)
        self._warn(ridges)
        values = of_basis(self._basis.current(), self.anchors.new_tensor(ridges))
        return self._answer(values[0] if single else values)


def _pairs(a: Tensor, b: Tensor, X: Tensor, Z: Tensor) -> Tensor:
    """``a(x)'b(x')`` [... a b] for columns a [m N], b [m N'] of the points of X [... a d], Z [... b d]."""
    left, right = a.reshape(len(a), *X.shape[:-1]).movedim(0, -1), b.reshape(len(b), *Z.shape[:-1]).movedim(0, -2)
    return left @ right


class SketchedResolvent(Resolvent):
    """``(B B' + a I)^-1`` for every a: one decomposition of an m by m matrix after every change, O(m^3).

    Args:
        m: Number of features.
        like: A tensor of the right dtype and device.
    """

    def __init__(self, m: int, like: Tensor) -> None:
        self.G, self.By, self.rest = like.new_zeros(m, m), like.new_zeros(m), like.new_zeros(())
        self.C = like.new_empty(m, 0)
        self._snapshot: SketchedResolvent | None = None

    def update(self, features: Tensor, y: Tensor) -> None:
        """Take in the features [m r] and targets [r] of new observations, O(m^2) each."""
        self.G, self.By = self.G + features @ features.mT, self.By + features @ y
        self.rest = self.rest + y @ y
        self._snapshot = None

    @torch.no_grad()
    def current(self) -> SketchedResolvent:
        """The decomposition of all that it has seen: a copy that later updates leave alone."""
        if self._snapshot is None:
            snapshot = copy.copy(self)
            values, snapshot.vectors = torch.linalg.eigh(self.G)
            snapshot.values = values.clamp_min(0)
            snapshot.target = snapshot.vectors.mT @ self.By, self.By[:0]
            snapshot.memory = {}
            self._snapshot = snapshot
        return self._snapshot

    def border(self, ridges: Tensor) -> Tensor:  # noqa: D102
        return ridges.new_empty(len(ridges), 0, 0)

    def covariance(self, prior: Tensor, form: Tensor, ridges: Tensor) -> Tensor:  # noqa: D102
        return prior + ridges * form

    def quad_of(self, form: Tensor, ridges: Tensor) -> Tensor:  # noqa: D102
        return (self.rest - form).clamp_min(0)

    def log_det(self, ridges: Tensor) -> Tensor:
        """``ln det(I + B'B / a)``, [r]."""
        return torch.log1p(self.values / ridges.unsqueeze(-1)).sum(-1)

    def effective_dimension(self, ridges: Tensor) -> Tensor:
        """``Tr B'B (B'B + a I)^-1``, [r]."""
        return (self.values * self.weights(ridges)).sum(-1)

    def coordinates(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Features [m q] in the basis [m q], and nothing at the border [0 q]."""
        return self.vectors.mT @ features, features[:0]
