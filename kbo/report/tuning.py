"""Page of a tuning run."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from kbo.errors import KboError, RefutedAssumptions
from kbo.optimize import Optimizer, Result, Trial
from kbo.optimize.result import format_params, result_of
from kbo.report import figures
from kbo.report.page import Picture, embed, render
from kbo.report.record import Record
from kbo.report.replay import NOISE_MARGIN, Moment, history, miscoverage
from kbo.report.resume import resume
from kbo.space import Choice, Params

_FEW = 0.05
"""Part of the values that may miss their range: so many miss twice the noise level where the function is known."""

_MOST_TRIALS, _MOST_REASONS, _MOST_PARAMETERS = 50, 10, 12
"""Rows of the tables of the best and of the last trials, reasons of failures, parameters with a picture."""

_LONGEST = 300
"""Characters of the reason of a failure."""


def page(record: Record, title: str) -> str:
    """Return the page of a run."""
    result, trouble, refuted = _result(record)
    moments = history(record) if record.optimizer is not None else []
    best, recommended = record.best(), _recommended(record, result)
    reasons = _reasons(record)
    outside, expected = miscoverage(moments)
    return render(
        "tuning.html",
        title=title,
        record=record,
        header={"method": None, "setting": None, "seed": None} | record.header,
        counts={s: len(found) for s in ("complete", "failed", "pending") if (found := record.with_status(s))},
        dates=_dates(record),
        complete=record.with_status("complete"),
        failed=record.with_status("failed"),
        best=best,
        recommended=recommended,
        result=result,
        trouble=trouble,
        refuted=refuted,
        format_params=format_params,
        named_params=_named(result.params) if result and result.params is not None else {},
        exact_params=json.dumps(result.params) if result else "",
        numbers=_numbers(record.optimizer, result) if record.optimizer and result and result.assumptions else {},
        given={label: record.header.get(name) for name, label in _GIVEN.items()},
        call_with_kernel=_call_with_kernel(record),
        moments=moments,
        last=next((m for m in reversed(moments) if m.width is not None), None),
        no_bounds_since=next((m.trial for m in moments if m.trouble), None),
        pictures=_pictures(record, moments, recommended),
        reliability="The intervals have the coverage that the guarantee states."
        if result and result.certified
        else "Nothing guarantees the intervals; they may be too narrow.",
        bands=_bands(record.optimizer) if record.optimizer and result and result.lower is not None else {},
        miscoverage=_drawn(figures.draw_miscoverage, moments) if expected else None,
        outside=outside,
        expected=expected,
        noise_margin=NOISE_MARGIN,
        few=_FEW,
        reasons=reasons,
        most_reasons=_MOST_REASONS,
        columns=("trial", "value", *record.space.parameters, "seconds", "note"),
        tables=_tables(record, recommended),
        resume=resume(record),
    )


_GIVEN = {
    "kernel": "fingerprint of the kernel",
    "noise_std": "noise level given",
    "norm_bound": "norm bound given",
    "delta": "probability that bounds may fail",
}


def _result(record: Record) -> tuple[Result | None, str, bool]:
    """Return the result, or None, why there are no bounds, and whether the data contradict the assumptions."""
    if record.optimizer is None:
        return None, record.obstacle, False
    try:
        return result_of(record.optimizer, "", None), "", False
    except KboError as error:
        return None, str(error), isinstance(error, RefutedAssumptions)


def _recommended(record: Record, result: Result | None) -> int | None:
    """Return the number of the recommended trial."""
    trial = record.optimizer.recommended() if record.optimizer and result else None
    return None if trial is None else trial.number


def _dates(record: Record) -> str:
    """Return the times of the first and the last event, as far as the journal has them."""
    times = [event["time"] for event in record.events if isinstance(event.get("time"), (int, float))]
    try:
        first, last = (f"{datetime.fromtimestamp(f(times), UTC):%Y-%m-%d %H:%M}" for f in (min, max))
    except (ValueError, OverflowError, OSError):  # no times, or some that are none
        return ""
    return f"{first} UTC." if first == last else f"{first} to {last} UTC."


def _named(params: Params) -> dict[str, Any]:
    return params if isinstance(params, dict) else {f"x{i}": value for i, value in enumerate(params)}


def _numbers(optimizer: Optimizer, result: Result) -> dict[str, Any]:
    """Return the numbers in the bounds by their labels."""
    numbers, belief = result.assumptions, optimizer.belief()
    entries = {
        "kernel": numbers["kernel"],
        "noise level (units of the objective)": numbers["noise_std"],
        "norm bound (units of the objective)": numbers["norm_bound"],
        "probability that bounds may fail": numbers["delta"] if result.certified else f"{numbers['delta']:g}, nominal",
        "where they come from": numbers["from"],
    }
    if belief is None:
        return entries
    state = belief.posterior
    entries |= {"ridge (units of the kernel)": state.ridge, "observations": state.n}
    found = getattr(getattr(state, "kernel", None), "lengthscale", None)
    if found is None or found.numel() != optimizer.space.columns:
        return entries
    columns = []
    for name, parameter in optimizer.space.parameters.items():
        options = parameter.options if isinstance(parameter, Choice) else None
        columns += [name] if options is None else [f"{name} = {option}" for option in options]
    lengthscales = zip(columns, found.flatten().tolist(), strict=True)
    return entries | {f"lengthscale of {name}": value for name, value in lengthscales}


def _call_with_kernel(record: Record) -> str:
    if record.path is None:
        return ""
    target = str(record.path.with_suffix(".html"))
    return f"import kbo.report\n\nkbo.report.write({str(record.path)!r}, {target!r}, kernel=kernel)"


def _drawn(draw: Any, *arguments: Any, **options: Any) -> Picture:
    figure, axes = figures.picture()
    draw(axes, *arguments, **options)
    return embed(figures.finish(figure))


def _pictures(record: Record, moments: Sequence[Moment], recommended: int | None) -> dict[str, Picture | None]:
    """Return the pictures of the course of a run; None for those without data. Empty if there are none."""
    bounded = [m for m in moments if m.width is not None]
    bounded = bounded if len(bounded) > 1 else []
    found: dict[str, Picture | None] = dict.fromkeys(
        ("trace", "recommended", "width", "noise_bounds", "noise_std", "norm_bound", "ridge", "anchors")
    )
    if not record.with_status("complete"):
        return {}
    found["trace"] = _drawn(figures.draw_values, record.trials, maximize=record.maximize, recommended=recommended)
    if bounded:
        found["recommended"] = _drawn(figures.draw_recommended, moments)
        found["width"] = _drawn(figures.draw_width, moments)
        for name in _changing(bounded):
            found[name] = _drawn(figures.draw_quantity, bounded, name)
    return found


def _changing(bounded: Sequence[Moment]) -> list[str]:
    """Return the quantities of the bounds to draw: those that changed, bounds of the noise and dictionaries always."""
    online = bounded[-1].noise_upper is not None
    candidates = ["noise_std"] * (not online) + ["norm_bound", "ridge"]
    found = ["noise_bounds"] * online + [name for name in candidates if _changes(bounded, name)]
    return found + ["anchors"] * (bounded[-1].anchors is not None)


def _changes(moments: Sequence[Moment], name: str) -> bool:
    values = {getattr(m, name) for m in moments} - {None}
    return len({value for value in values if math.isfinite(value)}) > 1


def _bands(optimizer: Optimizer) -> dict[str, Picture]:
    """Return the bounds along each of the first parameters."""
    names = list(optimizer.space.parameters)[:_MOST_PARAMETERS]
    return {name: _drawn(figures.draw_band, optimizer, name) for name in names}


def _reasons(record: Record) -> list[tuple[int, int, str]]:
    """Return how often trials failed for a reason, the last of them, and the reason, the most frequent ones first."""
    failed = record.with_status("failed")
    last = {_shortened(trial.failure): trial.number for trial in failed}
    times = Counter(_shortened(trial.failure) for trial in failed)
    return [(count, last[reason], reason) for reason, count in times.most_common()]


def _shortened(reason: str | None) -> str:
    reason = reason or ""
    return reason if len(reason) <= _LONGEST else f"{reason[:_LONGEST]}…"


def _tables(record: Record, recommended: int | None) -> dict[str, list[tuple]]:
    """Return rows of all trials by a caption, or of the best and of the last ones of a long run."""
    trials = record.trials
    if len(trials) <= 2 * _MOST_TRIALS:
        chosen = {"All trials in the order of their numbers.": trials}
    else:
        best = sorted(record.with_status("complete"), key=record.rank)[:_MOST_TRIALS]
        last = trials[-_MOST_TRIALS:]
        chosen = {f"The {len(best)} best observed values.": best, f"The last {len(last)} trials.": last}
    return {caption: [_row(record, trial, recommended) for trial in rows] for caption, rows in chosen.items()}


def _row(record: Record, trial: Trial, recommended: int | None) -> tuple:
    best = record.best()
    notes = ["pending"] * (trial.status == "pending") + ["recommended"] * (trial.number == recommended)
    notes += ["best observed"] * (best is not None and trial.number == best.number)
    notes += [f"failed: {_shortened(trial.failure)}"] * (trial.failure is not None)
    params = _named(trial.params)
    values = (params.get(name) for name in record.space.parameters)
    return (trial.number, trial.value, *values, trial.seconds, ", ".join(notes))
