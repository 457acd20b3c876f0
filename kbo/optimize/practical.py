"""The practical setting: a model is fitted, a search finds the next point, and a rule recommends one of the trials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from kbo import checks, recipes
from kbo.confidence import PRACTICAL_MULTIPLE, Confidence, FixedWidth, Limit, MartingaleMixture, UnknownNorm
from kbo.errors import InvalidInput
from kbo.optimize.belief import NO_BOUND, Belief
from kbo.optimize.constraint import OBJECTIVE, Constraint
from kbo.optimize.fitting import unit_kernel
from kbo.optimize.focus import FocusedDictionary
from kbo.optimize.learner import PracticalLearner
from kbo.optimize.model import Fitted, fit_limited, fit_values
from kbo.optimize.proposal import Search, argmax_improvement, argmax_probable, argmax_upper
from kbo.optimize.recommendation import Sureness, joint_targets, sureness
from kbo.optimize.region import Region
from kbo.optimize.targets import Targets
from kbo.recipes.method import Method
from kbo.regression import KernelRidge, NystromRidge, Posterior
from kbo.space import Space

GRID = tuple(10 ** (-1 + 0.4 * i) for i in range(9))
"""Multiples of the mixture ridge for the practical "dmm-ucb": 0.1 to about 160."""

MOST_EXACT = 500
"""Observations with an exact posterior; of more, a sketch is taken."""

ANCHORS = 320, 224
"""Points of a sketch at which a part of them is drawn, and the size of that part."""

_NARROW = FixedWidth(0.25)
"""The bound of the local search: nearly the mean, and lower near pending points."""

_MOST_INITIAL = 6
"""Space-filling evaluations before the first fit, at most: the prior of the fit makes a model of a few useful."""

_SURE = 2.0
"""Standard deviations by which the mean of a recommended trial is within each limit: a probability of 98%."""

_LEFT_OUT = 0.1
"""Part of the noise variance that the sketch may leave unexplained of an observation."""


@dataclass(frozen=True)
class Practical:
    """Everything is estimated: useful bounds without a guarantee.

    Kernel (Matern 5/2, one lengthscale per feature) and noise are fitted by marginal likelihood, first after the
    initial design and again whenever the data have grown by 30%. Values far on the bad side are cut first, and all are
    made less skewed (Yeo & Johnson 2000) where that makes them more likely. After the initial design the best trial is
    repeated once (not in ``ask`` with a context or ``choices``): equal values mean that the objective has no noise.
    Then the best observed trial is recommended, otherwise the one with the largest mean less one standard deviation.
    The search takes one and two standard deviations above the mean in turn, and four every eighth time ("ucb"), or the
    bound of the chosen method. Without noise and with a real parameter, "ucb" searches every second time only near the
    best trial, in a box that grows after a better trial in it and shrinks after a worse one (as in TuRBO, Eriksson et
    al. 2019); where parameters are conditional, it takes the largest expected improvement, which leaves a branch that
    is known for another one. The norm bound, for the interval that is reported and for methods that search with one, is
    ``norm_factor`` times the anytime lower confidence bound of the norm (Flynn & Reeb 2024, Cor. 4.3), recomputed at
    every step, and at least 1 prior standard deviation.

    With limits on measured quantities the log-probability that all are kept is added to the bound of the search. The
    mean of each quantity at the recommended trial is within its limit by two standard deviations, if there is such a
    trial (docs/theory/constrained.md).

    For another model, search or recommendation subclass it and override ``model``, ``search`` or ``recommend``; a
    journal names the class, so that a run is not continued with another one (docs/howto.md, "A setting of your own").

    Args:
        delta: Nominal failure probability of the bounds.
        scale: Covariance scale of the mixture.
        norm_factor: Multiple of the lower confidence bound of the norm.
        n_initial: Space-filling evaluations before the first fit; by default 6, and 4 for one parameter.
        noise_std: Standard deviation of the noise in units of the objective, if it is known; 0 for an objective
            without noise. By default it is estimated.
    """

    delta: float = 0.1
    scale: float = 1.0
    norm_factor: float = PRACTICAL_MULTIPLE
    n_initial: int | None = None
    noise_std: float | None = None

    default_method: ClassVar[str] = "ucb"
    certified: ClassVar[bool] = False
    start: ClassVar[Any] = ()
    about_limits: ClassVar[str] = (
        "the search adds the log-probability that they are kept; the rule compares trials within them by two standard "
        "deviations, if there are any"
    )

    def __post_init__(self) -> None:
        checks.probability("delta", self.delta)
        checks.positive("scale", self.scale)
        if checks.positive("norm_factor", self.norm_factor) < 1:
            raise InvalidInput(f"norm_factor must be at least 1, got {self.norm_factor}: a smaller norm is refuted.")
        checks.maybe(checks.whole, "n_initial", self.n_initial, 2)
        checks.maybe(checks.non_negative, "noise_std", self.noise_std)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in self._given().items())})"

    def model(self, X: Tensor, y: Tensor, noise_std: float | None) -> Fitted:
        """Return kernel, noise level and targets for values y [n], larger ones better, at features X [n D]."""
        return fit_values(X, y, noise_std)

    def search(self, confidence: Confidence, posterior: Posterior, search: Search) -> Tensor:
        """Return the next point [P] of the unit cube, for example ``search.argmax(score)`` of a score [n].

        The search near the best trial, where there is no noise, comes before it unless it is overridden.
        """
        return argmax_upper(confidence, posterior, search)

    def recommend(self, posterior: Posterior, features: Tensor, values: Tensor) -> Tensor:
        """Return scores [n] of completed trials with features [n D] and values [n], larger is better.

        By default the mean less one standard deviation; without noise the values themselves are compared unless it is
        overridden. The reported bound is wider, because its width covers all points at once, and would prefer trials
        that were repeated to better ones that were not.
        """
        mean, variance = posterior.predict(features)
        return mean - variance.sqrt()

    def overrides(self, part: str) -> bool:
        """Return whether "model", "search" or "recommend" is that of a subclass."""
        return getattr(type(self), part) is not getattr(Practical, part)

    def begin(
        self, method: str, n_trials: int | None, space: Space, limit: float | None = None
    ) -> PracticalLearner[PracticalBelief]:
        """Return the learner before the first evaluation; arguments as for ``Certified.begin``.

        Raises:
            InvalidInput: The method is for the certified setting.
        """
        recipe = recipes.get(method)
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
        recipe.make(unit_kernel(1), 1.0, 1.0, self.delta, horizon=n_trials)  # errors now, not at the first fit
        n_initial = self.n_initial or min(2 * space.dimension + 2, _MOST_INITIAL)
        region = Region()
        near = region if method == self.default_method and space.continuous else None
        believe = partial(PracticalBelief, self, method, n_trials, region=near, branches=bool(space.conditions))
        fit = self.model if limit is None else partial(fit_limited, limit)
        n_initial = n_initial if recipe.has_bounds else math.inf
        return PracticalLearner(fit, believe, self.noise_std, n_initial, region, space.device)

    def shared(self, outputs: int) -> Practical:
        """Return the setting itself: nominal probabilities are not shared."""
        return self

    def of(self, constraint: Constraint, outputs: int) -> Practical:
        """Return the setting of the quantity of a constraint; arguments as for ``Certified.of``.

        Raises:
            InvalidInput: The constraint has a norm bound or a kernel, which are estimated; or the search is your own,
                which gets no constraints.
        """
        if self.overrides("search"):
            raise InvalidInput(
                f"constraint {constraint.name!r}: the search of {type(self).__name__} chooses points without "
                "constraints: leave it out, or return the penalised value as the objective."
            )
        if constraint.name == OBJECTIVE:
            return self.shared(outputs)
        if constraint.norm_bound is not None or constraint.kernel is not None:
            raise InvalidInput(
                f"constraint {constraint.name!r}: norm_bound and kernel are for kbo.Certified(...); the practical "
                "setting estimates them."
            )
        return replace(self, noise_std=constraint.noise_std)

    def decides(self, constraint: Constraint, method: str, space: Space) -> bool:
        """Return False: nothing is known of a quantity in advance."""
        return False

    def describe(self, space: Space) -> dict[str, Any]:
        """Return the setting as plain JSON values; a subclass by its name."""
        own = {} if type(self) is Practical else {"class": f"{type(self).__module__}.{type(self).__qualname__}"}
        return {"setting": "practical", **own, **self._given()}

    def _given(self) -> dict[str, Any]:
        """Return the arguments; of those that were added after 0.9 only those that differ from the default."""
        return {name: value for name, value in vars(self).items() if value is not None or name == "n_initial"}


class PracticalBelief(Belief):
    """A posterior with the fitted kernel and noise level, and bounds with an estimated norm.

    Args:
        setting: Its numbers.
        method: A name of ``kbo.recipes.names()``.
        n_trials: The planned number of trials, for methods that need it.
        fitted: Kernel, noise level and targets.
        n: The number of observations to which they were fitted. The posterior is sketched if there are many, and
            updated in place.
        region: The region of the local search for objectives without noise; by default there is none.
        branches: Whether parameters are conditional; then such objectives are searched for the largest expected
            improvement, and not in the region.
    """

    exact: bool | None = None

    def __init__(
        self,
        setting: Practical,
        method: str,
        n_trials: int | None,
        fitted: Fitted,
        n: int,
        region: Region | None = None,
        branches: bool = False,
    ) -> None:
        self._setting, self._region, self._branches = setting, region, branches
        self._recipe = recipes.get(method)
        self._n_trials = n_trials
        self.fitted = fitted
        self.targets: Targets = fitted.targets
        made = self._method(norm_bound=1.0)
        self._plain = made.confidence
        self.draws: bool = self._recipe.draws
        self.posterior: Posterior = made.state()
        if n > MOST_EXACT and type(self.posterior) is KernelRidge:
            focused = FocusedDictionary(_LEFT_OUT * fitted.noise_std**2, *ANCHORS)
            self.posterior = NystromRidge(self.posterior.kernel, self.posterior.ridge, focused)
        self._norm_bound: tuple[int, float] | None = None
        self._n_fitted = n

    def propose(self, posterior: Posterior, search: Search, limits: Sequence[Limit] = ()) -> Tensor:
        confidence = self.confidence()
        assert confidence is not None  # else points are chosen at random
        confidence = confidence.for_trial(search.number)
        if limits:
            return argmax_probable(confidence, posterior, search, limits)
        if self._setting.overrides("search"):
            return self._setting.search(confidence, posterior, search)
        if self._region and self.exact and not search.restriction.partial:
            if self._branches:
                return argmax_improvement(posterior, search)
            if search.number % 2:
                return search.argmax_near(partial(_NARROW.upper, posterior), self._region.radius)
        return super().propose(posterior, search)

    def merit(self, features: Tensor, values: Tensor) -> Tensor:
        """Return the values if they have no noise, unless the rule is the caller's own, and else what the rule says."""
        if self.exact and not self._setting.overrides("recommend"):
            return values
        return self._setting.recommend(self.posterior, features, values)

    def assured(self, features: Tensor, values: Tensor) -> Tensor:
        """Return the values if they have no noise, and else what is exceeded with a probability of 98%."""
        if self.exact:
            return self.targets(values)
        mean, variance = self.posterior.predict(features)
        return mean - _SURE * variance.sqrt()

    def chance(self, features: Tensor, limit: float) -> float:
        mean, variance = self.posterior.predict(features)
        return float(torch.special.ndtr((mean - self.target(limit)) / variance.sqrt())[0])

    def sureness(self, features: Tensor, values: Tensor, chosen: int, generator: torch.Generator) -> Sureness:
        if self.exact:
            return sureness(values.unsqueeze(0), chosen)
        draws = joint_targets(self.posterior, features, chosen, self.fitted.noise_std**2, generator)
        return sureness(self.raw(draws), 0)

    def account(self) -> dict[str, str]:
        n, fitted, setting = self.posterior.n, self._n_fitted, self._setting
        to = f"the first {fitted} of {n} values" if fitted < n else f"{n} values"
        power = self.targets.power
        changed = "" if power == 1 else f", which are transformed (Yeo-Johnson, power {power:g})"
        own = f" by {type(setting).__name__}"
        by = {part: own * setting.overrides(part) for part in ("model", "search", "recommend")}
        cautious = "best mean with a margin of one standard deviation"
        default = "best observed value, since there is no noise" if self.exact else cautious
        search = self._recipe.name
        if self._region and self.exact and not by["search"]:
            near = f"{search}; every second trial near the best one, within {self._region.radius:.2g} of each range"
            search = "expected improvement" if self._branches else near
        return {
            "model": f"{type(self.fitted.kernel).__name__} fitted{by['model']} to {to}{changed}",
            "noise": self._noise(),
            "search": f"{search}{by['search']}",
            "rule": f"the largest score{by['recommend']}" if by["recommend"] else f"the {default}",
        }

    def _noise(self) -> str:
        """Return the noise level in words, and where it comes from."""
        given, used = self._setting.noise_std, self.fitted.noise_std * self.targets.scale
        level = f"standard deviation {used:.3g}"
        if self.fitted.largest_sem is not None:
            return f"{level}, the largest standard error given, but at least a hundredth of the spread of the values"
        if given:
            changed = "" if math.isclose(used, given, rel_tol=1e-6) else f" ({used:.3g} in the model)"
            return f"standard deviation {given:.3g}{changed}, given"
        if given is not None:
            return "none, as given"
        if self.repetition is None:
            return f"{level}, fitted; no trial has been repeated"
        first, again = self.repetition
        if self.exact:
            return f"none: trial {again} repeated trial {first} with the same value"
        return f"{level}, fitted; trial {again} repeated trial {first} with another value"

    def _method(self, norm_bound: float) -> Method:
        s, noise_std = self._setting, self.fitted.noise_std
        ridges = [g * noise_std**2 / s.scale for g in GRID] if "ridges" in self._recipe.options else None
        options = {"scale": s.scale, "horizon": self._n_trials, "ridges": ridges}
        return self._recipe.make(self.fitted.kernel, noise_std, norm_bound, s.delta, **options)

    def norm_bound(self) -> float:
        """Return the estimate of the norm, of the objective less its constant, in the posterior's units."""
        s, version = self._setting, self.posterior.version
        if self._norm_bound is None or self._norm_bound[0] != version:
            unknown = UnknownNorm(self.fitted.noise_std, s.delta, scale=s.scale, guess=1.0, multiple=s.norm_factor)
            self._norm_bound = version, unknown.norm_bound(self.posterior)
        return self._norm_bound[1]

    def confidence(self) -> Confidence | None:
        """Return the bound of the method, with the estimates in place of what it assumes."""
        return self._plain if self._recipe.norm == "unused" else self._method(self.norm_bound()).confidence

    @property
    def bounded(self) -> bool:
        return self._plain is not None

    def reported(self) -> Confidence | None:
        """Return AMM in place of tighter mixtures: with an estimated norm those would exclude too much."""
        confidence, s = self.confidence(), self._setting
        if confidence is None:
            return None
        ranks_points = self.draws or confidence.reported() is None
        if not (ranks_points or isinstance(confidence, MartingaleMixture)):
            return confidence
        return MartingaleMixture(self.fitted.noise_std, self.norm_bound(), s.delta, "amm", s.scale)

    def guarantee(self, selected: Sequence[str] = ()) -> str:
        if self.reported() is None:
            return NO_BOUND
        values = "objective" if self.targets.power == 1 else "transformed objective"
        norm = f"the norm bound ({self.assumptions()['norm_bound']:.3g}, of the {values} less its constant)"
        fitted = "the kernel" if self.exact or self._noise_given else "the kernel, the noise level"
        return (
            f"practical, not certified: {fitted} and {norm} are estimates from the same data, so the interval may be "
            "too narrow"
        )

    @property
    def _noise_given(self) -> bool:
        return self._setting.noise_std is not None or self.fitted.largest_sem is not None

    def assumptions(self) -> dict[str, Any]:
        """Return the estimates, in units of the objective."""
        noise, factor = "what it leaves unexplained" if self.exact else "noise", f"{self._setting.norm_factor:g}"
        fitted = "kernel" if self._noise_given else f"kernel and {noise}"
        given = ", noise given" if self._noise_given else ""
        return {
            "kernel": "fitted",
            "noise_std": self.fitted.noise_std * self.targets.scale,
            "norm_bound": self.norm_bound() * self.targets.scale,
            "delta": self._setting.delta,
            "from": f"{fitted} by marginal likelihood{given}, norm bound {factor} x its lower bound",
        }
