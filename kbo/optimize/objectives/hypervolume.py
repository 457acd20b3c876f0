"""Hypervolume of a front, and its scalarisations: one number for each direction of improvement.

The scalarisation of a point with targets y_1, ..., y_m above a reference z is

    s_w(y) = min_k (y_k - z_k) / w_k

in the direction w, a positive vector of length 1. The hypervolume of a set of points Y is the volume of the region
above z that they dominate. With w uniform on the positive part of the sphere it is

    HV(Y) = c_m E_w[max_{y in Y} max(s_w(y), 0)^m],   c_m = pi^(m/2) / (2^m Gamma(m/2 + 1))

(Zhang and Golovin 2020, "Random hypervolume scalarizations for provable multi-objective black box optimization", Lemma
5). Larger targets are better.
"""

from __future__ import annotations

import torch
from torch import Tensor

EXACT = 3
"""Largest number of objectives for which the exact hypervolume takes no noticeable time."""


def directions(count: int, m: int, generator: torch.Generator) -> Tensor:
    """Draw directions [count m] uniformly from the positive part of the unit sphere."""
    normal = torch.randn(count, m, generator=generator, dtype=torch.float64).abs()
    return normal / normal.norm(dim=-1, keepdim=True)


def scalarized(targets: Tensor, reference: Tensor, weights: Tensor) -> Tensor:
    """Return the scalarisations s_w [... k] of targets [... m] in directions [k m] from a reference [m]."""
    return ((targets - reference).unsqueeze(-2) / weights).amin(-1)


def improvement(targets: Tensor, front: Tensor, reference: Tensor, weights: Tensor) -> Tensor:
    """Return the growth [n] of the hypervolume of a front when each of n points alone is added, divided by c_m.

    The expectation in the formula of the module is a mean over k directions. Where no direction grows, the result is
    minus the distance to the front, measured in the direction where this is shortest.

    Args:
        targets: The targets [n m] of the points.
        front: The targets [f m] of the front.
        reference: The reference [m].
        weights: The directions [k m].
    """
    m = targets.shape[-1]
    best = scalarized(front, reference, weights).amax(0).clamp_min(0)  # [k]
    gained = scalarized(targets, reference, weights) - best
    grown = (gained.clamp_min(0) + best) ** m - best**m
    return torch.where(gained.amax(-1) > 0, grown.mean(-1), gained.amax(-1))


def non_dominated(targets: Tensor) -> Tensor:
    """Return whether points with targets [... n m] are on the front, so that no other of them dominates them, [... n].

    A point dominates another if it is at least as good in all objectives, and better in one.
    """
    return n_dominating(targets) == 0


def n_dominating(targets: Tensor) -> Tensor:
    """Return for each point with targets [... n m] the number of points that dominate it, [... n]."""
    other = targets.unsqueeze(-3)
    point = targets.unsqueeze(-2)
    is_as_good = (other >= point).all(-1)
    is_better = (other > point).any(-1)
    return (is_as_good & is_better).sum(-1)


def hypervolume(targets: Tensor, reference: Tensor) -> Tensor:
    """Return the hypervolume [...] of targets [... n m]: the volume that they dominate above a reference [m].

    It is exact, by sorting along the last objective: O(n log n) for 2 objectives, O(n^2 log n) for 3.
    """
    above = targets.clamp_min(reference) - reference
    return _volume(above)


def volumes_so_far(targets: Tensor, reference: Tensor) -> list[float]:
    """Return the n hypervolumes above a reference [m] of the first 1, 2, ..., n points with targets [n m]."""
    volumes = []
    volume = 0.0
    front = targets[:0]
    for target in targets:
        front = torch.cat([front, target.unsqueeze(0)])
        is_kept = non_dominated(front)
        front = front[is_kept]
        if is_kept[-1]:
            volume = float(hypervolume(front, reference))
        volumes.append(volume)
    return volumes


def _volume(above: Tensor) -> Tensor:
    """Return the volume [...] of the union of the boxes between 0 and n positive points [... n m], m > 1."""
    order = above[..., -1].argsort(-1, descending=True)
    sorted_points = above.gather(-2, order.unsqueeze(-1).expand_as(above))
    heights = sorted_points[..., -1]
    slabs = heights - torch.nn.functional.pad(heights[..., 1:], (0, 1))
    if above.shape[-1] == 2:
        widths = sorted_points[..., 0].cummax(-1).values
        return (slabs * widths).sum(-1)
    total = torch.zeros(above.shape[:-2], dtype=above.dtype)
    for i in range(above.shape[-2]):
        total = total + slabs[..., i] * _volume(sorted_points[..., : i + 1, :-1])
    return total
