"""Bandit games as cells: one player meets one problem with one seed."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from kbo import bandit, checks, recipes
from kbo.errors import InvalidInput
from kbo.experiments.sweep.cells import Cell
from kbo.problems import BANDITS, Bandit, RKHSBandit
from kbo.regression import (
    BatchedResampling,
    Dictionary,
    GreedyDictionary,
    LeverageResampling,
    OnlineRowSampling,
)

PROBLEMS: dict[str, Callable[..., Bandit]] = {
    "rkhs": RKHSBandit,
    "rkhs-fixed": functools.partial(RKHSBandit, fixed=True),
    **BANDITS,
}
"""Bandit problems by name; each takes a ``seed`` and options of its own."""

DICTIONARIES: dict[str, Callable[..., Dictionary]] = {
    "kors": OnlineRowSampling,
    "bkb": LeverageResampling,
    "bbkb": BatchedResampling,
    "greedy": GreedyDictionary,
}
"""Kinds of dictionaries by name."""


@dataclass(frozen=True)
class Player:
    """A method and what is set about it.

    Attributes:
        method: What tables and pictures call it.
        recipe: Its name in ``kbo.recipes``; by default the same.
        ridge: Its ridge, if not the recipe's own.
        multiplier: Multiplier of sqrt(leverage) instead of a bound.
        dictionary: "kind", one of ``DICTIONARIES``, and its options; by default the recipe's own.
        noise_variant: Variant of its noise bounds, if not the recipe's own.
    """

    method: str
    recipe: str | None = None
    ridge: float | None = None
    multiplier: float | None = None
    dictionary: Mapping[str, Any] | None = field(default=None, hash=False)
    noise_variant: str | None = None

    @property
    def settings(self) -> str:
        """Ridge and multiplier in words, as far as they are set."""
        numbers = (("ridge", self.ridge), ("multiplier", self.multiplier))
        return "".join(f" {name}{value:g}" for name, value in numbers if value is not None)

    def chosen_dictionary(self, seed: int) -> Dictionary | None:
        """The dictionary, its draws from that seed; None for the recipe's own."""
        if self.dictionary is None:
            return None
        options = dict(self.dictionary)
        make = DICTIONARIES.get(options.pop("kind", ""))
        if make is None:
            raise InvalidInput(f"a dictionary needs a kind among {', '.join(DICTIONARIES)}, got {self.dictionary}.")
        return make(**options) if make is GreedyDictionary else make(**options, seed=seed)


@dataclass(frozen=True)
class Game:
    """A problem, how long it is played, and what the players are told about it.

    Attributes:
        problem: One of ``PROBLEMS``.
        options: What its constructor is told, the seed not included; for example ``{"lengthscale": 0.2}``.
        rounds: Rounds T.
        delta: Probability that the bounds may fail.
        told_norm: The norm bound that the players are given, if not the problem's own.
        told_noise_std: The noise level that the players are given, if not the true one.
        noise_upper: The upper bound of the noise level that players without a noise level are given, if any.
        noise_lower: Their lower bound.
        first: Index of the arm that is pulled in one uncounted round before the first.
        every: Keep every so many rounds, and the last.

    Raises:
        InvalidInput: There is no such problem, or it has no such option.
    """

    problem: str = "rkhs"
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    rounds: int = 1000
    delta: float = 0.01
    told_norm: float | None = None
    told_noise_std: float | None = None
    noise_upper: float | None = None
    noise_lower: float | None = None
    first: int | None = None
    every: int = 1

    def __post_init__(self) -> None:
        if self.problem not in PROBLEMS:
            raise InvalidInput(f"unknown problem {self.problem!r}; known: {', '.join(PROBLEMS)}.")
        known = self._defaults()
        for name in self.options:
            if name not in known:
                raise InvalidInput(f"problem {self.problem!r} has no option {name!r}; it has {', '.join(known)}.")

    def _defaults(self) -> dict[str, Any]:
        parameters = inspect.signature(PROBLEMS[self.problem]).parameters
        return {name: parameter.default for name, parameter in parameters.items() if name != "seed"}

    def world(self, seed: int) -> Bandit:
        """The problem of that seed: its function, arms and noise."""
        return PROBLEMS[self.problem](**self.options, seed=seed)

    def method(self, player: Player | str, seed: int = 0) -> recipes.Method:
        """The player's method with the numbers of this game; its random dictionary draws from that seed."""
        player = Player(player) if isinstance(player, str) else player
        recipe, world = player.recipe or player.method, self.world(0)
        finite = world.fixed_arms is not None or recipe == "supk-ucb"  # a union bound over the arms of a round
        plays_by_chance = recipe == "random"
        return recipes.make(
            recipe,
            world.kernel,
            world.noise_std if self.told_noise_std is None else self.told_noise_std,
            world.norm_bound if self.told_norm is None else self.told_norm,
            self.delta,
            scale=world.scale(self.rounds) if isinstance(world, RKHSBandit) else 1.0,
            horizon=self.rounds,
            n_points=world.n_arms * (1 if finite else self.rounds),
            ridge=None if plays_by_chance else player.ridge,
            multiplier=None if plays_by_chance else player.multiplier,
            dictionary=player.chosen_dictionary(seed),
            seed=seed,
            noise_upper=self.noise_upper,
            noise_lower=self.noise_lower or 0.0,
            noise_variant=player.noise_variant or "tight+grid",
        )

    @property
    def label(self) -> str:
        """A few words that tell it from other games."""
        defaults = self._defaults()
        options = [f"{name}={value}" for name, value in self.options.items() if value != defaults[name]]
        told = (
            ("B", self.told_norm),
            ("s", self.told_noise_std),
            ("noise_upper", self.noise_upper),
            ("first", self.first),
        )
        more = [f"{letters}{value:g}" for letters, value in told if value is not None]
        return " ".join([self.problem, *options, f"T{self.rounds}", f"delta{self.delta:g}", *more])

    def cell(self, player: Player | str, seed: int) -> Cell:
        """That player on the problem of that seed."""
        player = Player(player) if isinstance(player, str) else player
        settings = {"seed": seed, **asdict(player), **asdict(self)}
        options = self._defaults() | settings.pop("options")
        told = {name: value for name, value in settings.items() if value is not None}
        return Cell(_PLAY, {**told, **options}, f"{self.label} {player.method} seed{seed}")


_PLAY = f"{__name__}:play"


def play(seed: int, **settings: Any) -> list[dict[str, Any]]:
    """The rows of ``kbo.bandit.play`` for the fields of a ``Player`` and a ``Game``, and the options of its problem.

    Returns:
        ``round``, ``cumulative`` regret and ``cpu_seconds`` so far, and the number ``m`` of anchors of a sketched
        posterior; ``regret`` of the round where all rounds are kept.
    """
    player = Player(**_taken(Player, settings))
    game = Game(**_taken(Game, settings), options=settings)
    if checks.positive("every", game.every) % 1:
        raise InvalidInput(f"every must be a whole number, got {game.every}.")
    rows = bandit.play(game.method(player, seed), game.world(seed), game.rounds, seed, first=game.first)
    kept = [row for row in rows if row["round"] % game.every == 0 or row["round"] == game.rounds]
    if game.every > 1:
        for row in kept:
            del row["regret"]
    return kept


def _taken(of: type, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that are fields of the dataclass, taken out of ``settings``."""
    return {entry.name: settings.pop(entry.name) for entry in fields(of) if entry.name in settings}
