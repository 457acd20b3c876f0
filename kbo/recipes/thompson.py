"""Inflated Thompson sampling as a rule: the argmax of a draw whose spread is that of a confidence sequence.

Durand, Maillard & Pineau (2018), Sec. 6.4, for any posterior and any confidence; see ``acquisition/thompson.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kbo.acquisition.thompson import InflatedThompsonSampling, inflated_draws
from kbo.confidence import Confidence
from kbo.models import StreamingGP
from kbo.recipes.method import Rule
from kbo.regression import Posterior


@dataclass(frozen=True)
class ThompsonSampling(Rule):
    """The point at which a draw of the function is largest, inflated to the width of the confidence.

    ``FixedWidth(1.0)`` makes it plain Thompson sampling.
    """

    draws = True

    def choose(  # noqa: D102
        self, confidence: Confidence | None, state: Posterior, points: Tensor, generator: torch.Generator | None = None
    ) -> int:
        return self.choose_batch(confidence, state, points, 1, generator)[0]

    @torch.no_grad()
    def choose_batch(
        self,
        confidence: Confidence | None,
        state: Posterior,
        points: Tensor,
        size: int,
        generator: torch.Generator | None = None,
    ) -> list[int]:
        """Return the indices of ``size`` next points, by independent draws; some may be equal."""
        assert confidence is not None
        return inflated_draws(confidence, state, points, size, generator).argmax(-1).tolist()

    def acquisition(
        self, confidence: Confidence | None, model: StreamingGP, generator: torch.Generator | None = None
    ) -> InflatedThompsonSampling:
        """Return the rule as a BoTorch acquisition function, with functions drawn from the generator."""
        assert confidence is not None
        return InflatedThompsonSampling(model, confidence, int(torch.randint(2**62, (), generator=generator)))
