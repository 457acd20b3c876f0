"""Who plays in the experiments of Durand et al. (2018), and what they are told."""

from __future__ import annotations

from kbo.experiments.bandits import BanditMethod, BanditProblem

UPPER, LOWER, DELTA = 1.0, 0.01, 0.1
"""Bounds of the noise level that are known beforehand (it is 0.1), and the probability of failure."""

ORACLE, FIXED, ADAPTIVE = "kernel-ucb-oracle", "kernel-ucb-fixed", "kernel-ucb-adaptive"
MIXTURE = "dmm-ucb-adaptive"


def game(quick: bool, rounds: int = 2000, every: int = 20) -> BanditProblem:
    """The function of the paper on 100 fixed arms, methods told a norm of 5; a tiny game if ``quick``."""
    rounds, every = (40, 10) if quick else (rounds, every)
    return BanditProblem("streaming", rounds=rounds, delta=DELTA, noise_upper=UPPER, noise_lower=LOWER, every=every)


def forms(recipe: str) -> list[BanditMethod]:
    """An adaptive recipe with the noise bounds of the paper, without their slack, and as kbo has it by default."""
    return [
        BanditMethod(f"{recipe}, paper", recipe, noise_variant="paper"),
        BanditMethod(f"{recipe}, tight", recipe, noise_variant="tight"),
        BanditMethod(recipe),
    ]


def ucb_players() -> list[BanditMethod]:
    """Those of figure 6: told the noise, told its upper bound, and told as much but learning."""
    return [BanditMethod(ORACLE), BanditMethod(FIXED), *forms(ADAPTIVE), BanditMethod(MIXTURE)]


def ts_players() -> list[BanditMethod]:
    """Those of figure 7; "kernel-ts" is plain Thompson sampling, told the noise, without a guarantee."""
    paper, _, default = forms("kernel-ts-adaptive")
    return [
        BanditMethod("kernel-ts-oracle"),
        BanditMethod("kernel-ts-fixed"),
        paper,
        default,
        BanditMethod("kernel-ts"),
    ]


def told_players() -> list[BanditMethod]:
    """Mixtures that are told the noise."""
    return [BanditMethod("dmm-ucb"), BanditMethod("cmm-ucb")]


def dear(player: BanditMethod) -> bool:
    """Whether a step takes so much longer that fewer seeds are played."""
    return player.method.startswith("cmm")
