"""Bandit problems: rewards against slow formulas, noise of the promised size, the same rounds for every method."""

import math

import networkx
import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes
from sklearn.gaussian_process.kernels import Matern
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import r2_score
from sklearn.preprocessing import minmax_scale

from experiments.problems import (
    BANDITS,
    Bump,
    Chessboard,
    GaussianProcessBandit,
    GraphBandit,
    StepDiagonal,
    StreamingBandit,
    TuningTable,
)
from kbo import bandit
from tests.dense import close
from tests.laws.states import seeded

TINY = {"n_lengthscales": 3, "n_ridges": 4, "n_splits": 3}
SIZES = {
    "tuning-table": TINY,
    "graphs": {"n_graphs": 100},
    "gp-draw": {"n_points": 100, "side": 4.0},
    "himmelblau": {"n_points": 100},
}


def tiny(name, seed=0, **options):
    return BANDITS[name](**SIZES.get(name, {}), **options, seed=seed)


@pytest.mark.parametrize("name", BANDITS)
def test_rounds_do_not_depend_on_earlier_choices_and_a_seed_makes_them(name):
    first, twin, other = (tiny(name, seed) for seed in (5, 5, 6))
    differs = False
    for t in range(8):
        arms = first.arms()
        assert torch.equal(arms, twin.arms())
        torch.manual_seed(t)  # the stream is its own
        reward = first.observe(arms[t % len(arms)].unsqueeze(0))
        twin.observe(arms[(3 * t + 1) % len(arms)].unsqueeze(0))  # the stream moves on as far
        differs |= float(other.observe(other.arms()[t % len(arms)].unsqueeze(0))) != float(reward)
    X = first.arms()
    assert torch.equal(X, twin.arms())
    close(first.observe(X), torch.cat([twin.observe(x) for x in X.split(1)]), 1e-13)
    assert differs, "another seed, the same problem"
    method = bandit.make("ay-gp-ucb", first.kernel, first.noise_std, first.norm_bound, 0.1)
    assert all(row["regret"] >= 0 for row in bandit.play(method, tiny(name), 5, 0))


LAWS = {  # the fourth moment, and a tail: P(|xi| > u)
    "gaussian": (3.0, 2.0, 0.0455),
    "rademacher": (1.0, 0.999, 1.0),
    "laplace": (6.0, 2.0, math.exp(-2 * math.sqrt(2))),
    "spikes": (50.0, 1e-9, 0.02),
}


@pytest.mark.parametrize("law", LAWS)
def test_noise_has_the_promised_size_and_shape(law):
    problems = [tiny("streaming", 4, noise_std=0.2, noise=law)]
    if law == "gaussian":
        names = ("bump", "chessboard", "step-diagonal", "gp-draw", "himmelblau", "graphs")
        problems += [tiny(name, 4, noise_std=0.2) for name in names]
    fourth, u, tail = LAWS[law]
    spread = 4 * math.sqrt((fourth - 1) / 50_000) + 1e-12
    for problem in problems:
        X = problem.arms()[:1].expand(50_000, -1)
        noise = (problem.observe(X) - problem.mean(X)) / 0.2
        assert float(noise.mean()) == pytest.approx(0, abs=0.02)
        assert float(noise.square().mean()) == pytest.approx(1, abs=spread)
        assert float(noise.pow(4).mean()) == pytest.approx(fourth, rel=0.1)
        assert float((noise.abs() > u).double().mean()) == pytest.approx(tail, rel=0.1)


CENTRE = [0.10854, 0.51165, 0.90977, 0.21838, 0.36310]
REWARDS = {  # at a context, of which the first number counts but for Bump, and an action
    Bump: [
        (CENTRE, 0.81, 1.0),
        (CENTRE, 0.31, 0.5),
        ([c + 0.1 for c in CENTRE], 0.81, 1 - 0.1 * 0.14157),
    ],
    Chessboard: [(0.25, 0.0, 1.0), (0.9, 0.5, 1.0), (0.1, 0.4, 0.5), (0.3, 0.3, 0.0)],
    StepDiagonal: [(0.5, 0.3, 1.0), (0.5, 0.6, 0.5), (0.5, 0.9, 0.0), (0.5, 0.24, 0.0)],
}


@pytest.mark.parametrize("kind", REWARDS)
def test_contextual_rewards_and_actions_are_the_papers(kind):
    problem = kind(seed=3)
    arms = problem.arms()
    assert arms[:, -1].tolist() == [0.08, 0.70, 0.82, 0.28, 0.63, 0.0, 0.05, 0.50, 0.81, 0.04]
    assert torch.equal(arms[:, :-1], problem.context.expand(10, -1))
    for context, action, reward in REWARDS[kind]:
        x = context if isinstance(context, list) else [context] * problem.context_dim
        found = problem.mean(torch.tensor([[*x, action]]).double())
        assert float(found) == pytest.approx(reward, abs=1e-6)


def test_the_tuning_table_is_that_of_scikit_learn_and_a_pull_is_one_of_its_splits():
    problem = TuningTable(**TINY)
    features, y = load_diabetes(return_X_y=True, scaled=False)
    X = minmax_scale(features)
    order = torch.randperm(442, generator=seeded(0)).numpy()
    train, test = order[:150], order[150:]
    centre = y[train].mean()
    smoothness = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5, "rbf": math.inf}
    for index in range(0, problem.n_arms, 5):
        setting = problem.setting(index)
        kernel = Matern(setting["lengthscale"], nu=smoothness[setting["kernel"]])
        model = KernelRidge(alpha=setting["ridge"], kernel="precomputed")
        model.fit(kernel(X[train]), y[train] - centre)
        score = r2_score(y[test], model.predict(kernel(X[test], X[train])) + centre)
        assert float(problem.values[0, index]) == pytest.approx(max(score, -1.0), abs=1e-5)
    arms = problem.arms()
    close(problem.mean(arms), problem.values.mean(0))
    pulls = problem.observe(arms[20:21].expand(3000, -1))
    assert set(pulls.tolist()) == set(problem.values[:, 20].tolist())


def features(x, order, rho=0.3):
    """``exp(-x^2 / 2 rho^2) (x / rho)^i / sqrt(i!)`` for i = 0 .. order - 1, [n order]."""
    rows = [[(v / rho) ** i / math.sqrt(math.factorial(i)) for i in range(order)] for v in x]
    return np.exp(-(np.asarray(x)[:, None] ** 2) / (2 * rho**2)) * np.array(rows)


def test_the_streaming_function_has_the_coordinates_of_the_paper_and_their_norm():
    problem = StreamingBandit(100, norm=2.06)
    theta = np.random.default_rng(12).standard_normal(25)
    theta *= 2.06 / np.sqrt(np.sum(theta**2))
    x = problem.arms().flatten().tolist()
    values = problem.mean(problem.arms())
    assert values.numpy() == pytest.approx(features(x, 25) @ theta, abs=1e-12)
    # The features are independent and sum to the kernel: the norm of the function is that of theta.
    gram = problem.kernel(problem.arms()).to_dense().numpy()
    assert gram == pytest.approx(features(x, 70) @ features(x, 70).T, abs=1e-12)
    assert float(problem.theta.norm()) == pytest.approx(2.06)
    assert float(values.max()) == pytest.approx(0.63, abs=0.005)  # the maximum of the paper


@pytest.mark.parametrize(("dim", "side", "lengthscale"), [(1, 20.0, 1.0), (3, 2.0, 2.0)])
def test_the_covariance_of_a_drawn_function_is_the_kernel(dim, side, lengthscale):
    """The function is linear in its coefficients, so its derivatives by them are its features."""
    problem = GaussianProcessBandit(5, side, lengthscale, dim)
    X = side * torch.rand(12, dim, generator=seeded(0), dtype=torch.float64)
    theta = problem.coefficients.requires_grad_()
    rows = [torch.autograd.grad(v, theta, retain_graph=True)[0] for v in problem.mean(X)]
    phi = torch.stack(rows).flatten(1)
    exact = torch.exp(-torch.cdist(X, X).square() / (2 * lengthscale**2))
    close(phi @ phi.T, exact, 1e-12)
    theta = theta.detach().flatten()
    close(problem.mean(X).detach(), phi @ theta, 1e-10)
    assert problem.norm_bound == pytest.approx(float(theta.norm()))


def test_the_graph_kernel_counts_equally_long_paths_and_rewards_have_its_features():
    problem = GraphBandit(15)
    arms = problem.arms()
    counts = torch.zeros(15, 20).double()
    for i in range(15):
        for source, lengths in networkx.all_pairs_shortest_path_length(problem.graph(i)):
            for target, length in lengths.items():
                counts[i, length] += source != target
    rows = counts / counts.norm(dim=-1, keepdim=True)
    close(problem.kernel(arms).to_dense(), rows @ rows.T, 1e-14)
    close(problem.mean(arms), arms @ problem.theta, 1e-14)
