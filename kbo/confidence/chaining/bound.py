"""Bounds by chaining over hierarchical covers: Contal, Malherbe & Vayatis (2015).

They are for functions that are drawn from the Gaussian-process prior. A union bound over the points
of a set X has a width of at least ``sqrt(2 ln |X|)``, even if the values at its points hardly
differ. A chain ``T_1 c T_2 c ..`` of covers with radii ``eps_i = kappa 2^(1 - i)``, in the distance
of the posterior, bounds differences instead. At level i there are ``|T_i|`` differences, whose
standard deviations are at most ``eps_(i-1)``.

On paper                                                                | in code
``mean + sum of H_i over min std <= eps_i < std(x)``, Algorithm 1       | ``bonus.Steps``
the proved bound, ``rigorous=True``                                     | ``bonus.proved_cuts``

Algorithm 1 only ranks points: it omits the levels below the least standard deviation, which are the
same for all points, and without them it is no bound.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kbo._base import checks
from kbo._base.linalg import safe_sqrt
from kbo.confidence.base import Confidence, checked_state
from kbo.confidence.chaining.bonus import Bonus, Cuts, Steps, heights, proved_cuts
from kbo.confidence.chaining.chain import Chain, ChainMemory
from kbo.confidence.gaussian import OverPoints, finite_set, gaussian_statement
from kbo.errors import InvalidInput
from kbo.regression import Posterior


class Chaining(OverPoints):
    """Bounds over a finite set of points, narrower the more similar the points are.

    The bounds are ``mean +- bonus(std)``, for functions drawn from the Gaussian-process prior of
    the state, and Gaussian noise with the ridge as variance. The points may be any objects with a
    kernel. Use one object for all rounds: it computes its covers again only when the data have
    doubled or a change makes them invalid.

    Args:
        delta: Probability that the bounds may fail.
        rigorous: Whether to use the proved bound. Algorithm 1 has no ``guarantee``, and may exceed
            the range of the function by far.
        points: The finite set [N d], in units of the state. For a box it is a design that fills it;
            bounds at other points have no guarantee. If omitted, the set is the points X [N d] of
            each call. That is a rule for sets that change from round to round; it has no
            ``guarantee``, because a bound for one set does not cover the others.

    Raises:
        InvalidInput: A number out of its range.
    """

    covers: frozenset[str] = frozenset({"weights"})

    def __init__(self, delta: float, rigorous: bool = False, points: Tensor | None = None) -> None:
        super().__init__(points)
        self.delta: float = checks.probability("delta", delta)
        self.rigorous: bool = checks.flag("rigorous", rigorous)
        self._memory = ChainMemory()
        self._bonus: tuple[int, Bonus] | None = None  # with the version of the posterior
        if points is not None and rigorous:
            self.guarantee: str | None = gaussian_statement(
                f"{len(points)} points given", self.delta
            )

    def reported(self) -> Chaining:
        """Return the rigorous bound over the same set, which shares the covers of this one."""
        if self.rigorous:
            return self
        proved = Chaining(self.delta, rigorous=True, points=self.points)
        proved.share_covers(self)
        return proved

    def share_covers(self, other: Confidence) -> None:
        """Share covers with another ``Chaining`` from now on, in both directions.

        Its finite set may be the same or another one.

        Raises:
            InvalidInput: ``other`` is no ``Chaining``.
        """
        self._memory = checks.instance("other", other, Chaining)._memory

    def interval(self, state: Posterior, X: Tensor) -> tuple[Tensor, Tensor]:
        return self._interval(state, X, smooth=False)

    def quick_interval(self, state: Posterior, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the bounds [...] at X [... d], for searches by gradients.

        The steps of Algorithm 1 are replaced by a continuous majorant. Rigorous bounds are
        continuous, and are those of ``interval``.
        """
        return self._interval(state, X, smooth=True)

    def _interval(self, state: Posterior, X: Tensor, smooth: bool) -> tuple[Tensor, Tensor]:
        """Return the bounds [...] at X [... d], with the bonus itself or its continuous majorant."""
        bonus = self.bonus(state, X)
        mean, variance = state.predict(X)
        self._note_queries(state, X)
        std = safe_sqrt(variance)
        margin = bonus.majorant(std) if smooth else bonus(std)
        return mean - margin, mean + margin

    @torch.no_grad()
    def bonus(self, state: Posterior, X: Tensor | None = None) -> Bonus:
        """Return the present bonus as a function of the standard deviation.

        Hypothetical observations change standard deviations, not the bonus.

        Args:
            state: The posterior.
            X: The finite set [N d], if none was given to the constructor.

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
        """Return the covers that ``bonus`` uses; arguments and errors are those of ``bonus``."""
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
        """Return the chain, and its last level with a radius of at least the least std of the set."""
        _, variance = state.predict(points)
        return self._memory.chain(state, points, math.sqrt(float(variance.min())))

    def _computed_bonus(self, state: Posterior, X: Tensor | None) -> Bonus:
        """Return the bonus on a posterior of observed data; arguments are those of ``bonus``."""
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
