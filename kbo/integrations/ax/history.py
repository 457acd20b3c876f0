"""The history of an experiment of Ax: its problem, its data, its trials, and how noise may have selected the data."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from ax.core.base_trial import BaseTrial, TrialStatus
from ax.core.experiment import Experiment
from ax.core.generator_run import GeneratorRunType
from ax.core.optimization_config import OptimizationConfig
from ax.core.outcome_constraint import OutcomeConstraint
from ax.core.types import ComparisonOp

from kbo.errors import InvalidInput
from kbo.integrations.ax.records import overwritten
from kbo.integrations.replay import Ended, Replay
from kbo.optimize import Constraint
from kbo.optimize.objectives.objective import objective_of
from kbo.optimize.run.outcome import SEM
from kbo.optimize.run.trials import in_words, out_of_order
from kbo.space import Params, Space

Row = tuple[int, str]
"""The index of a trial and the name of an arm."""

Key = TypeVar("Key")

_LOST = (TrialStatus.FAILED, TrialStatus.ABANDONED, TrialStatus.EARLY_STOPPED)
_ENDED = (TrialStatus.COMPLETED, *_LOST)

_DECIMALS = 10
_DIGITS = 12
"""Numbers are rounded to these, since Ax stores ten decimals, and loading may change the last bit of a number."""

_SMALL = 1e-3
"""If all values of an outcome are smaller than this, they are not rounded: storage keeps too few of their digits."""


# The problem


def directions_of(config: OptimizationConfig) -> dict[str, bool]:
    """Return, by the name of each objective, whether larger values are better.

    Raises:
        InvalidInput: An objective is a weighted sum of outcomes.
    """
    objective: Any = config.objective
    directions = {}
    for outcomes_and_weights in objective._parsed[1]:  # Ax has no public way to tell them apart
        if len(outcomes_and_weights) > 1:
            raise InvalidInput(
                f"kbo has methods for objectives that are single outcomes, got {objective.expression!r}: let the "
                "trials report a weighted sum as one outcome."
            )
        ((name, weight),) = outcomes_and_weights
        directions[name] = weight > 0
    return directions


def objectives_of(config: OptimizationConfig) -> dict[str, Any]:
    """Return the arguments of ``Optimizer`` that define its objectives.

    Raises:
        InvalidInput: An objective is a weighted sum of outcomes, or a threshold is relative.
    """
    directions = directions_of(config)
    if len(directions) == 1:
        (maximize,) = directions.values()
        return {"maximize": maximize}
    objectives = [objective_of(name, maximize) for name, maximize in directions.items()]
    thresholds = _absolute(getattr(config, "objective_thresholds", ()))
    reference = {threshold.name: threshold.sign * threshold.limit for threshold in thresholds}
    return {"objectives": objectives, "reference": reference or None}


def limits_of(config: OptimizationConfig) -> list[Constraint]:
    """Return the outcome constraints as constraints of kbo.

    Raises:
        InvalidInput: A constraint is relative, or limits several outcomes together.
    """
    return _absolute(config.outcome_constraints)


def _absolute(constraints: Iterable[OutcomeConstraint]) -> list[Constraint]:
    """Return constraints or thresholds of Ax as constraints of kbo; errors as for ``limits_of``."""
    limits: list[Constraint] = []
    for constraint in constraints:
        if constraint.relative or len(constraint.metric_weights) > 1:
            raise InvalidInput(
                f"outcome constraint {constraint.expression!r}: kbo has limits on single outcomes, such as "
                "'memory <= 8'. Give the number in place of a baseline; let the trials report a sum as one outcome."
            )
        ((name, weight),) = constraint.metric_weights
        bound = constraint.bound / weight
        is_upper = constraint.op == ComparisonOp.LEQ
        if weight < 0:
            is_upper = not is_upper
        if is_upper:
            limits.append(Constraint(name, upper=bound))
        else:
            limits.append(Constraint(name, lower=bound))
    return limits


# The data


class Outcomes(NamedTuple):
    """The last values of the metrics in the complete trials, rounded to the digits that Ax stores.

    Attributes:
        means: The means that are finite numbers, by the name of the metric and by row.
        errors: The standard errors that are known, in the same way.
    """

    means: dict[str, dict[Row, float]]
    errors: dict[str, dict[Row, float]]

    def mean(self, name: str, row: Row) -> float | None:
        """Return the mean of a metric in an arm; None if it is not known."""
        return self.means.get(name, {}).get(row)

    def error(self, name: str, row: Row) -> float | None:
        """Return the standard error of a metric in an arm; None if it is not known."""
        return self.errors.get(name, {}).get(row)


def outcomes(experiment: Experiment) -> Outcomes:
    """Return the outcomes of an experiment."""
    means: dict[str, dict[Row, float]] = {}
    errors: dict[str, dict[Row, float]] = {}
    for entry in experiment.lookup_data().df.to_dict("records"):
        if experiment.trials[entry["trial_index"]].status != TrialStatus.COMPLETED:
            continue
        mean = float(entry["mean"])
        error = float(entry["sem"])
        if math.isfinite(mean):
            means.setdefault(entry["metric_name"], {})[_row(entry)] = mean
        if 0 <= error < math.inf:
            errors.setdefault(entry["metric_name"], {})[_row(entry)] = error
    for columns in (means, errors):
        for name, column in columns.items():
            columns[name] = rounded(column)
    return Outcomes(means, errors)


def _row(entry: Mapping[Any, Any]) -> Row:
    """Return the trial index and the arm name of an entry of the data."""
    return entry["trial_index"], entry["arm_name"]


def _reports(experiment: Experiment, objective: str) -> dict[Row, dict[int, float]]:
    """Return the values of the objective that each arm reported, by step. Fractional steps are left out."""
    column: dict[tuple[Row, int], float] = {}
    for entry in experiment.lookup_data().full_df.to_dict("records"):
        if entry["metric_name"] != objective:
            continue
        step = entry["step"]
        value = float(entry["mean"])
        if step >= 0 and step == step // 1 and math.isfinite(value):
            column[_row(entry), int(step)] = value
    reports: dict[Row, dict[int, float]] = {}
    for (row, step), value in rounded(column).items():
        reports.setdefault(row, {})[step] = value
    return reports


def rounded(column: Mapping[Key, float]) -> dict[Key, float]:
    """Return finite numbers rounded to the digits that Ax stores, so that a resumed run has the same data."""
    if max(map(abs, column.values()), default=0.0) < _SMALL:
        return dict(column)
    return {key: _rounded(value) for key, value in column.items()}


def _rounded(value: float) -> float:
    """Return a finite number rounded to ``_DECIMALS`` decimals and ``_DIGITS`` digits."""
    if value == 0:
        return value
    decimals = _DIGITS - 1 - math.floor(math.log10(abs(value)))
    return round(value, min(_DECIMALS, decimals))


# The trials


def ended(
    experiment: Experiment,
    data: Outcomes,
    space: Space,
    objectives: Sequence[str],
    limits: Sequence[Constraint],
) -> list[Ended]:
    """Return an entry for each arm of the ended trials, in the order of their ends, without arms outside the space."""
    reports = _reports(experiment, objectives[0])
    measurable = [*objectives, *(limit.name for limit in limits)]
    entries: list[Ended] = []
    for trial in _in_order(experiment, *_ENDED):
        is_pruned = trial.status == TrialStatus.EARLY_STOPPED
        for arm in trial.arms:
            params = _params_of(experiment, space, arm.parameters)
            if params is None:
                continue
            row = (trial.index, arm.name)
            measured: dict[str, float] = {}
            for name in measurable:
                mean = data.mean(name, row)
                if mean is not None:
                    measured[name] = mean
            value = measured.pop(objectives[0], None)
            error = data.error(objectives[0], row)
            if error is not None:
                measured[SEM] = error
            steps = tuple(sorted(reports.get(row, {}).items()))
            entries.append(Ended(row, params, value, measured, is_pruned, steps))
    return entries


def left_out(experiment: Experiment, replay: Replay) -> list[int]:
    """Return the indices of ended trials that have no place in the space of the optimiser."""
    misplaced = {trial.number for trial in replay.optimizer.run.trials.misplaced}
    indices = {entry.key[0] for i, entry in enumerate(replay.trials) if i not in misplaced}
    return [t.index for t in _in_order(experiment, *_ENDED) if t.index not in indices]


def pending(
    experiment: Experiment,
    space: Space,
    parameters: Iterable[Mapping[str, Any]],
    trials: Sequence[Ended],
) -> list[Params]:
    """Return the parameters of running trials.

    Args:
        experiment: The experiment.
        space: The space.
        parameters: The parameters that Ax counts as pending; these include trials that have ended without a value.
        trials: The trials that have ended.
    """
    ended_without_value = [entry.params for entry in trials if entry.value is None]
    running: list[Params] = []
    for arm in parameters:
        params = _params_of(experiment, space, arm)
        if params is not None and params not in ended_without_value:
            running.append(params)
    return running


def all_parameters(experiment: Experiment) -> list[dict[str, Any]]:
    """Return the parameters of all arms of an experiment."""
    parameters: list[dict[str, Any]] = []
    for trial in experiment.trials.values():
        parameters += [_backfilled(experiment, arm.parameters) for arm in trial.arms]
    return parameters


def _in_order(experiment: Experiment, *status: TrialStatus) -> list[BaseTrial]:
    """Return the trials with one of some statuses, in the order of their ends."""
    trials = [trial for trial in experiment.trials.values() if trial.status in status]
    return sorted(trials, key=lambda trial: (trial.time_completed or datetime.min, trial.index))


def _params_of(
    experiment: Experiment, space: Space, parameters: Mapping[str, Any]
) -> Params | None:
    """Return the parameters of an arm in a space, with backfill values if needed; None if they are outside."""
    for candidate in (parameters, _backfilled(experiment, parameters)):
        with contextlib.suppress(InvalidInput):
            return space.canonical(candidate)
    return None


def _backfilled(experiment: Experiment, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of an arm, with backfill values for parameters that were added later."""
    return {**experiment.search_space.backfill_values(), **parameters}


def selected(experiment: Experiment) -> list[str]:
    """Return the ways in which noise may have selected the data (``kbo.optimize.run.trials``)."""
    trials: list[BaseTrial] = list(experiment.trials.values())
    complete = _in_order(experiment, TrialStatus.COMPLETED)
    running = _in_order(experiment, TrialStatus.RUNNING)
    ways = {
        "failed, abandoned or stopped early": sum(trial.status in _LOST for trial in trials),
        "attached, perhaps with values that were known before": sum(map(_is_attached, complete)),
        "that ended after later ones": out_of_order(trial.index for trial in [*complete, *running]),
        "with values that were overwritten after kbo had read them": overwritten(experiment),
    }
    return in_words(ways)


def _is_attached(trial: BaseTrial) -> bool:
    """Return whether a trial was attached: the user gave its parameters."""
    manual = GeneratorRunType.MANUAL.name
    return any(run.generator_run_type == manual for run in trial.generator_runs)
