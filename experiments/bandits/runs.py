"""Runs of bandit methods as cells: one method on one problem with one seed."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from gpytorch.kernels import Kernel

from experiments.bandits.elimination import StagedMethod
from experiments.bandits.methods import PAPER_METHODS
from experiments.durand_noise import DurandNoiseBounds
from experiments.problems import BANDITS, RKHSBandit
from experiments.sweep.cells import Cell
from kbo import bandit, regression
from kbo._base import checks
from kbo.bandit import Bandit, NamedMethod, register
from kbo.confidence import NoiseLevel
from kbo.errors import InvalidInput
from kbo.regression import (
    AdaptiveRidge,
    Dictionary,
    GreedyDictionary,
    KernelRidge,
    NystromRidge,
    Posterior,
)

register(*PAPER_METHODS)

PROBLEMS: dict[str, Callable[..., Bandit]] = {
    "rkhs": RKHSBandit,
    "rkhs-fixed": functools.partial(RKHSBandit, fixed=True),
    **BANDITS,
}
"""Bandit problems by name; each takes a ``seed`` and its own options."""

DICTIONARIES: dict[str, Callable[..., Dictionary]] = {
    "kors": regression.OnlineRowSampling,
    "bkb": regression.LeverageResampling,
    "bbkb": regression.BatchedResampling,
    "greedy": GreedyDictionary,
}
"""Kinds of dictionaries by name."""

NOISE: dict[str, Callable[..., NoiseLevel]] = {
    "paper": functools.partial(DurandNoiseBounds, printed=True),
    "tight": functools.partial(DurandNoiseBounds, printed=False),
}
"""Noise bounds of Durand et al. (2018), at a ridge that follows the upper bound exactly; "strict": the method's own."""


@dataclass(frozen=True)
class BanditMethod:
    """A named method and its options.

    Attributes:
        method: The name in tables and pictures.
        recipe: The name in ``kbo.bandit.METHODS``; by default the same.
        ridge: The ridge; None for the method's own.
        multiplier: Multiplier of sqrt(leverage) in place of a bound.
        dictionary: The "kind", one of ``DICTIONARIES``, and its options; by default the method's own dictionary.
        noise_bounds: One of ``NOISE``, in place of the method's own noise bounds.
    """

    method: str
    recipe: str | None = None
    ridge: float | None = None
    multiplier: float | None = None
    dictionary: Mapping[str, Any] | None = field(default=None, hash=False)
    noise_bounds: str | None = None

    @property
    def settings(self) -> str:
        """Ridge, multiplier and noise bounds as text, if they are set, each after a space."""
        words = ""
        if self.ridge is not None:
            words += f" ridge{self.ridge:g}"
        if self.multiplier is not None:
            words += f" multiplier{self.multiplier:g}"
        if self.noise_bounds is not None:
            words += f" {self.noise_bounds}"
        return words

    @property
    def named(self) -> NamedMethod:
        """The row of ``kbo.bandit.METHODS``."""
        return bandit.get(self.recipe or self.method)

    @property
    def uses_norm_bound(self) -> bool:
        """Whether the bound of the method uses the given norm bound."""
        return self.named.norm == "given"

    def make_dictionary(self, seed: int) -> Dictionary | None:
        """Return the dictionary, with random choices from the seed; None for the method's own."""
        if self.dictionary is None:
            return None
        options = dict(self.dictionary)
        kind = options.pop("kind", "")
        if kind not in DICTIONARIES:
            raise InvalidInput(
                f"a dictionary needs a kind among {', '.join(DICTIONARIES)}, got {self.dictionary}."
            )
        if kind != "greedy":  # which makes no random choices
            options["seed"] = seed
        return DICTIONARIES[kind](**options)


@dataclass(frozen=True)
class BanditProblem:
    """A problem, its number of rounds, and the numbers that are given to methods.

    Attributes:
        problem: One of ``PROBLEMS``.
        options: Arguments of its constructor, except the seed; for example ``{"lengthscale": 0.2}``.
        rounds: Number T of rounds.
        delta: Probability that the bounds may fail.
        given_norm: The norm bound that methods get; None for the problem's own.
        given_noise_std: The noise level that methods get; None for the true one.
        noise_upper: The upper bound on the noise level for methods that do not get the level; None for no bound.
        noise_lower: The lower bound on the noise level for these methods.
        first: Index of the arm that is pulled in one uncounted round before the first.
        initial: Number of uncounted rounds with random arms before the first.
        every: Rows are kept for every so many rounds, and for the last one.

    Raises:
        InvalidInput: There is no such problem, or it has no such option.
    """

    problem: str = "rkhs"
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    rounds: int = 1000
    delta: float = 0.01
    given_norm: float | None = None
    given_noise_std: float | None = None
    noise_upper: float | None = None
    noise_lower: float | None = None
    first: int | None = None
    initial: int = 0
    every: int = 1

    def __post_init__(self) -> None:
        checks.one_of("problem", self.problem, PROBLEMS)
        checks.instance("options", self.options, Mapping)
        known = self.defaults()
        for name in self.options:
            if name not in known:
                raise InvalidInput(
                    f"problem {self.problem!r} has no option {name!r}; it has {', '.join(known)}."
                )

    def defaults(self) -> dict[str, Any]:
        """Return the options of the problem and their default values."""
        parameters = inspect.signature(PROBLEMS[self.problem]).parameters
        return {name: parameter.default for name, parameter in parameters.items() if name != "seed"}

    def environment(self, seed: int) -> Bandit:
        """Return the function, arms and noise of that seed."""
        return PROBLEMS[self.problem](**self.options, seed=seed)

    def make(self, method: BanditMethod | str, seed: int = 0) -> bandit.Method:
        """Return the method for the problem of a seed; its random dictionary has the same seed."""
        method = _method(method)
        environment = self.environment(seed)
        dictionary = method.make_dictionary(seed)
        made = method.named.make(
            environment.kernel,
            self._noise_std(environment),
            self._norm_bound(environment),
            self.delta,
            scale=self._scale(environment),
            horizon=self.rounds,
            n_points=self._n_points(environment, method),
            points=environment.fixed_arms,
            dictionary=dictionary,
            seed=seed,
            noise_upper=self.noise_upper,
            noise_lower=self.noise_lower or 0.0,
            **_options(method),
        )
        own = made.posterior().schedule
        if method.noise_bounds in (None, "strict") or not isinstance(own, NoiseLevel):
            return made
        numbers = (own.description[name] for name in ("norm_bound", "delta", "upper", "lower"))
        bounds = NOISE[method.noise_bounds](*numbers)
        empty = functools.partial(_following, bounds, environment.kernel, dictionary)
        return replace(made, posterior=empty)

    def _noise_std(self, environment: Bandit) -> float | None:
        """Return the noise level that methods get; None if they get none."""
        if self.given_noise_std is not None:
            return self.given_noise_std
        return environment.noise_std

    def _norm_bound(self, environment: Bandit) -> float | None:
        """Return the norm bound that methods get; None if they get none."""
        if self.given_norm is not None:
            return self.given_norm
        return environment.norm_bound

    def _scale(self, environment: Bandit) -> float:
        """Return the covariance scale of the mixtures."""
        if isinstance(environment, RKHSBandit):
            return environment.scale(self.rounds)
        return 1.0

    def _n_points(self, environment: Bandit, method: BanditMethod) -> int:
        """Return the number of points at which bounds hold: all arms, or for staged elimination the arms of a round."""
        if environment.fixed_arms is not None or isinstance(method.named, StagedMethod):
            return environment.n_arms
        return environment.n_arms * self.rounds

    @property
    def label(self) -> str:
        """A short text that distinguishes the problem from others."""
        words = [self.problem]
        defaults = self.defaults()
        for name, value in self.options.items():
            if value != defaults[name]:
                words.append(f"{name}={value}")
        words += [f"T{self.rounds}", f"delta{self.delta:g}"]
        given = {
            "B": self.given_norm,
            "s": self.given_noise_std,
            "noise_upper": self.noise_upper,
            "first": self.first,
        }
        for name, value in given.items():
            if value is not None:
                words.append(f"{name}{value:g}")
        return " ".join(words)

    def cell(self, method: BanditMethod | str, seed: int) -> Cell:
        """Return the run of a method on the problem of a seed, as a cell."""
        method = _method(method)
        settings = {"seed": seed, **asdict(method), **asdict(self)}
        options = self.defaults() | settings.pop("options")
        given = {name: value for name, value in settings.items() if value is not None}
        label = f"{self.label} {method.method} seed{seed}"
        return Cell(f"{__name__}:play", {**given, **options}, label)


def _method(method: BanditMethod | str) -> BanditMethod:
    """Return a method, given the method or its name."""
    if isinstance(method, str):
        return BanditMethod(method)
    return method


def _options(method: BanditMethod) -> dict[str, Any]:
    """Return the options of a method; methods without bounds take no ridge and no multiplier."""
    options: dict[str, Any] = {}
    if method.named.has_bounds:
        options["ridge"] = method.ridge
        options["multiplier"] = method.multiplier
    if method.noise_bounds == "strict":
        options["strict_noise"] = True
    return options


def _following(bounds: NoiseLevel, kernel: Kernel, dictionary: Dictionary | None) -> Posterior:
    """Return an empty posterior whose ridge follows bounds on the noise level."""
    if dictionary is None:
        return AdaptiveRidge(KernelRidge(kernel, bounds.ridge), bounds)
    return AdaptiveRidge(NystromRidge(kernel, bounds.ridge, dictionary), bounds)


def cells(
    problems: Iterable[BanditProblem],
    methods: Iterable[BanditMethod | str],
    seeds: int | Iterable[int],
) -> list[Cell]:
    """Return the runs of every method on every problem, ordered by seed, so that an unfinished sweep is balanced."""
    if isinstance(seeds, int):
        seeds = range(seeds)
    runs = itertools.product(seeds, problems, methods)
    return [problem.cell(method, seed) for seed, problem, method in runs]


def play(seed: int, **settings: Any) -> list[dict[str, Any]]:
    """Return the rows of ``kbo.bandit.play``.

    Args:
        seed: Seed of the problem and the method.
        settings: The fields of a ``BanditMethod`` and a ``BanditProblem``, and the options of the problem.

    Returns:
        Rows with ``round``, ``cumulative`` regret and ``cpu_seconds`` so far, and the number ``m`` of anchors if the
        posterior is a sketch; also the ``regret`` of the round, if all rounds are kept.
    """
    method = BanditMethod(**_pop_fields(BanditMethod, settings))
    problem = BanditProblem(**_pop_fields(BanditProblem, settings), options=settings)
    if checks.positive("every", problem.every) % 1:
        raise InvalidInput(f"every must be a whole number, got {problem.every}.")
    rounds = bandit.play(
        problem.make(method, seed),
        problem.environment(seed),
        problem.rounds,
        seed,
        first=problem.first,
        initial=problem.initial,
    )
    if problem.every == 1:
        return list(rounds)
    rows = []
    for row in rounds:
        if row["round"] % problem.every == 0 or row["round"] == problem.rounds:
            del row["regret"]
            rows.append(row)
    return rows


def _pop_fields(of: type, settings: dict[str, Any]) -> dict[str, Any]:
    """Remove the fields of the dataclass from ``settings`` and return them."""
    return {entry.name: settings.pop(entry.name) for entry in fields(of) if entry.name in settings}
