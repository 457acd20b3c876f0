"""The history of an experiment of Ax: trials that have ended, and how their noise may have selected the values."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from ax.core.base_trial import BaseTrial, TrialStatus
from ax.core.experiment import Experiment
from ax.core.generator_run import GeneratorRunType
from ax.core.optimization_config import OptimizationConfig
from ax.core.types import ComparisonOp

from kbo.errors import InvalidInput
from kbo.integrations.replay import Ended
from kbo.optimize import Constraint
from kbo.optimize.run.outcome import SEM
from kbo.optimize.run.trials import in_words, out_of_order
from kbo.space import Params, Space

Row = tuple[int, str]
"""The index of a trial and the name of an arm."""

Columns = dict[str, dict[Row, float]]
"""Means and standard errors of each metric, by "mean NAME" and "sem NAME"."""

Key = TypeVar("Key")

_SEEN = "kbo:seen"
_LOST = TrialStatus.FAILED, TrialStatus.ABANDONED, TrialStatus.EARLY_STOPPED

_DECIMALS, _DIGITS = (
    10,
    12,
)  # Ax stores ten decimals, and reading them back may change the last bit of a number
_SMALL = 1e-3  # outcomes that are all smaller than this are not rounded: storage keeps too few of their digits
_COMPARED = 6  # digits of the largest value of a column in which two of its states are compared


def limits_of(config: OptimizationConfig) -> list[Constraint]:
    """The outcome constraints.

    Raises:
        InvalidInput: One that is relative or about several outcomes.
    """
    limits = []
    for constraint in config.outcome_constraints:
        if constraint.relative or len(constraint.metric_weights) > 1:
            raise InvalidInput(
                f"outcome constraint {constraint.expression!r}: kbo has limits on single outcomes, such as "
                "'memory <= 8'. Give the number in place of a baseline; let the trials report a sum as one outcome."
            )
        ((name, weight),) = constraint.metric_weights
        bound, is_upper = (
            constraint.bound / weight,
            (constraint.op == ComparisonOp.LEQ) == (weight > 0),
        )
        limits.append(Constraint(name, upper=bound) if is_upper else Constraint(name, lower=bound))
    return limits


def outcomes(experiment: Experiment) -> Columns:
    """The last value of each metric in trials that are complete, to the digits that Ax stores."""
    table, found = experiment.lookup_data().df, {}
    complete = [
        experiment.trials[index].status == TrialStatus.COMPLETED for index in table["trial_index"]
    ]
    for row in table[complete].to_dict("records"):
        for kind in ("mean", "sem"):
            column = found.setdefault(f"{kind} {row['metric_name']}", {})
            column[row["trial_index"], row["arm_name"]] = float(row[kind])
    return {name: rounded(column) for name, column in found.items()}


def rounded(column: Mapping[Key, float]) -> dict[Key, float]:
    """Numbers to the digits that Ax stores, so that a resumed run has the same data."""
    largest = max((abs(value) for value in column.values() if math.isfinite(value)), default=0.0)
    return (
        dict(column) if largest < _SMALL else {row: _round(value) for row, value in column.items()}
    )


def _round(value: float) -> float:
    if value == 0 or not math.isfinite(value):
        return value
    return round(value, min(_DECIMALS, _DIGITS - 1 - math.floor(math.log10(abs(value)))))


def ended(
    experiment: Experiment,
    data: Columns,
    space: Space,
    objective: str,
    limits: Sequence[Constraint],
) -> list[Ended]:
    """The trials that have ended, in this order, each arm on its own; those outside the space are left out.

    An arm without a parameter that was added later has its backfill value.
    """
    found, reports = [], _reports(experiment, objective)
    for trial in _in_order(experiment, TrialStatus.COMPLETED, *_LOST):
        for arm in trial.arms:
            params = _inside_or_backfilled(experiment, space, arm.parameters)
            if params is None:
                continue
            row, pruned = (trial.index, arm.name), trial.status == TrialStatus.EARLY_STOPPED
            of_row = {
                name: data.get(f"mean {name}", {}).get(row)
                for name in (objective, *(c.name for c in limits))
            }
            known = {
                name: value
                for name, value in of_row.items()
                if value is not None and math.isfinite(value)
            }
            value, of_trial = (
                known.pop(objective, None),
                tuple(sorted(reports.get(row, {}).items())),
            )
            if (
                0 <= (error := data.get(f"sem {objective}", {}).get(row, math.nan)) < math.inf
            ):  # NaN if not known
                known[SEM] = error
            found.append(Ended(row, params, value, known, pruned, of_trial))
    return found


def backfilled(experiment: Experiment, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of an arm, with the backfill values of those that were added to the search space later."""
    return {**experiment.search_space.backfill_values(), **parameters}


def all_parameters(experiment: Experiment) -> list[dict[str, Any]]:
    """Return the parameters of all arms of an experiment."""
    return [
        backfilled(experiment, arm.parameters)
        for trial in experiment.trials.values()
        for arm in trial.arms
    ]


def left_out(experiment: Experiment, known: Sequence[Ended]) -> list[int]:
    """Return the indices of trials that have ended and are not among the known ones."""
    indices = {one.key[0] for one in known}
    return [
        trial.index
        for trial in _in_order(experiment, TrialStatus.COMPLETED, *_LOST)
        if trial.index not in indices
    ]


def _in_order(experiment: Experiment, *status: TrialStatus) -> list[BaseTrial]:
    """Trials of some kinds in the order of their ends."""
    trials = [trial for trial in experiment.trials.values() if trial.status in status]
    return sorted(trials, key=lambda trial: (trial.time_completed or datetime.min, trial.index))


def _inside(space: Space, parameters: Mapping[str, Any]) -> Params | None:
    try:
        return space.canonical(parameters)
    except InvalidInput:
        return None


def _inside_or_backfilled(
    experiment: Experiment, space: Space, parameters: Mapping[str, Any]
) -> Params | None:
    """Return parameters as those of a space, if necessary with the backfill values of what was added later."""
    params = _inside(space, parameters)
    return _inside(space, backfilled(experiment, parameters)) if params is None else params


def _reports(experiment: Experiment, objective: str) -> dict[Row, dict[int, float]]:
    """Values by step that arms reported of the objective; steps that are no whole numbers are left out."""
    table, column, found = experiment.lookup_data().full_df, {}, {}
    for row in table[table["metric_name"] == objective].to_dict("records"):
        step, value = row["step"], float(row["mean"])
        if step >= 0 and step == step // 1 and math.isfinite(value):
            column[(row["trial_index"], row["arm_name"]), int(step)] = value
    for (arm, step), value in rounded(column).items():
        found.setdefault(arm, {})[step] = value
    return found


def pending(
    experiment: Experiment,
    space: Space,
    parameters: Iterable[Mapping[str, Any]],
    known: Sequence[Ended],
) -> list[Params]:
    """The parameters that are being evaluated, of those that Ax counts as pending: abandoned ones, too."""
    whole = [_inside_or_backfilled(experiment, space, one) for one in parameters]
    inside = [params for params in whole if params is not None]
    without = [one.params for one in known if one.value is None]
    return [params for params in inside if params not in without]


def selected(experiment: Experiment, data: Columns) -> list[str]:
    """Return the ways in which the noise may have decided which values there are (``kbo.optimize.run.trials``)."""
    trials: list[BaseTrial] = list(experiment.trials.values())
    complete, running = (
        _in_order(experiment, kind) for kind in (TrialStatus.COMPLETED, TrialStatus.RUNNING)
    )
    ways = {
        "failed, abandoned or stopped early": sum(trial.status in _LOST for trial in trials),
        "attached, perhaps with values that were known before": sum(map(_attached, complete)),
        "that ended after later ones": out_of_order(trial.index for trial in [*complete, *running]),
        "proposed, or bounds computed, with values that were overwritten later": _overwritten(
            trials, data
        ),
    }
    return in_words(ways)


def _attached(trial: BaseTrial) -> bool:
    return any(
        run.generator_run_type == GeneratorRunType.MANUAL.name for run in trial.generator_runs
    )


def seen(data: Columns) -> dict[str, Any]:
    """A record of the data, to be kept with what rests on them; a later value in their place contradicts it.

    It has the ``last`` trial with data, those before it ``without``, and a digest of each column; empty without data.
    """
    if not (known := {row[0] for column in data.values() for row in column}):
        return {}
    without = sorted(set(range(max(known))) - known)
    return {
        _SEEN: {
            "last": max(known),
            "without": without,
            "digests": _digests(data, max(known), without),
        }
    }


def note(newest: BaseTrial, data: Columns) -> None:
    """Keep the record with the newest trial, since bounds were computed; unless it has one of these trials."""
    noted = newest.run_metadata.get(_SEEN, [])
    record = seen(data).get(_SEEN)
    if record and not any(
        (one["last"], one["without"]) == (record["last"], record["without"]) for one in noted
    ):
        newest.update_run_metadata({_SEEN: [*noted, record]})


def _overwritten(trials: Iterable[BaseTrial], data: Columns) -> int:
    """The number of records with these trials which the present data contradict."""
    count = 0
    for trial in trials:
        runs = [run.gen_metadata or {} for run in trial.generator_runs]
        for record in [
            *trial.run_metadata.get(_SEEN, []),
            *(run[_SEEN] for run in runs if _SEEN in run),
        ]:
            now = _digests(data, record["last"], record["without"])
            count += any(now.get(column) != digest for column, digest in record["digests"].items())
    return count


def _digests(data: Columns, last: int, without: Iterable[int]) -> dict[str, str]:
    """The digest of each column at the trials up to the last."""
    left_out = set(without)
    return {
        name: _digest(
            {row: y for row, y in column.items() if row[0] <= last and row[0] not in left_out}
        )
        for name, column in data.items()
    }


def _digest(column: Mapping[Row, float]) -> str:
    """A digest of numbers, to ``_COMPARED`` digits of the largest."""
    largest = max((abs(y) for y in column.values() if math.isfinite(y)), default=0.0)
    unit = 10.0 ** (math.floor(math.log10(largest)) - _COMPARED) if largest else 1.0
    plain = [
        (row, round(y / unit) if math.isfinite(y) else str(y)) for row, y in sorted(column.items())
    ]
    return hashlib.sha256(repr(plain).encode()).hexdigest()[:16]
