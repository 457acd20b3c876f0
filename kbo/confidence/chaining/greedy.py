"""Covers by greedy search, a dominating set of the graph of points that are near each other; and nets, for large sets.

Nets are covers with points that are further apart than the radius.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kbo._base import checks
from kbo.confidence.chaining.metric import DistanceMatrix, Metric
from kbo.errors import InvalidInput

AT_ONCE = 10_000
"""Points whose pairs are compared all at once, a byte for each."""

_TOGETHER = 512
"""Points among which the next ones of a net are found together."""


def greedy_cover(distance: Metric | Tensor, radius: float, among: Tensor | None = None) -> Tensor:
    """Return a small set of points T such that every point is within ``radius`` of one of T.

    The next point is that which covers most of the uncovered points, the first of several: Contal, Malherbe & Vayatis
    (2015), Algorithm 2. Larger sets than ``AT_ONCE`` are covered in rounds: a cover of evenly spread
    points, then of the points that it leaves, and so on.

    Args:
        distance: The space, or all its distances [N N].
        radius: At least 0, in units of the distance.
        among: The numbers of the points that are to be covered, by points of their own; all if omitted.

    Returns:
        Numbers of points, in the order of choice.

    Raises:
        InvalidInput: A radius below zero, or a matrix that is not one of distances.
    """
    metric, left = as_metric(distance), everything(distance, among)
    checks.non_negative("radius", radius)
    chosen = [left[:0]]
    while len(left):
        chosen.append(greedy_round(metric, radius, left))
        if len(left) <= AT_ONCE:
            break
        left = left[~torch.isin(left, chosen[-1])]  # a centre covers itself in spite of rounding
        left = left[uncovered(metric[left], metric[chosen[-1]], radius)]
    return torch.cat(chosen)


def greedy_round(metric: Metric, radius: float, left: Tensor) -> Tensor:
    """Return a greedy cover of up to ``AT_ONCE`` points ``left``, evenly spread; arguments as ``greedy_cover``."""
    spread = left[:: max(1, -(-len(left) // AT_ONCE))]
    ranks = metric[spread].ranks([radius]).cpu()
    return spread[dominating(ranks, 0, torch.arange(len(spread), device="cpu")).to(spread.device)]


def dominating(ranks: Tensor, level: int, among: Tensor) -> Tensor:
    """Return the numbers of a greedy dominating set of some points of a graph.

    All is on the host, where a choice takes a fifth of the time.

    Args:
        ranks: Bytes [N N]; points of a rank above ``level`` are neighbours, every point one of its own.
        level: At least 0.
        among: The numbers of the points.
    """
    table, left = ranks.numpy(), among.numpy()
    alive = np.zeros(len(table), bool)
    alive[left] = True
    covers, chosen = _degrees(table, level, left) * alive, []
    while len(table):
        best = int(covers.argmax())
        new = ((table[best] > level) & alive).nonzero()[0]
        if len(new) < 2:
            break
        chosen.append(best)
        alive[new] = False
        covers -= _degrees(table, level, new)
        covers[new] = 0  # those covered before count below zero
    # What is left covers itself only.
    return torch.tensor([*chosen, *alive.nonzero()[0].tolist()], dtype=torch.long, device="cpu")


def _degrees(table: NDArray[np.uint8], level: int, rows: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the number [N] of neighbours among some of the rows."""
    total = np.zeros(len(table), np.int32)
    for start in range(
        0, len(rows), 255
    ):  # which bytes can count, five times as fast as longer integers
        near = table[rows[start : start + 255]] > level
        total += near.view(np.uint8).sum(0, dtype=np.uint8)
    return total


def first_fit_net(distance: Metric | Tensor, radius: float, among: Tensor | None = None) -> Tensor:
    """Return the net that takes every point which no earlier one covers; ``|T| |X|`` distances at most.

    Args:
        distance: The space, or all its distances [N N].
        radius: At least 0, in units of the distance.
        among: The numbers of the points that are to be covered, in the order in which they are seen; all if omitted.

    Returns:
        Numbers of points, in the order of choice.

    Raises:
        InvalidInput: A radius below zero, or a matrix that is not one of distances.
    """
    metric, left = as_metric(distance), everything(distance, among)
    checks.non_negative("radius", radius)
    chosen = [left[:0]]
    while len(left):
        some, left = left[:_TOGETHER], left[_TOGETHER:]
        centres = some[_first_fit(metric[some].ranks([radius]))]
        left = left[uncovered(metric[left], metric[centres], radius)]
        chosen.append(centres)
    return torch.cat(chosen)


def _first_fit(near: Tensor) -> Tensor:
    """Return the points of a graph [N N] of ones and zeros that are no neighbour of an earlier one that was taken."""
    table = near.cpu().numpy()
    covered, chosen = table[0] & False, []
    for i in range(len(table)):
        if not covered[i]:
            chosen.append(i)
            covered |= table[i]
    return torch.tensor(chosen, device=near.device)


def uncovered(points: Metric, centres: Metric, radius: float) -> Tensor:
    """Return the positions of the points that are within ``radius`` of no centre."""
    left = torch.arange(len(points), device=points.device)
    for _, some in centres.blocks(_COLUMNS):
        covered = [part.within(some, radius).any(1) for _, part in points[left].blocks(len(some))]
        left = left[~torch.cat(covered)] if covered else left
    return left


_COLUMNS = 512
"""Points that are compared with a block of centres at once."""


def covers(distance: Metric | Tensor, centres: Tensor, radius: float) -> bool:
    """Return whether every point is within ``radius`` of one of the centres, given by their numbers."""
    metric = as_metric(distance)
    checks.non_negative("radius", radius)
    return not len(uncovered(metric, metric[everything(metric, centres, "centres")], radius))


def as_metric(distance: Metric | Tensor) -> Metric:
    """Return the space of a matrix of distances."""
    with checks.inside("distance"):
        return distance if isinstance(distance, Metric) else DistanceMatrix(distance)


def everything(distance: Metric | Tensor, among: Tensor | None, name: str = "among") -> Tensor:
    """Return the numbers ``among``, or all of them."""
    metric = as_metric(distance)
    numbers = torch.arange(len(metric), device=metric.device)
    if among is None:
        return numbers
    mask = checks.tensor(name, among).dtype == torch.bool
    if (
        among.ndim != 1
        or among.is_floating_point()
        or among.is_complex()
        or (mask and len(among) != len(metric))
    ):
        raise InvalidInput(
            f"{name} must be numbers of points, or a mask [{len(metric)}], got {tuple(among.shape)}."
        )
    if (
        not mask
        and len(among)
        and not -len(metric) <= int(among.min()) <= int(among.max()) < len(metric)
    ):
        raise InvalidInput(
            f"{name} must be numbers below {len(metric)}, got up to {int(among.max())}."
        )
    return numbers[among]
