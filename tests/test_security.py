"""Files of others: nothing in them is executed, no page has markup of theirs, and no table has a formula."""

import contextlib
import csv
import itertools
import json
import pickle
import sqlite3
import zlib
from html.parser import HTMLParser

import pandas
import pytest

import kbo
import kbo.report
from kbo.optimize.result import result_of
from kbo.report.record import Record
from tests import commands

FORMULA = '=HYPERLINK("http://evil.example")'


def sealed(*lines: dict) -> bytes:
    """Return a journal of these lines, with checksums that fit."""
    text = b""
    checksum = 0
    for line in lines:
        body = json.dumps(line, separators=(",", ":")).encode()
        checksum = zlib.crc32(body, checksum)
        text += b'%b,"sum":"%08x"}\n' % (body[:-1], checksum)
    return text


def header_in(path) -> dict:
    """Return the first line of the journal of a new run with one number from 0 to 1, written there."""
    kbo.Optimizer([(0.0, 1.0)], journal=path, method="random").close()
    header = json.loads(path.read_text())
    del header["sum"]
    return header


@pytest.mark.parametrize("entry", ["setting", "method", "strategies", "pruner", "kernel", "class"])
def test_a_module_that_a_journal_names_is_not_imported(entry, tmp_path, monkeypatch):
    (tmp_path / "evil.py").write_text("from pathlib import Path\nPath('ran').touch()\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "run.jsonl"
    path.write_bytes(sealed({**header_in(path), entry: "evil.Setting()"}))
    for read in (Record.of, kbo.audit, lambda path: kbo.Optimizer([(0.0, 1.0)], journal=path)):
        with contextlib.suppress(kbo.KboError):
            read(path)
    assert not (tmp_path / "ran").exists()


def test_no_cell_of_a_table_begins_as_a_formula(tmp_path):
    journal, batch, table = tmp_path / "run.jsonl", tmp_path / "batch.csv", tmp_path / "all.csv"
    space = {"=x": (0.0, 1.0), "kind": [FORMULA, "+1+1", "-a", "@b"]}
    optimizer = kbo.Optimizer(space, journal=journal)
    optimizer.tell(optimizer.ask(), 1.0)
    optimizer.fail(optimizer.ask(), FORMULA)
    optimizer.close()
    commands.kbo("ask", journal, "-n", 4, "--to", batch)
    commands.kbo("journal", "export", journal, "--to", table)
    for path in (batch, table):
        rows = list(csv.reader(path.read_text().splitlines()))
        assert len(rows) > 4
        assert not [cell for row in rows for cell in row if cell.startswith(("=", "+", "-", "@"))]
    frame = pandas.read_csv(batch)
    frame["value"] = 2.0
    frame.to_csv(batch, index=False)
    commands.kbo("tell", journal, batch)
    again = kbo.Optimizer(space, evaluated=table)
    assert len([trial for trial in again.trials if trial.status == "complete"]) == 1


def test_a_file_of_yaml_with_nested_aliases_is_refused_in_few_words(tmp_path):
    """Each line has nine times the line before it: as text, the last one has more than 10^9 words."""
    path = tmp_path / "space.yaml"
    names = "abcdefghij"
    text = f"a: &a [{', '.join(['x'] * 9)}]\n"
    for before, name in itertools.pairwise(names):
        text += f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    path.write_text(text)
    with pytest.raises(kbo.InvalidInput) as caught:
        kbo.Space.load(path)
    assert len(str(caught.value)) < 1000


def test_no_heading_of_a_table_begins_as_a_formula(tmp_path):
    journal, batch = tmp_path / "run.jsonl", tmp_path / "batch.csv"
    objectives = ["=error", "+time"]
    optimizer = kbo.Optimizer(
        {"=x": (0.0, 1.0), "\t=y": (0.0, 1.0)}, objectives=objectives, journal=journal
    )
    for value in (1.0, 2.0):
        optimizer.tell(optimizer.ask(), {"=error": value, "+time": -value})
    optimizer.close()
    tables = [tmp_path / "result.csv", tmp_path / "export.csv", batch]
    record = Record.of(journal)
    result_of(record.reopened(), "", None).to_csv(tables[0])
    commands.kbo("journal", "export", journal, "--to", tables[1])
    commands.kbo("ask", journal, "-n", 2, "--to", batch)
    for path in tables:
        with open(path, newline="") as file:
            headings = next(csv.reader(file))
        assert not [name for name in headings if name.startswith(("=", "+", "-", "@", "\t", "\r"))]
    frame = pandas.read_csv(batch)
    frame["measured.=error"] = 3.0
    frame["measured.+time"] = 4.0
    frame.to_csv(batch, index=False)
    commands.kbo("tell", journal, batch)
    assert [trial.value for trial in Record.of(journal).trials] == [1.0, 2.0, 3.0, 3.0]


# Pages


class Skeleton(HTMLParser):
    """The elements of a page with the names of their attributes, in the order of the page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, list[str]]] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, [name for name, _ in attrs]))


ATTACKS = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "' onfocus='alert(1)' autofocus='",
    "</code></pre></td><svg onload=alert(1)>",
    "{{ 7 * 191 }}${7*191}",
    "--></style><iframe src=javascript:alert(1)>",
]


def page_of(text: str, folder) -> tuple[str, str]:
    """Return the page of a run with a text in all its names, and its table for notebooks."""
    space = {text: (0.0, 1.0), "kind": [text, "b"], "n": kbo.Int(1, 3)}
    limits = [kbo.Constraint(f"m{text}", upper=5.0)]
    optimizer = kbo.Optimizer(space, constraints=limits, seed=1)
    for value in range(8):
        params = {text: value / 8, "kind": [text, "b"][value % 2], "n": 1 + value % 3}
        optimizer.tell(params, (value * (value - 5.0), {f"m{text}": 1.0 + value % 2}))
    optimizer.fail({text: 0.3, "kind": "b", "n": 1}, text)
    optimizer.remove(0, text)
    path = kbo.report.write(optimizer, folder / "page.html", title=text)
    return path.read_text(), result_of(optimizer, text, None)._repr_html_()


def test_texts_of_a_run_add_no_markup_to_its_page(tmp_path):
    attacks = page_of(" ".join(ATTACKS), tmp_path)
    expected = page_of("plain", tmp_path)
    for page, plain in zip(attacks, expected, strict=True):
        assert Skeleton(page).elements == Skeleton(plain).elements
        assert "1337" not in page
    policy = attacks[0].partition('Content-Security-Policy" content="')[2].partition('"')[0]
    assert policy == "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


# Places


def test_a_journal_names_no_file_that_is_written(tmp_path):
    """Names of parameters and entries of the header that look like paths lead nowhere."""
    folder = tmp_path / "in" / "side"
    folder.mkdir(parents=True)
    path = folder / "run.jsonl"
    up = "../../up"
    optimizer = kbo.Optimizer({up: (0.0, 1.0), "/kind": [up, "b"]}, journal=path)
    for value in (1.0, 2.0, 3.0):
        optimizer.tell(optimizer.ask(), value)
    optimizer.close()
    print(kbo.audit(path))
    commands.kbo("ask", path, "--to", folder / "batch.csv")
    header, *lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in (header, *lines):
        del line["sum"]
    places = dict.fromkeys(("journal", "path", "page", "title", "name", "out"), up)
    path.write_bytes(sealed({**header, **places}, *lines))
    kbo.report.write(path)
    commands.kbo("journal", "export", path, "--to", folder / "run.csv")
    written = [str(file.relative_to(folder)) for file in tmp_path.rglob("*") if file.is_file()]
    assert sorted(written) == ["batch.csv", "run.csv", "run.html", "run.jsonl"]


# Numbers


@pytest.mark.parametrize("tag", ["", "!!int "])
@pytest.mark.parametrize(
    "number",
    ["9" * 20_000, "0x" + "f" * 20_000, "9:" * 20_000 + "9"],
    ids=["decimal", "hexadecimal", "base 60"],
)
def test_a_long_number_in_yaml_is_refused_before_it_is_computed(number, tag, tmp_path):
    """PyYAML takes a time that grows with the square of the digits in base 60."""
    path = tmp_path / "space.yaml"
    path.write_text(f"x: {{kind: Float, low: 0, high: {tag}{number}}}\n")
    with pytest.raises(kbo.InvalidInput, match=f"line 1: a number of {len(number)} characters"):
        kbo.Space.load(path)


@pytest.mark.parametrize("number", ["9" * 200_000, "1e999999999"], ids=["digits", "exponent"])
def test_an_enormous_number_in_a_table_is_refused(number, tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(f"x,value\n{number},1\n0.5,{number}\n")
    for read in (kbo.audit, lambda path: kbo.Optimizer({"x": (0.0, 1.0)}, evaluated=path)):
        with pytest.raises(kbo.InvalidInput) as caught:
            read(path)
        assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "event",
    [
        '{"event":"ask","params":[0.5],"number":999999999999999999}',
        f'{{"event":"ask","params":[0.5],"number":{"9" * 5000}}}',
        f'{{"event":"ask","params":[{"9" * 5000}],"number":0}}',
        '{"event":"ask","params":[1e999999999],"number":0}',
        '{"event":"ask","params":[0.5],"number":0,"time":1e300}',
    ],
    ids=["number", "long number", "long parameter", "parameter", "time"],
)
def test_an_enormous_number_in_a_journal_is_refused(event, tmp_path):
    path = tmp_path / "run.jsonl"
    first = sealed(header_in(path))
    checksum = zlib.crc32(event.encode(), int(first[-11:-3], 16))
    path.write_bytes(b'%b%b,"sum":"%08x"}\n' % (first, event.encode()[:-1], checksum))
    for read in (kbo.audit, kbo.report.write):
        with pytest.raises(kbo.JournalError, match="line 2"):
            read(path)


# Code


class Touch:
    """A pickle of it makes the file "ran" where it is loaded."""

    def __reduce__(self):
        return open, ("ran", "w")


@pytest.mark.parametrize("end", [".pkl", ".jsonl", ".json", ".csv", ".db", ".parquet", ""])
def test_a_pickle_is_refused_and_not_loaded(end, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f"run{end}"
    path.write_bytes(pickle.dumps(Touch()))
    readers = [kbo.audit, kbo.report.write, kbo.Space.load]
    readers.append(lambda path: kbo.Optimizer({"x": (0.0, 1.0)}, evaluated=path))
    for read in readers:
        with pytest.raises(kbo.KboError):
            read(path)
    assert not (tmp_path / "ran").exists()


def ax_file(path) -> dict:
    """Return the contents of the file of a client of Ax with constraints on an outcome and on parameters."""
    api = pytest.importorskip("ax.api.client")
    configs = pytest.importorskip("ax.api.configs")
    client = api.Client()
    box = [configs.RangeParameterConfig(name, (0.0, 1.0), "float") for name in ("a", "b")]
    client.configure_experiment(box, parameter_constraints=["a + b <= 1.5"])
    client.configure_optimization("-loss", outcome_constraints=["memory <= 3.0"])
    for value in range(4):
        trial = client.attach_trial({"a": value / 4, "b": 0.3})
        client.complete_trial(trial, {"loss": value * 1.0, "memory": 1.0})
    client.save_to_json_file(str(path))
    return json.loads(path.read_text())


CALL = "exec(" + "+".join(f"chr(+{ord(letter)})" for letter in "open('ran','w')") + ")"
"""Python that makes the file "ran", without the characters that Ax forbids in formulas."""


def test_formulas_in_files_of_ax_are_not_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "ax.json"
    ax_file(path)
    assert "4 trials" in str(kbo.audit(path))
    experiment = ("experiment", "optimization_config")
    space = ("experiment", "search_space")
    derived = {"__type": "DerivedParameter", "name": "c", "expression_str": CALL}
    derived["parameter_type"] = {"__type": "ParameterType", "name": "FLOAT"}
    attacks = [
        ((*experiment, "objective", "expression"), CALL),
        ((*experiment, "objective", "expression"), "9**9**9**9*loss"),
        ((*experiment, "outcome_constraints", 0, "metric", "name"), CALL),
        ((*space, "parameter_constraints", 0, "inequality"), f"a + {CALL} <= 1"),
        ((*space, "parameters", 1), derived),
        (("experiment", "description"), {"__type": "ParameterConstraint", "inequality": CALL}),
    ]
    for place, attack in attacks:
        contents = ax_file(path)
        *parents, last = place
        part = contents
        for name in parents:
            part = part[name]
        part[last] = attack
        path.write_text(json.dumps(contents))
        with pytest.raises(kbo.InvalidInput, match="Ax evaluates formulas as Python code"):
            kbo.audit(path)
        assert not (tmp_path / "ran").exists()


def test_a_class_that_a_file_of_ax_names_is_not_imported(tmp_path, monkeypatch):
    (tmp_path / "evil.py").write_text("open('ran', 'w')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "ax.json"
    contents = ax_file(path)
    for kind in (
        {"__type": "evil.Setting"},
        {"__type": "Type[Model]", "index": "Setting", "class": "evil.Setting"},
    ):
        path.write_text(
            json.dumps({**contents, "experiment": {**contents["experiment"], "description": kind}})
        )
        with pytest.raises(kbo.InvalidInput):
            kbo.audit(path)
    assert not (tmp_path / "ran").exists()


def test_attributes_in_storages_of_optuna_are_not_unpickled(tmp_path, monkeypatch):
    optuna = pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "study.db"
    study = optuna.create_study(storage=f"sqlite:///{path}")

    def objective(trial):
        trial.set_user_attr("sem", 0.1)
        study._storage.set_trial_system_attr(trial._trial_id, "kbo:chosen", {})
        return trial.suggest_float("x", 0, 1)

    study.optimize(objective, n_trials=3)
    attack = pickle.dumps(Touch(), protocol=0).decode()
    tables = {
        "study_system_attributes": "value_json",
        "trial_system_attributes": "value_json",
        "trial_user_attributes": "value_json",
        "trial_params": "distribution_json",
    }
    study._storage.set_study_system_attr(study._study_id, "a", 1)
    whole = path.read_bytes()
    for table, column in tables.items():
        path.write_bytes(whole)
        with contextlib.closing(sqlite3.connect(path)) as connection:
            changed = connection.execute(f"UPDATE {table} SET {column} = ?", (attack,))
            assert changed.rowcount > 0
            connection.commit()
        with contextlib.suppress(kbo.InvalidInput):
            kbo.audit(path)
    assert not (tmp_path / "ran").exists()
