"""Dictionaries: the choice of the points that span a sketch; ``leverage.py`` has the randomised ones.

A sketch calls ``accepts`` before it takes in an observation, and ``redraws`` after it. A dictionary of your own is a
subclass that defines one of them. Where all observations are known, ``chosen`` chooses among them by pivoting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, Self

from gpytorch.kernels import Kernel
from torch import Tensor

from kbo._base import checks
from kbo._base.linalg import GrowingTensor, InverseRoot
from kbo._base.stateful import Stateful
from kbo.errors import InvalidInput
from kbo.kernels import DenseKernel, freeze
from kbo.regression.sketch.features import CONDITION, DEPENDENT, Features, Place
from kbo.regression.sketch.rows import Rows


class Observed(Protocol):
    """The parts of a sketch that dictionaries read: ``stream.Sketch`` documents them."""

    ridge: float
    root: InverseRoot
    k: DenseKernel
    rows: Rows
    m: int
    features: Features
    kappa: float
    weighted: bool

    def row_leverages(self) -> Tensor:
        """Return the leverages of all rows, [rows]."""
        ...


@dataclass(frozen=True)
class Candidate:
    """An observation that a sketch is about to take in.

    Attributes:
        prior: ``k(x, x)``.
        residual: What the dictionary does not explain of it, ``k(x, x) - |z(x)|^2``.
        column: ``k(Z, x)``, [m 1].
        features: ``z(x)``, [m].
        place: Its location.
        basis: The features of the anchors.
        weight: Its weight.
        image: What ``Dictionary.image`` returned.
        image_square: ``|image|^2``.
    """

    prior: float
    residual: float
    column: Tensor
    features: Tensor
    place: Place
    basis: Features
    weight: float = 1.0
    image: Tensor | None = None
    image_square: float = 0.0

    @property
    def anchor(self) -> int | None:
        """The anchor at the same location; None if there is none."""
        return self.basis.at(self.place)

    @cached_property
    def coefficients(self) -> Tensor:
        """``k(Z, Z)^-1 k(Z, x)``, [m]."""
        return self.basis.coefficients(self.features)

    @property
    def dependent(self) -> bool:
        """Whether it adds nothing but rounding to the dictionary, and never becomes an anchor."""
        return self.residual <= DEPENDENT * self.prior

    @cached_property
    def well_conditioned(self) -> bool:
        """Whether the anchors and it are not nearly singular together; if they are, all are chosen again."""
        limit = self.residual / (CONDITION * self.prior)
        if 1 + float(self.basis.spread(self.features)) ** 2 < limit:
            return True  # mostly, and then the coefficients are not needed
        return 1 + float(self.coefficients @ self.coefficients) < limit

    @property
    def negligible(self) -> bool:
        """Whether a dictionary without a threshold does better without it: little is lost, and it would be singular."""
        return self.dependent or (self.residual <= FINE * self.prior and not self.well_conditioned)


FINE = 1e-6
"""Fraction of the prior variance that observations may leave after a new choice of points that replaces others."""

MOST_ANCHORS = 500
"""Points of a default dictionary; where more are needed, bounds are wider or lose their guarantee."""


class Dictionary(Stateful):
    """Chooses the points that span a sketch; the base class starts without points and never takes any.

    What is passed to a sketch is a description, which ``begin`` turns into a chooser with a memory of its own; so one
    dictionary may serve many sketches.

    Args:
        most: Largest number of points m; None for no limit. Mixture bounds pay for a limit by what the points leave
            unexplained; bounds that need a good dictionary may lose their guarantee.

    Attributes:
        capped: Whether the limit has kept a point out.
        threshold: Largest ``w (k(x, x) - |z(x)|^2)`` that an observation of weight w is left with; None if the
            dictionary promises nothing.
    """

    saved: tuple[str, ...] = ("capped",)
    """The attributes that change while observations come: plain values, tensors, or stateful parts."""

    points: Tensor | None = None
    """The points to begin with, [m d]."""

    stays = False
    """Whether it never changes, whatever is observed."""

    in_blocks = False
    """Whether observations that come together are taken in at once, without ``accepts``, before ``redraws``.

    Unless that draws others, the rows that are left with more than ``allowed`` become anchors, the worst ones first.
    """

    needs_refresh = False
    """Whether the dictionary would be drawn again, if it were not frozen."""

    advice = ""
    """Advice where observations are left with much variance, in words."""

    threshold: float | None = None

    def __init__(self, most: int | None = None) -> None:
        self.most: int | None = None if most is None else int(checks.at_least("most", most, 1))
        self.capped: bool = False

    def __repr__(self) -> str:
        settings = (
            f"{key}={value!r}" for key, value in vars(self).items() if not key.startswith("_")
        )
        return f"{type(self).__name__}({', '.join(settings)})"

    def begin(self, like: Tensor) -> Self:
        """A chooser that has seen nothing, for points in the dtype and on the device of ``like``.

        It has the settings of this one and nothing of what this one remembers. A subclass with a memory resets it here.
        """
        begun = self.fork()
        begun.capped = False
        return begun

    def image(self, column: Tensor, features: Tensor, sketch: Observed) -> Tensor | None:
        """A vector [k] whose square ``accepts`` reads, given ``k(Z, x)`` [m 1] and ``z(x)`` [m]; None without any."""
        return None

    def accepts(self, point: Candidate, sketch: Observed) -> bool:
        """Whether the observation that is about to come becomes an anchor; ignored if it is dependent.

        Where anchors and observation would be nearly singular together, the sketch takes the rows that ``chosen``
        returns in place of all anchors, and calls ``replaced``.
        """
        return False

    def redraws(self, sketch: Observed) -> list[int] | None:
        """The rows of the sketch that make up the next dictionary, after an observation; None to keep this one."""
        return None

    def allowed(self, sketch: Observed) -> Tensor:
        """The largest ``k(x, x) - |z(x)|^2`` that rows may be left with by ``chosen``, [rows].

        By default what they are left with now, but only a small fraction of the prior for the latest.
        """
        rows = sketch.rows
        small = FINE * rows.prior
        allowed = rows.residual.maximum(small)
        allowed[rows.latest_row] = small[rows.latest_row]
        return allowed

    def chosen(self, sketch: Observed) -> list[int]:
        """The rows of the sketch that make up a dictionary chosen again: by pivoting, until ``allowed`` is reached."""
        return self._pivots(sketch, self.allowed(sketch), self.most)

    def replaced(self, before: Features, sketch: Observed) -> None:
        """Follow, if something is remembered of anchors: rows of the sketch have replaced those that were before."""

    def frozen(self) -> Dictionary:
        """A chooser for the time while a batch is chosen: the same, unless it waits for the batch to end."""
        return self

    def _pivots(self, sketch: Observed, allowed: Tensor, most: int | None) -> list[int]:
        """At most ``most`` rows of the sketch, by pivoting, until none is left with more than ``allowed`` [rows]."""
        rows = sketch.rows
        m = rows.n if most is None else most
        chosen, left = pivots(
            lambda i: sketch.k(rows.X[i : i + 1], rows.X)[0], rows.prior, m, allowed
        )
        if bool((left > allowed).any()) and m == self.most:
            self.capped = True
        return chosen

    def has_capacity(self, m: int) -> bool:
        """Whether one more point is allowed beside m others; remembers that it was not."""
        if self.most is not None and m >= self.most:
            self.capped = True
            return False
        return True


class FixedDictionary(Dictionary):
    """Points given in advance, whatever is observed.

    Args:
        points: Z [m d]. Points that add nothing to those before them are left out by the posterior.

    Raises:
        InvalidInput: Not a finite floating-point matrix.
    """

    stays = True
    advice = (
        "its points were given: choose them where observations are, as FixedDictionary.pivoted does"
    )

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
        """At most m rows of X [n d], each the one that those before it explain least, O(n m^2).

        Pivoted Cholesky (Harbrecht, Peters & Schneider 2012, Alg. 1).

        Args:
            kernel: The kernel of the posterior.
            X: Candidates, for example a sample of where observations are expected.
            m: Largest number of points.
            tolerance: Fraction of the largest prior variance at which everything counts as explained.
        """
        m, tolerance = checks.whole("m", m, 1), checks.non_negative("tolerance", tolerance)
        if len(checks.rows("X", X)) == 0:
            raise InvalidInput("X must have at least one row.")
        k = freeze(checks.kernel(kernel), X)
        prior = k.diagonal(X)
        least = tolerance * float(prior.max())
        return cls(X[pivots(lambda i: k(X[i : i + 1], X)[0], prior, m, least)[0]])

    def begin(self, like: Tensor) -> FixedDictionary:
        return FixedDictionary(self.points.to(like))


def pivots(
    row: Callable[[int], Tensor],
    prior: Tensor,
    m: int,
    least: Tensor | float,
    weight: Tensor | float = 1.0,
) -> tuple[list[int], Tensor]:
    """Return at most m of n points, each with the largest product of weight and of what those before leave of it.

    What they leave is counted as far as it is more than ``least``; points that are left with no more are not chosen.
    The second value is what the chosen points leave of each, [n]. O(n m^2).

    Args:
        row: The row [n] of the kernel matrix of a point.
        prior: The diagonal of that matrix [n].
        m: Largest number of points.
        least: The variance that a point may be left with, [n] or one number.
        weight: Positive numbers [n].
    """
    left = prior.clone()
    factor = GrowingTensor(prior.new_empty(0, len(prior)))
    chosen: list[int] = []
    while len(chosen) < m:
        excess = weight * (left - least)
        i = int(excess.argmax())
        if not float(excess[i]) > 0:
            break
        before = factor.value
        coordinate = (row(i) - before[:, i] @ before) / left[i].sqrt()
        factor.append(coordinate.unsqueeze(0))
        left = (left - coordinate.square()).clamp_min(0)
        left[i] = 0  # but for rounding
        chosen.append(i)
    return chosen, left


class GreedyDictionary(Dictionary):
    """Takes every observed point that the dictionary explains too little of.

    Then no observation leaves more than ``threshold`` unexplained, so the residual of a sketch, and with it the price
    of mixture bounds on it, is known in advance. Observations that come one by one enter in their order: the
    approximate linear dependence test of Engel, Mannor & Meir (2004). Of those that come together the worst ones enter
    first, which takes fewer points. Where the points would be nearly singular together, for example because the first
    ones were close to each other, all are chosen again from all locations: no observation is left out for rounding.

    Args:
        threshold: Largest ``w (k(x, x) - |z(x)|^2)`` that may stay for weight w, in units of the kernel. What is below
            1e-9 of the prior variance counts as explained, however small it is.
        most: Largest number of points; then observations may leave more, which ``provenance`` of the state says.
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
            largest_weight = (
                sketch.kappa / prior
            )  # at least the weight of any observation of the row
            allowed = allowed / largest_weight
        return allowed.maximum(DEPENDENT * prior)
