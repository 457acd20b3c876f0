"""The quantities of a run, the objective and those with limits, with their evaluations and surrogates."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from kbo.errors import RefutedAssumptions
from kbo.optimize.constraint import OBJECTIVE, Constraint
from kbo.optimize.surrogates.setting import Setting
from kbo.optimize.surrogates.surrogate import ANY, Evaluation, Problem, Surrogate


class Quantity:
    """A quantity that trials measure, with its evaluations.

    Args:
        setting: The setting for it.
        problem: Method and space.
        named: The beginning of the refutations of its assumptions.

    Raises:
        InvalidInput: The setting cannot be used with the method or the space.
    """

    def __init__(self, setting: Setting, problem: Problem, named: str = "") -> None:
        self.evaluations: list[Evaluation] = []
        self._description: tuple[int, Surrogate | None] = 0, None
        self._setting, self._problem, self._named, self._fitted_to = setting, problem, named, 0
        self._belief = setting.fit(problem, [])

    def belief(self) -> Surrogate | None:
        """Return the belief after all evaluations; None while there are too few.

        Raises:
            RefutedAssumptions: No function satisfies the given assumptions and fits the values.
        """
        if self._fitted_to != len(self.evaluations):
            try:
                belief = self._setting.fit(self._problem, self.evaluations, self._belief)
            except RefutedAssumptions as error:
                error.args = (self._named + error.args[0],)
                raise
            self._belief, self._fitted_to = belief, len(self.evaluations)
        return self._belief if self._belief is not None and self._belief.values else None

    def interval(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return lower bound, mean and upper bound [n] at features [n D]; None while there is no bound.

        Raises:
            RefutedAssumptions: As ``belief``.
        """
        described = self.description()
        if described is None or described.reported is None:
            return None
        return described.interval(features)

    def description(self) -> Surrogate | None:
        """Return the belief for reports, in which bad values are not cut; None while there are too few.

        Raises:
            RefutedAssumptions: As ``belief``.
        """
        belief, n, described = self.belief(), len(self.evaluations), self._setting.described()
        if belief is None or described is self._setting:
            return belief
        if not any(belief.transform.cuts(e.value) for e in belief.values if e.value is not None):
            return belief
        if self._description[0] != n:
            self._description = n, described.fit(self._problem, self.evaluations)
        return self._description[1]


def quantities(
    setting: Setting, problem: Problem, constraints: Sequence[Constraint]
) -> tuple[Quantity, list[tuple[Constraint, Quantity]]]:
    """Return the objective, and the constraints that are not decided in advance with their quantities.

    Raises:
        InvalidInput: The setting cannot be used with the method, the space or the constraints, or no function of the
            given norm reaches a limit.
    """
    undecided = [c for c in constraints if not setting.decides(c, problem.method, problem.space)]
    outputs = 1 + sum(c.name != OBJECTIVE for c in undecided)
    without_range = problem._replace(span=ANY)  # which is that of the objective
    limited = [
        (c, Quantity(setting.of(c, outputs), without_range, f"constraint {c.name!r}: "))
        for c in undecided
    ]
    return Quantity(setting.shared(outputs), problem), limited
