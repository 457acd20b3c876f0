"""The surrogate of a quantity after some evaluations: a posterior and the bounds on it.

Larger values are better: whoever minimises changes the sign of the values before and of the bounds after.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from kbo._base.isolation import isolated
from kbo.confidence import Confidence
from kbo.confidence.base import not_nan
from kbo.errors import InvalidInput
from kbo.optimize.surrogates.functions import Functions
from kbo.optimize.surrogates.outcome_transform import OutcomeTransform
from kbo.regression import Hypothetical, Posterior
from kbo.space import Space


class Evaluation(NamedTuple):
    """The end of a trial, for one of its quantities.

    Attributes:
        number: The number of the trial, from 0 in the order of the starts.
        features: Its features [D].
        value: The value of the quantity; None if it has none.
        selected: Those of ``kbo.optimize.run.trials.WAYS`` in which its noise may have decided which values there are.
        error: The standard error of the value: as reported, or that of a prediction; None without one.
        predicted: Whether the value is predicted, because the trial was stopped early.
    """

    number: int
    features: tuple[float, ...]
    value: float | None
    selected: Sequence[str] = ()
    error: float | None = None
    predicted: bool = False


def data(
    evaluations: Sequence[Evaluation], device: torch.device | None = None
) -> tuple[Tensor, Tensor]:
    """Return features [n D] and values [n] of evaluations that have one, on a device; by default on the CPU."""
    X = torch.tensor([e.features for e in evaluations], dtype=torch.float64, device=device)
    return X, X.new_tensor([e.value for e in evaluations])


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
    """A confidence and the posterior that it is about: together they bound a function at any features.

    Attributes:
        confidence: The confidence.
        posterior: The posterior.
        norm_bound: The norm bound that the confidence assumes; None if it assumes none.
    """

    confidence: Confidence
    posterior: Posterior
    norm_bound: float | None = None

    def given(self, X: Tensor, targets: Tensor | None = None) -> Bound:
        """Return the bound with hypothetical observations. It serves to search, and is never reported.

        Args:
            X: Features [p D] of the observations.
            targets: Their targets [p], in units of the posterior; by default the means there.
        """
        return Bound(self.confidence, Hypothetical(self.posterior, X, targets), self.norm_bound)


WITHOUT_BOUND = "the method has no bounds, or there are too few trials to compute them"

NO_BOUND = f"none: {WITHOUT_BOUND}"
"""The text about the guarantee of a run without a bound."""


@dataclass(frozen=True)
class Guarantee:
    """The statement that holds for the reported intervals; true if it is proved.

    Attributes:
        kind: "certified", "not certified", "practical, not certified", or "none" where there is no bound.
        statement: The statement, or the objections, in one sentence.
        delta: Probability that the statement fails, which is nominal where there are objections.
        objections: The reasons why nothing is proved.
        selected: Those of ``kbo.optimize.run.trials.WAYS`` that are among these reasons.
    """

    kind: Literal["certified", "not certified", "practical, not certified", "none"]
    statement: str
    delta: float
    objections: tuple[str, ...] = ()
    selected: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return not self.objections

    @property
    def text(self) -> str:
        """The kind and the statement, as reports show them."""
        return f"{self.kind}: {self.statement}"

    def __str__(self) -> str:
        return self.text


class Surrogate(ABC):
    """The posterior of a quantity over features, in units of its own, and the bounds on it. It does not change.

    Attributes:
        posterior: The posterior that reported bounds are about.
        values: The evaluations with a value, in the order of their ends.
    """

    posterior: Posterior
    values: Sequence[Evaluation]

    @property
    @abstractmethod
    def transform(self) -> OutcomeTransform:
        """The map from values of the objective to targets of the posterior."""

    @property
    def noiseless(self) -> bool | None:
        """Whether the values have no noise; None if that is not known, until a trial has been repeated."""
        return False

    @property
    def has_effects(self) -> bool:
        """Whether the model explains the values better than a constant and noise; True where nothing compares them."""
        return True

    @property
    @abstractmethod
    def confidence(self) -> Confidence | None:
        """The confidence whose upper bound trials maximise; None for a method without one."""

    @property
    @abstractmethod
    def reported(self) -> Confidence | None:
        """The confidence of reported intervals and gaps, about ``posterior``; None while there is none."""

    @property
    def searched(self) -> Posterior:
        """The posterior with all values, also those that no reported bound may use yet."""
        return self.posterior

    @property
    def latest(self) -> Bound | None:
        """The reported confidence with the posterior ``searched``; None while there is none."""
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
        """Return the bound that the point of trial ``number`` maximises; for methods that have bounds."""
        assert self.confidence is not None
        return Bound(self.confidence.for_trial(number), self.searched)

    @abstractmethod
    def guarantee(self, selected: Sequence[str] = ()) -> Guarantee:
        """Return the guarantee of the reported intervals.

        Args:
            selected: More ways, besides those of the evaluations, in which the noise may have decided which values
                there are, in words ("2 trials failed").
        """

    @abstractmethod
    def assumptions(self) -> dict[str, Any]:
        """Return the numbers that the bounds rest on, in units of the objective, and their origin."""

    def account(self) -> dict[str, str]:
        """Return sentences about the parts that led to the recommendation, by the name of the part."""
        return {"rule": "the best pessimistic bound"}

    def criterion(self, X: Tensor, y: Tensor) -> Tensor:
        """Return the recommendation criterion of completed trials [n]. The trial with the largest one is recommended.

        By default the reported lower bound, with values that wait for earlier trials counted.

        Args:
            X: Their features [n D].
            y: Their values [n].
        """
        assert self.latest is not None
        return self.latest.confidence.lower(self.latest.posterior, X)

    def lower(self, X: Tensor, y: Tensor) -> Tensor:
        """Return the lower bound [n] of completed trials, in units of the posterior, which must reach a limit.

        Arguments as for ``criterion``.
        """
        assert self.reported is not None
        return self.reported.lower(self.posterior, X)

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
            unexplained: The share of the noise variance that belongs to the objective, at each point on its own.
        """
        return None

    def functions(self, count: int, generator: torch.Generator) -> Functions | None:
        """Return joint draws of the objective as functions, without noise; None without a prior.

        Raises:
            InvalidInput: The kernel has no random features.
        """
        return None

    def leave_one_out(self) -> tuple[int, int]:
        """Return the number of values inside the 90% interval that the other values predict, and that of all values.

        Both are 0 without a prior.
        """
        return 0, 0

    def left_out_errors(self) -> tuple[Tensor, Tensor] | None:
        """Return the errors [n] of the targets, each predicted by the other ones, and their standard deviations [n].

        None without a prior.
        """
        return None

    def prediction(self, X: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return the mean and the standard deviation [n] of the targets of new values, with noise, at features X [n D].

        None without a prior.
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
