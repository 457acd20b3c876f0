"""The quantities of a run: surrogates of the objectives and of the limits, and the recommended trial."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from functools import partial

from torch import Tensor

from kbo._base import checks
from kbo.optimize.constraints.constraint import Constraint, violations
from kbo.optimize.constraints.feasibility import (
    ConstraintSurrogate,
    Feasibility,
    feasibility,
)
from kbo.optimize.constraints.safe_points import SafePoints
from kbo.optimize.objectives.objective import Objective, main_of
from kbo.optimize.quantities.learning_curves import prediction
from kbo.optimize.quantities.places import Places
from kbo.optimize.quantities.quantity import Quantity
from kbo.optimize.run.outcome import OBJECTIVE
from kbo.optimize.run.trials import Trial, Trials
from kbo.optimize.settings.setting import Setting
from kbo.optimize.surrogates.evaluation import ANY, Evaluation, SearchProblem
from kbo.optimize.surrogates.surrogate import Surrogate
from kbo.space import Space

_N_LEADING = 8
"""Number of the best trials near which a search begins."""

_ROUNDING = 1e-9
"""Largest relative difference of values at the same parameters that is not noise."""


class Quantities:
    """Surrogates of the objectives and of the quantities with limits, after the trials that have ended so far.

    Larger is better: an objective that is minimised, and a quantity with an upper limit, is multiplied by -1.

    Args:
        trials: The trials of a run; more may begin and end later.
        setting: The setting.
        problem: The method, the space and the range of the objective.
        constraints: The limits on measured quantities.
        maximize: Whether larger values of the objective are better.
        objectives: Several objectives, the first of which is the value of a trial; empty if there is one objective.
        reference: By name, the values of some objectives that are just not acceptable.

    Attributes:
        trials, setting, problem, constraints, maximize, objectives, reference: See the arguments.
        space: The space of the problem.
        objective: The quantity of the objective, or of the first of several.
        others: The other objectives, with their quantities.
        limited: The constraints that the assumptions alone do not prove to be kept, with their quantities.
        sign: 1, or -1 if the objective is minimised.
        safe_points: The safe points; None unless the setting explores safely.

    Raises:
        InvalidInput: The setting cannot be used with the method, the space or the constraints.
    """

    def __init__(
        self,
        trials: Trials,
        setting: Setting,
        problem: SearchProblem,
        constraints: Sequence[Constraint],
        maximize: bool,
        objectives: Sequence[Objective] = (),
        reference: Mapping[str, float] = {},
    ) -> None:
        self.trials: Trials = trials
        self.objectives: Sequence[Objective] = objectives
        self.reference: Mapping[str, float] = reference
        self.objective: Quantity
        self.limited: list[tuple[Constraint, Quantity]]
        self.others: list[tuple[Objective, Quantity]]
        self.objective, self.others, self.limited = _quantities(
            setting, problem, constraints, objectives
        )
        self.safe_points: SafePoints | None = None
        if setting.explores_safely:
            self.safe_points = SafePoints(problem.space, setting.safe_starts(), len(self.limited))
        self.setting: Setting = setting
        self.problem: SearchProblem = problem
        self.space: Space = problem.space
        self.constraints: Sequence[Constraint] = constraints
        self.maximize: bool = maximize
        self.sign: int = 1 if maximize else -1
        self._n_learned = 0
        # By features, the values of all objectives in the first trial there; None once noise was seen.
        self._first_values: dict[tuple[float, ...], list[float]] | None = {}
        self._places = Places(trials, problem.space)
        self._allowed: list[bool] = []  # whether a trial satisfies the constraints of the space

    def after(self, trials: Trials) -> Quantities:
        """Return the quantities of the same problem after other trials, in the space of these trials."""
        problem = self.problem._replace(space=trials.space)
        return Quantities(
            trials,
            self.setting,
            problem,
            self.constraints,
            self.maximize,
            self.objectives,
            self.reference,
        )

    @property
    def needed(self) -> list[str]:
        """The names of measurements without which a trial has failed: limited quantities, and further objectives."""
        names = [c.name for c in self.constraints if c.name != OBJECTIVE]
        names += [objective.name for objective in self.objectives[1:]]
        return list(dict.fromkeys(names))

    # Surrogates

    def surrogate(self) -> Surrogate | None:
        """Return the surrogate of the objective; None while there are too few values.

        Raises:
            RefutedAssumptions: In the certified setting, no function satisfies the assumptions.
        """
        self.learn()
        return self.objective.surrogate()

    def report_surrogate(self) -> Surrogate | None:
        """Return the surrogate of the objective for reports, in which bad values are not cut; None if there is none.

        Raises:
            RefutedAssumptions: In the certified setting, no function satisfies the assumptions.
        """
        self.learn()
        return self.objective.report_surrogate()

    def surrogates(self, *, for_reports: bool = False) -> dict[str, Surrogate]:
        """Return the surrogates of all objectives by name, in their order; empty while one of them has no bound.

        Args:
            for_reports: Whether the surrogates are for reports, in which bad values are not cut.

        Raises:
            RefutedAssumptions: In the certified setting, no function satisfies the assumptions of an objective.
        """
        self.learn()
        named = {main_of(self.objectives): self.objective}
        named |= {objective.name: of_objective for objective, of_objective in self.others}
        surrogates = {}
        for name, of_objective in named.items():
            if for_reports:
                surrogate = of_objective.report_surrogate()
            else:
                surrogate = of_objective.surrogate()
            if surrogate is None or surrogate.reported is None:
                return {}
            surrogates[name] = surrogate
        return surrogates

    def noiseless(self) -> bool | None:
        """Return True if no objective has noise, False if one has, and None while that is not known.

        Raises:
            RefutedAssumptions: As ``surrogates``.
        """
        noiseless = [surrogate.noiseless for surrogate in self.surrogates().values()]
        if False in noiseless:
            return False
        if not noiseless or None in noiseless:
            return None
        return True

    def bounded(self) -> Surrogate | None:
        """Return the surrogate of the objective if it has a bound; None while it has none."""
        surrogate = self.surrogate()
        if surrogate is None or surrogate.reported is None:
            return None
        return surrogate

    def limits(self) -> list[ConstraintSurrogate]:
        """Return the limited constraints whose surrogates have bounds.

        Raises:
            RefutedAssumptions: In the certified setting, no function satisfies the assumptions of a constraint.
        """
        self.learn()
        return self._limits_so_far()

    def _limits_so_far(self) -> list[ConstraintSurrogate]:
        """Return the limited constraints whose surrogates have bounds, after the trials that were learned so far.

        Raises:
            RefutedAssumptions: As ``limits``.
        """
        limits = []
        for constraint, limited in self.limited:
            surrogate = limited.surrogate()
            if surrogate is not None and surrogate.reported is not None:
                limits.append(ConstraintSurrogate(constraint, surrogate))
        return limits

    def intervals(self, units: Tensor, name: str) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return lower bound, mean and upper bound [n] of a quantity at points [n P]; None while there is no bound.

        Args:
            units: The points of the unit cube.
            name: "objective", or the name of another objective or of a constraint of ``limited``.

        Raises:
            InvalidInput: There is no such quantity.
            RefutedAssumptions: In the certified setting, no function satisfies the assumptions.
        """
        signed = {}
        for measured, of_measured in (*self.limited, *self.others):
            signed[measured.name] = (measured.sign, of_measured)
        signed[OBJECTIVE] = (self.sign, self.objective)
        signed[main_of(self.objectives)] = signed[OBJECTIVE]
        sign, asked_about = signed[checks.one_of("name", name, signed)]
        self.learn()
        interval = asked_about.interval(self.space.features(units))
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
        new = self.trials.finished[self._n_learned :]
        if not new:
            return
        features = self._places.features(new).tolist()
        for trial, row in zip(new, features, strict=True):
            self._add(trial, tuple(row))
            self._n_learned += 1
            if self.safe_points is not None:
                self.safe_points.learn(self._limits_so_far())

    def _add(self, trial: Trial, features: tuple[float, ...]) -> None:
        """Add an ended trial to the evaluations of all quantities."""
        value, error = self._value_of(trial)
        if value is not None:
            value = self.sign * value
        self.objective.evaluations.append(
            Evaluation(trial.number, features, value, trial.selected, error, trial.pruned)
        )
        self._notice_noise(trial, features)
        for objective, other in self.others:
            value = None
            if trial.value is not None:  # what a failed trial measured says nothing of the front
                value = objective.sign * trial.measured[objective.name]
            other.evaluations.append(Evaluation(trial.number, features, value, trial.selected))
        for constraint, limited in self.limited:
            value = trial.measurement(constraint.name)
            if value is not None:
                value = constraint.sign * value
            error = None
            if constraint.name == OBJECTIVE:
                error = trial.sem
            limited.evaluations.append(
                Evaluation(trial.number, features, value, trial.selected, error)
            )

    def _notice_noise(self, trial: Trial, features: tuple[float, ...]) -> None:
        """Assume noise of all objectives once two values of one of them differ at the same parameters."""
        if trial.value is None or not self.others or self._first_values is None:
            return
        values = [trial.value]
        values += [trial.measured[objective.name] for objective, _ in self.others]
        first = self._first_values.setdefault(features, values)
        if all(map(partial(math.isclose, rel_tol=_ROUNDING), values, first)):
            return
        self._first_values = None
        self.objective.assume_noise()
        for _, other in self.others:
            other.assume_noise()

    def _value_of(self, trial: Trial) -> tuple[float | None, float | None]:
        """Return value and standard error of an ended trial; of a pruned one a prediction, in the practical setting."""
        if not trial.pruned or self.setting.certified:
            return trial.value, trial.sem
        ended = self.trials.finished[: self._n_learned]
        before = [earlier for earlier in ended if earlier.status == "complete"]
        return prediction(trial, before, self.maximize) or (None, None)

    # Trials

    def feasibility(self, best: Trial, ways: Sequence[str] = ()) -> Feasibility:
        """Return the feasibility of a completed trial: see ``Insight.feasibility``."""
        undecided = [constraint for constraint, _ in self.limited]
        features = self.features([best])
        delta = None
        if self.setting.certified:
            delta = self.setting.delta
        return feasibility(delta, self.constraints, undecided, self.limits(), best, features, ways)

    def within_limits(self, best: Trial | None = None) -> list[Trial]:
        """Return the completed trials whose parameters and measurements keep all constraints.

        Args:
            best: A trial whose measurements need not keep them, such as the recommended one.
        """
        allowed = self.allowed(self.trials.complete)
        return [t for t in allowed if t is best or not violations(t, self.constraints)]

    def allowed(self, trials: list[Trial]) -> list[Trial]:
        """Return the trials whose parameters are in the space and satisfy its constraints."""
        if not self.space.constraints and not self.space.changed:
            return trials
        new = self.trials.all[len(self._allowed) :]
        self._allowed += [not self.space.violated(trial.params) for trial in new]
        return [trial for trial in trials if self._allowed[trial.number]]

    def leading(self) -> list[Trial]:
        """Return the eight best completed trials whose parameters are allowed, the best one first."""
        return self.best_of(self.allowed(self.trials.complete))

    def best_of(self, trials: list[Trial]) -> list[Trial]:
        """Return the eight best of some completed trials; of equal ones those that began first."""
        return heapq.nlargest(_N_LEADING, trials, lambda trial: (self.rank(trial), -trial.number))

    def signed(self, trial: Trial) -> float:
        """Return the value of a completed trial, with the sign for which larger is better."""
        return self.sign * (trial.value or 0.0)

    def rank(self, trial: Trial) -> tuple[int, float]:
        """Return the key by which completed trials are ordered while there is no bound: kept limits, then the value."""
        return -violations(trial, self.constraints), self.signed(trial)

    def features(self, trials: list[Trial]) -> Tensor:
        """Return the features [n D] of trials, also outside of the ranges; NaN without a place in the space."""
        return self._places.features(trials).to(self.space.device)

    def units_of(self, trials: list[Trial]) -> Tensor:
        """Return the points [n P] of the unit cube of the trials that are in the space."""
        return self._places.units(trials)

    def running(self) -> Tensor:
        """Return the features [n D] of the pending trials that have a place in the space."""
        features = self.features(list(self.trials.pending.values()))
        return features[~features.isnan().any(-1)]


def _quantities(
    setting: Setting,
    problem: SearchProblem,
    constraints: Sequence[Constraint],
    objectives: Sequence[Objective],
) -> tuple[Quantity, list[tuple[Objective, Quantity]], list[tuple[Constraint, Quantity]]]:
    """Return the quantity of the (first) objective, and with theirs the further objectives and the limited constraints.

    Constraints that the assumptions alone prove to be kept have no quantity.

    Raises:
        InvalidInput: The setting cannot be used with the method, the space or the constraints, or no function within
            the norm bound reaches a limit.
    """
    undecided = [c for c in constraints if not setting.decides(c, problem.method, problem.space)]
    n_objectives = max(1, len(objectives))
    n_quantities = n_objectives + sum(constraint.name != OBJECTIVE for constraint in undecided)
    without_range = problem._replace(span=ANY)  # the declared range is that of the objective

    def quantity_of(measured: Constraint | Objective) -> Quantity:
        setting_of_measured = setting.for_quantity(measured, n_quantities)
        return Quantity(setting_of_measured, without_range, f"{measured.title}: ")

    others = [(objective, quantity_of(objective)) for objective in objectives[1:]]
    constrained = [(constraint, quantity_of(constraint)) for constraint in undecided]
    prefix = ""
    if objectives:
        prefix = f"{objectives[0].title}: "
    return Quantity(setting.for_objective(n_quantities), problem, prefix), others, constrained
