"""The recommended trial and, with several objectives, the front: completed trials that no other dominates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kbo.confidence.base import not_nan
from kbo.optimize.constraints.feasibility import preferred
from kbo.optimize.objectives.hypervolume import n_dominating, non_dominated
from kbo.optimize.quantities.quantities import Quantities
from kbo.optimize.run.trials import Trial
from kbo.optimize.surrogates.surrogate import Surrogate
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
    least = front.amin(0)
    extent = front.amax(0) - least
    extent = extent.masked_fill(extent == 0, 1.0)
    return ((means - least) / extent).amin(-1)


@dataclass(frozen=True)
class FrontTrials:
    """Trials with different parameters, and which of them are on the front.

    Attributes:
        trials: The trials [n], the recommended one first.
        features: Their features [n D].
        intervals: Lower bound, mean and upper bound [n] of each of the m objectives at the trials, larger values
            better.
        rows: The rows of the trials on the front, the best one in the first objective first.
    """

    trials: Sequence[Trial]
    features: Tensor
    intervals: Sequence[tuple[Tensor, Tensor, Tensor]]
    rows: Sequence[int]

    @classmethod
    def of(
        cls, surrogates: Sequence[Surrogate], trials: Sequence[Trial], features: Tensor
    ) -> FrontTrials:
        """Return the front of some trials.

        Args:
            surrogates: The surrogates of the objectives, larger values better.
            trials: Completed trials with different parameters, the recommended one first.
            features: Their features [n D].
        """
        intervals = [surrogate.interval(features) for surrogate in surrogates]
        means = _means(intervals)
        rows = non_dominated(means).nonzero().flatten()
        rows = rows[means[rows, 0].argsort(descending=True)]
        return cls(trials, features, intervals, rows.tolist())

    @property
    def means(self) -> Tensor:
        """The posterior means [n m] of the objectives at all trials, on the CPU."""
        return _means(self.intervals)

    @property
    def front(self) -> list[Trial]:
        """The trials of the front, the best one in the first objective first."""
        return [self.trials[row] for row in self.rows]

    @property
    def extents(self) -> Tensor:
        """The largest less the least mean of each objective on the front, [m]; 1 where all are equal."""
        means = self.means[self.rows].double()
        extents = means.amax(0) - means.amin(0)
        return extents.masked_fill(extents == 0, 1.0)


def front_trials(quantities: Quantities) -> FrontTrials | None:
    """Return the front of the completed trials that keep all limits as measured, and of the recommended trial.

    None with one objective, without a recommended trial, and while there is no bound.

    Raises:
        RefutedAssumptions: In the certified setting, no function satisfies the assumptions of an objective.
    """
    best = recommended_trial(quantities)
    surrogates = quantities.surrogates(for_reports=True)
    if not quantities.objectives or best is None or not surrogates:
        return None
    trials = distinct(quantities.within_limits(best), best)
    return FrontTrials.of(list(surrogates.values()), trials, quantities.features(trials))


def _means(intervals: Sequence[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """Return the means [n m] of intervals of m objectives, on the CPU."""
    return torch.stack([mean for _, mean, _ in intervals], -1).cpu()


def distinct(trials: Sequence[Trial], best: Trial) -> list[Trial]:
    """Return trials with different parameters, one for all with the same, the recommended trial first.

    The others follow in reverse order. Of trials with the same parameters the first one is returned.
    """
    others = {}
    for trial in reversed(trials):
        if trial.params != best.params:
            others[repr(trial.params)] = trial
    return [best, *others.values()]
