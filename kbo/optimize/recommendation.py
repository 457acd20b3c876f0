"""Rules by which completed trials are compared for the recommendation, and the certainty of the choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from kbo.regression import Posterior

Recommend = Callable[[Posterior, Tensor, Tensor], Tensor]
"""Returns the merit [n], larger is better, of completed trials with features [n D] and values [n]."""

DRAWS, MOST_DRAWN = 2000, 300
"""Joint draws from the posterior, and the distinct points that they have at most, those of the largest upper bounds."""


class Sureness(NamedTuple):
    """Certainty that a recommended trial is the best of the completed ones, under a model: not a guarantee.

    Attributes:
        probability: The probability that no other completed trial is better, without noise.
        expected_loss: The expected difference to the best completed trial, without noise, in units of the objective.
    """

    probability: float
    expected_loss: float


def sureness(values: Tensor, chosen: int) -> Sureness:
    """Return the certainty of a choice, given draws [s n] of the values of n trials."""
    loss = values.amax(-1) - values[:, chosen]
    return Sureness(float((loss <= 0).double().mean()), float(loss.mean()))


def joint_targets(
    posterior: Posterior, features: Tensor, chosen: int, ridge: float, generator: torch.Generator
) -> Tensor:
    """Return joint draws [s n] of the targets without noise at distinct points of features [N D], the chosen one first.

    Args:
        posterior: The posterior, whose draws have the prior variance of its kernel at the ridge.
        features: Those of the completed trials.
        chosen: The row of the chosen trial.
        ridge: The variance of the noise.
        generator: Source of randomness.
    """
    distinct, rows = features.unique(dim=0, return_inverse=True)
    mean, variance = posterior.predict(distinct, ridge)
    upper = (mean + 3 * variance.sqrt()).index_fill(0, rows[chosen], torch.inf)
    best = upper.topk(min(MOST_DRAWN, len(upper))).indices
    return mean[best] + posterior.at(ridge).draw(distinct[best], DRAWS, generator)


def best_observed(posterior: Posterior, features: Tensor, values: Tensor) -> Tensor:
    """Return the values, which are the merit if they have no noise."""
    return values


def cautious_mean(posterior: Posterior, features: Tensor, values: Tensor) -> Tensor:
    """Return the means less one standard deviation.

    The reported bound is wider, because its width covers all points at once, and would prefer trials that were
    repeated to better ones that were not.
    """
    mean, variance = posterior.predict(features)
    return mean - variance.sqrt()
