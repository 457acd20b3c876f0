"""The base of confidences that use another confidence, which is chosen from the present data."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from torch import Tensor

from kbo.confidence.base import Confidence, checked_state
from kbo.regression import Posterior


class Delegated(Confidence):
    """The bounds of the confidence that ``choose`` returns; it is called once after every change.

    Used for an unknown norm (``UnknownNorm``) or an unknown noise level (``AdaptiveMixture``).
    """

    _chosen: tuple[int, Confidence] | None = None  # version of the posterior, its confidence

    @abstractmethod
    def choose(self, state: Posterior) -> Confidence:
        """Return the confidence to use on ``state``."""

    def current(self, state: Posterior) -> Any:
        """Return the chosen confidence, the same object until the data change."""
        version = checked_state(state).version
        if self._chosen is None or self._chosen[0] != version:
            self._chosen = (version, self.choose(state))
        return self._chosen[1]

    def interval(self, state: Posterior, X: Tensor) -> tuple[Tensor, Tensor]:
        return self.current(state).interval(state, X)

    def upper(self, state: Posterior, X: Tensor) -> Tensor:
        return self.current(state).upper(state, X)

    def lower(self, state: Posterior, X: Tensor) -> Tensor:
        return self.current(state).lower(state, X)

    def quick_interval(self, state: Posterior, X: Tensor) -> tuple[Tensor, Tensor]:
        return self.current(state).quick_interval(state, X)

    def argmax_upper(self, state: Posterior, X: Tensor) -> tuple[int, float]:
        return self.current(state).argmax_upper(state, X)

    def argmax_lower(self, state: Posterior, X: Tensor) -> tuple[int, float]:
        return self.current(state).argmax_lower(state, X)

    def underlying_bounds(self) -> list[Confidence]:
        """Return an empty list, because the chosen confidence needs no statement of its own."""
        return []
