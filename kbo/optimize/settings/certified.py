"""The certified setting: the user gives all assumptions of a bound, so that the bound is proved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo._base import checks
from kbo._base.arguments import naming_arguments
from kbo.bandit import methods
from kbo.bandit.method import Method
from kbo.confidence.confidence_set import Scale, checked_scale
from kbo.confidence.least_norm import ENERGY
from kbo.errors import InvalidInput, RefutedAssumptions
from kbo.kernels import freeze
from kbo.optimize.assumptions.hypotheses import (
    Hypothesis,
    checked_kernel,
    kernel_description,
    owns_kernel,
)
from kbo.optimize.assumptions.measured import Measured
from kbo.optimize.assumptions.same_kernel import fingerprint
from kbo.optimize.constraints.constraint import Constraint
from kbo.optimize.run.outcome import OBJECTIVE
from kbo.optimize.settings.setting import Setting
from kbo.optimize.strategies.first_trials import InitialDesign, RandomPoint
from kbo.optimize.strategies.strategy import Strategy
from kbo.optimize.strategies.upper_bounds import (
    HypervolumeUpperBound,
    ThompsonPoint,
    UpperBoundPoint,
)
from kbo.optimize.surrogates.certified_surrogate import Assumptions, CertifiedSurrogate
from kbo.optimize.surrogates.evaluation import Evaluation, SearchProblem
from kbo.optimize.surrogates.fitting import unit_kernel
from kbo.optimize.surrogates.hypotheses_surrogate import LARGER_HYPOTHESES, HypothesesSurrogate
from kbo.regression import KernelRidge
from kbo.space import Space

_MOST_COVERED = 4096
"""Largest number of points of a finite space for which all points are used."""


@owns_kernel
@dataclass(frozen=True, eq=False)
class Certified(Setting):
    """Bounds that hold with probability ``1 - delta``: their assumptions are given by the user, and not estimated.

    Args:
        kernel: Kernel on the features of the space (numbers scaled to [0, 1], choices one-hot / sqrt(2)). It is copied,
            so later changes of it have no effect. Or a list of ``kbo.Hypothesis(kernel, noise_std, norm_bound)``: then
            the bounds hold if at least one hypothesis is true. Hypotheses that the data refute are left out.
        noise_std: Sub-Gaussian constant of the noise, in units of the objective; None for methods that bound it online,
            such as "dmm-ucb-adaptive". If a value has an error bar, ``(value, {"sem": 0.02})``, this is its constant
            instead; it must have been known before the evaluation. Methods that bound the noise online accept no error
            bars.
        norm_bound: Bound of the RKHS norm of the objective. The prior mean is 0, and nothing is rescaled. None for
            methods that assume no norm bound: "chaining-ucb" and "chaining-ucb-rigorous", by which the objective is a
            draw of the Gaussian process, and "cmm-ucb-doubling" and "cmm-ucb-practical", which estimate it. Optional
            for "random", where it only tells which limits every function keeps, or none.
        delta: Probability, at most, that the bounds fail.
        scale: Covariance scale of the mixture, or a list of scales that are averaged, as for ``MartingaleMixture``.
        noise_upper: An upper bound of the noise level, if one is known, for methods that bound the level online.
        completion_independent_of_noise: Whether you know that the noise of a trial has no influence on when and whether
            it reports. Then every value counts at once, also after failures. Otherwise the bounds use the trials in the
            order of their starts, up to the first that has not reported. Nothing is certified after a trial has failed,
            was stopped early, was lost and started again, or has a value at parameters that ``ask`` did not return
            (docs/theory/observations.md).
        strict_noise: The assumption about the noise of "dmm-ucb-adaptive" and "cmm-ucb-adaptive", which bound its level
            online. True: the noise is strictly sub-Gaussian. False, the stronger assumption: in addition, it has no
            more mass near zero than Gaussian noise.
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
        kernel = checked_kernel(self.kernel, type(self).__name__, numbers)
        independent = checks.flag(
            "completion_independent_of_noise", self.completion_independent_of_noise
        )
        checks.keep(
            self,
            kernel=kernel,
            noise_std=checks.maybe(checks.positive, "noise_std", self.noise_std),
            norm_bound=checks.maybe(checks.positive, "norm_bound", self.norm_bound),
            noise_upper=checks.maybe(checks.positive, "noise_upper", self.noise_upper),
            delta=checks.probability("delta", self.delta),
            completion_independent_of_noise=independent,
            strict_noise=checks.flag("strict_noise", self.strict_noise),
            scale=checked_scale(self.scale),  # Ax reads several from its storage as a list
        )

    @property
    def hypotheses(self) -> Sequence[Certified]:
        """The setting of each hypothesis; the setting itself if there is one kernel."""
        kernel: Any = self.kernel
        if not isinstance(kernel, tuple):
            return (self,)
        return tuple(replace(self, **vars(hypothesis)) for hypothesis in kernel)

    def strategies_for(self, method: str) -> Sequence[Strategy]:
        named_method = methods.get(method)
        if not named_method.has_bounds:
            return [RandomPoint()]
        first = [InitialDesign(centre_first=False), HypervolumeUpperBound()]
        if named_method.draws:
            return [*first, ThompsonPoint(), UpperBoundPoint()]
        return [*first, UpperBoundPoint()]

    def check(self, method: str, n_trials: int | None) -> None:
        named_method = methods.get(method)
        if len(self.hypotheses) > 1 and named_method.has_bounds and not named_method.mixture:
            raise InvalidInput(
                f"method {method!r} is for one kernel, and no list of hypotheses: choose 'dmm-ucb', 'cmm-ucb' or "
                "'amm-ucb', whose bounds and whose test of the hypotheses hold with probability 1 - delta together."
            )
        points = None
        if named_method.fixed_kernel:
            points = torch.zeros(1, 1, dtype=torch.float64)
        for setting in self.hypotheses:
            setting._method(method, n_trials, unit_kernel(1), points)

    def fit(
        self,
        problem: SearchProblem,
        evaluations: Sequence[Evaluation],
        before: CertifiedSurrogate | None = None,
    ) -> CertifiedSurrogate:
        if before is None:
            before = self.prior(problem)
        surrogate = before.after(evaluations[before.n_evaluations :])
        if surrogate is before or not surrogate.unexplained:
            return surrogate
        advice = ""
        if not isinstance(self.kernel, Kernel):
            advice = f" ({LARGER_HYPOTHESES})"
        raise RefutedAssumptions(
            "The data refute the assumptions: the values are further from every function of this norm than the "
            "noise is. Raise norm_bound or noise_std, or take a kernel with a shorter lengthscale"
            f"{advice}; if they are right, this happens with probability at most {self.delta * ENERGY:g}",
            n=surrogate.posterior.n,
        )

    def prior(self, problem: SearchProblem) -> CertifiedSurrogate:
        """Return the surrogate before the first evaluation."""
        space = problem.space
        kernel = self.kernel
        assumptions = Assumptions(
            self.noise_std,
            self.norm_bound,
            self.delta,
            self.scale,
            self.completion_independent_of_noise,
            self.promise,
        )
        if not isinstance(kernel, Kernel):
            self.check(problem.method, problem.n_trials)
            priors = {i: setting.prior(problem) for i, setting in enumerate(self.hypotheses)}
            return HypothesesSurrogate.of(assumptions, kernel, priors, {})
        fingerprint(kernel, space.columns)
        points = None
        if methods.get(problem.method).fixed_kernel:
            points = _points_of_finite(space, problem.method)
        method = self._method(problem.method, problem.n_trials, kernel, points)
        return CertifiedSurrogate(
            assumptions, method, space.device, method.state(), span=problem.span
        )

    def _method(
        self, method: str, n_trials: int | None, kernel: Kernel, points: Tensor | None
    ) -> Method:
        """Return the method of a name with the kernel and the numbers of the setting.

        Raises:
            InvalidInput: The setting lacks a number that the method needs, or has one that it does not use.
        """
        named_method = methods.get(method)
        method_of_setting = named_method.make(
            kernel,
            1.0 if self.noise_std is None else self.noise_std,
            1.0 if self.norm_bound is None else self.norm_bound,
            self.delta,
            scale=self.scale,
            noise_upper=self.noise_upper,
            strict_noise=self.strict_noise or None,
            horizon=n_trials,
            points=points,
        )
        knows_level = named_method.noise == "given"
        if knows_level and self.noise_std is None:
            raise InvalidInput(
                f"method {method!r} needs the noise level: pass Certified(noise_std=...), or choose a method that "
                'bounds it online, for example method="dmm-ucb-adaptive".'
            )
        norm_counts = assumes_norm(method)
        if norm_counts and named_method.has_bounds and self.norm_bound is None:
            raise InvalidInput(
                f"method {method!r} needs a bound of the norm of the objective, or its reports do: pass "
                "Certified(norm_bound=...), for example norm_bound=2.0."
            )
        unused = ["noise_upper" if knows_level else "noise_std"]
        if not norm_counts:
            unused.append("norm_bound")
        for name in unused:
            if getattr(self, name) is not None:
                raise InvalidInput(
                    f"method {method!r} does not use {name}: pass Certified({name}=None, ...)."
                )
        return method_of_setting

    def largest_error(self) -> float:
        if self.noise_upper is None:
            return super().largest_error()
        return self.noise_upper

    def for_objective(self, n_quantities: int) -> Certified:
        """Return the setting with the equal share ``delta / n_quantities`` of each quantity (a union bound)."""
        return replace(self, delta=self.delta / n_quantities)

    def decides(self, constraint: Constraint, method: str, space: Space) -> bool:
        """Return whether every function within the norm bound of a constraint keeps its limit everywhere.

        False for methods whose bounds do not assume a given norm bound.

        Raises:
            InvalidInput: No function within the norm bound keeps the limit anywhere.
        """
        if not assumes_norm(method):
            return False
        hypotheses = self._hypotheses_about(constraint)
        sizes = []
        for kernel, norm_bound in hypotheses:
            size = None if norm_bound is None else _largest(kernel, norm_bound, space)
            if size is None:
                return False
            sizes.append(size)
        if not sizes:
            return False
        if max(sizes) < constraint.limit:
            largest_norm = max(norm_bound or 0.0 for _, norm_bound in hypotheses)
            raise InvalidInput(
                f"constraint {constraint.name!r}: infeasible at once, since no function of norm at most "
                f"{largest_norm:g} with this kernel exceeds {max(sizes):.4g} in size, and "
                f"the limit is {constraint}."
            )
        return -max(sizes) >= constraint.limit

    def _hypotheses_about(self, constraint: Constraint) -> list[tuple[Kernel, float | None]]:
        """Return kernel and norm bound of the quantity of a constraint, for each hypothesis; empty without any."""
        is_objective = constraint.name == OBJECTIVE
        kernel = self.kernel if constraint.kernel is None else constraint.kernel
        if isinstance(kernel, Kernel):
            return [(kernel, self.norm_bound if is_objective else constraint.norm_bound)]
        if constraint.kernel is None and not is_objective:
            return []
        return [(hypothesis.kernel, hypothesis.norm_bound) for hypothesis in kernel]

    def for_quantity(self, quantity: Measured, n_quantities: int) -> Certified:
        """Return the setting of the quantity of a constraint, or of a further objective.

        Arguments as for ``Setting.for_quantity``.

        Raises:
            InvalidInput: The quantity lacks an assumption of the bounds.
        """
        if quantity.name == OBJECTIVE:
            return self.for_objective(n_quantities)
        online = self.hypotheses[0].noise_std is None
        norm_counts = self.hypotheses[0].norm_bound is not None
        kernel = self.kernel if quantity.kernel is None else quantity.kernel
        noise_std = quantity.noise_std
        norm_bound = quantity.norm_bound
        if isinstance(quantity.kernel, tuple):
            if online:
                raise InvalidInput(
                    f"{quantity.title}: methods that bound the noise level online are for one kernel, "
                    "and no list of hypotheses: choose 'dmm-ucb'."
                )
            noise_std = None
            norm_bound = None
        elif (norm_bound is not None) != norm_counts or (noise_std is None) != online:
            raise InvalidInput(_missing_assumptions(quantity, online, norm_counts))
        elif not isinstance(kernel, Kernel):
            raise InvalidInput(
                f"{quantity.title}: give it a kernel of its own, or a list of kbo.Hypothesis: those of "
                "the setting are about the objective."
            )
        setting = replace(self, kernel=kernel, noise_std=noise_std, norm_bound=norm_bound)
        return setting.for_objective(n_quantities)

    def describe(self, space: Space) -> dict[str, Any]:
        """Return the setting as plain JSON values."""
        values = {"setting": "certified", **kernel_description(self.kernel, space.columns)}
        if isinstance(self.kernel, Kernel):
            values["noise_std"] = self.noise_std
            if self.norm_bound is not None:
                values["norm_bound"] = self.norm_bound
        values["delta"] = self.delta
        values["scale"] = self.scale
        if self.noise_upper:
            values["noise_upper"] = self.noise_upper
        if self.completion_independent_of_noise:
            values["completion_independent_of_noise"] = True
        if self.strict_noise:
            values["noise_variant"] = "mixture+strict"  # the name of older journals
        return values


Certified.__init__ = naming_arguments(Certified.__init__)


def assumes_norm(method: str) -> bool:
    """Return whether a method, or the bound that reports show in its place, assumes a given norm bound.

    A method that estimates the norm does not, and neither does one for draws of a Gaussian process with a fixed kernel.
    """
    named_method = methods.get(method)
    return named_method.norm != "estimated" and not named_method.fixed_kernel


def _missing_assumptions(quantity: Measured, online: bool, norm_counts: bool) -> str:
    """Return the message for a quantity without the right assumptions.

    Args:
        quantity: The quantity.
        online: Whether the method bounds the noise level online.
        norm_counts: Whether the objective has a norm bound.
    """
    if not norm_counts:
        needed = "noise_std, and no norm_bound as the objective has none"
        example = "noise_std=0.1"
        alternative = ""
    elif online:
        needed = "norm_bound, and no noise_std"
        example = "norm_bound=2.0"
        alternative = ""
    else:
        needed = "noise_std and norm_bound"
        example = "noise_std=0.1, norm_bound=2.0"
        alternative = ", or a list of hypotheses as its kernel"
    return (
        f"{quantity.title}: the certified setting needs its own {needed}, as in "
        f"{quantity.in_code(example)}{alternative}, got noise_std={quantity.noise_std}, "
        f"norm_bound={quantity.norm_bound}."
    )


def _largest(kernel: Kernel, norm_bound: float, space: Space) -> float | None:
    """Return the largest |f(x)| over a space that the norm bound allows; None where this cannot be computed."""
    points = space.points(_MOST_COVERED)
    if points is None:
        centre = torch.full((1, space.dimension), 0.5, dtype=torch.float64)
        X = space.features(centre)
        if freeze(kernel, X).radial(X) is None:
            return None
        points = centre  # the prior is the same everywhere
    variance = KernelRidge(kernel, 1.0).prior_variance(space.features(points))
    return norm_bound * float(variance.amax().sqrt())


def _points_of_finite(space: Space, method: str) -> Tensor:
    """Return the features of every point of a finite space."""
    points = space.points(_MOST_COVERED)
    if points is None:
        raise InvalidInput(
            f"method {method!r} is for finite sets of points: a space of whole numbers and choices, at most "
            f"{_MOST_COVERED} of them. For a box pass ChainingUCB a design that fills it, or choose 'cmm-ucb'."
        )
    return space.features(points)
