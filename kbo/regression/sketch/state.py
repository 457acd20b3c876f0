"""Sketched kernel ridge regression: the DTC posterior of a dictionary, at a cost per step that does not grow with n.

Notation: dictionary Z of m points, L = chol k(Z, Z), z(x) = L^-1 k(Z, x), B = [z(x_1) .. z(x_n)], M = B B' + ridge I.

On paper                                       | in code
``mean = z'M^-1 B y``                          | ``weights``
``variance = k - |z|^2 + ridge z'M^-1 z``      | ``predict``; M^-1 = S S' in ``inverse_root.py``
``ln det(I + B'B / ridge)``                    | ``log_det``
``y'y - (By)'M^-1 By``                         | ``quad``
``E = K - B'B >= 0``                           | ``residual_trace``, ``residual_norm``

This is the posterior of BKB (Calandriello et al. 2019) and EK-UCB (Zenati et al. 2022, Prop. 4.2) in a whitened form
without explicit inverses. Its variance is that of the deterministic training conditional: not an upper bound of the
exact one. How B and M follow the observations says ``sketch.py``.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo import checks
from kbo.errors import InvalidInput
from kbo.kernels import freeze
from kbo.linalg import ill_conditioned_ratio
from kbo.regression.posterior import Posterior, Ridge, as_ridges, floored, in_chunks, warn_below_precision
from kbo.regression.resolvent import SpectralPath
from kbo.regression.ridge_path import CastPath, RidgePath
from kbo.regression.sketch.all_ridges import SketchedResolvent
from kbo.regression.sketch.dictionary import Dictionary
from kbo.regression.sketch.features import kept_for
from kbo.regression.sketch.stream import Sketch

_CHUNK = {"cpu": 2**19, "cuda": 2**26}
"""Entries of k(Z, x) that are evaluated at once."""

_MANY, _LARGE = 32, 1e-3
"""Points per anchor from which a question is worth an eigendecomposition, which halves the work per point; and the
ridge, as a fraction of the kernel, from which the variance has all its digits then."""


class NystromRidge(Posterior):
    """The posterior seen through the features of a dictionary: while it stays, the time of a step does not grow with n.

    At the state's own ridge a step costs O(m^2); every other ridge is answered exactly from one eigendecomposition of
    ``B B'`` after a change. Distinct locations are kept with their features (m + d + 5 numbers each), so that the
    dictionary may change. Features of nearly dependent points need all digits there are, so the state computes in
    float64 and answers in the dtype of its data.

    Args:
        kernel: An unbatched GPyTorch kernel.
        ridge: The regulariser, in units of the kernel; the noise variance in the GP reading.
        dictionary: Chooses the points that span the sketch; dependent ones are left out.

    Raises:
        InvalidInput: The ridge is not positive, or kernel or dictionary cannot be used.

    Example:
        >>> state = NystromRidge(RBFKernel(), 0.01, OnlineRowSampling(mu=0.01))
        >>> state.update(X, y)
        >>> mean, variance = state.predict(candidates)
    """

    def __init__(self, kernel: Kernel, ridge: float, dictionary: Dictionary) -> None:
        if not isinstance(dictionary, Dictionary):
            raise InvalidInput(
                "dictionary must be one of kbo.regression, for example FixedDictionary(points) or "
                f"OnlineRowSampling(mu), got {type(dictionary).__name__}."
            )
        self.ridge = checks.positive("ridge", ridge)
        self.kernel = copy.deepcopy(kernel)
        self.description = dictionary
        points = dictionary.points
        freeze(kernel, torch.empty(0) if points is None else points)  # a kernel that cannot be used is an error now
        self._begin(torch.empty(0, 0, dtype=torch.float64) if points is None else points[:0])

    def __repr__(self) -> str:
        return f"NystromRidge({type(self.kernel).__name__}, ridge={self.ridge:.4g}, n={self.n}, m={self.m})"

    def _begin(self, like: Tensor) -> None:
        """No observations, on the device of like [0 d], to be answered in its dtype; d = 0 as long as it is unknown."""
        self._like = like
        self.sketch = Sketch(self.kernel, self.ridge, self.description, like.double())
        self._changed()

    def _changed(self) -> None:
        self._resolvent: SketchedResolvent | None = None
        self._w: Tensor | None = None

    @property
    def n(self) -> int:
        """Number of observations, repeats included."""
        return self.sketch.n

    @property
    def m(self) -> int:
        """Number of anchors."""
        return self.sketch.m

    @property
    def anchors(self) -> Tensor:
        """The points of the dictionary that are in use, [m d]."""
        return self.sketch.features.anchors

    @property
    def dictionary(self) -> Dictionary:
        """The dictionary at work, with what it remembers."""
        return self.sketch.dictionary

    def move_ridge(self, ridge: float) -> None:
        """From here on the state's own ridge is this one, also for the dictionary; O(m^3)."""
        super().move_ridge(ridge)
        self.sketch.move_ridge(self.ridge)
        self._w = None

    def update(self, X: Tensor, y: Tensor) -> None:
        """Add observations X [r d], y [r] in place, one after the other unless the dictionary is fixed.

        Raises:
            InvalidInput: Wrong shape, dtype or device, or values that are not finite; nothing is added.
        """
        self._adopt(X)
        checks.observations(X, y, self._like, self._columns)
        if len(X) == 0:
            return
        # The caller may change theirs.
        self.sketch.update(X.detach().to(torch.float64, copy=True), y.detach().double())
        self._changed()

    # Questions

    def features(self, X: Tensor) -> Tensor:
        """``z(x)``, [m N] for X [N d], in float64."""
        return self.sketch.features(X.double())

    def predict(self, X: Tensor, ridge: Ridge = None) -> tuple[Tensor, Tensor]:  # noqa: D102
        self.check(X)
        ridges, single = as_ridges(self.ridge if ridge is None else ridge)
        self._warn(ridges)
        flat = X.reshape(-1, X.shape[-1])
        size = max(1, _CHUNK.get(X.device.type, 2**20) // max(1, self.m))
        if not single or ridges[0] != self.ridge:
            asked = X.new_tensor(ridges)
            mean, variance = in_chunks(lambda part: self._grid(part, asked), flat, size)
            mean, variance = (mean[0], variance[0]) if single else (mean, variance)
        else:
            many = len(flat) > _MANY * self.m and self.ridge >= _LARGE * (self.sketch.kappa or 1.0)
            mean, variance = in_chunks(self._halved() if many else self._moments, flat, size)
        shape = X.shape[:-1] if single else (len(ridges), *X.shape[:-1])
        return mean.reshape(shape), variance.reshape(shape)

    def _moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance [N] of X [N d] at the state's ridge."""
        dtype, X = X.dtype, X.double()
        z, prior = self.sketch.features(X), self.sketch.k.diagonal(X)
        form = (kept_for(z, self.sketch.root.S).mT @ z).square().sum(0)
        variance = (prior - z.square().sum(0)).clamp_min(0) + self.ridge * form
        return (self.weights @ z).to(dtype), self.floored(variance, prior).to(dtype)

    def _halved(self) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """The same for many points: ``|z|^2 - ridge z'M^-1 z = |V k(Z, x)|^2`` in one product instead of two."""
        basis = self._spectrum()
        whitener, shrunk = self.sketch.features.whitener, basis.values / (basis.values + self.ridge)
        V = shrunk.sqrt().unsqueeze(-1) * basis.vectors.mT @ whitener
        alpha = self.weights @ whitener

        def moments(X: Tensor) -> tuple[Tensor, Tensor]:
            dtype, X = X.dtype, X.double()
            columns, prior = self.sketch.features.columns(X), self.sketch.k.diagonal(X)
            mean = alpha @ columns
            variance = prior - (V @ columns).square_().sum(0)
            return mean.to(dtype), self.floored(variance, prior).to(dtype)

        return moments

    def floored(self, variance: Tensor, prior: Tensor) -> Tensor:
        """Variances at the state's ridge, lifted to their least possible value."""
        return floored(variance, prior, self.ridge, self.sketch.trace)

    def _grid(self, X: Tensor, ridges: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance [r N] of X [N d] at the ridges [r]."""
        moments = self.ridge_path(X.unsqueeze(-2)).grid(ridges)
        return moments.mean.squeeze(-1), moments.covariance[..., 0, 0]

    @property
    def weights(self) -> Tensor:
        """``M^-1 B y`` at the state's ridge, [m]: the mean is ``weights'z(x)``."""
        w = self._w
        if w is None:
            w = self._w = self.sketch.root.S @ (self.sketch.By @ self.sketch.root.S)
        return w

    def ridge_path(self, X: Tensor) -> RidgePath:
        """The posterior of groups X [... g d] as a function of the ridge."""
        self.check(X)
        dtype, X = X.dtype, X.reshape(-1, *X.shape[-2:]).double()
        B, g = X.shape[:2]
        Z = self.sketch.features(X.reshape(B * g, X.shape[-1]))
        path = self.path_of(Z, self.sketch.k.diagonal(X), None if g == 1 else self.sketch.k(X, X))
        return path if dtype == torch.float64 else CastPath(path, dtype)

    def path_of(self, Z: Tensor, variance: Tensor, prior: Tensor | None = None) -> SpectralPath:
        """The path of points with features Z [m Bg], ``k(x, x)`` [B g] and, for groups of several, ``k`` [B g g]."""
        grouped = Z.reshape(len(Z), *variance.shape)
        if prior is None:
            residual = (variance - grouped.square().sum(0)).clamp_min(0).unsqueeze(-1)
        else:
            residual = prior - torch.einsum("mbg,mbh->bgh", grouped, grouped)
        basis = self._spectrum()
        return SpectralPath(basis, *basis.coordinates(Z), residual, variance, variance.new_tensor(self.sketch.trace))

    def covariance(self, X: Tensor, Z: Tensor, ridge: Ridge = None) -> Tensor:  # noqa: D102
        self.check(X)
        self.check(Z)
        ridges, single = as_ridges(self.ridge if ridge is None else ridge)
        dtype, X, Z = X.dtype, X.double(), Z.double()
        prior = self.sketch.k(X, Z)
        f, g = (self.sketch.features(P.reshape(-1, P.shape[-1])) for P in (X, Z))
        self._warn(ridges)
        residual = prior - _pairs(f, g, X, Z)
        out = [residual + r * _pairs(self._whitened(f, r), self._whitened(g, r), X, Z) for r in ridges]
        return (out[0] if single else torch.stack(out)).to(dtype)

    def _whitened(self, features: Tensor, ridge: float) -> Tensor:
        """A square root of ``M^-1`` at the ridge, times features [m N]."""
        if ridge == self.ridge:
            return kept_for(features, self.sketch.root.S).mT @ features
        basis = self._spectrum()
        return basis.whiten(*basis.coordinates(features), features.new_tensor(ridge))[0]

    def explained(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """U and V [r N] with ``covariance(x, z) = prior(x, z) - U(x)'V(z)`` at the state's ridge, for X [N d]."""
        self.check(X)
        z = self.features(X)
        rest = math.sqrt(self.ridge) * self._whitened(z, self.ridge)
        return torch.cat([z, -rest]).to(X.dtype), torch.cat([z, rest]).to(X.dtype)

    def log_det(self, ridge: Ridge = None) -> Tensor:  # noqa: D102
        return self._number(ridge, SketchedResolvent.log_det, self.sketch.log_det)

    def quad(self, ridge: Ridge = None) -> Tensor:  # noqa: D102
        return self._number(ridge, SketchedResolvent.quad, lambda: self.sketch.quad(self.weights))

    def rss(self, ridge: Ridge = None) -> Tensor:  # noqa: D102
        return self._number(ridge, SketchedResolvent.rss, lambda: self.sketch.rss(self.weights))

    def effective_dimension(self, ridge: Ridge = None) -> Tensor:
        """``Tr B'B (B'B + ridge I)^-1``, the effective dimension of the sketched kernel matrix."""
        return self._number(ridge, SketchedResolvent.effective_dimension, self.sketch.effective_dimension)

    @property
    def trace(self) -> Tensor:  # noqa: D102
        return self._answer(self.sketch.trace)

    @property
    def least_ridge(self) -> float:  # noqa: D102
        return ill_conditioned_ratio(torch.float64) * (self.sketch.kappa or 1.0)

    @property
    def residual_trace(self) -> Tensor:
        """``Tr E``, the sum of ``k(x, x) - |z(x)|^2`` over the observations, lifted by its rounding error."""
        return self._answer(self.sketch.residual_trace())

    def residual_norm(self) -> Tensor:
        """An upper bound of the operator norm of E; see ``residual.py``."""
        return self._answer(self.sketch.residual_norm())

    @property
    def rounding(self) -> float:  # noqa: D102
        return self.sketch.rounding

    def prior(self, X: Tensor, Z: Tensor) -> Tensor:
        """The kernel ``k(X, Z)`` [... a b] itself."""
        self._adopt(X)
        return self.sketch.k(X.double(), Z.double()).to(X.dtype)

    def prior_variance(self, X: Tensor) -> Tensor:
        """``k(x, x)`` [...] for X [... d]."""
        self._adopt(X)
        return self.sketch.k.diagonal(X.double()).to(X.dtype)

    # Plumbing

    @property
    def _columns(self) -> int | None:
        return self._like.shape[-1] or None

    def check(self, X: Tensor) -> None:
        """Raise InvalidInput unless X [... d] is finite and fits the data in dtype, device and columns."""
        self._adopt(X)
        checks.points("X", X, self._like, self._columns)

    def _adopt(self, X: Tensor) -> None:
        """Before the first observation the state moves to the dtype, device and columns of whatever it is shown."""
        if self.n or not isinstance(X, Tensor) or X.dtype not in (torch.float64, torch.float32) or not X.ndim:
            return
        like, points = self._like, self.description.points
        columns = X.shape[-1] if points is None else points.shape[-1]
        if columns and (X.dtype, X.device, columns) != (like.dtype, like.device, like.shape[-1]):
            self._begin(X.new_empty(0, columns))

    def hold(self) -> Dictionary:
        """From here on the dictionary stays as it is; what is returned says when it would have changed (``due``)."""
        return self.sketch.hold()

    def fork(self) -> NystromRidge:
        """An independent copy, with a dictionary that goes on as this one would."""
        fork = object.__new__(NystromRidge)
        vars(fork).update(vars(self))
        fork.sketch = self.sketch.fork()
        return fork

    def state_dict(self) -> dict[str, Any]:
        """Everything but kernel, ridge and the description of the dictionary, to continue exactly."""
        return {"like": self._like, **self.sketch.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of ``state_dict``, for a state with equal kernel, ridge and dictionary."""
        self._begin(state["like"])
        self.sketch.load_state_dict(state)

    def _warn(self, ridges: list[float]) -> None:
        if self.n:
            warn_below_precision(min(ridges), self)

    def _spectrum(self) -> SketchedResolvent:
        if self._resolvent is None:
            with torch.no_grad():
                self._resolvent = SketchedResolvent(self.sketch.G, self.sketch.By, self.sketch.yy)
        return self._resolvent

    def _answer(self, value: float | Tensor) -> Tensor:
        """In the dtype of the data."""
        return value.to(self._like.dtype) if isinstance(value, Tensor) else self._like.new_tensor(value)

    def _number(self, ridge: Ridge, of_basis, own) -> Tensor:
        ridges, single = as_ridges(self.ridge if ridge is None else ridge)
        self._warn(ridges)
        if single and ridges[0] == self.ridge:
            return self._answer(own())
        values = of_basis(self._spectrum(), self.sketch.By.new_tensor(ridges))
        return self._answer(values[0] if single else values)


def _pairs(a: Tensor, b: Tensor, X: Tensor, Z: Tensor) -> Tensor:
    """``a(x)'b(x')`` [... a b] for columns a [m N], b [m N'] of the points of X [... a d], Z [... b d]."""
    left, right = a.reshape(len(a), *X.shape[:-1]).movedim(0, -1), b.reshape(len(b), *Z.shape[:-1]).movedim(0, -2)
    return left @ right
