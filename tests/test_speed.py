"""The benchmark measures honestly: it refuses a race between different answers and says when a goal is missed."""

import pytest
import torch

from kbo.experiments import speed, timing


def answer(value, work=0):
    def run():
        for _ in range(work):
            torch.ones(64, 64) @ torch.ones(64, 64)
        return torch.full((2,), value), torch.ones(2)

    return run


def test_a_race_between_different_answers_is_refused():
    with pytest.raises(AssertionError):
        timing.race("x", 1, answer(1.0), answer(2.0), 1, torch.device("cpu"))


def test_the_slower_side_loses_and_the_table_says_so():
    fast, slow, cpu = answer(1.0), answer(1.0, work=2000), torch.device("cpu")
    won, lost = timing.race("a", 1, fast, slow, 2, cpu), timing.race("b", 1, slow, fast, 2, cpu)
    assert won.passed
    assert not lost.passed
    assert won.ratio > 2 > lost.ratio
    assert "passed" in timing.table([won, lost])
    assert "MISSED" in timing.table([won, lost])


def test_memory_of_a_stream_is_measured():
    half, full = speed.stream("cpu")
    assert 50 < half <= full + 20
