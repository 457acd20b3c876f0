"""Upper and lower confidence bounds from the numbers of a posterior."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from kbo.linalg import safe_sqrt
from kbo.regression import Posterior


class Confidence(ABC):
    """A sequence of confidence bounds, one for every moment of a growing posterior.

    Attributes:
        guarantee: What holds with probability ``1 - delta`` on exact posteriors, in words; None if nothing is proved.
    """

    guarantee: str | None = None

    def guarantee_on(self, state: Posterior) -> str | None:
        """What holds on this posterior, in words; None if nothing is proved, as with hypothetical observations."""
        return self.guarantee if not state.hypothetical and self.holds_on(state) else None

    def holds_on(self, state: Posterior) -> bool:
        """Whether the theorem covers this posterior: not a sketch, unless the bound accounts for its error."""
        return float(state.residual_trace) == 0

    def __repr__(self) -> str:
        shown = (name for name in vars(self) if name != "guarantee" and not name.startswith("_"))
        numbers = (f"{name}={vars(self)[name]!r}" for name in shown)
        return f"{type(self).__name__}({', '.join(numbers)})"

    @abstractmethod
    def interval(self, state: Posterior, X: Tensor) -> tuple[Tensor, Tensor]:
        """Lower and upper bound [...] at X [... d], in units of the targets that ``state`` has seen.

        Raises:
            RefutedAssumptions: No function satisfies the assumptions and fits the data.
        """

    def upper(self, state: Posterior, X: Tensor) -> Tensor:
        """Upper bound [...] at X [... d]; see ``interval``."""
        return self.interval(state, X)[1]

    def lower(self, state: Posterior, X: Tensor) -> Tensor:
        """Lower bound [...] at X [... d]; see ``interval``."""
        return self.interval(state, X)[0]

    def finite_on(self, state: Posterior) -> bool:
        """Whether there are bounds yet; as long as there are none, points are searched by their standard deviation.

        That is the limit of ever wider bounds.
        """
        return True

    def quick_upper(self, state: Posterior, X: Tensor) -> Tensor:
        """Return a score [...] of at least ``upper`` to search with; ``upper`` itself unless that is expensive."""
        return self.upper(state, X) if self.finite_on(state) else safe_sqrt(state.predict(X)[1])

    def argmax_upper(self, state: Posterior, X: Tensor) -> tuple[int, float]:
        """The row of X [A d] with the largest upper bound, the first of several, and that bound."""
        upper = self.upper(state, X)
        first = int((upper if self.finite_on(state) else state.predict(X)[1]).argmax())
        return first, float(upper[first])

    def argmax_lower(self, state: Posterior, X: Tensor) -> tuple[int, float]:
        """The row of X [A d] with the largest lower bound, the first of several, and that bound."""
        lower = self.lower(state, X)
        first = int(lower.argmax())
        return first, float(lower[first])


class WidthConfidence(Confidence):
    """Bounds of the form ``mean +- width * sqrt(variance)`` at one ridge.

    Attributes:
        any_ridge: Whether they hold at ridges that were chosen from the data.
    """

    any_ridge = False

    def guarantee_on(self, state: Posterior) -> str | None:
        """As for any confidence; nothing at a ridge that follows the data, unless the bound allows for that."""
        follows_data = (state.schedule is not None or state.ridge_moved) and self.ridge(state) == state.ridge
        return None if follows_data and not self.any_ridge else super().guarantee_on(state)

    @abstractmethod
    def width(self, state: Posterior) -> Tensor:
        """The multiplier of the standard deviation, []."""

    def ridge(self, state: Posterior) -> float:
        """The ridge at which mean and variance are taken; the state's own unless a bound fixes it."""
        return state.ridge

    def interval(self, state: Posterior, X: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102
        mean, variance = state.predict(X, self.ridge(state))
        margin = self.width(state) * safe_sqrt(variance)
        return mean - margin, mean + margin


class Delegated(Confidence):
    """Bounds of another confidence, which the data of the moment choose."""

    @abstractmethod
    def in_force(self, state: Posterior) -> Confidence:
        """The confidence whose bounds these are, now."""

    def interval(self, state: Posterior, X: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102
        return self.in_force(state).interval(state, X)

    def upper(self, state: Posterior, X: Tensor) -> Tensor:  # noqa: D102
        return self.in_force(state).upper(state, X)

    def lower(self, state: Posterior, X: Tensor) -> Tensor:  # noqa: D102
        return self.in_force(state).lower(state, X)

    def quick_upper(self, state: Posterior, X: Tensor) -> Tensor:  # noqa: D102
        return self.in_force(state).quick_upper(state, X)

    def argmax_upper(self, state: Posterior, X: Tensor) -> tuple[int, float]:  # noqa: D102
        return self.in_force(state).argmax_upper(state, X)

    def argmax_lower(self, state: Posterior, X: Tensor) -> tuple[int, float]:  # noqa: D102
        return self.in_force(state).argmax_lower(state, X)
