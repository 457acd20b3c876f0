"""Sentences of pages and audits that are not in the summary: on trials, pictures, failures and data left out."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from kbo._base.terminal import bounded, percent
from kbo.optimize import Result, Trial
from kbo.optimize.constraints.constraint import violations
from kbo.optimize.insight.comparison import Comparison
from kbo.optimize.insight.credible_sets import Effect
from kbo.optimize.run.table import by_name, format_params
from kbo.report.record import Record
from kbo.report.replay import NOISE_MARGIN
from kbo.report.summary import why_no_model
from kbo.space import Params, Space

_MORE = 20  # number of trials that the command to resume adds
_LONGEST_REASON = 300  # largest number of characters of a failure's reason
_MOST_NAMED = 5  # largest number of trials that are named

_EXAMPLES = ("digits", "branin")
"""Names of the problems that ``kbo tune`` has without a script (``kbo.cli.examples``)."""

_MOST_OUTSIDE = 0.05
"""Largest share of values outside their expected ranges that does not refute the assumptions."""


# The run and its trials


def opening(record: Record) -> str:
    """Return a sentence on the origin of the trials and the setting."""
    if record.history is not None:
        direction = "smaller"
        if record.maximize:
            direction = "larger"
        return (
            f"Trials of {record.history.tool}, {direction} values are better. All statements about them are by the "
            "model of kbo's practical setting (kernel and noise are estimated)."
        )
    direction = "Minimised"
    if record.maximize:
        direction = "Maximised"
    setting = "practical setting (kernel, noise and norm bound are estimated)"
    if record.header.get("setting") == "certified":
        setting = "certified setting (the assumptions of the bounds are given)"
    method = record.header.get("method")
    if record.objectives:
        texts = ", ".join(map(str, record.objectives))
        return f"Optimised in the {setting}, seed {record.header.get('seed')}: {texts}."
    return f"{direction} by {method} in the {setting}, seed {record.header.get('seed')}."


def trial_counts(trials: Sequence[Trial]) -> str:
    """Return the number of all trials, and the number for each status other than complete, as text."""
    text = "1 trial"
    if len(trials) != 1:
        text = f"{len(trials)} trials"
    counts = Counter(trial.status for trial in trials)
    for status in ("failed", "pruned", "removed", "pending"):
        if counts[status]:
            text += f", {counts[status]} {status}"
    return text


def period(record: Record) -> str:
    """Return the times of the first and the last event, as text; empty if the journal has no times."""
    times = [event.time for event in record.events if event.time is not None]
    if not times or record.history is not None:
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


def not_drawn(record: Record, drawn: Collection[str], result: Result | None) -> list[str]:
    """Return a sentence for each reason why parameters that vary have no picture.

    Args:
        record: The run.
        drawn: The parameters with a picture.
        result: Its result; None without bounds.
    """
    names_by_reason: dict[str, list[str]] = {}
    for name, parameter in record.space.parameters.items():
        if parameter.columns and name not in drawn:
            reason = _why_not_drawn(record, name, len(drawn), result)
            names_by_reason.setdefault(reason, []).append(name)
    return [
        f"Not drawn: {', '.join(names)}, since {reason}."
        for reason, names in names_by_reason.items()
    ]


def _why_not_drawn(record: Record, name: str, n_drawn: int, result: Result | None) -> str:
    """Return why a parameter has no picture; arguments as for ``not_drawn``."""
    if result is None:
        return "there are no bounds on this page"
    if not result.assumptions:
        return why_no_model(result.optimizer)
    recommended = record.recommended()
    if recommended is not None and name not in by_name(recommended.params):
        return "the recommended setting does not have it"
    if n_drawn:
        return f"the pictures are of the {n_drawn} parameters that matter most"
    return "the effects of parameters are not known so far"


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


def model_check(outside: int, expected: int) -> str:
    """Return the conclusion about the assumptions from the values outside of their expected ranges.

    Args:
        outside: Number of values outside of their expected ranges.
        expected: Number of values with an expected range, at least 1.
    """
    fact = (
        f"For each of {expected} values there was an interval of the objective before the value was observed. "
        f"{outside} of the values ({outside / expected:.1%}) missed it by more than {NOISE_MARGIN:g} noise levels."
    )
    most = _MOST_OUTSIDE * expected
    if outside > max(1, most):
        return (
            f"{fact} More than {_MOST_OUTSIDE:.0%} says that the noise level or the norm bound is too small, or that "
            "the kernel is wrong, at least early in the run."
        )
    if outside > most:
        return f"{fact} One value of so few says little."
    return f"{fact} That is as few as it should be: this check finds nothing against kernel and noise level."


def resume(record: Record) -> tuple[str, str]:
    """Return a sentence on how to resume a run, and the command or the call that resumes it."""
    call = "kbo.minimize"
    if record.maximize:
        call = "kbo.maximize"
    n_trials = record.header.get("n_trials") or len(record.trials) + _MORE
    if record.path is None:
        text = (
            "The run has no journal, so the next call begins anew. With a journal the same call goes on where it "
            "stopped. `optimizer.save('run.jsonl')` makes one of this run, for a result "
            "`result.optimizer.save('run.jsonl')`:"
        )
        return text, f"{call}(..., n_trials={n_trials}, journal='run.jsonl')"
    name = record.path.stem.removeprefix("tune-")
    asked = [trial for trial in record.trials if trial.asked]
    if asked and all(trial.released for trial in asked):  # as by `kbo ask`: no process waited
        text = (
            "This command chooses the next experiment, with -n 5 five; `kbo tell` records results:"
        )
        return text, shlex.join(["kbo", "ask", str(record.path)])
    if name == record.path.stem:
        text = (
            "The same call with the same journal continues the run; only the number of trials may differ. Without a "
            f"script `kbo ask {record.path}` chooses the next experiments:"
        )
        return text, f"{call}(..., n_trials={n_trials}, journal={str(record.path)!r})"
    text = f"This command, with the other options of the run, adds {_MORE} trials"
    script = name
    if name not in _EXAMPLES:
        script = f"{name}.py"
        text += f"; {script} stands for the script that was tuned"
    words = ["kbo", "tune", script, "--trials", len(record.trials) + _MORE]
    words += ["--method", record.header["method"], "--seed", record.header["seed"]]
    if record.maximize:
        words.append("--maximize")
    words += ["--journal", record.path]
    return f"{text}:", shlex.join(map(str, words))


# Audits


def reported_best(
    tool: str,
    trial: Any,
    value: float,
    estimated: tuple[float, float, float] | None,
    of_changed: bool,
) -> str:
    """Return a sentence on the trial with the best observed value (in the present space) and the interval there."""
    text = f"{tool} has {value:.4g} as the best value, of trial {trial}"
    if of_changed:
        text = f"{tool} has {value:.4g} as the best value inside the present search space, of trial {trial}"
    if estimated is None:
        return text
    return f"{text}; without noise {bounded(*estimated)}"


def likely_best(trial: Any, params: Params, reported: Any, margin: Comparison | None) -> str:
    """Return a sentence on the likely best trial, and the probability that it is better than the reported one."""
    if trial == reported:
        return f"trial {trial}, which also has the best observed value: {format_params(params)}"
    text = f"trial {trial}: {format_params(params)}"
    if margin is None:
        return text
    return f"{text}; better than trial {reported} with {percent(margin.probability)}"


def reported_front(tool: str, observed: Sequence[Any], lucky: Sequence[Any]) -> str:
    """Return a sentence on the observed front, and on its trials that others dominate in estimated true values."""
    text = f"{tool} has {len(observed)} trials that no other dominates: {_named(observed)}"
    if not lucky:
        return text
    return (
        f"{text}; by estimates without noise others dominate {len(lucky)} of them: {_named(lucky)}"
    )


def trials_left_out(names: Sequence[Any], reason: str) -> str:
    """Return the number of trials that are left out, the reason, and the first names; empty if there are none."""
    if not names:
        return ""
    return f", {len(names)} left out ({reason}: {_named(names)})"


def _named(names: Sequence[Any]) -> str:
    """Return the first names of trials, joined by commas."""
    text = ", ".join(map(str, names[:_MOST_NAMED]))
    if len(names) > _MOST_NAMED:
        text += ", ..."
    return text


def values_guessed(values: Params) -> str:
    """Return the guessed values of parameters in trials that lack them, as text; empty without any."""
    if not values:
        return ""
    return f"; the latest trials count as {format_params(values)}, which they lack: a guess"


def parameters_left_out(reasons: Mapping[str, str]) -> str:
    """Return the parameters of a study that are left out, as text.

    Args:
        reasons: The reason for each parameter, by its name.
    """
    text = ""
    for name, reason in reasons.items():
        text += f"; parameter {name!r} is left out: {reason.removesuffix('.')}"
    return text


def rows_left_out(reasons: Mapping[int, str], places: Sequence[str]) -> str:
    """Return the number of rows of a table that are left out, with place and reason of the first such row.

    Args:
        reasons: The reason for each row that is left out, by the position of the row.
        places: The name of each row of the table.
    """
    if not reasons:
        return ""
    first = min(reasons)
    text = reasons[first].removesuffix(".")
    return f", {len(reasons)} rows left out (the first is {places[first]}: {text})"


def columns_left_out(
    counters: Sequence[str], constant: Sequence[str], unused: Sequence[str]
) -> str:
    """Return the columns of a table that are not used, as text.

    Args:
        counters: Columns that count the rows.
        constant: Columns with one value.
        unused: Columns that are neither parameters nor measurements.
    """
    text = ""
    if counters:
        text += f"; no parameter, since it counts the rows: {', '.join(counters)}"
    if constant:
        text += f"; no parameter, since it has one value: {', '.join(constant)}"
    if unused:
        text += f"; left out, since they are no parameters: {', '.join(unused)}"
    return text


def inferred_ranges(space: Space) -> str:
    """Return the statement that the ranges of a space are those of the trials, and which are logarithmic."""
    logarithmic = [name for name, parameter in space.parameters.items() if parameter.log]
    text = "; ranges are those of the trials"
    if logarithmic:
        text += f", logarithmic for {', '.join(logarithmic)}"
    return text
