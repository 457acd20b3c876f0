"""The front of several objectives: the completed trials that no other dominates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kbo.optimize.objectives.hypervolume import non_dominated
from kbo.optimize.quantities.quantities import Quantities
from kbo.optimize.quantities.recommendation import distinct, extents_of, recommended_trial
from kbo.optimize.run.trials import Trial
from kbo.optimize.surrogates.surrogate import Surrogate


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
        return extents_of(self.means[self.rows].double())


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
