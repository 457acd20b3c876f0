"""SupK-UCB: staged elimination on exact posteriors (Valko, Korda, Munos, Flaounas & Cristianini 2013, Alg. 2).

Observations are split among stages s = 1, 2, ... so that noise and choices are independent within a stage. So narrower
bounds hold than for a posterior of all data. With S stages, T rounds, N arms and weights of the noise of norm at most
``sqrt(leverage)``, the width is ``sigma sqrt(2 ln(2 T N S / delta) / ridge) + B``. A round begins with all points and
stage 1. If all bounds of a stage are tighter than ``2^-s``, the stage eliminates points that cannot be the best and
passes the others to the next stage. The first stage with a wider bound chooses a point with such a bound, and only the
posterior of this stage is updated with the reward.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from kbo._base import checks
from kbo._base.stateful import delegated_to
from kbo.bandit import Facts, Method, NamedMethod, Rule
from kbo.bandit.method import RNG
from kbo.confidence import Confidence, FixedWidth
from kbo.confidence.base import not_nan
from kbo.errors import InvalidInput
from kbo.regression import Posterior, View


class Stages(View):
    """The posterior of all observations, and one posterior for every stage.

    Attributes:
        learner: Index of the stage that the next observation updates; None for no stage.
        awaited: Whether the value of a chosen point is still missing.
        rounds: Number of observed values of chosen points; other observations are not counted.
    """

    def __init__(self, everything: Posterior, stages: list[Posterior]) -> None:
        super().__init__(everything)
        self.stages = stages
        self.learner: int | None = None
        self.awaited: bool = False
        self.rounds: int = 0

    across: Any = delegated_to("state.across")

    def update(self, X: Tensor, y: Tensor, weights: Tensor | None = None) -> None:
        """Add observations to the posterior of all data, and to the stage that chose them."""
        super().update(X, y, weights)
        if self.awaited and len(X):
            self.awaited = False
            self.rounds += 1
        if self.learner is not None:
            self.stages[self.learner].update(X, y, weights)
        self.learner = None


@dataclass(frozen=True)
class StagedElimination(Rule):
    """Staged elimination: SupK-UCB. The confidence holds within a stage, not over all data.

    Attributes:
        horizon: Number of rounds T, after which no point is chosen; there are ``ceil(log2 T)`` stages.
        reward_scale: The size of rewards; 1 in the paper.
    """

    horizon: float
    reward_scale: float = 1.0

    def __post_init__(self) -> None:
        checks.positive("horizon", self.horizon)
        checks.positive("reward_scale", self.reward_scale)

    @property
    def n_stages(self) -> int:
        """Number of stages."""
        return max(1, math.ceil(math.log2(self.horizon)))

    def state(self, posterior: Callable[[], Posterior], points: Tensor | None) -> Stages:
        """Return empty posteriors for all stages."""
        return Stages(posterior(), [posterior() for _ in range(self.n_stages)])

    def choose(
        self, confidence: Confidence, state: Posterior, points: Tensor, size: int, rng: RNG
    ) -> list[int]:
        if size > 1:
            raise InvalidInput(
                "staged elimination chooses one point at a time: update the state before the next."
            )
        state = checks.instance("state", state, Stages)
        if state.rounds >= self.horizon:
            raise InvalidInput(
                f"staged elimination was set up for horizon={self.horizon} rounds, and they are over: "
                "its stages and widths hold for no more. Choose a larger horizon before the first "
                "round, or a method without one, for example 'ay-gp-ucb'."
            )
        state.awaited = True
        state.learner = None
        narrow = self.reward_scale / math.sqrt(self.horizon)
        left = torch.arange(len(points), device=points.device)
        for s, stage in enumerate(state.stages):
            threshold = self.reward_scale * 2.0 ** -(s + 1)
            lower, upper = confidence.interval(stage, points[left])
            radius = not_nan(upper - lower, "width of the bounds") / 2
            if bool((radius <= narrow).all()):
                return [int(left[upper.argmax()])]
            is_wide = radius > threshold
            if bool(is_wide.any()):
                state.learner = s
                return [int(left[is_wide.long().argmax()])]
            left = left[upper >= upper.max() - 2 * threshold]
        return [int(left[0])]


def stage_width(facts: Facts) -> Confidence:
    """Return the multiplier of the standard deviation that holds within every stage."""
    rule = _rule(facts)
    n_events = 2 * rule.horizon * facts.n_points * rule.n_stages  # two Hoeffding bounds each
    noise = 2 * math.log(n_events / facts.delta)
    return FixedWidth(facts.noise_std * math.sqrt(noise / facts.ridge) + facts.norm_bound)


def _rule(facts: Facts) -> StagedElimination:
    """Return the rule for a number of rounds, with rewards as large as the norm bound."""
    return StagedElimination(facts.horizon, facts.norm_bound)


@dataclass(frozen=True)
class StagedMethod(NamedMethod):
    """A named method with staged elimination; ``n_points`` counts the arms of one round."""

    def build(self, facts: Facts) -> Method:
        return replace(super().build(facts), rule=_rule(facts))
