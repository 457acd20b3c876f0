"""The benchmark refuses a race between different answers, and says when a goal is missed; nothing here is timed."""

import pytest
import torch

from experiments.bench import race, straight
from experiments.bench.race import Bench, Goal, Result

CPU = torch.device("cpu")


def answer(value):
    return lambda: (torch.full((2,), value), torch.ones(2))


def measured(device):
    goal = Goal(1 / 2)
    return [Result("a", 1.0, 3.0, goal), Result("b [x]", 2.0, 1.0, goal), Result("c", 1.0)]


def test_a_race_between_different_answers_is_refused():
    race.agree(answer(1.0), answer(1.0), lambda: torch.ones(4, 1))
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


@pytest.mark.parametrize(
    ("goal", "text", "kept", "missed"),
    [
        (Goal(1), "no slower", (1.0, 1.0), (1.1, 1.0)),
        (Goal(1 / 3000), "at least 3000 times faster", (1.0, 3000.1), (1.1, 3000.0)),
        (Goal(more=2.0), "at most 2 s", (2.0, 0.0), (2.1, 9.0)),
        (Goal(1.5), "at most 1.5 times", (1.5, 1.0), (1.6, 1.0)),
        (Goal(1, 20, "MB"), "at most 20 MB more", (50.0, 30.0), (51.0, 30.0)),
    ],
)
def test_a_goal_says_what_keeps_it(goal, text, kept, missed):
    assert (goal.text, goal.kept(*kept), goal.kept(*missed)) == (text, True, False)


def test_straight_line_code_agrees_with_kbo(device):
    smallest = {bench.measure: bench for bench in reversed(straight.BENCHES)}
    for bench in smallest.values():
        assert all(result.kbo > 0 for result in bench.run(device, quick=True))
