"""Measured constraints in the search and in the recommendation.

Every quantity with a limit has a surrogate of its own, like the objective. With sign s, limit l and bounds of s g(x)
the slack s g(x) - l is at least 0 where the limit is kept, and

    lower(x) - l    at least 0: the limit is kept, if the bounds hold
    upper(x) - l    negative: it is broken, if the bounds hold

In the certified setting the next point is the best by the rule of the objective among those where every constraint is
possibly kept (optimism over the optimistic feasible set: CONFIG, Xu et al. 2023, Alg. 1); if there is none, the one
that is least far from it. In the practical setting the log-probability that all are kept is added to the upper bound.
Both rules, and the theorem about the first: docs/theory/constrained.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from kbo.confidence import Limit
from kbo.confidence.base import decided
from kbo.errors import RefutedAssumptions
from kbo.optimize.constraints.constraint import Constraint
from kbo.optimize.run.outcome import OBJECTIVE
from kbo.optimize.run.trials import Trial, quantity, violations
from kbo.optimize.surrogates.surrogate import ANY, Evaluation, Problem, Setting, Surrogate
from kbo.regression import Posterior
from kbo.space import Space

_BROKEN = -1e300
"""Score of points that break a limit: below that of any other, and in the order of their violation."""

LEAST_STD = 1e-9
"""Standard deviation of a quantity that is known."""


class ConstraintSurrogate(NamedTuple):
    """A constraint, and the surrogate of ``constraint.sign`` times its quantity."""

    constraint: Constraint
    surrogate: Surrogate

    @property
    def level(self) -> float:
        """The limit in units of the surrogate's posterior, which is to be reached."""
        return self.surrogate.target(self.constraint.limit)


@dataclass(frozen=True)
class Feasibility:
    """Bounds of the measured quantities at the recommended parameters, and whether these keep the limits.

    Attributes:
        constraints: The constraints.
        bounds: Lower bound, mean and upper bound of each quantity, by name; the measured value three times where it has
            no noise, and while there is no bound.
        kept: Whether the pessimistic bounds of all quantities are within their limits.
        probability: The probability that all limits are kept, by the fitted models, which is no guarantee; if
            ``certified`` the probability with which all bounds hold; None if neither is known.
        certified: Whether these bounds hold under given assumptions.
    """

    constraints: tuple[Constraint, ...]
    bounds: Mapping[str, tuple[float, float, float]]
    kept: bool
    probability: float | None
    certified: bool

    def __str__(self) -> str:
        return _text(self)


class Quantity:
    """A quantity that trials measure, with its evaluations.

    Args:
        setting: The setting for it.
        problem: Method and space.
        prefix: The beginning of the refutations of its assumptions.

    Attributes:
        evaluations: The ends of the trials, in their order.

    Raises:
        InvalidInput: The setting cannot be used with the method or the space.
    """

    def __init__(self, setting: Setting, problem: Problem, prefix: str = "") -> None:
        self.evaluations: list[Evaluation] = []
        self._setting = setting
        self._problem = problem
        self._prefix = prefix
        self._surrogate = setting.fit(problem, [])
        self._n_fitted = 0
        self._description: Surrogate | None = None
        self._n_described = 0

    def surrogate(self) -> Surrogate | None:
        """Return the surrogate after all evaluations; None while there are too few.

        Raises:
            RefutedAssumptions: No function satisfies the given assumptions and fits the values.
        """
        n = len(self.evaluations)
        if self._n_fitted != n:
            try:
                surrogate = self._setting.fit(self._problem, self.evaluations, self._surrogate)
            except RefutedAssumptions as error:
                error.args = (self._prefix + error.args[0],)
                raise
            self._surrogate = surrogate
            self._n_fitted = n
        if self._surrogate is None or not self._surrogate.values:
            return None
        return self._surrogate

    def interval(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return lower bound, mean and upper bound [n] at features [n D]; None while there is no bound.

        Raises:
            RefutedAssumptions: As ``surrogate``.
        """
        surrogate = self.description()
        if surrogate is None or not surrogate.bounded:
            return None
        return surrogate.interval(features)

    def description(self) -> Surrogate | None:
        """Return the surrogate for reports, in which bad values are not cut; None while there are too few.

        Raises:
            RefutedAssumptions: As ``surrogate``.
        """
        surrogate = self.surrogate()
        setting = self._setting.described()
        if surrogate is None or setting is self._setting or not surrogate.cuts:
            return surrogate
        n = len(self.evaluations)
        if self._n_described != n:
            self._description = setting.fit(self._problem, self.evaluations)
            self._n_described = n
        return self._description


def quantities(
    setting: Setting, problem: Problem, constraints: Sequence[Constraint]
) -> tuple[Quantity, list[tuple[Constraint, Quantity]]]:
    """Return the objective, and the constraints that are not decided in advance with their quantities.

    Raises:
        InvalidInput: The setting cannot be used with the method, the space or the constraints, or no function of the
            given norm reaches a limit.
    """
    undecided = [c for c in constraints if not setting.decides(c, problem.method, problem.space)]
    n_quantities = 1 + sum(constraint.name != OBJECTIVE for constraint in undecided)
    without_range = problem._replace(span=ANY)  # the declared range is that of the objective
    constrained = []
    for constraint in undecided:
        own_setting = setting.of(constraint, n_quantities)
        prefix = f"constraint {constraint.name!r}: "
        constrained.append((constraint, Quantity(own_setting, without_range, prefix)))
    return Quantity(setting.shared(n_quantities), problem), constrained


def limits(surrogates: Sequence[ConstraintSurrogate]) -> list[Limit]:
    """Return the limits with the bounds that are reported, of the constraints that have one."""
    found = []
    for entry in surrogates:
        reported = entry.surrogate.reported
        if reported is not None:
            found.append(Limit(entry.surrogate.posterior, reported, lower=entry.level))
    return found


def upper_slack(limits: Sequence[Limit], X: Tensor) -> Tensor:
    """Return the smallest upper bound [...] of a slack at features X [... D], each in its ``slack_unit``."""
    return _smallest([limit.possible(X) for limit in limits], limits, X)


def lower_slack(limits: Sequence[Limit], X: Tensor) -> Tensor:
    """Return the smallest lower bound [...] of a slack at features X [... D], each in its ``slack_unit``."""
    return _smallest([limit.certain(X) for limit in limits], limits, X)


def _smallest(slacks: Sequence[Tensor], limits: Sequence[Limit], X: Tensor) -> Tensor:
    scaled = []
    for slack, limit in zip(slacks, limits, strict=True):
        scaled.append(slack / slack_unit(limit.state, X))
    return decided(torch.stack(scaled).amin(0), "slack of a limit")


def slack_unit(posterior: Posterior, X: Tensor) -> Tensor:
    """Return the unit [] in which slacks of a quantity are compared: the largest prior standard deviation found.

    That of single points would not do: it is 0 where the kernel knows the value. 1 if it is 0 everywhere.

    Args:
        posterior: The posterior of the quantity.
        X: Features [... D], of which the number D is used.
    """
    probes = _probes(X.shape[-1]).to(X)
    largest = posterior.prior_variance(probes).amax().sqrt()
    return largest.masked_fill(largest == 0, 1.0)


@cache
def _probes(columns: int) -> Tensor:
    """Return some points [16 columns] of the unit cube."""
    return torch.rand(16, columns, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def feasible_first(score: Tensor, slack: Tensor) -> Tensor:
    """Return the scores [n], and where the slack [n] is negative scores below all others, in the order of the slack."""
    decided(score, "score")
    return torch.where(slack >= 0, score, _BROKEN * (1 - slack.clamp_max(0)))


def log_probability(limits: Sequence[Limit], X: Tensor) -> Tensor:
    """Return the log-probability [...] that all lower limits are kept at X [... D], by the posteriors."""
    total = X.new_zeros(X.shape[:-1])
    for limit in limits:
        assert limit.lower is not None
        mean, variance = limit.state.predict(X)
        std = variance.sqrt().clamp_min(LEAST_STD)
        total = total + torch.special.log_ndtr((mean - limit.lower) / std)
    return total


def probably_feasible(
    space: Space, surrogates: Sequence[ConstraintSurrogate], units: Tensor
) -> Tensor:
    """Return at points [n P] of the unit cube whether each constraint is kept with a probability of a half, [n]."""
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
    """Return the scores [n] of completed trials, lower ones where the lower bound of a slack is negative.

    Args:
        score: The scores without constraints [n].
        surrogates: The constraints with their surrogates.
        features: Features [n D] of the trials.
        trials: The trials.
    """
    if not surrogates:
        return score
    slacks = []
    for constraint, surrogate in surrogates:
        values = []
        for trial in trials:
            value = quantity(trial, constraint)
            if value is not None:
                values.append(constraint.sign * value)
        lower = surrogate.lower(features, score.new_tensor(values))
        slack = lower - surrogate.target(constraint.limit)
        slack = slack / slack_unit(surrogate.posterior, features)
        slacks.append(decided(slack, f"bound of {constraint.name!r}"))
    return feasible_first(score, torch.stack(slacks).amin(0))


def feasibility(
    setting: Setting,
    constraints: Sequence[Constraint],
    undecided: Sequence[Constraint],
    surrogates: Sequence[ConstraintSurrogate],
    best: Trial,
    features: Tensor,
    ways: Sequence[str],
) -> Feasibility:
    """Return the feasibility of a completed trial with features [1 D].

    Args:
        setting: The setting of the run.
        constraints: The constraints.
        undecided: Those that are not kept in any case.
        surrogates: Those that have a surrogate.
        best: The trial.
        features: Its features.
        ways: Ways in which the noise may have decided which values there are, in words.
    """
    bounds = {}
    for constraint in constraints:
        value = quantity(best, constraint)
        if value is not None:
            bounds[constraint.name] = (value, value, value)
    noisy = [entry for entry in surrogates if not entry.surrogate.exact]
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
    if not setting.certified:
        known = probability if surrogates else None
        return Feasibility(tuple(constraints), bounds, kept, known, False)
    certified = not by_measurement
    for _, surrogate in noisy:
        certified &= surrogate.proved(ways) is not None
    known = 1 - setting.delta if certified else None
    return Feasibility(tuple(constraints), bounds, kept, known, certified)


def _text(feasibility: Feasibility) -> str:
    """Return the feasibility in words, with the mean or the bound of each quantity."""
    probability = feasibility.probability
    is_fitted = probability is not None and not feasibility.certified
    entries = []
    for constraint in feasibility.constraints:
        lower, mean, upper = feasibility.bounds[constraint.name]
        if lower == upper or is_fitted:
            entries.append(f"{constraint.name} {mean:.4g} ({constraint})")
        elif constraint.sign < 0:
            entries.append(f"{constraint.name} {mean:.4g}, upper bound {upper:.4g} ({constraint})")
        else:
            entries.append(f"{constraint.name} {mean:.4g}, lower bound {lower:.4g} ({constraint})")
    quantities = ", ".join(entries)
    if probability is None:
        return f"not certified: {quantities}"
    if is_fitted:
        shown = "more than 0.99" if probability > 0.99 else f"{probability:.2g}"
        return f"with probability {shown} by the fitted models (not guaranteed): {quantities}"
    if feasibility.kept:
        return (
            f"with probability at least {probability:g} for all constraints at once: {quantities}"
        )
    return f"not certified: {quantities}"
