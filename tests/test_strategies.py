"""Strategies of the search: the order in which they are tried, and the explanation of a trial."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from gpytorch.kernels import MaternKernel

import kbo
from kbo.cli.app import app
from kbo.optimize import default_strategies
from kbo.optimize.search.search import Search
from kbo.optimize.strategies import Explanation, InitialDesign, Strategy, UpperBound
from kbo.optimize.strategies.expected_improvement import log_improvement
from kbo.report.record import Record
from kbo.space import Params
from tests.commands import CliRunner

LINE = {"x": (0.0, 1.0)}


class RepeatTheBest(Strategy):
    def propose(self, search: Search) -> Params | None:
        return search.best if search.number % 5 == 4 else None


def run(optimizer: kbo.Optimizer, n: int) -> kbo.Optimizer:
    for _ in range(n):
        params = optimizer.ask()
        optimizer.tell(params, 10 * (params["x"] - 0.3) ** 2)
    return optimizer


def test_a_strategy_of_ones_own_decides_where_it_applies():
    strategies = [RepeatTheBest(), InitialDesign(), UpperBound()]
    setting = kbo.Practical(noise_std=0.1, strategies=strategies)
    optimizer = run(kbo.Optimizer(LINE, setting=setting), 9)
    best = optimizer.recommended().params
    assert optimizer.ask() == best
    names = [optimizer.explain(number).strategy for number in range(10)]
    assert names[4] == names[9] == "RepeatTheBest"
    assert names[0] == "initial design"
    assert names[8] == UpperBound().describe()


def test_a_strategy_that_is_overruled_says_so():
    strategies = [RepeatTheBest(), InitialDesign(), UpperBound()]
    setting = kbo.Practical(noise_std=0.0, strategies=strategies)
    optimizer = run(kbo.Optimizer(LINE, setting=setting), 10)
    explanation = optimizer.explain(9)
    assert explanation.strategy == "RepeatTheBest"
    assert "had been tried, and the objective has no noise" in explanation.replaced
    assert "random, in place of" in str(explanation)
    tried = [trial.params for trial in optimizer.trials]
    assert tried.count(optimizer.trials[9].params) == 1


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize(
    "setting",
    [
        kbo.Practical(noise_std=0.1),
        kbo.Certified(MaternKernel(nu=2.5).double(), noise_std=0.1, norm_bound=20.0),
    ],
    ids=["practical", "certified"],
)
def test_the_numbers_of_an_explanation_are_those_that_were_compared(
    setting: kbo.Practical | kbo.Certified, maximize: bool
):
    sign = 1 if maximize else -1
    optimizer = run(kbo.Optimizer(LINE, setting=setting, maximize=maximize), 9)
    surrogate = optimizer.insight.surrogate()
    bound = surrogate.bound(9)
    best = (max if maximize else min)(trial.value for trial in optimizer.trials)
    params = optimizer.ask()
    explanation = optimizer.explain(9)

    features = optimizer.space.features(optimizer.space.unit(params).unsqueeze(0))
    mean, variance = bound.posterior.predict(features)
    upper = bound.confidence.upper(bound.posterior, features)
    low = float(surrogate.transform.inverse(mean - variance.sqrt()))
    high = float(surrogate.transform.inverse(mean + variance.sqrt()))
    assert explanation.mean == pytest.approx(
        sign * float(surrogate.transform.inverse(mean)), rel=1e-5, abs=1e-9
    )
    assert explanation.std == pytest.approx((high - low) / 2, rel=1e-5, abs=1e-9)
    assert explanation.width == pytest.approx(
        float((upper - mean) / variance.sqrt()), rel=1e-5, abs=1e-9
    )
    assert explanation.bound == pytest.approx(
        sign * float(surrogate.transform.inverse(upper)), rel=1e-5, abs=1e-9
    )
    assert explanation.best == pytest.approx(best, rel=1e-5)


def test_explanations_are_in_the_journal(tmp_path: Path):
    path = tmp_path / "run.jsonl"
    optimizer = run(kbo.Optimizer(LINE, journal=path, seed=2), 8)
    optimizer.tell({"x": 0.25}, 1.0)
    explanations = [optimizer.explain(number) for number in range(9)]
    optimizer.close()
    again = kbo.Optimizer(LINE, journal=path, seed=2)
    assert [again.explain(number) for number in range(9)] == explanations
    assert explanations[8] is None, "its parameters were given"
    with pytest.raises(kbo.InvalidInput, match="there is no trial 9"):
        again.explain(9)


def test_an_explanation_of_the_first_trials_has_no_surrogate():
    explanation = run(kbo.Optimizer(LINE), 1).explain(0)
    assert explanation.mean is None
    assert explanation.bound is None
    assert str(explanation) == "chosen by: initial design"


def test_expected_improvement_is_that_of_a_normal_distribution():
    mean = torch.tensor([0.2, 1.5, -3.0], dtype=torch.float64)
    std = torch.tensor([0.5, 0.1, 1.0], dtype=torch.float64)

    class Known:
        def predict(self, X):
            return mean, std.square()

    best = torch.tensor(0.4, dtype=torch.float64)
    z = (mean - best) / std
    normal = torch.distributions.Normal(torch.zeros_like(z), torch.ones_like(z))
    improvement = std * (z * normal.cdf(z) + normal.log_prob(z).exp())
    found = log_improvement(Known(), best, torch.empty(3, 1))
    constant = 0.5 * math.log(2 * math.pi)
    torch.testing.assert_close(found - constant, improvement.log(), rtol=1e-6, atol=1e-6)


def test_the_page_of_a_run_with_strategies_of_ones_own_has_its_bounds(tmp_path: Path):
    path = tmp_path / "run.jsonl"
    strategies = [RepeatTheBest(), *default_strategies()]
    setting = kbo.Practical(noise_std=0.1, strategies=strategies)
    optimizer = run(kbo.Optimizer(LINE, setting=setting, journal=path), 9)
    interval = optimizer.interval({"x": 0.3})
    optimizer.close()
    record = Record.of(path)
    assert record.obstacle == ""
    assert record.optimizer.interval({"x": 0.3}) == pytest.approx(interval)


def test_the_command_shows_one_trial_and_why_it_was_chosen(tmp_path: Path):
    path = tmp_path / "run.jsonl"
    optimizer = run(kbo.Optimizer(LINE, journal=path), 8)
    explanation = optimizer.explain(7)
    optimizer.close()
    shown = CliRunner().invoke(app, ["journal", "show", str(path), "--trial", "7"])
    assert shown.exit_code == 0
    assert "trial 7: complete" in shown.output
    assert explanation.strategy in shown.output
    refused = CliRunner().invoke(app, ["journal", "show", str(path), "--trial", "8"])
    assert "there is no trial 8" in str(refused.exception)


def test_numbers_that_are_not_finite_are_left_out_of_the_journal():
    explanation = Explanation("strategy", mean=math.inf, std=math.nan, best=1.0)
    assert explanation.record() == {"strategy": "strategy", "best": 1.0}
