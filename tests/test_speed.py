"""The benchmark refuses a race between different answers, and says when a goal is missed; nothing here is timed."""

import pytest
import torch

from experiments.bench import race, straight
from experiments.bench.operations import Operations
from experiments.bench.race import Bench, Goal, Result

CPU = torch.device("cpu")


def test_a_race_between_different_answers_is_refused():
    def answer(value):
        return lambda: (torch.full((2,), value), torch.ones(2))

    race.agree(answer(1.0), answer(1.0), lambda: torch.ones(4, 1))
    with pytest.raises(AssertionError):
        race.agree(answer(1.0), answer(2.0))


def test_the_slower_side_loses_and_the_table_says_so():
    goal = Goal(1 / 2)
    times = [Result("a", 1.0, 3.0, goal), Result("b [x]", 2.0, 1.0, goal), Result("c", 1.0)]
    results = Bench(lambda device: times).run(CPU)
    assert [result.passed for result in results] == [True, False, None]
    lines = race.table(results).splitlines()
    assert lines[1].endswith("at least 2 times faster  passed")
    assert lines[2].endswith("MISSED")
    memory = Goal(1, 20, "MB")
    assert memory.kept(50.0, 30.0)
    assert not memory.kept(51.0, 30.0)


def test_straight_line_code_agrees_with_kbo(device):
    smallest = {bench.measure: bench for bench in reversed(straight.BENCHES)}
    for bench in smallest.values():
        assert all(result.kbo > 0 for result in bench.run(device, quick=True))


def test_operations_are_counted_as_by_hand():
    A = torch.ones(3, 4)
    B = torch.ones(4, 5)
    with Operations(CPU) as counted:
        C = A @ B
        positive = C > 0
        C.add_(1)
        C[positive]
        float(C[0, 0])
    kernels = [(kernel.name, kernel.flops, kernel.bytes) for kernel in counted.kernels]
    assert kernels == [
        ("mm", 120.0, 188),
        ("gt", 15.0, 75),
        ("add_", 15.0, 60),
        ("index", 15.0, 135),
    ]
    assert sorted(name for name, _ in counted.syncs) == ["_local_scalar_dense", "index"]
    assert not counted.uploads
