"""The argmax of an acquisition over a space with numbers, integers and choices."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

RANDOM_POINTS = 1024
KEPT = 8
CHILDREN = 32
STEPS = (0.2, 0.1, 0.03, 0.01, 0.003, 0.001)


@torch.no_grad()
def argmax(
    score: Callable[[Tensor], Tensor],
    starts: Tensor,
    generator: torch.Generator,
    leader: Callable[[Tensor], int] | None = None,
    fixed: Tensor | None = None,
) -> Tensor:
    """A point [P] of the unit cube that nearly maximises ``score`` [n P] -> [n]: random, then local search.

    Every point that is scored is one that the objective can be given, so integers and choices need no
    relaxation, and repeated steps at shrinking scales find continuous coordinates to about 1e-3.

    Args:
        score: The acquisition.
        starts: Promising points [s P], for example the best ones evaluated.
        generator: Source of randomness.
        leader: Picks among the last points [n P], by something dearer than the score.
        fixed: Coordinates [P] that stay as they are, NaN where they are free; the search runs over the free ones only.
    """
    if fixed is not None and not bool(fixed.isnan().all()):
        return _argmax_of_free(score, starts, generator, leader, fixed)
    P = starts.shape[-1]
    points = torch.cat([torch.rand(RANDOM_POINTS, P, generator=generator, dtype=torch.float64), starts])
    values = score(points)
    for step in STEPS:
        best = values.topk(min(KEPT, len(values))).indices
        points, values = points[best], values[best]
        children = points.repeat_interleave(CHILDREN, 0)
        # Each child moves in about two coordinates, one at least, and sometimes jumps in one of them.
        moves = torch.rand(children.shape, generator=generator, dtype=torch.float64) < 2 / P
        moves[torch.arange(len(children)), torch.randint(P, (len(children),), generator=generator)] = True
        noise = torch.randn(children.shape, generator=generator, dtype=torch.float64)
        children = torch.where(moves, (children + step * noise).clamp(0, 1), children)
        jumps = moves & (torch.rand(children.shape, generator=generator, dtype=torch.float64) < 0.1)
        children = torch.where(jumps, torch.rand(children.shape, generator=generator, dtype=torch.float64), children)
        points = torch.cat([points, children])
        values = torch.cat([values, score(children)])
    return points[leader(points) if leader else int(values.argmax())]


def _argmax_of_free(
    score: Callable[[Tensor], Tensor],
    starts: Tensor,
    generator: torch.Generator,
    leader: Callable[[Tensor], int] | None,
    fixed: Tensor,
) -> Tensor:
    """``argmax`` over the free coordinates."""
    free = fixed.isnan()

    def whole(U: Tensor) -> Tensor:
        return fixed.expand(len(U), -1).masked_scatter(free, U)

    def score_whole(U: Tensor) -> Tensor:
        return score(whole(U))

    def leader_whole(U: Tensor) -> int:
        return int(score_whole(U).argmax()) if leader is None else leader(whole(U))

    return whole(argmax(score_whole, starts[:, free], generator, leader_whole).unsqueeze(0))[0]
