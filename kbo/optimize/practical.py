"""The practical setting: kernel, noise and norm bound are estimated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo import checks, recipes
from kbo.confidence import PRACTICAL_MULTIPLE, Confidence, MartingaleMixture, UnknownNorm
from kbo.errors import InvalidInput
from kbo.optimize.belief import NO_BOUND, Belief, Learner
from kbo.optimize.fitting import LEAST_NOISE, MOST, fit, unit_kernel
from kbo.optimize.focus import FocusedDictionary
from kbo.optimize.targets import Targets, least_skewed, linear
from kbo.recipes.method import Method
from kbo.regression import KernelRidge, Posterior
from kbo.space import Space

GRID = tuple(10 ** (-1 + 0.4 * i) for i in range(9))
"""Multiples of the mixture ridge for the practical "dmm-ucb": 0.1 to about 160."""

REFIT_GROWTH = 1.3
"""The data grow by this factor between fits, so fits stay rare; waiting for a doubling found clearly worse optima."""

MOST_EXACT = 500
"""Observations with an exact posterior; of more, a sketch is taken."""

ANCHORS = 384, 256
"""Points of a sketch at which a part of them is drawn, and the size of that part."""

_LARGEST, _OUTSIDE = 1e300, 1e50
"""Size at which values are cut, so that their differences stay finite; and standard deviations from the mean at which a
value asks for a fit at once, since powers of it would overflow."""

_MOST_INITIAL = 6
"""Space-filling evaluations before the first fit, at most: the prior of the fit makes a model of a few useful."""

_ROUNDING = 1e-9
"""Differences of values at one point, in ranges of all values, that are rounding and no noise."""

_LEFT_OUT = 0.1
"""Part of the noise variance that the sketch may leave unexplained of an observation."""


@dataclass(frozen=True)
class Practical:
    """Everything is estimated: useful bounds without a guarantee.

    Kernel (Matern 5/2, one lengthscale per feature) and noise are fitted by marginal likelihood, first after the
    initial design and again whenever the data have grown by 30%. Values far on the bad side are cut first, and all are
    made less skewed (Yeo & Johnson 2000) where that makes them more likely. After the initial design the best trial is
    repeated once (not for a context or choices): equal values mean that the objective has no noise. Then the best
    observed trial is recommended, otherwise the one with the largest mean less one standard deviation. The search takes
    one and two standard deviations above the mean in turn, and four every eighth time ("ucb"), or the bound of the
    chosen method. The norm bound, for the interval that is reported and for methods that search with one, is
    ``norm_factor`` times the anytime lower confidence bound of the norm (Flynn & Reeb 2024, Cor. 4.3), recomputed at
    every step, and at least 1 prior standard deviation.

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

    def __post_init__(self) -> None:
        checks.probability("delta", self.delta)
        checks.positive("scale", self.scale)
        if checks.positive("norm_factor", self.norm_factor) < 1:
            raise InvalidInput(f"norm_factor must be at least 1, got {self.norm_factor}: a smaller norm is refuted.")
        checks.maybe(checks.whole, "n_initial", self.n_initial, 2)
        checks.maybe(checks.non_negative, "noise_std", self.noise_std)

    def begin(self, method: str, n_trials: int | None, space: Space) -> PracticalLearner:
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
        return PracticalLearner(self, method, n_trials, n_initial if recipe.has_bounds else math.inf)

    def describe(self, space: Space) -> dict[str, Any]:
        """Return the setting as plain JSON values."""
        given = {name: value for name, value in vars(self).items() if name != "noise_std" or value is not None}
        return {"setting": "practical", **given}  # a journal of a run without a given noise level does not name it


@dataclass(frozen=True)
class Fitted:
    """The numbers that were fitted to some observations.

    Attributes:
        kernel: The kernel.
        noise_std: The noise level, in units of the posterior.
        targets: The map from values to targets of the posterior.
        n: The number of observations, the first ones.
        largest_sem: The largest standard error of the values, if it was taken for the noise level.
    """

    kernel: Kernel
    noise_std: float
    targets: Targets
    n: int
    largest_sem: float | None = None


def fit_raw(X: Tensor, y: Tensor, noise_std: float | None = None, exact: bool = False) -> Fitted:
    """Fit kernel, noise level and constant to values y [n] in units of the objective at X [n D].

    Values are standardised; if that makes them more likely, under their own constant, they are made less skewed, too.

    Args:
        X: Points of the unit cube.
        y: Values.
        noise_std: The noise level in units of the objective, if it is given: then values are standardised only.
        exact: Whether the values have no noise. The "noise" is then the part that the kernel does not explain.
    """
    plain = linear(y)
    if noise_std is not None:
        found = fit(X, plain(y), max(noise_std / plain.spread, LEAST_NOISE))
        return Fitted(found.kernel, found.noise_std, plain.above(found.constant), len(y))
    fits = [(targets, fit(X, targets(y), exact=exact)) for targets in dict.fromkeys([plain, least_skewed(y)])]
    n = min(len(y), MOST)
    targets, found = max(fits, key=lambda pair: pair[1].log_density + n * pair[0].log_slope(y))
    return Fitted(found.kernel, found.noise_std, targets.above(found.constant), len(y))


class PracticalBelief(Belief):
    """A posterior with the fitted kernel and noise level, and bounds with an estimated norm.

    Args:
        setting: Its numbers.
        method: A name of ``kbo.recipes.names()``.
        n_trials: The planned number of trials, for methods that need it.
        fitted: Kernel, noise level and targets. The posterior is sketched if there are many observations, and updated
            in place.

    Attributes:
        exact: Whether the values have no noise; None if that is not known.
    """

    exact: bool | None = None

    def __init__(self, setting: Practical, method: str, n_trials: int | None, fitted: Fitted) -> None:
        self._setting = setting
        self._recipe = recipes.get(method)
        self._n_trials = n_trials
        self.fitted = fitted
        self.targets: Targets = fitted.targets
        made = self._method(norm_bound=1.0)
        self._plain = made.confidence
        self.draws: bool = self._recipe.draws
        if fitted.n > MOST_EXACT and made.dictionary is None and made.posterior is KernelRidge:
            made = replace(made, dictionary=FocusedDictionary(_LEFT_OUT * fitted.noise_std**2, *ANCHORS))
        self.posterior: Posterior = made.state()
        self._norm_bound: tuple[int, float] | None = None

    @property
    def repeats(self) -> bool:
        """Whether no point was evaluated twice, in a setting that estimates the noise."""
        return self.exact is None

    def merit(self, reported: Confidence, features: Tensor, values: Tensor) -> Tensor:
        """Return the values if they have no noise, and else the means less one standard deviation.

        The reported bound is wider, because its width covers all points at once, and would prefer trials that were
        repeated to better ones that were not.
        """
        if self.exact:
            return values
        mean, variance = self.posterior.predict(features)
        return mean - variance.sqrt()

    def _method(self, norm_bound: float) -> Method:
        s, noise_std = self._setting, self.fitted.noise_std
        ridges = [g * noise_std**2 / s.scale for g in GRID] if "ridges" in self._recipe.takes else None
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

    def reported(self) -> Confidence | None:
        """Return AMM in place of tighter mixtures: with an estimated norm those would exclude too much."""
        confidence, s = self.confidence(), self._setting
        if confidence is None:
            return None
        ranks_points = self.draws or confidence.reported() is None
        if not (ranks_points or isinstance(confidence, MartingaleMixture)):
            return confidence
        return MartingaleMixture(self.fitted.noise_std, self.norm_bound(), s.delta, "amm", s.scale)

    def guarantee(self, selected: Sequence[str] = ()) -> str:  # noqa: D102
        if self.reported() is None:
            return NO_BOUND
        numbers, sem = self.assumptions(), self.fitted.largest_sem
        level = f"the noise level ({numbers['noise_std']:.3g})"
        fitted = f"the kernel and {level} were fitted"
        if sem is not None:
            given = f"is the largest standard error given, {sem:.3g}, but at least a hundredth of the spread of values"
            fitted = f"{level} {given}, the kernel was fitted"
        elif self.exact:
            unexplained = f"the part that it does not explain ({numbers['noise_std']:.3g})"
            fitted = f"the objective has no noise, the kernel and {unexplained} were fitted"
        elif self._setting.noise_std is not None:
            fitted = f"{level} was given, the kernel was fitted"
        values = "objective" if self.targets.power == 1 else "transformed objective"
        norm = f"the norm bound ({numbers['norm_bound']:.3g}, of the {values} less its fitted constant)"
        return (
            f"practical, not certified: {fitted} and {norm} was guessed from the same data, so the interval may be too "
            "narrow"
        )

    def assumptions(self) -> dict[str, Any]:
        """Return the estimates, in units of the objective."""
        given = self._setting.noise_std is not None or self.fitted.largest_sem is not None
        fitted = "kernel by marginal likelihood, noise given" if given else "kernel and noise by marginal likelihood"
        return {
            "kernel": "fitted",
            "noise_std": self.fitted.noise_std * self.targets.scale,
            "norm_bound": self.norm_bound() * self.targets.scale,
            "delta": self._setting.delta,
            "from": f"{fitted}, norm bound {self._setting.norm_factor:g} x its lower bound",
        }


class PracticalLearner(Learner):
    """Observations in the practical setting, stored until a belief is needed: replaying a run costs one fit.

    Args:
        setting: Its numbers.
        method: A name of ``kbo.recipes.names()``.
        n_trials: The planned number of trials, for methods that need it.
        n_initial: Observations before the first fit; infinite for methods without a bound.
    """

    def __init__(self, setting: Practical, method: str, n_trials: int | None, n_initial: float) -> None:
        self._given, self._noise_std = (setting, method, n_trials), setting.noise_std
        self._features: list[Tensor] = []
        self._y: list[float] = []
        self._first_values: dict[tuple[float, ...], float] = {}  # by features
        self._exact: bool | None = None if setting.noise_std is None else setting.noise_std == 0
        # Of the first observations, as many as are needed: a fit depends on no others.
        self._next_fit, self._needed = n_initial, 0
        self._plain, self._fit_exactly = Targets(), False
        self._fitted: Fitted | None = None
        self._belief: PracticalBelief | None = None

    def observe(self, number: int, features: Tensor, y: float) -> None:  # noqa: D102
        y = min(max(y, -_LARGEST), _LARGEST)
        outside = abs(float(self._plain(torch.tensor(y, dtype=torch.float64)))) > _OUTSIDE
        point = tuple(features.flatten().tolist())
        if point not in self._first_values:
            self._first_values[point] = y
        elif self._noise_std is None:
            difference = abs(y - self._first_values[point])
            self._exact = self._exact is not False and difference <= _ROUNDING * (max(self._y) - min(self._y))
        self._features.append(features)
        self._y.append(y)
        if len(self._y) >= self._next_fit or (outside and self._needed):
            self._needed = len(self._y)
            self._next_fit = math.ceil(REFIT_GROWTH * self._needed)
            self._fit_exactly = bool(self._exact)
            self._plain = linear(torch.tensor(self._y, dtype=torch.float64))

    def belief(self) -> PracticalBelief | None:
        """Fit if the data have grown enough, update the posterior, and return the belief.

        An interrupted fit or update is done again from the start.
        """
        n = self._needed
        if n == 0:
            return None
        if self._fitted is None or self._fitted.n != n:
            X, y = torch.cat(self._features[:n]), torch.tensor(self._y[:n], dtype=torch.float64)
            noise_std = None if self._fit_exactly else self._noise_std
            self._fitted, self._belief = fit_raw(X, y, noise_std, exact=self._fit_exactly), None
        belief, self._belief = self._belief, None  # stored again when it is complete
        if belief is None:
            belief = PracticalBelief(*self._given, self._fitted)
            self._add(belief, 0, n)
        while belief.posterior.n < len(self._y):
            self._add(belief, belief.posterior.n, belief.posterior.n + 1)
        belief.exact, self._belief = self._exact, belief
        return belief

    def _add(self, belief: PracticalBelief, start: int, stop: int) -> None:
        """Add some observations."""
        X = torch.cat(self._features[start:stop])
        targets = belief.targets(torch.tensor(self._y[start:stop], dtype=torch.float64))
        belief.posterior.update(X, targets)
