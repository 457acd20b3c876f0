"""``kbo.audit``: what the trials of another tool, or of kbo, say of their objective."""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from kbo._base import checks
from kbo._base.extras import require
from kbo._base.files import check_file, reading
from kbo._base.surroundings import fixed
from kbo.errors import InvalidInput
from kbo.optimize import Optimizer, Result
from kbo.optimize.answers import Comparison
from kbo.optimize.constraint import SEM
from kbo.optimize.result import result_of
from kbo.optimize.table import COLUMNS, format_params
from kbo.space import Float, Int, Space
from kbo.space.table import columns_of, parameter_of

_TARGETS = "value", "objective", "target", "loss", "score"
"""Names of the column of values, if none is given."""

_PREFIXES = "params.", "params_"
"""Begins of the columns of parameters in tables of kbo and of Optuna; in others all columns are parameters."""

_ADVICE = "Give a storage of Optuna (.db), a client of Ax (.json), a table (.csv), or a journal of kbo (.jsonl)."
_STORAGE = "Give the SQLite file of an Optuna storage, or its URL, such as sqlite:///studies.db."

_STORAGES = ".db", ".sqlite", ".sqlite3"
_TABLES = ".csv", ".txt", ".tsv"
FOREIGN = (*_STORAGES, *_TABLES, ".json")
"""Ends of files that other tools make."""

_COMPLETE = "complete", "completed", "finished", "success", "succeeded"
"""States of rows with a value, in a column "status" or "state"."""

_COURSE = {*COLUMNS, "state", "datetime_start", "datetime_complete", "duration"}
"""Columns of tables of kbo and Optuna that are neither parameters nor measurements."""

_LONGEST_LINE = 1_000_000
"""Characters of the first line of a table, at most."""

_FEW = 5
"""Rows from which on a column that counts them is no parameter."""

_MOST_NAMED = 5
"""Trials that are left out which are named."""

_LOGARITHMIC, _SKEWED = 100.0, 0.2
"""A column of positive numbers is on a logarithmic scale if the largest is so many times the least, and half of them
are in this part of their range."""


class _History(NamedTuple):
    """Trials in an optimiser, with their names elsewhere, and what else is to be said of them."""

    source: str
    tool: str
    optimizer: Optimizer
    names: Sequence[Any]
    remark: str = ""
    inferred: bool = False


@dataclass(frozen=True)
class Audit:
    """What a history says of its objective; by the model of the practical setting, no guarantee.

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
        lost = "".join(
            f", {counts[status]} {status}"
            for status in ("failed", "pruned", "pending")
            if counts[status]
        )
        return f"{self.source}: {len(self.result.trials)} trials{lost}{self.remark}"

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
        (trial, value), params = self.reported, format_params(self.result.params or {})
        estimate = (
            ""
            if self.estimated is None
            else "; without noise {1:.4g}  [{0:.4g}, {2:.4g}]".format(*self.estimated)
        )
        sure = (
            ""
            if self.margin is None
            else f"; better than trial {trial} with {self.margin.probability:.0%}"
        )
        likely = (
            f"the same trial: {params}"
            if trial == self.likely
            else f"trial {self.likely}: {params}{sure}"
        )
        return {
            "reported best": f"{self.tool} has {value:.4g} as the best value, of trial {trial}{estimate}",
            "likely best": likely,
        }

    @fixed
    def write(self, page: str | os.PathLike[str]) -> Path:
        """Write an HTML page with pictures, and return its path.

        Raises:
            InvalidInput: The page cannot be written.
            MissingExtra: The extra "cli" is not installed.
        """
        from kbo.report import History, Record, write

        history = History(self.tool, self.names, self._answers(), self._summary())
        return write(replace(Record.of(self.result), history=history), page, title=self.source)

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
) -> _History:
    kind = type(history).__module__.partition(".")[0]
    if kind == "optuna":
        return _of_study(history)
    if kind == "ax":
        return _of_client(history, "experiment of Ax")
    if hasattr(history, "columns"):
        return _of_table(history, "table", target, maximize, bounds)
    if not isinstance(history, (str, os.PathLike)):
        raise InvalidInput(
            "history must be a study of Optuna, a client of Ax, a DataFrame, or the path or storage URL of one, got "
            f"{checks.shown(history)}."
        )
    path = checks.path("history", history)
    if "://" in str(history) or path.suffix in _STORAGES:
        return _of_study(_loaded(str(history), study))
    check_file(path, _ADVICE)
    if path.suffix == ".jsonl":
        return _of_journal(path)
    if path.suffix == ".json":
        return _of_client(_client(path), path.name)
    if path.suffix not in _TABLES:
        raise InvalidInput(
            f"{path} is no history: give .db (Optuna), .json (Ax), .csv, or .jsonl (kbo)."
        )
    require(f"the history {path}", "cli", "pandas")
    import pandas as pd

    advice = "Give a table with a column for each parameter and one of values."
    with reading(path, "a table (CSV), text in UTF-8", advice):
        table = pd.read_csv(path, sep=_separator(path), engine="python")
    return _of_table(table, path.name, target, maximize, bounds)


def _separator(path: Path) -> str:
    """Return the separator of the columns of a table: of some characters the most frequent one in its first line.

    pandas would guess it in a time that grows with the square of the length of that line.
    """
    with open(path, encoding="utf-8-sig") as file:
        first = file.readline(_LONGEST_LINE + 1)
    if len(first) > _LONGEST_LINE:
        raise ValueError(f"its first line has more than {_LONGEST_LINE} characters")
    counts = {separator: first.count(separator) for separator in ",;\t|"}
    separator = max(counts, key=counts.__getitem__)
    if counts[separator]:
        return separator
    return " " if " " in first.strip() else ","


def _client(path: Path) -> Any:
    """Return the client of Ax that a file of JSON holds."""
    require(f"the history {path}", "ax", "ax")
    from ax.api.client import Client

    import kbo.integrations.ax  # noqa: F401  # what Ax cannot read before: strategies and models of kbo

    advice = "Save it by client.save_to_json_file(path), with the version of Ax that reads it."
    with reading(path, "a client of Ax in JSON", advice):
        return Client.load_from_json_file(str(path))


def _check_storage(path: Path) -> None:
    """Check that a file is a storage of Optuna, which would make one of any other database.

    Raises:
        InvalidInput: It is something else.
    """
    check_file(path, _STORAGE)
    with contextlib.ExitStack() as stack:
        stack.enter_context(reading(path, "a database of SQLite", _STORAGE))
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        stack.enter_context(contextlib.closing(connection))
        rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    tables = {name for (name,) in rows}
    if "experiment_v2" in tables:
        raise InvalidInput(
            f"{path} is a storage of Ax: load the client with Ax, and give that, kbo.audit(client), or its file by "
            "client.save_to_json_file(path)."
        )
    if "studies" not in tables:
        raise InvalidInput(
            f"{path} is no storage of Optuna: it has the tables {sorted(tables)}. {_STORAGE}"
        )


def _loaded(storage: str, name: str | None) -> Any:
    """Return a study of a storage."""
    require(f"the history {storage}", "optuna", "optuna")
    import optuna

    file = storage.removeprefix("sqlite:///")
    if not file:
        raise InvalidInput(f"there is no file in {storage}. {_STORAGE}")
    if "://" not in file:
        _check_storage(Path(file))
    storage = f"sqlite:///{file}" if "://" not in file else storage
    with reading(storage, "a storage of Optuna that can be opened", _STORAGE):
        names = optuna.get_all_study_names(storage)
        if name is None and len(names) != 1:
            raise InvalidInput(
                f"{storage} has the studies {', '.join(names) or 'none'}: name one (study=, --study)."
            )
        found = optuna.load_study(
            study_name=checks.one_of("study", name or names[0], names), storage=storage
        )
        found.get_trials(deepcopy=False)  # which fails here if they are damaged
    return found


def _of_study(study: Any) -> _History:
    require("a study of Optuna", "optuna", "optuna")
    from kbo.integrations.optuna import KBOSampler
    from kbo.integrations.optuna.space import SearchSpace
    from kbo.integrations.replay import replay

    source = f"study {study.study_name!r}"
    found = KBOSampler(seed=0).replayed(study)
    if found is None:
        raise InvalidInput(f"{source}: no trial that ended has parameters.")
    space: SearchSpace = found.problem[0]
    encoded: list[Any] = [one.params for one in found.trials]
    trials = [
        one._replace(params=space.named(params))
        for one, params in zip(found.trials, encoded, strict=True)
    ]
    options = {"maximize": found.optimizer.maximize, "constraints": found.optimizer.constraints}
    known = replay(None, None, {"bounds": space.decoded(), **options}, trials)
    keys = [one.key for one in known.trials]
    return _History(
        source, "Optuna", known.optimizer, keys, _left_out_of_study(study, space.left_out, keys)
    )


def _left_out_of_study(study: Any, parameters: Mapping[str, str], keys: Sequence[int]) -> str:
    """Return a remark on finished trials of a study that are not used, and on parameters that no range contains."""
    lost = [
        trial.number
        for trial in study.get_trials(deepcopy=False)
        if trial.state.is_finished() and trial.params and trial.number not in keys
    ]
    remark = ""
    if lost:
        remark += f", {len(lost)} left out (far outside the ranges of the others: {_first(lost)})"
    for name, reason in parameters.items():
        remark += f"; parameter {name!r} is left out: {reason.removesuffix('.')}"
    return remark


def _first(numbers: Sequence[int]) -> str:
    """Return the first few of some numbers as text."""
    shown = ", ".join(map(str, numbers[:_MOST_NAMED]))
    return f"{shown}, ..." if len(numbers) > _MOST_NAMED else shown


def _of_client(client: Any, source: str) -> _History:
    require("an experiment of Ax", "ax", "ax")
    from kbo.integrations.ax.report import replayed, unused

    known = replayed(client)
    lost = unused(client, known)
    remark = f", {len(lost)} left out (outside the search space: {_first(lost)})" if lost else ""
    return _History(source, "Ax", known.optimizer, [one.key[0] for one in known.trials], remark)


def _of_journal(path: Path) -> _History:
    from kbo.report.record import Record

    optimizer = Record.of(path).reopened()
    return _History(path.name, "the journal", optimizer, range(len(optimizer.trials)))


def _of_table(table: Any, source: str, target: str | None, maximize: bool, bounds: Any) -> _History:
    """Return the rows of a DataFrame that have a value and all parameters."""
    table = table.rename(columns=str).reset_index(drop=True)
    names = list(table.columns)
    if len(set(names)) < len(names):
        raise InvalidInput(f"{source} has several columns of one name: {checks.shown(names)}.")
    if (
        target is None
        and (target := next((name for name in _TARGETS if name in names), None)) is None
    ):
        raise InvalidInput(
            f"{source} has the columns {', '.join(names)}: name that of the values (target=, --target)."
        )
    checks.one_of("target", target, names)
    own = {
        name: name.removeprefix(begin)
        for name in names
        for begin in _PREFIXES
        if name.startswith(begin)
    }
    parameters = () if bounds is None else Space(bounds).parameters
    bars = next(
        (n for n in ("measured.sem", "user_attrs_sem", SEM) if n in names and n not in parameters),
        None,
    )
    others = {
        name: name for name in names if name not in (target, bars, "number", "status", "state")
    }
    numbered = [
        name for name in others if bounds is None and not own and _counts(table[name].tolist())
    ]
    columns = own or {name: name for name in others if name not in numbered}
    if bounds is not None:
        columns = {column: name for column, name in columns.items() if name in parameters}
    rows = table[list(columns)].rename(columns=columns)
    left_out = _without(table, rows, target)
    rows = rows.drop(index=list(left_out))
    space = Space(_ranges(rows, source) if bounds is None else bounds)
    if missing := [name for name in space.parameters if name not in rows]:
        raise InvalidInput(f"{source} has no column {', '.join(missing)}.")
    optimizer, numbers = Optimizer(space, maximize=maximize), []
    for index, row in zip(rows.index, rows.to_dict("records"), strict=True):
        params = {name: row[name] for name in space.parameters}
        error_bar = math.nan if bars is None else table[bars][index]
        try:
            optimizer.add(
                params if space.named else list(params.values()),
                (table[target][index], {SEM: error_bar}),
            )
        except InvalidInput as error:
            left_out[index] = str(error)
            continue
        numbers.append(table["number"][index] if "number" in names else index)
    remark = ""
    if left_out:
        first = min(left_out)
        remark += f", {len(left_out)} rows left out (the first is row {first}: {left_out[first].removesuffix('.')})"
    constant = [name for name in rows if name not in space.parameters]
    unused = [
        name
        for name in others
        if name not in columns and name not in numbered and not _bookkeeping(name)
    ]
    columns_left_out = {
        "no parameter, since it counts the rows": numbered,
        "no parameter, since it has one value": constant,
        "left out, since they are no parameters": unused,
    }
    for reason, listed in columns_left_out.items():
        if listed:
            remark += f"; {reason}: {', '.join(listed)}"
    remark += "" if bars is None else f"; standard errors are in the column {bars}"
    if bounds is None:
        logarithmic = [name for name, p in space.parameters.items() if getattr(p, "log", False)]
        remark += "; ranges are those of the trials"
        if logarithmic:
            remark += f", logarithmic for {', '.join(logarithmic)}"
    return _History(source, "the table", optimizer, numbers, remark, inferred=bounds is None)


def _without(table: Any, parameters: Any, target: str) -> dict[int, str]:
    """Return the rows of a table that have no value or not all parameters, by their positions, each with the reason.

    Args:
        table: The table.
        parameters: Its columns of parameters.
        target: The name of its column of values.
    """
    found: dict[int, str] = {}
    for name in [name for name in ("status", "state") if name in table]:
        for index, state in table[name].items():
            if str(state).lower() not in _COMPLETE:
                found.setdefault(index, f"its {name} is {state}")
    for index in table.index[table[target].isna()]:
        found.setdefault(index, "it has no value")
    for name in parameters:
        for index in table.index[parameters[name].isna()]:
            found.setdefault(index, f"it has no {name}")
    return found


def _bookkeeping(column: str) -> bool:
    """Return whether a column of a table of kbo or Optuna describes the course of its trials."""
    return column in _COURSE or column.startswith("system_attrs_")


def _counts(values: Sequence[Any]) -> bool:
    """Return whether the values of a column count the rows of a table."""
    numbers = len(values) >= _FEW and all(type(value) is int for value in values)
    return numbers and list(values) == list(range(values[0], values[0] + len(values)))


def _ranges(rows: Any, source: str) -> Mapping[str, Any]:
    """Return the parameters of the columns of a table, constant ones left out."""
    if rows.empty:
        raise InvalidInput(f"{source}: no row has a value and all of {', '.join(rows.columns)}.")
    found = {}
    for name, values in columns_of(rows).items():
        if len(set(values)) < 2:
            continue
        parameter = parameter_of(name, values)
        if isinstance(parameter, (Float, Int)):
            low, middle, high = (float(x) for x in (min(values), median(values), max(values)))
            skewed = (
                low > 0 and high >= _LOGARITHMIC * low and middle - low < _SKEWED * (high - low)
            )
            parameter = type(parameter)(min(values), max(values), log=skewed)
        found[name] = parameter
    if not found:
        raise InvalidInput(f"{source}: no column has two values, so there are no parameters.")
    return found
