"""Bounds by chaining over hierarchical covers, for draws of a Gaussian process.

Contal, Malherbe & Vayatis (2015).

A union over all points of a set pays ``ln |X|``, however alike its points are. A chain
``T_1 c T_2 c ..`` of covers with radii ``eps_i = kappa 2^(1 - i)`` under the distance of the
posterior pays for differences instead: at level i there are ``|T_i|`` of them, and they are short.

Algorithm 1 of the paper adds to the mean the sum of the steps H_i with ``min std <= eps_i <
std(x)`` (``bonus.py``). That ranks points; as a bound it lacks the levels below the least standard
deviation, which are the same for all points. ``rigorous=True`` is a bound that is proved
(``proved.py``).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kbo._base import checks
from kbo._base.linalg import safe_sqrt
from kbo.confidence.base import Confidence, checked_state
from kbo.confidence.chaining.bonus import Bonus, Steps, heights
from kbo.confidence.chaining.chain import Chain
from kbo.confidence.chaining.memory import ChainMemory
from kbo.confidence.chaining.proved import Cuts, proved_cuts
from kbo.confidence.gaussian import OverPoints, finite_set, gaussian_statement
from kbo.errors import InvalidInput
from kbo.regression import Posterior


class Chaining(OverPoints):
    """Mean and a bonus of the standard deviation that is smaller if the points of a set are alike.

    For functions that are drawn from the Gaussian-process prior of the state, and Gaussian noise
    with its ridge as variance; the set may be anything that has a kernel. Covers are kept while
    data arrive, as long as they stay valid and until these have doubled, so use one object for all rounds.

    Args:
        delta: Probability that the bounds may fail.
        rigorous: A bound that is proved, instead of Algorithm 1, which has no ``guarantee`` and may
            exceed the range of the function by far.
        points: The finite set [N d], in units of the state; for a box, a design that fills it,
            whose bounds at other points have no guarantee. If omitted, the set is the points X [N
            d] of each call: a rule for sets that change from round to round, without a
            ``guarantee``, since a bound on one set a round says nothing about several.
        smooth: A continuous majorant of Algorithm 1 instead of its steps, for searches that follow
            gradients; the default of ``ChainingUCB``. Rigorous bounds are continuous anyway.

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
    ) -> None:
        super().__init__(points)
        self.delta: float = checks.probability("delta", delta)
        self.rigorous: bool = checks.flag("rigorous", rigorous)
        self.smooth: bool = checks.flag("smooth", smooth)
        self._memory = ChainMemory()
        self._bonus: tuple[int, Bonus] | None = None  # with the version of the posterior
        if points is not None and rigorous:
            self.guarantee: str | None = gaussian_statement(
                f"{len(points)} points given", self.delta
            )

    def reported(self) -> Chaining:
        """Return the rigorous bound over the same set; the two share their covers."""
        if self.rigorous:
            return self
        proved = Chaining(self.delta, rigorous=True, points=self.points)
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

    def quick_interval(self, state: Posterior, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the bounds [...] with the continuous majorant of the steps, at X [... d]."""
        mean, margin = self._mean_and_margin(state, X, smooth=True)
        return mean - margin, mean + margin

    def _mean_and_margin(self, state: Posterior, X: Tensor, smooth: bool) -> tuple[Tensor, Tensor]:
        bonus = self.bonus(state, X)
        mean, variance = state.predict(X)
        self._note_queries(state, X)
        std = safe_sqrt(variance)
        if smooth:
            return mean, bonus.majorant(std)
        return mean, bonus(std)

    @torch.no_grad()
    def bonus(self, state: Posterior, X: Tensor | None = None) -> Bonus:
        """Return the present bonus as a function of the standard deviation.

        Without given points X [N d] is the set.

        Hypothetical observations change standard deviations, not the bonus.

        Raises:
            InvalidInput: There is no finite set.
        """
        observed = checked_state(state).observed
        if self.points is None:
            return self._computed_bonus(observed, X)
        if self._bonus is None or self._bonus[0] != observed.version:
            self._bonus = observed.version, self._computed_bonus(observed, X)
        return self._bonus[1]

    def chain(self, state: Posterior, X: Tensor | None = None) -> Chain:
        """Return the covers of ``bonus``; arguments and errors as there."""
        points = self._finite_set(state.observed, X)
        return self._chain_and_depth(state.observed, points)[0]

    def _finite_set(self, state: Posterior, X: Tensor | None) -> Tensor:
        """Return the finite set [N d], in the dtype and on the device of X or of the data."""
        if self.points is not None:
            if X is not None:
                return self.points.to(checks.shaped("X", X))
            if state.like.shape[-1]:
                return self.points.to(state.like)
            return self.points
        if X is None or checks.shaped("X", X).ndim != 2:
            raise InvalidInput(
                "Chaining needs its finite set, which batches of points do not give: pass "
                "Chaining(..., points=...), all choices [N d] or, for a box, a design that fills "
                "it."
            )
        return finite_set(X)

    def _chain_and_depth(self, state: Posterior, points: Tensor) -> tuple[Chain, int]:
        """Return the chain and its last level not below the least standard deviation."""
        _, variance = state.predict(points)
        return self._memory.chain(state, points, math.sqrt(float(variance.min())))

    def _computed_bonus(self, state: Posterior, X: Tensor | None) -> Bonus:
        points = self._finite_set(state, X)
        chain, depth = self._chain_and_depth(state, points)
        if chain.scale == 0:
            return Cuts([0.0], [0.0])  # the prior variance is zero everywhere
        sizes = chain.sizes[:depth]
        levels = range(1, depth + 1)
        t = state.n + 1
        if self.rigorous:
            reaches = [chain.reach(level) for level in levels]
            return proved_cuts(sizes, reaches, len(points), t, self.delta)
        radii = [chain.radius(level) for level in levels]
        return Steps(radii, heights(sizes, radii, t, self.delta))
