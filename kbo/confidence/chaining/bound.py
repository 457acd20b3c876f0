"""Bounds by chaining over hierarchical covers (Contal, Malherbe & Vayatis 2015), for draws of a Gaussian process.

A union over all points of a set pays ``ln |X|``, however alike its points are. A chain ``T_1 c T_2 c ..`` of covers
with radii ``eps_i = kappa 2^(1 - i)`` under the distance of the posterior pays for differences instead: at level i
there are ``|T_i|`` of them, and they are short. With

    H_i = eps_i sqrt(2 ln((|T_i| + 1) i^2 t^2 pi^4 / (36 delta))),      t = n + 1,

Algorithm 1 of the paper adds to the mean the sum of the H_i with ``min std <= eps_i < std(x)``. That ranks points; as a
bound it lacks the levels below the least standard deviation, which are the same for all points.

``rigorous=True`` is a bound that is proved (docs/papers.md): for every level c, every centre s of T_c obeys
``|f(s) - mean(s)| <= v_c std(s)``, and every further level adds one difference of at most ``2 H_i``, so

    |f(x) - mean(x)| <= min over c of (std(x) + 2 eps_c) v_c + sum of 2 H_i over i > c.

The last c is the set itself, with ``FiniteSet(variant="quantile")`` at 0.9 delta, so that the minimum is never much
wider than that; the v_c and H_i of the levels are those at shares of 0.1 delta, with exact normal quantiles.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from kbo._base import checks
from kbo._base.linalg import safe_sqrt
from kbo.confidence.base import Confidence, checked_state
from kbo.confidence.chaining.chain import Chain
from kbo.confidence.chaining.reuse import ChainMemory
from kbo.confidence.gaussian import (
    OverPoints,
    exact_tail,
    finite_set,
    gaussian_statement,
    srinivas,
)
from kbo.errors import InvalidInput
from kbo.regression import Posterior

_ROUNDING = 8
"""Units in the last place that a standard deviation may be off."""


class Bonus(ABC):
    """A non-decreasing function of the standard deviation."""

    @abstractmethod
    def __call__(self, std: Tensor) -> Tensor:
        """Return the bonus [...] at standard deviations [...]."""

    def majorant(self, std: Tensor) -> Tensor:
        """Return a continuous bonus [...] that is nowhere smaller, to search with."""
        return self(std)


@dataclass(frozen=True)
class Steps(Bonus):
    """The sum of the heights of all steps below the standard deviation.

    Args:
        edges: Positions of the steps, decreasing and above zero; a step is below a standard deviation that is larger.
        heights: Not negative.
    """

    edges: Sequence[float]
    heights: Sequence[float]

    def __call__(self, std: Tensor) -> Tensor:
        return self._values(std).take(self._below(std))

    def majorant(self, std: Tensor) -> Tensor:
        """Return straight lines through the upper corners of the steps; the last one has no end."""
        knots, values = std.new_tensor([0.0, *reversed(self.edges)]), self._values(std)
        slopes = values.diff() / knots.diff()
        piece = self._below(std).clamp(0, len(slopes) - 1)
        return values[piece] + slopes[piece] * (std - knots[piece])

    def _values(self, std: Tensor) -> Tensor:
        return std.new_tensor([*accumulate(reversed(self.heights), initial=0.0)])

    def _below(self, std: Tensor) -> Tensor:
        """Return the number of edges below by more than rounding: without data the deviation equals the first edge."""
        edges = std.new_tensor([*reversed(self.edges)]) * (
            1 + _ROUNDING * torch.finfo(std.dtype).eps
        )
        return torch.searchsorted(edges, std.detach().contiguous())


@dataclass(frozen=True)
class Cuts(Bonus):
    """The least of straight lines ``intercept + slope * std``.

    Args:
        intercepts: Not negative.
        slopes: Not negative.
    """

    intercepts: Sequence[float]
    slopes: Sequence[float]

    def __call__(self, std: Tensor) -> Tensor:
        lines = std.new_tensor(self.intercepts) + std.new_tensor(self.slopes) * std.unsqueeze(-1)
        return lines.amin(-1)


class Chaining(OverPoints):
    """Mean and a bonus that depends on the standard deviation and on how alike the points of a set are.

    For functions that are drawn from the Gaussian-process prior of the state, and Gaussian noise with its ridge as
    variance; the set may be anything that has a kernel. Covers are kept while data arrive, as long as they stay valid,
    so use one object for all rounds.

    Args:
        delta: Probability that the bounds may fail.
        rigorous: A bound that is proved, instead of Algorithm 1, which has no ``guarantee`` and may exceed the range of
            the function by far.
        points: The finite set [N d], in units of the state; for a box, a design that fills it, whose bounds at other
            points have no guarantee. If omitted, the set is
            the points X [N d] of each call: a rule for sets that change from round to round, without a ``guarantee``,
            since a bound on one set a round says nothing about several.
        smooth: A continuous majorant of Algorithm 1 instead of its steps, for searches that follow gradients; the
            default of ``ChainingUCB``. Rigorous bounds are continuous anyway.
        refresh: The factor by which the data grow before smaller covers are computed.

    Raises:
        InvalidInput: A number out of its range.
    """

    covers: frozenset[str] = frozenset({"weights"})

    def __init__(
        self,
        delta: float,
        rigorous: bool = False,
        points: Tensor | None = None,
        smooth: bool = False,
        refresh: float = 2.0,
    ) -> None:
        self.delta: float = checks.probability("delta", delta)
        self.rigorous: bool = checks.flag("rigorous", rigorous)
        self.smooth: bool = checks.flag("smooth", smooth)
        self.refresh: float = checks.at_least("refresh", refresh, 1)
        self.points: Tensor | None = None if points is None else finite_set(points).detach().clone()
        self.n_points: int | None = None if points is None else len(points)
        self._memory = ChainMemory(refresh)
        self._bonus: tuple[int, Bonus] | None = None  # over the given points, with the version
        if rigorous and points is not None:
            self.guarantee: str | None = gaussian_statement(
                f"{len(points)} points given", self.delta
            )

    def __repr__(self) -> str:
        points = None if self.points is None else tuple(self.points.shape)
        return f"Chaining(delta={self.delta:g}, rigorous={self.rigorous}, points={points}, smooth={self.smooth})"

    def reported(self) -> Chaining:
        """Return the rigorous bound over the same set; the two share their covers."""
        if self.rigorous:
            return self
        proved = Chaining(self.delta, rigorous=True, points=self.points, refresh=self.refresh)
        proved.share_covers(self)
        return proved

    def share_covers(self, other: Confidence) -> None:
        """Keep covers together with another one, of the same set or not, from here on.

        Raises:
            InvalidInput: The other one is no ``Chaining``.
        """
        if not isinstance(other, Chaining):
            raise InvalidInput(
                f"covers are shared with another Chaining, got {type(other).__name__}."
            )
        self._memory = other._memory

    def interval(self, state: Posterior, X: Tensor) -> tuple[Tensor, Tensor]:
        mean, margin = self._mean_and_margin(state, X, self.smooth)
        return mean - margin, mean + margin

    def upper(self, state: Posterior, X: Tensor) -> Tensor:
        return torch.add(*self._mean_and_margin(state, X, self.smooth))

    def quick_interval(self, state: Posterior, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the bounds with the continuous majorant of the steps."""
        mean, margin = self._mean_and_margin(state, X, smooth=True)
        return mean - margin, mean + margin

    def _mean_and_margin(self, state: Posterior, X: Tensor, smooth: bool) -> tuple[Tensor, Tensor]:
        bonus = self.bonus(state, X)
        mean, variance = state.predict(X)
        self._note_queries(X)
        std = safe_sqrt(variance)
        return mean, bonus.majorant(std) if smooth else bonus(std)

    @torch.no_grad()
    def bonus(self, state: Posterior, X: Tensor | None = None) -> Bonus:
        """Return the present bonus as a function of the standard deviation; without given points X [N d] is the set.

        Hypothetical observations change standard deviations, not the bonus.

        Raises:
            InvalidInput: There is no finite set.
        """
        observed = checked_state(state).observed
        if self.points is None:
            return self._compute(observed, self._set(observed, X))
        if self._bonus is None or self._bonus[0] != observed.version:
            self._bonus = observed.version, self._compute(observed, self._set(observed, X))
        return self._bonus[1]

    def chain(self, state: Posterior, X: Tensor | None = None) -> Chain:
        """Return the covers of ``bonus``; arguments and errors as there."""
        observed = state.observed
        return self._covers(observed, self._set(observed, X))[0]

    def _set(self, state: Posterior, X: Tensor | None) -> Tensor:
        """Return the finite set [N d], in the dtype and on the device of X or of the data."""
        if self.points is not None:
            known = state.like if state.like.shape[-1] else self.points
            return self.points.to(known if X is None else checks.shaped("X", X))
        if X is None or checks.shaped("X", X).ndim != 2:
            raise InvalidInput(
                "Chaining needs its finite set, which batches of points do not give: pass Chaining(..., points=...), "
                "all choices [N d] or, for a box, a design that fills it."
            )
        return finite_set(X)

    def _covers(self, state: Posterior, points: Tensor) -> tuple[Chain, int]:
        """Return the chain, and its last level whose radius is at least the least standard deviation of the points."""
        return self._memory.chain(state, points, math.sqrt(float(state.predict(points)[1].min())))

    def _compute(self, state: Posterior, points: Tensor) -> Bonus:
        (chain, depth), t = self._covers(state, points), state.n + 1
        levels, sizes = range(1, depth + 1), chain.sizes[:depth]
        if chain.scale == 0:
            return Cuts([0.0], [0.0])  # the prior variance is zero everywhere
        if self.rigorous:
            return _cuts(
                sizes, [chain.reach(level) for level in levels], len(points), t, self.delta
            )
        radii = [chain.radius(level) for level in levels]
        return Steps(radii, heights(sizes, radii, t, self.delta))


def heights(sizes: list[int], radii: list[float], t: int, delta: float) -> list[float]:
    """Return ``H_i`` of levels i = 1, 2, .. of these sizes and radii, in round t: Algorithm 1."""
    return [
        eps * contal(size, i, t, delta)
        for i, (size, eps) in enumerate(zip(sizes, radii, strict=True), start=1)
    ]


def contal(size: int, level: int, t: int, delta: float) -> float:
    """Return ``sqrt(2 ln((size + 1) level^2 t^2 pi^4 / (36 delta)))`` for a level that adds up to ``size`` points.

    Contal, Malherbe & Vayatis (2015), Algorithm 1, with the ``36 delta`` that a union over levels and rounds needs.
    """
    return math.sqrt(2 * math.log((size + 1) * level**2 * t**2 * math.pi**4 / (36 * delta)))


def _cuts(sizes: list[int], radii: list[float], n_points: int, t: int, delta: float) -> Cuts:
    """Return the bound at every cut, the levels and the set itself.

    Nine tenths of delta pay for the set itself. Of the tenth for the chain, differences take the shares that Algorithm
    1 gives to the levels from 2; that of level 1, which has none, is divided among the cuts.
    """
    own, chained = 0.9 * delta, 0.1 * delta
    # A point of level i has a parent of level i - 1 within the radius of that level; the last level is the set.
    pairs = enumerate(zip([*sizes[1:], n_points], radii, strict=True), start=2)
    differences = [eps * exact_tail(contal(size, i, t, chained)) for i, (size, eps) in pairs]
    slopes = [exact_tail(contal(size - 1, 1, t, chained / len(sizes))) for size in sizes]
    # From a point to its centre of level c it is at most eps_c + .. + eps_m, which is 2 eps_c - eps_m.
    away = [sum(radii[c:]) for c in range(len(radii))]
    intercepts = [
        slope * far + sum(differences[c:])
        for c, (slope, far) in enumerate(zip(slopes, away, strict=True))
    ]
    return Cuts([*intercepts, 0.0], [*slopes, exact_tail(srinivas(n_points, t, own))])
