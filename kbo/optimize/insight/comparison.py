"""Comparison of points by joint draws of the objective without noise, without a guarantee: of two, and of the best."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from kbo._base.terminal import bounded, percent
from kbo.optimize.quantities.quantities import Quantities
from kbo.optimize.quantities.recommendation import distinct, recommended_trial
from kbo.optimize.run.trials import Trial
from kbo.optimize.surrogates.surrogate import Surrogate

N_DRAWS = 256
"""Number of joint draws of the objective."""

_N_COMPARED = 10_000
"""Number of joint draws of the objective at two points."""

_MOST_FINALISTS = 5
"""Largest number of finalists."""

_MOST_COMPARED = 64
"""Number of trials with the best means that are compared with the recommended trial."""

_LEAST_PROBABILITY = 1 - 0.95
"""Least probability of a finalist to be better than the recommended trial by more than counts as none."""

TOLERATED = 0.25
"""A difference up to this number of standard deviations of the noise counts as none in a confirmation.

It is smaller than the differences that the noise of a few values can show, and it does not depend on how bad the worst
parameters are.
"""


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
    """Return the lead of the first of two points, with features [2 D], over the second.

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


def finalists(
    quantities: Quantities, surrogate: Surrogate | None, generator: torch.Generator
) -> list[Trial]:
    """Return the recommended trial, and then those that may be better by a difference that counts, likeliest first.

    If no trial may be better, the trial with the next best mean follows. While there is no bound, the trials with the
    next best values follow.

    Args:
        quantities: The quantities of a run with one objective.
        surrogate: The surrogate of the objective for reports; None while there is no bound.
        generator: Source of randomness.
    """
    best = recommended_trial(quantities)
    if best is None:
        return []
    within_limits = quantities.within_limits()
    if surrogate is None:
        best_last = sorted(within_limits, key=quantities.signed)
        return distinct(best_last, best)[:_MOST_FINALISTS]
    trials = distinct(within_limits, best)
    features = quantities.features(trials)
    means = surrogate.posterior.predict(features)[0].cpu()
    rows = means.argsort(descending=True)[:_MOST_COMPARED].tolist()
    compared = [0, *(row for row in rows if row)]
    rivals = _rivals(surrogate, features[compared], generator)
    if not rivals and len(compared) > 1:
        rivals = [1]
    return [best, *(trials[compared[row]] for row in rivals)][:_MOST_FINALISTS]


def _rivals(surrogate: Surrogate, features: Tensor, generator: torch.Generator) -> list[int]:
    """Return the rows of features [n D] that may be better than row 0, the most probable first.

    Their probability to be better by more than a quarter of the noise level is at least 5%. Without a prior, these are
    the rows whose upper bound reaches the lower bound of row 0.
    """
    draws = surrogate.draws(features, N_DRAWS, generator)
    lower, means, upper = surrogate.interval(features)
    if draws is None:
        score = upper
        least = lower[0]
    else:
        tolerance = TOLERATED * surrogate.noise_std_at(float(means[0]))
        score = (draws > draws[:, :1] + tolerance).double().mean(0)
        least = _LEAST_PROBABILITY
    rows = (score >= least).nonzero().flatten()
    order = score[rows].argsort(descending=True, stable=True)
    return [row for row in rows[order].tolist() if row]
