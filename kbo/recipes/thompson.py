"""Inflated Thompson sampling as a method: the argmax of a draw that spreads as far as a confidence sequence.

Durand, Maillard & Pineau (2018), Sec. 6.4, for any posterior and any confidence; see ``acquisition/thompson.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kbo import checks
from kbo.acquisition.thompson import InflatedThompsonSampling, inflated_draws
from kbo.confidence import Confidence
from kbo.errors import InvalidInput
from kbo.models import StreamingGP
from kbo.recipes.method import Method
from kbo.regression import Posterior


@dataclass(frozen=True)
class ThompsonSampling(Method):
    """Inflated Thompson sampling; the confidence says how far draws spread, and ``FixedWidth(1.0)`` makes it plain."""

    def choose(self, state: Posterior, points: Tensor, generator: torch.Generator | None = None) -> int:
        """The index of the largest value of one draw among ``points`` [A d]; ties go to the first."""
        return self._argmax(state, points, 1, generator)[0]

    def choose_batch(
        self, state: Posterior, points: Tensor, size: int, generator: torch.Generator | None = None
    ) -> list[int]:
        """The indices of ``size`` next points, by independent draws from the same posterior; some may be equal."""
        if checks.at_least("size", size, 1) % 1:
            raise InvalidInput(f"size must be a whole number, got {size}.")
        return self._argmax(state, points, size, generator)

    def acquisition(self, model: StreamingGP, generator: torch.Generator | None = None) -> InflatedThompsonSampling:
        """The rule as a BoTorch acquisition function, with functions drawn from the generator."""
        seed = int(torch.randint(2**62, (), generator=generator))
        return InflatedThompsonSampling(model, self._spread(), seed)

    @torch.no_grad()
    def _argmax(self, state: Posterior, points: Tensor, count: int, generator: torch.Generator | None) -> list[int]:
        return inflated_draws(self._spread(), state, points, count, generator).argmax(-1).tolist()

    def _spread(self) -> Confidence:
        if self.confidence is None:
            raise InvalidInput(
                f"{self.name!r} needs a confidence, which says how far draws spread: FixedWidth(1.0) is plain Thompson "
                "sampling."
            )
        return self.confidence
