"""Gap of a front: by how much, at most, a point of the space may be better than every trial of the front.

If the bounds of all objectives hold, then for every point x of the space that keeps the limits there is a trial p of
the front with f_k(x) <= f_k(p) + gap * extent_k for all objectives k, larger values better:

    gap = max_x score(U_1(x), ..., U_m(x)),   score(u) = min_p max_k (u_k - L_k(p)) / extent_k

with upper and lower bounds U and L. The score grows with each u_k, so branch and bound needs only bounds of each
objective over a cell (docs/theory/gaps.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kbo._base.terminal import Bar
from kbo.confidence import Limit
from kbo.optimize.constraints.feasibility import ConstraintSurrogate, limits
from kbo.optimize.constraints.slacks import feasible_first, upper_slack
from kbo.optimize.insight.branch_and_bound import CellBound, bound_maximum, obstacle, slack_bounds
from kbo.optimize.insight.gap import (
    NOT_REQUESTED,
    WHOLE,
    Gap,
    exact_gap,
    objection_to_bounds,
    proved_gap,
    unproved_gap,
)
from kbo.optimize.run.trials import Trial
from kbo.optimize.search.search import MOST_POINTS, Search
from kbo.optimize.surrogates.guarantee import Guarantee
from kbo.optimize.surrogates.surrogate import Surrogate

_AT_ONCE = 1000
"""Points that are compared with the front at once."""


def front_guarantee(surrogates: Mapping[str, Surrogate], selected: Sequence[str] = ()) -> Guarantee:
    """Return the guarantee of the intervals of all objectives at once.

    Args:
        surrogates: The surrogates of the objectives, by name.
        selected: As for ``Surrogate.guarantee``.
    """
    guarantees = {name: surrogate.guarantee(selected) for name, surrogate in surrogates.items()}
    delta = sum(guarantee.delta for guarantee in guarantees.values())
    unproved = {name: guarantee for name, guarantee in guarantees.items() if not guarantee}
    if unproved:
        first = next(iter(unproved.values()))
        objections = _statements(unproved)
        return Guarantee(first.kind, "; ".join(objections), delta, tuple(objections))
    joint = f"with probability at least {1 - delta:g} for all objectives at once"
    statement = "; ".join([joint, *_statements(guarantees)])
    return Guarantee("certified", statement, delta)


def _statements(guarantees: Mapping[str, Guarantee]) -> list[str]:
    """Return the statement of each objective, after its name."""
    return [f"{name}: {guarantee.statement}" for name, guarantee in guarantees.items()]


@dataclass(frozen=True)
class _Lead:
    """The lead of a point over a front: the score of the module, by the bounds of the objectives.

    Attributes:
        surrogates: The surrogates of the objectives, by name.
        extents: The unit of each objective.
        limits: The limits on measured quantities.
        lower: Lower bounds [f m] of the m objectives at the f trials of the front, in units of the extents.
    """

    surrogates: Mapping[str, Surrogate]
    extents: Mapping[str, float]
    limits: Sequence[Limit]
    lower: Tensor

    def score(self, upper: Tensor) -> Tensor:
        """Return the lead [n] of points with upper bounds [n m] of the objectives, in units of the extents."""
        return (upper.unsqueeze(-2) - self.lower).amax(-1).amin(-1)

    def at(self, features: Tensor) -> Tensor:
        """Return the lead [n] at features [n D]; less than any lead where a limit is broken, if the bounds hold."""
        bounds = [surrogate.interval(features)[2] for surrogate in self.surrogates.values()]
        lead = self.score(_scaled(bounds, self.extents))
        if not self.limits:
            return lead
        return feasible_first(lead, upper_slack(self.limits, features).cpu())


def front_gap(
    surrogates: Mapping[str, Surrogate],
    extents: Mapping[str, float],
    constraints: Sequence[ConstraintSurrogate],
    front: Tensor,
    search: Search,
    finished: Sequence[Trial],
    evaluations: int,
    goal: float,
    progress: bool,
) -> Gap:
    """Return the gap of a front, as a share of its extents: the largest lead of a point over it, at least 0.

    Args:
        surrogates: The surrogates of the objectives, by name.
        extents: The unit of each objective.
        constraints: The constraints with their surrogates.
        front: The features [f D] of the trials of the front, which keep the limits.
        search: A search of the whole space.
        finished: The trials that have ended.
        evaluations: Points at which bounds may be computed, at most; 0 for no proof.
        goal: The proof ends when the gap is at most this.
        progress: Whether a bar shows how much of the proof is done.
    """
    space = search.space
    lower = _scaled([surrogate.interval(front)[0] for surrogate in surrogates.values()], extents)
    lead = _Lead(surrogates, extents, limits(constraints), lower)
    by_prefix = {f"{name}: ": surrogate for name, surrogate in surrogates.items()}
    reason = objection_to_bounds(by_prefix, constraints, finished)
    points = space.points(MOST_POINTS)
    if points is not None:
        leads = [lead.at(features) for features in space.features(points).split(_AT_ONCE)]
        return exact_gap(max(float(torch.cat(leads).amax()), 0.0), space, reason)
    farthest = search.argmax_point(lead.at).unsqueeze(0)
    found = max(float(lead.at(space.features(farthest))[0]), 0.0)
    functions = []
    for name, surrogate in surrogates.items():
        functions.append(CellBound(surrogate.bounds, unit=extents[name]))
    if not reason and not evaluations:
        reason = NOT_REQUESTED
    reason = reason or obstacle(functions, space)
    if reason:
        return unproved_gap(found, reason)
    with Bar(total=evaluations, desc="proof of the gap", disable=not progress) as bar:
        proof = bound_maximum(
            functions,
            space,
            evaluations,
            score=lead.score,
            goal=goal,
            slacks=slack_bounds(constraints, space),
            witnesses=farthest,
            counted=bar.update,
        )
    assert proof is not None  # there is no obstacle
    return proved_gap(max(proof.largest, 0.0), found, WHOLE, proof.reason)


def _scaled(bounds: list[Tensor], extents: Mapping[str, float]) -> Tensor:
    """Return bounds of the objectives, [n] each, in units of the extents, [n m]."""
    return (torch.stack(bounds, -1) / bounds[0].new_tensor(list(extents.values()))).cpu()
