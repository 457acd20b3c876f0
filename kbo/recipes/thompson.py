"""Inflated Thompson sampling as a rule: the argmax of a draw whose spread is that of a confidence sequence.

Durand, Maillard & Pineau (2018), Sec. 6.4, for any posterior and any confidence; see ``acquisition/thompson.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from kbo.acquisition.thompson import InflatedThompsonSampling, inflated_draws
from kbo.models import StreamingGP
from kbo.recipes.method import Method, Rule
from kbo.regression import Posterior


@dataclass(frozen=True)
class ThompsonSampling(Rule):
    """The point at which a draw of the function, as wide as the confidence, is largest.

    ``FixedWidth(1.0)`` makes it plain Thompson sampling. The points of a batch are independent; some may be equal.
    """

    draws = True

    @torch.no_grad()
    def choose(  # noqa: D102
        self, method: Method, state: Posterior, points: Tensor, size: int, rng: Generator | None
    ) -> list[int]:
        return inflated_draws(method.bound, state, points, size, rng).argmax(-1).tolist()

    def acquisition(  # noqa: D102
        self, method: Method, model: StreamingGP, rng: Generator | None
    ) -> InflatedThompsonSampling:
        return InflatedThompsonSampling(model, method.bound, int(torch.randint(2**62, (), generator=rng)))
