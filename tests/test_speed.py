"""The benchmark refuses a race between different answers, and says when a goal is missed; nothing here is timed."""

import os

import pytest
import torch

from experiments.bench import exact, race, sketch, straight, suite
from experiments.bench.race import Bench, Goal, Result

CPU = torch.device("cpu")


def answer(value):
    return lambda: (torch.full((2,), value), torch.ones(2))


def measured(device):
    return [
        Result("a", 1.0, 3.0, Goal(1 / 2)),
        Result("b [x]", os.getpid(), 1.0, Goal(1 / 2)),
        Result("c", 1.0),
    ]


def test_a_race_between_different_answers_is_refused():
    race.agree(answer(1.0), answer(1.0), lambda: torch.tensor([[1.0], [1.0], [1.0], [1.0]]))
    with pytest.raises(AssertionError):
        race.agree(answer(1.0), answer(2.0))
    found = race.medians(CPU, one=answer(1.0), other=answer(1.0))
    assert all(seconds >= 0 for seconds in found.values())


def test_the_slower_side_loses_and_the_table_says_so():
    results = Bench(measured).run(CPU)
    assert [result.passed for result in results] == [True, False, None]
    lines = race.table(results).splitlines()
    assert lines[1].endswith("at least 2 times faster  passed")
    assert lines[2].startswith("b [x] ")
    assert lines[2].endswith("MISSED")
    assert "nan" not in lines[3]
    assert [result.passed for result in Bench(measured).run(CPU, quick=True)] == [None] * 3
    assert Bench(measured, quick=None).run(CPU, quick=True) == []
    for goal, text, kept, missed in (
        (Goal(1), "no slower", (1.0, 1.0), (1.1, 1.0)),
        (Goal(1 / 3000), "at least 3000 times faster", (1.0, 3000.1), (1.1, 3000.0)),
        (Goal(more=2.0), "at most 2 s", (2.0, 0.0), (2.1, 9.0)),
        (Goal(1.5), "at most 1.5 times", (1.5, 1.0), (1.6, 1.0)),
        (Goal(1, 20, "MB"), "at most 20 MB more", (50.0, 30.0), (51.0, 30.0)),
    ):
        assert (goal.text, goal.kept(*kept), goal.kept(*missed)) == (text, True, False)


def test_straight_line_code_agrees_with_kbo(device):
    for bench in {bench.measure: bench for bench in straight.BENCHES}.values():
        assert all(result.kbo > 0 for result in bench.run(device, quick=True))


@pytest.mark.thorough
@pytest.mark.keeps(
    "file .*pipe:",
    "multiprocessing keeps a pipe to its tracker of resources until the process ends",
)
def test_a_fresh_process_is_another_one():
    assert len(suite.BENCHES) > 40
    assert (
        Bench(measured, fresh=True).run(CPU)[1].kbo
        != os.getpid()
        == Bench(measured).run(CPU)[1].kbo
    )


@pytest.mark.thorough
def test_many_arms_joint_draws_and_streams_take_little_memory():
    for measure, n, most in ((sketch.best, 50_000, 60), (sketch.joint_draw, 30_000, 150)):
        _, memory = sketch.on_many_points(
            CPU, n, measure, ("{} arms", "arms"), (1.0, 1.0), on_threads=1
        )
        assert (
            memory.kbo < most
        )  # k(Z, x) of all arms would be 80 MB, the covariance of the candidates 7 GB
    (found,) = exact.memory(CPU, 2000, 100)
    assert 50 < found.other <= found.kbo + 20
