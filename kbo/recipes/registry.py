"""Named algorithms: posterior + confidence + rule, in one registry for every front end.

A new method is one entry here. ``make`` turns a name and the numbers of a problem into a ``Method``, which plays
finite action sets (``choose``) and continuous boxes (``model`` and ``acquisition``) alike.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from gpytorch.kernels import Kernel
from torch import Tensor

from kbo import checks
from kbo.confidence import (
    BKB,
    EKUCB,
    PRACTICAL_MULTIPLE,
    AdaptiveMixture,
    AdaptiveSelfNormalized,
    AlternatingWidth,
    Chaining,
    FiniteSet,
    FixedWidth,
    ImprovedGPUCB,
    MartingaleMixture,
    NoiseBounds,
    SelfNormalized,
    UnknownNorm,
    widths,
)
from kbo.errors import InvalidInput
from kbo.recipes.elimination import StagedElimination
from kbo.recipes.method import Method
from kbo.recipes.thompson import ThompsonSampling
from kbo.regression import (
    MOST_ANCHORS,
    BatchedResampling,
    Dictionary,
    GreedyDictionary,
    LeverageResampling,
    OnlineRowSampling,
)

Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class Setting:
    """The numbers that a recipe may need; ``ridge = noise_std^2 / scale`` unless it is given or the recipe fixes it."""

    kernel: Kernel
    noise_std: float
    norm_bound: float
    delta: float
    scale: float = 1.0
    horizon: int | None = None
    n_points: int | None = None
    ridges: list[float] | None = None
    given_ridge: float | None = None
    dictionary: Dictionary | None = None
    seed: int = 0
    noise_upper: float | None = None
    noise_lower: float = 0.0
    noise_variant: str = "tight+grid"
    points: Tensor | None = None

    def noise(self, variant: str | None = None, share: float = 1.0) -> NoiseBounds:
        """Bounds of the noise level that may fail with a ``share`` of delta."""
        delta, variant = self.delta * share, variant or self.noise_variant
        return NoiseBounds(self.norm_bound, delta, self.noise_upper, self.noise_lower, variant)

    @property
    def ridge(self) -> float:
        """The ridge of recipes that do not fix it."""
        return self.noise_std**2 / self.scale if self.given_ridge is None else self.given_ridge


def names() -> list[str]:
    """The names that ``make`` knows."""
    return sorted(_RECIPES)


def make(
    name: str,
    kernel: Kernel,
    noise_std: float,
    norm_bound: float,
    delta: float,
    *,
    scale: float = 1.0,
    horizon: int | None = None,
    n_points: int | None = None,
    ridges: list[float] | None = None,
    ridge: float | None = None,
    dictionary: Dictionary | None = None,
    multiplier: float | None = None,
    seed: int = 0,
    noise_upper: float | None = None,
    noise_lower: float = 0.0,
    noise_variant: str = "tight+grid",
    points: Tensor | None = None,
) -> Method:
    """The method of that name for a problem.

    Args:
        name: One of ``names()``.
        kernel: An unbatched GPyTorch kernel.
        noise_std: Sub-Gaussian constant of the noise, in units of the targets; not used by "...-adaptive", which find
            it out, and "...-fixed", which use ``noise_upper``.
        norm_bound: Bound of the RKHS norm of the function; not used by "cmm-ucb-doubling" and "cmm-ucb-practical",
            which do without, nor by "random" and "ucb", nor by "gp-ucb" and "chaining-ucb...", which trust a
            Gaussian-process prior.
        delta: Probability that the bounds may fail; a fourth or a twelfth of it for Thompson sampling, as in the paper.
        scale: Covariance scale c of the mixtures; the ridge is ``noise_std^2 / c``.
        horizon: Number of rounds T, needed by "igp-ucb" (its ridge is 1 + 2 / T) and "supk-ucb".
        n_points: Size of the finite set, needed by "gp-ucb"; number of arms of a round, needed by "supk-ucb".
        ridges: The grid of "dmm-ucb", instead of the paper's.
        ridge: The ridge of "ucb", "ay-gp-ucb", "k-ucb", "supk-ucb", "bkb", "bbkb" and "ek-ucb", instead of
            ``noise_std^2 / c``; also the mu of "ek-ucb".
        dictionary: The dictionary of a sketched method, instead of its own.
        seed: Seed of the random dictionaries that recipes bring along.
        noise_upper: An upper bound of the noise level, needed by "...-fixed"; "...-adaptive" begin with it, if given.
        noise_lower: A lower bound of the noise level, for "...-adaptive".
        noise_variant: The variant of ``NoiseBounds`` of "kernel-ucb-adaptive" and "kernel-ts-adaptive".
        points: The finite set [N d] of "gp-ucb", instead of its size, and of "chaining-ucb..."; if omitted there, the
            arms that are offered together.
        multiplier: Replace the bound by ``mean + multiplier sqrt(leverage)``, as experiments do: without a guarantee.

    Raises:
        InvalidInput: An unknown name (the message has near ones), or a number that the recipe needs is missing.
    """
    recipe = _recipe(name)
    checks.positive("scale", scale)
    for what, number in (("horizon", horizon), ("n_points", n_points)):
        if number is not None:
            checks.positive(what, number)
    if ridge is not None:
        checks.positive("ridge", ridge)
    numbers = (kernel, noise_std, norm_bound, delta, scale, horizon, n_points, ridges)
    told = {"noise_upper": noise_upper, "noise_lower": noise_lower, "noise_variant": noise_variant, "points": points}
    method = recipe(name, Setting(*numbers, given_ridge=ridge, dictionary=dictionary, seed=seed, **told))
    _refuse_unused(name, method, ridge, dictionary)
    if multiplier is not None:
        checks.non_negative("multiplier", multiplier)
        method = method.with_multiplier(multiplier)
    return method


def _refuse_unused(name: str, method: Method, ridge: float | None, dictionary: Dictionary | None) -> None:
    """Raise InvalidInput if the method does not use what was given."""
    if ridge is not None and (method.ridge != ridge or method.noise is not None):
        raise InvalidInput(f"method {name!r} has a ridge of its own, {method.ridge:g}: do not pass ridge.")
    if dictionary is not None and method.dictionary is not dictionary:
        raise InvalidInput(f"method {name!r} has an exact posterior: do not pass dictionary.")


def _recipe(name: str) -> Callable[[str, Setting], Method]:
    if name in _RECIPES:
        return _RECIPES[name]
    near = difflib.get_close_matches(str(name), _RECIPES, n=3, cutoff=0.3)
    hint = f" did you mean {' or '.join(map(repr, near))}?" if near else ""
    raise InvalidInput(f"unknown method {name!r}:{hint} Known: {', '.join(names())}.")


def _needed(name: str, what: str, value: Number | None) -> Number:
    if value is None:
        option = ", to Certified, or as kbo run --noise-upper ..." if what == "noise_upper" else ""
        raise InvalidInput(f"method {name!r} needs {what}: pass {what}=... to recipes.make{option}.")
    return value


def _random(name: str, s: Setting) -> Method:
    return Method(name, s.kernel, s.noise_std**2 / s.scale, None)


def _ucb(name: str, s: Setting) -> Method:
    return Method(name, s.kernel, s.ridge, AlternatingWidth(*PRACTICAL_WIDTHS), s.dictionary)


def _gp_ucb(name: str, s: Setting) -> Method:
    n_points = s.n_points if s.points is None else len(s.points)
    return Method(name, s.kernel, s.noise_std**2, FiniteSet(_needed(name, "n_points", n_points), s.delta))


def _chaining_ucb(name: str, s: Setting) -> Method:
    confidence = Chaining(s.delta, rigorous=name.endswith("rigorous"), points=s.points)
    return Method(name, s.kernel, s.noise_std**2, confidence)


def _igp_ucb(name: str, s: Setting) -> Method:
    eta = 2 / _needed(name, "horizon", s.horizon)
    return Method(name, s.kernel, 1 + eta, ImprovedGPUCB(s.noise_std, s.norm_bound, s.delta, eta))


def _ay_gp_ucb(name: str, s: Setting) -> Method:
    return Method(name, s.kernel, s.ridge, SelfNormalized(s.noise_std, s.norm_bound, s.delta))


def _supk_ucb(name: str, s: Setting) -> Method:
    horizon, n_points = _needed(name, "horizon", s.horizon), _needed(name, "n_points", s.n_points)
    width = widths.valko(n_points, horizon, s.ridge, s.noise_std, s.norm_bound, s.delta)
    return StagedElimination(name, s.kernel, s.ridge, FixedWidth(width), horizon=horizon, reward_scale=s.norm_bound)


def _bkb(name: str, s: Setting) -> Method:
    dictionary = s.dictionary or LeverageResampling(most=MOST_ANCHORS, seed=s.seed)
    return Method(name, s.kernel, s.ridge, BKB(s.noise_std, s.norm_bound, s.delta), dictionary)


def _bbkb(name: str, s: Setting) -> Method:
    dictionary = s.dictionary or BatchedResampling(most=MOST_ANCHORS, seed=s.seed)
    return Method(name, s.kernel, s.ridge, BKB(s.noise_std, s.norm_bound, s.delta), dictionary)


def _ek_ucb(name: str, s: Setting) -> Method:
    dictionary = s.dictionary or OnlineRowSampling(s.ridge, most=MOST_ANCHORS, seed=s.seed)
    mu = dictionary.mu if isinstance(dictionary, OnlineRowSampling) else s.ridge
    return Method(name, s.kernel, s.ridge, EKUCB(s.noise_std, s.norm_bound, s.delta, mu), dictionary)


def _sketched_cmm(name: str, s: Setting) -> Method:
    # What the sketch leaves out costs B sqrt|E|: at a hundredth of the noise per observation it hardly shows.
    dictionary = s.dictionary or GreedyDictionary(0.01 * s.noise_std**2 / s.norm_bound**2, most=MOST_ANCHORS)
    confidence = MartingaleMixture(s.noise_std, s.norm_bound, s.delta, "cmm", s.scale)
    return Method(name, s.kernel, confidence.mixture_ridge, confidence, dictionary)


def _amm_ucb(name: str, s: Setting) -> Method:
    confidence = MartingaleMixture(s.noise_std, s.norm_bound, s.delta, "amm", s.scale)
    return Method(name, s.kernel, confidence.mixture_ridge, confidence)


def _dmm_ucb(name: str, s: Setting) -> Method:
    confidence = MartingaleMixture(s.noise_std, s.norm_bound, s.delta, "dmm", s.scale, s.ridges)
    return Method(name, s.kernel, confidence.mixture_ridge, confidence)


def _cmm_ucb(name: str, s: Setting) -> Method:
    confidence = MartingaleMixture(s.noise_std, s.norm_bound, s.delta, "cmm", s.scale)
    return Method(name, s.kernel, confidence.mixture_ridge, confidence)


def _cmm_ucb_doubling(name: str, s: Setting) -> Method:
    confidence = UnknownNorm(s.noise_std, s.delta, scale=s.scale)
    return Method(name, s.kernel, s.noise_std**2 / s.scale, confidence)


def _cmm_ucb_practical(name: str, s: Setting) -> Method:
    confidence = UnknownNorm(s.noise_std, s.delta, scale=s.scale, multiple=PRACTICAL_MULTIPLE)
    return Method(name, s.kernel, s.noise_std**2 / s.scale, confidence)


def _kernel_ucb(name: str, s: Setting) -> Method:
    told = _told(name, s)
    return Method(name, s.kernel, (told / s.norm_bound) ** 2, SelfNormalized(told, s.norm_bound, s.delta))


def _kernel_ts(name: str, s: Setting) -> Method:
    told = _told(name, s)
    confidence = SelfNormalized(told, s.norm_bound, _TS_SHARE * s.delta)
    return ThompsonSampling(name, s.kernel, (told / s.norm_bound) ** 2, confidence)


def _told(name: str, s: Setting) -> float:
    """The noise level of Kernel UCB and TS: the true one for an oracle, else the upper bound."""
    return s.noise_std if name.endswith("oracle") else _needed(name, "noise_upper", s.noise_upper)


def _kernel_ucb_adaptive(name: str, s: Setting) -> Method:
    noise = s.noise()
    return Method(name, s.kernel, noise.ridge, AdaptiveSelfNormalized(), s.dictionary, noise)


def _kernel_ts_adaptive(name: str, s: Setting) -> Method:
    noise = s.noise(share=_TS_SHARE * 3)  # the noise bounds give each of their three events a third
    return ThompsonSampling(name, s.kernel, noise.ridge, AdaptiveSelfNormalized(), s.dictionary, noise)


def _plain_ts(name: str, s: Setting) -> Method:
    # The Gaussian process with prior covariance scale * k: inflation 1.
    confidence = FixedWidth(s.noise_std / math.sqrt(s.ridge))
    return ThompsonSampling(name, s.kernel, s.ridge, confidence, s.dictionary)


def _mixture_adaptive(name: str, s: Setting) -> Method:
    noise = s.noise("mixture")
    return Method(name, s.kernel, noise.ridge, AdaptiveMixture(name.partition("-")[0]), s.dictionary, noise)


PRACTICAL_WIDTHS = (1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 4.0)
"""Standard deviations above the mean at which "ucb" searches in turn; chosen by measurement (docs/performance.md)."""

_TS_SHARE = 1 / 12
"""Of delta at which Durand et al. (2018), Sec. 6.4, take the radius of Thompson sampling."""

_RECIPES: dict[str, Callable[[str, Setting], Method]] = {
    "random": _random,
    "ucb": _ucb,
    "gp-ucb": _gp_ucb,
    "chaining-ucb": _chaining_ucb,
    "chaining-ucb-rigorous": _chaining_ucb,
    "igp-ucb": _igp_ucb,
    "ay-gp-ucb": _ay_gp_ucb,
    "amm-ucb": _amm_ucb,
    "dmm-ucb": _dmm_ucb,
    "cmm-ucb": _cmm_ucb,
    "cmm-ucb-doubling": _cmm_ucb_doubling,
    "cmm-ucb-practical": _cmm_ucb_practical,
    "k-ucb": _ay_gp_ucb,  # the log-determinant instead of the paper's bound of it by the effective dimension, KUCB
    "supk-ucb": _supk_ucb,
    "bkb": _bkb,
    "bbkb": _bbkb,
    "ek-ucb": _ek_ucb,
    "sketched-cmm": _sketched_cmm,
    "kernel-ucb-oracle": _kernel_ucb,
    "kernel-ucb-fixed": _kernel_ucb,
    "kernel-ucb-adaptive": _kernel_ucb_adaptive,
    "kernel-ts-oracle": _kernel_ts,
    "kernel-ts-fixed": _kernel_ts,
    "kernel-ts-adaptive": _kernel_ts_adaptive,
    "kernel-ts": _plain_ts,
    "dmm-ucb-adaptive": _mixture_adaptive,
    "cmm-ucb-adaptive": _mixture_adaptive,
    # With a context in every point, BKB and BBKB are what the contextual literature calls:
    "c-bkb": _bkb,
    "c-bbkb": _bbkb,
}
