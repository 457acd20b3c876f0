"""The practical setting: kernel, noise and norm bound are estimated."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo import checks, recipes
from kbo.confidence import PRACTICAL_MULTIPLE, Confidence, FixedWidth, MartingaleMixture, UnknownNorm
from kbo.errors import InvalidInput
from kbo.optimize.belief import Belief
from kbo.optimize.fitting import fit, unit_kernel
from kbo.recipes.method import Method
from kbo.regression import MOST_ANCHORS, GreedyDictionary, Posterior
from kbo.space import Space

GRID = tuple(10 ** (-1 + 0.4 * i) for i in range(9))
"""Multiples of the mixture ridge for the practical "dmm-ucb": 0.1 to about 160."""

REFIT_GROWTH = 1.3
"""The data grow by this factor between fits, so fits stay rare; waiting for a doubling found clearly worse optima."""

OUTLYING = 1.5
"""Interquartile ranges below the lower quartile at which bad values are cut: a diverged training run should say
"bad", not stretch the scale on which all good ones look alike."""

MOST_EXACT = 2000
"""Observations with an exact posterior; of more, a sketch is taken."""

_LEFT_OUT = 0.1
"""Of the noise variance, what the sketch may leave unexplained of an observation."""


@dataclass(frozen=True)
class Practical:
    """Everything is estimated: useful bounds without a guarantee.

    Kernel (Matern 5/2, one lengthscale per feature) and noise are fitted by marginal likelihood on targets
    standardised to mean 0 and standard deviation 1, first after the initial design and again whenever the data
    have grown by 30%; values far on the bad side are cut first. The search takes one and two standard deviations above
    the mean in turn, and four every eighth time ("ucb"), or the bound of the method that is asked for. The norm bound,
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

    def __post_init__(self) -> None:
        checks.probability("delta", self.delta)
        checks.positive("scale", self.scale)
        if checks.positive("norm_factor", self.norm_factor) < 1:
            raise InvalidInput(f"norm_factor must be at least 1, got {self.norm_factor}: a smaller norm is refuted.")
        if self.n_initial is not None and self.n_initial < 2:
            raise InvalidInput(f"n_initial must be at least 2, got {self.n_initial}.")

    def begin(self, method: str, n_trials: int | None, space: Space) -> Belief:
        """The belief before the first evaluation."""
        return PracticalBelief(self, method, n_trials, self.n_initial or 2 * space.dimension + 2)

    def describe(self, space: Space) -> dict[str, Any]:
        """The setting as plain JSON values."""
        return {"setting": "practical", **vars(self)}


class PracticalBelief(Belief):
    """What the practical setting believes; kernel, noise and constant are fitted when the posterior is asked for.

    Args:
        setting: Its numbers.
        method: A name of ``kbo.recipes.names()``.
        n_trials: The planned number of trials, for methods that need it.
        n_initial: Observations before the first fit.

    Raises:
        InvalidInput: The method is for the certified setting.
    """

    certified = False

    def __init__(self, setting: Practical, method: str, n_trials: int | None, n_initial: int) -> None:
        recipe = recipes.get(method)
        if recipe.norm == "estimated":
            raise InvalidInput(
                f"method {method!r} finds a norm bound of its own, which the practical setting does already: use "
                "'cmm-ucb' with Practical(norm_factor=...), or the certified setting."
            )
        if recipe.fixed_kernel:
            raise InvalidInput(
                f"method {method!r} measures how alike points are under a kernel that stays, and this setting fits it "
                "again and again: use the certified setting, Certified(kernel, ...)."
            )
        if recipe.noise == "online":
            raise InvalidInput(
                f"method {method!r} bounds the noise level online, which takes more trials than fitting it does: use "
                "the certified setting, Certified(noise_std=None, ...), or a method without it."
            )
        recipe.make(unit_kernel(1), 1.0, 1.0, setting.delta, horizon=n_trials)  # errors now, not later
        self.draws = recipe.draws
        self._setting, self._recipe, self._n_trials, self._next_fit = setting, recipe, n_trials, n_initial
        self._features: list[Tensor] = []
        self._y: list[float] = []
        self._due = self._fitted = 0
        self._state: Posterior | None = None
        self._norm: tuple[int, float] | None = None
        self.noise_std = float("nan")

    def observe(self, features: Tensor, y: float) -> None:
        """Add one evaluation, features [1 D]; whether to fit is decided when it matters."""
        self._features.append(features)
        self._y.append(y)
        if len(self._y) >= self._next_fit and self._recipe.has_bounds:
            self._due = len(self._y)
            self._next_fit = math.ceil(REFIT_GROWTH * self._due)

    @property
    def state(self) -> Posterior | None:
        """The posterior, brought up to date when it is asked for: replaying a long run costs one fit."""
        if self._fitted != self._due:
            self._fit(self._due)
        if self._state is not None and (n := self._state.n) < len(self._y):
            targets = torch.tensor([self.target(y) for y in self._y[n:]], dtype=torch.float64)
            fitted, self._fitted = self._fitted, -1  # an interrupted update is done again, from the start
            self._state.update(torch.cat(self._features[n:]), targets)
            self._fitted = fitted
        return self._state

    def _fit(self, n: int) -> None:
        """Kernel, noise and constant by marginal likelihood; a function of the first n observations alone."""
        X, y = torch.cat(self._features[:n]), torch.tensor(self._y[:n], dtype=torch.float64)
        low, high = y.quantile(0.25), y.quantile(0.75)
        floor = float(low - OUTLYING * (high - low)) if high > low else -math.inf
        y = y.clamp_min(floor)
        peak = float(y.abs().max()) or 1.0  # squares of very large targets would overflow
        spread = float((y / peak).std()) * peak
        centre, scale = float((y / peak).mean()) * peak, spread if spread > 0 else 1.0
        kernel, noise_std, constant = fit(X, (y - centre) / scale)
        self._fitted = -1  # whatever interrupts what follows, it is done again
        self.floor, self.location, self.unit = floor, centre + scale * constant, scale
        self.noise_std, self._kernel, self._norm = noise_std, kernel, None
        state = self._posterior(n)
        best_first = y.argsort(descending=True, stable=True)  # so that a sketch is finest where it matters
        order = best_first if n > MOST_EXACT else slice(None)
        state.update(X[order], ((y - self.location) / self.unit)[order])
        self._state, self._fitted = state, n

    def _posterior(self, n: int) -> Posterior:
        """The empty posterior; a sketched one for many observations."""
        method = self._method(self._kernel, norm_bound=1.0)
        if n > MOST_EXACT and method.dictionary is None:
            method = replace(method, dictionary=GreedyDictionary(_LEFT_OUT * self.noise_std**2, most=MOST_ANCHORS))
        return method.state()

    @property
    def norm_bound(self) -> float:
        """The guess of the norm, of the objective less its constant, in the posterior's units."""
        state, s = self.state, self._setting
        if state is None:
            return math.nan
        if self._norm is None or self._norm[0] != state.n:
            guess = UnknownNorm(self.noise_std, s.delta, scale=s.scale, guess=1.0, multiple=s.norm_factor)
            self._norm = state.n, guess.norm_bound(state)
        return self._norm[1]

    def confidence(self) -> Confidence | None:
        """The bound of the method, with the estimates put in for what it assumes."""
        if self.state is None:
            return None
        plain = self._method(self._kernel, norm_bound=1.0).confidence
        if plain is None or isinstance(plain, FixedWidth):
            return plain  # which no norm bound changes
        return self._method(self._kernel, self.norm_bound).confidence

    def reported(self) -> Confidence | None:
        """AMM in place of tighter mixtures: they rest on a guessed norm, and with that guess would exclude too much."""
        confidence, s = self.confidence(), self._setting
        if confidence is None or not (self.draws or isinstance(confidence, MartingaleMixture | FixedWidth)):
            return confidence
        return MartingaleMixture(self.noise_std, self.norm_bound, s.delta, "amm", s.scale)

    @property
    def _ridges(self) -> list[float]:
        return [g * self.noise_std**2 / self._setting.scale for g in GRID]

    def _method(self, kernel: Kernel, norm_bound: float) -> Method:
        numbers = (kernel, self.noise_std, norm_bound, self._setting.delta)
        scale, horizon = self._setting.scale, self._n_trials
        ridges = self._ridges if "ridges" in self._recipe.takes else None
        return self._recipe.make(*numbers, scale=scale, horizon=horizon, ridges=ridges)

    def assumptions(self) -> dict[str, Any]:
        """The estimates, in raw units."""
        norm_bound = self.norm_bound  # first: it brings the others up to date
        return {
            "kernel": "fitted",
            "noise_std": self.noise_std * self.unit,
            "norm_bound": norm_bound * self.unit,
            "delta": self._setting.delta,
            "from": "kernel and noise by marginal likelihood, "
            f"norm bound {self._setting.norm_factor:g} x its lower bound",
        }

    def estimates(self) -> str:
        """Which numbers were fitted, and how the norm bound was guessed."""
        _ = self.state  # brings what follows up to date
        return f"the kernel and {self._level} were fitted and {self._guess}"

    @property
    def _level(self) -> str:
        return f"the noise level ({self.noise_std * self.unit:.3g})"

    @property
    def _guess(self) -> str:
        norm = f"the norm bound ({self.norm_bound * self.unit:.3g}, of the objective less its fitted constant)"
        return f"{norm} was guessed from the same data"
