"""A certified Pareto set of several objectives on a finite set, epsilon-PAL (Zuluaga, Krause & Pueschel 2016).

All objectives are maximised. In every round the intervals [lower, upper] of all objectives and
points define

* the pessimistic front: the points whose lower bounds are not dominated by those of another point
  (at least equal in every objective, and larger in one);
* discarded points: points x outside the front, for which some point z of the front has
  ``lower(z) + epsilon >= upper(x)`` in every objective;
* accepted points: points x that are not discarded, for which no other z has ``upper(z) >= lower(x)
  + epsilon`` in every objective.

Assume that the intervals hold and that every point is discarded or accepted. Then for every point
some accepted point is at most epsilon worse in every objective, because points of the front are not
discarded. And no point is better than an accepted one by epsilon in every objective.

This happens at the latest when the intervals of all points that are not discarded are narrower than
epsilon. For if such a point is not accepted, its lower bounds are below those of another point; so
it is not in the front, and is discarded.

The next point is the undiscarded one with the widest intervals relative to epsilon, as in the
paper. In the paper a point stays discarded if the point that replaces it is discarded; here the
sets of a round depend only on the intervals of this round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kbo._base import checks
from kbo.confidence import Confidence
from kbo.confidence.base import not_nan
from kbo.errors import InvalidInput
from kbo.regression import Posterior

_BLOCK = 1 << 24
"""Largest number of comparisons at once."""


@dataclass(frozen=True)
class ParetoSet:
    """The state of the points of a finite set in a round.

    Attributes:
        accepted: Whether each point is in the Pareto set up to epsilon, [N].
        discarded: Whether another point replaces each point, up to epsilon, [N].
        widest: The row to evaluate next; None once every point is accepted or discarded.
        guarantee: The assumptions and the probability with which ``accepted`` and ``discarded`` are
            right, in words; None if nothing is proved.
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
    """Return the points of a finite set in the Pareto set of several objectives, up to epsilon.

    Once every point is accepted or discarded, two statements hold with the probability of
    ``guarantee``. For every point some accepted point is at most ``epsilon`` worse in every
    objective. And no point is better by ``epsilon`` in every objective than an accepted point.

    Args:
        states: The posterior of each objective, which is maximised; negate objectives to minimise.
        confidences: The bound of each objective; the probability that one fails is at most the sum
            of their deltas.
        points: The finite set [N d].
        epsilon: The accuracy, in units of the objectives, above 0; one number or one for each
            objective [m].

    Raises:
        InvalidInput: The numbers of bounds and of posteriors differ, or ``points`` or ``epsilon``
            cannot be used.
        RefutedAssumptions: No function satisfies the assumptions of a bound and fits the data.

    Example:
        >>> while (front := pareto_set(states, bounds, points, 0.1)).widest is not None:
        ...     row = front.widest
        ...     for state, value in zip(states, evaluate(points[row]), strict=True):
        ...         state.update(points[row : row + 1], value.reshape(1))
        >>> points[front.accepted]
    """
    _check_arguments(states, confidences, points)
    margin = _margin(epsilon, points, len(states))  # [m]
    intervals = []
    for state, confidence in zip(states, confidences, strict=True):
        intervals.append(confidence.interval(state, points))
    lower = torch.stack([low for low, _ in intervals], -1)  # [N m]
    upper = torch.stack([high for _, high in intervals], -1)
    width = not_nan(upper - lower, "width of the bounds")
    is_front = _n_at_least(lower, lower, strictly=True) == 0
    discarded = ~is_front & (_n_at_least(upper, lower[is_front] + margin) > 0)
    counts_itself = (upper >= lower + margin).all(-1)
    n_possibly_better = _n_at_least(lower + margin, upper) - counts_itself.long()
    accepted = ~discarded & (n_possibly_better == 0)
    relative_width = (width / margin).amax(-1).masked_fill(discarded, -1.0)
    widest = None
    if not bool((accepted | discarded).all()):
        widest = int(relative_width.argmax())
    return ParetoSet(accepted, discarded, widest, _guarantee(states, confidences))


def _check_arguments(
    states: Sequence[Posterior], confidences: Sequence[Confidence], points: Tensor
) -> None:
    """Raise InvalidInput unless there are points, and a posterior and a bound of each objective."""
    are_lists = isinstance(states, Sequence) and isinstance(confidences, Sequence)
    if not are_lists or len(states) != len(confidences):
        raise InvalidInput(
            "states and confidences must be lists with a posterior and a bound for each objective, "
            f"got {checks.shown(states)} and {checks.shown(confidences)}."
        )
    if not len(checks.rows("points", points)) or not states:
        raise InvalidInput(
            "points and states must not be empty: at least one point and one objective are needed."
        )
    for state, confidence in zip(states, confidences, strict=True):
        checks.instance("states", state, Posterior)
        checks.instance("confidences", confidence, Confidence)


def _margin(epsilon: float | Tensor, points: Tensor, n_objectives: int) -> Tensor:
    """Return epsilon for each objective, [m]."""
    if not isinstance(epsilon, Tensor):
        return points.new_full((n_objectives,), checks.positive("epsilon", epsilon))
    margin = checks.points("epsilon", epsilon)
    if margin.shape != (n_objectives,) or not bool((margin > 0).all()):
        raise InvalidInput(
            f"epsilon must be above 0, [{n_objectives}] or one number, got {checks.shown(epsilon)}."
        )
    return margin


def _n_at_least(A: Tensor, B: Tensor, strictly: bool = False) -> Tensor:
    """Return for each row of A the number [N] of rows of B that are at least as large in every objective.

    Args:
        A: Values of the objectives, [N m].
        B: Values of the objectives, [n m].
        strictly: Whether to count only rows that are also larger in some objective.
    """
    counts = []
    for rows in A.split(max(1, _BLOCK // B.numel())):
        dominates = (rows.unsqueeze(1) <= B).all(-1)  # [rows n]
        if strictly:
            dominates &= (rows.unsqueeze(1) < B).any(-1)
        counts.append(dominates.sum(-1))
    return torch.cat(counts)


def _guarantee(states: Sequence[Posterior], confidences: Sequence[Confidence]) -> str | None:
    """Return the guarantees of all bounds, and the probability with which they hold together."""
    delta = 0.0
    statements = []
    for i, (state, confidence) in enumerate(zip(states, confidences, strict=True)):
        delta += confidence.delta_on(state)
        guarantee = confidence.guarantee_on(state)
        if guarantee is None:
            return None
        statements.append(f"objective {i}: the interval {guarantee}")
    if delta >= 1:
        return None
    return f"{'; '.join(statements)}; all hold together with probability at least 1 - {delta:g}"
