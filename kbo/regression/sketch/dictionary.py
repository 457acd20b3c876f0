"""Dictionaries: the choice of the points that span a sketch; ``leverage.py`` has the randomised ones.

A sketch calls ``accepts`` before it takes in an observation, and ``redraws`` after it. A dictionary of your own is a
subclass that defines one of them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, Self

from gpytorch.kernels import Kernel
from torch import Tensor

from kbo import checks
from kbo.errors import InvalidInput
from kbo.kernels import DenseKernel, freeze
from kbo.linalg import InverseRoot
from kbo.regression.sketch.features import DEPENDENT, Features, Place
from kbo.regression.sketch.rows import Rows
from kbo.stateful import Stateful


class Observed(Protocol):
    """The parts of a sketch that dictionaries read: ``stream.Sketch`` documents them."""

    ridge: float
    root: InverseRoot
    k: DenseKernel
    rows: Rows
    m: int

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

    @cached_property
    def dependent(self) -> bool:
        """Whether it cannot become an anchor, because it adds nothing; see ``features.py``."""
        least = DEPENDENT * self.prior
        if self.residual <= least or self.residual > least * (1 + float(self.basis.spread(self.features)) ** 2):
            return self.residual <= least  # mostly, and then the coefficients are not needed
        return self.residual <= least * (1 + float(self.coefficients @ self.coefficients))


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
    """

    saved: tuple[str, ...] = ("capped",)
    """The attributes that change while observations come: plain values, tensors, or stateful parts."""

    points: Tensor | None = None
    """The points to begin with, [m d]."""

    stays = False
    """Whether it never changes, whatever is observed."""

    in_blocks = False
    """Whether observations that come together are taken in at once, without ``accepts``, before ``redraws``."""

    needs_refresh = False
    """Whether the dictionary would be drawn again, if it were not frozen."""

    def __init__(self, most: int | None = None) -> None:
        self.most: int | None = None if most is None else int(checks.at_least("most", most, 1))
        self.capped: bool = False

    def __repr__(self) -> str:
        settings = (f"{key}={value!r}" for key, value in vars(self).items() if not key.startswith("_"))
        return f"{type(self).__name__}({', '.join(settings)})"

    def begin(self, like: Tensor) -> Self:
        """A chooser that has seen nothing, for points in the dtype and on the device of ``like``."""
        return copy.copy(self)

    def image(self, column: Tensor, features: Tensor, sketch: Observed) -> Tensor | None:
        """A vector [k] whose square ``accepts`` reads, given ``k(Z, x)`` [m 1] and ``z(x)`` [m]; None without any."""
        return None

    def accepts(self, point: Candidate, sketch: Observed) -> bool:
        """Whether the observation that is about to come becomes an anchor; ignored if it is dependent."""
        return False

    def redraws(self, sketch: Observed) -> list[int] | None:
        """The rows of the sketch that make up the next dictionary, after an observation; None to keep this one."""
        return None

    def frozen(self) -> Dictionary:
        """A chooser for the time while a batch is chosen: the same, unless it waits for the batch to end."""
        return self

    def _has_capacity(self, m: int) -> bool:
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
        return cls(X[pivots(lambda i: k(X[i : i + 1], X)[0], k.diagonal(X), m, tolerance)])

    def begin(self, like: Tensor) -> FixedDictionary:
        return FixedDictionary(self.points.to(like))


def pivots(
    row: Callable[[int], Tensor], prior: Tensor, m: int, tolerance: float, weight: Tensor | float = 1.0
) -> list[int]:
    """Return at most m of n points, each with the largest product of weight and of what those before leave of it.

    Points of which nothing is left, up to the tolerance, are not among them.

    Args:
        row: The row [n] of the kernel matrix of a point.
        prior: The diagonal of that matrix [n].
        m: Largest number of points.
        tolerance: Fraction of the largest prior variance at which everything counts as explained.
        weight: Positive numbers [n].
    """
    rest, least = prior.clone(), tolerance * float(prior.max())
    rows, chosen = prior.new_zeros(m, len(prior)), []
    while len(chosen) < m and float(rest.max()) > least:
        j, i = len(chosen), int((weight * (rest - least)).argmax())
        rows[j] = (row(i) - rows[:j, i] @ rows[:j]) / rest[i].sqrt()
        rest = (rest - rows[j].square()).clamp_min(0)
        chosen.append(i)
    return chosen


class GreedyDictionary(Dictionary):
    """Takes every observed point that the dictionary explains too little of.

    Then no observation leaves more than ``threshold`` unexplained, so the residual of a sketch, and with it the price
    of mixture bounds on it, is known in advance; except for points that depend on the others up to rounding, which
    never enter and may leave a little more. The approximate linear dependence test of Engel, Mannor & Meir (2004).

    Args:
        threshold: Largest ``w (k(x, x) - |z(x)|^2)`` that may stay for weight w, in units of the kernel.
        most: Largest number of points; then observations may leave more.
    """

    def __init__(self, threshold: float = 0.01, most: int | None = None) -> None:
        super().__init__(most)
        self.threshold: float = checks.positive("threshold", threshold)

    def accepts(self, point: Candidate, sketch: Observed) -> bool:
        return point.weight * point.residual > self.threshold and self._has_capacity(sketch.m)
