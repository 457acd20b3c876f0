"""SupK-UCB: staged elimination on exact posteriors (Valko, Korda, Munos, Flaounas & Cristianini 2013, Alg. 2).

Observations are split among stages s = 1, 2, .. in such a way that within a stage noise and choices are independent, so
narrower bounds hold than for a posterior of all data. A round begins with all points and stage 1; a stage whose bounds
are all tighter than ``2^-s`` eliminates what cannot be the best and passes on; the first stage that is unsure about a
point chooses it, and learns from it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kbo import checks
from kbo.confidence.base import WidthConfidence
from kbo.errors import InvalidInput
from kbo.models import StreamingGP
from kbo.recipes.method import Method
from kbo.regression import KernelRidge, Posterior
from kbo.regression.posterior import View


class Stages(View):
    """The posterior of all observations, and one posterior for every stage.

    Args:
        everything: The posterior of all observations.
        stages: Empty posteriors, one for every stage.

    Attributes:
        learner: The stage that learns from the next observation; None if none does.
    """

    def __init__(self, everything: KernelRidge, stages: list[KernelRidge]) -> None:
        super().__init__(everything)
        self.stages = stages
        self.learner: int | None = None

    def update(self, X: Tensor, y: Tensor) -> None:
        """Add observations to the posterior of all, and to the stage that asked for them."""
        super().update(X, y)
        if self.learner is not None:
            self.stages[self.learner].update(X, y)
        self.learner = None


@dataclass(frozen=True)
class StagedElimination(Method):
    """SupK-UCB. Its confidence holds within a stage, so it states no bound over all data.

    Attributes:
        horizon: Number of rounds T; there are ``ceil(log2 T)`` stages.
        reward_scale: The size of rewards, which the paper takes to be 1.
    """

    horizon: int = 1
    reward_scale: float = 1.0

    def __post_init__(self) -> None:
        checks.positive("horizon", self.horizon)
        checks.positive("reward_scale", self.reward_scale)

    def state(self, points: Tensor | None = None) -> Stages:
        """Empty posteriors for all stages."""
        stages = max(1, math.ceil(math.log2(self.horizon)))
        everything, *parts = (KernelRidge(self.kernel, self.ridge) for _ in range(stages + 1))
        return Stages(everything, parts)

    def choose(self, state: Posterior, points: Tensor, generator: torch.Generator | None = None) -> int:
        """The index of the next point among ``points`` [A d]; ties go to the first."""
        assert isinstance(state, Stages)
        assert isinstance(self.confidence, WidthConfidence)
        left = torch.arange(len(points), device=points.device)
        state.learner = None
        for s, stage in enumerate(state.stages):
            lower, upper = self.confidence.interval(stage, points[left])
            radius, threshold = (upper - lower) / 2, self.reward_scale * 2.0 ** -(s + 1)
            if bool((radius <= self.reward_scale / math.sqrt(self.horizon)).all()):
                return int(left[upper.argmax()])
            if bool((radius > threshold).any()):
                state.learner = s
                return int(left[(radius > threshold).nonzero()[0, 0]])
            left = left[upper >= upper.max() - 2 * threshold]
        return int(left[0])

    def choose_batch(
        self, state: Posterior, points: Tensor, size: int, generator: torch.Generator | None = None
    ) -> list[int]:
        """There are no batches: a stage has to see a reward before the next choice."""
        raise InvalidInput(f"{self.name!r} chooses one point at a time: call choose, and update the state in between.")

    def model(self, train_X: Tensor, train_Y: Tensor) -> StreamingGP:
        """There is no model: the bounds belong to the stages."""
        raise InvalidInput(
            f"{self.name!r} eliminates points of finite sets: it has no model and no acquisition function."
        )
