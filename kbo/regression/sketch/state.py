"""``NystromRidge``: sketched kernel ridge regression, at a cost per step that does not grow with n.

Notation: dictionary Z of m points, L = chol k(Z, Z), z(x) = L^-1 k(Z, x), B = [z(x_1) .. z(x_n)], M = B B' + ridge I,
E = K - B'B >= 0.

This is the posterior of BKB (Calandriello et al. 2019) and EK-UCB (Zenati et al. 2022, Prop. 4.2) in a whitened form
without explicit inverses. Its variance is that of the deterministic training conditional (DTC): not an upper bound of
the exact one.
"""

from __future__ import annotations

import copy
import math

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo._base import checks
from kbo._base.linalg import InverseRoot, ill_conditioned_ratio
from kbo._base.stateful import passed_on
from kbo.errors import InvalidInput
from kbo.kernels import freeze
from kbo.regression.all_ridges import AllRidges, InChunks
from kbo.regression.eigenbasis import SpectralRidges
from kbo.regression.numerics import block_of, warn_below_precision
from kbo.regression.posterior import Posterior, PosteriorAt
from kbo.regression.provenance import Error, Rounding
from kbo.regression.sketch.answers import NystromAt, SketchedResolvent
from kbo.regression.sketch.dictionary import Dictionary
from kbo.regression.sketch.fixed_points import SketchColumns
from kbo.regression.sketch.stream import Sketch

_BLOCK = 2**22
"""Features that are evaluated at once."""


class NystromRidge(Posterior):
    """The posterior of the features of a dictionary: while it stays, the time of a step does not grow with n.

    At the state's own ridge a step costs O(m^2); every other ridge is answered exactly from one eigendecomposition of
    ``B B'`` after a change. Distinct locations are kept (d + 5 numbers each), with their features (m numbers) if the
    dictionary may change. Features of nearly dependent points need all digits there are, so the state computes in
    float64 and answers in the dtype of its data.

    Args:
        kernel: An unbatched GPyTorch kernel.
        ridge: The regulariser, in units of the kernel; the noise variance in the GP reading.
        dictionary: Chooses the points that span the sketch; dependent ones are left out.

    Raises:
        InvalidInput: The ridge is not positive, or kernel or dictionary cannot be used.

    Attributes:
        m: Number of anchors, the points of the dictionary that are in use.
        dictionary: The dictionary at work, with its memory.

    Example:
        >>> state = NystromRidge(RBFKernel(), 0.01, OnlineRowSampling(mu=0.01))
        >>> state.update(X, y)
        >>> mean, variance = state.predict(candidates)
    """

    saved: tuple[str, ...] = ("like", "sketch")

    def __init__(self, kernel: Kernel, ridge: float, dictionary: Dictionary) -> None:
        if not isinstance(dictionary, Dictionary):
            raise InvalidInput(
                "dictionary must be one of kbo.regression, for example FixedDictionary(points) or "
                f"OnlineRowSampling(mu), got {type(dictionary).__name__}."
            )
        super().__init__(ridge)
        self._kernel: Kernel = copy.deepcopy(checks.kernel(kernel))
        self.description = dictionary
        points = dictionary.points
        none = torch.empty(0, device="cpu")
        freeze(
            kernel, none if points is None else points
        )  # a kernel that cannot be used is an error now
        self._begin(none.double().reshape(0, 0) if points is None else points[:0])

    def __repr__(self) -> str:
        return f"NystromRidge({type(self.kernel).__name__}, ridge={self.ridge:.4g}, n={self.n}, m={self.m})"

    def _begin(self, like: Tensor) -> None:
        """No observations, on the device of like [0 d], with answers in its dtype; d = 0 as long as it is unknown."""
        self.like = like
        self.sketch: Sketch = Sketch(self.kernel, self.ridge, self.description, like.double())
        self.changed()

    def changed(self) -> None:
        super().changed()
        self._spectrum: SketchedResolvent | None = None

    kernel: Kernel = passed_on("_kernel")
    n: int = passed_on("sketch.n")
    m: int = passed_on("sketch.m")
    trace: float = passed_on("sketch.trace")
    anchors: Tensor | None = passed_on("sketch.features.anchors")
    dictionary: Dictionary = passed_on("sketch.dictionary")
    needs_refresh: bool = passed_on("sketch.dictionary.needs_refresh")

    @property
    def approximations(self) -> tuple[str, ...]:
        """The reason why mean and variance may be far from those of the exact posterior, in words; empty without one.

        A reason is that observations are left with more variance than the dictionary promises, or than a tenth of the
        ridge. Bounds that account for the error of a sketch stay valid, and are wide there. O(n).
        """
        share = self.sketch.shortfall()
        if share is None:
            return ()
        dictionary = self.dictionary
        advice = dictionary.advice
        if dictionary.capped:
            advice = f"it has reached its limit of {dictionary.most} points: raise most"
        return (
            f"the dictionary of {self.m} points leaves {100 * share:.3g}% of the prior variance of an observation "
            f"unexplained{': ' if advice else ''}{advice}",
        )

    def move_ridge(self, ridge: float) -> None:
        """Also for the dictionary; O(m^3)."""
        self.sketch.move_ridge(checks.positive("ridge", ridge))
        super().move_ridge(ridge)

    def update(self, X: Tensor, y: Tensor, weights: Tensor | None = None) -> None:
        """Add observations X [r d], y [r] in place, one after the other unless the dictionary takes blocks."""
        self._adopt(X)
        host = self.check_data(X, y, weights)
        if len(X) == 0:
            return
        try:
            self.sketch.update(
                X.double(), y.double(), None if weights is None else weights.double(), host
            )
        finally:  # an interrupt leaves no answers of the data before
            if self.sketch.weighted or self.sketch.repeats[0]:
                self.note(weighted=self.sketch.weighted, repeats=self.sketch.repeats)
            self.changed()

    def _new_at(self, ridge: float) -> PosteriorAt:
        """In O(m^2) per new row at the state's own ridge, else O(m^3); without data too."""
        return self._at(ridge)

    def _at(self, ridge: float) -> PosteriorAt:
        if self.n:
            warn_below_precision(ridge, self.error.least_ridge)
        return NystromAt(self, ridge)

    def across(self, X: Tensor | None = None) -> AllRidges:
        if X is None:
            return self.spectrum().without_points(self)
        self.check(X)
        size = max(1, block_of(_BLOCK, X.device) // max(1, self.m * X.shape[-2]))
        if not X.requires_grad and X.shape[:-2].numel() > size:
            return InChunks(self, X, self._at_points, size)
        return self._at_points(X.reshape(-1, *X.shape[-2:]))

    def _at_points(self, X: Tensor) -> SpectralRidges:
        X, sketch = X.double(), self.sketch
        z = sketch.features(X.reshape(-1, X.shape[-1]))
        return self.at_features(
            z, sketch.k.diagonal(X), None if X.shape[-2] == 1 else sketch.k(X, X)
        )

    def at_features(
        self, z: Tensor, variance: Tensor, prior: Tensor | None = None
    ) -> SpectralRidges:
        """Return the answers at any ridge for groups of points with features z [m Bg].

        Args:
            z: The features.
            variance: ``k(x, x)``, [B g].
            prior: ``k(x, x')`` of groups of several points, [B g g].
        """
        grouped = z.reshape(len(z), *variance.shape)
        if prior is None:
            residual = (variance - grouped.square().sum(0)).clamp_min(0).unsqueeze(-1)
        else:
            residual = prior - torch.einsum("mbg,mbh->bgh", grouped, grouped)
        spectrum = self.spectrum()
        return SpectralRidges(self, spectrum, spectrum.vectors.mT @ z, z[:0], residual, variance)

    def columns(self, points: Tensor) -> SketchColumns:
        return SketchColumns(self, points)

    @torch.no_grad()
    def spectrum(self) -> SketchedResolvent:
        """Return the resolvent of the data, for every ridge."""
        if self._spectrum is None:
            self._spectrum = SketchedResolvent(self.sketch.G, self.sketch.By, self.sketch.yy)
        return self._spectrum

    def root(self, ridge: float) -> InverseRoot:
        """Return ``M^-1`` at a ridge."""
        return self.sketch.root if ridge == self.sketch.ridge else InverseRoot(self.sketch.G, ridge)

    def features(self, X: Tensor) -> Tensor:
        """Return ``z(x)``, [m N] for X [N d], in float64."""
        return self.sketch.features(X.double())

    def prior(self, X: Tensor, Z: Tensor) -> Tensor:
        self._adopt(X)
        return self.sketch.k(X.double(), Z.double()).to(X.dtype)

    def prior_variance(self, X: Tensor) -> Tensor:
        self._adopt(X)
        return self.sketch.k.diagonal(X.double()).to(X.dtype)

    @property
    def error(self) -> Error:
        return _SketchError(self)

    @property
    def locations(self) -> tuple[Tensor, Tensor] | None:
        return self.sketch.rows.X, self.sketch.rows.counts.clone()

    def check(self, X: Tensor, name: str = "X") -> None:
        self._adopt(X, name)
        super().check(X, name)

    def _adopt(self, X: Tensor, name: str = "X") -> None:
        """Before the first observation, move to the dtype, device and columns of X."""
        if (
            self.n
            or checks.tensor(name, X).dtype not in (torch.float64, torch.float32)
            or not X.ndim
        ):
            return
        like, points = self.like, self.description.points
        columns = X.shape[-1] if points is None else points.shape[-1]
        if columns and (X.dtype, X.device, columns) != (like.dtype, like.device, like.shape[-1]):
            self._begin(X.new_empty(0, columns))

    def fork_frozen(self) -> NystromRidge:
        fork = self.fork()
        fork.sketch.dictionary = fork.sketch.dictionary.frozen()
        return fork


class _SketchError(Error):
    """The error of the dictionary, and rounding."""

    @property
    def least_ridge(self) -> float:
        return ill_conditioned_ratio(torch.float64) * (self.state.sketch.kappa or 1.0)

    @property
    def of_quad(self) -> float:
        return self.state.sketch.rounding

    @property
    def trace(self) -> float:
        return self.state.sketch.residual_trace()

    def norm(self) -> float:
        return self.state.sketch.residual_norm()

    def log_det(self, ridge: float) -> float:
        return self.state.sketch.residual_log_det(ridge)

    @property
    def terms(self) -> int:
        """The anchors, and the root of the observations: the roundings of a long sum cancel in part."""
        return self.state.m + math.isqrt(self.state.n)

    @property
    def rounding(self) -> Rounding:
        """The error as for any posterior, and what rounding in the dictionary does to features and norms."""
        sketch = self.state.sketch
        flat, steep = Rounding.of_algebra(self.terms, sketch.trace, sketch.kernel_error)
        return Rounding(flat + sketch.stretched(), steep + sketch.feature_rounding())
