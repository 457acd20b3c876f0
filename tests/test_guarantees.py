"""The studies measure what they say: a bound that fails is seen to fail, and honest ones hold; reduced in size."""

import pytest
import torch

from experiments.guarantees.draws import compared
from experiments.guarantees.widths import KERNELS
from experiments.papers import mixture as guarantees
from experiments.papers import streaming
from tests.parts import once


def test_no_bound_fails_in_a_short_run_and_one_that_fails_is_seen_to_fail(monkeypatch):
    (row,) = guarantees.watch(0, 30)
    failed = {name: value for name, value in row.items() if name.startswith("failed")}
    assert len(failed) == 8
    assert not any(failed.values())
    monkeypatch.setattr(guarantees, "squared_radius", lambda *_: torch.zeros(()))
    monkeypatch.setattr(guarantees, "norm_lower_bound", lambda *_: torch.tensor(6.0))
    (row,) = guarantees.watch(0, 10)
    assert row["failed: f in the mixture's set"]
    assert row["failed: norm lower bound"]


def test_the_simple_regret_is_within_the_gap():
    rows = guarantees.play_with_gap("cmm-ucb", seed=0, rounds=25)
    assert all(0 <= row["simple_regret"] <= row["gap"] for row in rows)
    assert rows[-1]["gap"] < rows[0]["gap"]


@pytest.mark.parametrize("form", once(["tight+grid", "paper", "mixture, sketched"]))
def test_noise_bounds_and_their_envelopes_hold(form):
    for noise in ("gaussian", "rademacher"):
        (row,) = streaming.watch(form, noise, 7, 80, 0.3)
        assert not any(row[name] for name in streaming.FAILURES)
        assert 0.01 < row["lower"] < 0.1 < row["upper"] <= 0.3
        assert 0 < row["closest"] < 1


@pytest.mark.parametrize("form", ["tight+grid", "mixture"])
def test_a_noise_level_above_its_bound_is_refuted(form):
    (row,) = streaming.watch(form, "gaussian", 0, 300, 0.05)
    assert row["upper < sigma"]
    assert row["refuted"]
    assert row["ended"] < 300


@pytest.mark.parametrize("name", KERNELS)
def test_the_mixture_over_draws_is_narrowest_once_there_are_data_or_within_a_per_cent(name):
    for halves in compared(name, 1000, (20, 60)).values():
        mixture = halves["mixture"]
        assert mixture < min(0.95 * halves["quantile"], 1.01 * halves["prior-posterior ratio"])
        assert halves["quantile"] < halves["paper"]
