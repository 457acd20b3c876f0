"""The front of several objectives: the trials that no other trial dominates, by their estimated true values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kbo._base import checks
from kbo._base.terminal import percent
from kbo.errors import InvalidInput
from kbo.optimize.insight.comparison import N_DRAWS, Estimate
from kbo.optimize.objectives.hypervolume import hypervolume, n_dominating, non_dominated
from kbo.optimize.objectives.objective import Objective
from kbo.optimize.quantities.front_trials import FrontTrials
from kbo.optimize.run.table import format_params
from kbo.optimize.run.trials import Trial
from kbo.optimize.surrogates.surrogate import Surrogate

BELOW = 0.1
"""Distance of the default reference from the worst values of a front, in extents of the front."""

_MOST_DRAWN = 256
"""Number of trials that are drawn jointly, unless the front has more: those that the fewest others dominate."""

_TAIL = 0.05
"""Probability on each side of the interval of the hypervolume."""

_UNEXPLAINED = 0.05
"""Share of the noise variance that counts as variance of the objectives in the probabilities, at each trial on its own.

A kernel that is too smooth takes a part of the objective for noise. Without this share too many trials are said to be
on the front.
"""


@dataclass(frozen=True)
class FrontPoint:
    """A trial of the front.

    Attributes:
        trial: The trial.
        values: The estimated true value of each objective without noise, by its name; the same numbers as from
            ``Optimizer.interval``.
        probability: The probability by the model that no other completed trial dominates it; None without a prior.
    """

    trial: Trial
    values: Mapping[str, Estimate]
    probability: float | None

    def __str__(self) -> str:
        return f"trial {self.trial.number}: {self.description}"

    @property
    def description(self) -> str:
        """The values with intervals, the probability and the parameters, as text."""
        texts = [", ".join(f"{name} {value}" for name, value in self.values.items())]
        if self.probability is not None:
            texts.append(f"on the front with {percent(self.probability)}")
        texts.append(format_params(self.trial.params))
        return "; ".join(texts)


@dataclass(frozen=True)
class Front:
    """The trials that no other trial dominates, by the means of their true values.

    A trial dominates another if it is at least as good in every objective, and better in at least one.

    Attributes:
        objectives: The objectives.
        points: The trials of the front, the best one in the first objective first.
        balanced: The recommended trial: the trial whose worst objective, as a share of the extent of the front, is
            best. Under limits, a trial that keeps them less certainly may dominate it.
        reference: The values of the objectives, by name; only better points count in the hypervolume.
        hypervolume: The volume between the reference and the means of the front, in the product of the units of the
            objectives, with an interval for the volume of the true values, nominally 90%. None without a prior, and if
            it overflows.
    """

    objectives: Sequence[Objective]
    points: Sequence[FrontPoint]
    balanced: FrontPoint
    reference: Mapping[str, float]
    hypervolume: Estimate | None

    def __str__(self) -> str:
        lines = [str(point) for point in self.points]
        lines.append(f"balanced: trial {self.balanced.trial.number}")
        return "\n".join(lines)

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """The least and the largest mean of each objective, by its name."""
        ranges = {}
        for objective in self.objectives:
            means = [point.values[objective.name].value for point in self.points]
            ranges[objective.name] = (min(means), max(means))
        return ranges

    @property
    def extents(self) -> dict[str, float]:
        """The largest less the least mean of each objective, by its name; 1 where all are equal."""
        return {name: (largest - least) or 1.0 for name, (least, largest) in self.ranges.items()}

    def choose(
        self,
        weights: Mapping[str, float] | None = None,
        limits: Mapping[str, float] | None = None,
    ) -> FrontPoint:
        """Return the best point of the front for given weights and limits.

        Args:
            weights: The weights of the objectives, by name, at least 0; those without one have 0. The weighted sum of
                the values, each divided by the extent of the front, decides. By default all objectives without a limit
                have the same weight, and those with a limit have 0: they must only keep it. If all have limits, all
                weights are equal.
            limits: By name, the least good acceptable values of some objectives. The means of the point keep them.

        Raises:
            InvalidInput: No point keeps the limits, an unknown name, or weights that are all 0 or below 0.
        """
        signs = {objective.name: objective.sign for objective in self.objectives}
        by_name = ": give a dict of numbers, by the names of objectives"
        checks.maybe(checks.instance, "weights", weights, Mapping, by_name)
        checks.maybe(checks.instance, "limits", limits, Mapping, by_name)
        limits = limits or {}
        if weights is None:
            unlimited = [name for name in signs if name not in limits]
            weights = dict.fromkeys(unlimited or signs, 1.0)
        for name in (*weights, *limits):
            checks.one_of("an objective in weights or limits", name, signs)
        weights = {
            name: checks.non_negative(f"weight of {name!r}", weight)
            for name, weight in weights.items()
        }
        if not any(weights.values()):
            raise InvalidInput("weights: at least one must be above 0.")
        extents = self.extents

        def weighted_sum(point: FrontPoint) -> float:
            total = 0.0
            for name, weight in weights.items():
                total += weight * signs[name] * point.values[name].value / extents[name]
            return total

        return max(self._within(limits), key=weighted_sum)

    def _within(self, limits: Mapping[str, float]) -> list[FrontPoint]:
        """Return the points whose means keep the limits on some objectives.

        Raises:
            InvalidInput: There is no such point, or a limit is no finite number.
        """
        points = list(self.points)
        signs = {objective.name: objective.sign for objective in self.objectives}
        for name, limit in limits.items():
            least = signs[name] * checks.number(f"limit of {name!r}", limit)
            points = [point for point in points if signs[name] * point.values[name].value >= least]
        if points:
            return points
        ranges = [f"{name} is {low:.4g} to {high:.4g}" for name, (low, high) in self.ranges.items()]
        raise InvalidInput(
            f"no point of the front keeps the limits {dict(limits)}: {', '.join(ranges)} there. Loosen one of "
            "them."
        )


def front_of(
    objectives: Sequence[Objective],
    surrogates: Sequence[Surrogate],
    compared: FrontTrials,
    reference: Mapping[str, float],
    generator: torch.Generator,
) -> Front:
    """Return the front of a run, with its probabilities and its hypervolume.

    Args:
        objectives: The objectives.
        surrogates: The surrogates of the objectives, in the same order.
        compared: The compared trials, and which of them are on the front.
        reference: Values of some objectives that are just not acceptable, by name.
        generator: Source of randomness.
    """
    means = compared.means
    on_front = means[compared.rows]
    reference_point = _reference_point(objectives, on_front, reference)
    probabilities = _probabilities(surrogates, compared.features, means, generator)
    features = compared.features[compared.rows]
    volume = _volume(surrogates, features, on_front, reference_point, generator)

    def point(row: int) -> FrontPoint:
        values = {}
        for objective, (lower, mean, upper) in zip(objectives, compared.intervals, strict=True):
            ends = sorted(objective.sign * float(end[row]) for end in (lower, upper))
            values[objective.name] = Estimate(ends[0], objective.sign * float(mean[row]), ends[1])
        return FrontPoint(compared.trials[row], values, probabilities.get(row))

    points = [point(row) for row in compared.rows]
    values = {}
    for objective, target in zip(objectives, reference_point.tolist(), strict=True):
        values[objective.name] = objective.sign * target
    return Front(objectives, points, point(0), values, volume)


def _reference_point(
    objectives: Sequence[Objective], means: Tensor, reference: Mapping[str, float]
) -> Tensor:
    """Return the reference values [m] of the hypervolume, larger ones better: only better points count in it.

    Args:
        objectives: The objectives.
        means: The means [f m] of the trials of the front, larger ones better.
        reference: By name, values of some objectives that are just not acceptable. For the others it is a tenth of the
            extent of the front below its least mean.
    """
    least = means.amin(0)
    extent = means.amax(0) - least
    point = least - BELOW * extent
    for column, objective in enumerate(objectives):
        if objective.name in reference:
            point[column] = objective.sign * reference[objective.name]
    return point


def _probabilities(
    surrogates: Sequence[Surrogate],
    features: Tensor,
    means: Tensor,
    generator: torch.Generator,
) -> dict[int, float]:
    """Return the probability of trials with means [n m] to be on the true front, by row; empty without a prior.

    It is computed for all trials of the front, and for those others that are dominated by the fewest trials.
    """
    dominating = n_dominating(means)
    n_front = int((dominating == 0).sum())
    order = dominating.argsort(stable=True)  # the front is first
    compared = order[: max(n_front, _MOST_DRAWN)].tolist()
    values = _draws(surrogates, features[compared], generator, unexplained=_UNEXPLAINED)
    if values is None:
        return {}
    shares = torch.stack([non_dominated(draw) for draw in values]).double().mean(0)
    return dict(zip(compared, shares.tolist(), strict=True))


def _volume(
    surrogates: Sequence[Surrogate],
    features: Tensor,
    means: Tensor,
    reference: Tensor,
    generator: torch.Generator,
) -> Estimate | None:
    """Return the hypervolume of a front with its interval, nominally 90%; None without a prior, or if it overflows.

    Draws are as rough as the model expects the objectives to be, and rough draws have a larger volume than their mean.
    But the objectives may be as smooth as their means. So the upper end is the 95% quantile of the draws as they are.
    The lower end is the 5% quantile of the draws, lowered by the excess of their mean over the volume of the means.

    Args:
        surrogates: The surrogates of the objectives.
        features: The features [n D] of the trials.
        means: The means [n m] of their true values, larger ones better.
        reference: The reference values [m], larger ones better.
        generator: Source of randomness.
    """
    values = _draws(surrogates, features, generator, unexplained=0.0)
    if values is None:
        return None
    volumes = hypervolume(values, reference)
    volume = float(hypervolume(means, reference))
    if not math.isfinite(volume) or not bool(volumes.isfinite().all()):
        return None
    excess = max(float(volumes.mean()) - volume, 0.0)
    lower = max(float(volumes.quantile(_TAIL)) - excess, 0.0)
    upper = float(volumes.quantile(1 - _TAIL))
    return Estimate(min(lower, volume), volume, max(upper, volume))


def _draws(
    surrogates: Sequence[Surrogate],
    features: Tensor,
    generator: torch.Generator,
    unexplained: float,
) -> Tensor | None:
    """Return joint draws [s n m] of the true values at features [n D]; None without a prior."""
    draws = []
    for surrogate in surrogates:
        values = surrogate.draws(features, N_DRAWS, generator, unexplained)
        if values is None:
            return None
        draws.append(values.cpu())
    return torch.stack(draws, -1)
