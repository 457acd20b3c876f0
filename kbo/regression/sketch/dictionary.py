"""Dictionaries: the choice of the inducing points of a sketch; ``leverage.py`` has random choices.

A sketch calls ``accepts`` before it counts an observation, and ``redraws`` after it. Your own
dictionary is a subclass of ``Dictionary`` that defines one of the two. ``chosen`` chooses among all
observations by pivoting.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, Self

from gpytorch.kernels import Kernel
from torch import Tensor

from kbo._base import checks
from kbo._base.checks import Location
from kbo._base.stateful import Stateful
from kbo.errors import InvalidInput
from kbo.kernels import DenseKernel, freeze
from kbo.regression.sketch.features import CONDITION, DEPENDENT, Features, pivots
from kbo.regression.sketch.inverse_root import InverseRoot
from kbo.regression.sketch.rows import Rows

FINE = 1e-6
"""Residual, as a fraction of the prior variance, that counts as explained when all inducing points
are chosen again."""

MOST_ANCHORS = 500
"""Largest number of inducing points of a default dictionary. Where more are needed, bounds are wider
or have no guarantee."""


class Observed(Protocol):
    """The parts of a sketch that dictionaries read; ``data.Sketch`` documents them."""

    ridge: float
    root: InverseRoot
    k: DenseKernel
    rows: Rows
    features: Features
    kappa: float
    weighted: bool

    @property
    def m(self) -> int:
        """Number of inducing points."""
        ...

    def row_leverages(self) -> Tensor:
        """Return the leverages of all rows, [rows]."""
        ...


@dataclass(frozen=True)
class Candidate:
    """A new observation, about which a dictionary decides whether it becomes an inducing point.

    Attributes:
        prior: ``k(x, x)``.
        residual: ``k(x, x) - |z(x)|^2``, the variance that the dictionary does not explain.
        column: ``k(Z, x)``, [m 1].
        features: ``z(x)``, [m].
        place: Its location on the host.
        basis: The features of the dictionary.
        weight: Its weight.
    """

    prior: float
    residual: float
    column: Tensor
    features: Tensor
    place: Location
    basis: Features
    weight: float = 1.0

    @property
    def anchor(self) -> int | None:
        """Index of the inducing point at the same location; None if there is none."""
        return self.basis.at(self.place)

    @cached_property
    def coefficients(self) -> Tensor:
        """``k(Z, Z)^-1 k(Z, x)``, [m]."""
        return self.basis.coefficients(self.features)

    @property
    def dependent(self) -> bool:
        """Whether its residual is rounding error; then it never becomes an inducing point."""
        return self.residual <= DEPENDENT * self.prior

    @property
    def well_conditioned(self) -> bool:
        """Whether it can join the present inducing points; if not, all are chosen again."""
        square = float(self.coefficients @ self.coefficients)
        return 1 + square < self.residual / (CONDITION * self.prior)

    @property
    def negligible(self) -> bool:
        """Whether its residual is small and it would make the inducing points nearly singular."""
        return self.dependent or (self.residual <= FINE * self.prior and not self.well_conditioned)


class Dictionary(Stateful):
    """The rule that chooses the inducing points of a ``NystromRidge``.

    The base class begins without points and never takes any. A sketch calls ``begin`` for a copy
    with its own memory, so one dictionary may be passed to many sketches.

    Args:
        most: Largest number of points m; None for no limit. With a limit, mixture bounds may be
            wider, and bounds that need a good dictionary may have no guarantee.

    Attributes:
        capped: Whether the limit has kept a point out.
        threshold: Largest residual ``w (k(x, x) - |z(x)|^2)`` of an observation of weight w; None
            if there is no such limit.
        mu: The ridge of the leverages by which points enter, in units of the kernel; None without
            leverages, or if it is the ridge of the posterior.
    """

    points: Tensor | None = None
    """The points to begin with, [m d]."""

    stays = False
    """Whether the dictionary never changes."""

    in_blocks = False
    """Whether observations that come together are counted at once, without ``accepts``.

    Then ``redraws`` is called. If it draws no other points, rows whose residual exceeds ``allowed``
    become inducing points, those with the largest residual first.
    """

    needs_refresh = False
    """Whether the dictionary would be drawn again if it were not frozen."""

    threshold: float | None = None
    mu: float | None = None

    def __init__(self, most: int | None = None) -> None:
        if most is not None:
            most = int(checks.at_least("most", most, 1))
        self.most: int | None = most
        self.capped: bool = False

    def __repr__(self) -> str:
        settings = [
            f"{key}={value!r}" for key, value in vars(self).items() if not key.startswith("_")
        ]
        return f"{type(self).__name__}({', '.join(settings)})"

    def begin(self, like: Tensor) -> Self:
        """Return a copy with the same settings, for points in the dtype and on the device of ``like``.

        A subclass that remembers anything resets it here.
        """
        begun = self.fork()
        begun.capped = False
        return begun

    def frozen(self) -> Dictionary:
        """Return a dictionary that does not draw again, for use while a batch is chosen."""
        return self

    def accepts(self, point: Candidate, sketch: Observed) -> bool:
        """Return whether an observation becomes an inducing point; ignored if it is dependent.

        If it would make the inducing points nearly singular, the sketch replaces all of them by the
        rows of ``chosen``, and calls ``replaced``.
        """
        return False

    def redraws(self, sketch: Observed) -> list[int] | None:
        """Return the rows of the next dictionary; None to keep the present one."""
        return None

    def allowed(self, sketch: Observed) -> Tensor:
        """Return the largest residual ``k(x, x) - |z(x)|^2`` that ``chosen`` may leave, [rows].

        By default it is the present residual, and at least ``FINE`` of the prior; for the latest
        row it is ``FINE`` of the prior.
        """
        rows = sketch.rows
        negligible = FINE * rows.prior
        allowed = rows.residual.maximum(negligible)
        allowed[rows.latest_row] = negligible[rows.latest_row]
        return allowed

    def chosen(self, sketch: Observed) -> list[int]:
        """Return the rows of a new dictionary, by pivoting until residuals are at most ``allowed``."""
        return self._pivots(sketch, self.allowed(sketch), self.most)

    def replaced(self, before: Features, sketch: Observed) -> None:
        """Update what the dictionary remembers, after rows have replaced the points of ``before``."""

    def has_capacity(self, m: int) -> bool:
        """Return whether a point may be added to m others; set ``capped`` if not."""
        if self.most is not None and m >= self.most:
            self.capped = True
            return False
        return True

    def _pivots(self, sketch: Observed, allowed: Tensor, most: int | None) -> list[int]:
        """Return at most ``most`` pivots, until residuals are at most ``allowed`` [rows]."""
        X = sketch.rows.X
        m = len(X) if most is None else most
        prior = sketch.rows.prior
        chosen, residual = pivots(lambda i: sketch.k(X[i : i + 1], X)[0], prior, m, allowed)
        if m == self.most and bool((residual > allowed).any()):
            self.capped = True
        return chosen


class FixedDictionary(Dictionary):
    """Inducing points that are given in advance, and never change.

    Args:
        points: Z [m d]. The posterior leaves out points that depend linearly on earlier ones.

    Raises:
        InvalidInput: ``points`` is no finite floating-point matrix.
    """

    stays = True

    def __init__(self, points: Tensor) -> None:
        super().__init__()
        checks.points("points", points)
        if points.ndim != 2:
            raise InvalidInput(f"points must have shape [m d], got {tuple(points.shape)}.")
        self.points: Tensor = points.detach().clone()

    def __repr__(self) -> str:
        return f"FixedDictionary({len(self.points)} points)"

    @classmethod
    def pivoted(cls, kernel: Kernel, X: Tensor, m: int, tolerance: float = 1e-9) -> FixedDictionary:
        """Return at most m rows of X [n d], the pivots of a Cholesky factorisation, O(n m^2).

        Harbrecht, Peters & Schneider (2012), Alg. 1.

        Args:
            kernel: The kernel of the posterior.
            X: Candidates, for example a sample of where observations are expected.
            m: Largest number of points.
            tolerance: Largest residual of a candidate, as a fraction of the largest prior variance,
                at which the choice ends.
        """
        m = checks.whole("m", m, 1)
        tolerance = checks.non_negative("tolerance", tolerance)
        if len(checks.rows("X", X)) == 0:
            raise InvalidInput("X must have at least one row.")
        k = freeze(checks.kernel(kernel), X)
        prior = k.diagonal(X)
        allowed = tolerance * float(prior.max())
        chosen, _ = pivots(lambda i: k(X[i : i + 1], X)[0], prior, m, allowed)
        return cls(X[chosen])

    def begin(self, like: Tensor) -> FixedDictionary:
        return FixedDictionary(self.points.to(like))


class GreedyDictionary(Dictionary):
    """Inducing points that leave no observation with a residual above a threshold.

    An observed point enters if the points before it leave a residual above ``threshold``. So every
    residual of the sketch is at most ``threshold``, and how much it widens mixture bounds is known
    in advance. Observations that come one by one are tested in their order: the approximate linear
    dependence test of Engel, Mannor & Meir (2004). Of observations that come together, those with
    the largest residual enter first, which takes fewer points. If the points would be nearly
    singular, for example because the first ones were close to each other, all are chosen again from
    all locations. So no observation is left out because of rounding.

    Args:
        threshold: Largest residual ``w (k(x, x) - |z(x)|^2)`` of an observation of weight w, in
            units of the kernel. Residuals below 1e-9 of the prior variance count as 0.
        most: Largest number of points. If it is reached, residuals may be larger, and ``capped`` is
            true.
    """

    in_blocks = True

    def __init__(self, threshold: float = 0.01, most: int | None = None) -> None:
        super().__init__(most)
        self.threshold: float = checks.positive("threshold", threshold)

    def accepts(self, point: Candidate, sketch: Observed) -> bool:
        return point.weight * point.residual > self.threshold and self.has_capacity(sketch.m)

    def allowed(self, sketch: Observed) -> Tensor:
        prior = sketch.rows.prior
        allowed = prior.new_full(prior.shape, self.threshold)
        if sketch.weighted:
            largest_weight = sketch.kappa / prior  # at least that of any observation of the row
            allowed = allowed / largest_weight
        return allowed.maximum(DEPENDENT * prior)
