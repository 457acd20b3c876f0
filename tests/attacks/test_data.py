"""Values, files and reports of every kind: each is kept exactly, or refused with the reason."""

import decimal
import json
import math

import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.kernels import MaternKernel

import kbo
from kbo.optimize.journal import read

UNIT = {"x": (0.0, 1.0)}


@pytest.mark.parametrize(
    "value",
    [
        np.ma.masked,
        np.ma.array([2.0], mask=[True])[0],
        np.ma.array([2.0], mask=[True]),
        np.ma.array(2.0, mask=True),
        pd.NA,
        pd.NaT,
        np.datetime64("NaT"),
        np.float32("nan"),
        torch.tensor(math.nan),
        decimal.Decimal("NaN"),
        decimal.Decimal("sNaN"),
    ],
)
def test_a_missing_value_fails_the_trial(value):
    optimizer = kbo.Optimizer(UNIT, method="random", constraints=[kbo.Constraint("memory", upper=1.0)])
    for returned in ((value, {"memory": 0.5}), (0.5, {"memory": value})):
        trial = optimizer.tell(optimizer.ask(), returned)
        assert trial.status == "failed"
        assert trial.failure
        assert "memory" not in trial.measured or trial.value is None


def test_a_masked_measurement_is_no_kept_limit():
    kernel = MaternKernel(nu=2.5).double()
    optimizer = kbo.Optimizer(
        {"x": kbo.Int(0, 4)},
        setting=kbo.Safe(kernel, noise_std=0.1, norm_bound=2.0, start=[{"x": 0}]),
        constraints=[kbo.Constraint("heat", upper=1.0, noise_std=0.1, norm_bound=2.0)],
    )
    trial = optimizer.tell(optimizer.ask(), (1.0, {"heat": np.ma.masked}))
    assert trial.status == "failed"
    assert "heat" not in trial.measured


@pytest.mark.parametrize("workers", [None, kbo.Threads(2)])
@pytest.mark.parametrize("kind", ["surrogate", "long name", "many names", "no text and no value", "huge step"])
def test_what_a_journal_cannot_hold_fails_its_trial_and_the_run_goes_on(tmp_path, kind, workers):
    def objective(params, trial):
        if trial.number == 0:
            if kind == "huge step":
                trial.report(2**60, 1.0)
            measured = {
                "surrogate": {"\ud800": 1.0},
                "long name": {"m" * 1_100_000: 1.0},
                "many names": {f"layer {i}": 1.0 for i in range(60_000)},
            }
            if kind in measured:
                return 1.0, measured[kind]
            return {"\ud800": 1.0}
        return params["x"]

    path = tmp_path / "run.jsonl"
    for n_trials in (3, 4):
        result = kbo.minimize(objective, UNIT, n_trials, method="random", journal=path, workers=workers)
    assert [trial.status for trial in result.trials] == ["failed", "complete", "complete", "complete"]
    assert result.trials[0].failure
    kbo.Optimizer(UNIT, method="random").load(path)


def test_a_measurement_that_a_journal_cannot_hold_is_refused_without_one_too(tmp_path):
    optimizer = kbo.Optimizer(UNIT, method="random")
    trial = optimizer.tell(optimizer.ask(), (1.0, {"\ud800": 1.0}))
    assert "cannot be recorded" in trial.failure
    with pytest.raises(kbo.InvalidInput, match="cannot hold"):
        optimizer.fail(optimizer.ask(), "broken", measured={"\ud800": 1.0})
    optimizer.save(tmp_path / "run.jsonl")


@pytest.mark.parametrize(
    ("low", "high", "step"), [(0.0, 1.0, 1e-11), (1e9, 1e9 + 1.0, 1e-6), (-1e-3, 0.0, 1e-14), (1e15, 1e15 + 1e3, 0.5)]
)
def test_a_step_below_the_resolution_is_refused(low, high, step):
    with pytest.raises(kbo.InvalidInput, match="below the resolution"):
        kbo.Float(low, high, step=step)


@pytest.mark.parametrize(
    ("low", "high", "step"),
    [
        (0.0, 1.0, 1e-9),
        (0.1 + 0.2, 0.1 + 1.2, 0.25),
        (1.0 + 2e-16, 2.0 + 2e-16, 0.1),
        (-1e6, 1e6, 0.01),
        (0.0, 1e4, 1e-4),
    ],
)
def test_every_point_of_a_grid_is_accepted(low, high, step):
    grid = kbo.Float(low, high, step=step)
    n = len(grid.options)
    for i in {0, 1, n // 3, n // 2, n - 2, n - 1}:
        value = grid.options[i]
        assert grid.plain(value) == value
        assert grid.value(grid.unit(value)) == value


def test_a_pruned_trial_keeps_what_it_measured(tmp_path):
    class Second:
        def should_stop(self, trial, trials, maximize):
            return trial.number == 1

    def objective(params, trial):
        trial.report(0, 1.0)
        trial.report(1, 1.0) if trial.number == 0 else None
        return (math.nan, {"memory": 7.0, "text": "x"}) if trial.should_stop() else (params["x"], {"memory": 5.0})

    path = tmp_path / "run.jsonl"
    result = kbo.minimize(objective, UNIT, 3, method="random", journal=path, pruner=Second())
    assert [trial.status for trial in result.trials] == ["complete", "pruned", "complete"]
    assert result.trials[1].measured == {"memory": 7.0}
    assert [trial.measured for trial in result.optimizer.trials] == [{"memory": m} for m in (5.0, 7.0, 5.0)]
    again = kbo.Optimizer(UNIT, method="random")
    again.load(path)
    assert again.trials[1].measured == {"memory": 7.0}
    assert result.to_frame()["measured.memory"].tolist() == [5.0, 7.0, 5.0]
    assert any(event.get("measured") == {"memory": 7.0} for event in map(json.loads, path.read_text().splitlines()))
    assert read(path)[1] == again.events
