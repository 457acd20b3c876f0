"""The comparison of tuners of several objectives: its problems, its measure, and its command."""

import pandas as pd
import pytest

from experiments.problems import BBOB
from experiments.problems.objectives import DEVELOPMENT, HELD_OUT, dtlz2, pair, zdt
from experiments.tuning import fronts
from tests.commands import experiment


def test_the_reference_of_a_pair_is_the_nadir():
    assert not set(DEVELOPMENT) & set(HELD_OUT)
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


def test_the_share_of_a_hypervolume_is_of_the_trials_of_all_runs():
    staircase = [[1.0, 3.0], [3.0, 1.0], [2.0, 4.0], [5.0, 0.0]]
    assert fronts.hypervolume(staircase, [4.0, 4.0]) == 5
    assert fronts.hypervolume([[5.0, 0.0]], [4.0, 4.0]) == 0
    found = {"front": ["[[1, 1]]", "[[1, 0]]"], "visited": ["[[1, 1], [0, 1]]", "[[1, 0]]"]}
    rows = pd.DataFrame({"problem": "p", "reference": "[2, 2]", **found})
    assert fronts.shares(rows).tolist() == pytest.approx([1 / 3, 2 / 3])


@pytest.mark.thorough
def test_the_command_ranks_tuners(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = "-n 10 --only zdt1-d5 --tuners kbo,random -j 1 -q"
    done = experiment("tuning.fronts", *options.split())
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    table = lines[lines.index("noise 0.05, 10 trials: share of the best known hypervolume") + 2 :]
    assert {line.split("|")[1].strip() for line in table[2:4]} == {"kbo", "random"}
