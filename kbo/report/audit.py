"""``kbo.audit``: what the trials of another tool, or of kbo, say of their objective."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbo._base import checks
from kbo._base.files import check_file
from kbo._base.lazy import Lazy
from kbo._base.surroundings import fixed
from kbo.errors import InvalidInput
from kbo.optimize import Result
from kbo.optimize.insight.comparison import Comparison
from kbo.optimize.result import result_of
from kbo.optimize.table import format_params
from kbo.report import histories
from kbo.report.record import History, Record

if TYPE_CHECKING:
    from kbo.report import writing
else:
    writing = Lazy("kbo.report.writing")  # which needs the extra for pages

_ADVICE = (
    "Give a storage of Optuna (.db), a client of Ax (.json), a table (.csv), or a journal of kbo "
    "(.jsonl)."
)

_STORAGES = (".db", ".sqlite", ".sqlite3")
_TABLES = (".csv", ".txt", ".tsv")
FOREIGN = (*_STORAGES, *_TABLES, ".json")
"""File name suffixes of other tools."""


@dataclass(frozen=True)
class Audit:
    """Estimates from a history of trials, by the model of the practical setting, without guarantee.

    Attributes:
        source: Where the trials are from.
        tool: What made them.
        reported: The name of the trial with the best observed value, and this value.
        likely: The name of the trial that is likely to be the best.
        result: The outcome of the trials as a run of kbo: ``params``, ``value``, ``lower``, ``upper``, ``answers`` and
            ``predict`` among others.
        estimated: Lower bound, mean and upper bound at the trial with the best observed value; None without a bound.
        margin: By how much the likely best trial is better than that one; None without a model.
        names: The names of the trials, in the order of ``result.trials``.
        remark: What else is to be said of the history, for example how many rows are left out.
        inferred: Whether the space is not known, but has the ranges of the trials.
    """

    source: str
    tool: str
    reported: tuple[Any, float]
    likely: Any
    result: Result
    estimated: tuple[float, float, float] | None
    margin: Comparison | None
    names: Sequence[Any]
    remark: str
    inferred: bool

    def __str__(self) -> str:
        answers = self._answers()
        printed = [("", self._summary()), *self._best().items()]
        known = {} if self.result.answers is None else self.result.answers.entries()
        left_out = {"recommended", "best observed", "details"} | (known.keys() - answers.keys())
        printed += [line for line in self.result.entries()[1:] if line[0] not in left_out]
        return "\n".join(f"{name:14} {text}".lstrip() for name, text in printed)

    def _summary(self) -> str:
        """Return the source, the number of trials and what was left out, in words."""
        counts = Counter(trial.status for trial in self.result.trials)
        text = f"{self.source}: {len(self.result.trials)} trials"
        for status in ("failed", "pruned", "pending"):
            if counts[status]:
                text += f", {counts[status]} {status}"
        return text + self.remark

    def _answers(self) -> dict[str, str]:
        """Return all answers by label; ranges of trials have no edges."""
        if self.result.answers is None:
            return self._best()
        answers = self._best() | self.result.answers.entries()
        if self.inferred:
            answers.pop("at an edge", None)
        return answers

    def _best(self) -> dict[str, str]:
        """Return sentences on the best trials by label."""
        trial, value = self.reported
        reported = f"{self.tool} has {value:.4g} as the best value, of trial {trial}"
        if self.estimated is not None:
            lower, mean, upper = self.estimated
            reported += f"; without noise {mean:.4g}  [{lower:.4g}, {upper:.4g}]"
        params = format_params(self.result.params or {})
        if trial == self.likely:
            likely = f"the same trial: {params}"
        else:
            likely = f"trial {self.likely}: {params}"
            if self.margin is not None:
                likely += f"; better than trial {trial} with {self.margin.probability:.0%}"
        return {"reported best": reported, "likely best": likely}

    @fixed
    def write(self, page: str | os.PathLike[str]) -> Path:
        """Write an HTML page with pictures, and return its path.

        Raises:
            InvalidInput: The page cannot be written.
            MissingExtra: The extra "cli" is not installed.
        """
        history = History(self.tool, self.names, self._answers(), self._summary())
        record = replace(Record.of(self.result), history=history)
        return writing.write(record, page, title=self.source)

    def __repr__(self) -> str:
        return str(self)


@fixed
def audit(
    history: Any,
    *,
    study: str | None = None,
    target: str | None = None,
    maximize: bool = False,
    bounds: Any = None,
) -> Audit:
    """Say which trial of a history is likely the best, what more trials would bring, and which parameters matter.

    Args:
        history: A study of Optuna, or the URL or the SQLite file of its storage; a client of Ax, or the JSON file that
            it was saved to; a DataFrame or CSV file with a column for each parameter and one of values; a journal of
            kbo (.jsonl). A column "sem" of a table, or user attribute of a trial, has standard errors of the values.
        study: The name of the study in a storage; needed if there are several.
        target: The column of values of a table; by default "value", "objective", "target", "loss" or "score".
        maximize: Whether larger values of a table are better; the others know it.
        bounds: The search space of a table; see ``kbo.space.Space``. By default the ranges of the trials, on a
            logarithmic scale where positive numbers differ by a factor of a hundred and half of them are in the first
            fifth.

    Raises:
        InvalidInput: None of these, or none of its trials can be used.
        MissingExtra: The library that made it is not installed.

    Example:
        >>> print(kbo.audit("sqlite:///studies.db", study="resnet"))
    """
    known = _history(history, study, target, checks.flag("maximize", maximize), bounds)
    optimizer, pick = known.optimizer, max if known.optimizer.maximize else min
    complete = [trial for trial in optimizer.within_limits() if trial.value is not None]
    best = optimizer.recommended()
    if not complete or best is None:
        raise InvalidInput(
            f"{known.source}: no trial has a value, so there is nothing to say of it{known.remark}."
        )
    reported = pick(complete, key=lambda trial: trial.value or 0.0)
    result = result_of(optimizer, known.source, None)
    assert reported.value is not None
    named = known.names[reported.number], reported.value
    estimated = optimizer.interval(reported.params)
    return Audit(
        source=known.source,
        tool=known.tool,
        reported=named,
        likely=known.names[best.number],
        result=result,
        estimated=estimated,
        margin=optimizer.compare(reported.params),
        names=known.names,
        remark=known.remark,
        inferred=known.inferred,
    )


def _history(
    history: Any, study: str | None, target: str | None, maximize: bool, bounds: Any
) -> histories.History:
    """Return the trials of a history; arguments as for ``audit``."""
    library = type(history).__module__.partition(".")[0]
    if library == "optuna":
        return histories.of_study(history)
    if library == "ax":
        return histories.of_client(history)
    if hasattr(history, "columns"):
        return histories.of_table(history, "table", target, maximize, bounds)
    if not isinstance(history, (str, os.PathLike)):
        raise InvalidInput(
            "history must be a study of Optuna, a client of Ax, a DataFrame, or the path or storage "
            f"URL of one, got {checks.shown(history)}."
        )
    path = checks.path("history", history)
    if "://" in str(history) or path.suffix in _STORAGES:
        return histories.of_storage(str(history), study)
    check_file(path, _ADVICE)
    if path.suffix == ".jsonl":
        return _of_journal(path)
    if path.suffix == ".json":
        return histories.of_client_file(path)
    if path.suffix in _TABLES:
        return histories.of_table_file(path, target, maximize, bounds)
    raise InvalidInput(
        f"{path} is no history: give .db (Optuna), .json (Ax), .csv, or .jsonl (kbo)."
    )


def _of_journal(path: Path) -> histories.History:
    """Return the trials of a journal of kbo."""
    optimizer = Record.of(path).reopened()
    numbers = range(len(optimizer.trials))
    return histories.History(path.name, "the journal", optimizer, numbers)
