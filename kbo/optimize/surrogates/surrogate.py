"""The surrogate of a quantity after some evaluations: a posterior and the bounds on it.

Values are to be maximised; signs are the optimiser's business.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kbo._base.surroundings import fixed
from kbo.confidence import Confidence
from kbo.confidence.base import decided
from kbo.errors import InvalidInput
from kbo.optimize.surrogates.outcome_transform import OutcomeTransform
from kbo.regression import Hypothetical, Posterior
from kbo.space import Space

NO_BOUND = "none: the method has no bounds, or there are too few trials to compute them"


class Evaluation(NamedTuple):
    """The end of a trial, for one of its quantities.

    Attributes:
        number: Position of the trial in the order of the starts.
        features: Its features [D].
        value: The value of the quantity; None if it has none.
        selected: Those of ``kbo.optimize.run.trials.WAYS`` in which its noise may have decided which values there are.
        error: The standard error that came with the value, or that of a prediction; None without one.
        predicted: Whether the value is predicted, because the trial was stopped early.
    """

    number: int
    features: tuple[float, ...]
    value: float | None
    selected: Sequence[str] = ()
    error: float | None = None
    predicted: bool = False


def data(values: Sequence[Evaluation], device: torch.device | None = None) -> tuple[Tensor, Tensor]:
    """Return features [n D] and values [n] of evaluations that have one, on a device; by default on the CPU."""
    X = torch.tensor([one.features for one in values], dtype=torch.float64, device=device)
    return X, X.new_tensor([one.value for one in values])


ANY = (-math.inf, math.inf)
"""The span of a quantity without a declared range."""


class Problem(NamedTuple):
    """Method, space and range of a quantity of a run.

    Attributes:
        method: A name of ``kbo.bandit.names()``.
        n_trials: The planned number of trials, for methods that need it.
        space: The search space.
        span: The least and the largest possible value of the quantity, larger ones better.
    """

    method: str
    n_trials: int | None
    space: Space
    span: tuple[float, float] = ANY


@dataclass(frozen=True, eq=False)
class Bound:
    """A confidence, the posterior that it is about, and the norm bound that it assumes.

    Attributes:
        confidence: The confidence.
        posterior: The posterior.
        norm_bound: The norm bound; None if it assumes none.
    """

    confidence: Confidence
    posterior: Posterior
    norm_bound: float | None = None

    def given(self, X: Tensor, targets: Tensor | None = None) -> Bound:
        """Return the bound with hypothetical observations: to search with, never to report.

        Args:
            X: Features [p D].
            targets: Targets [p], in units of the posterior; by default the means there.
        """
        return Bound(self.confidence, Hypothetical(self.posterior, X, targets), self.norm_bound)


class Surrogate(ABC):
    """A posterior over features, in units of its own, and the bounds on it; it does not change.

    Attributes:
        posterior: The posterior that reported bounds are about.
        values: The evaluations with a value that it knows, in the order of their ends.
        targets: The map from values of the objective to the posterior's units.
        span: The least and the largest possible value of the objective, larger ones better.
        exact: Whether the values have no noise. None if that is not known: then the recommended trial is repeated next,
            once.
    """

    posterior: Posterior
    values: Sequence[Evaluation]
    targets: OutcomeTransform = OutcomeTransform()
    span: tuple[float, float] = ANY
    exact: bool | None = False

    @property
    def cuts(self) -> bool:
        """Whether some values are cut in the posterior's units."""
        return not self.targets.compression and any(
            (one.value or 0.0) < self.targets.floor for one in self.values
        )

    @property
    @abstractmethod
    def reported(self) -> Confidence | None:
        """The bound that intervals and gaps are stated with, on ``posterior``; None while there is none."""

    @property
    def latest(self) -> Bound | None:
        """The reported bound with values that no reported bound may use, too; None while there is none."""
        return None if self.reported is None else Bound(self.reported, self.posterior)

    @property
    def bounded(self) -> bool:
        """Whether there is a bound to report, without computing it."""
        return self.reported is not None

    @property
    def bounds(self) -> Sequence[Bound]:
        """The reported bound with the posterior that it is about; one for each hypothesis if there are several."""
        return [] if self.reported is None else [Bound(self.reported, self.posterior)]

    @abstractmethod
    def for_trial(self, number: int) -> Bound:
        """Return the bound that the point of a trial maximises, of a method that has bounds."""

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
            selected: More ways, besides those of the evaluations, in which the noise may have decided which values
                there are, in words ("2 trials failed").
        """

    @abstractmethod
    def assumptions(self) -> dict[str, Any]:
        """Return the numbers that the bounds rest on, in units of the objective, and where they come from."""

    def account(self) -> dict[str, str]:
        """Return the parts that led to the recommendation, in words, by name."""
        return {"rule": "the best pessimistic bound"}

    def score(self, features: Tensor, values: Tensor) -> Tensor:
        """Return by what completed trials are compared for the recommendation, [n], larger is better.

        Args:
            features: Their features [n D].
            values: Their values [n].
        """
        assert self.latest is not None
        return self.latest.confidence.lower(self.latest.posterior, features)

    def lower(self, features: Tensor, values: Tensor) -> Tensor:
        """Return what completed trials reach for sure enough to be recommended, [n], in the posterior's units.

        Arguments as for ``score``.
        """
        assert self.reported is not None
        return self.reported.lower(self.posterior, features)

    def probability(self, features: Tensor, limit: float) -> float:
        """Return the probability that the value at features [1 D] reaches a limit; 1 where there is no prior of it."""
        return 1.0

    def draws(self, features: Tensor, count: int, generator: torch.Generator) -> Tensor | None:
        """Return joint draws [count n] of the objective at features [n D]; None where there is no prior of it."""
        return None

    def predicted(self) -> tuple[int, int]:
        """Return how many values are inside the 90% interval that the others predict, and of how many that is known."""
        return 0, 0

    @fixed
    def interval(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return lower bound, mean (moved into the bounds) and upper bound [n] of the objective at features [n D].

        Raises:
            InvalidInput: There is no bound.
        """
        if self.reported is None:
            raise InvalidInput("there is no bound: too few evaluations, or a method without one.")
        lower, upper = (
            decided(side, "bound") for side in self.reported.interval(self.posterior, features)
        )
        mean = self.posterior.predict(features)[0].clamp(lower, upper)
        return self.raw(lower), self.raw(mean), self.raw(upper)

    def raw(self, value: Tensor) -> Tensor:
        """Return the values of the objective, any shape, that are described by values of the posterior.

        Every number of a report goes through this map: intervals, draws, forecasts and importance. So all of them stay
        inside the declared range.
        """
        return self.targets.values(value).clamp(*self.span)

    def target(self, y: float) -> float:
        """Return a value of the objective in units of the posterior, cut if it is too low."""
        return float(self.targets(torch.tensor(y, dtype=torch.float64)))
