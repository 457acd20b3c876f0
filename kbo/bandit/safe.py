"""Safe exploration of a finite set: every point that is chosen is within all limits, whenever the bounds hold.

The slack of a limit is at least 0 where it is kept. Bounds of the slacks and of the objective give three sets:

* S, safe: points whose limits were each certain in some round, and points that were given as safe.
* M, maximisers: points of S whose upper bound of the objective is at least the largest lower bound in S.
* G, expanders: points x of S at which an observation, of the largest possible slack of every limit, would make a point
  z outside S certain. With mean m, variance v and covariance c of the slack, the ridge a, and the multiplier
  ``w(z) = (m(z) - certain(z)) / sqrt(v(z))`` of the bound at z, the slack that would be certain there is that of the
  posterior with the hypothetical observation,

      m(z) + c (possible(x) - m(x)) / (v(x) + a) - w(z) sqrt(v(z) - c^2 / (v(x) + a)).

The next point is the widest of M and G: SafeOpt (Sui et al. 2015) for several limits, with expanders by hypothetical
observations in place of a Lipschitz constant (Berkenkamp et al. 2021). Safety rests on S alone. It needs bounds that
hold, which a chosen multiplier of the standard deviation does not give (Fiedler et al. 2024). So S is that of the
tightest bounds, while M and G are those of bounds that take less time and are a little wider.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kbo._base import checks
from kbo._base.linalg import safe_sqrt
from kbo.confidence import Confidence, Limit
from kbo.confidence.base import decided
from kbo.regression import Posterior

_REFINED, _BLOCK = 4096, 4096
"""Points outside S, those nearest to being certain, at which the slack is exact; points in one call of a bound."""

_FRONTIER = 1024
"""Points outside S, those nearest to being certain, that expanders may add."""

_TOGETHER = 512
"""Points that are examined at once, the widest first."""


class SafeSet:
    """The safe part S of a finite set; it only grows, as if the intervals of all rounds were intersected.

    Of more than 4096 points outside S the limits are bounded roughly, except at those nearest to being certain, and
    expanders are sought that add one of the nearest 1024. That may delay the growth of S and never adds a point to it.

    Args:
        points: The finite set [N d].
        given: Whether each point is known to be safe, [N].

    Attributes:
        safe: Whether each point is in S, [N].
    """

    def __init__(self, points: Tensor, given: Tensor) -> None:
        self.points: Tensor = checks.rows("points", points)
        self.safe: Tensor = given.clone()
        self._limits: Sequence[Limit] = ()
        self._slack: Tensor = points.new_empty(
            0, len(points)
        )  # of each limit, at most the certain one; kept from 0 on

    @torch.no_grad()
    def update(self, limits: Sequence[Limit]) -> None:
        """Add the points that are certain by the bounds of this round; pass the limits in the same order every time.

        Raises:
            RefutedAssumptions: No function satisfies the assumptions of a bound and fits the data.
        """
        before = (
            self._slack
            if self._limits
            else self.points.new_full((len(limits), len(self.points)), -torch.inf)
        )
        self._limits, self._slack = limits, torch.stack(list(map(self._certain, limits, before)))
        self.safe = self.safe | (self._slack >= 0).all(0)

    def _certain(self, limit: Limit, before: Tensor) -> Tensor:
        """Return the slack [N] that is certain, given that of the round before."""
        slack, rows = before.clone(), (~self.safe & (before < 0)).nonzero()[:, 0]
        if len(rows) > _REFINED:
            rough = torch.cat([limit.quick_slacks(X)[0] for X in self.points[rows].split(_BLOCK)])
            slack[rows] = decided(rough, "slack of a limit")
            rows = rows[slack[rows] < 0]
            rows = rows[slack[rows].topk(min(_REFINED, len(rows))).indices]
        slack[rows] = decided(limit.certain(self.points[rows]), "slack of a limit")
        return slack

    @torch.no_grad()
    def widest(
        self,
        objective: Posterior,
        confidence: Confidence,
        states: Sequence[Posterior] = (),
        among: Tensor | None = None,
    ) -> int:
        """Return the row of the point of M and G with the widest bounds.

        The width is the standard deviation relative to that of the prior, the largest of all outputs.

        Args:
            objective: The posterior of the objective, which is to be maximised.
            confidence: Its bound.
            states: The posteriors whose widths are compared, for example with hypothetical observations of pending
                points; by default those of the objective and of the limits.
            among: Whether each point may be chosen, [N]; at least one of S; by default all.
        """
        rows = (self.safe if among is None else self.safe & among).nonzero()[:, 0]
        X, states = (
            self.points[rows],
            states or (objective, *(limit.state for limit in self._limits)),
        )
        width = torch.stack(
            [state.predict(X)[1] / _positive(state.prior_variance(X)) for state in states]
        ).amax(0)
        bounds = [confidence.quick_interval(objective, some) for some in X.split(_BLOCK)]
        lower, upper = map(torch.cat, zip(*bounds, strict=True))
        decided(upper - lower, "width of the bounds")
        maximiser, near = (upper >= lower.max()) | (lower == lower.max()), self._nearest()
        for some in width.argsort(descending=True, stable=True).split(_TOGETHER):
            members = maximiser[some]
            if not bool(members[0]):
                members = members | self._expanders(X[some], near)
            if bool(members.any()):
                return int(rows[some[members.long().argmax()]])
        raise AssertionError("the point of the largest lower bound is in M")

    @torch.no_grad()
    def grows(self) -> bool:
        """Return whether there are expanders: whether S could grow by a further observation."""
        near = self._nearest()
        return any(
            bool(self._expanders(X, near).any()) for X in self.points[self.safe].split(_TOGETHER)
        )

    def _nearest(self) -> Tensor:
        """Return the rows of the points outside S that are nearest to being certain."""
        rows = (~self.safe).nonzero()[:, 0]
        nearness = torch.full_like(self.points[rows, 0], torch.inf)
        for limit, slack in zip(self._limits, self._slack[:, rows], strict=True):
            mean = limit.slack(
                limit.state.predict(self.points[rows])[0]
            )  # the ratio is 1 where it is certain
            nearness = torch.minimum(
                nearness, torch.where(slack >= 0, torch.inf, mean / (mean - slack))
            )
        return rows[nearness.topk(min(_FRONTIER, len(rows))).indices]

    def _expanders(self, X: Tensor, near: Tensor) -> Tensor:
        """Return whether an observation at each point of X [n d] would make one of the near points certain, [n]."""
        Z = self.points[near]
        least = X.new_full((len(X), len(Z)), torch.inf)
        for limit, slack in zip(self._limits, self._slack[:, near], strict=True):
            ridge = limit.confidence.ridge(limit.state)
            state = limit.state.at(ridge)
            (at_x, v_x), (mean, v) = state.predict(X), state.predict(Z)
            m, c, spread = (
                limit.slack(mean),
                state.covariance(X, Z),
                (v_x + ridge).unsqueeze(-1),
            )
            gain = c * ((limit.quick_slacks(X)[1] - limit.slack(at_x)).unsqueeze(-1) / spread)
            shrunk = safe_sqrt((1 - c.square() / (spread * _positive(v))).clamp_min(0))
            least = torch.minimum(
                least, torch.where(slack >= 0, torch.inf, m + gain - (m - slack) * shrunk)
            )
        return (decided(least, "slack of a limit") >= 0).any(-1)


def _positive(variance: Tensor) -> Tensor:
    """Return variances without zeros, to divide by them what is zero too."""
    return variance.clamp_min(torch.finfo(variance.dtype).tiny)
