"""Sentences of pages that are not in the summary: on trials, pictures, failures and assumptions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from kbo.optimize import Trial
from kbo.optimize.constraints.constraint import violations
from kbo.optimize.insight.credible_sets import Effect
from kbo.report.record import Record
from kbo.report.summary import why_no_model

_LONGEST_REASON = 300  # largest number of characters of a failure's reason


# The run and its trials


def opening(record: Record) -> str:
    """Return a sentence on the origin of the trials, the direction and the setting."""
    direction = "smaller values are better"
    if record.maximize:
        direction = "larger values are better"
    if record.objectives:
        direction = ", ".join(map(str, record.objectives))
    if record.imported is not None:
        return f"Trials of {record.imported.tool}, {direction}; by the model of kbo's practical setting."
    header = record.header
    setting = header.get("setting", "practical")
    method = header.get("method")
    return f"By {method} in the {setting} setting, seed {header.get('seed')}: {direction}."


def period(record: Record) -> str:
    """Return the times of the first and the last event, as text; empty if the journal has no times."""
    times = [event.time for event in record.events if event.time is not None]
    if not times or record.imported is not None:
        return ""
    begin = _minute(min(times))
    end = _minute(max(times))
    if begin == end:
        return f"{begin} UTC."
    return f"{begin} to {end} UTC."


def _minute(seconds: float) -> str:
    """Return a time, in seconds since 1970, as date, hour and minute in UTC."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}"


def notes(record: Record, trial: Trial, recommended: Any, first: Mapping[int, int]) -> str:
    """Return the remarks on a trial in a table of trials.

    Args:
        record: The run.
        trial: The trial.
        recommended: The name of the recommended trial.
        first: By the number of each repeated trial, the number of the first trial with the same parameters.
    """
    best = record.best()
    remarks = []
    if not trial.asked and trial.number not in first:
        remarks.append("known result")
    if trial.number in first:
        repeated = record.trials[first[trial.number]]
        remarks.append(f"repeats trial {record.name(repeated)}")
    if trial.status in ("pending", "pruned"):
        remarks.append(trial.status)
    if record.name(trial) == recommended:
        remarks.append("balanced" if record.objectives else "recommended")
    if trial.value is not None:
        broken = [limit for limit in record.constraints if violations(trial, [limit])]
        remarks += [f"breaks {limit}" for limit in broken]
    remarks += [f"violates {constraint}" for constraint in record.space.violated(trial.params)]
    if best is not None and trial.number == best.number and not record.objectives:
        remarks.append("best observed")
    if trial.failure is not None:
        remarks.append(f"failed: {reason(trial)}")
    if trial.corrected:
        remarks.append(f"corrected{_reported(trial)}")
    if trial.removed is not None:
        remarks.append(f"removed{_reported(trial)}: {trial.removed}")
    return ", ".join(remarks)


def _reported(trial: Trial) -> str:
    """Return the value that was reported before a correction, in brackets; empty if there was none."""
    if trial.reported is None:
        return ""
    return f" (reported: {trial.reported:.6g})"


def reason(trial: Trial) -> str:
    """Return the reason of a failure, shortened."""
    text = trial.failure or ""
    if len(text) > _LONGEST_REASON:
        return f"{text[:_LONGEST_REASON]}…"
    return text


# The recommendation and its bounds


def not_drawn(record: Record, drawn: Collection[str]) -> str:
    """Return a sentence on the parameters without a picture, and the reason; empty if all that vary have one.

    Args:
        record: The run.
        drawn: The parameters with a picture.
    """
    names = [name for name, parameter in record.space.parameters.items() if parameter.columns]
    missing = [name for name in names if name not in drawn]
    if not missing:
        return ""
    reason = "their effects are not known so far"
    if record.result is None:
        reason = "there are no bounds on this page"
    elif not record.result.assumptions:
        reason = why_no_model(record.result.optimizer)
    elif drawn:
        reason = "they matter less, or the recommended setting does not have them"
    return f"Not drawn: {', '.join(missing)}, since {reason}."


def slice_caption(record: Record, name: str, effect: Effect | None) -> str:
    """Return the caption of the picture of one parameter.

    Args:
        record: The run.
        name: The parameter.
        effect: The effect of the parameter; None if it is unknown.
    """
    sentence = (
        "The estimated value if only it changes; dots are results, whose other parameters differ."
    )
    if record.space.dimension == 1:
        sentence = "The estimated value; dots are results."
    if effect is not None and effect.range is not None and not effect.range.has_all:
        sentence += f" Green: where the best setting is with 90%, {effect.range}."
    elif effect is not None and not effect.visible:
        sentence += " Its effect is unknown so far."
    if record.space.constraints:
        sentence += " Grey: values that violate a constraint there."
    return sentence


def resume(record: Record) -> str:
    """Return a sentence on how to go on with a run."""
    if record.path is None:
        return (
            "The run has no journal, so the next call begins at trial 0. `result.optimizer.save('run.jsonl')` makes "
            "one, and the same call with journal='run.jsonl' continues the run."
        )
    return (
        f"The same call, or the same `kbo tune` command, with the journal {record.path} continues the run; only the "
        f"number of trials may differ. For experiments by hand `kbo ask {record.path}` chooses the next ones, and "
        "`kbo tell` records results."
    )
