"""``Insight``: statistics about a run, as numbers; each method answers one question."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kbo._base import checks
from kbo.bandit import methods
from kbo.errors import InvalidInput
from kbo.optimize.constraints.feasibility import Feasibility
from kbo.optimize.insight.answers import Answers, answers
from kbo.optimize.insight.comparison import Comparison, comparison, finalists
from kbo.optimize.insight.front import Front, front_of
from kbo.optimize.insight.gap.infeasibility import Infeasible, certificate
from kbo.optimize.insight.outlier import Outlier, outlier
from kbo.optimize.proposal.trial_search import generator_of
from kbo.optimize.quantities.front_trials import front_trials
from kbo.optimize.quantities.quantities import Quantities
from kbo.optimize.quantities.recommendation import recommended_trial
from kbo.optimize.run.guard import Guard, guarded
from kbo.optimize.run.outcome import OBJECTIVE
from kbo.optimize.run.run import Run
from kbo.optimize.run.trials import Trial
from kbo.optimize.search.search import MOST_POINTS
from kbo.optimize.surrogates.guarantee import Guarantee, joint_guarantee
from kbo.optimize.surrogates.surrogate import Surrogate
from kbo.space import Params


class Insight:
    """Statistics about a run, as ``optimizer.insight``. Several threads may use it, as the optimiser.

    Args:
        run: The run.
        quantities: The objectives and the quantities with limits, with their surrogates.
        seed: The seed of the run.
    """

    def __init__(self, run: Run, quantities: Quantities, seed: int) -> None:
        self._run = run
        self._quantities = quantities
        self._seed = seed
        self.guard: Guard = run.guard

    @property
    def quantities(self) -> Quantities:
        """The quantities after the trials of the run."""
        # The run has other trials after an interrupt, when it is computed again, and after ``Run.load``.
        if self._quantities.trials is not self._run.trials:
            self._quantities = self._quantities.after(self._run.trials)
        return self._quantities

    @guarded
    def surrogate(self) -> Surrogate | None:
        """Return the surrogate of the objective after all trials; None while there are too few values.

        If the objective is minimised, it models the objective times -1.

        Raises:
            RefutedAssumptions: In the certified setting, no function satisfies the assumptions.
        """
        return self.quantities.surrogate()

    @guarded
    def report_surrogate(self) -> Surrogate | None:
        """Return the surrogate for reports, in which bad values are not cut; None while there are too few values.

        Raises:
            RefutedAssumptions: In the certified setting, no function satisfies the assumptions.
        """
        return self.quantities.report_surrogate()

    @guarded
    def feasibility(self, ways: Sequence[str] = ()) -> Feasibility | None:
        """Return bounds and limits of the measured quantities at the recommended parameters; None without constraints.

        Args:
            ways: More ways in which the noise may have decided which values were observed: see ``Surrogate.guarantee``.

        Raises:
            RefutedAssumptions: In the certified setting, no function satisfies the assumptions of a constraint.
        """
        quantities = self.quantities
        best = recommended_trial(quantities)
        if best is None or not quantities.constraints:
            return None
        return quantities.feasibility(best, ways)

    @guarded
    def within_limits(self) -> list[Trial]:
        """Return the completed trials whose parameters and measurements keep all constraints."""
        return self.quantities.within_limits()

    @guarded
    def intervals(self, units: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return lower bound, mean and upper bound [n] of the objective at points [n P] of the unit cube.

        The same numbers as by ``Optimizer.interval``; None while there is no bound.

        Raises:
            RefutedAssumptions: In the certified setting, no function satisfies the assumptions.
        """
        return self.quantities.intervals(units, OBJECTIVE)

    @guarded
    def exhausted(self) -> bool:
        """Return whether nothing is left to learn: there is no noise, and every point of a finite space was evaluated.

        False for a space of more than 10 000 points, and for a method without bounds.
        """
        quantities = self.quantities
        if not methods.get(quantities.problem.method).has_bounds:
            return False
        if not quantities.noiseless():
            return False
        points = quantities.space.points(MOST_POINTS)
        if points is None:
            return False
        counting = [trial for trial in self._run.trials.finished if trial.removed is None]
        evaluated = quantities.units_of(counting)
        return set(map(tuple, evaluated.tolist())).issuperset(map(tuple, points.tolist()))

    @guarded
    def infeasible(self, evaluations: int = 0) -> Infeasible | None:
        """Return the certificate that no point keeps the limits of all constraints.

        None if some point may keep them, and where the bounds have no guarantee.

        Args:
            evaluations: As for ``Optimizer.gap``; only used if the space has more than 10 000 points or real
                parameters.

        Raises:
            RefutedAssumptions: No function satisfies the assumptions of a constraint.
        """
        evaluations = checks.whole("evaluations", evaluations, 0)
        return certificate(self.quantities, evaluations)

    @guarded
    def answers(self, tolerance: float | None = None, effects: bool = True) -> Answers | None:
        """Return the gain of more trials, the effects of the parameters, and more, in units of the objective.

        They come from the fitted model of the practical setting, so they have no guarantee. None in the certified
        setting, with several objectives, while there is no model, and while no trial keeps all limits as measured.

        Args:
            tolerance: The loss that does not matter, in units of the objective; by default 5% of the difference between
                the recommended and random parameters.
            effects: Whether the effects of the parameters are computed, which takes most of the time.
        """
        effects = checks.flag("effects", effects)
        tolerance = checks.maybe(checks.positive, "tolerance", tolerance)
        quantities = self.quantities
        best = recommended_trial(quantities)
        surrogate = self._model()
        if best is None or surrogate is None or not quantities.within_limits():
            return None
        return answers(quantities, surrogate, best, self._generator(), tolerance, effects)

    @guarded
    def outlier(self) -> Outlier | None:
        """Return the trial whose value is far from the prediction by all other trials; None if there is none.

        The fitted model of the practical setting makes the prediction. None in the certified setting, with several
        objectives, and while there is no model.
        """
        quantities = self.quantities
        surrogate = self._model()
        if surrogate is None or quantities.setting.certified:
            return None
        return outlier(surrogate, quantities.objective.without, quantities.maximize)

    @guarded
    def front(self) -> Front | None:
        """Return the front of several objectives; None with one objective, and while there is no bound.

        Raises:
            RefutedAssumptions: In the certified setting, no function satisfies the assumptions of an objective.
        """
        quantities = self.quantities
        compared = front_trials(quantities)
        if compared is None:
            return None
        return front_of(
            quantities.objectives,
            list(quantities.surrogates(for_reports=True).values()),
            compared,
            quantities.reference,
            self._generator(),
        )

    @guarded
    def guarantee(self, selected: Sequence[str] = ()) -> Guarantee | None:
        """Return the guarantee of the reported intervals of all objectives at once; None while there is no bound.

        Args:
            selected: As for ``Surrogate.guarantee``.

        Raises:
            RefutedAssumptions: In the certified setting, no function satisfies the assumptions of an objective.
        """
        surrogates = self.quantities.surrogates(for_reports=True)
        if not surrogates:
            return None
        if len(surrogates) == 1:
            return surrogates[OBJECTIVE].guarantee(selected)
        guarantees = {name: s.guarantee(selected) for name, s in surrogates.items()}
        return joint_guarantee(guarantees)

    def check_one_objective(self, question: str) -> None:
        """Raise InvalidInput if the run has several objectives, for a question about one objective."""
        objectives = self.quantities.objectives
        if objectives:
            raise InvalidInput(
                f"{question} is for one objective, and this run has {len(objectives)}: the probabilities of "
                "result.front say which trials are on the front in spite of the noise."
            )

    @guarded
    def compare(self, others: Params, params: Params | None = None) -> Comparison | None:
        """Return the lead of some parameters over others in the objective, with its 90% interval.

        It comes from the fitted model of the practical setting, so it has no guarantee. None in the certified setting,
        and while there is no model.

        Args:
            others: The parameters to compare with.
            params: The parameters that are compared; by default the recommended ones.

        Raises:
            InvalidInput: Parameters outside the space, or several objectives.
        """
        self.check_one_objective("compare")
        quantities = self.quantities
        second = quantities.space.unit(others)
        best = recommended_trial(quantities)
        surrogate = self._model()
        if best is None or surrogate is None:
            return None
        first = quantities.space.unit(best.params if params is None else params)
        features = quantities.space.features(torch.stack([first, second]))
        return comparison(surrogate, features, self._generator())

    @guarded
    def finalists(self) -> list[Trial]:
        """Return the trials whose parameters are worth new evaluations, at most five: see ``Result.confirm``.

        The first is the recommended trial. Then come the trials that keep all limits as measured and may be better, the
        most probable first: by more than a quarter of the noise level with a probability of at least 5%, or in the
        certified setting by their bounds. If there is none, the next best trial follows. While there is no bound, the
        next best trials by value follow.

        Raises:
            InvalidInput: Several objectives.
        """
        self.check_one_objective("finalists")
        return finalists(self.quantities, self._model(), self._generator())

    def _model(self) -> Surrogate | None:
        """Return the surrogate of the only objective for reports; None with several, and while there is no bound."""
        return self.quantities.surrogates(for_reports=True).get(OBJECTIVE)

    def _generator(self) -> torch.Generator:
        """Return a source of randomness that depends on the seed of the run and on how many trials have ended."""
        return generator_of(self._seed, len(self._run.trials.finished))
