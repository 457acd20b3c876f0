"""The recommended trial, and the balance of several objectives that decides between trials of a front."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kbo.confidence.base import not_nan
from kbo.optimize.constraints.feasibility import preferred
from kbo.optimize.objectives.hypervolume import n_dominating
from kbo.optimize.quantities.quantities import Quantities
from kbo.optimize.run.trials import Trial
from kbo.space import Params


def recommended_trial(quantities: Quantities) -> Trial | None:
    """Return the recommended trial: see ``Optimizer.recommended``."""
    complete = quantities.trials.complete
    surrogate = quantities.bounded()
    allowed = quantities.allowed(complete)
    if not allowed or surrogate is None:
        return max(allowed, key=quantities.rank, default=None)
    features = quantities.features(complete)
    values = features.new_tensor([quantities.signed(trial) for trial in complete])
    criterion = not_nan(surrogate.criterion(features, values), "bound")
    n_better = torch.zeros(len(complete))  # trials of a front that dominate each
    if quantities.others:
        criterion, n_better = _balance(quantities, features)
    criterion = preferred(criterion, quantities.limits(), features, complete).tolist()
    of_trial = {}
    for trial, value, count in zip(complete, criterion, n_better.tolist(), strict=True):
        of_trial[trial.number] = (value, -count)
    return max(allowed, key=lambda trial: of_trial[trial.number])


def recommended_params(quantities: Quantities) -> Params | None:
    """Return the parameters of the recommended trial; None without one."""
    trial = recommended_trial(quantities)
    if trial is None:
        return None
    return trial.params


def _balance(quantities: Quantities, features: Tensor) -> tuple[Tensor, Tensor]:
    """Return the ``balance`` [n] of trials with features [n D], and how many of them dominate each, [n]."""
    surrogates = quantities.surrogates(for_reports=True)
    if not surrogates:
        return features.new_zeros(len(features)), features.new_zeros(len(features))
    means = torch.stack([s.interval(features)[1] for s in surrogates.values()], -1)
    n_better = n_dominating(means)
    return balance(means, means[n_better == 0]), n_better


def balance(means: Tensor, front: Tensor) -> Tensor:
    """Return the balance [n] of points: how far the worst objective reaches into the extent of the front.

    balance = min_k (means_k - min front_k) / (max front_k - min front_k)

    Args:
        means: The means [n m] of the objectives, larger ones better.
        front: The means [f m] at the points of the front.
    """
    return ((means - front.amin(0)) / extents_of(front)).amin(-1)


def extents_of(front: Tensor) -> Tensor:
    """Return the largest less the least mean of each objective at points with means [f m], [m]; 1 if they are equal."""
    extents = front.amax(0) - front.amin(0)
    return extents.masked_fill(extents == 0, 1.0)


def distinct(trials: Sequence[Trial], best: Trial) -> list[Trial]:
    """Return trials with different parameters, one for all with the same, the recommended trial first.

    The others follow in reverse order. Of trials with the same parameters the first one is returned.
    """
    others = {}
    for trial in reversed(trials):
        if trial.params != best.params:
            others[repr(trial.params)] = trial
    return [best, *others.values()]
