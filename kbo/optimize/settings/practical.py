"""The practical setting, the default of ``minimize``: kernel, noise level and trend are estimated."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from torch import Tensor

from kbo._base import checks
from kbo._base.arguments import naming_arguments
from kbo.bandit import methods
from kbo.confidence import PRACTICAL_MULTIPLE
from kbo.errors import InvalidInput
from kbo.optimize.assumptions.measured import Measured
from kbo.optimize.run.outcome import OBJECTIVE
from kbo.optimize.settings.setting import Setting
from kbo.optimize.strategies.first_trials import InitialDesign, RandomPoint, Repetition
from kbo.optimize.strategies.strategy import Alternate, Strategy, checked_strategies
from kbo.optimize.strategies.upper_bounds import (
    FeasibleUpperBound,
    HypervolumeUpperBound,
    NewParameter,
    ThompsonPoint,
    UpperBoundPoint,
)
from kbo.optimize.strategies.without_noise import ExpectedImprovement, TrustRegion, trust_radius
from kbo.optimize.surrogates.evaluation import (
    Evaluation,
    SearchProblem,
    data,
    noise_ratios,
    prediction_errors,
)
from kbo.optimize.surrogates.fitting import unit_kernel
from kbo.optimize.surrogates.model import Fitted, fit_limited, fit_values
from kbo.optimize.surrogates.practical_posterior import PracticalArguments, empty_posterior, observe
from kbo.optimize.surrogates.practical_surrogate import PracticalSurrogate
from kbo.optimize.surrogates.process import Bowl
from kbo.optimize.surrogates.schedule import Schedule, cut
from kbo.optimize.surrogates.surrogate import Surrogate
from kbo.space import Space

_MOST_INITIAL = 6
"""Largest number of space-filling evaluations before the first fit; the prior makes a model of so few useful."""


@dataclass(frozen=True)
class Practical(Setting):
    """Bounds from an estimated kernel, noise level and norm: useful, and without a guarantee.

    Model: a kernel (Matern 5/2, one lengthscale per feature), the noise level and a quadratic trend are fitted by
    marginal likelihood: first after the initial design, and again whenever the data have grown by 30%. The trend is
    expected to be best in the centre; in it an inactive conditional parameter counts as in the middle of its range.
    Before the fit, values far on the bad side are cut, and all values are made less skewed (Yeo & Johnson 2000) where
    that makes them more likely. Reports describe the objective by a model of uncut values. Trials that were stopped
    early have a predicted value with its error.

    Recommendation: after the initial design the best trial is repeated once (not in ``ask`` with a context or
    ``choices``). Equal values mean that the objective has no noise; then the best observed trial is recommended. If
    values at different parameters are equal too, such as accuracies on few cases, this takes three equal repetitions.
    Under noise the trial with the largest mean less one standard deviation is recommended.

    Search: the method "ucb" maximises the mean plus a number of standard deviations, its width.

    * Under noise the width is one and two in turn, and four every eighth time.
    * Without noise, and with a real parameter, every second trial is near the best one, in a box that grows after a
      better trial in it and shrinks after a worse one (as in TuRBO, Eriksson et al. 2019). The other trials have the
      width one, and every fourth of them four.
    * If there are conditional parameters as well, expected improvement is maximised instead, which leaves a well-known
      branch for another one.
    * If an added parameter has no results yet, parallel trials get different values of it.

    Another method takes its own bound. A norm bound that it needs is ``norm_factor`` times the anytime lower confidence
    bound of the norm (Flynn & Reeb 2024, Cor. 4.3), recomputed at every step, and at least 1 prior standard deviation.

    Intervals: a reported interval is about one point and has the nominal probability ``1 - delta`` under the predictive
    distribution, averaged over kernels and noise levels that explain the values. Its standard deviation is scaled up if
    the leave-one-out errors of the best values are larger than predicted. docs/comparisons.md has its coverage.

    Limits on measured quantities: the search adds the log-probability that all are kept to its bound. The mean of each
    quantity at the recommended trial is within its limit by two standard deviations, if there is such a trial
    (docs/theory/constraints.md).

    Variants: for another search pass ``strategies``. For another model of the objectives override ``fitted`` in a
    subclass; for another recommendation set ``surrogate`` there. The quantity of a constraint always has the model of
    ``Practical`` itself, which is fitted for its limit: a model of the objective need not suit it. A journal names the
    class, so that no other setting continues its run (docs/howto.md, "A setting of your own").

    Args:
        delta: Nominal probability that an interval fails.
        scale: Covariance scale of the mixture.
        norm_factor: Multiple of the lower confidence bound of the norm.
        n_initial: Space-filling evaluations before the first fit; by default 6, and 4 for one parameter.
        noise_std: Standard deviation of the noise in units of the objective, if it is known; 0 for an objective without
            noise. By default it is estimated. If it is given, a value with an error bar, ``(value, {"sem": 0.02})``,
            has that noise instead. If it is estimated, error bars only say which values have more noise than others.
        noisy: True if the values have noise of unknown level, as measurements have: then equal values at equal
            parameters are a coincidence. By default the repetition shows whether there is noise.
        strategies: The strategies that choose the next point, tried in order (``kbo.optimize.strategies``); by default
            ``default_strategies`` of the method.
    """

    delta: float = 0.1
    scale: float = 1.0
    norm_factor: float = PRACTICAL_MULTIPLE
    n_initial: int | None = None
    noise_std: float | None = None
    noisy: bool | None = None
    strategies: Sequence[Strategy] | None = None

    _cuts: bool = field(default=True, init=False, repr=False)
    _limit: float | None = field(default=None, init=False, repr=False)
    _repetitions_if_tied: int = field(default=3, init=False, repr=False)

    surrogate: ClassVar[type[PracticalSurrogate]] = PracticalSurrogate
    default_method: ClassVar[str] = "ucb"
    certified: ClassVar[bool] = False
    about_limits: ClassVar[str] = (
        "the search adds the log-probability that they are kept; the rule compares trials within them by two standard "
        "deviations, if there are any"
    )

    def __post_init__(self) -> None:
        norm_factor = checks.positive("norm_factor", self.norm_factor)
        if norm_factor < 1:
            raise InvalidInput(
                f"norm_factor must be at least 1, got {self.norm_factor}: a smaller norm is refuted."
            )
        strategies = self.strategies
        if strategies is not None:
            strategies = checked_strategies(strategies)
        checks.keep(
            self,
            delta=checks.probability("delta", self.delta),
            scale=checks.positive("scale", self.scale),
            norm_factor=norm_factor,
            n_initial=checks.maybe(checks.whole, "n_initial", self.n_initial, 2),
            noise_std=checks.maybe(checks.non_negative, "noise_std", self.noise_std),
            noisy=checks.maybe(checks.flag, "noisy", self.noisy),
            strategies=strategies,
        )

    def strategies_for(self, method: str) -> Sequence[Strategy]:
        if self.strategies is not None:
            return self.strategies
        return default_strategies(method)

    def describe_search(self, method: str, space: Space, surrogate: Surrogate) -> str:
        """Return the strategies after the initial design, in words."""
        if self.strategies is not None:
            return "; ".join(strategy.describe() for strategy in self.strategies)
        is_local = surrogate.noiseless and method == self.default_method and space.continuous
        if not is_local:
            return method
        if space.conditions:
            return "expected improvement"
        radius = trust_radius(surrogate.values)
        return f"{method}; every second trial near the best one, within {radius:.2g} of a range"

    def __repr__(self) -> str:
        arguments = [f"{name}={value}" for name, value in self._arguments().items()]
        return f"{type(self).__name__}({', '.join(arguments)})"

    @property
    def surrogate_arguments(self) -> PracticalArguments:
        """The arguments that a surrogate uses."""
        subclass = ""
        if type(self) is not Practical:
            subclass = type(self).__name__
        return PracticalArguments(
            self.delta,
            self.scale,
            self.norm_factor,
            self.noise_std,
            subclass,
        )

    def check(self, method: str, n_trials: int | None) -> None:
        named_method = methods.get(method)
        if named_method.norm == "estimated":
            raise InvalidInput(
                f"method {method!r} finds a norm bound of its own, which the practical setting does already: use "
                "'cmm-ucb' with Practical(norm_factor=...), or the certified setting."
            )
        if named_method.fixed_kernel:
            raise InvalidInput(
                f"method {method!r} needs covers under a kernel that does not change, and this setting fits it "
                "again and again: use the certified setting, Certified(kernel, ...)."
            )
        if named_method.noise == "online":
            raise InvalidInput(
                f"method {method!r} bounds the noise level online, which takes more trials than fitting it does: use "
                "the certified setting, Certified(noise_std=None, ...), or a method without it."
            )
        # raises errors now, not at the first fit
        named_method.make(unit_kernel(1), 1.0, 1.0, self.delta, horizon=n_trials)

    def fit(
        self,
        problem: SearchProblem,
        evaluations: Sequence[Evaluation],
        before: PracticalSurrogate | None = None,
    ) -> PracticalSurrogate | None:
        if not methods.get(problem.method).has_bounds:
            return None
        if before is None:
            values = _values(evaluations)
            schedule = self._schedule_before(values, problem.space)
        else:
            values = [*before.values, *_values(evaluations[before.n_evaluations :])]
            schedule = before.schedule
        if schedule is None:
            return None
        schedule = schedule.after(values)
        fitted_values = values[: schedule.n_fitted]
        device = problem.space.device
        if before is not None and before.schedule.n_fitted == schedule.n_fitted:
            fitted = before.fitted
            posterior = before.posterior.fork()
        else:
            noise_std = 0.0 if schedule.fitted_noiseless else self.noise_std
            errors = prediction_errors(fitted_values)
            ratios = noise_ratios(fitted_values, fitted_values, self.noise_std)
            X, y = data(fitted_values)
            if self._limit is None:
                fitted = self.fitted(problem.space, X, y, noise_std, errors, ratios)
            else:
                fitted = fit_limited(self._limit, X, y, noise_std)
            posterior = empty_posterior(
                self.surrogate_arguments, problem, fitted, schedule.n_fitted
            )
            observe(posterior, fitted_values, fitted, fitted_values, self.noise_std, device)
        for evaluation in values[posterior.n :]:  # as they came, since a sketch depends on that
            observe(posterior, [evaluation], fitted, fitted_values, self.noise_std, device)
        return self.surrogate(
            self.surrogate_arguments, problem, fitted, schedule, posterior, values, len(evaluations)
        )

    def fitted(
        self,
        space: Space,
        X: Tensor,
        y: Tensor,
        noise_std: float | None,
        errors: Tensor,
        ratios: Tensor,
    ) -> Fitted:
        """Fit the model of values y [n], larger ones better, at features X [n D].

        A subclass overrides this method for a model of its own. It is for objectives, and not for constraints.

        Args:
            space: The search space.
            X: Features, on the CPU.
            y: Values, those of trials that were stopped early predicted.
            noise_std: The noise level in units of the objective; None if it is unknown, 0 if there is no noise.
            errors: Standard errors [n] of predicted values, 0 of the others.
            ratios: Noise variances [n] relative to that of ``noise_std``, which differ where values have error bars.
        """
        bowl = Bowl.of(space)
        return fit_values(X, y, noise_std, errors, ratios, cut=self._cuts, bowl=bowl)

    def _schedule_before(self, values: Sequence[Evaluation], space: Space) -> Schedule | None:
        """Return the schedule before the first fit; None while there are too few values."""
        n_initial = self.n_initial or min(2 * space.dimension + 2, _MOST_INITIAL)
        counts = [count for count, e in enumerate(values, 1) if not e.predicted]
        if len(counts) < n_initial:
            return None
        noiseless = None
        if self.noise_std is not None:
            noiseless = self.noise_std == 0
        elif self.noisy:
            noiseless = False
        return Schedule(
            next_fit=counts[n_initial - 1],
            noiseless=noiseless,
            estimated=self.noise_std is None,
            needed_if_tied=self._repetitions_if_tied,
        )

    def for_reports(self) -> Practical:
        """Return a copy whose model compresses bad values instead of cutting them."""
        return self._with(_cuts=False)

    def with_noise(self) -> Practical:
        return self._with(noisy=True)

    def _with(self, **values: Any) -> Practical:
        """Return a copy with other values of some attributes; attributes of a subclass are kept."""
        setting = copy.copy(self)
        vars(setting).update(values)
        return setting

    def without_noise(self) -> Practical:
        if self.noise_std is None:
            return self._with(noise_std=0.0)
        return self

    def for_objective(self, n_quantities: int) -> Practical:
        """Return the setting itself: nominal probabilities are not divided among quantities."""
        return self

    def for_quantity(self, quantity: Measured, n_quantities: int) -> Practical:
        """Return the setting of a measured quantity; arguments as for ``Setting.for_quantity``.

        Raises:
            InvalidInput: The quantity has a norm bound or a kernel, which are estimated.
        """
        if quantity.norm_bound is not None or quantity.kernel is not None:
            raise InvalidInput(
                f"{quantity.title}: norm_bound and kernel are for kbo.Certified(...); the practical setting estimates "
                "them."
            )
        noise_std = self.noise_std if quantity.name == OBJECTIVE else quantity.noise_std
        setting = self
        if quantity.limit is not None:
            # A subclass is about the objectives, and a model of them need not suit the constraint.
            arguments = {f.name: getattr(self, f.name) for f in fields(Practical) if f.init}
            setting = Practical(**arguments)._with(_limit=quantity.limit)
        return setting._with(noise_std=noise_std, _repetitions_if_tied=1)

    def describe(self, space: Space) -> dict[str, Any]:
        """Return the setting as plain JSON values, with the name of a subclass."""
        values: dict[str, Any] = {"setting": "practical"}
        if type(self) is not Practical:
            values["class"] = f"{type(self).__module__}.{type(self).__qualname__}"
        return {**values, **self._arguments()}

    def _arguments(self) -> dict[str, Any]:
        """Return the arguments that are not None by name; ``n_initial`` is always in it, as in older journals."""
        arguments = {}
        for name, value in vars(self).items():
            is_given = value is not None or name == "n_initial"
            if is_given and not name.startswith("_"):
                arguments[name] = value
        if self.strategies is not None:
            arguments["strategies"] = "; ".join(s.describe() for s in self.strategies)
        return arguments


Practical.__init__ = naming_arguments(Practical.__init__)


def default_strategies(method: str = Practical.default_method) -> list[Strategy]:
    """Return the strategies of the practical setting for a method, in the order in which they are tried.

    Without noise the default method puts every second trial near the best one; with conditional parameters it takes the
    largest expected improvement. With several objectives the strategies after ``HypervolumeUpperBound`` are used only
    while no trial keeps the limits, so that there is no front.
    """
    named_method = methods.get(method)
    if not named_method.has_bounds:
        return [RandomPoint()]
    first: list[Strategy] = [
        Repetition(),
        InitialDesign(),
        NewParameter(),
        HypervolumeUpperBound(),
        FeasibleUpperBound(),
    ]
    if named_method.draws:
        return [*first, ThompsonPoint(), UpperBoundPoint()]
    if method != Practical.default_method:
        return [*first, UpperBoundPoint()]
    # UpperBoundPoint has the trials of even numbers: of PRACTICAL_WIDTHS only 1, 1, 1 and 4 are used.
    return [
        *first,
        ExpectedImprovement(),
        Alternate(UpperBoundPoint(), TrustRegion()),
        UpperBoundPoint(),
    ]


def _values(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """Return the evaluations that have a value, cut to the largest size that a model can use."""
    return [e._replace(value=cut(e.value)) for e in evaluations if e.value is not None]
