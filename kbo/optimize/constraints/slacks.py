"""Slacks of limits: the distances of quantities to their limits, at least 0 where these are kept.

Bounds of a quantity bound its slack. Slacks of several quantities are compared in their ``slack_unit``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from kbo.confidence import Limit
from kbo.confidence.base import not_nan
from kbo.regression import Posterior

_BROKEN = -1e300
"""Score of points that break a limit: below that of any other, and in the order of their violation."""

LEAST_STD = 1e-9
"""Standard deviation of a quantity that is known."""


def upper_slack(limits: Sequence[Limit], X: Tensor) -> Tensor:
    """Return the smallest upper bound [...] of a slack at features X [... D], each in its ``slack_unit``."""
    return _smallest([limit.possible(X) for limit in limits], limits, X)


def lower_slack(limits: Sequence[Limit], X: Tensor) -> Tensor:
    """Return the smallest lower bound [...] of a slack at features X [... D], each in its ``slack_unit``."""
    return _smallest([limit.certain(X) for limit in limits], limits, X)


def _smallest(slacks: Sequence[Tensor], limits: Sequence[Limit], X: Tensor) -> Tensor:
    scaled = []
    for slack, limit in zip(slacks, limits, strict=True):
        scaled.append(slack / slack_unit(limit.state, X))
    return not_nan(torch.stack(scaled).amin(0), "slack of a limit")


def slack_unit(posterior: Posterior, X: Tensor) -> Tensor:
    """Return the unit [] in which slacks of a quantity are compared: the largest prior standard deviation found.

    That of single points would not do: it is 0 where the kernel knows the value. 1 if it is 0 everywhere.

    Args:
        posterior: The posterior of the quantity.
        X: Features [... D], of which the number D is used.
    """
    probes = _probes(X.shape[-1]).to(X)
    largest = posterior.prior_variance(probes).amax().sqrt()
    return largest.masked_fill(largest == 0, 1.0)


@cache
def _probes(columns: int) -> Tensor:
    """Return some points [16 columns] of the unit cube."""
    return torch.rand(16, columns, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def feasible_first(score: Tensor, slack: Tensor) -> Tensor:
    """Return the scores [n], and where the slack [n] is negative scores below all others, in the order of the slack."""
    not_nan(score, "score")
    return torch.where(slack >= 0, score, _BROKEN * (1 - slack.clamp_max(0)))


def log_probability(limits: Sequence[Limit], X: Tensor) -> Tensor:
    """Return the log-probability [...] that all lower limits are kept at X [... D], by the posteriors."""
    total = X.new_zeros(X.shape[:-1])
    for limit in limits:
        assert limit.lower is not None
        mean, variance = limit.state.predict(X)
        std = variance.sqrt().clamp_min(LEAST_STD)
        total = total + torch.special.log_ndtr((mean - limit.lower) / std)
    return total
