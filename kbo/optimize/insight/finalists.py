"""Finalists: the trials that may be better than the recommended one, worth new evaluations."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kbo.optimize.insight.comparison import N_DRAWS
from kbo.optimize.run.trials import Trial
from kbo.optimize.surrogates.surrogate import Surrogate
from kbo.space import Space

_MOST_COMPARED = 64
"""Number of trials, those with the best means, that are compared with the recommended one."""

_LEAST_PROBABILITY = 1 - 0.95
"""Least probability of being better than the recommended trial with which another one is a finalist."""


def finalists(
    space: Space, surrogate: Surrogate, trials: Sequence[Trial], generator: torch.Generator
) -> list[Trial]:
    """Return the recommended trial, and after it the trials that may be better, the most probable first.

    If no trial may be better, the one with the next best mean follows.

    Args:
        space: The search space.
        surrogate: The surrogate of the objective.
        trials: Trials with different parameters, the recommended one first.
        generator: Source of randomness.
    """
    features = space.features(space.units([trial.params for trial in trials]))
    means = surrogate.posterior.predict(features)[0].cpu()
    rows = means.argsort(descending=True)[:_MOST_COMPARED].tolist()
    compared = [0, *(row for row in rows if row)]
    rivals = _rivals(surrogate, features[compared], generator)
    if not rivals and len(compared) > 1:
        rivals = [1]
    return [trials[0], *(trials[compared[row]] for row in rivals)]


def _rivals(surrogate: Surrogate, features: Tensor, generator: torch.Generator) -> list[int]:
    """Return the rows of features [n D] that are better than the first with a probability of 5%, most probable first.

    Where there is no prior, the rows whose upper bound reaches the lower bound of the first one.
    """
    draws = surrogate.draws(features, N_DRAWS, generator)
    if draws is None:
        lower, _, upper = surrogate.interval(features)
        score = upper
        least = lower[0]
    else:
        score = (draws > draws[:, :1]).double().mean(0)
        least = _LEAST_PROBABILITY
    rows = (score >= least).nonzero().flatten()
    order = score[rows].argsort(descending=True, stable=True)
    return [row for row in rows[order].tolist() if row]
