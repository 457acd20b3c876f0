"""Strategies of the search: the order in which they are tried, and the explanation of a trial."""

import math
from types import SimpleNamespace

import pytest
import torch

import kbo
from kbo.optimize.strategies import (
    ExpectedImprovement,
    Explanation,
    InitialDesign,
    Repetition,
    Strategy,
    TrustRegion,
    UpperBoundPoint,
)
from kbo.optimize.strategies.without_noise import log_improvement
from kbo.report.record import Record
from tests.commands import kbo as command

LINE = {"x": (0.0, 1.0)}


class RepeatTheBest(Strategy):
    def propose(self, search):
        return search.best if search.number % 5 == 4 else None


OWN = [RepeatTheBest(), InitialDesign(), UpperBoundPoint()]


def run(n, **options):
    optimizer = kbo.Optimizer(LINE, **options)
    for _ in range(n):
        params = optimizer.ask()
        optimizer.tell(params, 10 * (params["x"] - 0.3) ** 2)
    return optimizer


def test_a_strategy_of_ones_own_decides_where_it_applies(tmp_path):
    path = tmp_path / "run.jsonl"
    optimizer = run(9, setting=kbo.Practical(noise_std=0.1, strategies=OWN), journal=path)
    best = optimizer.recommended().params
    assert optimizer.ask() == best
    names = [optimizer.explain(number).strategy for number in range(10)]
    assert names[4] == names[9] == "RepeatTheBest"
    assert names[0] == str(optimizer.explain(0)).removeprefix("chosen by: ") == "initial design"
    assert names[8] == UpperBoundPoint().describe()
    interval = optimizer.interval(best)
    optimizer.close()
    record = Record.of(path)  # a page needs no strategies
    assert record.obstacle == ""
    assert record.optimizer.interval(best) == pytest.approx(interval)


def test_a_result_says_in_words_how_the_last_trials_were_chosen():
    branches = [kbo.When("kind", "a", LINE), {"kind": ["a", "b"]}]
    bound = UpperBoundPoint().describe()
    cases = [
        (LINE, 0.1, "ucb", [bound, bound]),
        (
            LINE,
            0.0,
            "ucb; every second trial near the best one, ",
            [bound, TrustRegion().describe()],
        ),
        (branches, 0.0, "expected improvement", ["expected improvement"] * 2),
    ]
    for space, noise_std, words, strategies in cases:
        optimizer = kbo.Optimizer(space, setting=kbo.Practical(noise_std=noise_std))
        for _ in range(12):
            params = optimizer.ask()
            optimizer.tell(params, 10 * (params.get("x", 0.9) - 0.3) ** 2)
        surrogate = optimizer.insight.surrogate()
        search = optimizer.setting.describe_search(optimizer.method, optimizer.space, surrogate)
        assert search.startswith(words)
        assert [optimizer.explain(number).strategy for number in (10, 11)] == strategies


def test_a_strategy_that_is_overruled_says_so():
    optimizer = run(10, setting=kbo.Practical(noise_std=0.0, strategies=OWN))
    explanation = optimizer.explain(9)
    assert explanation.strategy == "RepeatTheBest"
    assert "had been tried, and the objective has no noise" in explanation.replaced
    tried = [trial.params for trial in optimizer.trials]
    assert tried.count(tried[9]) == 1


@pytest.mark.parametrize("maximize", [False, True])
def test_the_numbers_of_an_explanation_are_those_that_were_compared(maximize):
    sign = 1 if maximize else -1
    optimizer = run(8, setting=kbo.Practical(noise_std=0.1), maximize=maximize)
    surrogate = optimizer.insight.surrogate()
    bound = surrogate.bound(8)
    params = optimizer.ask()
    explanation = optimizer.explain(8)
    features = optimizer.space.features(optimizer.space.unit(params).unsqueeze(0))
    mean, variance = bound.posterior.predict(features)
    std = variance.sqrt()
    upper = bound.confidence.upper(bound.posterior, features)
    numbers = torch.cat([mean, upper, mean - std, mean + std])
    mean_value, bound_value, low, high = surrogate.transform.inverse(numbers).tolist()
    expected = {
        "mean": sign * mean_value,
        "std": (high - low) / 2,
        "width": float((upper - mean) / std),
        "bound": sign * bound_value,
        "best": sign * max(sign * trial.value for trial in optimizer.completed()),
    }
    found = {name: getattr(explanation, name) for name in expected}
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-9)


def test_an_explanation_has_the_width_that_its_strategy_took_and_a_repetition_has_none():
    optimizer = run(16)
    widths = {}
    for number in range(16):
        explanation = optimizer.explain(number)
        if explanation.mean is not None and not explanation.replaced:
            widths.setdefault(explanation.strategy, set()).add(explanation.width)
            assert (explanation.bound is None) == (explanation.width is None)
    rounded = {name: {w and round(w, 3) for w in found} for name, found in widths.items()}
    assert rounded == {
        Repetition().describe(): {None},
        TrustRegion().describe(): {0.25},
        UpperBoundPoint().describe(): {1.0, 4.0},
    }


def test_the_bound_that_another_strategy_maximised_is_shown_if_it_is_named():
    class Silent(Strategy):
        def propose(self, search):
            return UpperBoundPoint().propose(search)

    class Named(Silent):
        def confidence(self, search):
            return search.confidence

    bounds = []
    for strategy in (UpperBoundPoint(), Named(), Silent()):
        setting = kbo.Practical(noise_std=0.1, strategies=[InitialDesign(), strategy])
        bounds.append(run(9, setting=setting).explain(8).bound)
    assert bounds[0] == bounds[1] is not None
    assert bounds[2] is None


def test_explanations_are_in_the_journal_and_shown_by_the_command(tmp_path):
    path = tmp_path / "run.jsonl"
    optimizer = run(8, journal=path, seed=2)
    optimizer.tell({"x": 0.25}, 1.0)
    explanations = [optimizer.explain(number) for number in range(9)]
    optimizer.close()
    again = kbo.Optimizer(LINE, journal=path, seed=2)
    assert [again.explain(number) for number in range(9)] == explanations
    assert explanations[8] is None, "its parameters were given"
    with pytest.raises(kbo.InvalidInput, match="there is no trial 9"):
        again.explain(9)
    again.close()
    assert explanations[7].strategy in command("journal", "show", path, "--trial", 7).stdout


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


def test_an_improvement_counts_from_a_hundredth_of_a_standard_deviation_on():
    class Known:
        def predict(self, X):
            return X.squeeze(-1), torch.full((len(X),), 0.01, dtype=torch.float64)

    search = SimpleNamespace(
        bound=SimpleNamespace(posterior=Known()),
        is_noiseless=True,
        space=SimpleNamespace(conditions=True, continuous=True, features=lambda units: units),
        subspace=SimpleNamespace(partial=False),
        starts=torch.tensor([[0.4], [0.1]], dtype=torch.float64),
        argmax=lambda score: score,
    )
    score = ExpectedImprovement().propose(search)
    X = torch.tensor([[0.3], [0.41], [0.7]], dtype=torch.float64)
    best = torch.tensor(0.41, dtype=torch.float64)
    torch.testing.assert_close(score(X), log_improvement(Known(), best, X))


def test_the_gradient_of_expected_improvement_is_exact_for_certain_improvements_too():
    class Linear:
        def predict(self, X):
            return X.squeeze(-1), torch.ones(len(X), dtype=torch.float64)

    z = torch.tensor([[-3.0], [0.0], [4.9], [5.1], [38.0], [1e3]], dtype=torch.float64)
    z.requires_grad_()
    log_improvement(Linear(), torch.zeros((), dtype=torch.float64), z).sum().backward()
    normal = torch.distributions.Normal(torch.zeros_like(z), torch.ones_like(z))
    cdf = normal.cdf(z)
    expected = cdf / (z * cdf + normal.log_prob(z).exp())
    torch.testing.assert_close(z.grad, expected.detach(), rtol=1e-6, atol=0)


def test_numbers_that_are_not_finite_are_left_out_of_the_journal():
    explanation = Explanation("strategy", mean=math.inf, std=math.nan, best=1.0)
    assert explanation.record() == {"strategy": "strategy", "best": 1.0}


def test_the_initial_design_leaves_out_an_option_that_has_only_failed():
    space = [{"x": (0.0, 1.0), "k": ["a", "b"]}, kbo.When("k", "a", {"g": (0.0, 1.0)})]
    optimizer = kbo.Optimizer(space)
    same = kbo.Optimizer(space)  # without failures
    n_failed = 0
    for number in range(10):
        params = optimizer.ask()
        assert params["k"] == "a" or n_failed < 2 or number < 3
        if params["k"] == "b":
            optimizer.fail(params, "b needs another library")
            n_failed += 1
        else:
            optimizer.tell(params, params["g"])
        if n_failed < 2:
            assert same.ask() == params
    assert n_failed == 2


def test_the_first_trials_with_one_parameter_are_spread_over_its_range():
    for seed in range(20):
        optimizer = kbo.Optimizer([(0.0, 1.0)], seed=seed)
        points = sorted(point for (point,) in optimizer.ask(4))
        gaps = [after - before for before, after in zip([0, *points], [*points, 1], strict=True)]
        assert max(gaps) < 0.35
        assert min(gaps[1:-1]) > 0.1
