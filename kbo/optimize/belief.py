"""What is known after some evaluations, in terms of a posterior and a confidence; a setting makes one.

The optimiser only ever maximises; signs are its business.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor

from kbo.confidence import Confidence
from kbo.errors import InvalidInput
from kbo.regression import Posterior


class Belief(ABC):
    """What is known so far: a posterior over features, in units of its own, and a confidence.

    Attributes:
        certified: Whether the confidence rests on given assumptions only.
        location, unit, floor: A value y is ``(max(y, floor) - location) / unit`` in the posterior's units.
    """

    certified: bool
    norm_is_given = False
    """Whether the norm bound was given, and does not follow the data."""
    location, unit, floor = 0.0, 1.0, -math.inf

    @abstractmethod
    def observe(self, features: Tensor, y: float) -> None:
        """Add one evaluation, features [1 D]."""

    @property
    @abstractmethod
    def state(self) -> Posterior | None:
        """The posterior; None while there are too few evaluations to have one."""

    @abstractmethod
    def confidence(self) -> Confidence | None:
        """The bound in force; None chooses at random."""

    draws = False
    """Whether the next point is the best one of a draw, as wide as the confidence."""

    def reported(self) -> Confidence | None:
        """The bound that intervals and gaps are stated with; the one in force unless a setting is more cautious.

        None while there is no bound, or an infinite one.
        """
        confidence, state = self.confidence(), self.state
        return confidence if confidence is not None and state is not None and confidence.finite_on(state) else None

    @abstractmethod
    def assumptions(self) -> dict[str, Any]:
        """The numbers on which the bounds rest, in raw units, and where they come from."""

    def estimates(self) -> str:
        """What was estimated from the data, in words."""
        return "nothing was estimated"

    def interval(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Lower bound, mean (moved into the bounds) and upper bound [n] in raw units at features [n D]."""
        state = self.state
        confidence = None if state is None else self.reported()
        if state is None or confidence is None:
            raise InvalidInput("there is no bound: too few evaluations, or a method without one.")
        lower, upper = confidence.interval(state, features)
        mean = state.predict(features)[0].clamp(lower, upper)
        return self.raw(lower), self.raw(mean), self.raw(upper)

    def raw(self, value: Tensor) -> Tensor:
        """A value of the posterior in units of the objective."""
        return self.location + self.unit * value

    def target(self, y: float) -> float:
        """A value of the objective as the posterior holds it: in its units, and cut if it is too low."""
        return (max(y, self.floor) - self.location) / self.unit
