"""``kbo.audit``: estimates from the trials of another tool or of a journal."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbo._base import checks
from kbo._base.files import check_file
from kbo._base.isolation import isolated
from kbo._base.lazy import Lazy
from kbo._base.terminal import bounded, percent
from kbo.errors import InvalidInput
from kbo.optimize import Result, Trial
from kbo.optimize.insight.comparison import Comparison
from kbo.optimize.objectives.hypervolume import non_dominated
from kbo.optimize.objectives.objective import targets_of
from kbo.optimize.result import result_of
from kbo.optimize.run.table import format_params
from kbo.report import imported_table, summary
from kbo.report.advice import listed
from kbo.report.record import ImportedTrials, Record
from kbo.space.table import Frame

if TYPE_CHECKING:
    from kbo.report import imported_study
    from kbo.report import page as pages
else:
    imported_study = Lazy("kbo.report.imported_study")
    pages = Lazy("kbo.report.page")  # needs an extra

_STORAGES = (".db", ".sqlite", ".sqlite3")
_TABLES = (".csv", ".txt", ".tsv")
FOREIGN = (*_STORAGES, *_TABLES, ".json")
"""Suffixes of files of other tools."""

_ADVICE = "Give a storage of Optuna (.db), a client of Ax (.json), a table (.csv), or a journal of kbo (.jsonl)."


@dataclass(frozen=True)
class Audit:
    """Estimates from a history of trials, by the model of the practical setting, without a guarantee.

    Attributes:
        history: The trials: their ``source``, the ``tool`` that made them, their ``names`` in the order of
            ``result.trials``, and a ``remark`` about what is not used.
        reported: The name and the value of the trial with the best observed value (of the first objective).
        likely: The name of the trial that is likely the best; with several objectives, of the balanced trial.
        result: The trials as a result of kbo, with ``params``, ``value``, ``lower``, ``upper``, ``answers`` and
            ``predict`` among others.
        estimated: Lower bound, mean and upper bound at the reported trial; None without a bound.
        margin: The difference between the likely best trial and the reported one; None without a model, or with
            several objectives.
        observed: With several objectives, the names of the trials that no other dominates in observed values.
        lucky: The names in ``observed`` of trials that others dominate in estimated true values.
    """

    history: ImportedTrials
    reported: tuple[Any, float]
    likely: Any
    result: Result
    estimated: tuple[float, float, float] | None
    margin: Comparison | None
    observed: Sequence[Any] = ()
    lucky: Sequence[Any] = ()

    def __str__(self) -> str:
        return summary.text(self.lines())

    def __repr__(self) -> str:
        return str(self)

    def lines(self) -> summary.Lines:
        """Return the lines of the audit, at most eight: labels and sentences."""
        history = self.history
        space = self.result.optimizer.space
        counts = summary.trial_counts(self.result.trials, space)
        trials = f"{history.source}: {counts}{history.remark}"
        trials += summary.questioned(self.result, history.names)
        lines = [("Trials", trials)]
        if self.observed:
            lines.append(("Reported", self._reported_front()))
        else:
            lines += [("Reported", self._reported_best()), ("Best", self._likely_best())]
        surer = "kbo.confirm repeats the best ones"
        chooser = f"kbo.audit(...).{summary.CHOOSER}"
        if history.journal:
            surer = (
                f"`kbo confirm SCRIPT --journal {history.journal}`, or by hand `kbo tell {history.journal} TRIAL VALUE "
                "--again` repeats the best ones"
            )
            chooser = summary.chooser_of(history.journal)
        answers = summary.lines(self.result, surer, not history.inferred, history.names, chooser)
        return lines + [line for line in answers if line[0] not in ("Trials", "Best", "Details")]

    def _reported_best(self) -> str:
        """Return a sentence on the trial with the best observed value, and the interval there."""
        trial, value = self.reported
        place = ""
        if self.result.optimizer.space.changed:
            place = " inside the present search space"
        sentence = f"{self.history.tool} has {value:.4g} as the best value{place}, of trial {trial}"
        if self.estimated is None:
            return sentence
        return f"{sentence}; without noise {bounded(*self.estimated)}"

    def _likely_best(self) -> str:
        """Return a sentence on the likely best trial, and the probability that it is better than the reported one."""
        trial, _ = self.reported
        params = format_params(self.result.params or {})
        if self.likely == trial:
            return f"trial {trial}, which also has the best observed value: {params}"
        sentence = f"trial {self.likely}: {params}"
        if self.margin is None:
            return sentence
        return f"{sentence}; better than trial {trial} with {percent(self.margin.probability)}"

    def _reported_front(self) -> str:
        """Return a sentence on the observed front, and on its trials that others dominate in estimated true values."""
        observed = listed(self.observed)
        lucky = listed(self.lucky)
        sentence = f"{self.history.tool} has {len(self.observed)} trials that no other dominates: {observed}"
        if not self.lucky:
            return sentence
        return f"{sentence}; by estimates without noise others dominate {len(self.lucky)} of them: {lucky}"

    @isolated
    def write(self, page: str | os.PathLike[str]) -> Path:
        """Write an HTML page with pictures, and return its path.

        Raises:
            InvalidInput: The page cannot be written.
            MissingExtra: The extra "cli" is not installed.
        """
        record = replace(Record.of(self.result), imported=self.history)
        content = pages.content_of(record, self.history.source, sentences=dict(self.lines()))
        return pages.save(content, page)


@isolated
def audit(
    history: Any,
    *,
    study: str | None = None,
    target: str | None = None,
    maximize: bool = False,
    bounds: Any = None,
) -> Audit:
    """Estimate which trial of a history is likely the best, what more trials would gain, and which parameters matter.

    Args:
        history: The trials, as one of these: a study of Optuna or its storage, the URL or the SQLite file of the
            storage; a client of Ax or the JSON file of a client; a DataFrame or CSV file with a column for each
            parameter and one of values; a journal of kbo (.jsonl). Standard errors of the values are read from the
            column "sem" of a table or the user attribute "sem" of a trial.
        study: The name of the study in a storage; needed if there are several.
        target: The column of values of a table; by default "value", "objective", "target", "loss" or "score".
        maximize: Whether larger values of a table are better; other histories have their own direction.
        bounds: The search space of a table; see ``kbo.space.Space``. By default the ranges of the trials. A range is
            then logarithmic if its numbers are positive, differ by a factor of a hundred, and half of them are in its
            first fifth.

    Raises:
        InvalidInput: The history is none of these, or none of its trials can be used.
        MissingExtra: The library of the other tool is not installed.

    Example:
        >>> print(kbo.audit("sqlite:///studies.db", study="resnet"))
    """
    maximize = checks.flag("maximize", maximize)
    trials = _trials_of(history, study, target, maximize, bounds)
    optimizer = trials.optimizer
    complete = [trial for trial in optimizer.insight.within_limits() if trial.value is not None]
    if not complete:
        raise InvalidInput(_no_best_trial(trials))
    pick = max if optimizer.maximize else min
    best = pick(complete, key=lambda trial: trial.value or 0.0)
    result = result_of(optimizer, trials.source, None)
    recommended = result.settled.recommended()
    assert recommended is not None
    observed: list[Trial] = []
    lucky: list[Trial] = []
    margin = None
    if optimizer.objectives:
        observed, lucky = _observed_front(result, complete)
    else:
        margin = result.compare(best.params)
    return Audit(
        history=trials,
        reported=(trials.names[best.number], best.value or 0.0),
        likely=trials.names[recommended.number],
        result=result,
        estimated=result.interval(best.params),
        margin=margin,
        observed=[trials.names[trial.number] for trial in observed],
        lucky=[trials.names[trial.number] for trial in lucky],
    )


def _no_best_trial(trials: ImportedTrials) -> str:
    """Return the reason why there is no best trial: none has a value in the space, or none keeps all limits."""
    optimizer = trials.optimizer
    inside = optimizer.insight.quantities.allowed(optimizer.run.trials.complete)
    if not inside:
        return (
            f"{trials.source}: no trial inside the search space has a value, so there is nothing to say of it"
            f"{trials.remark}."
        )
    limits = ", ".join(str(constraint) for constraint in optimizer.constraints)
    nearest = optimizer.recommended() or inside[0]
    return (
        f"{trials.source}: none of the {len(inside)} trials with a value in the search space keeps all limits "
        f"({limits}), so there is no best one{trials.remark}. Trial {trials.names[nearest.number]} comes closest."
    )


def _observed_front(result: Result, complete: Sequence[Trial]) -> tuple[list[Trial], list[Trial]]:
    """Return the trials on the observed front, and those among them that others dominate in estimated true values.

    Args:
        result: The result.
        complete: The completed trials within the limits.
    """
    on_front = non_dominated(targets_of(complete, result.optimizer.objectives)).tolist()
    observed = [trial for trial, is_on in zip(complete, on_front, strict=True) if is_on]
    if result.front is None:
        return observed, []
    estimated = [point.trial.params for point in result.front.points]
    return observed, [trial for trial in observed if trial.params not in estimated]


def _trials_of(
    history: Any, study: str | None, target: str | None, maximize: bool, bounds: Any
) -> ImportedTrials:
    """Return the trials of a history in an optimiser; arguments and errors as for ``audit``."""
    library = type(history).__module__.partition(".")[0]
    if library == "optuna":
        return imported_study.trials_of_study(history, study)
    if library == "ax":
        return imported_study.trials_of_client(history)
    if isinstance(history, Frame):
        return imported_table.trials_of_table(history, target, maximize, bounds)
    if not isinstance(history, (str, os.PathLike)):
        raise InvalidInput(
            "history must be a study of Optuna, a client of Ax, a DataFrame, or the path or storage URL of one, "
            f"got {checks.shown(history)}."
        )
    path = checks.path("history", history)
    if "://" in str(history) or path.suffix in _STORAGES:
        return imported_study.trials_of_study(str(history), study)
    check_file(path, _ADVICE)
    if path.suffix == ".json":
        return imported_study.trials_of_client(path)
    if path.suffix in _TABLES:
        return imported_table.trials_of_table(path, target, maximize, bounds)
    if path.suffix == ".jsonl":
        optimizer = Record.of(path).reopened()
        names = range(len(optimizer.trials))
        return ImportedTrials(path.name, "the journal", optimizer, names, journal=str(path))
    raise InvalidInput(f"{path} is no history. {_ADVICE}")
