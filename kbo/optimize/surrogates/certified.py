"""The certified setting: everything a bound needs is given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo._base import checks
from kbo._base.surroundings import fixed
from kbo.bandit import methods
from kbo.bandit.method import Method
from kbo.confidence import Confidence, MartingaleMixture, UnknownNorm, refuse_if_refuted
from kbo.confidence.mixture.radius import Scale, checked_scale
from kbo.confidence.unexplained import ENERGY, unexplained
from kbo.errors import InvalidInput, RefutedAssumptions
from kbo.kernels import freeze
from kbo.optimize.constraint import Constraint
from kbo.optimize.fingerprint import fingerprint
from kbo.optimize.hypotheses import Hypothesis, checked_kernel, described, owns_kernel
from kbo.optimize.run.outcome import OBJECTIVE
from kbo.optimize.run.trials import WAYS, in_words
from kbo.optimize.strategies.initial_design import InitialDesign
from kbo.optimize.strategies.random_point import RandomPoint
from kbo.optimize.strategies.strategy import Strategy
from kbo.optimize.strategies.thompson import ThompsonSampling
from kbo.optimize.strategies.upper_bound import UpperBound
from kbo.optimize.surrogates.fitting import unit_kernel
from kbo.optimize.surrogates.setting import Setting
from kbo.optimize.surrogates.surrogate import (
    ANY,
    NO_BOUND,
    Bound,
    Evaluation,
    Problem,
    Surrogate,
    data,
)
from kbo.optimize.surrogates.union import union
from kbo.regression import Hypothetical, KernelRidge, Posterior
from kbo.space import Space

_LEAST_ERROR = 1e-3
"""Least error bar of a value that is believed, in noise levels: smaller ones count as this, which is safe."""

_LEAST_WEIGHT = 1e-12
"""Weight below which a value is left out: it says nothing."""

_IN_LISTS = "in kbo.hypotheses a larger size, more turns or more noise"

_MOST_COVERED = 4096
"""Largest number of points of a space that is covered."""


@owns_kernel
@dataclass(frozen=True, eq=False)
class Certified(Setting):
    """Bounds that hold with probability ``1 - delta``, because what they assume is given, not estimated.

    Args:
        kernel: Kernel on the features of the space (numbers scaled to [0, 1], choices one-hot / sqrt(2)). It is copied:
            later changes of it change nothing. Or a list of ``kbo.Hypothesis(kernel, noise_std, norm_bound)``: then the
            bounds hold if one of them is true, whichever it is, and those that the data refute are left out.
        noise_std: Sub-Gaussian constant of the noise, in units of the objective; None for methods that bound it online,
            "dmm-ucb-adaptive" and the like. A value with an error bar, ``(value, {"sem": 0.02})``, has that constant in
            its place, which must have been known before the evaluation; methods that bound the noise take none.
        norm_bound: Bound of the RKHS norm of the objective; its prior mean is 0, nothing is rescaled. Not used by
            "chaining-ucb" and "chaining-ucb-rigorous", which take the objective for a draw of the Gaussian process.
        delta: Probability that the bounds may fail.
        scale: Covariance scale of the mixture, or several that are averaged, as for ``MartingaleMixture``.
        noise_upper: An upper bound of the noise level, for the methods that bound it online, if there is one.
        completion_independent_of_noise: Whether you know that the noise of a trial decides neither when it reports nor
            whether it does. Then every value counts at once, also after failures. Otherwise reported bounds rest on the
            trials in the order of their starts, up to the first that has not reported, and nothing is certified after
            a trial has failed, was stopped early, was lost and started again, or has a value at parameters that ``ask``
            did not return (docs/theory/trials.md).
        strict_noise: Whether "dmm-ucb-adaptive" and "cmm-ucb-adaptive", which bound the noise level online, assume only
            strictly sub-Gaussian noise, not also that it has no more mass near zero than Gaussian noise.
    """

    kernel: Kernel | Sequence[Hypothesis]
    noise_std: float | None = None
    norm_bound: float | None = None
    delta: float = 0.1
    scale: Scale = 1.0
    noise_upper: float | None = None
    completion_independent_of_noise: bool = False
    strict_noise: bool = False

    default_method: ClassVar[str] = "dmm-ucb"
    certified: ClassVar[bool] = True
    promise: ClassVar[str] = ""
    about_limits: ClassVar[str] = (
        "the search is among points that possibly keep them; the rule compares trials that are certain to, if "
        "there are any"
    )

    def __post_init__(self) -> None:
        numbers = {name: getattr(self, name) for name in ("noise_std", "norm_bound", "noise_upper")}
        object.__setattr__(
            self, "kernel", checked_kernel(self.kernel, type(self).__name__, numbers)
        )
        if isinstance(self.kernel, Kernel):
            checks.positive("norm_bound", self.norm_bound)
        for name in ("noise_std", "noise_upper"):
            checks.maybe(checks.positive, name, numbers[name])
        checks.probability("delta", self.delta)
        object.__setattr__(
            self, "scale", checked_scale(self.scale)
        )  # Ax reads several from its storage as a list

    @property
    def hypotheses(self) -> Sequence[Certified]:
        """The setting of each hypothesis; the setting itself if there is one kernel."""
        given: Any = self.kernel
        if not isinstance(given, tuple):
            return (self,)
        names = "kernel", "noise_std", "norm_bound"
        return tuple(replace(self, **{name: getattr(one, name) for name in names}) for one in given)

    def strategies_for(self, method: str) -> Sequence[Strategy]:
        recipe = methods.get(method)
        if not recipe.has_bounds:
            return [RandomPoint()]
        first = InitialDesign(centre_first=False)
        if recipe.draws:
            return [first, ThompsonSampling(), UpperBound()]
        return [first, UpperBound()]

    def check(self, method: str, n_trials: int | None) -> None:
        recipe = methods.get(method)
        if len(self.hypotheses) > 1 and (
            recipe.fixed_kernel or recipe.norm == "estimated" or recipe.noise == "online"
        ):
            raise InvalidInput(
                f"method {method!r} is for one kernel, and no list of hypotheses: choose 'dmm-ucb'."
            )
        points = torch.zeros(1, 1, dtype=torch.float64) if recipe.fixed_kernel else None
        for one in self.hypotheses:
            one._method(method, n_trials, unit_kernel(1), points)

    def fit(
        self,
        problem: Problem,
        evaluations: Sequence[Evaluation],
        before: CertifiedSurrogate | None = None,
    ) -> CertifiedSurrogate:
        known = self.prior(problem) if before is None else before
        found = known.after(evaluations[known.n_evaluations :])
        if found is not known and found.unexplained:
            listed = f" ({_IN_LISTS})" * (not isinstance(self.kernel, Kernel))
            raise RefutedAssumptions(
                "The data refute the assumptions: the values are further from every function of this norm than the "
                "noise is. Raise norm_bound or noise_std, or take a kernel with a shorter lengthscale"
                f"{listed}; if they are right, this happens with probability at most {self.delta * ENERGY:g}",
                n=found.posterior.n,
            )
        return found

    def prior(self, problem: Problem) -> CertifiedSurrogate:
        """Return the belief before the first evaluation."""
        method, n_trials, space, span = problem
        kernel = self.kernel
        if not isinstance(kernel, Kernel):
            self.check(method, n_trials)
            parts = {i: one.prior(problem) for i, one in enumerate(self.hypotheses)}
            return _any_surrogate(self, parts, {})
        fingerprint(kernel, space.columns)
        points = _finite(space, method) if methods.get(method).fixed_kernel else None
        made = self._method(method, n_trials, kernel, points)
        return CertifiedSurrogate(self, made, space.device, made.state(), span=span)

    def _method(
        self, method: str, n_trials: int | None, kernel: Kernel, points: Tensor | None
    ) -> Method:
        recipe, noise_std = methods.get(method), 1.0 if self.noise_std is None else self.noise_std
        numbers = {
            "scale": self.scale,
            "noise_upper": self.noise_upper,
            "strict_noise": self.strict_noise or None,
        }
        made = recipe.make(
            kernel,
            noise_std,
            self.norm_bound,
            self.delta,
            **numbers,
            horizon=n_trials,
            points=points,
        )
        _check_noise(method, self, knows_level=recipe.noise == "given")
        return made

    def shared(self, outputs: int) -> Certified:
        """Return the setting of one of so many quantities, among which delta is shared equally."""
        return replace(self, delta=self.delta / outputs)

    def decides(self, constraint: Constraint, method: str, space: Space) -> bool:
        """Return whether every function of the norm that the constraint gives keeps its limit, whatever is measured.

        False for methods whose bounds do not assume that norm.

        Raises:
            InvalidInput: No function of that norm keeps it anywhere.
        """
        recipe, kernel = (
            methods.get(method),
            self.kernel if constraint.kernel is None else constraint.kernel,
        )
        others = (
            constraint.name != OBJECTIVE
            and constraint.kernel is None
            and not isinstance(kernel, Kernel)
        )
        if (
            recipe.norm == "estimated" or recipe.fixed_kernel or others
        ):  # hypotheses about another quantity
            return False
        norm_bound = self.norm_bound if constraint.name == OBJECTIVE else constraint.norm_bound
        pairs = (
            [(kernel, norm_bound)]
            if isinstance(kernel, Kernel)
            else [(k.kernel, k.norm_bound) for k in kernel]
        )
        found = [None if bound is None else _largest(k, bound, space) for k, bound in pairs]
        sizes = [size for size in found if size is not None]
        if len(sizes) < len(found):
            return False
        if max(sizes) < constraint.limit:
            raise InvalidInput(
                f"constraint {constraint.name!r}: infeasible at once, since no function of norm at most "
                f"{max(bound or 0.0 for _, bound in pairs):g} with this kernel exceeds {max(sizes):.4g} in size, and "
                f"the limit is {constraint}."
            )
        return -max(sizes) >= constraint.limit

    def of(self, constraint: Constraint, outputs: int) -> Certified:
        """Return the setting of the quantity of a constraint, one of so many quantities.

        Raises:
            InvalidInput: The constraint lacks what the bounds assume.
        """
        if constraint.name == OBJECTIVE:
            return self.shared(outputs)
        online = self.hypotheses[0].noise_std is None
        if isinstance(constraint.kernel, tuple) and not online:
            return replace(self, kernel=constraint.kernel, noise_std=None, norm_bound=None).shared(
                outputs
            )
        if isinstance(constraint.kernel, tuple):
            raise InvalidInput(
                f"constraint {constraint.name!r}: methods that bound the noise level online are for one kernel, and no "
                "list of hypotheses: choose 'dmm-ucb'."
            )
        if constraint.norm_bound is None or (constraint.noise_std is None) != online:
            needed = "norm_bound, and no noise_std" if online else "noise_std and norm_bound"
            listed = "" if online else ", or a list of hypotheses as its kernel"
            raise InvalidInput(
                f"constraint {constraint.name!r}: the certified setting needs its own {needed}, as in constraints="
                f"[kbo.Constraint({constraint.name!r}, ..., {'' if online else 'noise_std=0.1, '}"
                f"norm_bound=2.0)]{listed}, got noise_std={constraint.noise_std}, norm_bound={constraint.norm_bound}."
            )
        kernel = self.kernel if constraint.kernel is None else constraint.kernel
        if not isinstance(kernel, Kernel):
            raise InvalidInput(
                f"constraint {constraint.name!r}: give it a kernel of its own, or a list of kbo.Hypothesis: those of "
                "the setting are about the objective."
            )
        own = replace(
            self, kernel=kernel, noise_std=constraint.noise_std, norm_bound=constraint.norm_bound
        )
        return own.shared(outputs)

    def describe(self, space: Space) -> dict[str, Any]:
        """Return the setting as plain JSON values."""
        numbers = described(self.kernel, space.columns)
        if isinstance(self.kernel, Kernel):
            numbers |= {"noise_std": self.noise_std, "norm_bound": self.norm_bound}
        numbers |= {"delta": self.delta, "scale": self.scale}
        for name in ("noise_upper", "completion_independent_of_noise"):
            numbers |= {name: value} if (value := getattr(self, name)) else {}
        numbers |= (
            {"noise_variant": "mixture+strict"} if self.strict_noise else {}
        )  # as journals of before name it
        return {"setting": "certified", **numbers}


def _largest(kernel: Kernel, norm_bound: float, space: Space) -> float | None:
    """Return the largest size of a function of this norm; None where it is not known for all points of the space."""
    points = space.points(_MOST_COVERED)
    centre = torch.full((1, space.dimension), 0.5, dtype=torch.float64)
    if points is None and freeze(kernel, X := space.features(centre)).radial(X) is not None:
        points = centre  # the prior is the same everywhere
    if points is None:
        return None
    return norm_bound * float(
        KernelRidge(kernel, 1.0).prior_variance(space.features(points)).amax().sqrt()
    )


def _finite(space: Space, method: str) -> Tensor:
    """Return the features of every point of a finite space."""
    points = space.points(_MOST_COVERED)
    if points is None:
        raise InvalidInput(
            f"method {method!r} is for finite sets of points: a space of whole numbers and choices, at most "
            f"{_MOST_COVERED} of them. For a box pass ChainingUCB a design that fills it, or choose 'cmm-ucb'."
        )
    return space.features(points)


def _check_noise(method: str, setting: Certified, knows_level: bool) -> None:
    """Raise InvalidInput unless the setting gives of the noise what the method rests on, and nothing else."""
    if knows_level and setting.noise_std is None:
        raise InvalidInput(
            f"method {method!r} needs the noise level: pass Certified(noise_std=...), or choose a method that "
            'bounds it online, for example method="dmm-ucb-adaptive".'
        )
    unused = "noise_upper" if knows_level else "noise_std"
    if getattr(setting, unused) is not None:
        raise InvalidInput(
            f"method {method!r} does not use {unused}: pass Certified({unused}=None, ...)."
        )


def usable_prefix(first: int, waiting: Mapping[int, Evaluation]) -> int:
    """Return the end of the trials from ``first`` on that a bound may use: all of them have reported.

    Trials at one point that ran at once exchange values, so all of those that have reported enter, or none
    (docs/theory/trials.md).

    Args:
        first: The first trial that has not entered.
        waiting: The evaluations from there on that have been reported, by the number of their trial.
    """
    end = first
    while end in waiting:
        end += 1
    if end == first:
        return end
    last = {
        waiting[number].features: number
        for number in sorted(waiting)
        if waiting[number].value is not None
    }
    for number in reversed(range(first, end)):
        if waiting[number].value is not None and last[waiting[number].features] >= end:
            end = number
    return end


class Order(NamedTuple):
    """The order in which values enter a bound.

    Attributes:
        next: The first trial that has not entered; the one after the latest, where values enter at once.
        waiting: The evaluations that wait for it.
        mixed: Whether values of trials at one point were exchanged among them.
        unreported: The number of trials that had not reported when a later one did, where that is declared harmless.
    """

    next: int = 0
    waiting: Mapping[int, Evaluation] = {}
    mixed: bool = False
    unreported: int = 0

    def after(self, evaluation: Evaluation) -> tuple[Order, list[Evaluation]]:
        """Return the order after an evaluation, and the values that enter then: in the order of the starts."""
        waiting = {**self.waiting, evaluation.number: evaluation}
        end = usable_prefix(self.next, waiting)
        entering = [one for i in range(self.next, end) if (one := waiting.pop(i)).value is not None]
        mixed = self.mixed or len({one.features for one in entering}) < len(entering)
        return self._replace(next=end, waiting=waiting, mixed=mixed), entering

    def at_once(self, evaluation: Evaluation) -> tuple[Order, list[Evaluation]]:
        """Return the same where completion is declared to be independent of the noise: a value enters at once."""
        unreported = self.unreported + max(evaluation.number - self.next, 0)
        entering = [evaluation] if evaluation.value is not None else []
        return self._replace(
            next=max(self.next, evaluation.number + 1), unreported=unreported
        ), entering


@dataclass(frozen=True, eq=False, repr=False)
class CertifiedSurrogate(Surrogate):
    """The posterior of a method, with the bounds of the given assumptions.

    Args:
        setting: The assumptions.
        method: The method.
        device: That of the posterior.
        posterior: The posterior of the values that bounds may use.
        order: Which these are, and which wait.
        values: All evaluations with a value.
        selected: Numbers of trials, by the ways in which their noise may have decided which values there are.
        n_evaluations: The number of evaluations, those without a value too.
        span: The least and the largest possible value, larger ones better.
    """

    setting: Certified
    method: Method
    device: torch.device
    posterior: Posterior
    order: Order = field(default_factory=Order)
    values: Sequence[Evaluation] = ()
    selected: Mapping[str, int] = field(default_factory=dict)
    n_evaluations: int = 0
    span: tuple[float, float] = ANY

    def after(self, evaluations: Sequence[Evaluation]) -> CertifiedSurrogate:
        """Return the belief after some evaluations more.

        Raises:
            RefutedAssumptions: No function satisfies the assumptions and fits the values.
        """
        if not evaluations:
            return self
        order, entering, independent = self.order, [], self.setting.completion_independent_of_noise
        for one in evaluations:
            if one.value is not None and abs(one.value) > checks.largest_target(torch.float64):
                raise RefutedAssumptions(
                    "The data refute the assumptions: the objective had a value that no function of this norm and no "
                    "noise of a given level explain. Correct the objective, or let it raise an exception where it has "
                    "no value",
                    size=abs(one.value),
                    norm_bound=self.norm_bound,
                )
            order, more = order.at_once(one) if independent else order.after(one)
            entering += more
        posterior = self.posterior.fork() if entering else self.posterior
        for one in entering:
            weight = self._weight(one)
            if weight is None:
                posterior.update(*data([one], self.device))
            elif weight >= _LEAST_WEIGHT:  # which is decided before its noise
                posterior.update(
                    *data([one], self.device), torch.full((1,), weight).to(posterior.like)
                )
        if entering:
            self._check(posterior)
        return replace(
            self,
            posterior=posterior,
            order=order,
            values=[*self.values, *(one for one in evaluations if one.value is not None)],
            selected=Counter(self.selected)
            + Counter(way for one in evaluations for way in one.selected),
            n_evaluations=self.n_evaluations + len(evaluations),
        )

    def _weight(self, one: Evaluation) -> float | None:
        """Return the weight of a value with an error bar, the constant of its noise (docs/theory/weights.md)."""
        given = self.setting.noise_std
        if one.error is None or given is None:
            return None
        return (given / max(one.error, _LEAST_ERROR * given)) ** 2

    def _check(self, posterior: Posterior) -> None:
        """Raise RefutedAssumptions if no function satisfies the assumptions and fits the data.

        The same check for every method that rests on all of them: some bounds use one ridge only, or none, and would
        not notice. The others have a check of their own, or assume something else.
        """
        s, recipe = self.setting, methods.get(self.method.name)
        own_check = recipe.noise == "online" or recipe.norm == "estimated" or recipe.fixed_kernel
        if recipe.has_bounds and not own_check:
            refuse_if_refuted(posterior, self.noise_std, self.norm_bound, s.delta, s.scale)

    @property
    def noise_std(self) -> float:
        """The noise level that the method rests on."""
        given = 1.0 if self.setting.noise_std is None else self.setting.noise_std
        assumed = None if self.method.confidence is None else self.method.confidence.noise_std
        return float(given if assumed is None else assumed)

    @property
    def norm_bound(self) -> float:
        """The norm bound, which a list of hypotheses has for each of them."""
        assert self.setting.norm_bound is not None
        return self.setting.norm_bound

    @cached_property
    def searched(self) -> Posterior:
        """The posterior with the values that wait for earlier trials, as hypothetical ones."""
        if not self._late:
            return self.posterior
        return Hypothetical(self.posterior, *data(self._late, self.device))

    @property
    def _late(self) -> list[Evaluation]:
        """The values that wait for earlier trials."""
        return [one for one in self.order.waiting.values() if one.value is not None]

    def for_trial(self, number: int) -> Bound:
        assert self.method.confidence is not None
        return Bound(self.method.confidence.for_trial(number), self.searched)

    @property
    def latest(self) -> Bound | None:
        return None if self.reported is None else Bound(self.reported, self.searched)

    @cached_property
    def reported(self) -> Confidence | None:
        """The bound of the method; for a method that ranks points without one, a bound of its assumptions."""
        bound, s = self.method.confidence, self.setting
        if bound is None or not bound.finite_on(self.posterior):
            return None
        return bound.reported() or MartingaleMixture(
            self.noise_std, self.norm_bound, s.delta, "dmm", s.scale
        )

    @property
    def bounds(self) -> Sequence[Bound]:
        assumes_norm = methods.get(self.method.name).norm == "given"
        norm_bound = self.norm_bound if assumes_norm else None
        return [] if self.reported is None else [Bound(self.reported, self.posterior, norm_bound)]

    @property
    def unexplained(self) -> bool:
        """Whether the values are further from every function of the norm than the noise is.

        Of several hypotheses: under each of them. So a true one is never left out by this test, which has a
        probability of its own to be wrong, and the bounds hold as they are (docs/theory/noise.md).
        """
        if self.reported is None:
            return False
        return all(unexplained(one.confidence, one.posterior) for one in self.bounds)

    def proved(self, selected: Sequence[str] = ()) -> str | None:
        return (
            None
            if self.reported is None or self._objections(selected)
            else self.reported.guarantee_on(self.posterior)
        )

    def guarantee(self, selected: Sequence[str] = ()) -> str:
        if self.reported is None:
            return NO_BOUND
        promise = self.setting.promise
        if statement := self.proved(selected):
            ways = [
                *self._ways(selected),
                *in_words({"that ended after later ones": self.order.unreported}),
            ]
            declared = (
                f", and if completion does not depend on the noise ({', '.join(ways)})"
                if ways
                else ""
            )
            late = len(self._late)
            waiting = (
                f"; not used yet, because an earlier trial has not reported: {late}" if late else ""
            )
            return f"certified: the interval {statement}{declared}{waiting}{promise}"
        if methods.get(self.method.name).norm == "estimated":
            return (
                "not certified: kernel and noise level are given, but this method's norm bound follows the data, which "
                "can refute a norm bound and never prove one"
            )
        reasons = "; ".join(
            [*self.reported.objections(self.posterior), *self._objections(selected)]
        )
        return f"not certified: {reasons}{promise}"

    def _ways(self, more: Sequence[str]) -> list[str]:
        """Return the ways in which the noise may have decided which values there are, in words."""
        return [*in_words({way: self.selected.get(way, 0) for way in WAYS}), *more]

    def _objections(self, selected: Sequence[str]) -> list[str]:
        """Return the ways in which the noise may have decided which values there are, unless it is declared not to."""
        if self.setting.completion_independent_of_noise:
            return []
        reasons = self._ways(selected)
        if self.order.mixed and self.posterior.schedule is not None:
            reasons.append(
                "trials at one point ran at once, so the order of their values is unknown"
            )
        hint = "if this does not depend on the noise, pass Certified(completion_independent_of_noise=True)"
        return [*reasons, hint] if reasons else []

    @fixed
    def assumptions(self) -> dict[str, Any]:
        s, confidence = self.setting, self.method.confidence
        noise: Any = self.posterior.schedule
        origin, norm_bound = "all given", self.norm_bound
        if isinstance(confidence, UnknownNorm):
            origin, norm_bound = (
                "norm bound from the data, the others given",
                confidence.norm_bound(self.posterior),
            )
        if noise is not None:
            origin = f"noise level bounded online (at least {noise.lower:.3g}), the others given"
        return {
            "kernel": "given",
            "noise_std": self.noise_std if noise is None else noise.upper,
            "norm_bound": norm_bound,
            "delta": s.delta,
            "from": origin,
        }


@dataclass(frozen=True, eq=False, repr=False)
class AnySurrogate(CertifiedSurrogate):
    """The posteriors of several hypotheses, with the union of the bounds of those that are not refuted.

    Args:
        parts: The beliefs of the hypotheses that are left, by their positions.
        refuted: The numbers of values after which the others were refuted, by their positions.
    """

    parts: Mapping[int, CertifiedSurrogate] = field(default_factory=dict)
    refuted: Mapping[int, int] = field(default_factory=dict)

    def after(self, evaluations: Sequence[Evaluation]) -> AnySurrogate:
        found = self
        for one in evaluations:
            found = found._after(one)
        return found

    def _after(self, evaluation: Evaluation) -> AnySurrogate:
        left, refuted = {}, dict(self.refuted)
        for position, part in self.parts.items():
            try:
                left[position] = part.after([evaluation])
            except RefutedAssumptions:
                refuted[position] = len(part.values) + 1
        if not left:
            raise RefutedAssumptions(
                "The data refute every hypothesis of the list: the objective is rougher, larger or noisier than each "
                "says, or no function. Add hypotheses with shorter lengthscales, larger norms or more noise "
                f"({_IN_LISTS})",
                hypotheses=len(refuted),
                n=max(refuted.values()),
            )
        return _any_surrogate(self.setting, left, refuted)

    @property
    def n_hypotheses(self) -> int:
        """The number of hypotheses before the data."""
        return len(self.parts) + len(self.refuted)

    def for_trial(self, number: int) -> Bound:
        bounds = [part.for_trial(number) for part in self.parts.values()]
        return union(bounds, self.n_hypotheses)

    @cached_property
    def reported(self) -> Confidence | None:
        if len(self.bounds) < len(self.parts):
            return None
        return union(self.bounds, self.n_hypotheses).confidence

    @cached_property
    def latest(self) -> Bound | None:
        bounds = []
        for part in self.parts.values():
            if part.latest is None:
                return None
            bounds.append(part.latest)
        return union(bounds, self.n_hypotheses)

    @property
    def bounds(self) -> Sequence[Bound]:
        return [bound for part in self.parts.values() for bound in part.bounds]

    def account(self) -> dict[str, str]:
        left = "; ".join(str(self._hypothesis(i)) for i in list(self.parts)[:_MOST_SHOWN])
        more = f"; {len(self.parts) - _MOST_SHOWN} more" if len(self.parts) > _MOST_SHOWN else ""
        gone = (
            f" ({len(self.refuted)} refuted, the last after {max(self.refuted.values())} values)"
            if self.refuted
            else ""
        )
        return {
            "hypotheses": f"{len(self.parts)} of {self.n_hypotheses} are left{gone}: {left}{more}",
            **super().account(),
        }

    def _hypothesis(self, position: int) -> Hypothesis:
        given: Any = self.setting.kernel
        return given[position]

    @fixed
    def assumptions(self) -> dict[str, Any]:
        found = [self._hypothesis(i) for i in self.parts]
        largest = {
            name: max(getattr(one, name) for one in found) for name in ("noise_std", "norm_bound")
        }
        origin = f"the largest of {len(found)} hypotheses that are left"
        return {"kernel": "given", **largest, "delta": self.setting.delta, "from": origin}


_MOST_SHOWN = 3
"""Hypotheses that are shown."""


def _any_surrogate(
    setting: Certified, parts: Mapping[int, CertifiedSurrogate], refuted: Mapping[int, int]
) -> AnySurrogate:
    """Return the belief in one of several hypotheses, of which these are left."""
    first = next(iter(parts.values()))
    return AnySurrogate(
        setting=setting,
        method=first.method,
        device=first.device,
        posterior=first.posterior,
        order=first.order,
        values=first.values,
        selected=first.selected,
        n_evaluations=first.n_evaluations,
        span=first.span,
        parts=parts,
        refuted=refuted,
    )
