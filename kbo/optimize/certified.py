"""The certified setting: everything a bound needs is given."""

from __future__ import annotations

import copy
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo import checks, recipes
from kbo.confidence import Confidence, MartingaleMixture, UnknownNorm, refuse_if_refuted
from kbo.confidence.mixture.radius import Scale, checked_scale
from kbo.errors import InvalidInput, RefutedAssumptions
from kbo.kernels import freeze
from kbo.optimize.belief import NO_BOUND, Belief, Learner
from kbo.optimize.constraint import OBJECTIVE, Constraint, owns_kernel
from kbo.optimize.trials import WAYS, in_words
from kbo.recipes import Recipe
from kbo.recipes.method import Method
from kbo.regression import Hypothetical, KernelRidge, Posterior
from kbo.space import Space

_NO_NUMBERS = ("training", "ard_num_dims")
"""Attributes of kernels that change no value."""

_MOST_COVERED = 4096
"""Largest number of points of a space that is covered."""


@owns_kernel
@dataclass(frozen=True, eq=False)
class Certified:
    """Bounds that hold with probability ``1 - delta``, because what they assume is given, not estimated.

    Args:
        kernel: Kernel on the features of the space (numbers scaled to [0, 1], choices one-hot / sqrt(2)). It is copied:
            later changes of it change nothing.
        noise_std: Sub-Gaussian constant of the noise, in units of the objective; None for methods that bound it online,
            "dmm-ucb-adaptive" and the like.
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

    kernel: Kernel
    noise_std: float | None
    norm_bound: float
    delta: float = 0.1
    scale: Scale = 1.0
    noise_upper: float | None = None
    completion_independent_of_noise: bool = False
    strict_noise: bool = False

    default_method: ClassVar[str] = "dmm-ucb"
    certified: ClassVar[bool] = True
    start: ClassVar[Any] = ()
    promise: ClassVar[str] = ""
    about_limits: ClassVar[str] = (
        "the search is among points that possibly keep them; the rule compares trials that are certain to, if "
        "there are any"
    )

    def __post_init__(self) -> None:
        checks.kernel(self.kernel, type(self).__name__)
        for name in ("noise_std", "noise_upper"):
            if (value := getattr(self, name)) is not None:
                checks.positive(name, value)
        checks.positive("norm_bound", self.norm_bound)
        checks.probability("delta", self.delta)
        object.__setattr__(self, "scale", checked_scale(self.scale))  # Ax reads several from its storage as a list

    def begin(self, method: str, n_trials: int | None, space: Space, limit: float | None = None) -> Learner:
        """Return the belief before the first evaluation, to which all are added.

        Args:
            method: A name of ``kbo.recipes.names()``.
            n_trials: The planned number of trials, for methods that need it.
            space: The search space.
            limit: That of a quantity which is to reach it, for settings whose model depends on it.

        Raises:
            InvalidInput: A method that does not fit the setting or the space, or a kernel that does not fit the space.
        """
        fingerprint(self.kernel, space.columns)
        recipe, noise_std = recipes.get(method), 1.0 if self.noise_std is None else self.noise_std
        points = _finite(space, method) if recipe.fixed_kernel else None
        numbers = {"scale": self.scale, "noise_upper": self.noise_upper, "strict_noise": self.strict_noise or None}
        numbers |= {"horizon": n_trials, "points": points}
        made = recipe.make(self.kernel, noise_std, self.norm_bound, self.delta, **numbers)
        _check_noise(method, self, knows_level=recipe.noise == "given")
        assumed = None if made.confidence is None else made.confidence.noise_std
        noise_std = float(noise_std if assumed is None else assumed)
        return CertifiedBelief(self, recipe, made, noise_std, space.device)

    def shared(self, outputs: int) -> Certified:
        """Return the setting of one of so many quantities, among which delta is shared equally."""
        return replace(self, delta=self.delta / outputs)

    def decides(self, constraint: Constraint, method: str, space: Space) -> bool:
        """Return whether every function of the norm that the constraint gives keeps its limit, whatever is measured.

        False for methods whose bounds do not assume that norm.

        Raises:
            InvalidInput: No function of that norm keeps it anywhere.
        """
        recipe = recipes.get(method)
        if recipe.norm == "estimated" or recipe.fixed_kernel:
            return False
        kernel = self.kernel if constraint.kernel is None else constraint.kernel
        points = space.points(_MOST_COVERED)
        centre = torch.full((1, space.dimension), 0.5, dtype=torch.float64)
        if points is None and freeze(kernel, X := space.features(centre)).radial(X) is not None:
            points = centre  # the prior is the same everywhere
        norm_bound = self.norm_bound if constraint.name == OBJECTIVE else constraint.norm_bound
        if points is None or norm_bound is None:
            return False
        largest = norm_bound * float(KernelRidge(kernel, 1.0).prior_variance(space.features(points)).amax().sqrt())
        if largest < constraint.limit:
            raise InvalidInput(
                f"constraint {constraint.name!r}: infeasible at once, since no function of norm at most "
                f"{norm_bound:g} with this kernel exceeds {largest:.4g} in size, and the limit is {constraint}."
            )
        return -largest >= constraint.limit

    def of(self, constraint: Constraint, outputs: int) -> Certified:
        """Return the setting of the quantity of a constraint, one of so many quantities.

        Raises:
            InvalidInput: The constraint lacks what the bounds assume.
        """
        if constraint.name == OBJECTIVE:
            return self.shared(outputs)
        if constraint.norm_bound is None or (constraint.noise_std is None) != (self.noise_std is None):
            needed = "norm_bound, and no noise_std" if self.noise_std is None else "noise_std and norm_bound"
            raise InvalidInput(
                f"constraint {constraint.name!r}: the certified setting needs its own {needed}, as in constraints="
                f"[kbo.Constraint({constraint.name!r}, ..., {'' if self.noise_std is None else 'noise_std=0.1, '}"
                f"norm_bound=2.0)], got noise_std={constraint.noise_std}, norm_bound={constraint.norm_bound}."
            )
        kernel = self.kernel if constraint.kernel is None else constraint.kernel
        own = replace(self, kernel=kernel, noise_std=constraint.noise_std, norm_bound=constraint.norm_bound)
        return own.shared(outputs)

    def describe(self, space: Space) -> dict[str, Any]:
        """Return the setting as plain JSON values."""
        numbers = {name: getattr(self, name) for name in ("noise_std", "norm_bound", "delta", "scale")}
        for name in ("noise_upper", "completion_independent_of_noise"):
            numbers |= {name: value} if (value := getattr(self, name)) else {}
        numbers |= {"noise_variant": "mixture+strict"} if self.strict_noise else {}  # as journals of before name it
        return {"setting": "certified", "kernel": fingerprint(self.kernel, space.columns), **numbers}


def fingerprint(kernel: Kernel, columns: int) -> str:
    """Return a text that is equal for kernels of the same classes, parameters and values, to eight digits.

    The values, at some points [16 columns], do not tell kernels apart whose lengthscales are much shorter than the
    distances; kbo 0.14 and before wrote them alone.
    """
    X = torch.rand(16, columns, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    try:
        values = freeze(kernel, X)(X, X)
    except (RuntimeError, IndexError) as error:
        raise InvalidInput(
            f"the kernel cannot be evaluated on the {columns} features of this space: {error}"
        ) from error
    return f"{type(kernel).__name__} {_hash(_digits(values))} {_hash(_described(kernel))}"


def _described(kernel: Kernel) -> str:
    """Return the classes of a kernel and its parts, their numbers, parameters and buffers, as text."""
    texts = []
    for name, part in copy.deepcopy(kernel).double().named_modules():
        if isinstance(part, Kernel):
            plain = {key: value for key, value in vars(part).items() if isinstance(value, (int, float, str))}
            plain = {key: value for key, value in plain.items() if key[0] != "_" and key not in _NO_NUMBERS}
            texts.append(f"{name} {type(part).__qualname__} {sorted(plain.items())}")
            for raw, value in part.named_parameters(recurse=False):
                texts.append(_digits(getattr(part, raw.removeprefix("raw_"), value)))
            texts += [_hash(buffer.cpu().numpy().tobytes()) for buffer in part.buffers(recurse=False)]
    return "\n".join(texts)


def _digits(values: Tensor) -> str:
    return " ".join(f"{value:.8e}" for value in values.flatten().tolist())


def _hash(text: str | bytes) -> str:
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()[:16]


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
        raise InvalidInput(f"method {method!r} does not use {unused}: pass Certified({unused}=None, ...).")


class CertifiedBelief(Belief, Learner):
    """The posterior of a method, to which observations are added at once, with the bounds of the given assumptions.

    Args:
        setting: The assumptions.
        recipe: The entry of the method.
        method: The method.
        noise_std: The noise level that the method rests on.
        device: That of the posterior.
    """

    def __init__(
        self, setting: Certified, recipe: Recipe, method: Method, noise_std: float, device: torch.device
    ) -> None:
        self._setting, self._recipe, self._method, self._noise_std = setting, recipe, method, noise_std
        self._device = device
        self.posterior: Posterior = method.state()
        self.draws: bool = recipe.draws
        bound = method.confidence
        self._stated = bound and bound.reported()
        if bound is not None and self._stated is None:  # it only ranks points: report a bound of the same assumptions
            self._stated = MartingaleMixture(noise_std, setting.norm_bound, setting.delta, "dmm", setting.scale)
        self._checked: int | None = None
        self._next = 0  # the first trial that has not reported
        self._waiting: dict[int, tuple[Tensor, Tensor] | None] = {}  # what later ones have reported
        self._reports: Counter[tuple[float, ...] | None] = Counter()  # how many of these there are at each point
        self._overtaken = 0  # trials that had not reported when a later one did, where that is declared harmless
        self._mixed = False  # values of trials at one point were exchanged among them
        self._selected: Counter[str] = Counter()  # trials, by ways in which their noise may have decided
        self._excluded: float | None = None  # a value too large for any of the assumptions, and for float64

    def observe(self, number: int, features: Tensor, y: float) -> None:
        """Add one evaluation to the posterior, or keep it until all trials that were started before have reported."""
        if abs(y) > checks.largest_target(features.dtype):
            self._excluded = y
            return
        value = features, torch.tensor([y], dtype=features.dtype)
        self._report(number, value)
        if self._setting.completion_independent_of_noise:
            self._update(*value)

    def lose(self, number: int) -> None:
        self._report(number, None)

    def select(self, ways: Sequence[str]) -> None:
        self._selected.update(ways)

    def _ways(self, more: Sequence[str]) -> list[str]:
        """Return the ways in which the noise may have decided which values there are, in words."""
        return [*in_words({way: self._selected[way] for way in WAYS}), *more]

    def _report(self, number: int, value: tuple[Tensor, Tensor] | None) -> None:
        if self._setting.completion_independent_of_noise:
            self._overtaken += max(number - self._next, 0)
            self._next = max(self._next, number + 1)
            return
        self._waiting[number] = value
        self._reports[self._point(number)] += 1
        end = self._next
        while end in self._waiting:
            end += 1
        # Trials at one point that ran at once exchange values, so all or none of them enter (docs/theory/trials.md).
        entering = Counter(self._point(i) for i in range(self._next, end))
        for i in reversed(range(self._next, end)):
            point = self._point(i)
            if point is not None and self._reports[point] > entering[point]:  # others at this point stay behind
                entering.subtract(self._point(k) for k in range(i, end))
                end = i
        points = [point for i in range(self._next, end) if (point := self._point(i)) is not None]
        self._mixed |= len(set(points)) < len(points)
        self._reports -= +entering
        for i in range(self._next, end):
            if (ready := self._waiting.pop(i)) is not None:
                self._update(*ready)
        self._next = end

    def _update(self, X: Tensor, y: Tensor) -> None:
        self.posterior.update(X.to(self._device), y.to(self._device))

    def _point(self, number: int) -> tuple[float, ...] | None:
        """Return the features of a trial that waits; None if it has no value."""
        value = self._waiting[number]
        return None if value is None else tuple(value[0].flatten().tolist())

    @property
    def searched(self) -> Posterior:
        """The posterior with the values that wait for earlier trials, as hypothetical ones."""
        if not self._late:
            return self.posterior
        X, y = (torch.cat(parts).to(self._device) for parts in zip(*self._late, strict=True))
        return Hypothetical(self.posterior, X, y)

    @property
    def _late(self) -> list[tuple[Tensor, Tensor]]:
        """The values that wait for earlier trials."""
        return [value for value in self._waiting.values() if value is not None]

    def belief(self) -> Belief | None:
        if self._excluded is not None:
            raise RefutedAssumptions(
                "The data refute the assumptions: the objective had a value that no function of this norm and no noise "
                "of a given level explain. Correct the objective, or let it raise an exception where it has no value",
                size=abs(self._excluded),
                norm_bound=self._setting.norm_bound,
            )
        if self.posterior.n and self._checked != self.posterior.version:
            self._check()
            self._checked = self.posterior.version
        return self if self.posterior.n or self._late else None

    def confidence(self) -> Confidence | None:
        return self._method.confidence

    def reported(self) -> Confidence | None:
        """Return the bound of the method; for a method that ranks points without one, a bound of its assumptions."""
        confidence = self._method.confidence
        return self._stated if confidence is not None and confidence.finite_on(self.posterior) else None

    def proved(self, selected: Sequence[str] = ()) -> str | None:
        reported = self.reported()
        return None if reported is None or self._objections(selected) else reported.guarantee_on(self.posterior)

    def guarantee(self, selected: Sequence[str] = ()) -> str:
        reported = self.reported()
        if reported is None:
            return NO_BOUND
        if statement := self.proved(selected):
            ways = [*self._ways(selected), *in_words({"overtaken by later ones": self._overtaken})]
            declared = f", and if completion does not depend on the noise ({', '.join(ways)})" if ways else ""
            late = len(self._late)
            waiting = f"; not used yet, because an earlier trial has not reported: {late}" if late else ""
            return f"certified: the interval {statement}{declared}{waiting}{self._setting.promise}"
        if self._recipe.norm == "estimated":
            return (
                "not certified: kernel and noise level are given, but this method's norm bound follows the data, which "
                "can refute a norm bound and never prove one"
            )
        reasons = "; ".join([*reported.objections(self.posterior), *self._objections(selected)])
        return f"not certified: {reasons}{self._setting.promise}"

    def _objections(self, selected: Sequence[str]) -> list[str]:
        """Return the ways in which the noise may have decided which values there are, unless it is declared not to."""
        if self._setting.completion_independent_of_noise:
            return []
        reasons = self._ways(selected)
        if self._mixed and self.posterior.schedule is not None:
            reasons.append("trials at one point ran at once, so the order of their values is unknown")
        hint = "if this does not depend on the noise, pass Certified(completion_independent_of_noise=True)"
        return [*reasons, hint] if reasons else []

    def _check(self) -> None:
        """Raise RefutedAssumptions if no function satisfies the assumptions and fits the data.

        The same check for every method that rests on all of them: some bounds use one ridge only, or none, and would
        not notice. The others have a check of their own, or assume something else.
        """
        s, recipe = self._setting, self._recipe
        own_check = recipe.noise == "online" or recipe.norm == "estimated" or recipe.fixed_kernel
        if recipe.has_bounds and not own_check:
            refuse_if_refuted(self.posterior, self._noise_std, s.norm_bound, s.delta, s.scale)

    def assumptions(self) -> dict[str, Any]:
        s, confidence = self._setting, self._method.confidence
        noise: Any = self.posterior.schedule
        origin, norm_bound = "all given", s.norm_bound
        if isinstance(confidence, UnknownNorm):
            origin, norm_bound = "norm bound from the data, the others given", confidence.norm_bound(self.posterior)
        if noise is not None:
            origin = f"noise level bounded online (at least {noise.lower:.3g}), the others given"
        return {
            "kernel": "given",
            "noise_std": self._noise_std if noise is None else noise.upper,
            "norm_bound": norm_bound,
            "delta": s.delta,
            "from": origin,
        }
