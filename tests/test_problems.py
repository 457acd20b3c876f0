"""Bandit problems: rewards against slow formulas, noise of the promised size, the same rounds for every method."""

import math

import networkx
import numpy as np
import pytest
import torch

from experiments.problems import (
    BANDITS,
    Bump,
    Chessboard,
    ClassificationBandit,
    GaussianProcessBandit,
    GraphBandit,
    HimmelblauBandit,
    RKHSBandit,
    StepDiagonal,
    StreamingBandit,
    TuningTable,
    shortest_path_features,
)
from experiments.problems.himmelblau import likeliest_lengthscale
from kbo import InvalidInput, bandit
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


def uniform(*shape):
    return torch.rand(*shape, generator=seeded(0), dtype=torch.float64)


# Every problem


@pytest.mark.parametrize("name", BANDITS)
def test_rounds_do_not_depend_on_earlier_choices_and_a_seed_makes_them(name):
    first, twin, other = (tiny(name, seed) for seed in (5, 5, 6))
    differs = False
    for t in range(15):
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


@pytest.mark.parametrize("name", BANDITS)
def test_no_reward_is_above_the_best_mean_and_an_arm_has_one_mean_in_every_batch(name):
    problem = tiny(name)
    numbers = problem.noise_std, problem.norm_bound, 0.1
    method = bandit.make("ay-gp-ucb", problem.kernel, *numbers)
    assert all(row["regret"] >= 0 for row in bandit.play(method, problem, 5, 0))
    arms = problem.arms()
    means = problem.mean(arms)
    assert len(arms) == len(means) == problem.n_arms
    one_by_one = torch.cat([problem.mean(x) for x in arms.split(1)])
    torch.testing.assert_close(one_by_one, means, rtol=0, atol=1e-14 if name == "streaming" else 0)


LAWS = {  # the fourth moment, and a tail: P(|xi| > u)
    "gaussian": (3.0, 2.0, 0.0455),
    "rademacher": (1.0, 0.999, 1.0),
    "laplace": (6.0, 2.0, math.exp(-2 * math.sqrt(2))),
    "spikes": (50.0, 1e-9, 0.02),
}
GAUSSIAN = ("bump", "chessboard", "step-diagonal", "gp-draw", "himmelblau", "graphs")


@pytest.mark.parametrize(
    ("name", "law"),
    [*((name, "gaussian") for name in GAUSSIAN), *(("streaming", law) for law in LAWS)],
)
def test_noise_has_the_promised_size_and_shape(name, law):
    options = {"noise": law} if name == "streaming" else {}
    problem = tiny(name, 4, noise_std=0.2, **options)
    fourth, u, tail = LAWS[law]
    X = problem.arms()[:1].expand(50_000, -1)
    noise = (problem.observe(X) - problem.mean(X)) / 0.2
    spread = 4 * math.sqrt((fourth - 1) / 50_000) + 1e-12
    assert float(noise.mean()) == pytest.approx(0, abs=0.02)
    assert float(noise.square().mean()) == pytest.approx(1, abs=spread)
    assert float(noise.pow(4).mean()) == pytest.approx(fourth, rel=0.1)
    assert float((noise.abs() > u).double().mean()) == pytest.approx(tail, rel=0.1)


# Contextual problems

CENTRE = [0.10854, 0.51165, 0.90977, 0.21838, 0.36310]
REWARDS = {  # at a context, of which the first number counts but for Bump, and an action
    Bump: [
        (CENTRE, 0.81, 1.0),
        (CENTRE, 0.31, 0.5),
        ([c + 0.1 for c in CENTRE], 0.81, 1 - 0.1 * 0.14157),
        ([1.0, 1.0, 0.0, 0.0, 0.0], 0.0, 0.0),
    ],
    Chessboard: [
        *((x, a, 1.0) for x, a in ((0.25, 0.0), (0.4, 0.6), (0.9, 0.5))),
        *((x, a, 0.5) for x, a in ((0.1, 0.4), (0.5, 0.25), (0.6, 0.9))),
        *((x, a, 0.0) for x, a in ((0.1, 0.1), (0.3, 0.3), (0.8, 0.9))),
    ],
    StepDiagonal: [(0.5, 0.3, 1.0), (0.5, 0.6, 0.5), (0.5, 0.9, 0.0), (0.5, 0.24, 0.0)],
}
ACTIONS = [0.08, 0.70, 0.82, 0.28, 0.63, 0.0, 0.05, 0.50, 0.81, 0.04]


@pytest.mark.parametrize("kind", REWARDS)
def test_contextual_rewards_actions_and_contexts_are_the_papers(kind):
    problem = kind(seed=3, lengthscale=0.2)
    dim = problem.context_dim
    first = problem.arms()
    arms = problem.arms()
    assert problem.actions.flatten().tolist() == ACTIONS
    assert torch.equal(arms, torch.cat([problem.context.expand(10, -1), problem.actions], -1))
    assert not torch.equal(first, arms)
    contexts = torch.stack([problem.arms()[0, :-1] for _ in range(1000)])
    assert contexts.mean(0) == pytest.approx(torch.full((dim,), 0.5), abs=0.04)
    assert contexts.std(0) == pytest.approx(torch.full((dim,), 12**-0.5), abs=0.03)
    for context, action, reward in REWARDS[kind]:
        x = context if isinstance(context, list) else [context] * dim
        found = problem.mean(torch.tensor([[*x, action]]).double())
        assert float(found) == pytest.approx(reward, abs=1e-6)
    expected = torch.exp(-torch.cdist(arms, arms).square() / (2 * 0.2**2))
    close(problem.kernel(arms).to_dense(), expected, 1e-6)


@pytest.mark.parametrize(("name", "shape"), [("digits", (1797, 10, 10)), ("wine", (178, 13, 3))])
def test_classification_rewards_are_flipped_labels(name, shape):
    problem = ClassificationBandit(name, flip=0.2, seed=1)
    examples, features, classes = shape
    assert problem.examples.shape == (examples, features)
    assert (float(problem.examples.min()), float(problem.examples.max())) == (0, 1)
    arms = problem.arms()
    assert arms.shape == (classes, features + classes)
    row = int((problem.examples == problem.context).all(-1).nonzero()[0])
    slow = [0.8 if c == int(problem.labels[row]) else 0.2 for c in range(classes)]
    assert problem.mean(arms).tolist() == pytest.approx(slow)
    rewards = problem.observe(arms.repeat(5000, 1))
    assert set(rewards.tolist()) == {0.0, 1.0}
    assert rewards.reshape(-1, classes).mean(0).tolist() == pytest.approx(slow, abs=0.03)
    assert problem.noise_std == 0.5


# The tuning table


def test_the_table_is_that_of_scikit_learn():
    from sklearn.datasets import load_diabetes
    from sklearn.gaussian_process.kernels import RBF, Matern
    from sklearn.kernel_ridge import KernelRidge
    from sklearn.metrics import r2_score
    from sklearn.preprocessing import minmax_scale

    problem = TuningTable(**TINY)
    features, y = load_diabetes(return_X_y=True, scaled=False)
    X = minmax_scale(features)
    order = torch.randperm(442, generator=seeded(0)).numpy()
    train, test = order[:150], order[150:]
    centre = y[train].mean()
    for index in range(0, problem.n_arms, 5):
        setting = problem.setting(index)
        scale = setting["lengthscale"]
        nu = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}.get(setting["kernel"])
        kernel = Matern(scale, nu=nu) if nu else RBF(scale)
        model = KernelRidge(alpha=setting["ridge"], kernel="precomputed")
        model.fit(kernel(X[train]), y[train] - centre)
        score = r2_score(y[test], model.predict(kernel(X[test], X[train])) + centre)
        assert float(problem.values[0, index]) == pytest.approx(max(score, -1.0), abs=1e-5)


def test_arms_of_the_table_are_its_settings_and_pulls_its_splits():
    problem = TuningTable(**TINY)
    arms = problem.arms()
    means = problem.values.mean(0)
    assert problem.n_arms == len(arms) == 4 * 3 * 4
    setting = problem.setting(20)
    one_hot = [name == setting["kernel"] for name in ("rbf", "matern52", "matern32", "matern12")]
    numbers = [math.log10(setting["lengthscale"]) + 1.5, math.log10(setting["ridge"]) + 6]
    expected = [*(bit / math.sqrt(2) for bit in one_hot), numbers[0] / 3, numbers[1] / 8]
    assert arms[20].tolist() == pytest.approx(expected)
    close(problem.mean(arms), means)
    pulls = problem.observe(arms[20:21].expand(3000, -1))
    assert set(pulls.tolist()) == set(problem.values[:, 20].tolist())
    spread = (problem.values - means).square().mean(0).sqrt()
    assert problem.noise_std == pytest.approx(float(spread[means >= means.max() / 2].max()))
    values = problem.values.clone()
    problem.values.zero_()  # a change of one problem stays there
    assert torch.equal(TuningTable(**TINY, seed=4).values, values)


# The streaming function, and draws of a Gaussian process


def features(x, order, rho=0.3):
    """``exp(-x^2 / 2 rho^2) (x / rho)^i / sqrt(i!)`` for i = 0 .. order - 1, [n order]."""
    rows = [[(v / rho) ** i / math.sqrt(math.factorial(i)) for i in range(order)] for v in x]
    return np.exp(-(np.asarray(x)[:, None] ** 2) / (2 * rho**2)) * np.array(rows)


@pytest.mark.parametrize(("norm", "n_arms"), [(2.06, 100), (7.0, 13)])
def test_the_streaming_function_has_the_coordinates_of_the_paper_and_their_norm(norm, n_arms):
    problem = StreamingBandit(n_arms, norm=norm)
    theta = np.random.default_rng(12).standard_normal(25)
    theta *= norm / np.sqrt(np.sum(theta**2))
    x = problem.arms().flatten().tolist()
    values = problem.mean(problem.arms())
    assert x == pytest.approx([i / (n_arms - 1) for i in range(n_arms)], abs=1e-15)
    assert values.numpy() == pytest.approx(features(x, 25) @ theta, abs=1e-12)
    # The features are independent and sum to the kernel: the norm of the function is that of theta.
    gram = problem.kernel(problem.arms()).to_dense().numpy()
    assert gram == pytest.approx(features(x, 70) @ features(x, 70).T, abs=1e-12)
    assert float(problem.theta.norm()) == pytest.approx(norm)
    assert problem.norm_bound == 5
    if n_arms == 100:  # the maximum of the paper
        assert float(values.max()) == pytest.approx(0.63, abs=0.005)
        assert x[int(values.argmax())] == pytest.approx(0.39, abs=0.005)


@pytest.mark.parametrize(
    ("dim", "side", "lengthscale"), [(1, 20.0, 1.0), (2, 3.0, 0.7), (3, 2.0, 2.0)]
)
def test_the_covariance_of_a_drawn_function_is_the_kernel(dim, side, lengthscale):
    """The function is linear in its coefficients, so its derivatives by them are its features."""
    problem = GaussianProcessBandit(5, side, lengthscale, dim)
    X = side * uniform(12, dim)
    theta = problem.coefficients.requires_grad_()
    rows = [torch.autograd.grad(v, theta, retain_graph=True)[0] for v in problem.mean(X)]
    phi = torch.stack(rows).flatten(1)
    exact = torch.exp(-torch.cdist(X, X).square() / (2 * lengthscale**2))
    close(phi @ phi.T, exact, 1e-12)
    close(problem.kernel(X).to_dense().detach(), exact, 1e-7)
    theta = theta.detach().flatten()
    close(problem.mean(X).detach(), phi @ theta, 1e-10)
    assert problem.norm_bound == pytest.approx(float(theta.norm()))


# Himmelblau's function


def test_himmelblau_is_standardised_and_of_its_four_optima_the_trend_makes_one_the_best():
    problem = HimmelblauBandit(20_000)
    axis = torch.linspace(-5, 5, 201).double()
    x, y = torch.cartesian_prod(axis, axis).T
    values = -((x**2 + y - 11) ** 2) - (x + y**2 - 7) ** 2 + 5.0 * (x + y)
    standardised = (values - values.mean()) / values.std(correction=0)
    close(problem.mean(torch.stack([x, y], -1)), standardised, 1e-6)
    arms = problem.arms()
    assert float(arms.abs().max()) <= 5
    assert arms[problem.mean(arms).argmax()].tolist() == pytest.approx([3, 2], abs=0.25)


def log_likelihood(X, y, noise_std, lengthscale):
    K = torch.exp(-torch.cdist(X, X).square() / (2 * lengthscale**2))
    law = torch.distributions.MultivariateNormal(0 * y, K + noise_std**2 * torch.eye(len(X)))
    return float(law.log_prob(y))


def test_the_lengthscale_is_the_likeliest():
    draw = GaussianProcessBandit(150, 10.0, 0.8, 2, noise_std=0.1)
    X = draw.arms()
    y = draw.observe(X)
    found = likeliest_lengthscale(X, y, 0.1)
    grid = np.geomspace(0.1, 10, 100)
    best = max(log_likelihood(X, y, 0.1, scale) for scale in grid)
    assert best <= log_likelihood(X, y, 0.1, found) <= best + 0.2
    assert found == pytest.approx(0.8, rel=0.25)
    problem = HimmelblauBandit(5)
    assert 0.1 <= problem.lengthscale <= 10
    assert float(problem.kernel.lengthscale) == pytest.approx(problem.lengthscale, rel=1e-6)


# Graphs


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


def test_features_count_ordered_pairs_of_any_small_graph():
    counts = torch.arange(18, 0, -1).double()
    for kind in (networkx.DiGraph, networkx.Graph):
        path = shortest_path_features(networkx.path_graph(19, create_using=kind))
        close(path, counts / counts.norm(), 1e-15)
    named = networkx.DiGraph([("a", "b"), ("b", "c"), ("c", "c")])
    named["a"]["b"]["weight"] = 7.0  # lengths are numbers of edges
    expected = [2 / math.sqrt(5), 1 / math.sqrt(5), 0]
    assert shortest_path_features(named)[:3].tolist() == pytest.approx(expected)


# Mistakes


def no_class():
    arms = ClassificationBandit("wine").arms()
    arms[0, -3:] = 0.5
    return arms


def play(first):
    problem = RKHSBandit()
    method = bandit.make("random", problem.kernel, 0.1, 1.0, 0.1)
    return next(bandit.play(method, problem, 2, first=first))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Chessboard(noise_std=-1.0), "noise_std"),
        (lambda: Chessboard().mean(uniform(3, 3)), "columns"),
        (lambda: ClassificationBandit("iris"), "unknown data set 'iris'.*digits"),
        (lambda: ClassificationBandit("wine").mean(uniform(2, 16)), "no example"),
        (lambda: ClassificationBandit("wine").mean(no_class()), "no class"),
        (lambda: TuningTable(**TINY).observe(uniform(1, 6)), "no arm"),
        (lambda: TuningTable(**TINY).setting(48), "0 to 47"),
        (lambda: play(first=100), "0 to 99"),
        (lambda: GaussianProcessBandit(dim=4), "dim must be a whole number from 1 to 3, got 4"),
        (
            lambda: GaussianProcessBandit(side=100.0, lengthscale=0.01),
            "features.*larger lengthscale",
        ),
        (lambda: tiny("gp-draw").mean(torch.full((1, 2), 4.1).double()), "outside.*0, 4"),
        (lambda: shortest_path_features(networkx.path_graph(20)), "at most 19 nodes, got 20"),
        (lambda: shortest_path_features(networkx.empty_graph(5)), "no edge"),
    ],
)
def test_mistakes_are_named(make, says):
    with pytest.raises(InvalidInput, match=says):
        make()
