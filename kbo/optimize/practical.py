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
from kbo.optimize.fitting import fit, unit_kernel
from kbo.recipes.method import Method
from kbo.regression import MOST_ANCHORS, GreedyDictionary, KernelRidge, Posterior
from kbo.space import Space

GRID = tuple(10 ** (-1 + 0.4 * i) for i in range(9))
"""Multiples of the mixture ridge for the practical "dmm-ucb": 0.1 to about 160."""

REFIT_GROWTH = 1.3
"""The data grow by this factor between fits, so fits stay rare; waiting for a doubling found clearly worse optima."""

OUTLYING = 1.5
"""Interquartile ranges below the lower quartile at which bad values are cut: a diverged training run should count as
bad and not stretch the scale so far that all good ones look alike."""

MOST_EXACT = 2000
"""Observations with an exact posterior; of more, a sketch is taken."""

_LARGEST, _OUTSIDE = 1e300, 1e100
"""Size at which values are cut, so that their differences stay finite; and standard deviations from the mean at which a
value asks for a fit at once, since its square would overflow."""

_LEFT_OUT = 0.1
"""Part of the noise variance that the sketch may leave unexplained of an observation."""


@dataclass(frozen=True)
class Practical:
    """Everything is estimated: useful bounds without a guarantee.

    Kernel (Matern 5/2, one lengthscale per feature) and noise are fitted by marginal likelihood on targets
    standardised to mean 0 and standard deviation 1, first after the initial design and again whenever the data
    have grown by 30%; values far on the bad side are cut first. The search takes one and two standard deviations above
    the mean in turn, and four every eighth time ("ucb"), or the bound of the chosen method. The norm bound,
    for the interval that is reported and for methods that search with one, is ``norm_factor`` times the anytime lower
    confidence bound of the norm (Flynn & Reeb 2024, Cor. 4.3), recomputed at every step, and at least 1 prior standard
    deviation.

    Args:
        delta: Nominal failure probability of the bounds.
        scale: Covariance scale of the mixture.
        norm_factor: Multiple of the lower confidence bound of the norm.
        n_initial: Space-filling evaluations before the first fit; by default ``2 P + 2`` for P parameters.
    """

    delta: float = 0.1
    scale: float = 1.0
    norm_factor: float = PRACTICAL_MULTIPLE
    n_initial: int | None = None

    default_method: ClassVar[str] = "ucb"
    certified: ClassVar[bool] = False

    def __post_init__(self) -> None:
        checks.probability("delta", self.delta)
        checks.positive("scale", self.scale)
        if checks.positive("norm_factor", self.norm_factor) < 1:
            raise InvalidInput(f"norm_factor must be at least 1, got {self.norm_factor}: a smaller norm is refuted.")
        checks.maybe(checks.whole, "n_initial", self.n_initial, 2)

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
        n_initial = self.n_initial or 2 * space.dimension + 2
        return PracticalLearner(self, method, n_trials, n_initial if recipe.has_bounds else math.inf)

    def describe(self, space: Space) -> dict[str, Any]:
        """Return the setting as plain JSON values."""
        return {"setting": "practical", **vars(self)}


@dataclass(frozen=True)
class Fitted:
    """The numbers that were fitted to some observations.

    Attributes:
        kernel: The kernel.
        noise_std: The noise level, in units of the posterior.
        location, unit, floor: A value y is ``(max(y, floor) - location) / unit`` in units of the posterior.
        n: The number of observations, the first ones.
        largest_sem: The largest standard error of the values, if it was taken for the noise level.
    """

    kernel: Kernel
    noise_std: float
    location: float
    unit: float
    floor: float
    n: int
    largest_sem: float | None = None


def units_of(y: Tensor) -> tuple[float, float, float]:
    """Return where values y [n] are cut below, and their mean and standard deviation then (1 in place of 0)."""
    low, high = y.quantile(0.25), y.quantile(0.75)
    floor = float(low - OUTLYING * (high - low)) if high > low else -math.inf
    y = y.clamp_min(floor)
    peak = float(y.abs().max()) or 1.0  # squares of very large targets would overflow
    spread = float((y / peak).std()) * peak
    return floor, float((y / peak).mean()) * peak, spread if spread > 0 else 1.0


def fit_raw(X: Tensor, y: Tensor) -> Fitted:
    """Fit kernel, noise level and constant to values y [n] in units of the objective at X [n D]."""
    floor, centre, unit = units_of(y)
    found = fit(X, (y.clamp_min(floor) - centre) / unit)
    return Fitted(found.kernel, found.noise_std, centre + unit * found.constant, unit, floor, len(y))


class PracticalBelief(Belief):
    """A posterior with the fitted kernel and noise level, and bounds with an estimated norm.

    Args:
        setting: Its numbers.
        method: A name of ``kbo.recipes.names()``.
        n_trials: The planned number of trials, for methods that need it.
        fitted: Kernel, noise level and units. The posterior is sketched if there are many observations, and updated
            in place.
    """

    def __init__(self, setting: Practical, method: str, n_trials: int | None, fitted: Fitted) -> None:
        self._setting = setting
        self._recipe = recipes.get(method)
        self._n_trials = n_trials
        self.fitted = fitted
        self.location: float = fitted.location
        self.unit: float = fitted.unit
        self.floor: float = fitted.floor
        made = self._method(norm_bound=1.0)
        self._plain = made.confidence
        self.draws: bool = self._recipe.draws
        if fitted.n > MOST_EXACT and made.dictionary is None and made.posterior is KernelRidge:
            made = replace(made, dictionary=GreedyDictionary(_LEFT_OUT * fitted.noise_std**2, most=MOST_ANCHORS))
        self.posterior: Posterior = made.state()
        self._norm_bound: tuple[int, float] | None = None

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
        level, sem = f"the noise level ({self.fitted.noise_std * self.unit:.3g})", self.fitted.largest_sem
        norm = f"the norm bound ({self.norm_bound() * self.unit:.3g}, of the objective less its fitted constant)"
        fitted = f"the kernel and {level} were fitted"
        if sem is not None:
            given = f"is the largest standard error given, {sem:.3g}, but at least a hundredth of the spread of values"
            fitted = f"{level} {given}, the kernel was fitted"
        return (
            f"practical, not certified: {fitted} and {norm} was guessed from the same data, so the interval may be too "
            "narrow"
        )

    def assumptions(self) -> dict[str, Any]:
        """Return the estimates, in units of the objective."""
        factor = f"{self._setting.norm_factor:g}"
        return {
            "kernel": "fitted",
            "noise_std": self.fitted.noise_std * self.unit,
            "norm_bound": self.norm_bound() * self.unit,
            "delta": self._setting.delta,
            "from": f"kernel and noise by marginal likelihood, norm bound {factor} x its lower bound",
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
        self._given = setting, method, n_trials
        self._features: list[Tensor] = []
        self._y: list[float] = []
        self._next_fit, self._needed = n_initial, 0
        self._units = -math.inf, 0.0, 1.0  # of the first observations, as many as are needed
        self._fitted: Fitted | None = None
        self._belief: PracticalBelief | None = None

    def observe(self, number: int, features: Tensor, y: float) -> None:  # noqa: D102
        y = min(max(y, -_LARGEST), _LARGEST)
        floor, centre, unit = self._units
        outside = abs(max(y, floor) - centre) > _OUTSIDE * unit
        self._features.append(features)
        self._y.append(y)
        if len(self._y) >= self._next_fit or (outside and self._needed):
            self._needed = len(self._y)
            self._next_fit = math.ceil(REFIT_GROWTH * self._needed)
            self._units = units_of(torch.tensor(self._y, dtype=torch.float64))

    def belief(self) -> PracticalBelief | None:
        """Fit if the data have grown enough, update the posterior, and return the belief.

        An interrupted fit or update is done again from the start.
        """
        n = self._needed
        if n == 0:
            return None
        if self._fitted is None or self._fitted.n != n:
            X, y = torch.cat(self._features[:n]), torch.tensor(self._y[:n], dtype=torch.float64)
            self._fitted, self._belief = fit_raw(X, y), None
        belief, self._belief = self._belief, None  # stored again when it is complete
        if belief is None:
            belief = PracticalBelief(*self._given, self._fitted)
            self._add(belief, 0, n)
        if belief.posterior.n < len(self._y):
            self._add(belief, belief.posterior.n, len(self._y))
        self._belief = belief
        return belief

    def _add(self, belief: PracticalBelief, start: int, stop: int) -> None:
        """Add some observations; many first ones best first, so that a sketch is finest at the best."""
        X = torch.cat(self._features[start:stop])
        targets = torch.tensor([belief.target(y) for y in self._y[start:stop]], dtype=torch.float64)
        if start == 0 and stop > MOST_EXACT:
            best_first = targets.argsort(descending=True, stable=True)
            X, targets = X[best_first], targets[best_first]
        belief.posterior.update(X, targets)
