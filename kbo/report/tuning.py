"""Page of a tuning run. The template has its words, and decides which of them fit the run."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from kbo._base.terminal import rounded_up
from kbo.errors import KboError, RefutedAssumptions
from kbo.optimize import Optimizer, Result, Trial
from kbo.optimize.insight.expected_gain import N_MORE
from kbo.optimize.insight.importance import LEVEL
from kbo.optimize.result import PROOF, result_of
from kbo.optimize.run.trials import repetitions, violations
from kbo.optimize.table import by_name, format_params, shown, text
from kbo.report import figures
from kbo.report.page import Picture, embed, render
from kbo.report.plots import GROUPS, Group, Plots
from kbo.report.record import Record
from kbo.report.replay import NOISE_MARGIN, miscoverage
from kbo.report.resume import resume

_MOST_TRIALS = 50  # rows of the tables of the best and of the last trials
_LONGEST = 300  # characters of the reason of a failure


def page(record: Record, title: str, *, live: str | None = None) -> str:
    """Return the page of a run.

    Args:
        record: The run.
        title: Its title.
        live: State of a run whose page is made while it goes on; such a page has no bounds of earlier times.
    """
    result, trouble, refuted = _result(record, 0 if live is not None else PROOF)
    plots = Plots(record, replay=live is None)
    best = record.best()
    chosen = record.recommended() if result is not None else None
    recommended = None if chosen is None else record.name(chosen)
    outside, expected = miscoverage(plots.moments)
    return render(
        "tuning.html",
        title=title,
        live=live,
        record=record,
        header={"method": None, "setting": None, "seed": None} | record.header,
        dates=_dates(record),
        recommended=recommended,
        result=result,
        answers=_answers(record, result),
        hidden=_hidden(result),
        sure="" if result is None else result.sure,
        gap=None if result is None or result.gap is None else rounded_up(result.gap, 4),
        best_params={} if best is None else shown(best.params),
        more=N_MORE,
        trouble=trouble,
        refuted=refuted,
        format_params=format_params,
        named_params=shown(result.params) if result and result.params is not None else {},
        parts={"evaluated": result.evaluated} | result.account if result else {},
        exact_params=json.dumps(result.params) if result else "",
        numbers=_numbers(record.optimizer, result)
        if record.optimizer and result and result.assumptions
        else {},
        moments=plots.moments,
        pictures={name: _embedded(getattr(plots, name)) for name in GROUPS if name != "overview"},
        undrawn=[
            name
            for name, p in record.space.parameters.items()
            if p.columns and name not in plots.slices
        ],
        indices=plots.indices,
        importances=[
            (i.name, *(f"{v:.2f}" for v in (i.first[1], i.total[1])), _range(i.total))
            for i in plots.indices
        ],
        level=LEVEL,
        outside=outside,
        expected=expected,
        noise_margin=NOISE_MARGIN,
        reasons=_reasons(record),
        columns=_columns(record),
        tables=_tables(record, recommended),
        limits=_limits(result),
        csv=base64.b64encode(text(record.trials).encode()).decode(),
        resume=resume(record) if record.history is None else None,
    )


def _result(record: Record, evaluations: int) -> tuple[Result | None, str, bool]:
    """Return the result, or None, why there are no bounds, and whether the data contradict the assumptions."""
    if record.optimizer is None:
        return None, record.obstacle, False
    try:
        return result_of(record.optimizer, "", None, evaluations), "", False
    except KboError as error:
        return None, str(error), isinstance(error, RefutedAssumptions)


def _answers(record: Record, result: Result | None) -> Mapping[str, str]:
    """Return the answers in words by label: those that are printed."""
    if record.history is not None:
        return record.history.answers
    if result is None or result.answers is None:
        return {}
    return result.answers.entries()


def _hidden(result: Result | None) -> list[str]:
    """Return the parameters of which no effect is visible yet."""
    if result is None or result.answers is None:
        return []
    return [effect.name for effect in result.answers.effects if not effect.visible]


def _dates(record: Record) -> str:
    """Return the times of the first and the last event, as far as the journal has them."""
    times = [event.time for event in record.events if event.time is not None]
    if not times or record.history is not None:
        return ""
    first, last = (f"{datetime.fromtimestamp(f(times), UTC):%Y-%m-%d %H:%M}" for f in (min, max))
    return f"{first} UTC." if first == last else f"{first} to {last} UTC."


def _numbers(optimizer: Optimizer, result: Result) -> dict[str, Any]:
    """Return the numbers in the bounds by their labels."""
    numbers, belief = result.assumptions, optimizer.description()
    entries = {
        "kernel": numbers["kernel"],
        "noise level (units of the objective)": numbers["noise_std"],
        **(
            {"norm bound (units of the objective)": numbers["norm_bound"]}
            if "norm_bound" in numbers
            else {}
        ),
        "probability that bounds may fail": numbers["delta"]
        if result.certified
        else f"{numbers['delta']:g}, nominal",
        "where they come from": numbers["from"],
    }
    if belief is None:
        return entries
    state = belief.posterior
    entries |= {"ridge (units of the kernel)": state.ridge, "observations": state.n}
    found = getattr(getattr(state, "kernel", None), "lengthscale", None)
    if found is None or found.numel() != optimizer.space.columns:
        return entries
    lengthscales = zip(optimizer.space.labels, found.flatten().tolist(), strict=True)
    return entries | {f"lengthscale of {name}": value for name, value in lengthscales}


def _embedded(group: Group) -> dict[str, Picture]:
    """Return the figures of a group as pictures, by name."""
    found = {}
    for name, drawing in group.items():
        figure, axes = figures.picture(height=drawing.height)
        drawing.draw(axes)
        found[name] = embed(figures.finish(figure))
    return found


def _range(interval: tuple[float, float, float]) -> str:
    return f"{interval[0]:.2f} to {interval[2]:.2f}"


def _reasons(record: Record) -> list[tuple[int, int, str]]:
    """Return how often trials failed for a reason, the last of them, and the reason, the most frequent ones first."""
    failed = record.with_status("failed")
    last = {_shortened(trial.failure): trial.number for trial in failed}
    times = Counter(_shortened(trial.failure) for trial in failed)
    return [(count, last[reason], reason) for reason, count in times.most_common()]


def _shortened(reason: str | None) -> str:
    reason = reason or ""
    return reason if len(reason) <= _LONGEST else f"{reason[:_LONGEST]}…"


def _tables(record: Record, recommended: Any) -> dict[str, list[tuple]]:
    """Return rows of all trials by a caption, or of the best and of the last ones of a long run."""
    trials = record.trials
    if len(trials) <= 2 * _MOST_TRIALS:
        chosen = {"All trials in the order of their numbers.": trials}
    else:
        best = sorted(record.with_status("complete"), key=record.rank)[:_MOST_TRIALS]
        last = trials[-_MOST_TRIALS:]
        chosen = {
            f"The {len(best)} best observed values.": best,
            f"The last {len(last)} trials.": last,
        }
    again = repetitions(trials)
    return {
        caption: [_row(record, trial, recommended, again) for trial in rows]
        for caption, rows in chosen.items()
    }


def _columns(record: Record) -> list[str]:
    """Return the header of the tables of trials: a name for each entry of a row."""
    return ["trial", "value", *_measured(record), *record.space.parameters, "seconds", "note"]


def _row(record: Record, trial: Trial, recommended: Any, again: Mapping[int, int]) -> tuple:
    best, name = record.best(), record.name(trial)
    notes = ["known result"] * (not trial.asked)
    if trial.number in again:
        notes.append(f"repeats trial {record.name(record.trials[again[trial.number]])}")
    notes += [trial.status] * (trial.status in ("pending", "pruned")) + ["recommended"] * bool(
        name == recommended
    )
    notes += [
        f"breaks {c}"
        for c in record.constraints
        if trial.value is not None and violations(trial, [c])
    ]
    notes += [f"violates {text}" for text in record.space.violated(trial.params)]
    notes += ["best observed"] * (best is not None and trial.number == best.number)
    notes += [f"failed: {_shortened(trial.failure)}"] * (trial.failure is not None)
    params = by_name(trial.params)
    values = (params.get(name) for name in record.space.parameters)
    measured = (trial.measured.get(name) for name in _measured(record))
    return (name, trial.value, *measured, *values, trial.seconds, ", ".join(notes))


def _measured(record: Record) -> list[str]:
    """Return the names of what trials have measured besides the value."""
    return list(dict.fromkeys(name for trial in record.trials for name in trial.measured))


def _limits(result: Result | None) -> list[tuple[str, float, str]]:
    """Return each limit, and at the recommended setting the mean of its quantity and its bounds."""
    found = result.feasibility if result is not None else None
    if found is None:
        return []
    rows = []
    for c in found.constraints:
        if c.name in found.bounds:
            low, mean, high = found.bounds[c.name]
            shown = "as measured" if low == high else f"{low:.4g} to {high:.4g}"
            rows.append((str(c), mean, shown))
    return rows
