"""The named methods: a table by name, and the posteriors and confidences that they are made of.

    make(name, kernel, noise_std, ...) --> Facts --> NamedMethod.build --> Method

A ``NamedMethod`` names the posterior, the confidence and the rule of its method, and says what they
need. ``register`` adds one to ``METHODS``, where every front end finds it.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from gpytorch.kernels import Kernel
from torch import Tensor

from kbo import confidence as bounds
from kbo._base import checks
from kbo.bandit.method import Method, Rule, ThompsonSampling, UniformChoice, UpperBound
from kbo.confidence import Confidence
from kbo.confidence.confidence_set import Scale, checked_scale, mixture_ridges
from kbo.errors import InvalidInput
from kbo.regression import (
    MOST_ANCHORS,
    AdaptiveRidge,
    BatchedResampling,
    Dictionary,
    GreedyDictionary,
    KernelRidge,
    LeverageResampling,
    NystromRidge,
    OnlineRowSampling,
    Posterior,
)

PRACTICAL_WIDTHS = (1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 4.0, 1.0)
"""Widths of the bounds of "ucb", which take turns: trial ``number`` uses entry ``number % 8``. They were chosen by
measurement (experiments/records/tuning.md)."""

_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "noise_std": checks.positive,
    "norm_bound": checks.positive,
    "delta": checks.probability,
    "scale": lambda name, value: checked_scale(value),
    "horizon": checks.positive,
    "n_points": lambda name, value: checks.whole(name, value, 1),
    "points": checks.rows,
    "seed": lambda name, value: checks.seed(value),
    "noise_upper": checks.positive,
    "noise_lower": checks.non_negative,
}
"""The checks of the facts. Any fact may be passed to any method, also if the method does not use it."""


class Facts:
    """Facts about a problem, and the options of a method.

    ``NamedMethod.needs`` lists the facts that a method requires. A fact that is not known, and has no
    default, raises InvalidInput where it is read.

    Args:
        kernel: An unbatched GPyTorch kernel.
        options: The given options of the method, by name.
        known: The known facts.

    Raises:
        InvalidInput: There is no fact of a given name.

    Attributes:
        noise_std: Sub-Gaussian constant of the noise, in units of the targets.
        norm_bound: Bound of the RKHS norm of the function.
        delta: Probability that the bounds may fail.
        scale: Covariance scale of mixtures, or several that are averaged.
        horizon: Number of rounds.
        n_points: Size of the finite set.
        points: The finite set [N d]; None if it is not known.
        seed: Seed of random dictionaries.
        noise_upper: Upper bound of the noise level; None if it is not known.
        noise_lower: Lower bound of the noise level.
    """

    noise_std: float
    norm_bound: float
    delta: float
    scale: Scale = 1.0
    horizon: float
    n_points: int
    points: Tensor | None = None
    seed: int = 0
    noise_upper: float | None = None
    noise_lower: float = 0.0

    def __init__(
        self, kernel: Kernel, options: Mapping[str, Any] | None = None, **known: Any
    ) -> None:
        for name in known:
            if name not in _CHECKS:
                raise InvalidInput(
                    f"there is no fact {name}: expected some of {', '.join(_CHECKS)}."
                )
        self.kernel: Kernel = kernel
        self.options: Mapping[str, Any] = options or {}
        vars(self).update(known)

    def __getattr__(self, name: str) -> Any:
        """Raise an error for a fact that is not known."""
        if name not in _CHECKS:
            raise AttributeError(f"Facts have no {name}.")
        raise InvalidInput(
            f"the method uses {name}, which is not known: list {name} in needs of its NamedMethod."
        )

    @property
    def ridge(self) -> float:
        """The option ``ridge``; by default ``noise_std^2 / scale``, with the middle scale of several."""
        if "ridge" in self.options:
            return self.options["ridge"]
        ridges = mixture_ridges(self.noise_std, self.scale)
        return ridges[len(ridges) // 2]

    @property
    def dictionary(self) -> Dictionary | None:
        """The option ``dictionary``."""
        return self.options.get("dictionary")


@dataclass(frozen=True)
class NamedMethod:
    """An entry of ``METHODS``: what a method is made of, and what it needs.

    Attributes:
        name: The name in ``METHODS``.
        posterior: Makes an empty posterior.
        confidence: Makes the bound; None if the rule needs none.
        rule: The choice of the next point.
        needs: Facts without which the method cannot be made.
        options: Options that it takes, from ``Facts.options``. "multiplier", for methods with
            bounds at a fixed ridge, replaces the bound by ``mean + multiplier sqrt(leverage)``.
        noise: Source of the noise level: "given" (``noise_std``), "upper bound" (``noise_upper`` is
            needed), or "online" (from the data, by bounds that the ridge follows; ``noise_upper``
            is optional).
        norm: Source of the norm bound: "given" (``norm_bound``), "estimated" from the data, or
            "unused".
        fixed_kernel: Whether the bound depends on the ``points`` themselves, not only on their
            number, under a kernel that must not be refitted. To search a space it needs all points
            of the space.
        mixture: Whether the bounds are those of the martingale mixture, by whose confidence set
            the assumptions are tested too. A list of hypotheses needs that both are one event.
    """

    name: str
    posterior: Callable[[Facts], Posterior]
    confidence: Callable[[Facts], Confidence] | None
    rule: Rule = field(default_factory=UpperBound)
    needs: tuple[str, ...] = ("noise_std", "norm_bound", "delta")
    options: tuple[str, ...] = ("multiplier",)
    noise: Literal["given", "upper bound", "online"] = "given"
    norm: Literal["given", "estimated", "unused"] = "given"
    fixed_kernel: bool = False
    mixture: bool = False

    @property
    def has_bounds(self) -> bool:
        """Whether the method has a confidence."""
        return self.confidence is not None

    @property
    def draws(self) -> bool:
        """Whether the next point maximises a random draw of the function."""
        return self.rule.draws

    @property
    def needs_horizon(self) -> bool:
        """Whether the number of rounds must be known."""
        return "horizon" in self.needs

    @property
    def needs_finite_set(self) -> bool:
        """Whether the method is for finite sets of points of known size, not for boxes."""
        return "n_points" in self.needs

    def build(self, facts: Facts) -> Method:
        """Return the method, given the facts that it needs."""
        confidence = None
        if self.confidence is not None:
            confidence = self.confidence(facts)
        return Method(partial(self.posterior, facts), confidence, self.rule, self.name)

    def make(
        self,
        kernel: Kernel,
        noise_std: float | None,
        norm_bound: float | None,
        delta: float,
        **options: Any,
    ) -> Method:
        """Return the method for a problem; arguments and errors as for ``kbo.bandit.make``."""
        checks.kernel(kernel)
        given = {"noise_std": noise_std, "norm_bound": norm_bound, "delta": delta, **options}
        facts: dict[str, Any] = {}
        own_options: dict[str, Any] = {}
        for name, value in given.items():
            if value is None:
                continue
            if name in _CHECKS:
                facts[name] = _CHECKS[name](name, value)
            elif name in self.options:
                own_options[name] = value
            else:
                self._refuse(name)
        if "ridge" in own_options:
            checks.positive("ridge", own_options["ridge"])
        if "points" in facts:
            facts["n_points"] = len(facts["points"])
        for name in self.needs:
            if name not in facts:
                where = "kbo.bandit.make"
                if name == "noise_upper":
                    where += ", or to Certified"
                raise InvalidInput(
                    f"method {self.name!r} needs {name}: pass {name}=... to {where}."
                )
        method = self.build(Facts(kernel, own_options, **facts))
        scale = facts.get("scale")
        if isinstance(scale, tuple) and getattr(method.confidence, "scale", None) != scale:
            raise InvalidInput(
                f"method {self.name!r} averages over no scales: pass one number, or choose 'cmm-ucb'."
            )
        if "multiplier" in own_options:
            return method.with_multiplier(own_options["multiplier"])
        return method

    def _refuse(self, option: str) -> None:
        """Raise InvalidInput for an option that the method does not take."""
        takers = [method.name for method in METHODS.values() if option in method.options]
        if takers:
            raise InvalidInput(
                f"method {self.name!r} has no use for {option}: do not pass it. It takes "
                f"{', '.join(self.options) or 'no options'}; {option} is for {', '.join(takers)}."
            )
        all_options = {"kernel", *_CHECKS}
        for method in METHODS.values():
            all_options.update(method.options)
        raise InvalidInput(
            f"kbo.bandit.make has no option {option!r}:{_nearest(option, all_options)}"
        )


METHODS: dict[str, NamedMethod] = {}
"""The named methods, by name. Every front end uses this table."""


def register(*named_methods: NamedMethod) -> None:
    """Add named methods to ``METHODS``; one of the same name is replaced.

    Raises:
        InvalidInput: One is of another kind.

    Example:
        >>> def my_posterior(facts):
        ...     return KernelRidge(facts.kernel, facts.noise_std**2)
        >>> def my_bound(facts):
        ...     return SelfNormalized(facts.noise_std, facts.norm_bound, facts.delta)
        >>> kbo.bandit.register(NamedMethod("my-ucb", my_posterior, my_bound))
    """
    for named_method in named_methods:
        checks.instance("a named method", named_method, NamedMethod)
    METHODS.update({named_method.name: named_method for named_method in named_methods})


def names() -> list[str]:
    """Return the names of all methods, sorted."""
    return sorted(METHODS)


def get(name: str) -> NamedMethod:
    """Return the named method of that name.

    Raises:
        InvalidInput: An unknown name; the message has near ones.
    """
    if not isinstance(name, str) or name not in METHODS:
        raise InvalidInput(f"unknown method {checks.shown(name)}:{_nearest(name, METHODS)}")
    return METHODS[name]


def of_boxes(name: str) -> NamedMethod:
    """Return the named method of that name, which must be able to search a box.

    Raises:
        InvalidInput: An unknown name, or the name of a method for finite sets; the message has near ones for boxes.
    """
    for_boxes = [method.name for method in METHODS.values() if not method.needs_finite_set]
    if name in for_boxes:
        return METHODS[name]
    if name in names():
        raise InvalidInput(
            f"method {name!r} is for finite sets of points (kbo.bandit), not for boxes."
        )
    raise InvalidInput(f"unknown method {checks.shown(name)}:{_nearest(name, for_boxes)}")


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
        noise_std: Sub-Gaussian constant of the noise, in units of the targets; None for methods
            that do not use it.
        norm_bound: Bound of the RKHS norm of the function; None for methods that do not use it.
        delta: Probability that the bounds may fail; Thompson sampling computes its radius for a
            smaller probability.
        options: Further facts about the problem, and options of the method; None is the same as
            left out. Every method accepts all facts:

            * ``scale``: covariance scale c of the mixtures, or several that are averaged. The ridge
              is ``noise_std^2 / c``, with the middle scale of several, unless the method fixes it.
            * ``horizon``: number of rounds T. For "igp-ucb" it only sets the ridge: the bound is
              also valid in later rounds, but wider there than with a larger horizon.
            * ``n_points``: size of the finite set for "gp-ucb".
            * ``points``: the finite set [N d], instead of its size; for "chaining-ucb...", None
              means the arms that are offered together.
            * ``seed``: seed of a method's own random dictionary.
            * ``noise_upper``: known upper bound of the noise level, for "...-adaptive".
            * ``noise_lower``: known lower bound of the noise level, for "...-adaptive".

            A method accepts only its own options, ``get(name).options``:

            * ``ridge``: the ridge, instead of ``noise_std^2 / c``; also the mu of "ek-ucb".
            * ``ridges``: the grid of "dmm-ucb", instead of the paper's.
            * ``dictionary``: the dictionary of a sketched posterior, instead of the method's own.
            * ``strict_noise``: the assumption of "dmm-ucb-adaptive" and "cmm-ucb-adaptive" on the
              noise, ``strict`` of ``kbo.confidence.MixtureNoiseBounds``.
            * ``multiplier``: replaces the bound by ``mean + multiplier sqrt(leverage)``, as
              experiments do, without a guarantee.

    Raises:
        InvalidInput: A name or option is unknown (the message has near ones), an argument that the
            method needs is missing, or the method does not take an option.
    """
    return get(name).make(kernel, noise_std, norm_bound, delta, **options)


def _nearest(name: str, candidates: Collection[str]) -> str:
    """Return the end of a message about an unknown name: the nearest candidates, and all names."""
    all_names = f"{', '.join(sorted(candidates))}."
    text = name.lower() if isinstance(name, str) else ""
    nearest = difflib.get_close_matches(text, candidates, n=3, cutoff=0.3)
    if not nearest:
        return f" the names are: {all_names}"
    return f" did you mean {' or '.join(map(repr, nearest))}? All names: {all_names}"


# Posteriors


def exact(facts: Facts) -> Posterior:
    """Return an exact posterior at the ridge of the facts."""
    return KernelRidge(facts.kernel, facts.ridge)


def exact_at_noise_variance(facts: Facts) -> Posterior:
    """Return an exact posterior whose ridge is the noise variance, as for draws of the prior."""
    return KernelRidge(facts.kernel, facts.noise_std**2)


def exact_of_horizon(facts: Facts) -> Posterior:
    """Return an exact posterior at ridge ``1 + 2 / T``, for T rounds (IGP-UCB)."""
    return KernelRidge(facts.kernel, 1 + 2 / facts.horizon)


def exact_or_sketched(facts: Facts) -> Posterior:
    """Return an exact posterior, or a sketched one if there is a dictionary."""
    return _exact_or_sketched_at(facts.ridge, facts)


def _exact_or_sketched_at(ridge: float, facts: Facts) -> Posterior:
    """Return an exact posterior at a ridge, or a sketched one if there is a dictionary."""
    if facts.dictionary is None:
        return KernelRidge(facts.kernel, ridge)
    return NystromRidge(facts.kernel, ridge, facts.dictionary)


def nystrom(facts: Facts, default: Dictionary) -> Posterior:
    """Return a sketched posterior with the dictionary of the facts, or a default."""
    return NystromRidge(facts.kernel, facts.ridge, facts.dictionary or default)


def resampled(facts: Facts, resampling: type[LeverageResampling]) -> Posterior:
    """Return a sketch whose dictionary is drawn again after an observation (BKB) or a batch (BBKB)."""
    return nystrom(facts, resampling(most=MOST_ANCHORS, seed=facts.seed))


def row_sampled(facts: Facts) -> Posterior:
    """Return a sketch whose dictionary grows by online row sampling, KORS (EK-UCB)."""
    return nystrom(facts, OnlineRowSampling(facts.ridge, most=MOST_ANCHORS, seed=facts.seed))


def sketched(facts: Facts) -> Posterior:
    """Return a sketch with an error so small that it hardly widens a mixture bound."""
    residual = 0.01 * facts.noise_std**2 / facts.norm_bound**2
    return nystrom(facts, GreedyDictionary(residual, most=MOST_ANCHORS))


def at_bounded_noise(facts: Facts, share: float) -> Posterior:
    """Return a posterior whose ridge follows bounds of the noise level.

    Args:
        facts: The facts.
        share: Fraction of delta for all events of the noise bounds and the confidence set.
    """
    delta = share * facts.delta
    noise = bounds.NoiseBounds(facts.norm_bound, delta, facts.noise_upper, facts.noise_lower)
    return _following(noise, facts)


def at_bounded_noise_of_mixture(facts: Facts) -> Posterior:
    """Return a posterior whose ridge follows mixture bounds of the noise level."""
    noise = bounds.MixtureNoiseBounds(
        facts.norm_bound,
        facts.delta,
        facts.noise_upper,
        facts.noise_lower,
        strict=facts.options.get("strict_noise", False),
    )
    return _following(noise, facts)


def _following(noise: bounds.NoiseLevel, facts: Facts) -> Posterior:
    """Return an exact or sketched posterior whose ridge follows bounds of the noise level."""
    return AdaptiveRidge(_exact_or_sketched_at(noise.ridge, facts), noise)


# Confidences


def of_known_norm(facts: Facts, bound: Callable[[float, float, float], Confidence]) -> Confidence:
    """Return a bound for functions of known norm and noise of known level."""
    return bound(facts.noise_std, facts.norm_bound, facts.delta)


def practical_widths(facts: Facts) -> Confidence:
    """Return the confidence with ``PRACTICAL_WIDTHS`` standard deviations in turn."""
    return bounds.AlternatingWidth(*PRACTICAL_WIDTHS)


def prior_width(facts: Facts) -> Confidence:
    """Return the width of one standard deviation of a process with prior covariance ``scale k``."""
    return bounds.FixedWidth(facts.noise_std / math.sqrt(facts.ridge))


def finite_set(facts: Facts) -> Confidence:
    """Return the union bound over a finite set, for draws of the prior."""
    points = facts.n_points if facts.points is None else facts.points
    return bounds.FiniteSet(points, facts.delta)


def chaining(facts: Facts, rigorous: bool) -> Confidence:
    """Return the chaining bound of ``points``, or of the arms that are offered together."""
    return bounds.Chaining(facts.delta, rigorous=rigorous, points=facts.points)


def improved_gp_ucb(facts: Facts) -> Confidence:
    """Return the bound of IGP-UCB at ridge ``1 + 2 / T``, which also holds after T rounds."""
    return of_known_norm(facts, partial(bounds.ImprovedGPUCB, eta=2 / facts.horizon))


def mixture(facts: Facts, kind: Literal["amm", "dmm", "cmm"]) -> Confidence:
    """Return a martingale mixture: at one ridge, at the best of a few, or at the best of all ridges."""
    ridges = facts.options.get("ridges")
    bound = partial(bounds.MartingaleMixture, kind=kind, scale=facts.scale, ridges=ridges)
    return of_known_norm(facts, bound)


def unknown_norm(facts: Facts, multiple: float | None) -> Confidence:
    """Return the CMM bound with a norm bound that follows the data."""
    return bounds.UnknownNorm(facts.noise_std, facts.delta, scale=facts.scale, multiple=multiple)


def ek_ucb(facts: Facts) -> Confidence:
    """Return the bound of EK-UCB; its ``projection`` is mu of the dictionary, or else the ridge."""
    mu = facts.ridge
    if facts.dictionary is not None and facts.dictionary.mu is not None:
        mu = facts.dictionary.mu
    return of_known_norm(facts, partial(bounds.EKUCB, projection=mu))


def adaptive_self_normalized(facts: Facts) -> Confidence:
    """Return the self-normalised bound with the noise level that the schedule of the ridge bounds."""
    return bounds.AdaptiveSelfNormalized()


def adaptive_mixture(facts: Facts, kind: Literal["dmm", "cmm"]) -> Confidence:
    """Return the mixture bound on the event of the mixture bounds of the noise level."""
    return bounds.AdaptiveMixture(kind)


# The table

_RIDGE = ("ridge", "multiplier")
_SKETCH = ("ridge", "dictionary", "multiplier")

# Without a guarantee
register(
    NamedMethod("random", exact, None, UniformChoice(), ("noise_std",), (), norm="unused"),
    NamedMethod(
        "ucb",
        exact_or_sketched,
        practical_widths,
        needs=("noise_std",),
        options=_SKETCH,
        norm="unused",
    ),
    NamedMethod(
        "kernel-ts",
        exact_or_sketched,
        prior_width,
        ThompsonSampling(),
        needs=("noise_std",),
        options=_SKETCH,
        norm="unused",
    ),
)

# For functions drawn from the Gaussian process: their guarantee assumes the prior
register(
    NamedMethod(
        "gp-ucb",
        exact_at_noise_variance,
        finite_set,
        needs=("noise_std", "delta", "n_points"),
        norm="unused",
    ),
    NamedMethod(
        "chaining-ucb",
        exact_at_noise_variance,
        partial(chaining, rigorous=False),
        needs=("noise_std", "delta"),
        norm="unused",
        fixed_kernel=True,
    ),
    NamedMethod(
        "chaining-ucb-rigorous",
        exact_at_noise_variance,
        partial(chaining, rigorous=True),
        needs=("noise_std", "delta"),
        norm="unused",
        fixed_kernel=True,
    ),
)

# For functions of bounded norm
register(
    NamedMethod(
        "igp-ucb",
        exact_of_horizon,
        improved_gp_ucb,
        needs=("noise_std", "norm_bound", "delta", "horizon"),
    ),
    NamedMethod(
        "ay-gp-ucb", exact, partial(of_known_norm, bound=bounds.SelfNormalized), options=_RIDGE
    ),
    # Zenati et al. (2022), Lemma 4.1 with mu = 0: never narrower than "ay-gp-ucb"
    NamedMethod(
        "k-ucb",
        exact,
        partial(of_known_norm, bound=partial(bounds.EKUCB, projection=0.0)),
        options=_RIDGE,
    ),
    NamedMethod("amm-ucb", exact, partial(mixture, kind="amm"), mixture=True),
    NamedMethod(
        "dmm-ucb",
        exact,
        partial(mixture, kind="dmm"),
        options=("ridges", "multiplier"),
        mixture=True,
    ),
    NamedMethod("cmm-ucb", exact, partial(mixture, kind="cmm"), mixture=True),
    NamedMethod(
        "cmm-ucb-doubling",
        exact,
        partial(unknown_norm, multiple=None),
        needs=("noise_std", "delta"),
        norm="estimated",
    ),
    NamedMethod(
        "cmm-ucb-practical",
        exact,
        partial(unknown_norm, multiple=bounds.PRACTICAL_MULTIPLE),
        needs=("noise_std", "delta"),
        norm="estimated",
    ),
)

# On a sketch
register(
    NamedMethod(
        "bkb",
        partial(resampled, resampling=LeverageResampling),
        partial(of_known_norm, bound=bounds.BKB),
        options=_SKETCH,
    ),
    NamedMethod(
        "bbkb",
        partial(resampled, resampling=BatchedResampling),
        partial(of_known_norm, bound=bounds.BKB),
        options=_SKETCH,
    ),
    NamedMethod("ek-ucb", row_sampled, ek_ucb, options=_SKETCH),
    NamedMethod(
        "sketched-cmm",
        sketched,
        partial(mixture, kind="cmm"),
        options=("dictionary", "multiplier"),
        mixture=True,
    ),
)

# With a noise level that is bounded online. Noise bounds give each of their three events a third of delta.
# Thompson sampling needs its radius for delta / 12 (Durand et al. 2018, Sec. 6.4), a third of delta / 4.
register(
    NamedMethod(
        "kernel-ucb-adaptive",
        partial(at_bounded_noise, share=1.0),
        adaptive_self_normalized,
        needs=("norm_bound", "delta"),
        options=("dictionary",),
        noise="online",
    ),
    NamedMethod(
        "kernel-ts-adaptive",
        partial(at_bounded_noise, share=0.25),
        adaptive_self_normalized,
        ThompsonSampling(),
        needs=("norm_bound", "delta"),
        options=("dictionary",),
        noise="online",
    ),
    NamedMethod(
        "dmm-ucb-adaptive",
        at_bounded_noise_of_mixture,
        partial(adaptive_mixture, kind="dmm"),
        needs=("norm_bound", "delta"),
        options=("strict_noise", "dictionary"),
        noise="online",
    ),
    NamedMethod(
        "cmm-ucb-adaptive",
        at_bounded_noise_of_mixture,
        partial(adaptive_mixture, kind="cmm"),
        needs=("norm_bound", "delta"),
        options=("strict_noise", "dictionary"),
        noise="online",
    ),
)
