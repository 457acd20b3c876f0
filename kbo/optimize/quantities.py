"""The quantities of a run, the objective and those with limits, with their evaluations and surrogates."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from kbo.errors import RefutedAssumptions
from kbo.optimize.constraint import Constraint
from kbo.optimize.run.outcome import OBJECTIVE
from kbo.optimize.surrogates.setting import Setting
from kbo.optimize.surrogates.surrogate import ANY, Evaluation, Problem, Surrogate


class Quantity:
    """A quantity that trials measure, with its evaluations.

    Args:
        setting: The setting for it.
        problem: Method and space.
        prefix: The beginning of the refutations of its assumptions.

    Attributes:
        evaluations: The ends of the trials, in their order.

    Raises:
        InvalidInput: The setting cannot be used with the method or the space.
    """

    def __init__(self, setting: Setting, problem: Problem, prefix: str = "") -> None:
        self.evaluations: list[Evaluation] = []
        self._setting = setting
        self._problem = problem
        self._prefix = prefix
        self._surrogate = setting.fit(problem, [])
        self._n_fitted = 0
        self._description: Surrogate | None = None
        self._n_described = 0

    def surrogate(self) -> Surrogate | None:
        """Return the surrogate after all evaluations; None while there are too few.

        Raises:
            RefutedAssumptions: No function satisfies the given assumptions and fits the values.
        """
        n = len(self.evaluations)
        if self._n_fitted != n:
            try:
                surrogate = self._setting.fit(self._problem, self.evaluations, self._surrogate)
            except RefutedAssumptions as error:
                error.args = (self._prefix + error.args[0],)
                raise
            self._surrogate = surrogate
            self._n_fitted = n
        if self._surrogate is None or not self._surrogate.values:
            return None
        return self._surrogate

    def interval(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return lower bound, mean and upper bound [n] at features [n D]; None while there is no bound.

        Raises:
            RefutedAssumptions: As ``surrogate``.
        """
        surrogate = self.description()
        if surrogate is None or not surrogate.bounded:
            return None
        return surrogate.interval(features)

    def description(self) -> Surrogate | None:
        """Return the surrogate for reports, in which bad values are not cut; None while there are too few.

        Raises:
            RefutedAssumptions: As ``surrogate``.
        """
        surrogate = self.surrogate()
        setting = self._setting.described()
        if surrogate is None or setting is self._setting or not surrogate.cuts:
            return surrogate
        n = len(self.evaluations)
        if self._n_described != n:
            self._description = setting.fit(self._problem, self.evaluations)
            self._n_described = n
        return self._description


def quantities(
    setting: Setting, problem: Problem, constraints: Sequence[Constraint]
) -> tuple[Quantity, list[tuple[Constraint, Quantity]]]:
    """Return the objective, and the constraints that are not decided in advance with their quantities.

    Raises:
        InvalidInput: The setting cannot be used with the method, the space or the constraints, or no function of the
            given norm reaches a limit.
    """
    undecided = [c for c in constraints if not setting.decides(c, problem.method, problem.space)]
    n_quantities = 1 + sum(constraint.name != OBJECTIVE for constraint in undecided)
    without_range = problem._replace(span=ANY)  # the declared range is that of the objective
    constrained = []
    for constraint in undecided:
        own_setting = setting.of(constraint, n_quantities)
        prefix = f"constraint {constraint.name!r}: "
        constrained.append((constraint, Quantity(own_setting, without_range, prefix)))
    return Quantity(setting.shared(n_quantities), problem), constrained
