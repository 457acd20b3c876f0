"""Named algorithms as data: one entry for each, used alike by every front end.

A new method is one entry in ``RECIPES``. ``make`` turns a name and the numbers of a problem into a ``Method``, which
chooses among finite action sets (``choose``) and searches boxes (``model`` and ``acquisition``).
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, Literal

from gpytorch.kernels import Kernel

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
    NoiseBounds,
    SelfNormalized,
    UnknownNorm,
    widths,
)
from kbo.errors import InvalidInput
from kbo.recipes.elimination import StagedElimination
from kbo.recipes.inputs import KEYWORDS, OPTIONS, Inputs
from kbo.recipes.method import Method, Rule, UniformChoice, UpperBound
from kbo.recipes.thompson import ThompsonSampling
from kbo.regression import (
    MOST_ANCHORS,
    BatchedResampling,
    Dictionary,
    GreedyDictionary,
    LeverageResampling,
    OnlineRowSampling,
)

PRACTICAL_WIDTHS = (1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 4.0)
"""Standard deviations above the mean at which "ucb" searches in turn; chosen by measurement (docs/performance.md)."""

_TS_SHARE = 1 / 12
"""Of delta at which Durand et al. (2018), Sec. 6.4, take the radius of Thompson sampling."""


@dataclass(frozen=True)
class Recipe:
    """A named method: its posterior, confidence and rule, and the inputs it needs.

    Attributes:
        name: The name in ``RECIPES``.
        confidence: Makes the confidence from the inputs, in which ridge and dictionary are set; None for no bound.
        ridge: Makes the ridge of the posterior, unless it is given or follows the noise bounds.
        dictionary: Makes the dictionary of a sketched posterior; None for an exact one, unless a dictionary is given.
        rule: The choice of the next point.
        noise: Source of the noise level: "given" (``noise_std``), "upper bound" (``noise_upper``), or "online", that is
            ``NoiseBounds``, which the ridge follows.
        norm: Source of the norm bound: "given" (``norm_bound``), "estimated" from the data, or "unused".
        needs: Names of inputs that must be given, besides ``noise_std`` and ``norm_bound``.
        takes: Names of options that may be given, see ``Inputs``.
        delta_share: Share of delta at which the bound is taken.
        noise_variant: Variant of ``NoiseBounds`` if ``noise`` is "online"; None for the given one.
        trusts_prior: Whether the bound assumes that the function is a draw from a Gaussian process.
        fixed_kernel: Whether the bound rests on distances between points under a kernel that must not be refitted; a
            search needs all ``points`` of the space then.
    """

    name: str
    confidence: Callable[[Inputs], Confidence] | None
    ridge: Callable[[Inputs], float] = lambda s: s.noise_std**2 / s.scale
    dictionary: Callable[[Inputs], Dictionary] | None = None
    rule: type[Rule] = UpperBound
    noise: Literal["given", "upper bound", "online"] = "given"
    norm: Literal["given", "estimated", "unused"] = "given"
    needs: Collection[str] = ()
    takes: Collection[str] = ("multiplier",)
    delta_share: float = 1.0
    noise_variant: str | None = None
    trusts_prior: bool = False
    fixed_kernel: bool = False

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
        self._check(given | {"noise_std": noise_std, "norm_bound": norm_bound})
        inputs = Inputs(kernel, noise_std, norm_bound, delta, **given)  # pyright: ignore[reportArgumentType]
        inputs.check(frozenset(given))
        if inputs.points is not None:
            inputs = replace(inputs, n_points=len(inputs.points))
        if self.noise == "upper bound":
            inputs = replace(inputs, noise_std=given["noise_upper"])
        inputs = replace(inputs, delta=self.delta_share * delta)
        noise = self._noise_bounds(inputs) if self.noise == "online" else None
        if noise is not None:
            inputs = replace(inputs, ridge=noise.ridge)
        elif "ridge" not in given:
            inputs = replace(inputs, ridge=self.ridge(inputs))
        if self.dictionary is not None and inputs.dictionary is None:
            inputs = replace(inputs, dictionary=self.dictionary(inputs))
        confidence = None if self.confidence is None else self.confidence(inputs)
        rule = self.rule.from_inputs(inputs)
        method = Method(self.name, kernel, inputs.ridge, confidence, inputs.dictionary, noise, rule)
        return method if inputs.multiplier is None else method.with_multiplier(inputs.multiplier)

    def _check(self, given: dict[str, Any]) -> None:
        """Raise InvalidInput if an input is missing, unknown or not used."""
        for name in given.keys() - KEYWORDS - {"noise_std", "norm_bound"}:
            raise InvalidInput(f"recipes.make has no option {name!r}:{_near(name, KEYWORDS)}")
        for name in sorted(given.keys() & OPTIONS - set(self.takes)):
            raise InvalidInput(
                f"method {self.name!r} does not use {name}: {_UNUSED[name]} It takes {', '.join(self.takes) or 'none'} "
                f"of the options {', '.join(sorted(OPTIONS))}."
            )
        needs = [*self.needs, *["noise_std"] * (self.noise == "given"), *["norm_bound"] * (self.norm == "given")]
        for name in needs:
            if given.get(name) is None and not (name == "n_points" and given.get("points") is not None):
                more = ", to Certified, or as kbo run --noise-upper ..." if name == "noise_upper" else ""
                raise InvalidInput(f"method {self.name!r} needs {name}: pass {name}=... to recipes.make{more}.")

    def _noise_bounds(self, s: Inputs) -> NoiseBounds:
        variant = self.noise_variant or s.noise_variant
        return NoiseBounds(s.norm_bound, s.delta, s.noise_upper, s.noise_lower, variant)


_UNUSED = {
    "ridge": "it has a ridge of its own.",
    "ridges": "it has no grid of ridges.",
    "dictionary": "it has an exact posterior.",
    "noise_variant": "it has no choice among bounds of the noise level.",
    "multiplier": "it has no bound to replace, or a ridge that moves, for which a multiplier has no meaning.",
}
"""Reasons for which a recipe does not take an option."""


def names() -> list[str]:
    """The names that ``make`` knows."""
    return sorted(RECIPES)


def get(name: str) -> Recipe:
    """Return the recipe of that name.

    Raises:
        InvalidInput: An unknown name; the message has near ones.
    """
    if name not in RECIPES:
        raise InvalidInput(f"unknown method {name!r}:{_near(name, RECIPES)}")
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
    near = difflib.get_close_matches(str(name), known, n=3, cutoff=0.3)
    hint = f" did you mean {' or '.join(map(repr, near))}?" if near else ""
    return f"{hint} Known: {', '.join(sorted(known))}."


def _noise_variance(s: Inputs) -> float:
    return s.noise_std**2


def _noise_to_norm(s: Inputs) -> float:
    """``(noise_std / norm_bound)^2``, the ridge of Durand et al. (2018)."""
    return (s.noise_std / s.norm_bound) ** 2


def _self_normalized(s: Inputs) -> Confidence:
    return SelfNormalized(s.noise_std, s.norm_bound, s.delta)


def _valko(s: Inputs) -> Confidence:
    return FixedWidth(widths.valko(s.n_points, s.horizon, s.ridge, s.noise_std, s.norm_bound, s.delta))


def _bkb(s: Inputs) -> Confidence:
    return BKB(s.noise_std, s.norm_bound, s.delta)


def _ek_ucb(s: Inputs) -> Confidence:
    mu = s.dictionary.mu if isinstance(s.dictionary, OnlineRowSampling) else s.ridge
    return EKUCB(s.noise_std, s.norm_bound, s.delta, mu)


def _mixture(kind: str) -> Callable[[Inputs], Confidence]:
    return lambda s: MartingaleMixture(s.noise_std, s.norm_bound, s.delta, kind, s.scale, s.ridges)


def _leverages(s: Inputs) -> Dictionary:
    return LeverageResampling(most=MOST_ANCHORS, seed=s.seed)


def _batched(s: Inputs) -> Dictionary:
    return BatchedResampling(most=MOST_ANCHORS, seed=s.seed)


def _row_sampling(s: Inputs) -> Dictionary:
    return OnlineRowSampling(s.ridge, most=MOST_ANCHORS, seed=s.seed)


def _greedy(s: Inputs) -> Dictionary:
    # The part outside the sketch costs B sqrt|E|: at a hundredth of the noise per observation it hardly shows.
    return GreedyDictionary(0.01 * s.noise_std**2 / s.norm_bound**2, most=MOST_ANCHORS)


_EXACT = ("ridge", "multiplier")
_ANY = ("ridge", "dictionary", "multiplier")

_ENTRIES = (
    Recipe("random", None, rule=UniformChoice, norm="unused", takes=()),
    Recipe("ucb", lambda s: AlternatingWidth(*PRACTICAL_WIDTHS), norm="unused", takes=_ANY),
    Recipe(
        "gp-ucb",
        lambda s: FiniteSet(s.n_points, s.delta),
        _noise_variance,
        norm="unused",
        needs=("n_points",),
        trusts_prior=True,
    ),
    *(
        Recipe(
            name,
            lambda s, rigorous=rigorous: Chaining(s.delta, rigorous=rigorous, points=s.points),
            _noise_variance,
            norm="unused",
            trusts_prior=True,
            fixed_kernel=True,
        )
        for name, rigorous in (("chaining-ucb", False), ("chaining-ucb-rigorous", True))
    ),
    Recipe(
        "igp-ucb",
        lambda s: ImprovedGPUCB(s.noise_std, s.norm_bound, s.delta, 2 / s.horizon),
        lambda s: 1 + 2 / s.horizon,
        needs=("horizon",),
    ),
    Recipe("ay-gp-ucb", _self_normalized, takes=_EXACT),
    # The log-determinant instead of the paper's bound of it by the effective dimension, KUCB:
    Recipe("k-ucb", _self_normalized, takes=_EXACT),
    Recipe("supk-ucb", _valko, rule=StagedElimination, needs=("horizon", "n_points"), takes=_EXACT),
    Recipe("amm-ucb", _mixture("amm")),
    Recipe("dmm-ucb", _mixture("dmm"), takes=("ridges", "multiplier")),
    Recipe("cmm-ucb", _mixture("cmm")),
    Recipe("cmm-ucb-doubling", lambda s: UnknownNorm(s.noise_std, s.delta, scale=s.scale), norm="estimated"),
    Recipe(
        "cmm-ucb-practical",
        lambda s: UnknownNorm(s.noise_std, s.delta, scale=s.scale, multiple=PRACTICAL_MULTIPLE),
        norm="estimated",
    ),
    Recipe("bkb", _bkb, dictionary=_leverages, takes=_ANY),
    Recipe("bbkb", _bkb, dictionary=_batched, takes=_ANY),
    # With a context in every point, BKB and BBKB are in the contextual literature:
    Recipe("c-bkb", _bkb, dictionary=_leverages, takes=_ANY),
    Recipe("c-bbkb", _bkb, dictionary=_batched, takes=_ANY),
    Recipe("ek-ucb", _ek_ucb, dictionary=_row_sampling, takes=_ANY),
    Recipe("sketched-cmm", _mixture("cmm"), dictionary=_greedy, takes=("dictionary", "multiplier")),
    Recipe("kernel-ucb-oracle", _self_normalized, _noise_to_norm),
    Recipe("kernel-ucb-fixed", _self_normalized, _noise_to_norm, noise="upper bound", needs=("noise_upper",)),
    Recipe(
        "kernel-ucb-adaptive",
        lambda s: AdaptiveSelfNormalized(),
        noise="online",
        takes=("dictionary", "noise_variant"),
    ),
    Recipe("kernel-ts-oracle", _self_normalized, _noise_to_norm, rule=ThompsonSampling, delta_share=_TS_SHARE),
    Recipe(
        "kernel-ts-fixed",
        _self_normalized,
        _noise_to_norm,
        rule=ThompsonSampling,
        noise="upper bound",
        needs=("noise_upper",),
        delta_share=_TS_SHARE,
    ),
    Recipe(
        "kernel-ts-adaptive",
        lambda s: AdaptiveSelfNormalized(),
        rule=ThompsonSampling,
        noise="online",
        takes=("dictionary", "noise_variant"),
        delta_share=_TS_SHARE * 3,  # the noise bounds give each of their three events a third
    ),
    # The Gaussian process with prior covariance scale * k: inflation 1.
    Recipe(
        "kernel-ts",
        lambda s: FixedWidth(s.noise_std / math.sqrt(s.ridge)),
        rule=ThompsonSampling,
        norm="unused",
        takes=_ANY,
    ),
    *(
        Recipe(
            f"{kind}-ucb-adaptive",
            lambda s, kind=kind: AdaptiveMixture(kind),
            noise="online",
            takes=("dictionary",),
            noise_variant="mixture",
        )
        for kind in ("dmm", "cmm")
    ),
)

RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in _ENTRIES}
"""The recipes by name. An entry that is added here serves every front end."""
