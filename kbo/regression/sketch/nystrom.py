"""``NystromRidge``: sketched kernel ridge regression, at a cost per step that does not grow with n.

Notation: inducing points Z, L = chol k(Z, Z), z(x) = L^-1 k(Z, x), B = [z(x_1) .. z(x_n)],
M = B B' + ridge I, S S' = M^-1 (``inverse_root.py``), E = K - B'B >= 0 (``error.py``).

On paper                                                   | in code
``w = M^-1 B y``                                           | ``NystromAt.weights``
``mean = z'w = (S'B y)'(S'z)``                             | ``NystromAt.predict``
``variance = k(x, x) - |z|^2 + ridge z'M^-1 z``            | ``dtc_variance``
``ln det(I + B'B / ridge)``                                | ``NystromAt.log_det``
``y'y - (By)'w``                                           | ``NystromAt.quad``
``|y - B'w|^2 = quad - ridge |w|^2``                       | ``NystromAt.rss``
the same for every ridge                                   | ``NystromSpectrum``

This is the posterior of BKB (Calandriello et al. 2019) and EK-UCB (Zenati et al. 2022, Prop. 4.2),
in a whitened form without explicit inverses. Its variance is that of the deterministic training
conditional (``inverse_root.py``), which is no upper bound of the exact variance. At the state's own ridge
``M^-1`` is updated with every observation, O(m^2). Other ridges use the eigenvalues of ``B B'``.
"""

from __future__ import annotations

import copy
import math
from functools import cached_property
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo._base import checks
from kbo._base.linalg import GrowingTensor
from kbo._base.stateful import delegated_to
from kbo.kernels import freeze
from kbo.regression.all_ridges import AllRidges
from kbo.regression.error import Error
from kbo.regression.numerics import block_of, clamped, in_chunks, warn_below_precision
from kbo.regression.posterior import Columns, LowRankPosteriorAt, Posterior, PosteriorAt
from kbo.regression.sampling import SamplePath
from kbo.regression.sketch.data import Sketch
from kbo.regression.sketch.dictionary import Dictionary
from kbo.regression.sketch.error import NystromError
from kbo.regression.sketch.features import constant_for
from kbo.regression.sketch.inverse_root import InverseRoot, dtc_variance
from kbo.regression.spectral_ridges import Resolvent, spectral_ridges

_BLOCK = 2**19
"""Number of entries of k(Z, x) that are evaluated at once."""

_MANY = 32
"""Points per inducing point above which a prediction uses the eigendecomposition, which halves the
work per point."""

_LARGE = 1e-3
"""Smallest ridge, as a fraction of the kernel, at which its variances have all their digits."""

_NULL = 1e-15
"""Fraction of the sum of the eigenvalues of ``B B'`` below which an eigenvalue counts as 0."""


class NystromRidge(Posterior):
    """An approximate posterior for many observations, spanned by few inducing points.

    A dictionary chooses the inducing points. The approximation is the deterministic training
    conditional (Nystrom features). While the dictionary stays, an update at the state's own ridge
    costs O(m^2), for any n. Other ridges are computed from one eigendecomposition of ``B B'`` after
    a change.

    It keeps the distinct locations (d + 5 numbers each), and their features (m numbers) if the
    dictionary may change. It computes in float64, which features of nearly dependent points need;
    its numbers have the dtype of its data.

    Args:
        kernel: An unbatched GPyTorch kernel.
        ridge: The regulariser, in units of the kernel; the noise variance in the GP reading.
        dictionary: Chooses the inducing points; dependent ones are left out.

    Raises:
        InvalidInput: The ridge is not positive, or kernel or dictionary cannot be used.

    Attributes:
        m: Number of inducing points that are in use.
        anchors: The inducing points, [m d].
        dictionary: The dictionary in use, with its memory.
        sketch: The data.

    Example:
        >>> state = NystromRidge(RBFKernel(), 0.01, OnlineRowSampling(mu=0.01))
        >>> state.update(X, y)
        >>> mean, variance = state.predict(candidates)
    """

    def __init__(self, kernel: Kernel, ridge: float, dictionary: Dictionary) -> None:
        hint = ": take for example FixedDictionary(points) or OnlineRowSampling(mu)"
        checks.instance("dictionary", dictionary, Dictionary, hint)
        super().__init__(ridge)
        self._kernel: Kernel = copy.deepcopy(checks.kernel(kernel))
        self.description = dictionary
        points = dictionary.points
        if points is None:
            points = torch.empty(0, 0, dtype=torch.float64, device="cpu")
        freeze(kernel, points)  # raises an error now if the kernel cannot be used
        self._begin(points[:0])

    def __repr__(self) -> str:
        kernel = type(self.kernel).__name__
        return f"NystromRidge({kernel}, ridge={self.ridge:.4g}, n={self.n}, m={self.m})"

    def _begin(self, like: Tensor) -> None:
        """Start without observations, on the device and in the dtype of like [0 d]; d = 0: unknown."""
        self.like = like
        self.sketch: Sketch = Sketch(self.kernel, self.ridge, self.description, like.double())
        self.changed()

    def changed(self) -> None:
        super().changed()
        self._spectrum: NystromSpectrum | None = None

    @property
    def kernel(self) -> Kernel:
        """The kernel that was copied at construction."""
        return self._kernel

    n: int = delegated_to("sketch.n")
    m: int = delegated_to("sketch.m")
    trace: float = delegated_to("sketch.trace")
    anchors: Tensor | None = delegated_to("sketch.features.anchors")
    dictionary: Dictionary = delegated_to("sketch.dictionary")
    needs_refresh: bool = delegated_to("sketch.dictionary.needs_refresh")

    def update(self, X: Tensor, y: Tensor, weights: Tensor | None = None) -> None:
        """Add observations X [r d], y [r], one by one unless the dictionary takes blocks."""
        self._adopt(X)
        new = self.check_data(X, y, weights)
        if len(X) == 0:
            return
        new = new._replace(X=X.double(), y=y.double(), weights=new.weights.double())
        try:
            self.sketch.update(new)
        finally:  # also after an interrupt, when the data may have changed
            if self.sketch.weighted or self.sketch.repeats[0]:
                self.note(weighted=self.sketch.weighted, repeats=self.sketch.repeats)
            self.changed()

    def move_ridge(self, ridge: float) -> None:
        """Replace the ridge, also in the sketch; O(m^3)."""
        self.sketch.move_ridge(checks.positive("ridge", ridge))
        super().move_ridge(ridge)

    def prior(self, X: Tensor, Z: Tensor) -> Tensor:
        self._adopt(X)
        return self.sketch.k(X.double(), Z.double()).to(X.dtype)

    def prior_variance(self, X: Tensor) -> Tensor:
        self._adopt(X)
        return self.sketch.k.diagonal(X.double()).to(X.dtype)

    def _new_at(self, ridge: float) -> PosteriorAt:
        """Return the posterior at a ridge, also without data; O(m^2) at the state's own ridge."""
        return self.compute_at(ridge)

    def compute_at(self, ridge: float) -> PosteriorAt:
        if self.n:
            warn_below_precision(ridge, self.error.least_ridge)
        return NystromAt(self, ridge)

    def across(self, X: Tensor | None = None) -> AllRidges:
        if X is not None:
            self.check(X)
        return spectral_ridges(self, self.spectrum(), X)

    def columns(self, points: Tensor) -> SketchColumns:
        return SketchColumns(self, points)

    @torch.no_grad()
    def spectrum(self) -> NystromSpectrum:
        """Return the eigendecomposition of the data, for every ridge, O(m^3) after a change."""
        if self._spectrum is None:
            self._spectrum = NystromSpectrum(self.sketch)
        return self._spectrum

    def root(self, ridge: float) -> InverseRoot:
        """Return ``M^-1`` at a ridge."""
        if ridge == self.sketch.ridge:
            return self.sketch.root
        return InverseRoot(self.sketch.G, ridge)

    @property
    def error(self) -> Error:
        return NystromError(self)

    @property
    def locations(self) -> tuple[Tensor, Tensor] | None:
        return self.sketch.rows.X, self.sketch.rows.counts.clone()

    def fork_frozen(self) -> NystromRidge:
        fork = self.fork()
        fork.sketch.dictionary = fork.sketch.dictionary.frozen()
        return fork

    def check(self, X: Tensor, name: str = "X") -> None:
        self._adopt(X, name)
        super().check(X, name)

    def _adopt(self, X: Tensor, name: str = "X") -> None:
        """Take over the dtype, device and columns of points X, before the first observation."""
        floats = (torch.float64, torch.float32)
        if self.n or checks.tensor(name, X).dtype not in floats or X.ndim == 0:
            return
        points = self.description.points
        columns = X.shape[-1] if points is None else points.shape[-1]
        like = self.like
        if columns and (X.dtype, X.device, columns) != (like.dtype, like.device, like.shape[-1]):
            self._begin(X.new_empty(0, columns))


class NystromAt(LowRankPosteriorAt):
    """A sketched posterior at one ridge."""

    state: Any  # a NystromRidge, which makes this
    sketch: Sketch = delegated_to("state.sketch")

    @cached_property
    def root(self) -> InverseRoot:
        """``M^-1`` at the ridge."""
        return self.state.root(self.ridge)

    @cached_property
    def whitened(self) -> Tensor:
        """``S'B y``, [m]."""
        return self.sketch.By @ self.root.S

    @cached_property
    def weights(self) -> Tensor:
        """``M^-1 B y``, [m]."""
        return self.root.S @ self.whitened

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        self.state.check(X)
        points = X.reshape(-1, X.shape[-1])
        m = self.sketch.m
        is_large = self.ridge >= _LARGE * (self.sketch.kappa or 1.0)
        if len(points) > _MANY * m and is_large:
            moments = self.state.across(points.unsqueeze(-2)).grid([self.ridge])
            mean = moments.mean
            variance = moments.covariance
        else:
            size = max(1, block_of(_BLOCK, X.device) // max(1, m))
            mean, variance = in_chunks(self._mean_and_variance, points, size)
        return mean.reshape(X.shape[:-1]), variance.reshape(X.shape[:-1])

    def _mean_and_variance(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance, [N] each, of X [N d]."""
        dtype = X.dtype
        X = X.double()
        z = self.sketch.features(X)
        whitened = constant_for(z, self.root.S).mT @ z
        residual, prior = self.sketch.features.residual(X, z)
        variance = dtc_variance(residual, whitened.square().sum(0), self.ridge)
        variance = clamped(variance, prior, self.ridge, self.sketch.trace)
        return (self.whitened @ whitened).to(dtype), variance.to(dtype)

    def factored(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        self.state.check(X)
        z = self.sketch.features(X.reshape(-1, X.shape[-1]).double())
        whitened = constant_for(z, self.root.S).mT @ z
        scaled = math.sqrt(self.ridge) * whitened
        U = torch.cat([z, -scaled])
        V = torch.cat([z, scaled])
        U = U.reshape(len(U), *X.shape[:-1]).movedim(0, -2)
        V = V.reshape(len(V), *X.shape[:-1]).movedim(0, -2)
        mean = (self.weights @ z).reshape(X.shape[:-1])
        return mean.to(X.dtype), U.to(X.dtype), V.to(X.dtype)

    def log_det(self) -> Tensor:
        return self._number(self.root.log_det if self.sketch.n else 0.0)

    def quad(self) -> Tensor:
        return (self.sketch.yy - self.sketch.By @ self.weights).clamp_min(0).to(self.state.like)

    def rss(self) -> Tensor:
        shrinkage = self.ridge * self.weights.square().sum().to(self.state.like)
        return (self.quad() - shrinkage).clamp_min(0)

    def effective_dimension(self) -> Tensor:
        """Return ``Tr B'B M^-1 = m - ridge Tr M^-1``, [], of the sketched kernel matrix."""
        if self.sketch.n == 0:
            return self._number(0.0)
        return (self.sketch.m - self.ridge * self.root.S.square().sum()).to(self.state.like)

    def _number(self, value: float) -> Tensor:
        """Return a number as a tensor [] in the dtype of the data."""
        return self.state.like.new_full((), value)

    # Draws; ``sampling.py`` states their law

    def weight_draws(self, count: int, generator: torch.Generator | None) -> Tensor:
        """Return draws of ``N(0, ridge M^-1)``, [m count]: feature weights less their mean."""
        normal = torch.randn(
            self.sketch.m, count, generator=generator, dtype=torch.float64, device="cpu"
        )
        return math.sqrt(self.ridge) * self.root.S @ normal.to(self.root.S.device)

    def compute_draws(self, X: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
        """Return draws [count N]; the features are drawn jointly, the residual point by point."""
        weights = self.weight_draws(count, generator)
        normal = residual_noise(X, count, generator)
        draws = X.new_empty(count, len(X))
        size = max(1, block_of(_BLOCK, X.device) // max(1, self.sketch.m))
        for start in range(0, len(X), size):
            block = slice(start, start + size)
            points = X[block].double()
            z = self.sketch.features(points)
            residual, _ = self.sketch.features.residual(points, z)
            draws[:, block] = weights.mT @ z + residual.sqrt() * normal[:, block]
        return draws

    @torch.no_grad()
    def compute_drawn_function(self, like: Tensor, generator: torch.Generator | None) -> SamplePath:
        """Return ``z(x)'w + h(x) - z(x)'L^-1 h(Z)``, h from the prior."""
        prior = self.state.draw_prior(like.double(), generator)
        features = self.sketch.features.fork()  # the draw stays when the dictionary changes
        weights = self.weight_draws(1, generator)
        at_inducing_points = prior(features.anchors).unsqueeze(-1)
        projected = features.solve(at_inducing_points)
        return SamplePath(prior, features, (weights - projected).squeeze(-1))


def residual_noise(X: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
    """Return standard normal numbers e [count N], for the residual part of draws at X [N d].

    A draw is ``z(x)'w + sqrt(residual) e`` with w from ``N(0, ridge M^-1)``.
    """
    shape = (count, len(X))
    normal = torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")
    return normal.to(X.device)


class NystromSpectrum(Resolvent):
    """``(B'B + a I)^-1`` for every ridge a; a sketch is exact for this kernel matrix (``inverse_root.py``).

    By the singular value decomposition ``B = Q diag(sqrt(l)) V'``, with ``B B' = Q diag(l) Q'``. V
    are eigenvectors of B'B. In them the kernel column B'z of a point, and y, have the coordinates

        V'B'z = diag(sqrt(l)) Q'z,        V'y = diag(1 / sqrt(l)) Q'B y.

    The part of y outside the span of V is unexplained at every ridge. It takes one decomposition of
    ``B B'`` [m m], O(m^3), and has no border.

    Attributes:
        vectors: ``Q diag(sqrt(l))``, [m m]: maps features to coordinates.
        from_columns: ``diag(sqrt(l)) Q'L^-1``, [m m]: maps ``k(Z, x)`` to coordinates.
    """

    def __init__(self, sketch: Sketch) -> None:
        values, vectors = torch.linalg.eigh(sketch.G)
        self.k = sketch.k
        self.features = sketch.features
        self.values = values.clamp_min(0)
        singular = self.values.sqrt()
        is_null = values <= _NULL * values.sum()
        y = (vectors.mT @ sketch.By / singular).masked_fill(is_null, 0)
        self.vectors = vectors * singular
        self.from_columns: Tensor = self.vectors.mT @ sketch.features.whitener
        self.C = values.new_empty(len(values), 0)
        self.D = values.new_empty(0, 0)
        self.target = (y, values.new_empty(0))
        self.constant = (sketch.yy - y.square().sum()).clamp_min(0)

    def coordinates(self, X: Tensor) -> tuple[Tensor, Tensor]:
        p = self.from_columns @ self.features.columns(X)
        return p, p[:0]


class SketchColumns(Columns):
    """Mean, variance and draws of a ``NystromRidge`` at fixed points P, [A], for ``FixedPoints``.

    The features z(P) [m A] change only with the dictionary. At the posterior's own ridge, an
    observation changes the quadratic form ``z'M^-1 z`` by the square of one product
    (``InverseRoot``). So an update costs O(m A) instead of O(m^2 A).
    """

    def __init__(self, state: Any, points: Tensor) -> None:
        super().__init__(state, points)
        self._X: Tensor = points.double()
        self._prior: Tensor = state.prior_variance(points).double()
        self._features: GrowingTensor = GrowingTensor(self._X.new_empty(0, len(points)))
        self._residual: Tensor = self._prior
        self._layout: int | None = None  # layout of the sketch when the features were computed
        self._form: Tensor = torch.zeros_like(self._prior)  # z'M^-1 z
        self._generation: int | None = None  # generation of the root when the form was computed
        self._n_events: int = 0

    def predict(self, ridge: float) -> tuple[Tensor, Tensor]:
        """Return mean and variance [A].

        It costs O(m A) per new observation at the posterior's own ridge, else O(m^2 A).
        """
        self._catch_up()
        posterior = self.state.at(ridge)
        z = self._features.value
        form = self._form.clamp_min(0)
        if ridge != self.state.ridge:
            form = (posterior.root.S.mT @ z).square().sum(0)
        mean = posterior.weights @ z
        variance = dtc_variance(self._residual, form, ridge)
        variance = clamped(variance, self._prior, ridge, self.state.trace)
        return mean.to(self.points.dtype), variance.to(self.points.dtype)

    @torch.no_grad()
    def draw(self, ridge: float, count: int, generator: torch.Generator | None) -> Tensor:
        self._catch_up()
        weights = self.state.at(ridge).weight_draws(count, generator)
        normal = residual_noise(self.points, count, generator)
        draws = weights.mT @ self._features.value + self._residual.sqrt() * normal
        return draws.to(self.points.dtype)

    @torch.no_grad()
    def _catch_up(self) -> None:
        """Update the features if the dictionary has changed, then the moments by new observations."""
        sketch = self.state.sketch
        if self._layout != sketch.layout:
            z = sketch.features(self._X)
            self._features = GrowingTensor(z)
            self._residual = (self._prior - z.square().sum(0)).clamp_min(0)
            self._layout = sketch.layout
            self._generation = None
        for j in range(self._features.n, sketch.m):
            coordinate = sketch.features.next_coordinate(j, self._X, self._features.value)
            self._features.append(coordinate.unsqueeze(0))
            self._residual = (self._residual - coordinate.square()).clamp_min(0)
        self._follow_root()

    def _follow_root(self) -> None:
        """Update ``z'M^-1 z`` [A], or compute it again where that is less work."""
        root = self.state.sketch.root
        z = self._features.value
        if self._generation != root.generation or len(root.events) - self._n_events > len(z):
            self._form = (root.S.mT @ z).square().sum(0)
            self._generation = root.generation
            self._n_events = len(root.events)
        for factor, vector in root.events[self._n_events :]:
            self._form = self._form.add((vector @ z[: len(vector)]).square(), alpha=factor)
        self._n_events = len(root.events)
