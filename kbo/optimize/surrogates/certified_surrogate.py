"""The surrogate of the certified setting: the posterior of a method, with proved bounds under the given assumptions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch

from kbo._base import checks
from kbo._base.isolation import isolated
from kbo.bandit import methods
from kbo.bandit.method import Method
from kbo.confidence import Confidence, MartingaleMixture, UnknownNorm, refuse_if_refuted
from kbo.confidence.confidence_set import Scale
from kbo.confidence.least_norm import unexplained
from kbo.errors import RefutedAssumptions
from kbo.optimize.run.trials import WAYS, in_words
from kbo.optimize.surrogates.evaluation import ANY, Evaluation, data
from kbo.optimize.surrogates.guarantee import WITHOUT_BOUND, Guarantee
from kbo.optimize.surrogates.order import Order
from kbo.optimize.surrogates.outcome_transform import OutcomeTransform
from kbo.optimize.surrogates.surrogate import Bound, Surrogate
from kbo.regression import Hypothetical, Posterior

_LEAST_ERROR = 1e-3
"""Least error bar of a value, in noise levels. Smaller ones are raised to it: assuming more noise is safe."""

_LEAST_WEIGHT = 1e-12
"""Weight below which a value is left out, since it changes nothing."""


@dataclass(frozen=True)
class Assumptions:
    """The assumptions of certified bounds; attributes as for ``kbo.Certified``.

    Attributes:
        promise: Text that the setting adds to the guarantee.
    """

    noise_std: float | None
    norm_bound: float | None
    delta: float
    scale: Scale
    completion_independent_of_noise: bool
    promise: str


@dataclass(frozen=True, eq=False, repr=False)
class CertifiedSurrogate(Surrogate):
    """The posterior of a method, with bounds that hold under the given assumptions.

    Args:
        given: The assumptions.
        method: The method.
        device: The device of the posterior.
        posterior: The posterior after the values that certified bounds may use.
        order: Which trials have entered the posterior, and which wait for earlier ones.
        values: All evaluations with a value.
        selected: The number of trials for each of the ``WAYS`` in which their noise may have decided which values were
            observed.
        n_evaluations: The number of all evaluations, with or without a value.
        span: The least and the largest possible value, larger ones better.
    """

    given: Assumptions
    method: Method
    device: torch.device
    posterior: Posterior
    order: Order = field(default_factory=Order)
    values: Sequence[Evaluation] = ()
    selected: Mapping[str, int] = field(default_factory=dict)
    n_evaluations: int = 0
    span: tuple[float, float] = ANY

    @property
    def transform(self) -> OutcomeTransform:
        least, largest = self.span
        return OutcomeTransform(least=least, largest=largest)

    def after(self, evaluations: Sequence[Evaluation]) -> CertifiedSurrogate:
        """Return the surrogate after more evaluations.

        Raises:
            RefutedAssumptions: No function satisfies the assumptions and fits the values.
        """
        if not evaluations:
            return self
        order = self.order
        entering = []
        selected = Counter(self.selected)
        for evaluation in evaluations:
            self._check_size(evaluation)
            if self.given.completion_independent_of_noise:
                order, usable = order.at_once(evaluation)
            else:
                order, usable = order.after(evaluation)
            entering += usable
            selected.update(evaluation.selected)
        with_value = [e for e in evaluations if e.value is not None]
        return replace(
            self,
            posterior=self._posterior_with(entering),
            order=order,
            values=[*self.values, *with_value],
            selected=selected,
            n_evaluations=self.n_evaluations + len(evaluations),
        )

    def _check_size(self, evaluation: Evaluation) -> None:
        """Raise RefutedAssumptions if a value is too large for a posterior to compute with."""
        y = evaluation.value
        if y is not None and abs(y) > checks.largest_target(torch.float64):
            figures = {"size": abs(y)}
            if self.given.norm_bound is not None:
                figures["norm_bound"] = self.given.norm_bound
            raise RefutedAssumptions(
                "The data refute the assumptions: the objective had a value that no function of this norm and no "
                "noise of a given level explain. Correct the objective, or let it raise an exception where it has "
                "no value",
                **figures,
            )

    def _posterior_with(self, entering: Sequence[Evaluation]) -> Posterior:
        """Return the posterior after more values.

        Raises:
            RefutedAssumptions: No function satisfies the assumptions and fits the values.
        """
        if not entering:
            return self.posterior
        posterior = self.posterior.fork()
        for evaluation in entering:
            X, y = data([evaluation], self.device)
            weight = self._weight(evaluation)
            if weight is None:
                posterior.update(X, y)
            elif weight >= _LEAST_WEIGHT:  # a weight does not depend on the noise of its value
                posterior.update(X, y, torch.full((1,), weight).to(posterior.like))
        self._check(posterior)
        return posterior

    def _weight(self, evaluation: Evaluation) -> float | None:
        """Return the weight of a value, ``(noise_std / error)^2``; None without an error bar.

        The error bar is taken as the sub-Gaussian constant of the noise of this value (docs/theory/observations.md).
        """
        noise_std = self.given.noise_std
        if evaluation.error is None or noise_std is None:
            return None
        return (noise_std / max(evaluation.error, _LEAST_ERROR * noise_std)) ** 2

    def _check(self, posterior: Posterior) -> None:
        """Raise RefutedAssumptions if no function satisfies the assumptions and fits the data.

        The check is the same for every method that uses all assumptions, since bounds with one ridge, or with none,
        would not notice the contradiction. Other methods check their assumptions themselves, or assume something else.
        """
        named_method = methods.get(self.method.name)
        own_check = (
            named_method.noise == "online"
            or named_method.norm == "estimated"
            or named_method.fixed_kernel
        )
        if named_method.has_bounds and not own_check:
            delta = self.given.delta
            refuse_if_refuted(posterior, self.noise_std, self.norm_bound, delta, self.given.scale)

    @property
    def noise_std(self) -> float:
        """The noise level that the method assumes; 1 if it assumes none."""
        if self.confidence is not None and self.confidence.noise_std is not None:
            return float(self.confidence.noise_std)
        if self.given.noise_std is None:
            return 1.0
        return float(self.given.noise_std)

    @property
    def norm_bound(self) -> float:
        """The given norm bound, where there is one; each hypothesis of a list has its own."""
        assert self.given.norm_bound is not None
        return self.given.norm_bound

    @cached_property
    def searched(self) -> Posterior:
        """The posterior after the waiting values as well, which count as hypothetical observations."""
        if not self._late:
            return self.posterior
        return Hypothetical(self.posterior, *data(self._late, self.device))

    @property
    def _late(self) -> list[Evaluation]:
        """The values that wait for earlier trials."""
        return [e for e in self.order.waiting.values() if e.value is not None]

    @property
    def confidence(self) -> Confidence | None:
        return self.method.confidence

    @cached_property
    def reported(self) -> Confidence | None:
        """The bound of the method, or a bound under the same assumptions if it only ranks points; None if infinite."""
        if self.confidence is None or not self.confidence.finite_on(self.posterior):
            return None
        reported = self.confidence.reported()
        if reported is not None:
            return reported
        given = self.given
        return MartingaleMixture(self.noise_std, self.norm_bound, given.delta, "dmm", given.scale)

    @property
    def bounds(self) -> Sequence[Bound]:
        if self.reported is None:
            return []
        assumes_norm = methods.get(self.method.name).norm == "given"
        norm_bound = self.norm_bound if assumes_norm else None
        return [Bound(self.reported, self.posterior, norm_bound)]

    @property
    def unexplained(self) -> bool:
        """Whether the values are farther from every function within the norm bound than the noise explains.

        With several hypotheses, whether this is true under each of them. This test has its own probability of failure.
        So it never refutes a single hypothesis, and the bounds hold as they are (docs/theory/noise.md).
        """
        if self.reported is None:
            return False
        return all(unexplained(bound.confidence, bound.posterior) for bound in self.bounds)

    def guarantee(self, selected: Sequence[str] = ()) -> Guarantee:
        delta = self.given.delta
        if self.reported is None:
            return Guarantee("none", WITHOUT_BOUND, delta, (WITHOUT_BOUND,))
        ways = self._ways(selected)
        objections = [*self.reported.objections(self.posterior), *self._objections(ways)]
        if not objections:
            bound = self.reported.guarantee_on(self.posterior)
            statement = f"the interval {bound}{self._conditions(ways)}{self.given.promise}"
            return Guarantee("certified", statement, self.reported.delta_on(self.posterior))
        if methods.get(self.method.name).norm == "estimated":
            statement = (
                "kernel and noise level are given, but this method's norm bound follows the data, "
                "which can refute a norm bound and never prove one"
            )
            return Guarantee("not certified", statement, delta, tuple(objections))
        statement = f"{'; '.join(objections)}{self.given.promise}"
        return Guarantee("not certified", statement, delta, tuple(objections), self._undeclared())

    def _ways(self, selected: Sequence[str]) -> list[str]:
        """Return the ways in which the noise may have decided which values were observed, in words."""
        counts = {way: self.selected.get(way, 0) for way in WAYS}
        return [*in_words(counts), *selected]

    def _undeclared(self) -> frozenset[str]:
        """Return the ``WAYS`` in which noise may have selected the observed values; empty if declared impossible."""
        if self.given.completion_independent_of_noise:
            return frozenset()
        return frozenset(way for way, count in self.selected.items() if count)

    def _objections(self, ways: Sequence[str]) -> list[str]:
        """Return why noise may have decided which values were observed; empty if this is declared impossible."""
        if self.given.completion_independent_of_noise:
            return []
        reasons = [*ways]
        if self.order.mixed and self.posterior.schedule is not None:
            reasons.append(
                "trials at one point ran at once, so the order of their values is unknown"
            )
        if reasons:
            reasons.append(
                "if this does not depend on the noise, pass Certified(completion_independent_of_noise=True)"
            )
        return reasons

    def _conditions(self, ways: Sequence[str]) -> str:
        """Return in words the conditions of a certified statement, and how many values it does not use yet."""
        conditions = ""
        declared = [*ways, *in_words({"that ended after later ones": self.order.unreported})]
        if declared:
            conditions += (
                f", and if completion does not depend on the noise ({', '.join(declared)})"
            )
        if self._late:
            conditions += (
                f"; not used yet, because an earlier trial has not reported: {len(self._late)}"
            )
        return conditions

    @isolated
    def assumptions(self) -> dict[str, Any]:
        schedule: Any = self.posterior.schedule
        origin = "all given"
        noise_std = self.noise_std
        norm_bound = self.given.norm_bound
        if isinstance(self.confidence, UnknownNorm):
            origin = "norm bound from the data, the others given"
            norm_bound = self.confidence.norm_bound_on(self.posterior)
        if schedule is not None:
            origin = f"noise level bounded online (at least {schedule.lower:.3g}), the others given"
            noise_std = schedule.upper
        return {
            "kernel": "given",
            "noise_std": noise_std,
            "norm_bound": norm_bound,
            "delta": self.given.delta,
            "from": origin,
        }
