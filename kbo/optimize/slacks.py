"""Slacks: by how much limits are kept, in units that can be compared between quantities."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from kbo.confidence import Limit
from kbo.confidence.base import decided
from kbo.regression import Posterior

_BELOW = -1e300
"""Score of points that break a limit for certain: below that of any other, and in the order of their violation."""

LEAST_STD = 1e-9
"""Standard deviation of a quantity that is known."""


def feasible_first(score: Tensor, slack: Tensor) -> Tensor:
    """Return the scores [n], and where the slack [n] is negative scores below all others, in the order of the slack."""
    decided(score, "score")
    return torch.where(slack >= 0, score, _BELOW * (1 - slack.clamp_max(0)))


def least_possible(limits: Sequence[Limit], X: Tensor) -> Tensor:
    """Return the least possible slack [...] at features X [... D], each in the ``unit`` of its quantity."""
    return _least([limit.possible(X) for limit in limits], limits, X)


def least_certain(limits: Sequence[Limit], X: Tensor) -> Tensor:
    """Return the least certain slack [...] at features X [... D], in the same units."""
    return _least([limit.certain(X) for limit in limits], limits, X)


def _least(slacks: Sequence[Tensor], limits: Sequence[Limit], X: Tensor) -> Tensor:
    scaled = [slack / unit(limit.state, X) for slack, limit in zip(slacks, limits, strict=True)]
    return decided(torch.stack(scaled).amin(0), "slack of a limit")


def unit(state: Posterior, X: Tensor) -> Tensor:
    """Return the unit [] in which slacks of a quantity are compared: the prior standard deviation, the largest found.

    That of single points would not do: it is 0 where the kernel knows the value. 1 if it is 0 everywhere.

    Args:
        state: The posterior of the quantity.
        X: Features [... D], of which the number D is used.
    """
    largest = state.prior_variance(_probes(X.shape[-1]).to(X)).amax().sqrt()
    return largest.masked_fill(largest == 0, 1.0)


@cache
def _probes(columns: int) -> Tensor:
    """Return some points [16 columns] of the unit cube."""
    return torch.rand(16, columns, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def log_probability(limits: Sequence[Limit], X: Tensor) -> Tensor:
    """Return the logarithm of the probability [...] that all lower limits are kept at X [... d], by the posteriors."""
    total = X.new_zeros(X.shape[:-1])
    for limit in limits:
        mean, variance = limit.state.predict(X)
        assert limit.lower is not None
        total = total + torch.special.log_ndtr(
            (mean - limit.lower) / variance.sqrt().clamp_min(LEAST_STD)
        )
    return total
