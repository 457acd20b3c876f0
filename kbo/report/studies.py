"""Trials of a study of Optuna, for ``kbo.audit``."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Collection
from pathlib import Path
from typing import Any

from kbo._base import checks
from kbo._base.extras import require
from kbo._base.files import check_file, reading
from kbo.errors import InvalidInput
from kbo.report import captions
from kbo.report.record import ImportedTrials

require("an audit of Optuna", "optuna", "optuna")

import optuna
from optuna.storages import BaseStorage

from kbo.integrations.optuna import KBOSampler
from kbo.integrations.optuna.ranges import ranges_of
from kbo.integrations.optuna.space import SearchSpace
from kbo.integrations.optuna.study import begun

_ADVICE = "Give the SQLite file of an Optuna storage, or its URL, such as sqlite:///studies.db."


def trials_of_study(history: Any, name: str | None) -> ImportedTrials:
    """Return the ended trials of a study that have parameters.

    Args:
        history: The study, its storage, the URL of the storage, or the path of its SQLite file.
        name: The name of the study in a storage; None if the storage has only one.

    Raises:
        InvalidInput: The study cannot be read, or has no such trial.
    """
    study = history
    if isinstance(history, str):
        study = _study_in(_url(history), name)
    elif isinstance(history, BaseStorage):
        study = _study_in(history, name)
    study = checks.instance("history", study, optuna.Study)
    source = f"study {study.study_name!r}"
    was: dict[str, Any] = {}
    if isinstance(study.sampler, KBOSampler):
        was = study.sampler.was
    sampler = KBOSampler(seed=0, was=was)
    space = sampler.search_space(study)
    replay = sampler.replayed(study)
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
    added = ", ".join(sorted(space.needed))
    guesses = {name: space.defaults[name] for name in space.dropped if name not in was}
    remark = captions.trials_left_out(far, "far outside the ranges of the others")
    remark += captions.trials_left_out(lacking, f"without {added}, added later")
    remark += captions.values_guessed(guesses)
    remark += captions.parameters_left_out(ranges_of(begun(study)).left_out)
    return remark


def _study_in(storage: str | BaseStorage, name: str | None) -> optuna.Study:
    """Return the study with a name in a storage; without a name the only study.

    Raises:
        InvalidInput: There is no such study, there are several and no name, or the storage cannot be read.
    """
    with reading(str(storage), "a storage of Optuna that can be opened", _ADVICE):
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
        raise InvalidInput(f"there is no file in {storage}. {_ADVICE}")
    if "://" in file:
        return storage
    _check_database(Path(file))
    return f"sqlite:///{file}"


def _check_database(path: Path) -> None:
    """Check that a file is a storage of Optuna: Optuna would add its tables to any other database.

    Raises:
        InvalidInput: The file is something else.
    """
    check_file(path, _ADVICE)
    address = f"{path.absolute().as_uri()}?mode=ro"
    with (
        reading(path, "a database of SQLite", _ADVICE),
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
        raise InvalidInput(f"{path} is no storage of Optuna: it has the tables {tables}. {_ADVICE}")
