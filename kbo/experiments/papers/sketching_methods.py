"""Who plays in the experiments of EK-UCB and BKB, and where."""

from __future__ import annotations

from typing import Any

from kbo.experiments.bandits import BanditMethod, BanditProblem

ENVIRONMENTS = {"Chessboard": "chessboard", "Step Diagonal": "step-diagonal", "Bump": "bump"}
"""Name of an environment in pictures -> its problem."""

_FIRST, _MULTIPLIER = 2, 0.1
_GREEDY_THRESHOLD = 0.1
"""What the greedy dictionary leaves unexplained of a point: a hundredth of the ridge 10."""


def game(environment: str, quick: bool, rounds: int = 1000, every: int = 10) -> BanditProblem:
    """The game of that environment with the protocol of the authors' code; a tiny one if ``quick``."""
    rounds = min(rounds, 30) if quick else rounds
    return BanditProblem(ENVIRONMENTS[environment], rounds=rounds, delta=0.1, first=_FIRST, every=every)


def paper_players(ridge: float) -> list[BanditMethod]:
    """The methods of the paper's figures at ridge = mu."""
    return [
        exact(ridge),
        _player("ek-ucb", "ek-ucb", ridge, kind="kors", mu=ridge, gamma=ridge),
        _player("c-bkb", "c-bkb", ridge, kind="bkb", oversampling=10.0),
        batched("c-bbkb", ridge, growth=10.0),
        BanditMethod("supk-ucb", ridge=ridge, multiplier=1.0),
    ]


def variants(ridge: float) -> list[BanditMethod]:
    """EK-UCB with a smaller dictionary, and CBBKB with shorter batches."""
    smaller = _player("ek-ucb, gamma 1", "ek-ucb", ridge, kind="kors", mu=ridge, gamma=1.0)
    return [smaller, batched("c-bbkb, C = 3", ridge, growth=3.0)]


def exact(ridge: float) -> BanditMethod:
    """K-UCB."""
    return BanditMethod("k-ucb", ridge=ridge, multiplier=_MULTIPLIER)


def batched(method: str, ridge: float, growth: float) -> BanditMethod:
    """CBBKB with that C."""
    return _player(method, "c-bbkb", ridge, kind="bbkb", oversampling=10.0 * growth, growth=growth)


def greedy(ridge: float) -> BanditMethod:
    """A dictionary of every point that those before it explain too little of."""
    return _player("greedy", "ek-ucb", ridge, kind="greedy", threshold=_GREEDY_THRESHOLD)


def _player(method: str, recipe: str, ridge: float, **dictionary: Any) -> BanditMethod:
    return BanditMethod(method, recipe, ridge, _MULTIPLIER, dictionary)
