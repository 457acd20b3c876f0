"""Nets: covers with points that are further apart than the radius, for large sets."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kbo import checks
from kbo.covers.greedy import as_metric, everything, uncovered
from kbo.covers.metric import Metric
from kbo.errors import InvalidInput

_TOGETHER = 512
"""Points among which the next ones of a net are found together."""


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


def farthest_point_net(distance: Metric | Tensor, radius: float, first: int = 0) -> Tensor:
    """Return the net that takes the point which is farthest from all before, until all are covered (Gonzalez 1985).

    The nets of smaller radii begin with those of larger ones.

    Args:
        distance: The space, or all its distances [N N].
        radius: At least 0, in units of the distance.
        first: The point to begin with.

    Returns:
        Numbers of points, in the order of choice.

    Raises:
        InvalidInput: A radius below zero, or ``first`` is not the number of a point.
    """
    metric = as_metric(distance)
    checks.non_negative("radius", radius)
    if not isinstance(first, int) or first not in range(len(metric)):
        raise InvalidInput(f"first must be the number of one of the {len(metric)} points, from 0, got {first!r}.")
    nearest = torch.full((len(metric),), math.inf, dtype=torch.float64, device=metric.device)
    chosen = [torch.tensor(first, device=metric.device)]
    while len(chosen) <= len(metric):
        centre = metric[chosen[-1].unsqueeze(0)]
        for rows, some in metric.blocks(1):
            nearest[rows] = torch.minimum(nearest[rows], some.squared(centre).squeeze(-1))
        if float(nearest.max()) <= metric.limit(radius):
            break
        chosen.append(nearest.argmax())
    return torch.stack(chosen)
