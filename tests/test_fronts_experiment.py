"""The comparison of tuners of several objectives: its problems, its measure, and its command."""

import json
import math

import pandas as pd
import pytest
import torch

from experiments.problems import BBOB
from experiments.problems.objectives import DEVELOPMENT, HELD_OUT, PAIRS, dtlz2, pair, zdt
from experiments.tuning import front_statistics, fronts
from tests.commands import experiment


def test_no_problem_is_in_both_halves_and_each_has_its_name():
    assert not set(DEVELOPMENT) & set(HELD_OUT)
    assert PAIRS[:3] == [(1, 1), (1, 2), (1, 6)]
    assert (len(PAIRS), PAIRS[-1]) == (55, (21, 21))
    for name in ("zdt3-d5", "dtlz2-3-d5"):
        assert DEVELOPMENT[name](seed=0).name == name


def test_the_reference_of_a_pair_is_the_nadir():
    pytest.importorskip("cocoex")
    problem = pair(2, 5, 7, seed=0)
    first = BBOB(1, 5, 15, seed=0)
    second = BBOB(2, 5, 16, seed=0)
    assert problem.reference[0] == first.noiseless(second.solution)
    assert problem.reference[1] == second.noiseless(first.solution)
    assert problem.truth(first.solution)[0] == pytest.approx(first.optimum)


def test_fronts_of_zdt_and_dtlz2_are_those_of_their_papers():
    assert zdt(1, 5).truth([0.25, 0, 0, 0, 0]) == pytest.approx([0.25, 0.5])
    assert zdt(2, 5).truth([0.5, 0, 0, 0, 0]) == pytest.approx([0.5, 0.75])
    assert zdt(3, 5).truth([0.25, 0, 0, 0, 0]) == pytest.approx([0.25, 0.25])
    on_sphere = dtlz2(3, 5).truth([0.3, 0.8, 0.5, 0.5, 0.5])
    assert sum(value**2 for value in on_sphere) == pytest.approx(1)
    assert math.hypot(*dtlz2(2, 5).truth([0.3, 0.9, 0.5, 0.5, 0.5])) == pytest.approx(1.16)


def test_noise_is_a_share_of_the_interquartile_range():
    problem = zdt(1, 5, noise=0.05, seed=0)
    values = torch.tensor([problem([0.5] * 5) for _ in range(2000)]).double()
    expected = torch.tensor(problem.truth([0.5] * 5)).double()
    assert torch.allclose(values.mean(0), expected, atol=0.01)
    assert torch.allclose(values.std(0), problem.noise_std, rtol=0.1)
    assert float(problem.noise_std[0]) == pytest.approx(0.05 * 0.5, rel=0.05)


def test_hypervolume_counts_what_is_below_the_reference():
    staircase = [[1.0, 3.0], [3.0, 1.0], [2.0, 4.0], [5.0, 0.0]]
    assert fronts.hypervolume(staircase, [4.0, 4.0]) == 5
    assert fronts.hypervolume([[5.0, 0.0]], [4.0, 4.0]) == 0


def test_a_share_is_of_the_trials_of_all_runs():
    def row(front, visited):
        return {
            "problem": "p",
            "front": json.dumps(front),
            "visited": json.dumps(visited),
            "reference": "[2, 2]",
        }

    rows = pd.DataFrame([row([[1, 1]], [[1, 1], [0, 1]]), row([[1, 0]], [[1, 0]])])
    assert fronts.shares(rows).tolist() == pytest.approx([1 / 3, 2 / 3])


def test_the_command_ranks_tuners(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    problems = ["--only", "zdt1-d5,dtlz2-3-d5"]
    options = ["-n", "10", "-n", "11", "--tuners", "kbo,random,gpsampler", "-j", "1", "-q"]
    done = experiment("tuning.fronts", *options, *problems)
    lines = [*done.stdout.splitlines(), ""]
    assert done.stderr == ""
    for noise in ("0", "0.05"):
        for trials in (10, 11):
            title = f"noise {noise}, {trials} trials: share of the best known hypervolume"
            table = lines[lines.index(title) + 2 :]
            names = [line.split("|")[1].strip() for line in table[: table.index("")]][2:]
            expected = {"kbo", "gpsampler", "random"} if trials == 10 else {"kbo", "random"}
            assert set(names) == expected


def test_trials_are_counted_by_their_probability():
    row = {"noise": 0.5, "trials": 30, "below": 1.0, "inside": 0.0, "above": 0.0}
    first = {"said": "[0.9, 0.0, 0.6]", "is_on_front": "[true, false, false]"}
    second = {"said": "[0.86, 1.0]", "is_on_front": "[false, true]"}
    inside = {"below": 0.0, "inside": 1.0}
    rows = pd.DataFrame([row | first, row | second | inside])
    classes = front_statistics.probabilities(rows)
    assert classes.loc["85% to 95%"].tolist() == ["88%", "50%", "2"]
    assert classes["trials"].tolist() == ["1", "1", "2", "1"]
    (line,) = front_statistics.intervals(rows).to_numpy().tolist()
    assert line == ["50%", "50%", "0%", "2"]


def test_the_command_says_how_often_probabilities_and_intervals_hold(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ["--only", "zdt1-d5", "-n", "12", "-j", "1", "-q"]
    done = experiment("tuning.front_statistics", *options)
    assert done.stderr == ""
    assert "noise 0.05, 12 trials" in done.stdout
    assert "noise 0.5: probability to be on the front" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--problems", "all"], "problems must be one of"),
        (["--tuners", "kbo,nsga"], "tuners must be one of"),
        (["--only", "zdt9"], "only must be one of"),
    ],
)
def test_the_command_says_what_is_wrong(arguments, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert says in experiment("tuning.fronts", *arguments, "-q", code=1).stderr
