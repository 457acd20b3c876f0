"""The interface of a posterior, which confidences, views and models read.

``Posterior`` remembers the data. ``state.at(ridge)``, a ``PosteriorAt``, has the numbers at one
ridge; ``state.across(X)``, an ``AllRidges``, has them at many ridges. Notation: K is the kernel
matrix of the n observations, y are their targets, and E = K - K~ is the error of an approximate
kernel matrix K~ (zero for exact posteriors). An observation of weight w counts as ``sqrt(w) k(x,
.)`` and ``sqrt(w) y``. So with weights W, K stands for ``W^1/2 K W^1/2``, E for ``W^1/2 E W^1/2``
and y for ``W^1/2 y``, and residuals are weighted (docs/theory/observations.md).

On paper                                            | in code
``mean(x) = k(x)'(K + ridge I)^-1 y``               | ``PosteriorAt.predict``
``k(x, z) - k(x)'(K + ridge I)^-1 k(z)``            | ``PosteriorAt.covariance``
``ln det(I + K / ridge)``                           | ``PosteriorAt.log_det``
``y'(I + K / ridge)^-1 y``                          | ``PosteriorAt.quad``
``|y - mean(X)|^2``                                 | ``PosteriorAt.rss``
``Tr K (K + ridge I)^-1``                           | ``PosteriorAt.effective_dimension``
``Tr E``, a bound of the operator norm of E         | ``Error.trace``, ``Error.norm``

The formulas are computed in exact/kernel_ridge.py (Cholesky factor), spectral_ridges.py (many
ridges), sketch/ (DTC) and views/.

When a row is added, ``update(X, y)`` checks it (``check_data``), stores it, and calls
``changed()``. This replaces ``version`` and forgets the numbers at all ridges. Views, bounds and
models compare ``version`` to notice the change.

* ``KernelRidge`` (exact/) computes nothing more until ``at(ridge)`` is called. Then ``factor``
  appends the row to the Cholesky factor, O(n^2). Once many rows repeat others, they are merged and
  the factor is computed again, O(n^3).
* ``NystromRidge`` (sketch/data.py lists the five steps) updates B B', B y and the square root of
  M^-1 at once, O(m^2). It costs O(n m + m^2) if the row becomes an inducing point, and
  O(n m^2 + m^3) if all inducing points are chosen again.

A new posterior subclasses ``Posterior`` and ``PosteriorAt``. docs/extending.md explains it,
tests/third_party_posterior.py is a complete example, and tests/laws has the laws that it must obey.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo._base import checks
from kbo._base.stateful import Stateful, fresh_version
from kbo.errors import InvalidInput
from kbo.regression.all_ridges import AllRidges
from kbo.regression.error import Error
from kbo.regression.numerics import keep_latest
from kbo.regression.sampling import Function, draw_prior, joint_draws

_MOST_RIDGES = 8
"""Number of ridges whose ``PosteriorAt`` is kept until the posterior changes."""

MOST_JOINT = 2048
"""Largest number of points whose joint covariance is decomposed for draws."""


class PosteriorAt(ABC):
    """The numbers of a posterior at one ridge: mean, variance, log-determinant and others.

    ``state.at(ridge)`` returns it. It is valid until the posterior changes. A subclass defines the
    abstract methods; those that take points begin with ``self.state.check(X)``. ``predict`` and
    ``covariance`` have gradients in X. A subclass may also define ``factored``, ``compute_draws``
    and ``compute_drawn_function``.

    Args:
        state: The posterior.
        ridge: The ridge.
    """

    def __init__(self, state: Posterior, ridge: float) -> None:
        self.state = state
        self.ridge = ridge

    @abstractmethod
    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance [...] of the function, without noise, at points X [... d]."""

    @abstractmethod
    def covariance(self, X: Tensor, Z: Tensor) -> Tensor:
        """Return the covariance [... a b] of X [... a d] and Z [... b d] (equal batch shapes)."""

    @abstractmethod
    def log_det(self) -> Tensor:
        """Return ``ln det(I + K / ridge)``, [], twice the information gain."""

    @abstractmethod
    def quad(self) -> Tensor:
        """Return ``y'(I + K / ridge)^-1 y``, [], in squared units of y."""

    @abstractmethod
    def rss(self) -> Tensor:
        """Return ``|y - mean(X)|^2``, [], the residual sum of squares, in squared units of y."""

    @abstractmethod
    def effective_dimension(self) -> Tensor:
        """Return ``Tr K (K + ridge I)^-1``, [], the sum of the leverages ``variance / ridge``."""

    def factored(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the mean [... q] at X [... q d], and U, V [... r q] with ``covariance = prior - U'V``.

        By default r = q and V is the identity. A posterior of low rank overrides this method.
        """
        mean, _ = self.predict(X)
        explained = self.state.prior(X, X) - self.covariance(X, X)
        identity = torch.eye(X.shape[-2], dtype=X.dtype, device=X.device)
        return mean, explained, identity.expand(explained.shape)

    def draw(self, X: Tensor, count: int = 1, generator: torch.Generator | None = None) -> Tensor:
        """Return joint draws [count N] of the function at X [N d], less its mean.

        A sketched posterior takes any N, in O(N m^2 + count N m). Others draw up to ``MOST_JOINT``
        points jointly, in O(N^3), and more points as functions, without an N x N matrix.

        Args:
            X: Points [N d].
            count: Number of independent draws.
            generator: Source of randomness, on the CPU; None for torch's global one.

        Raises:
            InvalidInput: X or count cannot be used, or there are too many points for this posterior.
        """
        count = checks.whole("count", count, 1)
        self.state.check(X)
        checks.points("X", X)  # no NaN: a draw over a finite set decides which point is taken
        if X.ndim != 2 or not len(X):
            raise InvalidInput(
                f"X must be a tensor of shape [N d] with at least one row, got {tuple(X.shape)}."
            )
        with torch.no_grad():
            return self.compute_draws(X, count, checks.generator(generator))

    def compute_draws(self, X: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
        """Return joint draws [count N] at X [N d], less the mean; ``draw`` has checked the arguments."""
        if len(X) > MOST_JOINT:
            return torch.stack([self.draw_function(X, generator)(X) for _ in range(count)])
        return joint_draws(self.covariance(X, X), count, generator)

    def draw_function(self, like: Tensor, generator: torch.Generator | None = None) -> Function:
        """Return a draw of the function less its mean, [... d] -> [...], differentiable anywhere.

        Args:
            like: Any points [... d] with the dtype, device and columns of later arguments.
            generator: Source of randomness, on the CPU; None for torch's global one.

        Raises:
            InvalidInput: The kernel has no random features, or this posterior draws no functions.
        """
        self.state.check(like, "like")
        return self.compute_drawn_function(like, checks.generator(generator))

    def compute_drawn_function(self, like: Tensor, generator: torch.Generator | None) -> Function:
        """Return a drawn function less its mean; ``draw_function`` has checked the arguments."""
        raise InvalidInput(
            f"a {type(self.state).__name__} draws no functions: draw over a finite set of at most "
            f"{MOST_JOINT} points, or define compute_drawn_function in {type(self).__name__}."
        )


class LowRankPosteriorAt(PosteriorAt):
    """The base of posteriors at one ridge with ``covariance = prior - U'V``, [r q] factors U, V.

    A subclass defines ``factored``, which checks its points, and the other abstract methods;
    ``covariance`` is computed here.
    """

    @abstractmethod
    def factored(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]: ...

    def covariance(self, X: Tensor, Z: Tensor) -> Tensor:
        self.state.check(Z, "Z")
        if Z is X:
            _, U, V = self.factored(X)
        else:
            self.state.check(X)
            _, U, _ = self.factored(X)
            _, _, V = self.factored(Z)
        return self.state.prior(X, Z) - U.mT @ V


class PriorAt(LowRankPosteriorAt):
    """A posterior without data: mean zero and the covariance of the prior."""

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        self.state.check(X)
        variance = self.state.prior_variance(X)
        return torch.zeros_like(variance), variance

    def factored(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        self.state.check(X)
        empty = X.new_zeros(*X.shape[:-2], 0, X.shape[-2])
        return X.new_zeros(X.shape[:-1]), empty, empty

    def log_det(self) -> Tensor:
        return self.state.like.new_zeros((), dtype=torch.float64)

    quad = log_det
    rss = log_det
    effective_dimension = log_det

    def compute_drawn_function(self, like: Tensor, generator: torch.Generator | None) -> Function:
        return self.state.draw_prior(like, generator)


class Columns(Stateful, ABC):
    """Mean, variance and draws of a posterior at fixed points, updated with every observation.

    ``Posterior.columns`` returns it, for the view ``FixedPoints``.

    Args:
        state: The posterior.
        points: The points [A d]; never written to.
    """

    def __init__(self, state: Any, points: Tensor) -> None:
        self.state: Any = state
        self.points: Tensor = points

    @abstractmethod
    def predict(self, ridge: float) -> tuple[Tensor, Tensor]:
        """Return mean and variance [A] at one ridge."""

    def draw(self, ridge: float, count: int, generator: torch.Generator | None) -> Tensor:
        """Return joint draws [count A], less their mean; see ``PosteriorAt.draw``."""
        return self.state.at(ridge).draw(self.points, count, generator)

    def across(self) -> AllRidges:
        """Return the points, as A groups of one, at any ridge."""
        return self.state.across(self.points.unsqueeze(-2))


@dataclass(frozen=True)
class Provenance:
    """The assumptions of theorems that the data of a posterior violate.

    A confidence compares it with what its own theorem covers (``Confidence.objections``).

    Attributes:
        hypothetical: Whether some observations are hypothetical: then no bound is proved.
        weighted: Whether an observation has another weight than 1.
        ridge_moved: Whether the ridge was, or may have been, moved after data had come.
        unit_variance: The noise variance of an observation of weight 1, if variances were given;
            else None.
        repeats: Number of observations at an earlier location, and how many of these have exactly
            its last value too; zeros if not counted.
        caveats: Other reasons, in words, why no theorem covers bounds on these data.
    """

    hypothetical: bool = False
    weighted: bool = False
    ridge_moved: bool = False
    unit_variance: float | None = None
    repeats: tuple[int, int] = (0, 0)
    caveats: tuple[str, ...] = ()


class LeastSquares(NamedTuple):
    """The data of the misfit of a function f to all observations, a sum over distinct locations.

    ``|y - f(X)|^2 = within + sum_r counts_r (y_r - f(X_r))^2``.

    Attributes:
        X: Locations [m d].
        y: Mean target of each row, [m].
        counts: Sum of the weights of each row, [m].
        within: The part that no function explains, [], in squared units of y.
    """

    X: Tensor
    y: Tensor
    counts: Tensor
    within: Tensor


class RidgeSchedule(Stateful, ABC):
    """The rule that chooses the ridge of an ``AdaptiveRidge`` from the data.

    Attributes:
        ridge: The ridge after the data so far.
        n: Number of observations so far.
    """

    ridge: float
    n: int = 0

    @abstractmethod
    def update(self, state: Posterior) -> None:
        """Learn the observation that was added to ``state`` since the last update."""


class Posterior(Stateful, ABC):
    """The posterior of a function given everything observed so far, by kernel ridge regression.

    It equals the posterior of a Gaussian process whose noise variance is the ridge. It is updated
    in place and has no hyper-parameters to fit. A confidence turns it into bounds, and
    ``kbo.models.PosteriorGP`` into a BoTorch model.

    Arguments of this type are called ``state``, in ``kbo.models`` and ``kbo.optimize`` also
    ``posterior``. Where there is a ``state``, ``posterior`` is read from it: a ``PosteriorAt``, or
    an ``AllRidges``.

    Users read ``n``, ``ridge``, ``kernel``, ``trace``, ``version``, ``error``, ``provenance``,
    ``update``, ``fork``, ``prior``, ``prior_variance``, ``draw_prior``, ``at``, ``across`` and
    ``predict``. Bounds also read ``like``, ``batch_shape``, ``observed``, ``schedule``,
    ``locations`` and ``least_squares``. Points are the rows of X, of any batch shape.

    A subclass defines the abstract members, sets ``like`` with the first data, and calls
    ``changed`` at the end of every change. It keeps copies of kernel and data, and writes no tensor
    in place, because forks share them. It does not override ``at``, which calls its ``compute_at``.
    The attributes below and the members under "What a subclass may define" have defaults.

    Args:
        ridge: The regulariser, in units of the kernel; the noise variance in the GP reading.

    Raises:
        InvalidInput: The ridge is not a finite number above zero.

    Attributes:
        like: An empty tensor [0 d] on the device and in the dtype of the data; d = 0 before them.
        kernel: The GPyTorch kernel of the prior; None if there is none.
        provenance: Assumptions of theorems that the data do not meet.
        batch_shape: Batch shape of the data; empty without batches of hypothetical observations. It
            broadcasts with the batch shape of the points X [... q d] of a prediction.
        anchors: The inducing points [m d] that span an approximate posterior; None if it is exact.
        needs_refresh: Whether a frozen fork has so many observations that its inducing points
            should be chosen again.
        schedule: The rule that moves the ridge as data come in; None if the ridge stays.
    """

    like: Tensor = torch.empty(0, 0, dtype=torch.float64, device="cpu")
    kernel: Kernel | None = None
    provenance: Provenance = Provenance()
    batch_shape: torch.Size = torch.Size()
    anchors: Tensor | None = None
    needs_refresh: bool = False
    schedule: RidgeSchedule | None = None
    _tested: tuple[Tensor, float] | None = None  # locations and their least eigenvalue

    def __init__(self, ridge: float) -> None:
        self._ridge: float = checks.positive("ridge", ridge)
        self.changed()

    # What a subclass defines

    @property
    @abstractmethod
    def n(self) -> int:
        """Number of observations, repeats included."""

    @property
    @abstractmethod
    def trace(self) -> float:
        """``Tr K``, the sum of ``w k(x, x)`` over the observations."""

    @abstractmethod
    def prior(self, X: Tensor, Z: Tensor) -> Tensor:
        """Return the kernel ``k(X, Z)`` [... a b], for X [... a d] and Z [... b d]."""

    @abstractmethod
    def prior_variance(self, X: Tensor) -> Tensor:
        """Return ``k(x, x)`` [...] for X [... d]."""

    @abstractmethod
    def update(self, X: Tensor, y: Tensor, weights: Tensor | None = None) -> None:
        """Add observations X [r d], y [r] in place.

        Args:
            X: Points [r d].
            y: Targets [r].
            weights: Weights [r] above 0; ones if omitted. An observation of weight w has the noise
                variance ``ridge / w``, if ``ridge`` is the noise variance; for a confidence its
                noise level is ``noise_std / sqrt(w)``.

        Raises:
            InvalidInput: A shape, dtype or device is wrong, a value is not finite, or a weight is
                not above 0. Then nothing is added.
        """

    @abstractmethod
    def compute_at(self, ridge: float) -> PosteriorAt:
        """Return the numbers at one ridge, computed anew.

        ``at`` calls it only if there are data, after a check of the ridge. It keeps the result
        until the posterior changes.
        """

    # What a subclass may define

    def across(self, X: Tensor | None = None) -> AllRidges:
        """Return the posterior at any ridges, and its moments at groups of points X [... g d]."""
        return AllRidges(self, X)

    def draw_prior(self, like: Tensor, generator: torch.Generator | None = None) -> Function:
        """Return a draw of the function from the prior, [... d] -> [...].

        Arguments as for ``PosteriorAt.draw_function``.
        """
        if self.kernel is None:
            raise InvalidInput(
                f"a {type(self).__name__} draws no functions: draw over a finite set of at most "
                f"{MOST_JOINT} points, or define draw_prior."
            )
        return draw_prior(self.kernel, like, generator)

    @property
    def error(self) -> Error:
        """Bounds of the errors by an approximation of the kernel matrix and by rounding."""
        return Error(self)

    @property
    def locations(self) -> tuple[Tensor, Tensor] | None:
        """Observed locations [m d] and the sum of the weights at each [m]; None if not kept."""
        return None

    @property
    def least_squares(self) -> LeastSquares | None:
        """The misfit that an exact regression minimises; None if approximate or without data."""
        return None

    @property
    def observed(self) -> Posterior:
        """The posterior of the observed data alone, without hypothetical ones."""
        return self

    def columns(self, points: Tensor) -> Columns | None:
        """Return the moments of fixed points [A d], updated row by row, for ``FixedPoints``.

        None if the class has no faster way than ``predict``.
        """
        return None

    def fork_frozen(self) -> Posterior:
        """Return a fork for hypothetical observations, with fixed ridge and inducing points."""
        return self.fork()

    def move_ridge(self, ridge: float) -> None:
        """Replace the ridge by another finite number above zero."""
        self._ridge = checks.positive("ridge", ridge)
        if self.n:
            self.note(ridge_moved=True)
        self.changed()

    # The same for all

    @property
    def ridge(self) -> float:
        """The regulariser; ``move_ridge`` replaces it."""
        return self._ridge

    @ridge.setter
    def ridge(self, ridge: float) -> None:
        raise InvalidInput(
            f"ridge of a {type(self).__name__} is read-only: use move_ridge({ridge!r:.30})."
        )

    @property
    def version(self) -> int:
        """A number that every change replaces; equal versions mean equal posteriors."""
        return self._version

    def at(self, ridge: float | None = None) -> PosteriorAt:
        """Return the posterior at one ridge; None for its own ridge."""
        ridge = self._ridge if ridge is None else checks.positive("ridge", ridge)
        if ridge not in self._at_ridges:
            keep_latest(self._at_ridges, ridge, self._new_at(ridge), _MOST_RIDGES)
        return self._at_ridges[ridge]

    def _new_at(self, ridge: float) -> PosteriorAt:
        """Return the posterior at a ridge, also without data."""
        return self.compute_at(ridge) if self.n else PriorAt(self, ridge)

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance [...] of the function, without noise, at points X [... d].

        In units of y and of the kernel, at the posterior's own ridge.
        """
        return self.at().predict(X)

    # For ``error``

    @torch.no_grad()
    def least_eigenvalue(self, X: Tensor) -> float:
        """Return the least eigenvalue of ``prior(X, X)``, O(n^3); 0 if the matrix is not finite.

        Args:
            X: Locations [n d], in float64.
        """
        if self._tested is None or not torch.equal(self._tested[0], X):
            K = self.prior(X, X)
            eigenvalue = 0.0
            if len(X) and bool(K.isfinite().all()):  # otherwise the posterior raises an error
                eigenvalue = float(torch.linalg.eigvalsh(K)[0])
            self._tested = (X.clone(), eigenvalue)
        return self._tested[1]

    # For subclasses

    def changed(self) -> None:
        """Replace the version, and forget the numbers at all ridges."""
        self._version = fresh_version()
        self._at_ridges: dict[float, PosteriorAt] = {}

    def note(self, *caveats: str, **changes: Any) -> None:
        """Change entries of ``provenance``, also of later forks.

        Args:
            *caveats: Reasons, in words, that only the caller knows and for which no theorem covers
                these data, for example "the kernel was changed after the data had come".
            **changes: Entries of ``Provenance``, for example ``unit_variance=0.01``.
        """
        reasons = [checks.text("a caveat", reason) for reason in caveats]
        all_caveats = (*self.provenance.caveats, *reasons)
        self.provenance = replace(self.provenance, caveats=all_caveats, **changes)

    def check(self, X: Tensor, name: str = "X") -> None:
        """Raise InvalidInput unless X [... d] fits the data in dtype, device and columns.

        Points may be NaN; their moments are NaN too.
        """
        checks.shaped(name, X, *self._like_and_columns)

    def check_data(self, X: Tensor, y: Tensor, weights: Tensor | None = None) -> checks.Batch:
        """Return observations also as plain numbers, or raise the errors of ``update``."""
        return checks.observations(X, y, *self._like_and_columns, weights=weights)

    @property
    def _like_and_columns(self) -> tuple[Tensor | None, int | None]:
        """``like`` and the number of columns of the data; None as long as they are unknown."""
        d = self.like.shape[-1]
        return (self.like, d) if d else (None, None)

    def _fork_with(self, forks: dict[int, Any]) -> Self:
        fork = super()._fork_with(forks)
        fork._at_ridges = {}  # each belongs to the original
        return fork

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_at_ridges": {}}
