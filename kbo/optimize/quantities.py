"""The objective and the limited quantities of a run, as its trials show them, and the trial to recommend."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kbo._base import checks
from kbo._base.linalg.buffers import GrowingTensor
from kbo.confidence import Confidence
from kbo.confidence.base import decided
from kbo.optimize.constrained import (
    ConstraintBelief,
    Feasibility,
    Quantity,
    feasibility,
    preferred,
    quantities,
)
from kbo.optimize.constraint import Constraint
from kbo.optimize.pruning import prediction
from kbo.optimize.run.outcome import OBJECTIVE
from kbo.optimize.run.trials import Trial, Trials, error_of, quantity, violations
from kbo.optimize.strategies.exploration import Exploration
from kbo.optimize.surrogates.surrogate import Evaluation, Problem, Setting, Surrogate


class Quantities:
    """Surrogates of the objective and of the quantities with limits, after the trials that have ended so far.

    The objective is multiplied by -1 if it is minimised, and a quantity with an upper limit too: larger is better.

    Args:
        trials: The trials of a run, which grow.
        setting: The setting.
        problem: Method and space.
        constraints: The limits on measured quantities.
        maximize: Whether larger values of the objective are better.

    Attributes:
        trials: As given.
        objective: The objective.
        limited: The constraints that the assumptions alone do not decide, with their quantities.
        exploration: The points that are certain to be safe; None unless the setting explores safely.

    Raises:
        InvalidInput: The setting cannot be used with the method, the space or the constraints.
    """

    def __init__(
        self,
        trials: Trials,
        setting: Setting,
        problem: Problem,
        constraints: Sequence[Constraint],
        maximize: bool,
    ) -> None:
        self.trials: Trials = trials
        self.objective: Quantity
        self.limited: list[tuple[Constraint, Quantity]]
        self.objective, self.limited = quantities(setting, problem, constraints)
        self.exploration: Exploration | None = None
        if setting.start:
            self.exploration = Exploration(problem.space, setting.start, len(self.limited))
        self._setting = setting
        self._space = problem.space
        self._constraints = constraints
        self._maximize = maximize
        self._sign = 1 if maximize else -1
        self._n_learned = 0
        self._units = GrowingTensor(torch.empty(0, self._space.dimension, dtype=torch.float64))
        self._permitted: list[bool] = []  # whether a trial satisfies the constraints of the space

    # Surrogates

    def surrogate(self) -> Surrogate | None:
        """Return the surrogate of the objective; None while there are too few values.

        Raises:
            RefutedAssumptions: In the certified setting, no function satisfies the assumptions.
        """
        self.learn()
        return self.objective.belief()

    def description(self) -> Surrogate | None:
        """Return the surrogate of the objective for reports, in which bad values are not cut; errors as above."""
        self.learn()
        return self.objective.description()

    def bounded(self) -> tuple[Surrogate, Confidence] | None:
        """Return the surrogate of the objective and its reported bound; None while there is no bound."""
        surrogate = self.surrogate()
        if surrogate is None or surrogate.reported is None:
            return None
        return surrogate, surrogate.reported

    def limits(self) -> list[ConstraintBelief]:
        """Return the constraints of which there is a surrogate.

        Raises:
            RefutedAssumptions: In the certified setting, no function satisfies the assumptions of a constraint.
        """
        self.learn()
        return self._known_limits()

    def _known_limits(self) -> list[ConstraintBelief]:
        limits = []
        for constraint, limited in self.limited:
            surrogate = limited.belief()
            if surrogate is not None and surrogate.bounded:
                limits.append(ConstraintBelief(constraint, surrogate))
        return limits

    def intervals(self, units: Tensor, name: str) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return lower bound, mean and upper bound [n] of a quantity at points [n P]; None while there is no bound.

        Args:
            units: The points of the unit cube.
            name: "objective", or the name of a constraint of ``limited``.

        Raises:
            InvalidInput: There is no such quantity.
            RefutedAssumptions: In the certified setting, no function satisfies the assumptions.
        """
        signed = {
            constraint.name: (constraint.sign, limited) for constraint, limited in self.limited
        }
        signed[OBJECTIVE] = (self._sign, self.objective)
        sign, one_quantity = signed[checks.one_of("name", name, signed)]
        self.learn()
        interval = one_quantity.interval(self._space.features(units))
        if interval is None:
            return None
        lower, mean, upper = interval
        if sign < 0:
            return -upper, -mean, -lower
        return lower, mean, upper

    # Learning

    def learn(self) -> None:
        """Add the trials that have ended since the last call to the evaluations of all quantities.

        Raises:
            RefutedAssumptions: In the safe setting, the trials refute the assumptions of a limit.
        """
        fresh = self.trials.finished[self._n_learned :]
        if not fresh:
            return
        on_cpu = self._space.on(torch.device("cpu"))
        features = on_cpu.features(self.units_of(fresh)).tolist()
        for trial, row in zip(fresh, features, strict=True):
            self._add(trial, tuple(row))
            self._n_learned += 1
            if self.exploration is not None:
                self.exploration.learn(self._known_limits())

    def _add(self, trial: Trial, features: tuple[float, ...]) -> None:
        """Add an ended trial to the evaluations of all quantities."""
        value, error = self._value_of(trial)
        if value is not None:
            value = self._sign * value
        self.objective.evaluations.append(
            Evaluation(trial.number, features, value, trial.selected, error, trial.pruned)
        )
        for constraint, limited in self.limited:
            value = quantity(trial, constraint)
            if value is not None:
                value = constraint.sign * value
            error = error_of(trial, constraint.name)
            limited.evaluations.append(
                Evaluation(trial.number, features, value, trial.selected, error)
            )

    def _value_of(self, trial: Trial) -> tuple[float | None, float | None]:
        """Return value and error of an ended trial; in the practical setting a prediction where it was pruned."""
        if not trial.pruned or self._setting.certified:
            return trial.value, error_of(trial)
        before = [
            earlier
            for earlier in self.trials.finished[: self._n_learned]
            if earlier.status == "complete"
        ]
        return prediction(trial, before, self._maximize) or (None, None)

    # Trials

    def recommended(self) -> Trial | None:
        """Return the recommended trial: see ``Optimizer.recommended``."""
        complete = self.trials.complete
        surrogate = self.surrogate()
        allowed = self.allowed(complete)
        if not allowed or surrogate is None or not surrogate.bounded:
            return max(allowed, key=self.rank, default=None)
        features = self.features(complete)
        values = features.new_tensor([self.signed(trial) for trial in complete])
        criterion = decided(surrogate.score(features, values), "bound")
        criterion = preferred(criterion, self.limits(), features, complete).tolist()
        of_trial = {trial.number: value for trial, value in zip(complete, criterion, strict=True)}
        return max(allowed, key=lambda trial: of_trial[trial.number])

    def feasibility(self, best: Trial, ways: Sequence[str] = ()) -> Feasibility:
        """Return bounds and limits of the measured quantities at a completed trial: see ``Optimizer.feasibility``."""
        undecided = [constraint for constraint, _ in self.limited]
        features = self.features([best])
        return feasibility(
            self._setting, self._constraints, undecided, self.limits(), best, features, ways
        )

    def within_limits(self) -> list[Trial]:
        """Return the trials with a value whose parameters and measurements keep all constraints."""
        allowed = self.allowed(self.trials.complete)
        return [trial for trial in allowed if not violations(trial, self._constraints)]

    def allowed(self, trials: list[Trial]) -> list[Trial]:
        """Return the trials whose parameters satisfy the constraints of the space."""
        if not self._space.constraints:
            return trials
        fresh = self.trials.all[len(self._permitted) :]
        self._permitted += [not self._space.violated(trial.params) for trial in fresh]
        return [trial for trial in trials if self._permitted[trial.number]]

    def signed(self, trial: Trial) -> float:
        """Return the value of a completed trial, larger if better."""
        return self._sign * (trial.value or 0.0)

    def rank(self, trial: Trial) -> tuple[int, float]:
        """Return the order of completed trials while there is no bound: kept limits, then the value."""
        return -violations(trial, self._constraints), self.signed(trial)

    def features(self, trials: list[Trial]) -> Tensor:
        """Return the features [n D] of trials."""
        return self._space.features(self.units_of(trials))

    def units_of(self, trials: list[Trial]) -> Tensor:
        """Return the points [n P] of the unit cube of trials."""
        fresh = self.trials.all[self._units.n :]
        if fresh:
            self._units.append(self._space.units([trial.params for trial in fresh]))
        return self._units.value[[trial.number for trial in trials]]
