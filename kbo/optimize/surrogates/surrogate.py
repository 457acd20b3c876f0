"""The interface of surrogates: the posterior of a quantity after some evaluations, and the bounds on it.

Larger values are better. To minimise, a caller changes the sign of the values before, and of the bounds after.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kbo._base.isolation import isolated
from kbo.confidence import Confidence
from kbo.confidence.base import not_nan
from kbo.errors import InvalidInput
from kbo.optimize.surrogates.evaluation import Evaluation
from kbo.optimize.surrogates.functions import Functions
from kbo.optimize.surrogates.guarantee import Guarantee
from kbo.optimize.surrogates.outcome_transform import OutcomeTransform
from kbo.optimize.surrogates.predictive import Predictive
from kbo.regression import Hypothetical, Posterior


@dataclass(frozen=True, eq=False)
class Bound:
    """A confidence and the posterior that it is about, which bound a function at any features.

    Attributes:
        confidence: The confidence.
        posterior: The posterior.
        norm_bound: The norm bound that the confidence assumes; None if it assumes none.
    """

    confidence: Confidence
    posterior: Posterior
    norm_bound: float | None = None

    def given(self, X: Tensor, targets: Tensor | None = None) -> Bound:
        """Return the bound after hypothetical observations. It is only for the search, and never reported.

        Args:
            X: Features [p D] of the observations.
            targets: Targets [p] of the observations, in units of the posterior; by default the posterior means.
        """
        return Bound(self.confidence, Hypothetical(self.posterior, X, targets), self.norm_bound)


class Surrogate(ABC):
    """The posterior of a quantity over features, in units of its own (targets), and the bounds on it. Immutable.

    Attributes:
        posterior: The posterior that reported bounds are about.
        values: The evaluations with a value, in the order of their ends.
    """

    posterior: Posterior
    values: Sequence[Evaluation]

    @property
    @abstractmethod
    def transform(self) -> OutcomeTransform:
        """The map from values of the quantity to targets of the posterior."""

    @property
    def noiseless(self) -> bool | None:
        """Whether the values have no noise; None while this is unknown, because no trial has been repeated."""
        return False

    @property
    def repetitions_needed(self) -> int:
        """The number of repetitions with equal values that mean no noise; 0 if repetitions decide nothing."""
        return 0

    @property
    def has_effects(self) -> bool:
        """Whether the model explains the values better than a constant with noise; True if this is not compared."""
        return True

    @property
    @abstractmethod
    def confidence(self) -> Confidence | None:
        """The confidence whose upper bound is the acquisition function; None for a method without one."""

    @property
    @abstractmethod
    def reported(self) -> Confidence | None:
        """The confidence of reported intervals and gaps, on ``posterior``; None while there is none."""

    @property
    def searched(self) -> Posterior:
        """The posterior after all values, also those that no reported bound may use yet."""
        return self.posterior

    @property
    def latest(self) -> Bound | None:
        """The reported confidence on the posterior ``searched``; None while there is none."""
        if self.reported is None:
            return None
        return Bound(self.reported, self.searched)

    @property
    def bounds(self) -> Sequence[Bound]:
        """The reported bound; one for each hypothesis if there are several."""
        if self.reported is None:
            return []
        return [Bound(self.reported, self.posterior)]

    def bound(self, number: int) -> Bound:
        """Return the bound that trial ``number`` maximises; only for methods that have bounds."""
        assert self.confidence is not None
        return Bound(self.confidence.for_trial(number), self.searched)

    @abstractmethod
    def guarantee(self, selected: Sequence[str] = ()) -> Guarantee:
        """Return the guarantee of the reported intervals.

        Args:
            selected: More ways, besides those of the evaluations, in which the noise may have decided which values were
                observed, in words ("2 trials failed").
        """

    @abstractmethod
    def assumptions(self) -> dict[str, Any]:
        """Return the numbers that the bounds rest on, in units of the objective, and where they come from."""

    def noise_std_at(self, value: float) -> float:
        """Return the noise level of values near a value, in units of the objective."""
        return self.assumptions()["noise_std"]

    def account(self) -> dict[str, str]:
        """Return the account of the recommendation: a text for each part, such as "rule"."""
        return {"rule": "the best pessimistic bound"}

    def criterion(self, X: Tensor, y: Tensor) -> Tensor:
        """Return the recommendation criterion of completed trials [n]. The trial with the largest one is recommended.

        By default it is the reported lower bound; values that wait for earlier trials count as well.

        Args:
            X: Features [n D] of the trials.
            y: Values [n] of the trials.
        """
        assert self.latest is not None
        return self.latest.confidence.lower(self.latest.posterior, X)

    def lower(self, X: Tensor, y: Tensor) -> Tensor:
        """Return the lower bound [n] of completed trials that is compared with a limit, in units of the posterior.

        Arguments as for ``criterion``.
        """
        assert self.reported is not None
        return self.reported.lower(self.posterior, X)

    @property
    def predictive(self) -> Predictive | None:
        """The distribution of the targets for reports, averaged over kernels and noise levels; None without one."""
        return None

    def probability(self, X: Tensor, limit: float) -> float:
        """Return the probability that the quantity at features X [1 D] reaches a limit; 1 without a prior."""
        return 1.0

    def draws(
        self, X: Tensor, count: int, generator: torch.Generator, unexplained: float = 0.0
    ) -> Tensor | None:
        """Return joint draws [count n] of the objective without noise at features [n D]; None without a prior.

        Args:
            X: The features.
            count: The number of draws.
            generator: Source of randomness.
            unexplained: The share of the noise variance that belongs to the objective, independently at each point.
        """
        return None

    def functions(self, count: int, generator: torch.Generator) -> Functions | None:
        """Return joint draws of the objective as functions, without noise; None without a prior.

        Raises:
            InvalidInput: The kernel has no random features.
        """
        return None

    @isolated
    def interval(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return lower bound, mean (moved into the bounds) and upper bound [n] of the quantity at features X [n D].

        Raises:
            InvalidInput: There is no bound.
        """
        if self.reported is None:
            raise InvalidInput("there is no bound: too few evaluations, or a method without one.")
        lower, upper = self.reported.interval(self.posterior, X)
        lower = not_nan(lower, "bound")
        upper = not_nan(upper, "bound")
        mean = self.posterior.predict(X)[0].clamp(lower, upper)
        to_value = self.transform.inverse
        return to_value(lower), to_value(mean), to_value(upper)
