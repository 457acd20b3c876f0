"""Comparison of two points, by joint draws of the objective without noise; the model gives no guarantee."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from kbo._base.terminal import bounded, percent
from kbo.optimize.surrogates.surrogate import Surrogate

N_DRAWS = 256
"""Number of joint draws of the objective."""

_N_COMPARED = 10_000
"""Number of joint draws of the objective at two points."""


class Estimate(NamedTuple):
    """An estimate by the model, with its 90% interval."""

    lower: float
    value: float
    upper: float

    def __str__(self) -> str:
        return bounded(self.lower, self.value, self.upper)


class Comparison(NamedTuple):
    """By how much some parameters are better than others, by the model.

    Attributes:
        lower, upper: The 90% interval of the difference.
        value: The expected difference in units of the objective; positive if they are better.
        probability: The probability that they are better, plus half of the probability that there is no difference.
    """

    lower: float
    value: float
    upper: float
    probability: float

    def __str__(self) -> str:
        if self.lower == self.upper == 0:
            return "no difference"
        difference = bounded(self.lower, self.value, self.upper)
        return f"better by {difference} (90%); better at all with {percent(self.probability)}"


def estimate(draws: Tensor) -> Estimate:
    """Return the mean and the 90% interval of draws [s]."""
    lower = float(draws.quantile(0.05))
    upper = float(draws.quantile(0.95))
    return Estimate(lower, float(draws.mean()), upper)


def varies(surrogate: Surrogate) -> bool:
    """Return whether any two values differ; otherwise the scale of the objective is not known."""
    return len({evaluation.value for evaluation in surrogate.values}) > 1


def comparison(
    surrogate: Surrogate, features: Tensor, generator: torch.Generator
) -> Comparison | None:
    """Return by how much the first of two points, with features [2 D], is better than the second.

    None where there is no prior to draw from. The difference of a point to itself is exactly 0, though two draws there
    differ by rounding.
    """
    draws = surrogate.draws(features, _N_COMPARED, generator)
    if draws is None:
        return None
    gain = (draws[:, 0] - draws[:, 1]).cpu()
    if torch.equal(features[0], features[1]):
        gain = torch.zeros_like(gain)
    probability = (gain > 0).double().mean() + (gain == 0).double().mean() / 2
    return Comparison(*estimate(gain), float(probability))
