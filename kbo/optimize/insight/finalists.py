"""Finalists: the recommended trial and the trials that may be better, which are worth new evaluations."""

from __future__ import annotations

import torch
from torch import Tensor

from kbo.optimize.insight.comparison import N_DRAWS
from kbo.optimize.quantities.quantities import Quantities
from kbo.optimize.quantities.recommendation import distinct, recommended_trial
from kbo.optimize.run.trials import Trial
from kbo.optimize.surrogates.surrogate import Surrogate

_MOST = 5
"""Largest number of finalists."""

_MOST_COMPARED = 64
"""Number of trials with the best means that are compared with the recommended trial."""

_LEAST_PROBABILITY = 1 - 0.95
"""Least probability of a finalist to be better than the recommended trial."""


def finalists(quantities: Quantities, generator: torch.Generator) -> list[Trial]:
    """Return the recommended trial, and then the trials that may be better, the most probable first.

    If no trial may be better, the trial with the next best mean follows. While there is no bound, the trials with the
    next best values follow.

    Args:
        quantities: The quantities of a run with one objective.
        generator: Source of randomness.
    """
    best = recommended_trial(quantities)
    if best is None:
        return []
    within_limits = quantities.within_limits()
    surrogate = quantities.report_surrogate()
    if surrogate is None or quantities.bounded() is None:
        best_last = sorted(within_limits, key=quantities.signed)
        return distinct(best_last, best)[:_MOST]
    trials = distinct(within_limits, best)
    features = quantities.features(trials)
    means = surrogate.posterior.predict(features)[0].cpu()
    rows = means.argsort(descending=True)[:_MOST_COMPARED].tolist()
    compared = [0, *(row for row in rows if row)]
    rivals = _rivals(surrogate, features[compared], generator)
    if not rivals and len(compared) > 1:
        rivals = [1]
    return [best, *(trials[compared[row]] for row in rivals)][:_MOST]


def _rivals(surrogate: Surrogate, features: Tensor, generator: torch.Generator) -> list[int]:
    """Return the rows of features [n D] that are better than row 0 with a probability of at least 5%, likeliest first.

    Without a prior, these are the rows whose upper bound reaches the lower bound of row 0.
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
