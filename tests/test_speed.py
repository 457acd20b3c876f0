"""The benchmark measures honestly: it refuses a race between different answers and says when a goal is missed."""

import pytest
import torch

from kbo.experiments.bandits import BanditMethod, BanditProblem
from kbo.experiments.bench import exact as speed
from kbo.experiments.bench import noise as speed_noise
from kbo.experiments.bench import race as timing
from kbo.experiments.bench import sketch as speed_sketch


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


def test_a_stream_is_timed_early_and_late(monkeypatch):
    stream = BanditProblem("chessboard", rounds=100), BanditMethod("ek-ucb", ridge=10.0)
    monkeypatch.setitem(speed_sketch._STREAMS, "short", stream)
    total, early, late, peak = speed_sketch.stream("short")
    assert 0 < 100 * min(early, late) < 2 * total
    assert peak > 50


def test_many_arms_are_scored_in_little_memory():
    threads = torch.get_num_threads()
    wall, memory = speed_sketch.million(50_000, on_threads=1)
    assert wall > 0
    assert memory < 60  # k(Z, x) of all arms would be 80 MB
    assert torch.get_num_threads() == threads


def test_sketches_agree_with_inducing_points():
    rows = speed_sketch._inducing_points(torch.device("cpu"), quick=True)
    assert [row.goal for row in rows] == ["", ""]
    assert rows[0].ratio > 1


def test_a_figure_without_another_shows_no_ratio():
    text = timing.table([timing.least("x", 1, 2.0, 1.0)])
    assert "MISSED" in text
    assert "nan" not in text


def test_a_joint_draw_over_many_candidates_takes_little_memory():
    wall, memory = speed_noise.draw(30_000, on_threads=1)
    assert wall > 0
    assert memory < 150  # their covariance would be 7 GB


def test_adaptive_methods_are_timed():
    rows = speed_noise._adaptive(torch.device("cpu"), quick=True)
    rows += speed_noise._sketched(torch.device("cpu"), quick=True)
    assert len(rows) == 8
    assert all(row.kbo > 0 for row in rows)
