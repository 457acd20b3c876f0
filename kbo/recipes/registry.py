"""Named algorithms as data: one entry for each, used alike by every front end.

A new method is one entry in ``RECIPES``. ``make`` turns a name and the numbers of a problem into a ``Method``, which
chooses among finite action sets (``choose``) and searches boxes (``model`` and ``acquisition``).
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from gpytorch.kernels import Kernel

from kbo import checks
from kbo.confidence import (
    BKB,
    EKUCB,
    PRACTICAL_MULTIPLE,
    AdaptiveMixture,
    AdaptiveSelfNormalized,
    AlternatingWidth,
    Chaining,
    Confidence,
    FiniteSet,
    FixedWidth,
    ImprovedGPUCB,
    MartingaleMixture,
    MixtureNoiseBounds,
    NoiseBounds,
    NoiseLevel,
    SelfNormalized,
    UnknownNorm,
    widths,
)
from kbo.confidence.mixture.radius import checked_scale, mixture_ridges
from kbo.errors import InvalidInput
from kbo.recipes.elimination import StagedElimination
from kbo.recipes.method import Inputs, Method, Rule, ThompsonSampling, UniformChoice, UpperBound
from kbo.regression import (
    MOST_ANCHORS,
    BatchedResampling,
    Dictionary,
    GreedyDictionary,
    KernelRidge,
    LeverageResampling,
    OnlineRowSampling,
    Posterior,
)

PRACTICAL_WIDTHS = (1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 4.0, 1.0)
"""Standard deviations above the mean at which "ucb" searches in turn; chosen by measurement (docs/comparisons.md). The
largest has an even number, since without noise the trials of odd numbers are searched for near the best one."""

OPTIONS = {
    "ridge": "a ridge of its own",
    "ridges": "no grid of ridges",
    "dictionary": "an exact posterior",
    "multiplier": "no bound at a fixed ridge for which a multiplier has a meaning",
}
"""Inputs that a recipe refuses unless it uses them, and why; the others are facts about a problem, for any recipe."""


@dataclass(frozen=True)
class Recipe:
    """A named method: its posterior, confidence and rule, and the inputs it needs.

    Attributes:
        name: The name in ``RECIPES``.
        confidence: Makes the confidence from the inputs, in which ridge and dictionary are set; None for no bound.
        ridge: Makes the ridge of the posterior, unless it is given or follows bounds of the noise level.
        dictionary: Makes the dictionary of a sketched posterior; None for an exact one, unless a dictionary is given.
        rule: The choice of the next point.
        noise: Source of the noise level: "given" (``noise_std``), "upper bound" (``noise_upper``), or "online", that is
            ``noise_bounds``, which the ridge follows.
        norm: Source of the norm bound: "given" (``norm_bound``), "estimated" from the data, or "unused".
        needs: Names of inputs that must be given, besides noise level and norm bound.
        takes: Names of ``OPTIONS`` that may be given.
        noise_bounds: Their class if ``noise`` is "online".
        noise_share: Share of delta at which they are taken.
        fixed_kernel: Whether the bound rests on distances between points under a kernel that must not be refitted; to
            search a space it needs all ``points`` of it.
        counts_each_round: Whether ``n_points`` counts the arms of one round, not of all rounds.
        posterior: Makes an empty posterior from kernel and ridge, where there is no dictionary.
    """

    name: str
    confidence: Callable[[Inputs], Confidence] | None
    ridge: Callable[[Inputs], float] = lambda s: _middle(mixture_ridges(s.noise_std, s.scale))
    dictionary: Callable[[Inputs], Dictionary] | None = None
    rule: type[Rule] = UpperBound
    noise: Literal["given", "upper bound", "online"] = "given"
    norm: Literal["given", "estimated", "unused"] = "given"
    needs: Collection[str] = ()
    takes: Collection[str] = ("multiplier",)
    noise_bounds: type[NoiseLevel] = NoiseBounds
    noise_share: float = 1.0
    fixed_kernel: bool = False
    counts_each_round: bool = False
    posterior: Callable[[Kernel, float], Posterior] = KernelRidge

    @property
    def needs_horizon(self) -> bool:
        """Whether the number of rounds must be known."""
        return "horizon" in self.needs

    @property
    def needs_finite_set(self) -> bool:
        """Whether the method is for finite sets of points of known size, not for boxes."""
        return "n_points" in self.needs

    @property
    def has_bounds(self) -> bool:
        """Whether the method has a confidence."""
        return self.confidence is not None

    @property
    def draws(self) -> bool:
        """Whether the next point maximises a random draw of the function."""
        return self.rule.draws

    def make(
        self, kernel: Kernel, noise_std: float | None, norm_bound: float | None, delta: float, **options: Any
    ) -> Method:
        """Return the method for a problem; arguments and errors as for ``kbo.recipes.make``."""
        given = {name: value for name, value in options.items() if value is not None}
        checks.probability("delta", delta)
        self._check(given | {"noise_std": noise_std, "norm_bound": norm_bound})
        s = Inputs(kernel, noise_std, norm_bound, delta, **given)  # pyright: ignore[reportArgumentType]
        s.scale = checked_scale(s.scale)
        noise = None
        if s.points is not None:
            s.n_points = len(checks.rows("points", s.points))
        if self.noise == "upper bound":
            s.noise_std = given["noise_upper"]
        if self.noise == "online":
            strict = {"strict": True} if s.strict_noise else {}
            noise = self.noise_bounds(s.norm_bound, self.noise_share * s.delta, s.noise_upper, s.noise_lower, **strict)
            s.ridge = noise.ridge
        elif "ridge" not in given:
            s.ridge = self.ridge(s)
        if s.dictionary is None and self.dictionary is not None:
            s.dictionary = self.dictionary(s)
        confidence = None if self.confidence is None else self.confidence(s)
        if isinstance(s.scale, tuple) and getattr(confidence, "scale", None) != s.scale:
            raise InvalidInput(f"method {self.name!r} averages over no scales: pass one number, or choose 'cmm-ucb'.")
        rule = self.rule.from_inputs(s)
        method = Method(self.name, kernel, s.ridge, confidence, s.dictionary, noise, rule, self.posterior)
        return method if s.multiplier is None else method.with_multiplier(s.multiplier)

    def _check(self, given: dict[str, Any]) -> None:
        """Raise InvalidInput if an input is missing, unknown, out of range or not used."""
        known = [entry.name for entry in fields(Inputs)]
        for name, value in given.items():
            if name not in known:
                raise InvalidInput(f"recipes.make has no option {name!r}:{_near(name, known)}")
            if name in OPTIONS and name not in self.takes:
                takes = ", ".join(self.takes) or "no options"
                raise InvalidInput(f"method {self.name!r} has {OPTIONS[name]}: do not pass {name}. It takes {takes}.")
            if name == "strict_noise" and checks.flag(name, value) and self.noise_bounds is not MixtureNoiseBounds:
                raise InvalidInput(f"method {self.name!r} has no MixtureNoiseBounds: do not pass strict_noise.")
            if name in ("horizon", "n_points", "ridge", "noise_std", "noise_upper") and value is not None:
                checks.positive(name, value)
        checks.non_negative("multiplier", given.get("multiplier", 0.0))
        checks.non_negative("noise_lower", given.get("noise_lower", 0.0))
        checks.seed(given.get("seed", 0))
        level = {"given": ["noise_std"], "upper bound": ["noise_upper"], "online": []}[self.noise]
        for name in (*self.needs, *level, *["norm_bound"] * (self.norm == "given")):
            if given.get(name) is None and not (name == "n_points" and "points" in given):
                more = ", to Certified, or as kbo run --noise-upper ..." if name == "noise_upper" else ""
                raise InvalidInput(f"method {self.name!r} needs {name}: pass {name}=... to recipes.make{more}.")


def names() -> list[str]:
    """Return the names of all recipes, sorted."""
    return sorted(RECIPES)


def get(name: str) -> Recipe:
    """Return the recipe of that name.

    Raises:
        InvalidInput: An unknown name; the message has near ones.
    """
    if not isinstance(name, str) or name not in RECIPES:
        raise InvalidInput(f"unknown method {checks.shown(name)}:{_near(name, RECIPES)}")
    return RECIPES[name]


def make(
    name: str, kernel: Kernel, noise_std: float | None, norm_bound: float | None, delta: float, **options: Any
) -> Method:
    """Return the method of that name for a problem.

    Args:
        name: One of ``names()``.
        kernel: An unbatched GPyTorch kernel.
        noise_std: Sub-Gaussian constant of the noise, in units of the targets; None for recipes that do not use it.
        norm_bound: Bound of the RKHS norm of the function; None for recipes that do not use it.
        delta: Probability that the bounds may fail.
        options: Any of the optional fields of ``kbo.recipes.Inputs``; None is the same as left out.

    Raises:
        InvalidInput: An unknown name or option (the message has near ones), an input that the recipe needs is missing,
            or an option that it does not use is given.
    """
    return get(name).make(kernel, noise_std, norm_bound, delta, **options)


def _near(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name.lower() if isinstance(name, str) else "", known, n=3, cutoff=0.3)
    hint = f" did you mean {' or '.join(map(repr, near))}?" if near else ""
    return f"{hint}{' All names' if near else ' the names are'}: {', '.join(sorted(known))}."


def _middle(ridges: Sequence[float]) -> float:
    return ridges[len(ridges) // 2]


def _noise_variance(s: Inputs) -> float:
    return s.noise_std**2


def _noise_to_norm(s: Inputs) -> float:
    return (s.noise_std / s.norm_bound) ** 2


def _self_normalized(share: float = 1.0) -> Callable[[Inputs], Confidence]:
    return lambda s: SelfNormalized(s.noise_std, s.norm_bound, share * s.delta)


def _mixture(kind: str) -> Callable[[Inputs], Confidence]:
    return lambda s: MartingaleMixture(s.noise_std, s.norm_bound, s.delta, kind, s.scale, s.ridges)


def _unknown_norm(multiple: float | None) -> Callable[[Inputs], Confidence]:
    return lambda s: UnknownNorm(s.noise_std, s.delta, scale=s.scale, multiple=multiple)


def _finite_set(s: Inputs) -> Confidence:
    return FiniteSet(s.n_points if s.points is None else s.points, s.delta)


def _chaining(rigorous: bool) -> Callable[[Inputs], Confidence]:
    return lambda s: Chaining(s.delta, rigorous=rigorous, points=s.points)


def _bkb(name: str, dictionary: type[LeverageResampling]) -> Recipe:
    return Recipe(
        name,
        lambda s: BKB(s.noise_std, s.norm_bound, s.delta),
        dictionary=lambda s: dictionary(most=MOST_ANCHORS, seed=s.seed),
        takes=_SKETCHED,
    )


def _adaptive_mixture(kind: str) -> Recipe:
    return Recipe(
        f"{kind}-ucb-adaptive",
        lambda s: AdaptiveMixture(kind),
        noise="online",
        noise_bounds=MixtureNoiseBounds,
        takes=("dictionary",),
    )


def _ek_ucb(s: Inputs) -> Confidence:
    mu = s.dictionary.mu if isinstance(s.dictionary, OnlineRowSampling) else s.ridge
    return EKUCB(s.noise_std, s.norm_bound, s.delta, mu)


_EXACT = ("ridge", "multiplier")
_SKETCHED = ("ridge", "dictionary", "multiplier")

_ENTRIES = (
    Recipe("random", None, rule=UniformChoice, norm="unused", takes=()),
    Recipe("ucb", lambda s: AlternatingWidth(*PRACTICAL_WIDTHS), norm="unused", takes=_SKETCHED),
    # These three trust the prior: the function is a draw from a Gaussian process.
    Recipe("gp-ucb", _finite_set, _noise_variance, norm="unused", needs=("n_points",)),
    Recipe("chaining-ucb", _chaining(rigorous=False), _noise_variance, norm="unused", fixed_kernel=True),
    Recipe("chaining-ucb-rigorous", _chaining(rigorous=True), _noise_variance, norm="unused", fixed_kernel=True),
    Recipe(
        "igp-ucb",
        lambda s: ImprovedGPUCB(s.noise_std, s.norm_bound, s.delta, 2 / s.horizon),
        lambda s: 1 + 2 / s.horizon,
        needs=("horizon",),
    ),
    Recipe("ay-gp-ucb", _self_normalized(), takes=_EXACT),
    # With the log-determinant instead of the paper's bound of it by the effective dimension, KUCB:
    Recipe("k-ucb", _self_normalized(), takes=_EXACT),
    Recipe(
        "supk-ucb",
        lambda s: FixedWidth(widths.valko(s.n_points, s.horizon, s.ridge, s.noise_std, s.norm_bound, s.delta)),
        rule=StagedElimination,
        needs=("horizon", "n_points"),
        takes=_EXACT,
        counts_each_round=True,
    ),
    Recipe("amm-ucb", _mixture("amm")),
    Recipe("dmm-ucb", _mixture("dmm"), takes=("ridges", "multiplier")),
    Recipe("cmm-ucb", _mixture("cmm")),
    Recipe("cmm-ucb-doubling", _unknown_norm(None), norm="estimated"),
    Recipe("cmm-ucb-practical", _unknown_norm(PRACTICAL_MULTIPLE), norm="estimated"),
    _bkb("bkb", LeverageResampling),
    _bkb("bbkb", BatchedResampling),
    # The contextual literature's names of BKB and BBKB with a context in every point:
    _bkb("c-bkb", LeverageResampling),
    _bkb("c-bbkb", BatchedResampling),
    Recipe(
        "ek-ucb",
        _ek_ucb,
        dictionary=lambda s: OnlineRowSampling(s.ridge, most=MOST_ANCHORS, seed=s.seed),
        takes=_SKETCHED,
    ),
    Recipe(
        "sketched-cmm",
        _mixture("cmm"),
        # The part outside the sketch costs B sqrt|E|, which is small at a hundredth of the noise per observation.
        dictionary=lambda s: GreedyDictionary(0.01 * s.noise_std**2 / s.norm_bound**2, most=MOST_ANCHORS),
        takes=("dictionary", "multiplier"),
    ),
    Recipe("kernel-ucb-oracle", _self_normalized(), _noise_to_norm),
    Recipe("kernel-ucb-fixed", _self_normalized(), _noise_to_norm, noise="upper bound"),
    Recipe(
        "kernel-ucb-adaptive",
        lambda s: AdaptiveSelfNormalized(),
        noise="online",
        takes=("dictionary",),
    ),
    # The radius of Thompson sampling is taken at delta / 12, Durand et al. (2018), Sec. 6.4.
    Recipe("kernel-ts-oracle", _self_normalized(1 / 12), _noise_to_norm, rule=ThompsonSampling),
    Recipe("kernel-ts-fixed", _self_normalized(1 / 12), _noise_to_norm, rule=ThompsonSampling, noise="upper bound"),
    # The noise bounds give each of their three events a third of a quarter of delta:
    Recipe(
        "kernel-ts-adaptive",
        lambda s: AdaptiveSelfNormalized(),
        rule=ThompsonSampling,
        noise="online",
        noise_share=1 / 4,
        takes=("dictionary",),
    ),
    # A Gaussian process with prior covariance scale * k, and inflation 1:
    Recipe(
        "kernel-ts",
        lambda s: FixedWidth(s.noise_std / math.sqrt(s.ridge)),
        rule=ThompsonSampling,
        norm="unused",
        takes=_SKETCHED,
    ),
    _adaptive_mixture("dmm"),
    _adaptive_mixture("cmm"),
)

RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in _ENTRIES}
"""The recipes by name. An entry that is added here serves every front end."""
