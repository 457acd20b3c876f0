"""Beliefs: a posterior after the observations so far, the bounds on it, and the assumptions of both.

Values are to be maximised; signs are the optimiser's business.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kbo.confidence import Confidence, Limit
from kbo.confidence.base import decided
from kbo.errors import InvalidInput
from kbo.optimize.proposal import Search, argmax_draw, argmax_upper
from kbo.optimize.recommendation import Sureness
from kbo.optimize.targets import Targets
from kbo.regression import Posterior

NO_BOUND = "none: the method has no bounds, or there are too few trials to compute them"


class Belief(ABC):
    """A posterior over features, in units of its own, and the bounds on it.

    Attributes:
        posterior: The posterior that reported bounds are about.
        targets: The map from values of the objective to the posterior's units.
        draws: Whether the next point is the best one of a draw, as wide as the confidence.
        exact: Whether the values have no noise. None if that is not known: then the recommended trial is repeated next,
            once.
        repetition: Numbers of the first trials with equal parameters whose values decided that, the earlier one first;
            None if there are none.
    """

    posterior: Posterior
    targets: Targets = Targets()
    draws: bool = False
    exact: bool | None = False
    repetition: tuple[int, int] | None = None

    @property
    def searched(self) -> Posterior:
        """The posterior from which the next point is chosen: with values that no reported bound may use, too."""
        return self.posterior

    @abstractmethod
    def confidence(self) -> Confidence | None:
        """Return the bound that the next point maximises; None chooses at random."""

    @abstractmethod
    def reported(self) -> Confidence | None:
        """Return the bound that intervals and gaps are stated with; None while there is none, or an infinite one."""

    @property
    def bounded(self) -> bool:
        """Whether there is a bound to report, without computing it."""
        return self.reported() is not None

    def propose(self, posterior: Posterior, search: Search, limits: Sequence[Limit] = ()) -> Tensor:
        """Return the next point [P] of the unit cube.

        Args:
            posterior: The one from which it is chosen, with hypothetical values of pending and failed trials.
            search: The part of the space, with promising points.
            limits: Those of the measured quantities.
        """
        confidence = self.confidence()
        assert confidence is not None  # else points are chosen at random
        bound = confidence.for_trial(search.number)
        if self.draws and not limits:
            return argmax_draw(bound, posterior, search)
        return argmax_upper(bound, posterior, search, limits)

    def proved(self, selected: Sequence[str] = ()) -> str | None:
        """Return what is proved of the reported bound after these trials, in words; None if nothing is.

        Args:
            selected: As for ``guarantee``.
        """
        return None

    @abstractmethod
    def guarantee(self, selected: Sequence[str] = ()) -> str:
        """Return what holds for the reported intervals and what was given up, in words.

        Args:
            selected: More ways, besides those that the learner was told, in which the noise may have decided which
                values there are, in words ("2 trials failed").
        """

    @abstractmethod
    def assumptions(self) -> dict[str, Any]:
        """Return the numbers that the bounds rest on, in units of the objective, and where they come from."""

    def account(self) -> dict[str, str]:
        """Return the parts that led to the recommendation, in words, by name."""
        return {"rule": "the best pessimistic bound"}

    def sureness(self, features: Tensor, values: Tensor, chosen: int, generator: torch.Generator) -> Sureness | None:
        """Return how sure it is that a completed trial is the best one; None where there is no prior of the objective.

        Args:
            features: Features [n D] of the completed trials.
            values: Their values [n].
            chosen: The row of the trial.
            generator: Source of randomness.
        """
        return None

    def interval(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return lower bound, mean (moved into the bounds) and upper bound [n] of the objective at features [n D].

        Raises:
            InvalidInput: There is no bound.
        """
        reported = self.reported()
        if reported is None:
            raise InvalidInput("there is no bound: too few evaluations, or a method without one.")
        lower, upper = (decided(side, "bound") for side in reported.interval(self.posterior, features))
        mean = self.posterior.predict(features)[0].clamp(lower, upper)
        return self.raw(lower), self.raw(mean), self.raw(upper)

    def raw(self, value: Tensor) -> Tensor:
        """Return a value of the posterior in units of the objective."""
        return self.targets.values(value)

    def target(self, y: float) -> float:
        """Return a value of the objective in units of the posterior, cut if it is too low."""
        return float(self.targets(torch.tensor(y, dtype=torch.float64)))

    def assured(self, features: Tensor, values: Tensor) -> Tensor:
        """Return what completed trials reach for sure enough to be recommended, [n], in the posterior's units.

        Args:
            features: Their features [n D].
            values: Their values [n].
        """
        reported = self.reported()
        assert reported is not None
        return reported.lower(self.posterior, features)

    def chance(self, features: Tensor, limit: float) -> float:
        """Return the probability that the value at features [1 D] reaches a limit; 1 where there is no prior of it."""
        return 1.0

    def merit(self, features: Tensor, values: Tensor) -> Tensor:
        """Return by what completed trials are compared for the recommendation, [n], larger is better.

        Args:
            features: Their features [n D].
            values: Their values [n].
        """
        reported = self.reported()
        assert reported is not None
        return reported.lower(self.searched, features)


class Learner(ABC):
    """Observations, and on request the belief after them."""

    @abstractmethod
    def observe(self, number: int, features: Tensor, y: float) -> None:
        """Add one evaluation, features [1 D] on the CPU, of the trial that was started as that number."""

    def lose(self, number: int) -> None:  # noqa: B027
        """Take note that the trial with that number will never have a value."""

    def select(self, ways: Sequence[str]) -> None:  # noqa: B027
        """Take note of the ways in which the noise of a trial may have decided which values there are: of ``WAYS``."""

    @abstractmethod
    def belief(self) -> Belief | None:
        """Compute the belief after all observations; None while there are too few. Ask again after each observation.

        Raises:
            RefutedAssumptions: No function satisfies the given assumptions and fits the data.
        """
