"""Error bars that come with values: how they weigh, and where they come from."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.kernels import RBFKernel

import kbo
from kbo.errors import InvalidInput
from kbo.optimize.surrogates.evaluation import Evaluation, noise_ratios

KERNEL = RBFKernel().double().initialize(lengthscale=0.3)
CERTIFIED = kbo.Certified(KERNEL, 0.2, 2.0)
LINE = {"x": (0.0, 1.0)}
POINTS = [(0.1, 1.0), (0.9, 0.7), (0.5, 0.4), (0.3, 0.2), (0.7, 0.5), (0.2, 0.6), (0.8, 0.3)]


def told(setting, values, **options):
    optimizer = kbo.Optimizer(LINE, setting=setting, **options)
    for x, value in values:
        optimizer.tell({"x": x}, value)
    return optimizer


@pytest.mark.parametrize(
    "setting",
    [
        kbo.Certified(KERNEL, 0.2, 2.0, completion_independent_of_noise=True),
        kbo.Practical(noise_std=0.2),
    ],
)
def test_a_mean_with_its_standard_error_is_its_repetitions(setting):
    """Four values at a point, with the noise given, say as much as their mean with half of the noise as its error."""
    four = [0.35, 0.45, 0.3, 0.5]
    single = told(setting, [*POINTS, *((0.4, y) for y in four)])
    mean = told(setting, [*POINTS, (0.4, (sum(four) / 4, {"sem": 0.1}))])
    posterior = mean.insight.surrogate().posterior
    if setting.certified:
        X = torch.linspace(0, 1, 9, dtype=torch.float64).unsqueeze(1)
        expected = torch.stack(single.insight.surrogate().posterior.predict(X))
        assert torch.allclose(torch.stack(posterior.predict(X)), expected, atol=1e-10)
        assert "weight" in mean.insight.surrogate().guarantee().text
    locations, counts = posterior.locations
    assert float(counts[locations[:, 0] == 0.4]) == pytest.approx(4.0)


def test_where_the_noise_is_fitted_half_the_median_variance_is_added_to_each():
    bars = [0.1, 0.2, 0.4, None]
    values = [Evaluation(i, (0.1 * i,), 0.0, error=bar) for i, bar in enumerate(bars)]
    expected = [(0.01 + 0.02) / 0.06, (0.04 + 0.02) / 0.06, (0.16 + 0.02) / 0.06, 1.0]
    assert noise_ratios(values, values, None).tolist() == pytest.approx(expected)


def test_certified_error_bars_of_nearly_none_are_small_ones_and_huge_ones_say_nothing():
    zero, small = (told(CERTIFIED, [*POINTS, (0.4, (0.4, {"sem": sem}))]) for sem in (0.0, 1e-4))
    assert zero.interval({"x": 0.4}) == small.interval({"x": 0.4})
    assert math.isfinite(zero.gap().value)
    values = [*POINTS, (0.6, (5.0, {"sem": 1e100}))]
    expected = told(CERTIFIED, POINTS).interval({"x": 0.6})
    assert told(CERTIFIED, values).interval({"x": 0.6}) == expected
    assert math.isfinite(told(None, values).interval({"x": 0.6})[1])


def test_a_lucky_value_with_a_large_error_bar_is_not_recommended():
    values = [(x, ((x - 0.4) ** 2, {"sem": 0.01})) for x in np.linspace(0, 1, 12).tolist()]
    optimizer = told(None, [*values, (0.95, (-0.5, {"sem": 2.0}))])
    assert abs(optimizer.recommended().params["x"] - 0.4) < 0.1
    assert "error bar" in optimizer.insight.report_surrogate().account()["noise"]
    believed = told(None, [*values, (0.95, -0.5)]).interval({"x": 0.95})
    assert believed[1] < optimizer.interval({"x": 0.95})[1]


def test_what_is_no_error_bar_is_a_failure_and_an_unknown_one_is_none():
    for sem in (-0.1, math.inf, 1e200, "small"):
        optimizer = told(None, [(0.5, (1.0, {"sem": sem}))])
        assert "standard error" in optimizer.trials[0].failure
    for sem in (None, math.nan):
        assert told(None, [(0.5, (1.0, {"sem": sem}))]).trials[0].measured == {}
    with pytest.raises(InvalidInput, match="standard error"):
        kbo.Constraint("sem", upper=1.0)


def test_runs_with_error_bars_continue_from_their_journal_and_from_tables(tmp_path):
    values = [(x, (y, {"sem": 0.02 + 0.2 * x})) for x, y in POINTS]
    journal = tmp_path / "run.jsonl"
    optimizer = told(None, values, journal=journal)
    optimizer.close()
    trials = optimizer.trials
    loaded = kbo.Optimizer(LINE)
    loaded.run.load(journal)
    table = pd.DataFrame([{**t.params, "value": t.value, **t.measured} for t in trials])
    known = kbo.Optimizer(LINE, evaluated=table)
    for again in (loaded, known):
        assert [t.measured for t in again.trials] == [t.measured for t in trials]
        assert again.suggest() == optimizer.suggest()
    assert kbo.audit(table).result.trials[3].measured == trials[3].measured
