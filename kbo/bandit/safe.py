"""Safe exploration of a finite set: every chosen point keeps all limits, if the bounds hold.

The slack of a limit is at least 0 where the limit is kept. Bounds of the slacks and of the
objective give three sets:

* S, safe: points that were given as safe, and points at which each limit was certain in some round.
* M, maximisers: points of S whose upper bound of the objective is at least the largest lower bound
  in S.
* G, expanders: points x of S, at which an observation of the largest possible slack of every limit
  would make a point z outside S certain. Let m, v and c be mean, variance and covariance of the
  slack, a the ridge, and ``w(z) = (m(z) - certain(z)) / sqrt(v(z))`` the width of the bound at z.
  With this hypothetical observation the certain slack at z would be

      m(z) + c (possible(x) - m(x)) / (v(x) + a) - w(z) sqrt(v(z) - c^2 / (v(x) + a)).

The next point is the one with the widest bounds in M and G. This is SafeOpt (Sui et al. 2015) for
several limits, with hypothetical observations instead of a Lipschitz constant (Berkenkamp et al.
2021). Safety depends on S alone. It needs proved bounds; a freely chosen width is not enough
(Fiedler et al. 2024). So S uses the tightest bounds, and M and G use faster bounds, which are a
little wider.

For own loops over a finite set with posteriors and bounds alone. ``kbo.Safe``
(``kbo/optimize/strategies/safe_exploration.py``) uses it in whole safe runs, and
``kbo/acquisition/safe.py`` is for loops of BoTorch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kbo._base import checks
from kbo._base.linalg import safe_sqrt
from kbo.confidence import Confidence, Limit
from kbo.confidence.base import not_nan
from kbo.regression import Posterior

_REFINED = 4096
"""Number of points outside S, those nearest to being certain, with the tightest bound of the slack."""

_BLOCK = 4096
"""Number of points in one call of a bound."""

_FRONTIER = 1024
"""Number of points outside S, those nearest to being certain, that are tested in the search of G."""

_EXAMINED = 512
"""Number of points of S that are tested together for being expanders."""


class SafeSet:
    """The safe part S of a finite set. It only grows, as if the intervals of all rounds were intersected.

    For speed, only the 4096 points outside S that are nearest to being certain have the tightest
    bounds of the limits, and expanders are sought for the nearest 1024. This may delay the growth
    of S, but never adds an unsafe point.

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
        self._slack: Tensor = points.new_empty(0, len(points))  # the certain slacks, [limits N]

    @torch.no_grad()
    def update(self, limits: Sequence[Limit]) -> None:
        """Add the points that are certain by the bounds of this round.

        Args:
            limits: The limits, in the same order every time.

        Raises:
            RefutedAssumptions: No function satisfies the assumptions of a bound and fits the data.
        """
        if not self._limits:
            self._slack = self.points.new_full((len(limits), len(self.points)), -torch.inf)
        slacks = []
        for limit, before in zip(limits, self._slack, strict=True):
            slacks.append(self._certain_slack(limit, before))
        self._limits = limits
        self._slack = torch.stack(slacks)
        self.safe = self.safe | (self._slack >= 0).all(0)

    def _certain_slack(self, limit: Limit, before: Tensor) -> Tensor:
        """Return the certain slack [N] of a limit; values that were at least 0 ``before`` stay."""
        slack = before.clone()
        rows = (~self.safe & (before < 0)).nonzero()[:, 0]
        if len(rows) > _REFINED:
            quick_slacks = [limit.quick_slacks(X)[0] for X in self.points[rows].split(_BLOCK)]
            slack[rows] = not_nan(torch.cat(quick_slacks), "slack of a limit")
            rows = rows[slack[rows] < 0]
            nearest = slack[rows].topk(min(_REFINED, len(rows))).indices
            rows = rows[nearest]
        slack[rows] = not_nan(limit.certain(self.points[rows]), "slack of a limit")
        return slack

    @torch.no_grad()
    def widest(
        self,
        objective: Posterior,
        confidence: Confidence,
        states: Sequence[Posterior] = (),
        among: Tensor | None = None,
    ) -> int:
        """Return the row of the point in M or G with the widest bounds.

        They are compared by the standard deviation relative to the prior standard deviation, the
        largest of all ``states``.

        Args:
            objective: The posterior of the objective, which is to be maximised.
            confidence: The bound of the objective.
            states: The posteriors whose standard deviations are compared, for example with
                hypothetical observations at pending points; by default those of the objective and
                of the limits.
            among: Whether each point may be chosen, [N], including at least one point of S; None
                for all points.
        """
        candidates = self.safe if among is None else self.safe & among
        rows = candidates.nonzero()[:, 0]
        X = self.points[rows]
        if not states:
            states = [objective, *(limit.state for limit in self._limits)]
        widths = []
        for state in states:
            _, variance = state.predict(X)
            widths.append(variance / _positive(state.prior_variance(X)))
        width = torch.stack(widths).amax(0)  # [rows]
        is_maximiser = _maximisers(objective, confidence, X)
        frontier = self._frontier()
        for block in width.argsort(descending=True, stable=True).split(_EXAMINED):
            is_member = is_maximiser[block]
            if not bool(is_member[0]):
                is_member = is_member | self._expanders(X[block], frontier)
            if bool(is_member.any()):
                return int(rows[block[is_member.long().argmax()]])
        raise AssertionError("the point of the largest lower bound is in M")

    @torch.no_grad()
    def grows(self) -> bool:
        """Return whether there are expanders, so that S could grow by one more observation."""
        frontier = self._frontier()
        blocks = self.points[self.safe].split(_EXAMINED)
        return any(bool(self._expanders(X, frontier).any()) for X in blocks)

    def _frontier(self) -> Tensor:
        """Return the rows of the points outside S that are nearest to being certain."""
        rows = (~self.safe).nonzero()[:, 0]
        X = self.points[rows]
        nearness = torch.full_like(X[:, 0], torch.inf)
        for limit, slack in zip(self._limits, self._slack[:, rows], strict=True):
            mean = limit.slack(limit.state.predict(X)[0])
            ratio = mean / (mean - slack)  # 1 where the limit is certain
            nearness = torch.minimum(nearness, torch.where(slack >= 0, torch.inf, ratio))
        return rows[nearness.topk(min(_FRONTIER, len(rows))).indices]

    def _expanders(self, X: Tensor, frontier: Tensor) -> Tensor:
        """Return for each point of X [n d] whether it is an expander for the rows ``frontier``, [n]."""
        Z = self.points[frontier]
        certain = X.new_full((len(X), len(Z)), torch.inf)  # the least slack of all limits
        for limit, slack in zip(self._limits, self._slack[:, frontier], strict=True):
            after = _certain_after_observation(limit, X, Z, slack)
            certain = torch.minimum(certain, torch.where(slack >= 0, torch.inf, after))
        return (not_nan(certain, "slack of a limit") >= 0).any(-1)


def _certain_after_observation(limit: Limit, X: Tensor, Z: Tensor, slack: Tensor) -> Tensor:
    """Return the certain slack at Z after an observation of the largest possible slack at X, [n z].

    Args:
        limit: The limit.
        X: Points of the observation, [n d].
        Z: Points outside S, [z d].
        slack: Certain slack at Z before the observation, [z].
    """
    ridge = limit.confidence.ridge(limit.state)
    posterior = limit.state.at(ridge)
    mean_x, v_x = posterior.predict(X)
    mean_z, v_z = posterior.predict(Z)
    m_x = limit.slack(mean_x)
    m_z = limit.slack(mean_z)
    c = posterior.covariance(X, Z)
    _, possible = limit.quick_slacks(X)
    variance = (v_x + ridge).unsqueeze(-1)  # of the observation
    gain = c * ((possible - m_x).unsqueeze(-1) / variance)
    shrinkage = safe_sqrt((1 - c.square() / (variance * _positive(v_z))).clamp_min(0))
    return m_z + gain - (m_z - slack) * shrinkage


def _maximisers(objective: Posterior, confidence: Confidence, X: Tensor) -> Tensor:
    """Return whether each point of X [n d] may be the best of them, [n]."""
    intervals = [confidence.quick_interval(objective, block) for block in X.split(_BLOCK)]
    lower = torch.cat([low for low, _ in intervals])
    upper = torch.cat([high for _, high in intervals])
    not_nan(upper - lower, "width of the bounds")
    best = lower.max()
    return (upper >= best) | (lower == best)


def _positive(variance: Tensor) -> Tensor:
    """Return variances [...] raised above zero, for quotients whose numerator is 0 where they are."""
    return variance.clamp_min(torch.finfo(variance.dtype).tiny)
