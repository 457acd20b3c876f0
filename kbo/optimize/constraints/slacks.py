"""Slacks of limits: by how much a quantity keeps its limit; negative where it breaks the limit.

The bounds of a quantity give bounds of its slack. Slacks of several quantities are compared in units of their prior
standard deviations (``slack_unit``).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kbo.confidence import Limit
from kbo.confidence.base import not_nan
from kbo.regression import Posterior

_BROKEN = -1e300
"""Largest score of a point that breaks a limit, below those of all other points. A larger violation has a lower one."""

_N_POINTS = 16
"""Number of random points whose largest prior standard deviation is the unit of a slack."""

LEAST_STD = 1e-9
"""Least standard deviation of a quantity in divisions; smaller ones, at known points, are raised to it."""


def upper_slack(limits: Sequence[Limit], X: Tensor) -> Tensor:
    """Return the smallest upper bound [...] of the slacks of several limits at features X [... D], in slack units.

    If the bounds hold, some limit is broken where it is negative.
    """
    return _smallest([limit.possible(X) for limit in limits], limits, X)


def lower_slack(limits: Sequence[Limit], X: Tensor) -> Tensor:
    """Return the smallest lower bound [...] of the slacks of several limits at features X [... D], in slack units.

    If the bounds hold, all limits are kept where it is at least 0.
    """
    return _smallest([limit.certain(X) for limit in limits], limits, X)


def _smallest(slacks: Sequence[Tensor], limits: Sequence[Limit], X: Tensor) -> Tensor:
    """Return the smallest slack [...] of several limits at features X [... D], each divided by its slack unit."""
    scaled = []
    for slack, limit in zip(slacks, limits, strict=True):
        scaled.append(slack / slack_unit(limit.state, X))
    return not_nan(torch.stack(scaled).amin(0), "slack of a limit")


def slack_unit(posterior: Posterior, X: Tensor) -> Tensor:
    """Return the unit [] of the slack of a quantity: its largest prior standard deviation at some random points.

    The prior standard deviation at the point itself may be 0, so it is no unit. The unit is 1 if all of them are 0.

    Args:
        posterior: The posterior of the quantity.
        X: Features [... D]; only their number D is used.
    """
    generator = torch.Generator().manual_seed(0)
    points = torch.rand(_N_POINTS, X.shape[-1], generator=generator, dtype=torch.float64)
    largest = posterior.prior_variance(points.to(X)).amax().sqrt()
    return largest.masked_fill(largest == 0, 1.0)


def feasible_first(score: Tensor, slack: Tensor) -> Tensor:
    """Return the scores [n] with those of negative slack [n] replaced: they come last, in the order of their slacks."""
    not_nan(score, "score")
    return torch.where(slack >= 0, score, _BROKEN * (1 - slack.clamp_max(0)))


def log_probability(limits: Sequence[Limit], X: Tensor) -> Tensor:
    """Return the log-probability [...] by the posteriors that all lower limits are kept at features X [... D].

    sum_i log Phi((mean_i - lower_i) / std_i), where the quantities are independent
    """
    total = X.new_zeros(X.shape[:-1])
    for limit in limits:
        assert limit.lower is not None
        mean, variance = limit.state.predict(X)
        std = variance.sqrt().clamp_min(LEAST_STD)
        total = total + torch.special.log_ndtr((mean - limit.lower) / std)
    return total
