"""The HTML page of a tuning run, by a template. Its sentences are in ``summary`` and ``captions``."""

from __future__ import annotations

import base64
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpytorch.kernels import Kernel

from kbo._base import checks
from kbo._base.files import replacing
from kbo._base.isolation import isolated
from kbo.errors import InvalidInput
from kbo.optimize import Constraint, Hypothesis, Result, Trial
from kbo.optimize.insight.importance import LEVEL
from kbo.optimize.objectives.objective import main_of
from kbo.optimize.result import PROOF
from kbo.optimize.run.table import by_name, format_params, heading, text
from kbo.optimize.run.trials import repetitions
from kbo.optimize.strategies.explanation import explanation_of
from kbo.regression.posterior import Posterior
from kbo.report import captions, summary
from kbo.report.figures.axes import finish, picture
from kbo.report.plots import GROUPS, Group, Plots
from kbo.report.record import Record, Run
from kbo.report.rendering import Hint, Picture, embed, render
from kbo.space import Space

_MOST_TRIALS = 50  # number of rows of the tables of the best and of the last trials

_IN_CARDS = (
    "Limits",
    "Trials",
    "Best",
    "Value",
    "More?",
    "Matters",
    "Details",
)
"""Labels of lines of the summary that have their own place on the page."""

_SURER = (
    "`kbo confirm SCRIPT`, in Python result.confirm(objective, 60), or by hand `kbo tell ... --again` repeats the best "
    "ones"
)
"""Advice on the repetition of the best trials: by command, call and hand."""

_ASSUMPTIONS = {
    "noise_std": "noise level (units of the objective)",
    "norm_bound": "norm bound (units of the objective)",
    "delta": "probability that bounds may fail",
    "from": "where they come from",
}
"""Labels of the numbers in ``Result.assumptions``; the others have their names."""

_VOCABULARY = {
    "format_params": format_params,
    "level": LEVEL,
    "captions": captions,
    "summary": summary,
    "to_json": json.dumps,
}
"""Functions and constants that the template uses, the same for every run."""


@isolated
def write(
    run: Run,
    page: str | os.PathLike[str] | None = None,
    *,
    kernel: Kernel | Sequence[Hypothesis] | None = None,
    constraints: Sequence[Constraint] = (),
    title: str | None = None,
) -> Path:
    """Write the results of a run, and the assumptions of its bounds, as one HTML page that needs no other file.

    Args:
        run: A result, an optimiser, or the path of a journal (.jsonl).
        page: The path of the page, a .html file; by default beside the journal.
        kernel: The kernel or the hypotheses of a journal in the certified setting, since the journal has only their
            fingerprints. Without them the page has no bounds, and says so.
        constraints: For such a journal, the limits that have their own kernels, with these kernels.
        title: The title of the page; by default from the name of the file.

    Returns:
        The path of the page.

    Raises:
        InvalidInput: There is no such run, or the page cannot be written.
        JournalError: The journal cannot be read, is damaged, or was made with another kernel.

    Example:
        >>> result = kbo.minimize(objective, {"x": (0.0, 1.0)}, 20)
        >>> kbo.report.write(result, "run.html")
    """
    record = Record.of(run, kernel, constraints)
    target = page
    if target is None:
        if record.path is None:
            raise InvalidInput(
                "a run without a journal has no file beside which the page could go: pass its path, "
                "write(run, 'run.html')."
            )
        target = record.path.with_suffix(".html")
    if title is None:
        title = "A run of kbo"
        if record.path is not None:
            title = record.path.stem.removeprefix("tune-")
    return save(content_of(record, title), target)


def save(content: str, page: str | os.PathLike[str]) -> Path:
    """Write a page, and return its path.

    Raises:
        InvalidInput: The path is none of an .html file, or the page cannot be written.
    """
    target = checks.path("page", page)
    if target.suffix not in (".html", ".htm"):
        raise InvalidInput(f"page must be a .html file, got {target}.")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as file:
            file.write(content.encode())
    except OSError as error:
        raise InvalidInput(
            f"cannot write the page {target}: {error.strerror}. Choose another place (--to)."
        ) from error
    return target


def content_of(
    record: Record,
    title: str,
    *,
    live: str | None = None,
    with_model: bool = True,
    sentences: Mapping[str, str] | None = None,
) -> str:
    """Return the page of a run, as HTML.

    Args:
        record: The run.
        title: The title of the page.
        live: For a page of a running optimisation, its state as text; such a page has no proved gap and no bounds of
            earlier times.
        with_model: Whether the page has answers of the model and pictures. A page without them is made at once.
        sentences: The sentences of the summary by label; None for those of the result.
    """
    if with_model:
        n_proof = PROOF
        if live is not None:
            n_proof = 0
        record = record.with_result(n_proof)
    else:
        record = replace(record, optimizer=None, obstacle="They follow in a moment.")
    recommended = None
    trial = record.recommended()
    if record.result is not None and trial is not None:
        recommended = record.name(trial)
    plots = Plots(record, replay=live is None)
    return render(
        "tuning.html",
        **_VOCABULARY,
        title=title,
        live=live,
        record=record,
        result=record.result,
        recommended=recommended,
        **_text_values(record, sentences),
        **_trial_values(record, recommended),
        **_picture_values(record, plots, with_model),
    )


# Values for the template


def _text_values(record: Record, sentences: Mapping[str, str] | None) -> dict[str, Any]:
    """Return sentences and numbers about the result, by name in the template; ``sentences`` as for ``content_of``."""
    result = record.result
    headlines = {}
    details = {}
    if result is not None:
        names = [record.name(trial) for trial in record.trials]
        details = dict(summary.details(result, names))
        chooser = summary.CHOOSER
        if record.path is not None:
            chooser = summary.chooser_of(record.path)
        sentences = sentences or dict(summary.lines(result, _SURER, chooser=chooser))
        if result.value is not None:
            headlines = summary.headlines(result)
    sentences = sentences or {}
    return {
        "sentences": sentences,
        "below": _below(sentences),
        "headlines": headlines,
        "details": details,
        "numbers": _numbers(result),
    }


def _trial_values(record: Record, recommended: Any) -> dict[str, Any]:
    """Return the tables of trials, by name in the template.

    Args:
        record: The run.
        recommended: The name of the recommended trial; None if there is none.
    """
    main = main_of(record.objectives)
    value = heading(main)
    measured = dict.fromkeys(name for trial in record.trials for name in trial.measured)
    if record.objectives:
        measured.pop(value, None)  # failed trials have it
    first = repetitions(record.trials)
    tables = {}
    for caption, trials in _selections(record).items():
        rows = []
        for trial in trials:
            remarks = captions.notes(record, trial, recommended, first)
            rows.append(_row(record, trial, measured, remarks))
        tables[caption] = rows
    parameters = record.space.parameters
    return {
        "columns": ["trial", value, *measured, *parameters, "seconds", "chosen by", "note"],
        "tables": tables,
        "csv": base64.b64encode(text(record.trials, main).encode()).decode(),
        "reasons": _reasons(record),
    }


def _picture_values(record: Record, plots: Plots, is_drawn: bool) -> dict[str, Any]:
    """Return the pictures and what they rest on, by their names in the template; none unless ``is_drawn``."""
    pictures: dict[str, dict[str, Picture]] = {name: {} for name in GROUPS if name != "overview"}
    if is_drawn:
        pictures = {name: _pictures(plots.group(name)) for name in pictures}
    return {
        "pictures": pictures,
        "undrawn": captions.not_drawn(record, pictures["slices"]),
        "effects": plots.effects,
        "moments": plots.moments,
    }


def _below(sentences: Mapping[str, str]) -> dict[str, str]:
    """Return the sentences that are shown below the cards; with a front there are no cards."""
    above = _IN_CARDS
    if "Front" in sentences:
        above = ("Trials", "Details")
    return {label: sentence for label, sentence in sentences.items() if label not in above}


def _numbers(result: Result | None) -> dict[str, Any]:
    """Return the numbers behind the bounds, by label; empty without bounds, or with several objectives."""
    if result is None or not result.assumptions or result.front is not None:
        return {}
    numbers = {}
    for name, value in result.assumptions.items():
        numbers[_ASSUMPTIONS.get(name, name)] = value
    surrogate = result.settled.insight.report_surrogate()
    if surrogate is None:
        return numbers
    return numbers | _lengthscales(surrogate.posterior, result.settled.space)


def _lengthscales(posterior: Posterior, space: Space) -> dict[str, float]:
    """Return the lengthscales by label; empty unless the kernel has one for each feature column."""
    kernel = getattr(posterior, "kernel", None)  # not every posterior has one kernel
    lengthscales = getattr(kernel, "lengthscale", None)
    if lengthscales is None or lengthscales.numel() != space.columns:
        return {}
    labels = [f"lengthscale of {label}" for label in space.labels]
    return dict(zip(labels, lengthscales.flatten().tolist(), strict=True))


def _pictures(group: Group) -> dict[str, Picture]:
    """Return the figures of a group as pictures, by name."""
    pictures = {}
    for name, drawing in group.items():
        figure, axes = picture(height=drawing.height)
        drawing.draw(axes)
        pictures[name] = embed(finish(figure))
    return pictures


def _reasons(record: Record) -> list[tuple[int, int, str]]:
    """Return for each reason of failures, most frequent first: number of trials, last such trial, and the reason."""
    failed = record.with_status("failed")
    last_trial = {captions.reason(trial): trial.number for trial in failed}
    counts = Counter(captions.reason(trial) for trial in failed)
    return [(count, last_trial[reason], reason) for reason, count in counts.most_common()]


def _selections(record: Record) -> dict[str, Sequence[Trial]]:
    """Return the trials of each table, by its caption: all trials, or in a long run the best and the last ones.

    With several objectives no trial is the best, so there is no table of the best.
    """
    trials = record.trials
    if len(trials) <= 2 * _MOST_TRIALS:
        return {"All trials in the order of their numbers.": trials}
    selections = {}
    if not record.objectives:
        best = sorted(record.with_status("complete"), key=record.rank)[:_MOST_TRIALS]
        selections[f"The {len(best)} best observed values."] = best
    selections[f"The last {_MOST_TRIALS} trials."] = trials[-_MOST_TRIALS:]
    return selections


def _row(record: Record, trial: Trial, measured: Iterable[str], remarks: str) -> list[Any]:
    """Return the cells of a trial in a table, in the order of the columns of ``_trial_values``."""
    params = by_name(trial.params)
    return [
        record.name(trial),
        trial.value,
        *(trial.measured.get(name) for name in measured),
        *(params.get(name) for name in record.space.parameters),
        trial.seconds,
        _strategy(trial),
        remarks,
    ]


def _strategy(trial: Trial) -> Hint | str:
    """Return the strategy that chose a trial, with the numbers that it compared; empty if none is recorded."""
    explanation = explanation_of(trial.proposal)
    if explanation is None:
        return ""
    name = explanation.strategy
    if explanation.replaced:
        name = f"random, in place of: {name}"
    return Hint(name, str(explanation))
