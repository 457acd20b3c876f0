"""Dictionaries: the choice of the points that span a sketch.

A sketch calls ``accepts`` before it takes in an observation, and ``redraws`` after it. A dictionary of your own is a
subclass that defines one of them.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol, Self

import torch
from torch import Tensor

from kbo import checks
from kbo.linalg import InverseRoot
from kbo.regression.sketch.features import Features, dependent
from kbo.regression.sketch.rows import Rows
from kbo.stateful import Stateful


class Observed(Protocol):
    """The parts of a sketch that dictionaries read.

    Attributes:
        ridge: The regulariser.
        root: ``M^-1`` as a square root.
        rows: The distinct locations that were observed.
    """

    ridge: float
    root: InverseRoot
    rows: Rows

    @property
    def m(self) -> int:
        """Number of anchors."""
        ...

    def row_leverages(self) -> Tensor:
        """The leverages of all rows at the sketch's ridge, [rows]."""
        ...


@dataclass(frozen=True)
class Candidate:
    """An observation that a sketch is about to take in.

    Attributes:
        prior: ``k(x, x)``.
        residual: What the dictionary does not explain of it, ``k(x, x) - |z(x)|^2``.
        column: ``k(Z, x)``, [m].
        features: ``z(x)``, [m].
        anchor: The anchor at the same location; None if there is none.
        basis: The features of the anchors.
    """

    prior: float
    residual: float
    column: Tensor
    features: Tensor
    anchor: int | None
    basis: Features

    @cached_property
    def coefficients(self) -> Tensor:
        """``k(Z, Z)^-1 k(Z, x)``, [m]."""
        return self.basis.coefficients(self.features)

    @property
    def dependent(self) -> bool:
        """Whether it cannot become an anchor, because it adds nothing."""
        return dependent(self.prior, self.residual, self.coefficients)


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

    saved: ClassVar[tuple[str, ...]] = ("capped",)
    """The attributes that change while observations come: plain values, tensors, or stateful parts."""

    points: Tensor | None = None
    """The points to begin with, [m d]."""

    fixed = False
    """Whether ``accepts`` and ``redraws`` need not be called at all."""

    def __init__(self, most: int | None = None) -> None:
        self.most = None if most is None else int(checks.at_least("most", most, 1))
        self.capped = False

    def __repr__(self) -> str:
        settings = (f"{key}={value!r}" for key, value in vars(self).items() if not key.startswith("_"))
        return f"{type(self).__name__}({', '.join(settings)})"

    def begin(self, like: Tensor) -> Self:
        """A chooser that has seen nothing, for points in the dtype and on the device of ``like``."""
        return copy.copy(self)

    def accepts(self, point: Candidate, sketch: Observed) -> bool:
        """Whether the observation that is about to come becomes an anchor; ignored if it is dependent."""
        return False

    def redraws(self, sketch: Observed) -> list[int] | None:
        """The rows of the sketch that make up the next dictionary, after an observation; None to keep this one."""
        return None

    needs_refresh = False
    """Whether the dictionary would be drawn again, if it were not frozen."""

    def frozen(self) -> Dictionary:
        """A chooser for the time while a batch is chosen: the same, unless it waits for the batch to end."""
        return self

    def _has_capacity(self, m: int) -> bool:
        """Whether one more point is allowed beside m others; remembers that it was not."""
        if self.most is not None and m >= self.most:
            self.capped = True
            return False
        return True


class Uniforms(Stateful):
    """Uniform random numbers, the same for the same seed: all that must be remembered is how many were drawn."""

    saved = ("drawn", "blocks")

    _BLOCK = 256

    def __init__(self, seed: int) -> None:
        self.seed, self.drawn, self.blocks = seed, 0, 0
        self._numbers: list[float] = []

    def next(self) -> float:
        """One number in [0, 1)."""
        block, position = divmod(self.drawn, self._BLOCK)
        if position == 0 or not self._numbers:
            self._numbers = self._generate(block, self._BLOCK).tolist()
        self.drawn += 1
        return self._numbers[position]

    def many(self, n: int) -> Tensor:
        """Several numbers at once, [n]."""
        self.blocks += 1
        return self._generate(-self.blocks, n)

    def restored(self) -> None:  # noqa: D102
        self._numbers = []

    def _generate(self, block: int, n: int) -> Tensor:
        # Odd multipliers spread seeds and blocks over all 63 bits: far from the small seeds that problems use.
        mixed = (self.seed + 1) * 0x9E3779B97F4A7C15 + (block + 1) * 0xD1B54A32D192ED03
        generator = torch.Generator().manual_seed(mixed % 2**63)
        return torch.rand(n, generator=generator, dtype=torch.float64)
