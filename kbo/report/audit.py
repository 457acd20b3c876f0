"""``kbo.audit``: estimates from the trials in a table of another tool, or in a journal of kbo."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbo._base import checks
from kbo._base.files import check_file
from kbo._base.lazy import Lazy
from kbo._base.surroundings import fixed
from kbo.errors import InvalidInput
from kbo.optimize import Optimizer, Result
from kbo.optimize.insight.answers import Comparison
from kbo.optimize.result import result_of
from kbo.report import summary
from kbo.report.record import History, Record

if TYPE_CHECKING:
    from kbo.report import page as pages
    from kbo.report import table
else:
    pages = Lazy("kbo.report.page")  # both need an extra
    table = Lazy("kbo.report.table")

TABLES = (".csv", ".txt", ".tsv")
"""File name suffixes of tables."""

_ADVICE = "Give a table (.csv) with a column for each parameter and one of values, or a journal of kbo (.jsonl)."
_OPTUNA = (
    "A study of Optuna becomes a table by study.trials_dataframe(): "
    "kbo.audit(study.trials_dataframe()), with maximize=True if larger values are better."
)
_AX = (
    "A client of Ax becomes a table by client.summarize(): "
    'kbo.audit(client.summarize()[["x", "y", "loss"]], target="loss") with the names of its parameters and metric.'
)


@dataclass(frozen=True)
class Audit:
    """Estimates from a history of trials, by the model of the practical setting, without guarantee.

    Attributes:
        source: The table or the file.
        tool: The origin of the trials: "the table" or "the journal".
        reported: The name of the trial with the best observed value, and this value.
        likely: The name of the trial that is likely to be the best.
        result: The outcome of the trials as a run of kbo: ``params``, ``value``, ``lower``, ``upper``, ``answers`` and
            ``predict`` among others.
        estimated: Lower bound, mean and upper bound at the trial with the best observed value; None without a bound.
        margin: By how much the likely best trial is better than that one; None without a model.
        names: The names of the trials, in the order of ``result.trials``.
        remark: The rows and columns that are not used.
        inferred: Whether the space is unknown, and its ranges are those of the trials.
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
        sentences = self._answers()
        hidden = {"recommended", "best observed", "details"}
        if self.result.answers is not None:
            hidden |= self.result.answers.entries().keys() - sentences.keys()
        lines = [("", self._source()), *self._best_trials().items()]
        for label, text in self.result.entries()[1:]:
            if label not in hidden:
                lines.append((label, text))
        return "\n".join(f"{label:14} {text}".lstrip() for label, text in lines)

    def __repr__(self) -> str:
        return str(self)

    def _source(self) -> str:
        return summary.audited(self.source, self.result.trials, self.remark)

    def _best_trials(self) -> dict[str, str]:
        """Return sentences on the best trials by label."""
        trial, value = self.reported
        params = self.result.params or {}
        return {
            "reported best": summary.reported_best(self.tool, trial, value, self.estimated),
            "likely best": summary.likely_best(self.likely, params, trial, self.margin),
        }

    def _answers(self) -> dict[str, str]:
        """Return all answers by label; ranges that are those of the trials have no edges."""
        sentences = self._best_trials()
        if self.result.answers is not None:
            sentences |= self.result.answers.entries()
        if self.inferred:
            sentences.pop("at an edge", None)
        return sentences

    @fixed
    def write(self, page: str | os.PathLike[str]) -> Path:
        """Write an HTML page with pictures, and return its path.

        Raises:
            InvalidInput: The page cannot be written.
            MissingExtra: The extra "cli" is not installed.
        """
        history = History(self.tool, self.names, self._answers(), self._source())
        record = replace(Record.of(self.result), history=history)
        return pages.write(record, page, title=self.source)


@fixed
def audit(
    history: Any, *, target: str | None = None, maximize: bool = False, bounds: Any = None
) -> Audit:
    """Say which trial of a history is likely the best, what more trials would bring, and which parameters matter.

    Args:
        history: A DataFrame or CSV file with a column for each parameter and one of values, such as
            ``study.trials_dataframe()`` of Optuna; or a journal of kbo (.jsonl). A column "sem" has standard errors
            of the values.
        target: The column of values of a table; by default "value", "objective", "target", "loss" or "score".
        maximize: Whether larger values of a table are better; a journal has its own direction.
        bounds: The search space of a table; see ``kbo.space.Space``. By default the ranges of the trials, on a
            logarithmic scale where positive numbers differ by a factor of a hundred and half of them are in the first
            fifth.

    Raises:
        InvalidInput: Neither of these, or none of its trials can be used.
        MissingExtra: pandas is not installed.

    Example:
        >>> print(kbo.audit(study.trials_dataframe()))
    """
    checks.flag("maximize", maximize)
    if hasattr(history, "columns"):
        trials = table.trials_of(history, "table", target, maximize, bounds)
        return _audited("table", "the table", trials.optimizer, trials.names, trials.remark, bounds)
    path = _file(history)
    if path.suffix in TABLES:
        rows = table.read(path)
        trials = table.trials_of(rows, path.name, target, maximize, bounds)
        return _audited(
            path.name, "the table", trials.optimizer, trials.names, trials.remark, bounds
        )
    optimizer = Record.of(path).reopened()
    names = range(len(optimizer.trials))
    return _audited(path.name, "the journal", optimizer, names, "", optimizer.space)


def _file(history: Any) -> Path:
    """Return the path of a table or a journal.

    Raises:
        InvalidInput: It is something else, or there is no such file.
    """
    library = type(history).__module__.partition(".")[0]
    if library == "optuna":
        raise InvalidInput(f"history must be a table, got {checks.shown(history)}. {_OPTUNA}")
    if library == "ax":
        raise InvalidInput(f"history must be a table, got {checks.shown(history)}. {_AX}")
    if not isinstance(history, (str, os.PathLike)):
        raise InvalidInput(f"history must be a table, got {checks.shown(history)}. {_ADVICE}")
    path = checks.path("history", history)
    if "://" in str(history) or path.suffix in (".db", ".sqlite", ".sqlite3"):
        raise InvalidInput(f"{history} is no table. {_OPTUNA}")
    if path.suffix == ".json":
        raise InvalidInput(f"{path} is no table. {_AX}")
    check_file(path, _ADVICE)
    if path.suffix not in (*TABLES, ".jsonl"):
        raise InvalidInput(f"{path} is no history. {_ADVICE}")
    return path


def _audited(
    source: str,
    tool: str,
    optimizer: Optimizer,
    names: Sequence[Any],
    remark: str,
    bounds: Any,
) -> Audit:
    """Return the audit of the trials of an optimiser; ``bounds`` are None if they are inferred from the trials."""
    complete = [trial for trial in optimizer.within_limits() if trial.value is not None]
    recommended = optimizer.recommended()
    if not complete or recommended is None:
        raise InvalidInput(
            f"{source}: no trial has a value, so there is nothing to say of it{remark}."
        )
    pick = min
    if optimizer.maximize:
        pick = max
    best = pick(complete, key=lambda trial: trial.value or 0.0)
    return Audit(
        source=source,
        tool=tool,
        reported=(names[best.number], best.value or 0.0),
        likely=names[recommended.number],
        result=result_of(optimizer, source, None),
        estimated=optimizer.interval(best.params),
        margin=optimizer.compare(best.params),
        names=names,
        remark=remark,
        inferred=bounds is None,
    )
