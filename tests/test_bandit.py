"""Policies meet problems: reproducible, paired, ordered as the theory says."""

import math

import pytest
import torch

from kbo import InvalidInput, bandit, recipes
from kbo.problems import RKHSBandit, ackley, branin, hartmann6, stationary_kernel


def play(name, rounds=60, seed=0, **options):
    problem = RKHSBandit(seed=seed, **options)
    numbers = {"scale": problem.scale(rounds), "horizon": rounds, "n_points": problem.n_arms, "noise_upper": 1.0}
    method = recipes.make(name, problem.kernel, 0.1, 10.0, 0.01, **numbers)
    return list(bandit.play(method, problem, rounds, seed))


def test_the_function_has_the_norm_it_promises_and_noise_of_the_right_size():
    problem = RKHSBandit("matern32", 0.3, dim=2, norm=7.0, seed=1)
    gram = problem.kernel(problem.centres).to_dense()
    assert float(problem.weights @ gram @ problem.weights) == pytest.approx(49.0)
    X = problem.arms()[:1].expand(20_000, 2)
    assert float((problem.observe(X) - problem.mean(X)).std()) == pytest.approx(0.1, rel=0.03)


def test_methods_meet_the_same_function_arms_and_noise():
    a, b = RKHSBandit(seed=5), RKHSBandit(seed=5)
    b.observe(a.arms()[3:4])
    a.observe(b.arms()[:1])
    assert torch.equal(a.arms(), b.arms())
    x = torch.rand(4, 3, dtype=torch.float64)
    assert torch.equal(a.mean(x), b.mean(x))
    assert torch.equal(a.observe(x), b.observe(x))


@pytest.mark.parametrize("name", recipes.names())
def test_every_recipe_plays_and_regret_is_tidy(name):
    rows = play(name, 30)
    assert [row["round"] for row in rows] == list(range(1, 31))
    assert all(row["regret"] >= 0 for row in rows)
    assert rows[-1]["cumulative"] == pytest.approx(sum(row["regret"] for row in rows))
    assert [row["regret"] for row in play(name, 30)] == [row["regret"] for row in rows]


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("name", recipes.names())
def test_a_method_chooses_alike_on_every_device(device, name, fixed):
    plays = []
    for at in (device, None):
        problem = RKHSBandit(seed=1, fixed=fixed)
        numbers = {"scale": 1.0, "horizon": 12, "n_points": problem.n_arms, "noise_upper": 1.0}
        method = recipes.make(name, problem.kernel, 0.1, 10.0, 0.01, **numbers)
        gaps = {"gap_every": 6} if fixed and method.has_bounds else {}
        plays.append(bandit.play(method, problem, 12, initial=3, device=at, **gaps))
    for row, other in zip(*plays, strict=True):
        assert row["arm"] == other["arm"]
        assert row.get("gap", 0.0) == pytest.approx(other.get("gap", 0.0))


def test_tighter_bounds_have_less_regret_in_the_papers_order():
    order = ["dmm-ucb", "amm-ucb", "ay-gp-ucb", "igp-ucb", "random"]
    end = [sum(play(name, 150, s)[-1]["cumulative"] for s in range(2)) for name in order]
    assert end == sorted(end)


def test_tracked_arms_choose_as_untracked_ones():
    problem = RKHSBandit(fixed=True, seed=2)
    arms = problem.fixed_arms
    rows = play("amm-ucb", 80, 2, fixed=True)
    problem.fixed_arms, problem.arms = None, lambda: arms
    method = recipes.make("amm-ucb", problem.kernel, 0.1, 10.0, 0.01)
    assert [r["regret"] for r in bandit.play(method, problem, 80, 2)] == [r["regret"] for r in rows]


def test_unknown_recipe_names_the_near_ones():
    with pytest.raises(InvalidInput, match="did you mean 'amm-ucb'"):
        recipes.make("amm_ucb", stationary_kernel("rbf", 0.5), 0.1, 1.0, 0.1)


@pytest.mark.parametrize("make", [branin, hartmann6, ackley])
def test_synthetic_problems_have_their_optimum_and_their_noise(make):
    problem = make(noise_std=0.2, seed=0)
    params = problem.function.optimizers[0].tolist()
    assert problem.noiseless(params) == pytest.approx(problem.optimum, abs=1e-4)
    values = torch.tensor([problem(params) for _ in range(2000)])
    assert float(values.std()) == pytest.approx(0.2, rel=0.1)
    assert make(noise_std=0.2, seed=0)(params) == pytest.approx(float(values[0]))


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ({"arms": lambda: torch.zeros(0, 2)}, r"arms\(\) must return arms \[A d\], at least one, got \(0, 2\)"),
        ({"arms": lambda: torch.zeros(5)}, r"got \(5,\)"),
        ({"arms": lambda: None}, "got NoneType"),
        ({"mean": lambda X: torch.tensor(1.0)}, r"mean must return \[100\] mean rewards"),
        ({"mean": lambda X: None}, "got NoneType"),
        ({"mean": lambda X: torch.full((len(X),), math.nan)}, "finite"),
    ],
)
@pytest.mark.parametrize("initial", [0, 2])
def test_mistakes_in_a_problem_are_named(broken, says, initial):
    problem = RKHSBandit()
    vars(problem).update(broken)
    method = recipes.make("random", problem.kernel, 0.1, 1.0, 0.1)
    with pytest.raises(InvalidInput, match=says):
        list(bandit.play(method, problem, 3, initial=initial))
