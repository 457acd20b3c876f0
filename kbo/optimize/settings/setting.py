"""The interface of a setting: it fits surrogates to evaluations, and names the strategies of the search."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from kbo.optimize.assumptions.measured import Measured
from kbo.optimize.constraints.constraint import Constraint
from kbo.optimize.strategies.strategy import Strategy
from kbo.optimize.surrogates.evaluation import Evaluation, SearchProblem
from kbo.optimize.surrogates.surrogate import Surrogate
from kbo.space import Space


class Setting(ABC):
    """The assumptions of a run, given by the user or estimated: how surrogates are fitted, and how trials are chosen.

    Attributes:
        default_method: The method where the user gives none.
        certified: Whether the bounds can be proved.
        about_limits: How the search and the recommendation treat limits, in words.
        delta: Probability, at most, that the bounds fail.
    """

    default_method: ClassVar[str]
    certified: ClassVar[bool]
    about_limits: ClassVar[str]
    delta: float

    @property
    def explores_safely(self) -> bool:
        """Whether trials begin only at parameters that are certain to keep all limits, as with ``kbo.Safe``."""
        return bool(self.safe_starts())

    def safe_starts(self) -> Sequence[Any]:
        """Return the parameters of the first trials, known to keep all limits; empty unless trials are safe."""
        return ()

    def largest_error(self) -> float:
        """Return the largest standard error of a value that the assumptions allow; by default it is infinite."""
        return math.inf

    @abstractmethod
    def check(self, method: str, n_trials: int | None) -> None:
        """Raise InvalidInput unless the setting can be used with a method in at least one space."""

    @abstractmethod
    def fit(
        self, problem: SearchProblem, evaluations: Sequence[Evaluation], before: Any = None
    ) -> Surrogate | None:
        """Return the surrogate after all evaluations of a quantity.

        While there are too few evaluations, None or a surrogate without values. A pure function of the evaluations.

        Args:
            problem: The method and the space.
            evaluations: The evaluations in the order of their ends.
            before: The surrogate that this method returned for the first of them. It saves work, and the result is the
                same.

        Raises:
            InvalidInput: The method or the kernel does not fit the space.
            RefutedAssumptions: No function satisfies the given assumptions and fits the values.
        """

    @abstractmethod
    def strategies_for(self, method: str) -> Sequence[Strategy]:
        """Return the strategies that choose the parameters of a trial, tried in order."""

    def describe_search(self, method: str, space: Space, surrogate: Surrogate) -> str:
        """Return the strategies after the initial design, in words; empty where the name of the method is enough."""
        return ""

    def for_reports(self) -> Setting:
        """Return the setting that fits the surrogates for reports; by default the setting itself."""
        return self

    def with_noise(self) -> Setting:
        """Return the setting for values that are known to have noise; by default the setting itself."""
        return self

    def without_noise(self) -> Setting:
        """Return the setting for values without noise, unless it states a level; by default the setting itself."""
        return self

    @abstractmethod
    def for_objective(self, n_quantities: int) -> Setting:
        """Return the setting of the objective of a run that has ``n_quantities`` quantities with bounds."""

    @abstractmethod
    def for_quantity(self, quantity: Measured, n_quantities: int) -> Setting:
        """Return the setting of the quantity of a constraint, or of a further objective.

        Args:
            quantity: The constraint or the objective, with its assumptions.
            n_quantities: The number of quantities of the run that have bounds.

        Raises:
            InvalidInput: The quantity lacks an assumption that the setting needs, or has one that the setting
                estimates.
        """

    def decides(self, constraint: Constraint, method: str, space: Space) -> bool:
        """Return whether the assumptions alone prove that a constraint is kept everywhere.

        Raises:
            InvalidInput: The assumptions alone prove that the constraint is kept nowhere.
        """
        return False

    @abstractmethod
    def describe(self, space: Space) -> dict[str, Any]:
        """Return the setting as plain JSON values."""
