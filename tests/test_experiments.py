"""Sweeps survive kills, crashes and mistakes; the experiments of papers run and stand beside what was published."""

import contextlib
import math
import os
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch

from experiments.bandits import PROBLEMS, BanditMethod, BanditProblem
from experiments.papers import catalogue as papers
from experiments.papers import mixture, sketching, streaming
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


def swept(cells, folder, workers=1, **options):
    return sweep(cells, folder, workers=workers, progress=False, **options)


def failing():
    return Cell(f"{CHORES}:fail", {"x": 3}, "failing")


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
    slow = environment(SECONDS_OF_A_CHORE="2")
    with started("-c", script, cwd=root, env=slow, start_new_session=True) as process:
        wait_until(lambda: len(times(folder)) >= 2)
    wait_until(lambda: not in_group(process.pid), lambda: "orphans end with their parent")
    done = times(folder)
    assert 2 <= len(done) < 10
    (folder / ".half.parquet.1.tmp").write_bytes(b"PAR1")
    columns = ["x", "part", "square"]
    resumed = swept(squares(10), folder).rows[columns]
    assert done.items() <= times(folder).items()
    assert not list(folder.glob(".*.tmp"))
    undisturbed = swept(squares(10), tmp_path / "other").rows[columns]
    pd.testing.assert_frame_equal(resumed, undisturbed)


def test_a_failure_or_a_dead_worker_costs_only_itself(tmp_path):
    once, always = (
        Cell(f"{CHORES}:kill_the_worker", {"once": path}, "deadly")
        for path in (str(tmp_path / "once"), None)
    )
    cells = [once, failing(), *squares(4), always]
    found = swept(cells, tmp_path / "cells", workers=2)
    assert sorted(found.rows["square"].tolist()) == [0, 0, 0, 1, 1, 4, 4, 9, 9]
    assert {failure.cell.key for failure in found.failures} == {failing().key, always.key}
    texts = {failure.cell.label: failure.path.read_text() for failure in found.failures}
    assert "Traceback" in texts["failing"]
    assert "cannot do 3" in texts["failing"]
    assert "died 3 times" in texts["deadly"]
    with pytest.raises(CellsFailed, match=r"2 of 7 cells failed(.|\n)*cannot do 3") as caught:
        found.checked("what there is")
    assert caught.value.text == "what there is"


def test_a_cell_over_its_time_limit_has_failed(tmp_path):
    slow = Cell(f"{CHORES}:sleep", {"seconds": 6000}, "slow")
    (failure,) = swept([slow], tmp_path, workers=2, time_limit=1.0).failures
    assert failure.cell == slow
    assert failure.text == "TimeoutError: no value after 1 s; its process was ended"


def test_a_failed_cell_is_tried_again_and_its_error_forgotten(tmp_path, monkeypatch):
    assert swept([failing()], tmp_path).rows.empty
    assert Folder(tmp_path).error_file(failing()).exists()
    monkeypatch.setattr(f"{CHORES}.fail", square)
    found = swept([failing()], tmp_path)
    assert found.failures == []
    assert found.checked("fine") == "fine"
    assert list(found.rows.columns) == ["cell", "x", "part", "square"]
    assert [path.suffix for path in tmp_path.glob("[!.]*")] == [".parquet"]


def test_only_what_changed_is_done_again(tmp_path, monkeypatch):
    first = swept(squares(2), tmp_path)
    monkeypatch.setattr(f"{CHORES}.square", lambda x, shift=0.0: [{"square": -1}])
    again = swept([*squares(2), *squares(1), *squares(1, shift=0.5)], tmp_path)
    assert again.rows["square"].tolist() == [*first.rows["square"], -1]
    assert squares(1, shift=1)[0].key == squares(1, shift=1.0)[0].key
    assert len(read_rows(tmp_path)) == 5


def test_a_foreign_file_is_not_taken_for_a_result(tmp_path):
    one, two = squares(2)
    swept([one], tmp_path)
    Folder(tmp_path).file(two).write_bytes(Folder(tmp_path).file(one).read_bytes())
    assert swept([one, two], tmp_path).rows["square"].tolist() == [0, 0, 1, 1]


def test_a_flipped_byte_of_a_cell_costs_one_line_and_a_retry(tmp_path, caplog):
    (cell,) = squares(1)
    swept([cell], tmp_path)
    path = Folder(tmp_path).file(cell)
    expected = read_rows(tmp_path)
    content = path.read_bytes()
    inside = [content.index(word) for word in (b"kbo.cell", b"kbo.crc32")]
    for at in (0, 20, len(content) // 2, *inside, len(content) - 1):
        flipped = bytearray(content)
        flipped[at] ^= 1 << at % 8
        path.write_bytes(flipped)
        with contextlib.suppress(InvalidInput):  # if not, the values are the same
            assert read_rows(path)["square"].tolist() == expected["square"].tolist()
        caplog.clear()
        pd.testing.assert_frame_equal(swept([cell], tmp_path).rows, expected)
        assert [record.levelname for record in caplog.records].count("WARNING") == 1
        assert path.read_bytes() == content


def test_ctrl_c_keeps_what_is_done(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        swept([*squares(2), Cell(f"{CHORES}:interrupt", {}, "interrupt")], tmp_path)
    assert len(read_rows(tmp_path)) == 4


def test_thinned_rows_are_the_same_and_given_numbers_count():
    options = {"kernel": "matern32", "lengthscale": 0.2, "dim": 2, "n_arms": 20}
    problem = BanditProblem("rkhs", options, rounds=25)
    rows = problem.cell("dmm-ucb", 1).run()
    assert [row["round"] for row in rows] == list(range(1, 26))
    thinned = replace(problem, every=10).cell("dmm-ucb", 1).run()
    found = {row["round"]: row["cumulative"] for row in thinned}
    assert found == {t: rows[t - 1]["cumulative"] for t in (10, 20, 25)}
    given = replace(problem, given_norm=20.0, given_noise_std=0.2).cell("dmm-ucb", 1)
    assert given.run()[-1]["cumulative"] != rows[-1]["cumulative"]
    assert "B20 s0.2" in given.label


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_problem_runs_with_exact_and_sketched_methods(name):
    options = {"n_lengthscales": 3, "n_ridges": 3} if name == "tuning-table" else {}
    problem = BanditProblem(name, options, rounds=4, every=2)
    for method, sketched in (("supk-ucb", False), ("bbkb", True)):
        cell = problem.cell(BanditMethod(method, ridge=1.0, multiplier=0.1), 2)
        rows = cell.run()
        assert [row["round"] for row in rows] == [2, 4]
        assert all(("m" in row) == sketched for row in rows)
        assert cell.arguments["problem"] == name


BUMP = BanditProblem("bump", rounds=2, first=10)
MISTAKES = [
    (lambda folder: Cell(f"{CHORES}:square", {"x": {1, 2}}, "a set"), "JSON"),
    (lambda folder: sweep([Cell(f"{CHORES}:cube", {}, "cube")], folder), "cannot be imported"),
    (lambda folder: sweep([], folder), "at least one cell"),
    (lambda folder: swept(squares(1), folder, workers=0), "workers"),
    (lambda folder: read_rows(folder), "no finished cells"),
    (
        lambda folder: swept([Cell("builtins:dict", {"a": 1}, "no rows")], folder).checked(""),
        "list of dict",
    ),
    (lambda folder: BanditProblem("chess"), "one of 'rkhs', 'rkhs-fixed', 'bump'"),
    (
        lambda folder: BanditProblem("chessboard", {"dim": 3}),
        "'chessboard' has no option 'dim'; it has lengthscale",
    ),
    (
        lambda folder: BUMP.make(BanditMethod("ek-ucb", dictionary={"kind": "best"})),
        "kors, bkb, bbkb",
    ),
    (
        lambda folder: BUMP.make(BanditMethod("k-ucb", dictionary={"kind": "greedy"})),
        "no use for dictionary",
    ),
    (lambda folder: BUMP.cell("k-ucb", 0).run(), "first must be the index"),
    (lambda folder: papers.paper("mixture").experiment("study", "tides"), "no study tides"),
]


@pytest.mark.parametrize(("call", "says"), MISTAKES, ids=[says for _, says in MISTAKES])
def test_mistakes_are_explained(tmp_path, call, says):
    with pytest.raises((InvalidInput, CellsFailed), match=says):
        call(tmp_path)


def test_two_sweeps_do_not_share_a_folder(tmp_path):
    with Folder(tmp_path).locked(), pytest.raises(InvalidInput, match="another sweep"):
        swept(squares(1), tmp_path)


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


def reproduce(out, paper, *arguments):
    return experiment(f"papers.{paper}", *arguments, "--quick", "-q", "-j", "1", "-o", out).stdout


PICTURES = [
    *once([("mixture", "figure", number) for number in sorted(mixture.PAPER.figures)]),
    *once([("sketching", "figure", number) for number in (1, 5, 9, 10, 13)]),
    *once([("streaming", "figure", number) for number in (1, 2, 3, 4, 6, 8)]),
    *once([("streaming", "study", name) for name in ("width", "slope", "coverage", "outside")]),
    *(
        pytest.param(("sketching", "study", name), marks=pytest.mark.thorough)
        for name in sketching.PAPER.studies
        if name != "starvation"
    ),
]


@pytest.mark.parametrize("drawn", PICTURES, ids=str)
def test_figures_and_studies_are_drawn(out, drawn):
    paper, kind, name = drawn
    printed = reproduce(out, paper, f"--{kind}", name)
    file = f"{name}.png" if kind == "study" else f"figure{name}.png"
    if (paper, kind) != ("streaming", "study"):  # of which some print a table only
        picture = out / f"{paper}-quick" / file
        assert str(picture) in printed
        assert picture.read_bytes().startswith(b"\x89PNG")


def test_table_1_has_the_published_value_beside_every_measured_one(out):
    printed = reproduce(out, "mixture", "--table", 1)
    stored = pd.read_csv(out / "mixture-quick/table1.csv")
    assert set(stored["problem"]) == {"RBF 0.2", "Matérn 5/2 0.5"}
    assert set(stored["runs"]) == {2}
    for row in stored[stored["method"] != "cmm-ucb"].itertuples():
        assert (row.published_mean, row.published_sd) == mixture.PUBLISHED[row.problem, row.method]
    (dmm,) = [line for line in printed.splitlines() if line.startswith("Matérn 5/2 0.5 dmm-ucb")]
    assert "130 ± 46" in dmm
    assert "(130 ± 46) |" in (out / "mixture-quick/table1.md").read_text(encoding="utf-8")


def test_a_sketch_without_its_residual_is_starved(out):
    lines = reproduce(out, "sketching", "--study", "starvation").splitlines()
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
    plan = Plan("half a table", cells=[*squares(1), failing()])
    monkeypatch.setitem(mixture.PAPER.studies, "broken", lambda quick: plan)
    arguments = ("--study", "broken", "-q", "-j", "1", "-o", tmp_path)
    done = experiment("papers.mixture", *arguments, code=1)
    assert "1 of 2 cells failed" in done.stderr
    assert "half a table" in done.stdout
