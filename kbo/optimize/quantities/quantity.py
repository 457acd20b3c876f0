"""One quantity that trials measure: its evaluations and its surrogate."""

from __future__ import annotations

from torch import Tensor

from kbo.errors import RefutedAssumptions
from kbo.optimize.settings.setting import Setting
from kbo.optimize.surrogates.evaluation import Evaluation, SearchProblem
from kbo.optimize.surrogates.surrogate import Surrogate


class Quantity:
    """A quantity that trials measure: its evaluations, and the surrogate that a setting fits to them.

    The surrogate is fitted again only after new evaluations.

    Args:
        setting: The setting for the quantity.
        problem: The method and the space.
        prefix: The first words of errors that refute the assumptions.

    Attributes:
        evaluations: One evaluation for each ended trial, in the order of the ends.

    Raises:
        InvalidInput: The setting cannot be used with the method or the space.
    """

    def __init__(self, setting: Setting, problem: SearchProblem, prefix: str = "") -> None:
        self.evaluations: list[Evaluation] = []
        self._setting = setting
        self._problem = problem
        self._prefix = prefix
        self._surrogate = setting.fit(problem, [])
        self._n_fitted = 0
        self._report_surrogate: Surrogate | None = None
        self._n_of_report = 0

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

    def assume_noise(self) -> None:
        """Assume from now on that equal values at equal parameters are a coincidence."""
        self._setting = self._setting.with_noise()
        self._surrogate = self._setting.fit(self._problem, [])
        self._n_fitted = 0
        self._n_of_report = 0

    def interval(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return lower bound, mean and upper bound [n] at features [n D]; None while there is no bound.

        Raises:
            RefutedAssumptions: As ``surrogate``.
        """
        surrogate = self.report_surrogate()
        if surrogate is None or surrogate.reported is None:
            return None
        return surrogate.interval(features)

    def report_surrogate(self) -> Surrogate | None:
        """Return the surrogate for reports, in which bad values are not cut; None while there are too few.

        Raises:
            RefutedAssumptions: As ``surrogate``.
        """
        surrogate = self.surrogate()
        setting = self._setting.for_reports()
        if surrogate is None or setting is self._setting or not _cuts(surrogate):
            return surrogate
        n = len(self.evaluations)
        if self._n_of_report != n:
            self._report_surrogate = setting.fit(self._problem, self.evaluations)
            self._n_of_report = n
        return self._report_surrogate

    def without(self, number: int) -> Surrogate | None:
        """Return the surrogate for reports after all trials but one; None if there are too few."""
        others = [evaluation for evaluation in self.evaluations if evaluation.number != number]
        return self._setting.for_reports().fit(self._problem, others)


def _cuts(surrogate: Surrogate) -> bool:
    """Return whether a surrogate was fitted to values some of which were cut as too bad."""
    values = [evaluation.value for evaluation in surrogate.values]
    return any(surrogate.transform.cuts(value) for value in values if value is not None)
