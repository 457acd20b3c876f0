"""Bandit games as cells: one method plays one problem with one seed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from kbo import bandit, checks, recipes
from kbo.errors import InvalidInput
from kbo.experiments.cells import Cell
from kbo.problems import RKHSBandit


@dataclass(frozen=True)
class Game:
    """A problem, how long it is played, and what the methods are told about it.

    Attributes:
        kernel: "rbf", "matern52", "matern32" or "matern12".
        lengthscale: Its lengthscale.
        dim: Dimension of the arms.
        rounds: Rounds T.
        arms: Arms per round.
        fixed: Whether every round offers the same arms.
        delta: Probability that the bounds may fail.
        norm: RKHS norm of the function.
        noise_std: Standard deviation of the noise.
        told_norm: The norm bound that the methods are given, if not the true norm.
        told_noise_std: The noise level that the methods are given, if not the true one.
        every: Keep every so many rounds, and the last.
    """

    kernel: str = "rbf"
    lengthscale: float = 0.5
    dim: int = 3
    rounds: int = 1000
    arms: int = 100
    fixed: bool = False
    delta: float = 0.01
    norm: float = 10.0
    noise_std: float = 0.1
    told_norm: float | None = None
    told_noise_std: float | None = None
    every: int = 1

    def problem(self, seed: int) -> RKHSBandit:
        """The problem of that seed: its function, arms and noise."""
        return RKHSBandit(
            self.kernel,
            self.lengthscale,
            self.dim,
            norm=self.norm,
            noise_std=self.noise_std,
            n_arms=self.arms,
            fixed=self.fixed,
            seed=seed,
        )

    def method(self, name: str) -> recipes.Method:
        """The method of that name, with the numbers of this game."""
        world = self.problem(0)
        noise_std = self.noise_std if self.told_noise_std is None else self.told_noise_std
        norm_bound = self.norm if self.told_norm is None else self.told_norm
        return recipes.make(
            name,
            world.kernel,
            noise_std,
            norm_bound,
            self.delta,
            scale=world.scale(self.rounds),
            horizon=self.rounds,
            n_points=self.arms * (1 if self.fixed else self.rounds),
        )

    def cell(self, method: str, seed: int) -> Cell:
        """That method on the problem of that seed."""
        told = [
            f"{letter}{value:g}"
            for letter, value in (("B", self.told_norm), ("s", self.told_noise_std))
            if value is not None
        ]
        words = [self.kernel, f"l{self.lengthscale:g}", f"d{self.dim}", f"T{self.rounds}", *told, method, f"seed{seed}"]
        return Cell(_PLAY, {"method": method, "seed": seed, **asdict(self)}, " ".join(words))


_PLAY = f"{__name__}:play"


def play(method: str, seed: int, **game: Any) -> list[dict[str, Any]]:
    """The rows of ``kbo.bandit.play`` for the fields of a ``Game``.

    Returns:
        ``round``, ``cumulative`` regret and ``cpu_seconds`` so far; ``regret`` of the round where all rounds are kept.
    """
    setting = Game(**game)
    if checks.positive("every", setting.every) % 1:
        raise InvalidInput(f"every must be a whole number, got {setting.every}.")
    rows = bandit.play(setting.method(method), setting.problem(seed), setting.rounds, seed)
    kept = [row for row in rows if row["round"] % setting.every == 0 or row["round"] == setting.rounds]
    if setting.every > 1:
        for row in kept:
            del row["regret"]
    return kept
