"""Inference from the trials of a run: beliefs about objective and measured quantities, and the recommended trial."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kbo._base import checks, devices
from kbo._base.linalg.buffers import GrowingTensor
from kbo._base.surroundings import fixed
from kbo.bandit import methods
from kbo.confidence import Confidence
from kbo.confidence.base import decided
from kbo.optimize.constrained import (
    ConstraintBelief,
    Feasibility,
    feasibility,
    preferred,
)
from kbo.optimize.constraint import OBJECTIVE, Constraint, measured_only
from kbo.optimize.insight.answers import Answers, Comparison, answers, compared, rivals
from kbo.optimize.insight.infeasible import Infeasible, certificate
from kbo.optimize.pruning import prediction
from kbo.optimize.quantities import quantities
from kbo.optimize.run.guarded import guarded
from kbo.optimize.run.run import Run
from kbo.optimize.run.trials import Trial, error_of, quantity, violations
from kbo.optimize.surrogates.choice import resolve
from kbo.optimize.surrogates.hypotheses import described
from kbo.optimize.surrogates.setting import Setting
from kbo.optimize.surrogates.surrogate import ANY, Evaluation, Problem, Surrogate
from kbo.space import Bounds, Params, Space

_ANYWHERE = 64
"""Random points with which the recommended one is compared."""

_MOST_RIVALS = 64
"""Trials that are compared with the recommended one, those with the best means."""


class Inference(Run):
    """A run with the posteriors and bounds after its trials; arguments as for ``Optimizer``."""

    @fixed
    def __init__(
        self,
        bounds: Bounds | Space,
        *,
        setting: Setting | None = None,
        method: str | None = None,
        maximize: bool = False,
        n_trials: int | None = None,
        constraints: Sequence[Any] = (),
        value_range: tuple[float, float] | None = None,
        seed: int = 0,
        journal: str | os.PathLike[str] | None = None,
        device: str | torch.device | None = None,
    ) -> None:
        measured, known = measured_only(constraints)
        space = Space(bounds, known).on(devices.device("device", device))
        n_trials = None if n_trials is None else checks.whole("n_trials", n_trials, 1)
        setting, method = resolve(setting, method, n_trials)
        self.setting: Setting = setting
        self.method: str = method
        self.maximize: bool = checks.flag("maximize", maximize)
        self.seed: int = checks.seed(seed)
        self._sign: int = 1 if maximize else -1
        self._problem = Problem(method, n_trials, space, _span(value_range, self._sign))
        super().__init__(space, journal, measured, value_range)

    @guarded
    def belief(self) -> Surrogate | None:
        """Compute the posterior and the bounds after all values; None while there are too few.

        Where larger values are worse, it is about the objective times -1.

        Raises:
            RefutedAssumptions: In the certified setting, no function satisfies the assumptions.
        """
        return self._belief()

    @guarded
    def description(self) -> Surrogate | None:
        """Compute a belief that describes bad values, too: in ``belief`` the practical setting cuts them.

        Raises:
            RefutedAssumptions: In the certified setting, no function satisfies the assumptions.
        """
        self._learn()
        return self._objective.description()

    @guarded
    def feasibility(self, ways: Sequence[str] = ()) -> Feasibility | None:
        """Return bounds and limits of the measured quantities at the recommended parameters; None without constraints.

        Args:
            ways: More ways in which the noise may have decided which values there are, as for ``Surrogate.guarantee``.

        Raises:
            RefutedAssumptions: In the certified setting, no function satisfies the assumptions of a constraint.
        """
        best = self._recommended()
        if best is None or not self.constraints:
            return None
        return self._feasibility(best, ways)

    @guarded
    def recommended(self) -> Trial | None:
        """Return the completed trial with the best pessimistic bound, or value while there is no bound.

        Its parameters satisfy the constraints of the space; None if those of no completed trial do. Trials that are
        sure enough to keep the limits of measured quantities come first: certain to by the bounds, or in the practical
        setting by two standard deviations.

        In the practical setting the bound is one standard deviation from the mean, and the value itself where the
        objective has no noise.
        """
        return self._recommended()

    @guarded
    def infeasible(self, evaluations: int = 0) -> Infeasible | None:
        """Return the certificate that no point keeps the limits of all constraints.

        None if there is none, and where the bounds have no guarantee.

        Args:
            evaluations: As for ``Optimizer.gap``, where the space has more than 10 000 points or real parameters.

        Raises:
            RefutedAssumptions: No function satisfies the assumptions of a constraint.
        """
        checks.whole("evaluations", evaluations, 0)
        limited = self._limited()
        if not limited or any(not one.belief.guarantee() for one in limited):
            return None
        delta = sum(one.belief.assumptions()["delta"] for one in limited)
        tried = self._units_of(self._trials.complete)
        return certificate(self.space, limited, self.constraints, tried, evaluations, delta)

    @guarded
    def answers(self, tolerance: float | None = None, intervals: bool = True) -> Answers | None:
        """Return what the run says of its objective, in its units: what more trials would bring, and what matters.

        By the fitted model of the practical setting, so it is no guarantee. None in the certified setting, and while
        there is no model.

        Args:
            tolerance: The loss that counts as none, where values of parameters are as good as the recommended ones; by
                default 5% of the difference to random parameters.
            intervals: Whether the shares of the variance have intervals, which take most of the time.
        """
        checks.flag("intervals", intervals)
        tolerance = checks.maybe(checks.positive, "tolerance", tolerance)
        best, known, described = self._recommended(), self._bounded(), self._objective.description()
        if best is None or known is None or described is None:
            return None
        trials = [
            t
            for t in self._allowed(self._trials.complete)
            if t is best or not violations(t, self.constraints)
        ]
        generator = self._generator(len(self._trials.finished))
        return answers(
            self.space, described, trials, best, generator, tolerance, self._likely, intervals
        )

    @guarded
    def compare(self, others: Params, params: Params | None = None) -> Comparison | None:
        """Return by how much parameters, by default the recommended ones, are better than others, in positive numbers.

        By the fitted model of the practical setting, so it is no guarantee. None in the certified setting, and while
        there is no model.

        Raises:
            InvalidInput: Parameters outside the space.
        """
        second = self.space.unit(others)
        best, described = self._recommended(), self._objective.description()
        if best is None or self._bounded() is None or described is None:
            return None
        units = torch.stack([self.space.unit(best.params if params is None else params), second])
        return compared(
            described, self.space.features(units), self._generator(len(self._trials.finished))
        )

    @guarded
    def usual_loss(self) -> float | None:
        """Return 5% of the difference in the mean between random and the recommended parameters, in positive numbers.

        None while there is no bound, and if they are no worse.
        """
        best, known = self._recommended(), self._bounded()
        if best is None or known is None:
            return None
        generator = self._generator(len(self._trials.finished))
        units = torch.rand(
            _ANYWHERE, self.space.dimension, generator=generator, dtype=torch.float64
        )
        points = torch.cat([self._features([best]), self.space.features(units)])
        means = known[0].transform.inverse(known[0].posterior.predict(points)[0])
        return 0.05 * max(float(means[0] - means[1:].median()), 0.0) or None

    @guarded
    def finalists(self, most: int = 5) -> dict[str, Params]:
        """Return the parameters that are worth new evaluations, by the names of their trials: see ``Result.confirm``.

        The recommended ones, and those of other trials, which keep all limits as measured, that may be better: with a
        probability of 5%, or in the certified setting by their bounds; the likeliest first. If there is none, the next
        best one.

        Args:
            most: Their number at most.
        """
        best, described = self._recommended(), self._objective.description()
        if best is None:
            return {}
        others = [
            t for t in self._allowed(self._trials.complete) if not violations(t, self.constraints)
        ]
        others = sorted(others, key=self._signed, reverse=True) if described is None else others
        distinct = [
            best,
            *{repr(t.params): t for t in reversed(others) if t.params != best.params}.values(),
        ]
        if described is not None and self._bounded() is not None:
            features = self._features(distinct)
            order = (
                described.posterior.predict(features)[0]
                .cpu()
                .argsort(descending=True)[:_MOST_RIVALS]
                .tolist()
            )
            kept = [0, *(i for i in order if i)]
            generator = self._generator(len(self._trials.finished))
            found = rivals(described, features[kept], generator) or [1][: len(kept) - 1]
            distinct = [best, *(distinct[kept[i]] for i in found)]
        return {
            f"trial {trial.number}": trial.params
            for trial in distinct[: checks.whole("most", most, 2)]
        }

    def _likely(self, units: Tensor) -> Tensor:
        """Return at which points [n P] of the unit cube all constraints are kept with a probability of a half, [n]."""
        kept = self.space.satisfies(units)
        for one in self._limited():
            assert one.belief.latest is not None
            mean = one.belief.latest.posterior.predict(self.space.features(units))[0]
            kept &= (mean >= one.level).cpu()
        return kept

    @guarded
    def interval(self, params: Params, name: str = OBJECTIVE) -> tuple[float, float, float] | None:
        """Return lower bound, mean and upper bound of a quantity (without noise); None while there is no bound.

        Args:
            params: The parameters.
            name: "objective", or the name of a constraint that the assumptions alone do not decide.

        Raises:
            InvalidInput: Parameters outside the space, or no such quantity.
            RefutedAssumptions: In the certified setting, no function satisfies the assumptions.
        """
        found = self._intervals(self.space.unit(params).unsqueeze(0), name)
        return None if found is None else (float(found[0]), float(found[1]), float(found[2]))

    @guarded
    def intervals(self, units: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return lower bound, mean and upper bound [n] of the objective at points [n P] of the unit cube.

        They are as by ``interval``; None while there is no bound.

        Raises:
            RefutedAssumptions: In the certified setting, no function satisfies the assumptions.
        """
        return self._intervals(units, OBJECTIVE)

    def _intervals(self, units: Tensor, name: str) -> tuple[Tensor, Tensor, Tensor] | None:
        known = {c.name: (c.sign, one) for c, one in self._limited_by} | {
            OBJECTIVE: (self._sign, self._objective)
        }
        sign, one = known[checks.one_of("name", name, known)]
        self._learn()
        if (found := one.interval(self.space.features(units))) is None:
            return None
        low, mean, high = (sign * value for value in found[::sign])
        return low, mean, high

    def _header(self) -> dict[str, Any]:
        return {
            "space": self.space.describe(),
            "named": self.space.named,
            "maximize": self.maximize,
            "method": self.method,
            "seed": self.seed,
            **({} if self.value_range is None else {"value_range": list(self.value_range)}),
            **(
                {"n_trials": self._problem.n_trials}
                if methods.get(self.method).needs_horizon
                else {}
            ),
            **self.setting.describe(self.space),
            **(
                {"constraints": list(map(self._described, self.constraints))}
                if self.constraints
                else {}
            ),
        }

    def _described(self, constraint: Constraint) -> dict[str, Any]:
        own = {} if constraint.kernel is None else described(constraint.kernel, self.space.columns)
        return {**constraint.describe(), **own}

    def _belief(self) -> Surrogate | None:
        self._learn()
        return self._objective.belief()

    def _bounded(self) -> tuple[Surrogate, Confidence] | None:
        """Return the belief and its reported bound; None while there is no bound."""
        belief = self._belief()
        reported = None if belief is None else belief.reported
        return None if belief is None or reported is None else (belief, reported)

    def _exact(self) -> bool:
        """Return whether the practical setting has been told or has found that the objective has no noise."""
        belief = self._belief() if methods.get(self.method).has_bounds else None
        return belief is not None and bool(belief.noiseless)

    def _learn(self) -> None:
        """Add the trials that have ended to the evaluations of all quantities."""
        if not (fresh := self._trials.finished[self._learned :]):
            return
        rows = self.space.on(torch.device("cpu")).features(self._units_of(fresh)).tolist()
        for trial, features in zip(fresh, map(tuple, rows), strict=True):
            measured = [(self._objective, self._sign, *self._value_of(trial))]
            measured += [
                (one, c.sign, quantity(trial, c), error_of(trial, c.name))
                for c, one in self._limited_by
            ]
            for one, sign, value, error in measured:
                value, predicted = (
                    None if value is None else sign * value,
                    trial.pruned and one is self._objective,
                )
                one.evaluations.append(
                    Evaluation(trial.number, features, value, trial.selected, error, predicted)
                )
            self._learned += 1
            self._after_learning()

    def _value_of(self, trial: Trial) -> tuple[float | None, float | None]:
        """Return value and error of an ended trial; in the practical setting a prediction where it was pruned."""
        if not trial.pruned or self.setting.certified:
            return trial.value, error_of(trial)
        before = [
            other for other in self._trials.finished[: self._learned] if other.status == "complete"
        ]
        return prediction(trial, before, self.maximize) or (None, None)

    def _after_learning(self) -> None:
        """Take note that one more trial has been learned from."""

    def _limited(self) -> list[ConstraintBelief]:
        """Return the constraints of which there is a belief.

        Raises:
            RefutedAssumptions: In the certified setting, no function satisfies the assumptions of a constraint.
        """
        self._learn()
        return self._known_limits()

    def _known_limits(self) -> list[ConstraintBelief]:
        found = []
        for constraint, one in self._limited_by:
            belief = one.belief()
            if belief is not None and belief.reported is not None:
                found.append(ConstraintBelief(constraint, belief))
        return found

    def _feasibility(self, best: Trial, ways: Sequence[str] = ()) -> Feasibility:
        undecided = [constraint for constraint, _ in self._limited_by]
        limited, features = self._limited(), self._features([best])
        delta = self.setting.delta if self.setting.certified else None
        return feasibility(delta, self.constraints, undecided, limited, best, features, ways)

    def _recommended(self) -> Trial | None:
        complete, belief = self._trials.complete, self._belief()
        allowed = self._allowed(complete)
        if not allowed or belief is None or belief.reported is None:
            return max(allowed, key=self._rank, default=None)
        features, values = self._data()
        score = decided(belief.criterion(features, values), "bound")
        score = preferred(score, self._limited(), features, complete).tolist()
        scores = {trial.number: value for trial, value in zip(complete, score, strict=True)}
        return max(allowed, key=lambda trial: scores[trial.number])

    def _generator(self, number: int) -> torch.Generator:
        """Return a source of randomness that depends on the seed and a number alone."""
        return torch.Generator().manual_seed((1_000_003 * self.seed + number) % 2**63)

    def _signed(self, trial: Trial) -> float:
        """Return the value of a completed trial, larger if better."""
        return self._sign * (trial.value or 0.0)

    def _rank(self, trial: Trial) -> tuple[int, float]:
        """Return what completed trials are compared by while there is no bound: kept limits, then the value."""
        return -violations(trial, self.constraints), self._signed(trial)

    def _data(self, trials: list[Trial] | None = None) -> tuple[Tensor, Tensor]:
        """Return features [n D] and values [n], larger if better, of completed trials; by default of all."""
        complete = self._trials.complete if trials is None else trials
        features = self._features(complete)
        return features, features.new_tensor([self._sign * (t.value or 0.0) for t in complete])

    def _features(self, trials: list[Trial]) -> Tensor:
        return self.space.features(self._units_of(trials))

    def _units_of(self, trials: list[Trial]) -> Tensor:
        """Return the points [n P] of the unit cube of trials."""
        if fresh := self._trials.all[self._units.n :]:
            self._units.append(self.space.units([trial.params for trial in fresh]))
        return self._units.value[[trial.number for trial in trials]]

    def _compute(self) -> None:
        super()._compute()
        self._units = GrowingTensor(torch.empty(0, self.space.dimension, dtype=torch.float64))
        self._objective, self._limited_by = quantities(
            self.setting, self._problem, self.constraints
        )
        self._learned = 0


def _span(value_range: Any, sign: int) -> tuple[float, float]:
    """Return the declared range of the objective with larger values better, or the whole line."""
    if value_range is None:
        return ANY
    low, high = checks.interval("value_range", value_range)
    if sign > 0:
        return low, high
    return -high, -low
