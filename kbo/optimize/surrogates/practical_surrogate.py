"""The surrogate of the practical setting: a fitted model, with bounds that use an estimated norm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor

from kbo._base.isolation import isolated
from kbo.bandit import methods
from kbo.confidence import Confidence, FixedWidth, UnknownNorm
from kbo.optimize.surrogates.evaluation import (
    Evaluation,
    SearchProblem,
    data,
    median_bar,
    noise_ratios,
    prediction_errors,
)
from kbo.optimize.surrogates.functions import DrawnFunctions, Functions
from kbo.optimize.surrogates.guarantee import Guarantee
from kbo.optimize.surrogates.model import MOST, Fitted
from kbo.optimize.surrogates.outcome_transform import OutcomeTransform
from kbo.optimize.surrogates.practical_posterior import PracticalArguments, method_of
from kbo.optimize.surrogates.predictive import Predictive
from kbo.optimize.surrogates.schedule import Schedule
from kbo.optimize.surrogates.surrogate import Surrogate
from kbo.regression import Posterior

_MOST_DRAWN = 64
"""Largest number of draws without a predictive distribution: each then has its own random features."""

_WITHIN_LIMIT = 2.0
"""Standard deviations by which the mean of a recommended trial must keep each limit: a probability of 98%."""


@dataclass(frozen=True, eq=False, repr=False)
class PracticalSurrogate(Surrogate):
    """A posterior with the fitted kernel and noise level, and bounds that use an estimated norm.

    Args:
        arguments: The arguments of the setting.
        problem: Method, space and range.
        fitted: Kernel, noise level, trend and outcome transform.
        schedule: When models are fitted, and whether there is noise.
        posterior: The posterior of the values.
        values: The evaluations with a value.
        n_evaluations: The number of all evaluations, with or without a value.
    """

    arguments: PracticalArguments
    problem: SearchProblem
    fitted: Fitted
    schedule: Schedule
    posterior: Posterior
    values: Sequence[Evaluation]
    n_evaluations: int

    @cached_property
    def transform(self) -> OutcomeTransform:
        """The fitted transform, whose inverse stays inside the declared range.

        If bad values are compressed, the inverse grows exponentially. Then it stays above the worst value less the
        range of all values.
        """
        least, largest = self.problem.span
        if self.fitted.transform.compression:
            least = max(least, 2 * self.schedule.lowest - self.schedule.highest)
        return replace(self.fitted.transform, least=least, largest=largest)

    @property
    def noiseless(self) -> bool | None:
        return self.schedule.noiseless

    @property
    def repetitions_needed(self) -> int:
        return self.schedule.repetitions_needed

    @property
    def has_effects(self) -> bool:
        return bool(self.noiseless) or self.fitted.gain > 0

    def criterion(self, X: Tensor, y: Tensor) -> Tensor:
        """Return the recommendation criterion [n] of completed trials: the mean less one standard deviation.

        Without noise it is the value. The lower end of the reported interval is no criterion, since its wider margin
        would prefer repeated trials to better ones that were not repeated.
        """
        if self.noiseless:
            return y
        mean, variance = self.posterior.predict(X)
        return mean - variance.sqrt()

    def lower(self, X: Tensor, y: Tensor) -> Tensor:
        """Return the mean less two standard deviations [n] of trials, as targets; without noise, their targets."""
        if self.noiseless:
            return self.transform(y)
        return FixedWidth(_WITHIN_LIMIT).lower(self.posterior, X)

    def probability(self, X: Tensor, limit: float) -> float:
        mean, variance = self.posterior.predict(X)
        z = (mean - self.transform.target(limit)) / variance.sqrt()
        return float(torch.special.ndtr(z)[0])

    def draws(
        self, X: Tensor, count: int, generator: torch.Generator, unexplained: float = 0.0
    ) -> Tensor:
        """Return joint draws [count n] of the objective without noise at features X [n D].

        Like ``interval``, they are averaged over kernels and noise levels.
        """
        if self.predictive is None:
            mean, _ = self.posterior.predict(X)
            deviations = self.posterior.at(self.fitted.noise_std**2).draw(X, count, generator)
            values = self.transform.inverse(mean + deviations)
        else:
            targets, noise_std = self.predictive.draws(self.transform, X, count, generator)
            if self.noiseless:
                unexplained = 1.0
            if unexplained:
                noise = torch.randn(targets.shape, generator=generator, dtype=targets.dtype)
                std = math.sqrt(unexplained) * noise_std
                targets = targets + (std.unsqueeze(1) * noise).to(X.device)
            values = self.transform.inverse(targets)
        is_known, observed = self._known(X)
        return torch.where(is_known, observed, values)

    def functions(self, count: int, generator: torch.Generator) -> Functions:
        if self.predictive is not None:
            return self.predictive.functions(self.transform, count, generator)
        noise_std = self.fitted.noise_std
        X, _ = data(self.values[:1], self.posterior.like.device)
        return DrawnFunctions(
            self.transform, self.posterior, noise_std, min(count, _MOST_DRAWN), X, generator
        )

    @isolated
    def interval(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.predictive is None:
            return super().interval(X)
        mean, error = self.predictive(X)
        half_width = self.reported.width(self.posterior) * error
        to_value = self.transform.inverse
        lower = to_value(mean - half_width)
        upper = to_value(mean + half_width)
        if self.transform.compression:
            upper = upper.clamp_min(self.schedule.lowest)
        is_known, observed = self._known(X)
        return (
            torch.where(is_known, observed, lower),
            torch.where(is_known, observed, to_value(mean)),
            torch.where(is_known, observed, upper),
        )

    def _known(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return whether values without noise were observed at features X [n D], and the values [n], 0 elsewhere."""
        values = {}
        if self.noiseless:
            for evaluation in self.values:
                if not evaluation.predicted:
                    values.setdefault(evaluation.features, evaluation.value)
        rows = list(map(tuple, X.tolist()))
        is_known = torch.tensor([row in values for row in rows], dtype=torch.bool, device=X.device)
        return is_known, X.new_tensor([values.get(row, 0.0) for row in rows])

    @cached_property
    def predictive(self) -> Predictive | None:
        """The predictive distribution for reports; None if the model has none, and for more than 500 values."""
        if self.fitted.predictive is None or len(self.values) > MOST:
            return None
        X, y = data(self.values)
        errors = self.transform.errors(y, prediction_errors(self.values))
        fitted_values = self.values[: self.schedule.n_fitted]
        ratios = noise_ratios(self.values, fitted_values, self.arguments.noise_std)
        predicted = torch.tensor([e.predicted for e in self.values])
        return self.fitted.predictive(X, self.transform(y), errors, ratios, predicted)

    @property
    def noise_std(self) -> float:
        """The noise level of values near the best one, in units of the objective."""
        return self.noise_std_at(self.schedule.highest)

    def noise_std_at(self, value: float) -> float:
        return self._noise_std_of_targets * self.transform.scale_at(value)

    @property
    def _noise_std_of_targets(self) -> float:
        """The noise level of the targets, as ``interval`` averaged over noise levels."""
        if self.predictive is None:
            return self.fitted.noise_std
        return self.predictive.noise_std

    @cached_property
    def norm_bound(self) -> float:
        """The estimate of the norm of the objective less its trend, in units of the posterior."""
        arguments = self.arguments
        unknown = UnknownNorm(
            self.fitted.noise_std,
            arguments.delta,
            scale=arguments.scale,
            guess=1.0,
            multiple=arguments.norm_factor,
        )
        return unknown.norm_bound_on(self.posterior)

    @property
    def _uses_norm(self) -> bool:
        return methods.get(self.problem.method).norm != "unused"

    @cached_property
    def confidence(self) -> Confidence | None:
        """The bound of the method, with estimates in place of its assumptions."""
        norm_bound = self.norm_bound if self._uses_norm else 1.0
        return method_of(self.arguments, self.problem, self.fitted, norm_bound).confidence

    @property
    def reported(self) -> FixedWidth:
        """The normal interval with the fitted kernel and noise level; ``interval`` averages over these."""
        return FixedWidth(NormalDist().inv_cdf(1 - self.arguments.delta / 2))

    def guarantee(self, selected: Sequence[str] = ()) -> Guarantee:
        if self.noiseless:
            objection = "values are exact, intervals elsewhere rest on a kernel that is estimated"
        elif self.arguments.noise_std is not None:
            objection = (
                "the kernel is an estimate from the same data, so the interval may be too narrow"
            )
        else:
            objection = "kernel and noise level are estimates from the same data, so the interval may be too narrow"
        return Guarantee("practical, not certified", objection, self.arguments.delta, (objection,))

    @isolated
    def assumptions(self) -> dict[str, Any]:
        """Return the estimates, in units of the objective, and their origin."""
        if self.arguments.noise_std is not None:
            origin = "kernel by marginal likelihood, noise given"
        elif self.noiseless:
            origin = "kernel and what it leaves unexplained by marginal likelihood"
        else:
            origin = "kernel and noise by marginal likelihood"
        estimates: dict[str, Any] = {"kernel": "fitted", "noise_std": self.noise_std}
        if self._uses_norm:
            estimates["norm_bound"] = self.norm_bound * self.transform.scale
            origin += f", norm bound {self.arguments.norm_factor:g} x its lower bound"
        return {**estimates, "delta": self.arguments.delta, "from": origin}

    @isolated
    def account(self) -> dict[str, str]:
        account = {"model": _model(self)}
        n_predicted = sum(e.predicted for e in self.values)
        if n_predicted:
            trials = "1 trial" if n_predicted == 1 else f"{n_predicted} trials"
            account["predicted"] = (
                f"{trials} stopped early: final values predicted from the last report"
            )
        if not self.has_effects:
            account["effects"] = (
                "none is visible: a constant and noise explain the values as well as the parameters do"
            )
        account["noise"] = _noise(self)
        account["rule"] = self.rule
        return account

    @property
    def rule(self) -> str:
        """The rule of the recommendation, in words; a subclass with another ``criterion`` overrides it."""
        if self.noiseless:
            return "the best observed value, since there is no noise"
        return "the best mean with a margin of one standard deviation"


def _model(surrogate: PracticalSurrogate) -> str:
    """Return in words the kernel, and the values to which it is fitted."""
    n = surrogate.posterior.n
    n_fitted = surrogate.schedule.n_fitted
    text = f"{type(surrogate.fitted.kernel).__name__} fitted"
    if surrogate.arguments.subclass:
        text += f" by {surrogate.arguments.subclass}"
    if n_fitted < n:
        text += f" to the first {n_fitted} of {n} values, and used with all"
    else:
        text += f" to {n} values"
    power = surrogate.transform.power
    if power != 1:
        text += f", which are transformed (Yeo-Johnson, power {power:g})"
    return text


def _noise(surrogate: PracticalSurrogate) -> str:
    """Return in words the noise level and its origin."""
    given = surrogate.arguments.noise_std
    schedule = surrogate.schedule
    noise_std = surrogate.noise_std
    if given == 0:
        return "none, as given"
    if given is not None:
        text = f"standard deviation {given:.3g}"
        if not math.isclose(noise_std, given, rel_tol=1e-6):
            text += f" ({noise_std:.3g} in the model)"
        return f"{text}, given"
    level = f"standard deviation {noise_std:.3g}"
    if surrogate.transform.power != 1:
        level += " near the best value"
    bar = median_bar(surrogate.values[: schedule.n_fitted])
    if bar is not None:
        level += f" of a value with the error bar {bar:.3g}"
    if schedule.repetition is None:
        return f"{level}, fitted"
    first, again = schedule.repetition
    if surrogate.noiseless:
        return f"none: trial {again} repeated trial {first} with the same value"
    return f"{level}, fitted; trial {again} repeated trial {first} with another value"
