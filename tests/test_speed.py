"""The benchmark measures honestly: it refuses a race between different answers and says when a goal is missed."""

import pytest
import torch

from kbo.experiments.bandits import BanditMethod, BanditProblem
from kbo.experiments.bench import acquisition, arithmetic, exact, race, sketch, suite
from kbo.experiments.bench.race import Bench, Goal, Result

CPU = torch.device("cpu")


def answer(value, work=0):
    def run():
        for _ in range(work):
            torch.ones(64, 64) @ torch.ones(64, 64)
        return torch.full((2,), value), torch.ones(2)

    return run


def speed(device):
    found = race.medians(device, fast=answer(1.0), slow=answer(1.0, work=2000))
    return [
        Result("a", found["fast"], found["slow"], Goal(1 / 2)),
        Result("b [x]", found["slow"], found["fast"], Goal(1 / 2)),
        Result("c", found["fast"]),
    ]


def where_it_ran(device):
    import os

    return [Result("process", os.getpid())]


def test_a_race_between_different_answers_is_refused():
    race.agree(answer(1.0), answer(1.0), lambda: torch.tensor([[1.0], [1.0], [1.0], [1.0]]))
    with pytest.raises(AssertionError):
        race.agree(answer(1.0), answer(2.0))


def test_the_slower_side_loses_and_the_table_says_so():
    won, lost, alone = Bench(speed).run(CPU)
    assert won.passed
    assert not lost.passed
    assert won.ratio > 2 > lost.ratio
    lines = race.table([won, lost, alone]).splitlines()
    assert lines[1].endswith("at least 2 times faster  passed")
    assert lines[2].startswith("b [x] ")
    assert lines[2].endswith("MISSED")
    assert "nan" not in lines[3]
    assert [result.passed for result in Bench(speed).run(CPU, quick=True)] == [None] * 3


@pytest.mark.parametrize(
    ("goal", "text", "kept", "missed"),
    [
        (Goal(1), "no slower", (1.0, 1.0), (1.1, 1.0)),
        (Goal(1 / 3000), "at least 3000 times faster", (1.0, 3000.1), (1.1, 3000.0)),
        (Goal(more=2.0), "at most 2 s", (2.0, 0.0), (2.1, 9.0)),
        (Goal(1.5), "at most 1.5 times", (1.5, 1.0), (1.6, 1.0)),
        (Goal(1, 20, "MB"), "at most 20 MB more", (50.0, 30.0), (51.0, 30.0)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_goals(goal, text, kept, missed):
    assert goal.text == text
    assert goal.kept(*kept)
    assert not goal.kept(*missed)


@pytest.mark.keeps("file .*pipe:", "multiprocessing keeps a pipe to its tracker of resources until the process ends")
def test_a_fresh_process_is_another_one():
    import os

    (here,), (elsewhere,) = (Bench(where_it_ran, fresh=fresh).run(CPU) for fresh in (False, True))
    assert here.kbo == os.getpid() != elsewhere.kbo


def test_there_are_many_benchmarks_and_only_some_are_quick():
    assert len(suite.BENCHES) > 50
    left_out = [bench for bench in suite.BENCHES if bench.quick is None]
    assert {b.measure for b in left_out} == {acquisition.steps, exact.new_row, sketch.short_run, sketch.long_run}
    assert left_out[-1].run(CPU, quick=True) == []


def test_straight_line_code_agrees_with_kbo(device):
    for bench in {bench.measure: bench for bench in arithmetic.BENCHES}.values():
        assert all(result.kbo > 0 for result in bench.run(device, quick=True))


def test_memory_of_a_stream_is_measured():
    (found,) = exact.memory(CPU, 2000, 100)
    assert 50 < found.other <= found.kbo + 20


def test_a_stream_is_timed_early_and_late():
    problem, method = BanditProblem("chessboard"), BanditMethod("ek-ucb", ridge=10.0)
    total, step, memory = sketch.long_run(CPU, 100, problem, method, "Chessboard")
    assert total.name == "100 rounds of ek-ucb on Chessboard, CPU"
    assert 0 < 100 * min(step.kbo, step.other) < 2 * total.kbo
    assert memory.kbo > 50


def test_many_arms_are_scored_in_little_memory():
    threads = torch.get_num_threads()
    seconds, memory = sketch.on_many_points(CPU, 50_000, sketch.best, ("{} arms", "arms"), (1.0, 1.0), on_threads=1)
    assert seconds.name == "50000 arms, two threads, wall clock"
    assert seconds.kbo > 0
    assert memory.kbo < 60  # k(Z, x) of all arms would be 80 MB
    assert torch.get_num_threads() == threads


def test_a_joint_draw_over_many_candidates_takes_little_memory():
    seconds, memory = sketch.on_many_points(CPU, 30_000, sketch.joint_draw, ("", ""), (1.0, 1.0), on_threads=1)
    assert seconds.kbo > 0
    assert memory.kbo < 150  # their covariance would be 7 GB


def test_sketches_agree_with_inducing_points():
    batch, _ = sketch.inducing_points(CPU, 500, 30, 20, 10)
    assert batch.other > batch.kbo


def test_adaptive_methods_are_timed():
    results = [
        result
        for bench in suite.BENCHES
        if bench.measure in (sketch.adaptive_run, sketch.adaptive_sketch)
        for result in bench.run(CPU, quick=True)
    ]
    assert len(results) == 8
    assert all(result.kbo > 0 for result in results)
