"""The studies measure what they say: a bound that fails is seen to fail, and honest ones hold; reduced in size."""

import pytest
import torch

from experiments.guarantees.draws import compared
from experiments.guarantees.widths import KERNELS
from experiments.papers import mixture as guarantees
from experiments.papers import streaming
from experiments.problems import RKHSBandit
from kbo.confidence import FixedWidth, SelfNormalized
from kbo.regression import KernelRidge


def test_no_bound_fails_in_a_short_run():
    (row,) = guarantees.watch(0, 30)
    failed = {name: value for name, value in row.items() if name.startswith("failed")}
    assert len(failed) == 8
    assert not any(failed.values())


def test_a_bound_that_fails_is_seen_to_fail(monkeypatch):
    monkeypatch.setattr(guarantees, "squared_radius", lambda *_: torch.zeros(()))
    monkeypatch.setattr(guarantees, "norm_lower_bound", lambda *_: torch.tensor(6.0))
    (row,) = guarantees.watch(0, 10)
    assert row["failed: f in the mixture's set"]
    assert row["failed: norm lower bound"]


def test_a_band_that_is_too_narrow_is_outside():
    problem = RKHSBandit(fixed=True, seed=1)
    X = problem.fixed_arms
    state = KernelRidge(problem.kernel, 0.01)
    state.update(X[:20], problem.observe(X[:20]))
    assert guarantees._outside(FixedWidth(0.01), state, X, problem.mean(X))
    assert not guarantees._outside(SelfNormalized(0.1, 10.0, 0.1), state, X, problem.mean(X))


def test_the_simple_regret_is_within_the_gap():
    rows = guarantees.play_with_gap("cmm-ucb", seed=0, rounds=25)
    assert [row["round"] for row in rows] == [5, 10, 15, 20, 25]
    assert all(0 <= row["simple_regret"] <= row["gap"] for row in rows)
    assert rows[-1]["gap"] < rows[0]["gap"]


def test_the_sketch_study_orders_the_bounds():
    (table,) = guarantees.sketch(quick=True).tables.values()
    widths = table(None)
    assert len(widths) == 3
    assert (widths["exact cmm"] < widths["exact dmm"]).all()
    assert (widths["exact cmm"] <= widths["m = 20"]).all()
    assert (widths["m = 20"] <= widths["m = 10"]).all()


@pytest.mark.parametrize("form", ["paper", "tight+grid", "mixture, sketched"])
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
    assert not row["lower > sigma"]
    assert row["ended"] < 300


@pytest.mark.parametrize("name", KERNELS)
def test_the_mixture_over_draws_is_narrowest_once_there_are_data_or_within_a_per_cent(name):
    for halves in compared(name, 1000, (20, 60)).values():
        assert halves["mixture"] < min(
            0.95 * halves["quantile"], 1.01 * halves["prior-posterior ratio"]
        )
        assert halves["quantile"] < halves["paper"]
