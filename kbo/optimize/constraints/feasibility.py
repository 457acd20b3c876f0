"""Limits on measured quantities in the search, the recommendation and the report.

Every quantity g with a limit has its own surrogate, like the objective. Its slack ``sign g(x) - limit`` is at least 0
where the limit is kept. If the bounds of ``sign g`` hold, the limit is

    kept      where lower(x) - limit is at least 0
    broken    where upper(x) - limit is negative

In the certified setting the next point maximises the rule of the objective over the points that possibly keep every
limit (optimism over the optimistic feasible set: CONFIG, Xu et al. 2023, Alg. 1). If there is no such point, the one
nearest to keeping the limits is taken. In the practical setting the log-probability that all are kept is added to the
upper bound. docs/theory/constraints.md has both rules, and the theorem about the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from kbo._base.terminal import beside
from kbo.confidence import Limit
from kbo.confidence.base import not_nan
from kbo.optimize.constraints.constraint import Constraint, violations
from kbo.optimize.run.trials import Trial
from kbo.optimize.surrogates.surrogate import Surrogate
from kbo.regression import Posterior
from kbo.space import Space

_BROKEN = -1e300
"""Largest score of a point that breaks a limit, below those of all other points. A larger violation has a lower one."""

_N_POINTS = 16
"""Number of random points whose largest prior standard deviation is the unit of a slack."""

LEAST_STD = 1e-9
"""Least standard deviation of a quantity in divisions; smaller ones, at known points, are raised to it."""


def upper_slack(limits: Sequence[Limit], X: Tensor) -> Tensor:
    """Return the smallest upper bound [...] of the slacks of several limits at features X [... D], in slack units.

    If the bounds hold, some limit is broken where it is negative.
    """
    return _smallest([limit.possible(X) for limit in limits], limits, X)


def lower_slack(limits: Sequence[Limit], X: Tensor) -> Tensor:
    """Return the smallest lower bound [...] of the slacks of several limits at features X [... D], in slack units.

    If the bounds hold, all limits are kept where it is at least 0.
    """
    return _smallest([limit.certain(X) for limit in limits], limits, X)


def _smallest(slacks: Sequence[Tensor], limits: Sequence[Limit], X: Tensor) -> Tensor:
    """Return the smallest slack [...] of several limits at features X [... D], each divided by its slack unit."""
    scaled = []
    for slack, limit in zip(slacks, limits, strict=True):
        scaled.append(slack / slack_unit(limit.state, X))
    return not_nan(torch.stack(scaled).amin(0), "slack of a limit")


def slack_unit(posterior: Posterior, X: Tensor) -> Tensor:
    """Return the unit [] of the slack of a quantity: its largest prior standard deviation at some random points.

    The prior standard deviation at the point itself may be 0, so it is no unit. The unit is 1 if all of them are 0.

    Args:
        posterior: The posterior of the quantity.
        X: Features [... D]; only their number D is used.
    """
    generator = torch.Generator().manual_seed(0)
    points = torch.rand(_N_POINTS, X.shape[-1], generator=generator, dtype=torch.float64)
    largest = posterior.prior_variance(points.to(X)).amax().sqrt()
    return largest.masked_fill(largest == 0, 1.0)


def feasible_first(score: Tensor, slack: Tensor) -> Tensor:
    """Return the scores [n] with those of negative slack [n] replaced: they come last, in the order of their slacks."""
    not_nan(score, "score")
    return torch.where(slack >= 0, score, _BROKEN * (1 - slack.clamp_max(0)))


def log_probability(limits: Sequence[Limit], X: Tensor) -> Tensor:
    """Return the log-probability [...] by the posteriors that all lower limits are kept at features X [... D].

    sum_i log Phi((mean_i - lower_i) / std_i), where the quantities are independent
    """
    total = X.new_zeros(X.shape[:-1])
    for limit in limits:
        assert limit.lower is not None
        mean, variance = limit.state.predict(X)
        std = variance.sqrt().clamp_min(LEAST_STD)
        total = total + torch.special.log_ndtr((mean - limit.lower) / std)
    return total


class ConstraintSurrogate(NamedTuple):
    """A constraint, and the surrogate of ``constraint.sign`` times its quantity."""

    constraint: Constraint
    surrogate: Surrogate

    @property
    def level(self) -> float:
        """The limit that must be reached, in units of the surrogate's posterior."""
        return self.surrogate.transform.target(self.constraint.limit)


@dataclass(frozen=True)
class Feasibility:
    """Bounds of the measured quantities at the recommended parameters, and whether they keep the limits.

    Attributes:
        constraints: The constraints.
        bounds: Lower bound, mean and upper bound of each quantity, by name. All three are the measured value if the
            quantity has no noise, and while there is no bound.
        kept: Whether the pessimistic bounds of all quantities are within their limits.
        probability: If ``certified``, the probability with which all bounds hold. In the practical setting the
            probability by the fitted models that all limits are kept, which is no guarantee. Otherwise None.
        certified: Whether the bounds are proved under the given assumptions.
    """

    constraints: tuple[Constraint, ...]
    bounds: Mapping[str, tuple[float, float, float]]
    kept: bool
    probability: float | None
    certified: bool

    def __str__(self) -> str:
        return _text(self)


def limits(surrogates: Sequence[ConstraintSurrogate]) -> list[Limit]:
    """Return the limits with the reported bounds of their quantities; constraints without a bound are left out."""
    bounded = []
    for entry in surrogates:
        confidence = entry.surrogate.reported
        if confidence is not None:
            bounded.append(Limit(entry.surrogate.posterior, confidence, lower=entry.level))
    return bounded


def probably_feasible(
    space: Space, surrogates: Sequence[ConstraintSurrogate], units: Tensor
) -> Tensor:
    """Return whether points [n P] of the unit cube keep each constraint with a probability of at least 1/2, [n]."""
    feasible = space.satisfies(units)
    for entry in surrogates:
        latest = entry.surrogate.latest
        assert latest is not None
        mean = latest.posterior.predict(space.features(units))[0]
        feasible &= (mean >= entry.level).cpu()
    return feasible


def preferred(
    score: Tensor,
    surrogates: Sequence[ConstraintSurrogate],
    features: Tensor,
    trials: Sequence[Trial],
) -> Tensor:
    """Return scores [n] of trials with features [n D]; those that keep all limits, by lower bounds, come first."""
    if not surrogates:
        return score
    slacks = []
    for constraint, surrogate in surrogates:
        values = []
        for trial in trials:
            value = trial.measurement(constraint.name)
            if value is not None:
                values.append(constraint.sign * value)
        lower = surrogate.lower(features, score.new_tensor(values))
        slack = lower - surrogate.transform.target(constraint.limit)
        slack = slack / slack_unit(surrogate.posterior, features)
        slacks.append(not_nan(slack, f"bound of {constraint.name!r}"))
    return feasible_first(score, torch.stack(slacks).amin(0))


def feasibility(
    delta: float | None,
    constraints: Sequence[Constraint],
    undecided: Sequence[Constraint],
    surrogates: Sequence[ConstraintSurrogate],
    best: Trial,
    features: Tensor,
    ways: Sequence[str],
) -> Feasibility:
    """Return the feasibility of a completed trial.

    Args:
        delta: The probability, at most, that certified bounds fail; None in the practical setting.
        constraints: The constraints.
        undecided: The constraints that the assumptions alone do not prove to be kept everywhere.
        surrogates: The constraints that have a surrogate, with their surrogates.
        best: The trial.
        features: The features [1 D] of the trial.
        ways: Ways in which the noise may have decided which values were observed, in words.
    """
    bounds = {}
    for constraint in constraints:
        value = best.measurement(constraint.name)
        if value is not None:
            bounds[constraint.name] = (value, value, value)
    noisy = [entry for entry in surrogates if not entry.surrogate.noiseless]
    by_bounds = [entry.constraint for entry in noisy]
    by_measurement = [constraint for constraint in undecided if constraint not in by_bounds]
    kept = violations(best, by_measurement) == 0
    probability = float(kept)
    for constraint, surrogate in noisy:
        lower, mean, upper = (float(value) for value in surrogate.interval(features))
        kept &= lower >= constraint.limit
        probability *= surrogate.probability(features, constraint.limit)
        if constraint.sign > 0:
            bounds[constraint.name] = lower, mean, upper
        else:
            bounds[constraint.name] = -upper, -mean, -lower
    unproved = Feasibility(tuple(constraints), bounds, kept, probability=None, certified=False)
    if delta is None:
        return replace(unproved, probability=probability if surrogates else None)
    if by_measurement or not all(surrogate.guarantee(ways) for _, surrogate in noisy):
        return unproved
    return replace(unproved, probability=1 - delta, certified=True)


def _text(feasibility: Feasibility) -> str:
    """Return the feasibility in words, with the mean or the bound of each quantity."""
    probability = feasibility.probability
    is_fitted = probability is not None and not feasibility.certified
    entries = []
    for constraint in feasibility.constraints:
        lower, mean, upper = feasibility.bounds[constraint.name]
        limit = constraint.sign * constraint.limit
        entry = f"{constraint.name} {beside(mean, limit)}"
        if constraint.sign < 0 and lower < upper and not is_fitted:
            entry += f", upper bound {beside(upper, limit)}"
        elif lower < upper and not is_fitted:
            entry += f", lower bound {beside(lower, limit)}"
        entries.append(f"{entry} ({constraint})")
    quantities = ", ".join(entries)
    if probability is None:
        return f"not certified: {quantities}"
    if is_fitted:
        shown = f"{probability:.2g}"
        if probability > 0.99:
            shown = "more than 0.99"
        return f"kept with probability {shown} by the fitted models (not guaranteed): {quantities}"
    if feasibility.kept:
        return f"all kept, with probability at least {beside(probability, 1.0)} for all at once: {quantities}"
    return f"not certified: {quantities}"
