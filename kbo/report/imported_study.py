"""Trials of a study of Optuna or of a client of Ax, for ``kbo.audit``."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbo._base import checks
from kbo._base.extras import require
from kbo._base.files import check_file, reading
from kbo._base.lazy import Lazy
from kbo.errors import InvalidInput
from kbo.optimize.run.table import format_params
from kbo.report.advice import listed
from kbo.report.record import ImportedTrials

if TYPE_CHECKING:
    import optuna
    from ax.api import client as clients

    from kbo.integrations.ax import report as ax_report
    from kbo.integrations.optuna import ranges, sampler
    from kbo.integrations.optuna import study as studies
    from kbo.integrations.optuna.space import SearchSpace
else:
    optuna = Lazy("optuna")
    clients = Lazy("ax.api.client")
    ax_report = Lazy("kbo.integrations.ax.report")
    ranges = Lazy("kbo.integrations.optuna.ranges")
    sampler = Lazy("kbo.integrations.optuna.sampler")
    studies = Lazy("kbo.integrations.optuna.study")


def _left_out(names: Sequence[Any], reason: str) -> str:
    """Return the number of trials that are left out, the reason, and the first names; empty if there are none."""
    if not names:
        return ""
    return f", {len(names)} left out ({reason}: {listed(names)})"


# Optuna

_STORAGE = "Give the SQLite file of an Optuna storage, or its URL, such as sqlite:///studies.db."


def trials_of_study(history: Any, name: str | None) -> ImportedTrials:
    """Return the ended trials of a study that have parameters.

    Args:
        history: The study, its storage, the URL of the storage, or the path of its SQLite file.
        name: The name of the study in a storage; None if the storage has only one.

    Raises:
        InvalidInput: The study cannot be read, or has no such trial.
        MissingExtra: Optuna is not installed.
    """
    require("an audit of Optuna", "optuna", "optuna")
    study = history
    if isinstance(history, str):
        study = _study_in(_url(history), name)
    elif isinstance(history, optuna.storages.BaseStorage):
        study = _study_in(history, name)
    study = checks.instance("history", study, optuna.Study)
    source = f"study {study.study_name!r}"
    was: dict[str, Any] = {}
    if isinstance(study.sampler, sampler.KBOSampler):
        was = study.sampler.was
    reader = sampler.KBOSampler(seed=0, was=was)
    space = reader.search_space(study)
    replay = reader.replayed(study)
    if space is None or replay is None:
        raise InvalidInput(f"{source}: no trial that ended has parameters.")
    numbers = [trial.key for trial in replay.trials]
    remark = _remark(study, space, numbers, was)
    return ImportedTrials(source, "Optuna", replay.optimizer, numbers, remark)


def _remark(
    study: optuna.Study, space: SearchSpace, used: Collection[int], was: Collection[str]
) -> str:
    """Return a text on trials and parameters of a study that are left out, and on values that are guessed.

    Args:
        study: The study.
        space: The search space of the model.
        used: The numbers of the trials in the model.
        was: The names of parameters whose values in trials without them are known.
    """
    lacking = []
    far = []
    for trial in study.get_trials(deepcopy=False):
        is_left_out = trial.state.is_finished() and trial.params and trial.number not in used
        if is_left_out and space.needed - trial.params.keys():
            lacking.append(trial.number)
        elif is_left_out:
            far.append(trial.number)
    remark = _left_out(far, "far outside the ranges of the others")
    remark += _left_out(lacking, f"without {', '.join(sorted(space.needed))}, added later")
    guesses = {name: space.defaults[name] for name in space.dropped if name not in was}
    if guesses:
        remark += f"; the latest trials count as {format_params(guesses)}, which they lack: a guess"
    for name, reason in ranges.ranges_of(studies.begun(study)).left_out.items():
        remark += f"; parameter {name!r} is left out: {reason.removesuffix('.')}"
    return remark


def _study_in(storage: Any, name: str | None) -> optuna.Study:
    """Return the study with a name in a storage of Optuna or at its URL; without a name the only study.

    Raises:
        InvalidInput: There is no such study, there are several and no name, or the storage cannot be read.
    """
    with reading(str(storage), "a storage of Optuna that can be opened", _STORAGE):
        names = optuna.get_all_study_names(storage)
        if name is None and len(names) != 1:
            raise InvalidInput(
                f"{storage} has the studies {', '.join(names) or 'none'}: name one (study=, --study)."
            )
        chosen = checks.one_of("study", name or names[0], names)
        study = optuna.load_study(study_name=chosen, storage=storage)
        study.get_trials(deepcopy=False)  # raises here if they are damaged
    return study


def _url(storage: str) -> str:
    """Return the URL of a storage, given its URL or the path of its SQLite file.

    Raises:
        InvalidInput: The file is no storage of Optuna.
    """
    file = storage.removeprefix("sqlite:///")
    if not file:
        raise InvalidInput(f"there is no file in {storage}. {_STORAGE}")
    if "://" in file:
        return storage
    _check_database(Path(file))
    return f"sqlite:///{file}"


def _check_database(path: Path) -> None:
    """Check that a file is a storage of Optuna: Optuna would add its tables to any other database.

    Raises:
        InvalidInput: The file is something else.
    """
    check_file(path, _STORAGE)
    address = f"{path.absolute().as_uri()}?mode=ro"
    with (
        reading(path, "a database of SQLite", _STORAGE),
        contextlib.closing(sqlite3.connect(address, uri=True)) as connection,
    ):
        query = "SELECT name FROM sqlite_master WHERE type = 'table'"
        tables = sorted(name for (name,) in connection.execute(query))
    if "experiment_v2" in tables:
        raise InvalidInput(
            f"{path} is a storage of Ax: load the client with Ax, and give that, "
            "kbo.audit(client), or its file by client.save_to_json_file(path)."
        )
    if "studies" not in tables:
        raise InvalidInput(
            f"{path} is no storage of Optuna: it has the tables {tables}. {_STORAGE}"
        )


# Ax

_FORMULAS = ("Objective", "Constraint", "Derived")
"""Parts of names of classes of Ax that contain formulas, or names that Ax puts into formulas."""

_CODE = re.compile(r"[\w)\]]\s*\(|\*\*|<<|!")
"""Signs that no linear formula has: calls, which could run any code, and operators that make very long numbers."""


def trials_of_client(history: Any) -> ImportedTrials:
    """Return the trials of a client, with any strategy, or of its JSON file.

    Raises:
        InvalidInput: The file is none of a client.
        MissingExtra: Ax is not installed.
    """
    require("an audit of Ax", "ax", "ax")
    replayed = (
        ax_report.replayed
    )  # the import registers the classes of kbo with Ax, which its files may name
    client = history
    source = "experiment of Ax"
    if isinstance(history, Path):
        source = history.name
        advice = "Save it by client.save_to_json_file(path), with the version of Ax that reads it."
        with reading(history, "a client of Ax in JSON", advice):
            _check_formulas(json.loads(history.read_text()), history)
            client = clients.Client.load_from_json_file(str(history))
    replay, lost = replayed(client)
    names = [trial.key[0] for trial in replay.trials]
    remark = _left_out(lost, "outside the search space")
    return ImportedTrials(source, "Ax", replay.optimizer, names, remark)


def _check_formulas(entry: Any, path: Path, is_formula: bool = False) -> None:
    """Check that all formulas in a file of Ax are linear, because Ax evaluates them as Python code.

    Args:
        entry: The contents of the file, or a value in it.
        path: The file.
        is_formula: Whether texts in the entry may become parts of formulas.

    Raises:
        InvalidInput: A formula may be no linear one.
    """
    if isinstance(entry, dict):
        kind = str(entry.get("__type"))
        is_formula = is_formula or any(part in kind for part in _FORMULAS)
        entry = [*entry.keys(), *entry.values()]
    if isinstance(entry, list):
        for value in entry:
            _check_formulas(value, path, is_formula)
    elif is_formula and isinstance(entry, str) and _CODE.search(entry):
        raise InvalidInput(
            f"{path} has the formula {checks.shown(entry)}, and Ax evaluates formulas as Python code: expected sums "
            "of outcomes or parameters, with numbers as factors. If you trust the file, load it with Ax, and give "
            "kbo.audit(client)."
        )
