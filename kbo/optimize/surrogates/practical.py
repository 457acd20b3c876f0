"""The practical setting: a model is fitted, a search finds the next point, and a rule recommends one of the trials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist, median
from typing import Any, ClassVar

import torch
from torch import Tensor

from kbo._base import checks
from kbo._base.surroundings import fixed
from kbo.bandit import methods
from kbo.bandit.method import Method
from kbo.confidence import PRACTICAL_MULTIPLE, Confidence, FixedWidth, UnknownNorm
from kbo.errors import InvalidInput
from kbo.optimize.constraint import Constraint
from kbo.optimize.run.outcome import OBJECTIVE
from kbo.optimize.strategies.expected_improvement import ExpectedImprovement
from kbo.optimize.strategies.feasible_upper_bound import FeasibleUpperBound
from kbo.optimize.strategies.initial_design import InitialDesign
from kbo.optimize.strategies.random_point import RandomPoint
from kbo.optimize.strategies.repeat_once import RepeatOnce
from kbo.optimize.strategies.strategy import Alternate, Strategy, checked
from kbo.optimize.strategies.thompson import ThompsonSampling
from kbo.optimize.strategies.trust_region import TrustRegion, trust_radius
from kbo.optimize.strategies.upper_bound import UpperBound
from kbo.optimize.surrogates.fitting import MOST, unit_kernel
from kbo.optimize.surrogates.model import Fitted, FocusedDictionary, Trend, fit_limited, fit_values
from kbo.optimize.surrogates.outcome_transform import OutcomeTransform
from kbo.optimize.surrogates.predictive import Predictive
from kbo.optimize.surrogates.schedule import Schedule, cut
from kbo.optimize.surrogates.setting import Setting
from kbo.optimize.surrogates.surrogate import (
    NO_BOUND,
    Bound,
    Evaluation,
    Problem,
    Surrogate,
    data,
)
from kbo.regression import KernelRidge, NystromRidge, Posterior, PriorMean
from kbo.space import Space

NO_EFFECT = "none is visible: a constant and noise explain the values as well as the parameters do"

GRID = tuple(10 ** (-1 + 0.4 * i) for i in range(9))
"""Multiples of the mixture ridge for the practical "dmm-ucb": 0.1 to about 160."""

MOST_EXACT = 500
"""Observations with an exact posterior; of more, a sketch is taken."""

ANCHORS = 320, 224
"""Points of a sketch at which a part of them is drawn, and the size of that part."""

_MOST_INITIAL = 6
"""Space-filling evaluations before the first fit, at most: the prior of the fit makes a model of a few useful."""

_SURE = 2.0
"""Standard deviations by which the mean of a recommended trial is within each limit: a probability of 98%."""

_ADDED = 0.5
"""Part of the variance of the median error bar that is added to each."""

_LEAST_BAR, _LARGEST_BAR = 1e-3, 1e6
"""Least and largest error bar, in units of the common noise level; others count as these."""

_LEFT_OUT = 0.1
"""Part of the noise variance that the sketch may leave unexplained of an observation."""


@dataclass(frozen=True)
class Practical(Setting):
    """Everything is estimated: useful bounds without a guarantee.

    Kernel (Matern 5/2, one lengthscale per feature), noise and a quadratic trend, which is expected to be best in the
    centre, are fitted by marginal likelihood, first after the initial design and again whenever the data have grown by
    30%. Values far on the bad side are cut first, and all are made less skewed (Yeo & Johnson 2000) where that makes
    them more likely; reports describe the objective by a model of uncut values. Trials that were stopped early have a
    predicted value and its error. After the initial design the best trial is repeated once (not in ``ask`` with a
    context or ``choices``): equal values mean that the objective has no noise. Then the best observed trial is
    recommended, otherwise the one with the largest mean less one standard deviation.

    The search takes one and two standard deviations above the mean in turn, and four every eighth time ("ucb"), or the
    bound of the chosen method. Without noise and with a real parameter, "ucb" searches every second time only near the
    best trial, in a box that grows after a better trial in it and shrinks after a worse one (as in TuRBO, Eriksson et
    al. 2019); where parameters are conditional, it takes the largest expected improvement, which leaves a branch that
    is known for another one. The norm bound of methods that search with one is ``norm_factor`` times the anytime lower
    confidence bound of the norm (Flynn & Reeb 2024, Cor. 4.3), recomputed at every step, and at least 1 prior standard
    deviation.

    A reported interval is about one point, with the nominal probability ``1 - delta``: that of the predictive
    distribution, averaged over kernels and noise levels that explain the values. Its standard deviation is scaled by
    the leave-one-out errors of the best values, if these are larger than predicted. docs/comparisons.md has figures of
    its coverage.

    With limits on measured quantities the log-probability that all are kept is added to the bound of the search. The
    mean of each quantity at the recommended trial is within its limit by two standard deviations, if there is such a
    trial (docs/theory/constrained.md).

    For another search give ``strategies``. For another model or recommendation subclass it and override ``model`` or
    ``recommend``; a journal names the class, so that a run is not continued with another one (docs/howto.md, "A setting
    of your own").

    Args:
        delta: Nominal failure probability of an interval.
        scale: Covariance scale of the mixture.
        norm_factor: Multiple of the lower confidence bound of the norm.
        n_initial: Space-filling evaluations before the first fit; by default 6, and 4 for one parameter.
        noise_std: Standard deviation of the noise in units of the objective, if it is known; 0 for an objective
            without noise. By default it is estimated. A value with an error bar, ``(value, {"sem": 0.02})``, has that
            noise in its place if it is given; else error bars say which values have more noise than others, and the
            level is estimated.
        strategies: The strategies that choose the next point, tried in order (``kbo.optimize.strategies``); by default
            ``default_strategies`` of the method.
    """

    delta: float = 0.1
    scale: float = 1.0
    norm_factor: float = PRACTICAL_MULTIPLE
    n_initial: int | None = None
    noise_std: float | None = None
    strategies: Sequence[Strategy] | None = None

    cuts: ClassVar[bool] = True
    default_method: ClassVar[str] = "ucb"
    certified: ClassVar[bool] = False
    about_limits: ClassVar[str] = (
        "the search adds the log-probability that they are kept; the rule compares trials within them by two standard "
        "deviations, if there are any"
    )

    def __post_init__(self) -> None:
        checks.probability("delta", self.delta)
        checks.positive("scale", self.scale)
        if checks.positive("norm_factor", self.norm_factor) < 1:
            raise InvalidInput(
                f"norm_factor must be at least 1, got {self.norm_factor}: a smaller norm is refuted."
            )
        checks.maybe(checks.whole, "n_initial", self.n_initial, 2)
        checks.maybe(checks.non_negative, "noise_std", self.noise_std)
        if self.strategies is not None:
            object.__setattr__(self, "strategies", checked(self.strategies))

    def strategies_for(self, method: str) -> Sequence[Strategy]:
        if self.strategies is not None:
            return self.strategies
        return default_strategies(method)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in self._given().items())})"

    def model(self, X: Tensor, y: Tensor, noise_std: float | None) -> Fitted:
        """Return kernel, noise level and targets for values y [n], larger ones better, at features X [n D]."""
        return fit_values(X, y, noise_std)

    def recommend(self, posterior: Posterior, features: Tensor, values: Tensor) -> Tensor:
        """Return scores [n] of completed trials with features [n D] and values [n], larger is better.

        By default the mean less one standard deviation; without noise the values themselves are compared unless it is
        overridden. The reported bound is wider, because its width covers all points at once, and would prefer trials
        that were repeated to better ones that were not.
        """
        mean, variance = posterior.predict(features)
        return mean - variance.sqrt()

    def overrides(self, part: str) -> bool:
        """Return whether "model" or "recommend" is that of a subclass."""
        return getattr(type(self), part) is not getattr(Practical, part)

    def check(self, method: str, n_trials: int | None) -> None:
        recipe = methods.get(method)
        if recipe.norm == "estimated":
            raise InvalidInput(
                f"method {method!r} finds a norm bound of its own, which the practical setting does already: use "
                "'cmm-ucb' with Practical(norm_factor=...), or the certified setting."
            )
        if recipe.fixed_kernel:
            raise InvalidInput(
                f"method {method!r} needs covers under a kernel that does not change, and this setting fits it "
                "again and again: use the certified setting, Certified(kernel, ...)."
            )
        if recipe.noise == "online":
            raise InvalidInput(
                f"method {method!r} bounds the noise level online, which takes more trials than fitting it does: use "
                "the certified setting, Certified(noise_std=None, ...), or a method without it."
            )
        recipe.make(
            unit_kernel(1), 1.0, 1.0, self.delta, horizon=n_trials
        )  # errors now, not at the first fit

    def fit(
        self,
        problem: Problem,
        evaluations: Sequence[Evaluation],
        before: PracticalSurrogate | None = None,
    ) -> PracticalSurrogate | None:
        space = problem.space
        if not methods.get(problem.method).has_bounds:
            return None
        values = [] if before is None else [*before.values]
        known = 0 if before is None else before.n_evaluations
        values += [
            one._replace(value=cut(one.value))
            for one in evaluations[known:]
            if one.value is not None
        ]
        n_initial = self.n_initial or min(2 * space.dimension + 2, _MOST_INITIAL)
        exact = None if self.noise_std is None else self.noise_std == 0
        if before is None:
            observed = [n for n, one in enumerate(values, 1) if not one.predicted]
            if len(observed) < n_initial:
                return None
            schedule = Schedule(observed[n_initial - 1], exact)
        else:
            schedule = before.schedule
        schedule = schedule.after(values, estimated=self.noise_std is None)
        n = schedule.n_fitted
        if before is not None and before.schedule.n_fitted == n:
            fitted, posterior = before.fitted, before.posterior.fork()
        else:
            noise_std = 0.0 if schedule.fitted_exactly else self.noise_std
            fitted, posterior = self._fitted(values[:n], noise_std), None
        belief = PracticalSurrogate(
            self, problem, fitted, posterior, schedule, values, len(evaluations)
        )
        if posterior is None:
            belief.add(values[:n])
        for one in values[belief.posterior.n :]:  # as they came, since a sketch depends on that
            belief.add([one])
        return belief

    def _fitted(self, values: Sequence[Evaluation], noise_std: float | None) -> Fitted:
        """Return the model of values; one of the caller's own gets those that were observed."""
        observed = [one for one in values if not one.predicted]
        if self.overrides("model"):
            return self.model(*data(observed), noise_std)
        return fit_values(
            *data(values),
            noise_std,
            errors(values),
            ratios(values, values, self.noise_std),
            cut=self.cuts,
        )

    def described(self) -> Practical:
        return self if type(self) is not Practical else _Description(**vars(self))

    def shared(self, outputs: int) -> Practical:
        """Return the setting itself: nominal probabilities are not shared."""
        return self

    def of(self, constraint: Constraint, outputs: int) -> Practical:
        """Return the setting of the quantity of a constraint; arguments as for ``Certified.of``.

        Raises:
            InvalidInput: The constraint has a norm bound or a kernel, which are estimated.
        """
        if constraint.norm_bound is not None or constraint.kernel is not None:
            raise InvalidInput(
                f"constraint {constraint.name!r}: norm_bound and kernel are for kbo.Certified(...); the practical "
                "setting estimates them."
            )
        noise_std = self.noise_std if constraint.name == OBJECTIVE else constraint.noise_std
        return _OfLimit(
            self.delta,
            self.scale,
            self.norm_factor,
            self.n_initial,
            noise_std,
            limit=constraint.limit,
        )

    def describe(self, space: Space) -> dict[str, Any]:
        """Return the setting as plain JSON values; a subclass by its name."""
        own = (
            {}
            if type(self) is Practical
            else {"class": f"{type(self).__module__}.{type(self).__qualname__}"}
        )
        return {"setting": "practical", **own, **self._given()}

    def _given(self) -> dict[str, Any]:
        """Return the arguments; of those that were added after 0.9 only those that differ from the default."""
        given = {
            name: value
            for name, value in vars(self).items()
            if value is not None or name == "n_initial"
        }
        if self.strategies is not None:
            given["strategies"] = "; ".join(strategy.describe() for strategy in self.strategies)
        return given


def default_strategies(method: str = Practical.default_method) -> list[Strategy]:
    """Return the strategies of the practical setting for a method, in the order in which they are tried.

    Without noise the default method takes every second trial near the best one, or, where parameters are conditional,
    the largest expected improvement.
    """
    recipe = methods.get(method)
    if not recipe.has_bounds:
        return [RandomPoint()]
    first: list[Strategy] = [RepeatOnce(), InitialDesign(), FeasibleUpperBound()]
    if recipe.draws:
        return [*first, ThompsonSampling(), UpperBound()]
    if method != Practical.default_method:
        return [*first, UpperBound()]
    return [*first, ExpectedImprovement(), Alternate(UpperBound(), TrustRegion()), UpperBound()]


@dataclass(frozen=True)
class _Description(Practical):
    """The setting of reports: bad values are as they are."""

    cuts: ClassVar[bool] = False


@dataclass(frozen=True)
class _OfLimit(Practical):
    """The setting of a quantity that is to reach a limit."""

    limit: float = 0.0

    def model(self, X: Tensor, y: Tensor, noise_std: float | None) -> Fitted:
        return fit_limited(self.limit, X, y, noise_std)


def errors(values: Sequence[Evaluation]) -> Tensor:
    """Return the standard errors [n] of values besides their noise: those of predictions."""
    return torch.tensor(
        [one.error if one.predicted else 0.0 for one in values], dtype=torch.float64
    )


def median_bar(values: Sequence[Evaluation]) -> float | None:
    """Return the median of the error bars that came with values; None if none did, or it is 0."""
    bars = [one.error for one in values if one.error is not None and not one.predicted]
    return (median(bars) or None) if bars else None


def ratios(
    values: Sequence[Evaluation], fitted: Sequence[Evaluation], noise_std: float | None
) -> Tensor:
    """Return noise variances [n] of values relative to the common one, 1 for those without an error bar.

    Where the common noise level is fitted it is that of the median error bar. Then half of the variance of this one is
    added to each, since error bars of a few repetitions are far too small by chance (docs/comparisons.md).

    Args:
        values: The values.
        fitted: Those to which the model is fitted.
        noise_std: The common noise level if it is given.
    """
    bar, added = (median_bar(fitted), _ADDED) if noise_std is None else (noise_std or None, 0.0)
    known = [one.error if bar is not None and not one.predicted else None for one in values]
    relative = [
        None if one is None else min(max(one / (bar or 1.0), _LEAST_BAR), _LARGEST_BAR)
        for one in known
    ]
    found = [1.0 if one is None else (one**2 + added) / (1 + added) for one in relative]
    return torch.tensor(found, dtype=torch.float64)


class PracticalSurrogate(Surrogate):
    """A posterior with the fitted kernel and noise level, and bounds with an estimated norm.

    Args:
        setting: Its numbers.
        problem: Method and space.
        fitted: Kernel, noise level and targets.
        posterior: The posterior with some or all values; None for an empty one, which is sketched if there are many.
        schedule: What follows from the values without a model.
        values: The values.
        n_evaluations: The number of evaluations, those without a value too.
    """

    def __init__(
        self,
        setting: Practical,
        problem: Problem,
        fitted: Fitted,
        posterior: Posterior | None,
        schedule: Schedule,
        values: Sequence[Evaluation] = (),
        n_evaluations: int = 0,
    ) -> None:
        self._setting, self._problem = setting, problem
        self._recipe = methods.get(problem.method)
        self.fitted: Fitted = fitted
        self.schedule: Schedule = schedule
        self.values: Sequence[Evaluation] = values
        self.n_evaluations: int = n_evaluations
        self.targets: OutcomeTransform = fitted.targets
        self.span: tuple[float, float] = problem.span
        self.exact: bool | None = schedule.exact
        self.posterior: Posterior = self._empty() if posterior is None else posterior

    def _empty(self) -> Posterior:
        """Return the posterior before the values."""
        posterior = self._plain.state()
        if self.schedule.n_fitted > MOST_EXACT and type(posterior) is KernelRidge:
            dictionary = FocusedDictionary(_LEFT_OUT * self.fitted.noise_std**2, *ANCHORS)
            posterior = NystromRidge(posterior.kernel, posterior.ridge, dictionary)
        return PriorMean(posterior, Trend(self.fitted.height)) if self.fitted.height else posterior

    def add(self, values: Sequence[Evaluation]) -> None:
        """Update the posterior, as long as nobody has the belief."""
        (X, y), device = data(values), self._problem.space.device
        weights = (
            None
            if all(one.error is None for one in values)
            else self._weights(y, values, self._ratios(values))
        )
        self.posterior.update(X.to(device), self.targets(y).to(device), weights)

    def _weights(self, y: Tensor, values: Sequence[Evaluation], ratios: Tensor) -> Tensor:
        """Return the weights [n] of values y [n], by their relative noise variances [n] and the errors besides."""
        variance = self.fitted.noise_std**2
        weights = variance / (variance * ratios + self.targets.errors(y, errors(values)).square())
        return weights.to(self._problem.space.device)

    def _ratios(self, values: Sequence[Evaluation]) -> Tensor:
        return ratios(values, self.values[: self.schedule.n_fitted], self._setting.noise_std)

    def score(self, features: Tensor, values: Tensor) -> Tensor:
        """Return the values if they have no noise, unless the rule is the caller's own, and else what the rule says."""
        if self.exact and not self._setting.overrides("recommend"):
            return values
        return self._setting.recommend(self.posterior, features, values)

    def lower(self, features: Tensor, values: Tensor) -> Tensor:
        """Return the values if they have no noise, and else what is exceeded with a probability of 98%."""
        return (
            self.targets(values)
            if self.exact
            else FixedWidth(_SURE).lower(self.posterior, features)
        )

    def probability(self, features: Tensor, limit: float) -> float:
        mean, variance = self.posterior.predict(features)
        return float(torch.special.ndtr((mean - self.target(limit)) / variance.sqrt())[0])

    def draws(self, features: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Return joint draws with the means and variances of ``interval`` and the correlations of the posterior."""
        mean, variance = self.posterior.predict(features)
        rest = self.posterior.at(self.fitted.noise_std**2).draw(features, count, generator)
        if self._predictive is not None:
            mean, error = self._predictive(features)
            rest = rest * (error / variance.sqrt().clamp_min(1e-12))
        values = self.raw(mean + rest)
        known, value = self._known(features)
        return torch.where(known, value, values)

    def predicted(self) -> tuple[int, int]:
        return (0, 0) if self._predictive is None else self._predictive.left_out()

    @fixed
    def account(self) -> dict[str, str]:
        n, fitted, setting = self.posterior.n, self.schedule.n_fitted, self._setting
        if setting.overrides("model"):  # which gets those that were observed
            n, fitted = (
                sum(not one.predicted for one in part)
                for part in (self.values, self.values[:fitted])
            )
        to = f"the first {fitted} of {n} values, and used with all" if fitted < n else f"{n} values"
        power = self.targets.power
        changed = "" if power == 1 else f", which are transformed (Yeo-Johnson, power {power:g})"
        own = f" by {type(setting).__name__}"
        by = {part: own * setting.overrides(part) for part in ("model", "recommend")}
        cautious = "best mean with a margin of one standard deviation"
        default = "best observed value, since there is no noise" if self.exact else cautious
        search = self._search()
        count = sum(one.predicted for one in self.values)
        stopped = f"{count} trial{'s' * (count > 1)} stopped early: final values predicted from the last report"
        return {
            "model": f"{type(self.fitted.kernel).__name__} fitted{by['model']} to {to}{changed}",
            **({"predicted": stopped} if count else {}),
            **({} if self.exact or self.fitted.gain > 0 else {"effects": NO_EFFECT}),
            "noise": self._noise(),
            "search": search,
            "rule": f"the largest score{by['recommend']}" if by["recommend"] else f"the {default}",
        }

    def _search(self) -> str:
        """Return the strategies after the initial design, in words."""
        given = self._setting.strategies
        name, space = self._recipe.name, self._problem.space
        if given is not None:
            return "; ".join(strategy.describe() for strategy in given)
        if not self.exact or name != Practical.default_method or not space.continuous:
            return name
        if space.conditions:
            return "expected improvement"
        radius = trust_radius(self.values)
        return f"{name}; every second trial near the best one, within {radius:.2g} of a range"

    def _noise(self) -> str:
        """Return the noise level in words, and where it comes from."""
        given, used, bar = (
            self._setting.noise_std,
            self._noise_std,
            median_bar(self.values[: self.schedule.n_fitted]),
        )
        level = f"standard deviation {used:.3g}" + (
            "" if bar is None else f" of a value with the error bar {bar:.3g}"
        )
        if given:
            changed = (
                "" if math.isclose(used, given, rel_tol=1e-6) else f" ({used:.3g} in the model)"
            )
            return f"standard deviation {given:.3g}{changed}, given"
        if given is not None:
            return "none, as given"
        if self.schedule.repetition is None:
            return f"{level}, fitted; no trial has been repeated"
        first, again = self.schedule.repetition
        if self.exact:
            return f"none: trial {again} repeated trial {first} with the same value"
        return f"{level}, fitted; trial {again} repeated trial {first} with another value"

    @property
    def _noise_std(self) -> float:
        """The noise level in units of the objective, averaged as ``interval``."""
        level = self.fitted.noise_std if self._predictive is None else self._predictive.noise_std
        return level * self.targets.scale

    def _method(self, norm_bound: float) -> Method:
        s, noise_std = self._setting, self.fitted.noise_std
        ridges = (
            [g * noise_std**2 / s.scale for g in GRID] if "ridges" in self._recipe.options else None
        )
        options = {"scale": s.scale, "horizon": self._problem.n_trials, "ridges": ridges}
        return self._recipe.make(self.fitted.kernel, noise_std, norm_bound, s.delta, **options)

    @cached_property
    def _plain(self) -> Method:
        """The method with the norm bound 1."""
        return self._method(norm_bound=1.0)

    @cached_property
    def norm_bound(self) -> float:
        """The estimate of the norm, of the objective less its trend, in the posterior's units."""
        s = self._setting
        unknown = UnknownNorm(
            self.fitted.noise_std, s.delta, scale=s.scale, guess=1.0, multiple=s.norm_factor
        )
        return unknown.norm_bound(self.posterior)

    @cached_property
    def confidence(self) -> Confidence | None:
        """The bound of the method, with the estimates in place of what it assumes."""
        if self._recipe.norm == "unused":
            return self._plain.confidence
        return self._method(self.norm_bound).confidence

    def for_trial(self, number: int) -> Bound:
        assert self.confidence is not None
        return Bound(self.confidence.for_trial(number), self.posterior)

    @cached_property
    def reported(self) -> FixedWidth | None:
        """The interval of a normal distribution, with one kernel and noise level; ``interval`` averages over them."""
        if self._plain.confidence is None:
            return None
        return FixedWidth(NormalDist().inv_cdf(1 - self._setting.delta / 2))

    @fixed
    def interval(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self._predictive is None or self.reported is None:
            return super().interval(features)
        mean, error = self._predictive(features)
        half = self.reported.width(self.posterior) * error
        lower, upper, mean = self.raw(mean - half), self.raw(mean + half), self.raw(mean)
        if self.targets.compression:
            upper = upper.clamp_min(self.schedule.lowest)
        known, value = self._known(features)
        return (
            torch.where(known, value, lower),
            torch.where(known, value, mean),
            torch.where(known, value, upper),
        )

    def raw(self, value: Tensor) -> Tensor:
        """Return the values of the objective, where bad ones are compressed at most one range of all below the worst.

        The inverse of the compression grows exponentially, far beyond what any value says.
        """
        values = super().raw(value)
        if not self.targets.compression:
            return values
        return values.clamp_min(2 * self.schedule.lowest - self.schedule.highest)

    def _known(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return at which of the features [n D] a value without noise was observed, and these values [n]."""
        if not self.exact:
            return features.new_zeros(len(features), dtype=torch.bool), features.new_zeros(
                len(features)
            )
        known = {one.features: one.value for one in reversed(self.values) if not one.predicted}
        found = [known.get(row) for row in map(tuple, features.tolist())]
        given = [value is not None for value in found]
        return torch.tensor(given, device=features.device), features.new_tensor(
            [value or 0.0 for value in found]
        )

    @cached_property
    def _predictive(self) -> Predictive | None:
        """The distribution for reports; None where the model is the caller's own, and of many values."""
        if self.fitted.predictive is None or len(self.values) > MOST:
            return None
        X, y = data(self.values)
        predicted = torch.tensor([one.predicted for one in self.values])
        besides = self.targets.errors(y, errors(self.values))
        return self.fitted.predictive(
            X, self.targets(y), besides, self._ratios(self.values), predicted
        )

    def guarantee(self, selected: Sequence[str] = ()) -> str:
        if self.reported is None:
            return NO_BOUND
        if self.exact:
            return "practical, not certified: values are exact, intervals elsewhere rest on a kernel that is estimated"
        fitted = (
            "the kernel is an estimate"
            if self._noise_given
            else "kernel and noise level are estimates"
        )
        return f"practical, not certified: {fitted} from the same data, so the interval may be too narrow"

    @property
    def _noise_given(self) -> bool:
        return self._setting.noise_std is not None

    @fixed
    def assumptions(self) -> dict[str, Any]:
        """Return the estimates, in units of the objective."""
        noise = "what it leaves unexplained" if self.exact else "noise"
        fitted = "kernel" if self._noise_given else f"kernel and {noise}"
        given = ", noise given" if self._noise_given else ""
        norm = (
            {}
            if self._recipe.norm == "unused"
            else {"norm_bound": self.norm_bound * self.targets.scale}
        )
        factor = f", norm bound {self._setting.norm_factor:g} x its lower bound" if norm else ""
        return {
            "kernel": "fitted",
            "noise_std": self._noise_std,
            **norm,
            "delta": self._setting.delta,
            "from": f"{fitted} by marginal likelihood{given}{factor}",
        }
