"""Games of Contal et al. (2015): their problems, who plays, and one game as a cell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kbo import bandit, recipes
from kbo.experiments.sweep.cells import Cell
from kbo.problems import BANDITS, Bandit

ALGORITHM, PROVED, UNION, RANDOM = "chaining-ucb", "chaining-ucb-rigorous", "gp-ucb", "random"
"""Algorithm 1; the chain whose bound is proved; GP-UCB with a union over all points; uniform choice."""

NOISE, DELTA, INITIAL = 0.05, 0.05, 10
"""Standard deviation of the noise, the probability of failure, and uniform observations before the first round."""

PROBLEMS = ("gp-draw", "himmelblau", "graphs")

_SIDE = 20.0


def world(problem: str, seed: int, points: int, side: float = _SIDE) -> Bandit:
    """The problem of that seed with so many points; draws of a Gaussian process have lengthscale 1 on that side."""
    size = {"n_graphs" if problem == "graphs" else "n_points": points}
    options = {"side": side, "lengthscale": 1.0} if problem == "gp-draw" else {}
    return BANDITS[problem](**size, **options, noise_std=NOISE, seed=seed)


def play(
    problem: str, method: str, seed: int, points: int, rounds: int, every: int, side: float = _SIDE
) -> list[dict[str, Any]]:
    """The rows of ``kbo.bandit.play`` after initial observations that all methods share.

    A method knows the kernel of the very problem it plays: likelihood sets that of "himmelblau" seed by seed.

    Returns:
        Every so many rounds and after the last: ``round``, ``best``, the simple regret; ``cumulative`` regret, and
        ``cpu_seconds`` so far.
    """
    game = world(problem, seed, points, side)
    player = recipes.make(
        method, game.kernel, NOISE, game.norm_bound, DELTA, n_points=game.n_arms, points=game.fixed_arms
    )
    rows = bandit.play(player, game, rounds, seed, initial=INITIAL)
    kept = [row for row in rows if row["round"] % every == 0 or row["round"] == rounds]
    return [{name: row[name] for name in ("round", "best", "cumulative", "cpu_seconds")} for row in kept]


def with_error(mean: float, error: float) -> str:
    """Mean ± standard error; NaN for that of a single seed."""
    return f"{mean:.3g}" + ("" if math.isnan(error) else f" ± {error:.2g}")


def cells(
    problems: Sequence[str], methods: Sequence[str], seeds: int, points: int, rounds: int, every: int = 1, **more: float
) -> list[Cell]:
    """Everybody on every problem, seed by seed."""
    return [
        Cell(
            f"{__name__}:play",
            {
                "problem": problem,
                "method": method,
                "seed": seed,
                "points": points,
                "rounds": rounds,
                "every": every,
                **more,
            },
            f"{problem} {points} T{rounds} {method} seed{seed}",
        )
        for seed in range(seeds)
        for problem in problems
        for method in methods
    ]
