"""Studies of Optuna, and their storages."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kbo._base import checks
from kbo._base.extras import require
from kbo._base.files import check_file, reading
from kbo.errors import InvalidInput
from kbo.report.histories.history import History, listed

require("a history of Optuna", "optuna", "optuna")

import optuna

from kbo.integrations.optuna import KBOSampler
from kbo.integrations.optuna.space import SearchSpace
from kbo.integrations.replay import replay

_ADVICE = "Give the SQLite file of an Optuna storage, or its URL, such as sqlite:///studies.db."


def of_storage(storage: str, name: str | None) -> History:
    """Return the trials of a study in a storage.

    Args:
        storage: The URL of the storage, or the path of its SQLite file.
        name: The name of the study; None if there is one.
    """
    file = storage.removeprefix("sqlite:///")
    if not file:
        raise InvalidInput(f"there is no file in {storage}. {_ADVICE}")
    url = storage
    if "://" not in file:
        _check_file(Path(file))
        url = f"sqlite:///{file}"
    with reading(url, "a storage of Optuna that can be opened", _ADVICE):
        names = optuna.get_all_study_names(url)
        if name is None and len(names) != 1:
            raise InvalidInput(
                f"{url} has the studies {', '.join(names) or 'none'}: name one (study=, --study)."
            )
        chosen = checks.one_of("study", name or names[0], names)
        study = optuna.load_study(study_name=chosen, storage=url)
        study.get_trials(deepcopy=False)  # which fails here if they are damaged
    return of_study(study)


def _check_file(path: Path) -> None:
    """Check that a file is a storage of Optuna, which would make one of any other database.

    Raises:
        InvalidInput: It is something else.
    """
    check_file(path, _ADVICE)
    with contextlib.ExitStack() as stack:
        stack.enter_context(reading(path, "a database of SQLite", _ADVICE))
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        stack.enter_context(contextlib.closing(connection))
        rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    tables = {name for (name,) in rows}
    if "experiment_v2" in tables:
        raise InvalidInput(
            f"{path} is a storage of Ax: load the client with Ax, and give that, "
            "kbo.audit(client), or its file by client.save_to_json_file(path)."
        )
    if "studies" not in tables:
        raise InvalidInput(
            f"{path} is no storage of Optuna: it has the tables {sorted(tables)}. {_ADVICE}"
        )


def of_study(study: Any) -> History:
    """Return the trials of a study that ended with parameters."""
    source = f"study {study.study_name!r}"
    found = KBOSampler(seed=0).replayed(study)
    if found is None:
        raise InvalidInput(f"{source}: no trial that ended has parameters.")
    space: SearchSpace = found.problem[0]
    trials = []
    for trial in found.trials:
        encoded: Any = trial.params
        trials.append(trial._replace(params=space.named(encoded)))
    options = {
        "bounds": space.decoded(),
        "maximize": found.optimizer.maximize,
        "constraints": found.optimizer.constraints,
    }
    known = replay(None, None, options, trials)
    numbers = [trial.key for trial in known.trials]
    remark = _left_out(study, space.left_out, numbers)
    return History(source, "Optuna", known.optimizer, numbers, remark)


def _left_out(study: Any, parameters: Mapping[str, str], numbers: Sequence[int]) -> str:
    """Return a remark on finished trials and on parameters of a study that are not used.

    Args:
        study: The study.
        parameters: The reason by the name of a parameter that is left out.
        numbers: The numbers of the trials that are used.
    """
    finished = [trial for trial in study.get_trials(deepcopy=False) if trial.state.is_finished()]
    lost = [trial.number for trial in finished if trial.params and trial.number not in numbers]
    remark = ""
    if lost:
        far = f"far outside the ranges of the others: {listed(lost)}"
        remark += f", {len(lost)} left out ({far})"
    for name, reason in parameters.items():
        remark += f"; parameter {name!r} is left out: {reason.removesuffix('.')}"
    return remark
