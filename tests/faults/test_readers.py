"""Files of other programs, and files that are broken, for every reader: they work, or kbo's error names the file."""

from __future__ import annotations

import json
import logging
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import optuna
import pytest
from ax.api.client import Client
from ax.api.configs import RangeParameterConfig

import kbo
from kbo import report
from kbo.cli import tune
from kbo.cli.script import load
from kbo.errors import InvalidInput, KboError
from kbo.integrations.ax import generation_strategy
from kbo.optimize.evaluated.results import known_results
from kbo.optimize.run.journal_file import read_whole
from kbo.space import Space
from kbo.workers.call import error_text
from kbo.workers.in_process import call_with_limit
from tests.faults import REPEATS
from tests.processes import PATIENCE

BOX = {"x": (0.0, 1.0), "y": (0.0, 1.0)}
CANDIDATES = [{"x": 0.2}, {"x": 0.8}]


def bowl(params: dict[str, float]) -> float:
    return sum((value - 0.3) ** 2 for value in params.values())


class Reader(NamedTuple):
    """A reader of files, and how their names end."""

    suffix: str
    read: Callable[[Path], Any]


READERS = {
    "audit of Ax": Reader(".json", kbo.audit),
    "audit of Optuna": Reader(".db", kbo.audit),
    "audit of a table": Reader(".csv", kbo.audit),
    "audit of a journal": Reader(".jsonl", kbo.audit),
    "known results": Reader(".csv", lambda path: known_results(path, Space(BOX), False)),
    "journal": Reader(".jsonl", read_whole),
    "run": Reader(".jsonl", lambda path: kbo.minimize(bowl, BOX, 7, journal=path)),
    "confirmation": Reader(
        ".jsonl", lambda path: kbo.confirm(bowl, CANDIDATES, 14, tolerance=0.1, journal=path)
    ),
    "page": Reader(".jsonl", lambda path: report.write(path, path.with_suffix(".html"))),
    "space in JSON": Reader(".json", Space.load),
    "space in YAML": Reader(".yaml", Space.load),
    "script": Reader(".py", lambda path: load(str(path))),
    "first points": Reader(".json", tune.parameters_in),
}


def client() -> Client:
    """A client of Ax with the strategy of kbo."""
    found = Client()
    found.configure_experiment(
        [RangeParameterConfig(name="x", parameter_type="float", bounds=(0.0, 1.0))]
    )
    found.configure_optimization(objective="-loss")
    found.set_generation_strategy(generation_strategy(seed=0))
    for _ in range(3):
        for number, params in found.get_next_trials(1).items():
            found.complete_trial(number, {"loss": params["x"]})
    return found


@pytest.fixture(scope="module")
def valid(tmp_path_factory) -> dict[str, bytes]:
    """Whole files of every kind."""
    folder = tmp_path_factory.mktemp("valid")
    result = kbo.minimize(bowl, BOX, 7, journal=folder / "run.jsonl")
    result.to_csv(folder / "run.csv")
    kbo.confirm(bowl, CANDIDATES, 4, tolerance=0.1, journal=folder / "confirm.jsonl")
    (folder / "space.json").write_text(json.dumps(result.optimizer.space.to_dict()))
    (folder / "script.py").write_text(
        "bounds = {'x': (0.0, 1.0)}\n\ndef objective(params):\n    return params['x']\n"
    )
    client().save_to_json_file(str(folder / "client.json"))
    storage = optuna.storages.JournalStorage(
        optuna.storages.journal.JournalFileBackend(str(folder / "study.log"))
    )
    for place in (f"sqlite:///{folder}/study.db", storage):
        study = optuna.create_study(storage=place)
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=4)
    with sqlite3.connect(folder / "other.db") as connection:
        connection.execute("CREATE TABLE things (name TEXT)")
    connection.close()
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def bomb() -> bytes:
    """YAML that stands for 8^9 entries."""
    lines = ["a: &a [1, 1, 1, 1, 1, 1, 1, 1]"]
    for before, name in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{name}: &{name} [{', '.join([f'*{before}'] * 8)}]")
    return "\n".join(lines).encode()


BROKEN = {
    "empty": b"",
    "end of line": b"\n",
    "zeros": b"\0" * 2000,
    "noise": random.Random(0).randbytes(3000),
    "Latin-1": "x,y,value\n1,2,\xe9\n".encode("latin-1"),
    "byte order mark": b"\xef\xbb\xbf{}",
    "dicts": b'[{"x": "a"}, {"x": null}]',
    "dict": b'{"a": 1, "_type": "Experiment"}',
    "deep list": b"[" * 100_000,
    "long line": b"x" * 3_000_000,
    "long number": b"[" + b"9" * 6000 + b"]",
    "half a character": b'{"a": "\\ud800"}',
    "two columns of one name": b"x,x,value\n1,2,3\n2,3,4\n",
    "no numbers": b"x,y,value\nnan,1,inf\n1e400,2,nan\n",
    "open quote": b'x,y,value\n"1,2,3\n',
    "zero in a name": b"x,\0y,value\n.1,.2,3\n.1,.3,4\n",
    "of itself": b"a: &a [*a]\n",
    "object": b"!!python/object/apply:os.getcwd []\n",
    "bomb": bomb(),
    "header": b'{"format":"kbo-journal-1"}\n',
    "exit": b"raise SystemExit(0)\n",
    "settings": b"bounds = {}\nobjective = len\nwas = 3\nconstraints = 4\n",
}


def damaged(content: bytes, random: random.Random) -> bytes:
    """Return the bytes of a file cut, with some of them changed, or with a hole."""
    place = random.randrange(1, len(content))
    kind = random.randrange(3)
    if kind == 0:
        return content[:place]
    changed = bytearray(content)
    if kind == 1:
        for _ in range(3):
            changed[random.randrange(len(content))] ^= 1 << random.randrange(8)
    else:
        changed[place : place + 100] = bytes(len(changed[place : place + 100]))
    return bytes(changed)


def verdict(reader: Reader, path: Path) -> str:
    """Return an empty text if a reader works or raises an error of kbo that names the file; else what happened."""
    try:
        call_with_limit(lambda: reader.read(path), PATIENCE)
    except KboError as error:
        return "" if path.name in str(error) else f"without the name: {error}"
    except (Exception, SystemExit) as error:
        return error_text(error)[:300]
    return ""


def faults(reader: Reader, files: dict[str, bytes], folder: Path) -> dict[str, str]:
    found = {}
    for number, (kind, content) in enumerate(files.items()):
        path = folder / f"file{number}{reader.suffix}"
        path.write_bytes(content)
        if problem := verdict(reader, path):
            found[kind] = problem
    return found


@pytest.fixture(autouse=True)
def quiet(caplog, recwarn, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # which scripts add to the path
    caplog.set_level(logging.CRITICAL, logger="optuna")
    caplog.set_level(logging.CRITICAL)


@pytest.mark.thorough
def test_a_client_of_ax_with_the_strategy_of_kbo_is_audited_in_another_process(tmp_path):
    client().save_to_json_file(str(tmp_path / "client.json"))
    text = "import kbo, sys; print(kbo.audit(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", text, "client.json"], capture_output=True, text=True
    )
    assert done.stdout.startswith("Trials    client.json: 3 trials"), done.stderr


@pytest.mark.faults
@pytest.mark.parametrize("name", READERS)
def test_a_file_that_is_broken_is_refused_by_name(name, tmp_path):
    assert faults(READERS[name], BROKEN, tmp_path) == {}


@pytest.mark.faults
@pytest.mark.parametrize("name", READERS)
def test_a_file_of_another_kind_or_damaged_is_refused_by_name_or_read(name, tmp_path, valid):
    chance = random.Random(name)
    files = dict(valid)
    for kind, content in valid.items():
        for number in range(3 * REPEATS):
            files[f"{kind} {number}"] = damaged(content, chance)
    assert faults(READERS[name], files, tmp_path) == {}


@pytest.mark.faults
@pytest.mark.parametrize("name", READERS)
def test_what_is_no_file_is_refused_by_name(name, tmp_path, monkeypatch):
    reader = READERS[name]
    folder, pipe, forbidden = (
        tmp_path / f"{kind}{reader.suffix}" for kind in ("folder", "pipe", "forbidden")
    )
    folder.mkdir()
    os.mkfifo(pipe)
    assert verdict(reader, pipe) == ""
    assert verdict(reader, folder) == ""
    forbidden.write_bytes(b"x,y,value\n")
    forbidden.chmod(0)
    is_root = os.geteuid() == 0
    if is_root:
        tmp_path.chmod(0o755)
        os.seteuid(65534)
    try:
        assert verdict(reader, forbidden) == ""
    finally:
        if is_root:
            os.seteuid(0)
    if name not in ("run", "confirmation"):  # which begin a new journal
        assert verdict(reader, tmp_path / f"none{reader.suffix}") == ""


@pytest.mark.faults
def test_a_database_of_another_program_stays_as_it_is(tmp_path, valid):
    path = tmp_path / "other.db"
    path.write_bytes(valid["other.db"])
    with pytest.raises(
        InvalidInput, match=r"other\.db is no storage of Optuna: it has the tables \['things'\]"
    ):
        kbo.audit(path)
    assert path.read_bytes() == valid["other.db"]
