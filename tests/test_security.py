"""Files of others: nothing in a journal is executed, and no table has a formula."""

import contextlib
import csv
import itertools
import json
import zlib

import pandas
import pytest

import kbo
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


@pytest.mark.parametrize("entry", ["setting", "method", "strategies", "pruner", "kernel", "class"])
def test_a_module_that_a_journal_names_is_not_imported(entry, tmp_path, monkeypatch):
    (tmp_path / "evil.py").write_text("from pathlib import Path\nPath('ran').touch()\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "run.jsonl"
    optimizer = kbo.Optimizer([(0.0, 1.0)], journal=path, method="random")
    header = dict(optimizer.run.header)
    optimizer.close()
    path.write_bytes(sealed({**header, entry: "evil.Setting()"}))
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
