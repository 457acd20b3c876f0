"""Sweeps survive kills, crashes and mistakes; the experiments of papers run and stand beside what was published."""

import contextlib
import math
import os
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch

from experiments.bandits import BanditProblem
from experiments.papers import mixture, streaming
from experiments.papers.experiment import Plan
from experiments.problems import StreamingBandit
from experiments.sweep.cells import Cell, Folder, read_rows
from experiments.sweep.runner import CellsFailed, sweep
from kbo import InvalidInput
from kbo.regression import KernelRidge
from tests.chores import square, squares
from tests.commands import experiment
from tests.parts import once
from tests.processes import environment, started, wait_until

CHORES = "tests.chores"
FAILING = Cell(f"{CHORES}:fail", {"x": 3}, "failing")


def swept(cells, folder, workers=1, **options):
    return sweep(cells, folder, workers=workers, progress=False, **options)


def in_group(number):
    """Whether a process of this group runs."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(number, 0)
        return True


def times(folder):
    return {path: path.stat().st_mtime_ns for path in folder.glob("*.parquet")}


def test_a_killed_sweep_resumes_and_equals_an_undisturbed_one(tmp_path):
    folder = tmp_path / "cells"
    script = f"from {CHORES} import slow_sweep; slow_sweep({str(folder)!r})"
    root = Path(__file__).parent.parent
    slow = environment(CHORES_THAT_END="2")
    with started("-c", script, cwd=root, env=slow, start_new_session=True) as process:
        wait_until(lambda: len(times(folder)) == 2)
    wait_until(lambda: not in_group(process.pid), lambda: "orphans end with their parent")
    done = times(folder)
    (folder / ".half.parquet.1.tmp").write_bytes(b"PAR1")
    columns = ["x", "part", "square"]
    resumed = swept(squares(4), folder).rows[columns]
    assert done.items() <= times(folder).items()
    assert not list(folder.glob(".*.tmp"))
    undisturbed = swept(squares(4), tmp_path / "other").rows[columns]
    pd.testing.assert_frame_equal(resumed, undisturbed)


def test_a_failure_or_a_dead_worker_costs_only_itself(tmp_path):
    deadly = Cell(f"{CHORES}:kill_the_worker", {"once": None}, "deadly")
    found = swept([FAILING, *squares(4), deadly], tmp_path, workers=2)
    assert sorted(found.rows["square"].tolist()) == [0, 0, 1, 1, 4, 4, 9, 9]
    texts = {failure.cell.label: failure.path.read_text() for failure in found.failures}
    assert "Traceback" in texts["failing"]
    assert "died 3 times" in texts["deadly"]
    with pytest.raises(CellsFailed, match=r"2 of 6 cells failed(.|\n)*cannot do 3") as caught:
        found.checked("what there is")
    assert caught.value.text == "what there is"


def test_a_failed_cell_is_tried_again_and_its_error_forgotten(tmp_path, monkeypatch):
    assert swept([FAILING], tmp_path).failures[0].path.exists()
    monkeypatch.setattr(f"{CHORES}.fail", square)
    assert len(swept([FAILING], tmp_path).rows) == 2
    assert [path.suffix for path in tmp_path.glob("[!.]*")] == [".parquet"]


def test_only_what_changed_is_done_again(tmp_path, monkeypatch):
    first = swept(squares(2), tmp_path)
    monkeypatch.setattr(f"{CHORES}.square", lambda x, shift=0.0: [{"square": -1}])
    again = swept([*squares(2), *squares(1, shift=0.5)], tmp_path)
    assert again.rows["square"].tolist() == [*first.rows["square"], -1]


def test_a_flipped_byte_or_a_foreign_file_costs_one_line_and_a_retry(tmp_path, caplog):
    cell, other = squares(2)
    swept([cell, other], tmp_path)
    path = Folder(tmp_path).file(cell)
    content = path.read_bytes()
    expected = read_rows(path)
    damaged = [Folder(tmp_path).file(other).read_bytes()]
    inside = [content.index(word) for word in (b"kbo.cell", b"kbo.crc32")]
    for place in (0, 20, len(content) // 2, *inside, len(content) - 1):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        damaged.append(flipped)
    for wrong in damaged:
        path.write_bytes(wrong)
        caplog.clear()
        pd.testing.assert_frame_equal(swept([cell], tmp_path).rows, expected)
        assert [record.levelname for record in caplog.records].count("WARNING") == 1
        assert path.read_bytes() == content


def test_ctrl_c_keeps_what_is_done(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        swept([*squares(2), Cell(f"{CHORES}:interrupt", {}, "interrupt")], tmp_path)
    assert len(read_rows(tmp_path)) == 4


def test_thinned_rows_are_the_same():
    options = {"kernel": "matern32", "lengthscale": 0.2, "dim": 2, "n_arms": 20}
    problem = BanditProblem("rkhs", options, rounds=25)
    rows = problem.cell("dmm-ucb", 1).run()
    thinned = replace(problem, every=10).cell("dmm-ucb", 1).run()
    found = {row["round"]: row["cumulative"] for row in thinned}
    assert found == {t: rows[t - 1]["cumulative"] for t in (10, 20, 25)}


def test_two_sweeps_do_not_share_a_folder_and_mistakes_are_explained(tmp_path):
    with Folder(tmp_path).locked(), pytest.raises(InvalidInput, match="another sweep"):
        swept(squares(1), tmp_path)
    with pytest.raises(InvalidInput, match="cannot be imported"):
        swept([Cell(f"{CHORES}:cube", {}, "cube")], tmp_path)
    with pytest.raises(InvalidInput, match="no finished cells"):
        read_rows(tmp_path)


DRAWN = {
    "sketching": ["starvation", "dimension", "time", "dictionaries", 1, 5, 9, 10, 13],
    "streaming": ["slope", "coverage", "outside", "width", 1, 2, 3, 4, 6, 8],
    "mixture": [1, 2, 4, 5, 6, 7],
}
"""Studies and figures."""


@pytest.mark.parametrize("drawn", once((p, name) for p in DRAWN for name in DRAWN[p]), ids=str)
def test_figures_and_studies_are_drawn(tmp_path, drawn):
    paper, name = drawn
    is_figure = isinstance(name, int)
    options = ("--quick", "-q", "-j", "1", "-o", tmp_path)
    kind = "--figure" if is_figure else "--study"
    printed = experiment(f"papers.{paper}", kind, name, *options).stdout
    if is_figure or paper == "sketching":  # other studies may print a table only
        file = f"figure{name}.png" if is_figure else f"{name}.png"
        picture = tmp_path / f"{paper}-quick" / file
        assert str(picture) in printed
        assert picture.read_bytes().startswith(b"\x89PNG")
    if name == "starvation":  # a sketch without its residual
        lines = printed.splitlines()
        numbers = [line.split() for line in lines if line.startswith(("6 ", "63 ", "215 "))]
        assert len(numbers) == 3
        for line in numbers:
            exact, dtc, sor = map(float, line[2:])
            assert dtc == pytest.approx(exact, abs=0.01)
            assert sor < 0.5 < 0.99 < exact


def test_lemma_3_is_taken_at_the_ridge_of_the_state():
    problem = StreamingBandit()
    X = problem.fixed_arms[::9]
    state = KernelRidge(problem.kernel, 0.01)
    state.update(X, problem.observe(X))
    lemma = streaming.Lemma3(0.1, 5.0, 0.1)
    log2, log4 = math.log(20), math.log(40)
    for ridge in (0.01, 0.0004):
        state.move_ridge(ridge)
        g = float(torch.logdet(torch.eye(len(X)) + state.prior(X, X) / ridge)) / 2
        square = 25 + math.sqrt(8 * g * log2) + 5 * math.sqrt(2 * log4) + 2 * g + 0.2 * log2
        expected = math.sqrt(square) * 0.1 / math.sqrt(ridge)
        assert float(lemma.width(state)) == pytest.approx(expected)
        assert lemma.guarantee_on(state) is None


def test_a_failed_run_shows_in_the_exit_code_and_what_is_there_is_shown(tmp_path, monkeypatch):
    plan = Plan("half a table", cells=[*squares(1), FAILING])
    monkeypatch.setitem(mixture.PAPER.studies, "broken", lambda quick: plan)
    arguments = ("--study", "broken", "-q", "-j", "1", "-o", tmp_path)
    done = experiment("papers.mixture", *arguments, code=1)
    assert "1 of 2 cells failed" in done.stderr
    assert "half a table" in done.stdout
