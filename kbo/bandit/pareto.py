"""A certified Pareto set of several objectives on a finite set, epsilon-PAL (Zuluaga, Krause & Pueschel 2016).

All objectives are to be maximised. In every round the intervals [lower, upper] of all objectives and points give

* the pessimistic front: points to whose lower bounds no others are equal or better, and better in some objective;
* discarded points: those x outside that front for which a point z of it has ``lower(z) + epsilon >= upper(x)`` in every
  objective;
* accepted points: those x, not discarded, for which no other z has ``upper(z) >= lower(x) + epsilon`` in every
  objective.

Where the intervals hold, and once every point is discarded or accepted, every point has an accepted one that is at most
epsilon worse in every objective, because the front is not discarded; and no point is better than an accepted one by
epsilon in every objective. That is so at the latest when the intervals of all points that are not discarded are
narrower than epsilon: one of them that is not accepted has lower bounds below those of another, so it is not in the
front, and is discarded. The next point is the widest of them relative to epsilon, as in the paper. There, points stay
discarded when the point that replaces them is discarded too; here the sets of a round rest on its intervals alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kbo._base import checks
from kbo.confidence import Confidence
from kbo.confidence.base import decided
from kbo.errors import InvalidInput
from kbo.regression import Posterior

_BLOCK = 1 << 24
"""Comparisons at once, at most."""


@dataclass(frozen=True)
class ParetoSet:
    """The points of a finite set after a round.

    Attributes:
        accepted: Points of the Pareto set up to epsilon, [N].
        discarded: Points that accepted ones replace, [N].
        widest: The row to evaluate next; None once every point is accepted or discarded.
        guarantee: The assumptions, in words, under which that is so with which probability; None if nothing is proved.
    """

    accepted: Tensor
    discarded: Tensor
    widest: int | None
    guarantee: str | None


@torch.no_grad()
def pareto_set(
    states: Sequence[Posterior],
    confidences: Sequence[Confidence],
    points: Tensor,
    epsilon: float | Tensor,
) -> ParetoSet:
    """Return which points of a finite set are in the Pareto set of several objectives, up to epsilon.

    Once no point is left undecided, every point of the set is at most ``epsilon`` better than an accepted one in every
    objective, and none is better by ``epsilon`` in every objective than an accepted one, with the probability of
    ``guarantee``.

    Args:
        states: The posterior of each objective; give those to be minimised times -1.
        confidences: The bound of each of them; they fail together with at most the sum of their probabilities.
        points: The finite set [N d].
        epsilon: The accuracy, in units of the objectives, above 0; one number or one for each objective [m].

    Raises:
        InvalidInput: There is another number of bounds than of posteriors, or a number or points that cannot be.
        RefutedAssumptions: No function satisfies the assumptions of a bound and fits the data.

    Example:
        >>> while (row := (found := pareto_set(states, bounds, points, 0.1)).widest) is not None:
        ...     for state, value in zip(states, evaluate(points[row]), strict=True):
        ...         state.update(points[row : row + 1], value.reshape(1))
        >>> points[found.accepted]
    """
    if (
        not isinstance(confidences, Sequence)
        or not isinstance(states, Sequence)
        or len(states) != len(confidences)
    ):
        raise InvalidInput(
            f"states and confidences must be lists with a posterior and a bound for each objective, got "
            f"{checks.shown(states)} and {checks.shown(confidences)}."
        )
    if not len(checks.rows("points", points)) or not states:
        raise InvalidInput(
            "points and states must not be empty: at least one point and one objective are needed."
        )
    for state, confidence in zip(states, confidences, strict=True):
        checks.instance("states", state, Posterior)
        checks.instance("confidences", confidence, Confidence)
    if isinstance(epsilon, Tensor):
        margin = checks.points("epsilon", epsilon)
        if margin.shape != (len(states),) or not bool((margin > 0).all()):
            raise InvalidInput(
                f"epsilon must be above 0, [{len(states)}] or one number, got {checks.shown(epsilon)}."
            )
    else:
        margin = points.new_full((len(states),), checks.positive("epsilon", epsilon))
    intervals = [c.interval(state, points) for state, c in zip(states, confidences, strict=True)]
    lower, upper = (torch.stack(side, -1) for side in zip(*intervals, strict=True))
    width = decided(upper - lower, "width of the bounds")
    front = _count(lower, lower, strictly=True) == 0
    discarded = ~front & (_count(upper, lower[front] + margin) > 0)
    itself = (upper >= lower + margin).all(-1)
    accepted = ~discarded & (_count(lower + margin, upper) - itself.long() == 0)
    width = (width / margin).amax(-1).masked_fill(discarded, -1.0)
    known, widest = torch.stack([(accepted | discarded).all(), width.argmax()]).tolist()
    return ParetoSet(
        accepted, discarded, None if known else widest, _guarantee(states, confidences)
    )


def _count(A: Tensor, B: Tensor, strictly: bool = False) -> Tensor:
    """For each row of A [N m] the number [N] of rows of B [n m] that are at least it in every objective.

    With ``strictly`` rows count that are also above it in some objective.
    """
    found = []
    for rows in A.split(max(1, _BLOCK // B.numel())):
        at_least = (rows.unsqueeze(1) <= B).all(-1)
        found.append((at_least & (rows.unsqueeze(1) < B).any(-1) if strictly else at_least).sum(-1))
    return torch.cat(found)


def _guarantee(states: Sequence[Posterior], confidences: Sequence[Confidence]) -> str | None:
    """The guarantees of all bounds, and with which probability they hold together."""
    pairs = list(zip(states, confidences, strict=True))
    known, delta = (
        [c.guarantee_on(state) for state, c in pairs],
        sum(c.delta_on(state) for state, c in pairs),
    )
    if delta >= 1 or any(one is None for one in known):
        return None
    each = "; ".join(f"objective {i}: the interval {one}" for i, one in enumerate(known))
    return f"{each}; all hold together with probability at least 1 - {delta:g}"
