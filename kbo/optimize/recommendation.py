"""The certainty of a recommendation."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from kbo.regression import Posterior

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
