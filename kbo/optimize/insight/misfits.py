"""Misfits: trials whose value is far from what all others predict, such as a slip in a table.

A value is far from all others if it is worse than the worst by more than fifty times their range, or better than
the best of them by more than their range. It is far from a repetition if it is further than six standard deviations
from the prediction by all others, which are scaled by the median of all such errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import torch

from kbo.optimize.surrogates.surrogate import Evaluation, Surrogate

_RANGES_WORSE = 50.0
_RANGES_BETTER = 1.0
"""Ranges of all other values beyond which a value is far from them."""

_FAR = 6.0
"""Standard deviations beyond which a value is far from a repetition."""

_FEWEST = 6
"""Values from which on one of them may not fit."""


@dataclass(frozen=True)
class Misfit:
    """A trial whose value is far from what all others predict.

    Attributes:
        number: The trial.
        value: Its value.
        lower, upper: The 90% interval of its value by the others.
        repeated: The trial with the same parameters that has another value; None if it is far from all others.
    """

    number: int
    value: float
    lower: float
    upper: float
    repeated: int | None = None


def misfits(surrogate: Surrogate, maximize: bool) -> list[Misfit]:
    """Return the trials whose value is far from what the others predict, in the order of their ends.

    Args:
        surrogate: The surrogate of the objective, larger values better.
        maximize: Whether larger values of the objective are better.
    """
    values = surrogate.values
    left_out = surrogate.left_out_errors()
    if left_out is None or len(values) < _FEWEST:
        return []
    errors, stds = left_out
    standard = (errors.abs() / stds).tolist()
    isolated = _isolated(values)
    contradictions = _contradictions(values, standard)
    found = []
    for row, evaluation in enumerate(values):
        if row not in isolated and row not in contradictions:
            continue
        assert evaluation.value is not None
        target = surrogate.transform.target(evaluation.value)
        half_width = NormalDist().inv_cdf(0.95) * stds[row]
        predicted = target - errors[row]
        ends = torch.stack([predicted - half_width, predicted + half_width])
        lower, upper = surrogate.transform.inverse(ends).tolist()
        repeated = contradictions.get(row)
        if maximize:
            misfit = Misfit(evaluation.number, evaluation.value, lower, upper, repeated)
        else:
            misfit = Misfit(evaluation.number, -evaluation.value, -upper, -lower, repeated)
        found.append(misfit)
    return found


def _isolated(values: Sequence[Evaluation]) -> set[int]:
    """Return the rows of observed values that are far from all others: the worst one, the best one, both or none."""
    observed = []
    for row, evaluation in enumerate(values):
        if evaluation.value is not None and not evaluation.predicted:
            observed.append((evaluation.value, row))
    if len(observed) < _FEWEST:
        return set()
    ordered = sorted(observed)
    worst, second_worst = ordered[:2]
    second_best, best = ordered[-2:]
    rows = set()
    if _is_far(worst[0], second_worst[0], best[0], _RANGES_WORSE):
        rows.add(worst[1])
    if _is_far(best[0], second_best[0], worst[0], _RANGES_BETTER):
        rows.add(best[1])
    return rows


def _is_far(value: float, nearest: float, farthest: float, ranges: float) -> bool:
    """Return whether a value is further from the others than so many times their range, unless they are all equal."""
    # The range of very large values overflows.
    size = max(abs(value), abs(nearest), abs(farthest))
    if nearest == farthest:
        return False
    own_range = abs(nearest / size - farthest / size)
    return abs(value / size - nearest / size) > ranges * own_range


def _contradictions(values: Sequence[Evaluation], standard: Sequence[float]) -> dict[int, int]:
    """Return the rows of values that are far from a repetition, and the numbers of the repeated trials.

    Args:
        values: The evaluations.
        standard: Errors [n] of the predictions by all others, in standard deviations.
    """
    rows_at: dict[tuple[float, ...], list[int]] = {}
    for row, evaluation in enumerate(values):
        if not evaluation.predicted:
            rows_at.setdefault(evaluation.features, []).append(row)
    found = {}
    for rows in rows_at.values():
        different = {values[row].value for row in rows}
        if len(different) < 2:
            continue
        farthest = max(rows, key=lambda row: standard[row])
        if standard[farthest] > _FAR:
            other = min(row for row in rows if row != farthest)
            found[farthest] = values[other].number
    return found
