"""Recipes: functions that make a method, a posterior, a confidence and a rule, of a kernel and the facts of a problem.

The parameters of a recipe say what it needs, those without a default, and what it takes besides; ``make`` documents
them all. ``register`` enters a recipe in ``METHODS``, where every front end finds it.
"""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeVar

from gpytorch.kernels import Kernel

from kbo import confidence, regression
from kbo._base import checks
from kbo.bandit.elimination import StagedElimination
from kbo.bandit.method import Method, Rule, ThompsonSampling, UniformChoice, UpperBound
from kbo.confidence.mixture.radius import Scale, checked_scale, mixture_ridges
from kbo.errors import InvalidInput
from kbo.regression import (
    MOST_ANCHORS,
    AdaptiveRidge,
    Dictionary,
    KernelRidge,
    NystromRidge,
    Posterior,
)

F = TypeVar("F", bound=Callable[..., Method])

PRACTICAL_WIDTHS = (1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 4.0, 1.0)
"""Standard deviations above the mean at which "ucb" searches in turn; chosen by measurement (docs/comparisons.md). The
largest has an even number, since without noise the trials of odd numbers are searched for near the best one."""

FACTS: dict[str, Callable[[str, Any], Any]] = {
    "kernel": lambda name, value: checks.kernel(value),
    "noise_std": checks.positive,
    "norm_bound": checks.positive,
    "delta": checks.probability,
    "scale": lambda name, value: checked_scale(value),
    "horizon": checks.positive,
    "n_points": checks.positive,
    "points": checks.rows,
    "seed": lambda name, value: checks.seed(value),
    "noise_upper": checks.positive,
    "noise_lower": checks.non_negative,
}
"""Facts about a problem, which may be passed to any recipe, whether it uses them or not, and their checks."""


class Recipe:
    """A named function that makes a method, and what its parameters say about it.

    Args:
        name: The name in ``METHODS``.
        function: Returns a ``Method`` for the arguments that its parameters name.
        rule: The class of the rule of that method.
        estimates_norm: Whether the norm bound is estimated from the data.
        fixed: Arguments of the function that are the same whenever the method is made; ``rule`` is one of them, if
            the function takes it.

    Raises:
        InvalidInput: The function takes ``*args`` or ``**kwargs``, which name nothing.

    Attributes:
        parameters: The names of the parameters that are not fixed.
        needs: Those without a default; ``make`` derives ``ridge`` of ``noise_std`` and ``scale``, and ``n_points`` of
            ``points``, unless they are given.
        options: Those that are no facts about a problem, and ``multiplier`` if the method has bounds at a fixed ridge.
        noise: Source of the noise level: "given" (``noise_std``), "upper bound" (``noise_upper`` is needed), or
            "online" (``noise_upper`` is optional), that is bounds of it, which the ridge follows.
        norm: Source of the norm bound: "given" (``norm_bound``), "estimated" from the data, or "unused".
        needs_horizon: Whether the number of rounds must be known.
        needs_finite_set: Whether the method is for finite sets of points of known size, not for boxes.
        fixed_kernel: Whether the bound rests on the ``points`` themselves, not on their number, under a kernel that
            must not be refitted; to search a space it needs all points of it.
        has_bounds: Whether the method has a confidence.
        draws: Whether the next point maximises a random draw of the function.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Method],
        rule: type[Rule] = UpperBound,
        estimates_norm: bool = False,
        **fixed: Any,
    ) -> None:
        entries = dict(inspect.signature(function).parameters)
        if any(
            entry.kind in (entry.VAR_POSITIONAL, entry.VAR_KEYWORD) for entry in entries.values()
        ):
            raise InvalidInput(
                f"recipe {name!r} must name each argument that it takes: no *args and no **kwargs."
            )
        self.name: str = name
        self.rule: type[Rule] = rule
        fixed |= {"rule": rule} if "rule" in entries else {}
        self.function: Callable[..., Method] = partial(function, **fixed)
        entries = {key: entry for key, entry in entries.items() if key not in fixed}
        self.parameters: tuple[str, ...] = tuple(entries)
        self.needs: list[str] = [
            key for key, entry in entries.items() if entry.default is entry.empty
        ]
        level = (
            "upper bound"
            if "noise_upper" in self.needs
            else "online"
            if "noise_upper" in entries
            else "given"
        )
        self.noise: Literal["given", "upper bound", "online"] = level
        norm = "given" if "norm_bound" in entries else "estimated" if estimates_norm else "unused"
        self.norm: Literal["given", "estimated", "unused"] = norm
        self.needs_horizon: bool = "horizon" in self.needs
        self.needs_finite_set: bool = "n_points" in self.needs
        self.fixed_kernel: bool = "points" in entries and "n_points" not in entries
        self.has_bounds: bool = rule.needs_confidence
        self.draws: bool = rule.draws
        self.options: list[str] = [key for key in entries if key not in FACTS]
        self.options += ["multiplier"] * (self.has_bounds and level != "online")

    def make(
        self,
        kernel: Kernel,
        noise_std: float | None,
        norm_bound: float | None,
        delta: float,
        **options: Any,
    ) -> Method:
        """Return the method for a problem; arguments and errors as for ``kbo.bandit.make``."""
        options |= {
            "kernel": kernel,
            "noise_std": noise_std,
            "norm_bound": norm_bound,
            "delta": delta,
        }
        given = {name: value for name, value in options.items() if value is not None}
        for name, value in given.items():
            if name in FACTS:
                FACTS[name](name, value)
            elif name not in self.options:
                self._refuse(name)
        scale = given["scale"] = checked_scale(given.get("scale", 1.0))
        if "points" in given:
            given["n_points"] = len(given["points"])
        if "ridge" in given:
            checks.positive("ridge", given["ridge"])
        elif "noise_std" in given:
            given["ridge"] = _middle_ridge(given["noise_std"], scale)
        for name in self.needs:
            if name not in given:
                more = ", or to Certified" if name == "noise_upper" else ""
                raise InvalidInput(
                    f"method {self.name!r} needs {name}: pass {name}=... to methods.make{more}."
                )
        made = self.function(**{name: given[name] for name in self.parameters if name in given})
        made = replace(
            checks.instance(f"the value of recipe {self.name!r}", made, Method), name=self.name
        )
        checks.instance(
            f"the rule of recipe {self.name!r}",
            made.rule,
            self.rule,
            ", or name its class as rule=",
        )
        if isinstance(scale, tuple) and getattr(made.confidence, "scale", None) != scale:
            raise InvalidInput(
                f"method {self.name!r} averages over no scales: pass one number, or choose 'cmm-ucb'."
            )
        return made.with_multiplier(given["multiplier"]) if "multiplier" in given else made

    def _refuse(self, option: str) -> None:
        """Raise InvalidInput for an option that this recipe does not take."""
        takers = [name for name, recipe in METHODS.items() if option in recipe.options]
        if takers:
            takes = ", ".join(self.options) or "no options"
            raise InvalidInput(
                f"method {self.name!r} has no use for {option}: do not pass it. It takes {takes}; {option} is for "
                f"{', '.join(takers)}."
            )
        known = {*FACTS, *(name for recipe in METHODS.values() for name in recipe.options)}
        raise InvalidInput(f"methods.make has no option {option!r}:{_near(option, known)}")


METHODS: dict[str, Recipe] = {}
"""The recipes by name. An entry that is added here serves every front end."""


def register(*names: str, **about: Any) -> Callable[[F], F]:
    """Return a decorator that enters a function in ``METHODS`` under one or several names.

    Args:
        names: The names.
        about: ``rule``, ``estimates_norm`` and fixed arguments, as for ``Recipe``.

    Raises:
        InvalidInput: A name is no text; or as for ``Recipe``.

    Example:
        >>> @kbo.bandit.register("my-ucb")
        ... def my_ucb(kernel, noise_std, norm_bound, delta):
        ...     bound = SelfNormalized(noise_std, norm_bound, delta)
        ...     return Method(partial(KernelRidge, kernel, noise_std**2), bound)
    """
    for name in names:
        checks.text("names", name)

    def enter(function: F) -> F:
        METHODS.update({name: Recipe(name, function, **about) for name in names})
        return function

    return enter


def names() -> list[str]:
    """Return the names of all recipes, sorted."""
    return sorted(METHODS)


def get(name: str) -> Recipe:
    """Return the recipe of that name.

    Raises:
        InvalidInput: An unknown name; the message has near ones.
    """
    if not isinstance(name, str) or name not in METHODS:
        raise InvalidInput(f"unknown method {checks.shown(name)}:{_near(name, METHODS)}")
    return METHODS[name]


def make(
    name: str,
    kernel: Kernel,
    noise_std: float | None,
    norm_bound: float | None,
    delta: float,
    **options: Any,
) -> Method:
    """Return the method of that name for a problem.

    Args:
        name: One of ``names()``.
        kernel: An unbatched GPyTorch kernel.
        noise_std: Sub-Gaussian constant of the noise, in units of the targets; None for recipes that do not use it.
        norm_bound: Bound of the RKHS norm of the function; None for recipes that do not use it.
        delta: Probability that the bounds may fail; Thompson sampling takes its radius at a smaller one.
        options: More facts about the problem, which any recipe takes, and options, which only those take that have a
            parameter of that name (``get(name).options``); None is the same as left out. The facts are

            * ``scale``: covariance scale c of the mixtures, or several that are averaged; the ridge is
              ``noise_std^2 / c``, with the middle one, unless the recipe fixes it.
            * ``horizon``: number of rounds T. "supk-ucb" chooses no point after it. That of "igp-ucb" only sets the
              ridge: its bound holds in later rounds too, and is wider there than with a larger horizon.
            * ``n_points``: size of the finite set for "gp-ucb", number of arms of a round for "supk-ucb".
            * ``points``: the finite set [N d], instead of its size; for "chaining-ucb...", None means the arms that are
              offered together.
            * ``seed``: that of a recipe's own random dictionary.
            * ``noise_upper``: upper bound of the noise level: "...-fixed" use it, "...-adaptive" begin with it.
            * ``noise_lower``: lower bound of the noise level, for "...-adaptive".

            The options are

            * ``ridge``: the ridge, instead of ``noise_std^2 / c``; also the mu of "ek-ucb".
            * ``ridges``: the grid of "dmm-ucb", instead of the paper's.
            * ``dictionary``: that of a sketched posterior, instead of the recipe's own.
            * ``strict_noise``: whether "dmm-ucb-adaptive" and "cmm-ucb-adaptive" assume only strictly sub-Gaussian
              noise.
            * ``multiplier``: replace the bound by ``mean + multiplier sqrt(leverage)``, as experiments do; this removes
              the guarantee.

    Raises:
        InvalidInput: An unknown name or option (the message has near ones), an argument that the recipe needs is
            missing, or an option that it does not take is given.
    """
    return get(name).make(kernel, noise_std, norm_bound, delta, **options)


def _near(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(
        name.lower() if isinstance(name, str) else "", known, n=3, cutoff=0.3
    )
    hint = f" did you mean {' or '.join(map(repr, near))}?" if near else ""
    return f"{hint}{' All names' if near else ' the names are'}: {', '.join(sorted(known))}."


def _middle_ridge(noise_std: float, scale: Scale) -> float:
    """Return the ridge of a mixture of this scale, ``noise_std^2 / scale``, or of the middle one of several."""
    ridges = mixture_ridges(noise_std, scale)
    return ridges[len(ridges) // 2]


def posterior(
    kernel: Kernel,
    ridge: float,
    dictionary: Dictionary | None,
    noise: confidence.NoiseLevel | None = None,
) -> Posterior:
    """Return an empty posterior: sketched if there is a dictionary, with a ridge that follows bounds of the noise."""
    state = (
        KernelRidge(kernel, ridge)
        if dictionary is None
        else NystromRidge(kernel, ridge, dictionary)
    )
    return state if noise is None else AdaptiveRidge(state, noise)


# Without a guarantee


@register("random", rule=UniformChoice)
def _random(kernel, noise_std, scale=1.0) -> Method:
    """Choose points uniformly at random, without bounds."""
    return Method(
        partial(KernelRidge, kernel, _middle_ridge(noise_std, scale)), None, UniformChoice()
    )


@register("ucb")
def _ucb(kernel, noise_std, ridge, dictionary=None) -> Method:
    """Search with one, two and four standard deviations above the mean in turn."""
    return Method(
        partial(posterior, kernel, ridge, dictionary),
        confidence.AlternatingWidth(*PRACTICAL_WIDTHS),
    )


@register("kernel-ts", rule=ThompsonSampling)
def _thompson(kernel, noise_std, ridge, dictionary=None) -> Method:
    """Draw from a Gaussian process with prior covariance ``scale * k``: inflation 1."""
    width = confidence.FixedWidth(noise_std / math.sqrt(ridge))
    return Method(partial(posterior, kernel, ridge, dictionary), width, ThompsonSampling())


# For draws from the Gaussian process: these trust the prior


@register("gp-ucb")
def _finite_set(kernel, noise_std, delta, n_points, points=None) -> Method:
    """Bound a finite set by a union over its points."""
    bound = confidence.FiniteSet(n_points if points is None else points, delta)
    return Method(partial(KernelRidge, kernel, noise_std**2), bound)


@register("chaining-ucb", rigorous=False)
@register("chaining-ucb-rigorous", rigorous=True)
def _chaining(kernel, noise_std, delta, rigorous, points=None) -> Method:
    """Bound the arms that are offered together, or all ``points``, by chaining."""
    bound = confidence.Chaining(delta, rigorous=rigorous, points=points)
    return Method(partial(KernelRidge, kernel, noise_std**2), bound)


# For functions of bounded norm


@register("igp-ucb")
def _improved(kernel, noise_std, norm_bound, delta, horizon) -> Method:
    """Bound at ridge ``1 + 2 / T``, for T rounds; it holds for more too, ``n eta`` being a part of its width."""
    bound = confidence.ImprovedGPUCB(noise_std, norm_bound, delta, 2 / horizon)
    return Method(partial(KernelRidge, kernel, 1 + 2 / horizon), bound)


@register("ay-gp-ucb", "k-ucb")
def _self_normalized(kernel, noise_std, norm_bound, delta, ridge) -> Method:
    """Bound by self-normalisation.

    For K-UCB with the log-determinant, instead of the paper's bound of it by the effective dimension, ``KUCB``.
    """
    return Method(
        partial(KernelRidge, kernel, ridge), confidence.SelfNormalized(noise_std, norm_bound, delta)
    )


@register("supk-ucb", rule=StagedElimination)
def _elimination(kernel, noise_std, norm_bound, delta, horizon, n_points, ridge) -> Method:
    """Eliminate in stages; ``n_points`` counts the arms of one round."""
    rule = StagedElimination(horizon, norm_bound)
    noise = 2 * math.log(
        2 * horizon * n_points * rule.n_stages / delta
    )  # one Hoeffding bound a round, arm and stage
    width = noise_std * math.sqrt(noise / ridge) + norm_bound
    return Method(partial(KernelRidge, kernel, ridge), confidence.FixedWidth(width), rule)


@register("amm-ucb", kind="amm", ridges=None)
@register("dmm-ucb", kind="dmm")
@register("cmm-ucb", kind="cmm", ridges=None)
def _mixture(kernel, noise_std, norm_bound, delta, kind, scale=1.0, ridges=None) -> Method:
    """Bound by a martingale mixture: at one ridge, at the best of a few, or at the best of all."""
    bound = confidence.MartingaleMixture(noise_std, norm_bound, delta, kind, scale, ridges)
    return Method(partial(KernelRidge, kernel, _middle_ridge(noise_std, scale)), bound)


@register("cmm-ucb-doubling", estimates_norm=True, multiple=None)
@register("cmm-ucb-practical", estimates_norm=True, multiple=confidence.PRACTICAL_MULTIPLE)
def _unknown_norm(kernel, noise_std, delta, multiple, scale=1.0) -> Method:
    """Bound as "cmm-ucb", with a norm bound that follows the data."""
    bound = confidence.UnknownNorm(noise_std, delta, scale=scale, multiple=multiple)
    return Method(partial(KernelRidge, kernel, _middle_ridge(noise_std, scale)), bound)


# On a sketch; the contextual literature calls two of them "c-...", with a context in every point


@register("bkb", "c-bkb", own=regression.LeverageResampling)
@register("bbkb", "c-bbkb", own=regression.BatchedResampling)
def _bkb(kernel, noise_std, norm_bound, delta, ridge, own, dictionary=None, seed=0) -> Method:
    """Bound with a dictionary that is drawn again after every observation, or after a batch."""
    chosen = own(most=MOST_ANCHORS, seed=seed) if dictionary is None else dictionary
    return Method(
        partial(posterior, kernel, ridge, chosen), confidence.BKB(noise_std, norm_bound, delta)
    )


@register("ek-ucb")
def _ek_ucb(kernel, noise_std, norm_bound, delta, ridge, dictionary=None, seed=0) -> Method:
    """Bound with the mu of the dictionary, or else the ridge, as the part that it may miss."""
    chosen = (
        regression.OnlineRowSampling(ridge, most=MOST_ANCHORS, seed=seed)
        if dictionary is None
        else dictionary
    )
    mu = chosen.mu if isinstance(chosen, regression.OnlineRowSampling) else ridge
    return Method(
        partial(posterior, kernel, ridge, chosen),
        confidence.EKUCB(noise_std, norm_bound, delta, mu),
    )


@register("sketched-cmm")
def _sketched_mixture(kernel, noise_std, norm_bound, delta, scale=1.0, dictionary=None) -> Method:
    """Bound as "cmm-ucb"; the part outside the sketch adds ``norm_bound sqrt|E|``."""
    threshold = 0.01 * noise_std**2 / norm_bound**2  # at which that part is small
    chosen = (
        regression.GreedyDictionary(threshold, most=MOST_ANCHORS)
        if dictionary is None
        else dictionary
    )
    bound = confidence.MartingaleMixture(noise_std, norm_bound, delta, "cmm", scale)
    return Method(partial(posterior, kernel, _middle_ridge(noise_std, scale), chosen), bound)


# With a noise level that is given, that has an upper bound, or that is bounded online. Thompson sampling takes its
# radius at delta / 12 (Durand et al. 2018, Sec. 6.4); noise bounds give each of their three events a third of delta.


@register("kernel-ucb-oracle", share=1)
@register("kernel-ts-oracle", share=1 / 12, rule=ThompsonSampling)
def _known_noise(kernel, noise_std, norm_bound, delta, share, rule) -> Method:
    """Bound by self-normalisation at ridge ``noise_std^2 / norm_bound^2``."""
    bound = confidence.SelfNormalized(noise_std, norm_bound, share * delta)
    return Method(partial(KernelRidge, kernel, (noise_std / norm_bound) ** 2), bound, rule())


@register("kernel-ucb-fixed", share=1)
@register("kernel-ts-fixed", share=1 / 12, rule=ThompsonSampling)
def _largest_noise(kernel, noise_upper, norm_bound, delta, share, rule) -> Method:
    """Bound for the largest noise level that there may be."""
    return _known_noise(kernel, noise_upper, norm_bound, delta, share, rule)


@register("kernel-ucb-adaptive", share=1)
@register("kernel-ts-adaptive", share=1 / 4, rule=ThompsonSampling)
def _bounded_noise(
    kernel, norm_bound, delta, share, rule, noise_upper=None, noise_lower=0.0, dictionary=None
) -> Method:
    """Bound by self-normalisation, with a ridge that follows bounds of the noise level."""
    noise = confidence.NoiseBounds(norm_bound, share * delta, noise_upper, noise_lower)
    bound = confidence.AdaptiveSelfNormalized()
    return Method(partial(posterior, kernel, noise.ridge, dictionary, noise), bound, rule())


@register("dmm-ucb-adaptive", kind="dmm")
@register("cmm-ucb-adaptive", kind="cmm")
def _bounded_noise_mixture(
    kernel,
    norm_bound,
    delta,
    kind,
    noise_upper=None,
    noise_lower=0.0,
    strict_noise=False,
    dictionary=None,
) -> Method:
    """Bound by a martingale mixture, with a ridge that follows mixture bounds of the noise level."""
    noise = confidence.MixtureNoiseBounds(
        norm_bound, delta, noise_upper, noise_lower, strict=strict_noise
    )
    return Method(
        partial(posterior, kernel, noise.ridge, dictionary, noise), confidence.AdaptiveMixture(kind)
    )
