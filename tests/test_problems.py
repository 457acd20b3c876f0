"""Bandit problems: rewards against slow formulas, noise of the promised size, the same rounds for every method."""

import itertools
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
    himmelblau,
    random_graphs,
    shortest_path_features,
)
from experiments.problems.himmelblau import likeliest_lengthscale
from kbo import InvalidInput, MissingExtra, bandit
from kbo.kernels import freeze

CONTEXTUAL = [Bump, Chessboard, StepDiagonal]
TINY = {"n_lengthscales": 3, "n_ridges": 4, "n_splits": 3}
SIZES = {
    "tuning-table": TINY,
    "graphs": {"n_graphs": 100},
    "gp-draw": {"n_points": 100, "side": 4.0},
    "himmelblau": {"n_points": 100},
}
GAUSSIAN = ("bump", "chessboard", "step-diagonal", "streaming", "gp-draw", "himmelblau", "graphs")


def tiny(name, seed=0, **options):
    return BANDITS[name](**SIZES.get(name, {}), **options, seed=seed)


def uniform(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# Every problem


@pytest.mark.parametrize("name", BANDITS)
def test_rounds_do_not_depend_on_earlier_choices_and_a_seed_makes_them(name):
    a, b, other = tiny(name, 5), tiny(name, 5), tiny(name, 6)
    rewards = []
    for t in range(15):
        first, second, third = a.arms(), b.arms(), other.arms()
        assert torch.equal(first, second)
        i, j = t % len(first), (3 * t + 1) % len(first)  # another arm: the stream moves on as far
        torch.manual_seed(t)  # the stream is its own
        rewards.append(
            [float(p.observe(arms[i : i + 1])) for p, arms in ((a, first), (other, third))]
        )
        b.observe(second[j : j + 1])
    X = a.arms()
    assert torch.equal(X, b.arms())
    assert torch.equal(a.mean(X), b.mean(X))
    torch.testing.assert_close(
        a.observe(X), torch.cat([b.observe(x) for x in X.split(1)]), rtol=0, atol=1e-13
    )
    assert any(first != second for first, second in rewards), "another seed, the same problem"


@pytest.mark.parametrize("name", BANDITS)
def test_no_reward_is_above_the_best_mean_and_an_arm_has_one_mean_in_every_batch(name):
    problem = tiny(name)
    for seed in range(2):
        method = bandit.make(
            "ay-gp-ucb", problem.kernel, problem.noise_std, problem.norm_bound, 0.1
        )
        assert all(row["regret"] >= 0 for row in bandit.play(method, problem, 10, seed))
    arms = problem.arms()
    means = problem.mean(arms)
    assert len(arms) == len(means) == problem.n_arms
    one_by_one = torch.cat([problem.mean(x) for x in arms.split(1)])
    torch.testing.assert_close(one_by_one, means, rtol=0, atol=1e-14 if name == "streaming" else 0)


@pytest.mark.parametrize("name", GAUSSIAN)
def test_noise_is_gaussian_of_the_promised_size(name):
    problem = tiny(name, 2, noise_std=0.3)
    X = problem.arms()[:1].expand(20_000, -1)
    noise = problem.observe(X) - problem.mean(X)
    assert float(noise.mean()) == pytest.approx(0, abs=4 * 0.3 / math.sqrt(20_000))
    assert float(noise.std()) == pytest.approx(0.3, rel=4 / math.sqrt(40_000))
    assert float((noise.abs() > 0.6).double().mean()) == pytest.approx(0.0455, abs=0.006)


# Contextual problems


def slow_reward(kind, x, a):
    if kind is Bump:
        w, centre = (
            (0.70995, 0.42278, -0.21411, -0.53740, -0.23965),
            (0.10854, 0.51165, 0.90977, 0.21838, 0.36310),
        )
        return max(
            0.0, 1 - abs(a - 0.81) - sum(p * (q - r) for p, q, r in zip(w, x, centre, strict=True))
        )
    if kind is Chessboard:
        cell = math.floor(4 * x[0]), math.floor(4 * a)
        return (
            1.0
            if cell in [(1, 0), (1, 2), (3, 2)]
            else 0.5
            if cell in [(0, 1), (2, 1), (2, 3)]
            else 0.0
        )
    return 1.0 if abs(x[0] - (a + 0.15)) < 0.1 else 0.5 if abs(x[0] - (a - 0.15)) < 0.1 else 0.0


@pytest.mark.parametrize("kind", CONTEXTUAL)
def test_contextual_rewards_actions_and_contexts_are_the_papers(kind):
    problem = kind(seed=3, lengthscale=0.2)
    first, arms = problem.arms(), problem.arms()
    assert problem.actions.flatten().tolist() == [
        0.08,
        0.70,
        0.82,
        0.28,
        0.63,
        0.0,
        0.05,
        0.50,
        0.81,
        0.04,
    ]
    assert torch.equal(arms, torch.cat([problem.context.expand(10, -1), problem.actions], -1))
    assert not torch.equal(first, arms)
    contexts = torch.stack([problem.arms()[0, :-1] for _ in range(1000)])
    assert contexts.mean(0) == pytest.approx(torch.full((problem.context_dim,), 0.5), abs=0.04)
    assert contexts.std(0) == pytest.approx(torch.full((problem.context_dim,), 12**-0.5), abs=0.03)
    grid = torch.cartesian_prod(
        *[torch.linspace(0, 1, 21, dtype=torch.float64)] * 2
    )  # edges of the cells too
    X = torch.cat([grid[:, :1].expand(-1, problem.context_dim), grid[:, 1:]], -1)
    X = torch.cat([X, uniform(50, X.shape[1])])
    slow = [slow_reward(kind, row[:-1], row[-1]) for row in X.tolist()]
    torch.testing.assert_close(
        problem.mean(X), torch.tensor(slow, dtype=torch.float64), rtol=0, atol=1e-12
    )
    expected = torch.exp(-torch.cdist(arms, arms).square() / (2 * 0.2**2))
    torch.testing.assert_close(problem.kernel(arms).to_dense(), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("name", "shape"), [("digits", (1797, 10, 10)), ("wine", (178, 13, 3))])
def test_classification_rewards_are_flipped_labels(name, shape):
    problem = ClassificationBandit(name, flip=0.2, seed=1)
    examples, features, classes = shape
    assert problem.examples.shape == (examples, features)
    assert (float(problem.examples.min()), float(problem.examples.max())) == (0, 1)
    for _ in range(10):
        arms = problem.arms()
        assert arms.shape == (classes, features + classes)
        row = int((problem.examples == problem.context).all(-1).nonzero()[0])
        slow = [0.8 if c == int(problem.labels[row]) else 0.2 for c in range(classes)]
        assert problem.mean(arms).tolist() == pytest.approx(slow)
    rewards = problem.observe(arms.repeat(5000, 1))
    assert set(rewards.tolist()) == {0.0, 1.0}
    torch.testing.assert_close(
        rewards.reshape(-1, classes).mean(0), problem.mean(arms), rtol=0, atol=0.03
    )
    assert problem.noise_std == 0.5


def test_classes_are_at_distance_one_and_the_kernel_is_a_product():
    problem = ClassificationBandit("wine", lengthscale=0.5, action_lengthscale=0.4)
    X, width = (
        torch.cat([problem.arms(), problem.arms()]),
        0.5 * float(torch.pdist(problem.examples).median()),
    )
    apart = torch.pdist(problem.actions)
    torch.testing.assert_close(apart, torch.ones_like(apart))
    features, classes = (torch.cdist(part, part).square() for part in X.split([13, 3], -1))
    slow = torch.exp(-features / (2 * width**2) - classes / (2 * 0.4**2))
    torch.testing.assert_close(problem.kernel(X).to_dense(), slow, rtol=1e-6, atol=1e-9)


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
    rng = torch.Generator().manual_seed(0)
    splits = [torch.randperm(442, generator=rng).numpy() for _ in range(3)]
    for index in range(0, problem.n_arms, 5):
        setting = problem.setting(index)
        nu = {"rbf": math.inf, "matern12": 0.5, "matern32": 1.5, "matern52": 2.5}[setting["kernel"]]
        kernel = (
            RBF(setting["lengthscale"]) if nu == math.inf else Matern(setting["lengthscale"], nu=nu)
        )
        for split, order in enumerate(splits):
            train, test = order[:150], order[150:]
            centre = y[train].mean()
            model = KernelRidge(alpha=setting["ridge"], kernel="precomputed").fit(
                kernel(X[train]), y[train] - centre
            )
            score = r2_score(y[test], model.predict(kernel(X[test], X[train])) + centre)
            assert float(problem.values[split, index]) == pytest.approx(max(score, -1.0), abs=1e-5)


def test_arms_of_the_table_are_their_settings_and_pulls_its_splits():
    problem, names = TuningTable(**TINY), ["rbf", "matern52", "matern32", "matern12"]
    arms, means = problem.arms(), problem.values.mean(0)
    assert problem.n_arms == len(arms) == 4 * 3 * 4
    for index, row in enumerate(arms.tolist()):
        setting = problem.setting(index)
        assert row[:4] == pytest.approx(
            [(setting["kernel"] == name) / math.sqrt(2) for name in names]
        )
        assert row[4] == pytest.approx((math.log10(setting["lengthscale"]) + 1.5) / 3)
        assert row[5] == pytest.approx((math.log10(setting["ridge"]) + 6) / 8)
    torch.testing.assert_close(problem.mean(arms), means)
    pulls = problem.observe(arms[20:21].expand(3000, -1))
    assert set(pulls.tolist()) == set(problem.values[:, 20].tolist())
    assert float(pulls.mean()) == pytest.approx(float(means[20]), abs=0.02)
    decent = [i for i in range(len(arms)) if means[i] >= means.max() / 2]
    spread = [float((problem.values[:, i] - means[i]).square().mean().sqrt()) for i in decent]
    assert problem.noise_std == pytest.approx(max(spread))
    values = problem.values.clone()
    problem.values.zero_()  # a change of one problem stays there
    assert torch.equal(TuningTable(**TINY, seed=4).values, values)


# The streaming function


def features(x, order, rho=0.3):
    """``exp(-x^2 / 2 rho^2) (x / rho)^i / sqrt(i!)`` for i = 0 .. order - 1, [n order]."""
    rows = [[(v / rho) ** i / math.sqrt(math.factorial(i)) for i in range(order)] for v in x]
    return np.exp(-(np.asarray(x)[:, None] ** 2) / (2 * rho**2)) * np.array(rows)


@pytest.mark.parametrize(("norm", "n_arms"), [(2.06, 100), (7.0, 13)])
def test_the_streaming_function_is_that_of_its_coordinates(norm, n_arms):
    problem = StreamingBandit(n_arms, norm=norm)
    theta = np.random.default_rng(12).standard_normal(25)
    theta *= norm / np.sqrt(np.sum(theta**2))
    x, values = problem.arms().flatten().tolist(), problem.mean(problem.arms())
    assert x == pytest.approx([i / (n_arms - 1) for i in range(n_arms)], abs=1e-15)
    assert values.numpy() == pytest.approx(features(x, 25) @ theta, abs=1e-12)
    assert problem.norm_bound == 5
    if n_arms == 100:  # the maximum of the paper
        assert float(values.max()) == pytest.approx(0.63, abs=0.005)
        assert x[int(values.argmax())] == pytest.approx(0.39, abs=0.005)


def test_the_norm_of_the_streaming_function_is_that_of_its_coordinates():
    """The features sum to the kernel and are independent: so it is the norm of theta, and of the least interpolant."""
    problem, x = StreamingBandit(), np.linspace(0, 1, 41)
    phi = features(x, 70)
    gram = problem.kernel(torch.tensor(x).unsqueeze(-1)).to_dense().numpy()
    assert gram == pytest.approx(phi @ phi.T, abs=1e-12)
    assert float(problem.theta.norm()) == pytest.approx(2.06)
    # The least interpolant at ever more points has a norm that rises to that of the function.
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(60):
        points = [mpmath.mpf(i) / 12 for i in range(-24, 25)]
        rho, theta = mpmath.mpf(3) / 10, [mpmath.mpf(float(v)) for v in problem.theta]
        K = mpmath.matrix(
            [[mpmath.exp(-((a - b) ** 2) / (2 * rho**2)) for b in points] for a in points]
        )
        sums = [
            mpmath.fsum(
                c * (v / rho) ** i / mpmath.sqrt(mpmath.factorial(i)) for i, c in enumerate(theta)
            )
            for v in points
        ]
        f = mpmath.matrix(
            [mpmath.exp(-(v**2) / (2 * rho**2)) * s for v, s in zip(points, sums, strict=True)]
        )
        square = float((f.T * mpmath.lu_solve(K, f))[0])
    assert 2.06 * (1 - 1e-4) < math.sqrt(square) < 2.06 * (1 + 1e-12)


LAWS = {  # the fourth moment, and a tail: P(|xi| > u)
    "gaussian": (3.0, 2.0, 0.0455),
    "rademacher": (1.0, 0.999, 1.0),
    "laplace": (6.0, 2.0, math.exp(-2 * math.sqrt(2))),
    "spikes": (50.0, 1e-9, 0.02),
}


@pytest.mark.parametrize("noise", LAWS)
def test_streaming_noise_has_the_promised_size_and_shape(noise):
    problem, (fourth, u, tail) = StreamingBandit(noise=noise, noise_std=0.2, seed=4), LAWS[noise]
    X = problem.arms()[30:31].expand(50_000, -1)
    draws = (problem.observe(X) - problem.mean(X)) / 0.2
    assert float(draws.mean()) == pytest.approx(0, abs=0.02)
    assert float(draws.square().mean()) == pytest.approx(
        1, abs=4 * math.sqrt((fourth - 1) / 50_000) + 1e-12
    )
    assert float(draws.pow(4).mean()) == pytest.approx(fourth, rel=0.1)
    assert float((draws.abs() > u).double().mean()) == pytest.approx(tail, rel=0.1)


# Draws of a Gaussian process


@pytest.mark.parametrize(
    ("dim", "side", "lengthscale"), [(1, 20.0, 1.0), (2, 3.0, 0.7), (3, 2.0, 2.0)]
)
def test_the_covariance_of_the_function_is_the_kernel(dim, side, lengthscale):
    """The function is linear in its coefficients, so its derivatives by them are its features."""
    problem = GaussianProcessBandit(5, side, lengthscale, dim)
    X = side * uniform(12, dim)
    problem.coefficients.requires_grad_()
    rows = [
        torch.autograd.grad(value, problem.coefficients, retain_graph=True)[0]
        for value in problem.mean(X)
    ]
    phi = torch.stack(rows).flatten(1)
    exact = torch.exp(-torch.cdist(X, X).square() / (2 * lengthscale**2))
    torch.testing.assert_close(phi @ phi.T, exact, rtol=0, atol=1e-12)
    torch.testing.assert_close(freeze(problem.kernel, X)(X, X), exact, rtol=0, atol=1e-12)
    values = phi @ problem.coefficients.detach().flatten()
    torch.testing.assert_close(problem.mean(X).detach(), values, rtol=0, atol=1e-10)
    assert problem.norm_bound == pytest.approx(float(problem.coefficients.detach().norm()))


def test_coefficients_of_draws_are_standard_normal_numbers():
    theta = torch.stack(
        [GaussianProcessBandit(1, dim=1, seed=seed).coefficients for seed in range(200)]
    )
    for power, moment, spread in ((1, 0, 1), (2, 1, 2), (4, 3, 96)):
        assert float(theta.pow(power).mean()) == pytest.approx(
            moment, abs=4 * math.sqrt(spread / theta.numel())
        )
    correlations = torch.corrcoef(theta.T)
    assert float(correlations.tril(-1).square().sum()) == pytest.approx(
        len(correlations) ** 2 / 2 / 199, rel=0.1
    )


def test_arms_of_a_draw_are_uniform_and_no_part_of_the_function():
    problem, fewer = (GaussianProcessBandit(n, 5.0, 1.0, 2) for n in (20_000, 10))
    assert 0 <= float(problem.arms().min()) < float(problem.arms().max()) <= 5
    assert problem.arms().mean(0).tolist() == pytest.approx([2.5, 2.5], abs=0.05)
    assert problem.arms().std(0).tolist() == pytest.approx([5 / math.sqrt(12)] * 2, abs=0.03)
    torch.testing.assert_close(
        fewer.mean(problem.arms()), problem.mean(problem.arms()), rtol=0, atol=1e-12
    )


# Himmelblau's function


def test_himmelblau_is_standardised_and_of_its_four_optima_the_trend_makes_one_the_best():
    problem, axis = HimmelblauBandit(20_000), np.linspace(-5, 5, 201)
    x, y = (v.ravel() for v in np.meshgrid(axis, axis, indexing="ij"))
    values = -((x**2 + y - 11) ** 2) - (x + y**2 - 7) ** 2 + 5.0 * (x + y)
    ours = problem.mean(torch.from_numpy(np.stack([x, y], -1)))
    assert ours.numpy() == pytest.approx((values - values.mean()) / values.std(), abs=1e-12)
    optima = torch.tensor(
        [[3.0, 2.0], [-2.805118, 3.131312], [-3.779310, -3.283186], [3.584428, -1.848126]]
    ).double()
    level = HimmelblauBandit(50, 1e-9).mean(optima)
    torch.testing.assert_close(level, level[:1].expand(4), rtol=0, atol=1e-8)
    arms, means = problem.arms(), problem.mean(problem.arms())
    assert float(arms.abs().max()) <= 5
    near = torch.cdist(arms, optima).argmin(-1)
    best = [float(means[near == i].max()) for i in range(4)]
    assert best[0] > max(best[1:]) + 2 * problem.noise_std
    assert arms[means.argmax()].tolist() == pytest.approx([3, 2], abs=0.25)


def slow_log_likelihood(X, y, noise_std, lengthscale):
    squares = ((X[:, None] - X[None]) ** 2).sum(-1)
    covariance = np.exp(-squares / (2 * lengthscale**2)) + noise_std**2 * np.eye(len(X))
    return -y @ np.linalg.solve(covariance, y) / 2 - np.linalg.slogdet(covariance)[1] / 2


def test_the_lengthscale_is_the_likeliest(monkeypatch):
    asked = []
    monkeypatch.setattr(
        himmelblau, "likeliest_lengthscale", lambda *a: asked.append(a) or likeliest_lengthscale(*a)
    )
    problem = HimmelblauBandit(1000, noise_std=0.1)
    ((X, y, noise_std),) = asked
    assert len({tuple(x) for x in X.tolist()} & {tuple(x) for x in problem.arms().tolist()}) == 100
    assert float((y - problem.mean(X)).std()) == pytest.approx(0.1, rel=0.3)
    grid = np.geomspace(0.1, 10, 200)
    likelihoods = [slow_log_likelihood(X.numpy(), y.numpy(), noise_std, scale) for scale in grid]
    ours = slow_log_likelihood(X.numpy(), y.numpy(), noise_std, problem.lengthscale)
    assert max(likelihoods) <= ours <= max(likelihoods) + 0.2
    assert float(problem.kernel.lengthscale) == pytest.approx(problem.lengthscale, rel=1e-6)
    assert 0.1 <= HimmelblauBandit(5).lengthscale <= 10
    draw = GaussianProcessBandit(150, 10.0, 0.8, 2, noise_std=0.1)
    assert likeliest_lengthscale(draw.arms(), draw.observe(draw.arms()), 0.1) == pytest.approx(
        0.8, rel=0.25
    )


# Graphs


def slow_lengths(graph):
    """Lengths of all shortest paths between different nodes, by Floyd and Warshall's triple loop."""
    nodes = list(graph)
    far = {(a, b): 1 if graph.has_edge(a, b) else math.inf for a in nodes for b in nodes}
    for c, a, b in itertools.product(nodes, repeat=3):
        far[a, b] = min(far[a, b], far[a, c] + far[c, b])
    return [far[a, b] for a in nodes for b in nodes if a != b and far[a, b] < math.inf]


def test_the_graph_kernel_counts_equally_long_paths():
    problem = GraphBandit(15)
    arms, paths = problem.arms(), [slow_lengths(problem.graph(i)) for i in range(15)]
    counts = np.array(
        [[sum(a == b for a in p for b in q) for q in paths] for p in paths], dtype=float
    )
    exact = counts / np.sqrt(np.outer(counts.diagonal(), counts.diagonal()))
    assert problem.kernel(arms).to_dense().numpy() == pytest.approx(exact, abs=1e-14)
    assert freeze(problem.kernel, arms)(arms[3:4], arms).numpy() == pytest.approx(
        exact[3:4], abs=1e-14
    )


def test_random_graphs_are_small_directed_and_differ_in_density():
    graphs = random_graphs(400, 3)
    assert all(type(graph) is networkx.DiGraph for graph in graphs)
    assert {len(graph) for graph in graphs} == set(range(5, 20))
    assert all(
        graph.number_of_edges() and not networkx.number_of_selfloops(graph) for graph in graphs
    )
    densities = [networkx.density(graph) for graph in graphs if len(graph) > 12]
    assert min(densities) < 0.1 < 0.45 < max(densities)
    assert sum(any(not graph.has_edge(b, a) for a, b in graph.edges) for graph in graphs) > 350


def test_arms_are_graphs_that_seeds_share_and_those_that_look_alike_are_worth_the_same():
    problem, other = GraphBandit(300, graph_seed=3), GraphBandit(300, graph_seed=3, seed=1)
    groups: dict = {}
    for index, (graph, row) in enumerate(zip(random_graphs(300, 3), problem.arms(), strict=True)):
        assert set(problem.graph(index).edges) == set(graph.edges)
        assert torch.equal(shortest_path_features(graph), row)
        groups.setdefault(tuple(row.tolist()), []).append(index)
    alike = [group for group in groups.values() if len({len(problem.graph(i)) for i in group}) > 1]
    assert alike, "no two graphs of different size share their features"
    means = problem.mean(problem.arms())
    assert all(len(set(means[group].tolist())) == 1 for group in alike)
    arms = problem.arms().clone()
    problem.arms().zero_()
    assert torch.equal(other.arms(), arms)
    assert not torch.equal(GraphBandit(300, graph_seed=4).arms(), arms)


def test_rewards_of_graphs_are_draws_of_the_process():
    problems = [GraphBandit(30, seed=seed) for seed in range(300)]
    arms, thetas = (
        problems[0].arms()[[0, 10, 20, 29]],
        torch.stack([problem.theta for problem in problems]),
    )
    assert float(thetas.mean()) == pytest.approx(0, abs=4 / math.sqrt(thetas.numel()))
    assert float(thetas.square().mean()) == pytest.approx(1, abs=4 * math.sqrt(2 / thetas.numel()))
    values = torch.stack([problem.mean(arms) for problem in problems])
    torch.testing.assert_close(values, thetas @ arms.T, rtol=0, atol=1e-14)
    assert float(thetas.norm(dim=-1).max()) < problems[0].norm_bound


def test_features_count_ordered_pairs_of_any_small_graph():
    path = shortest_path_features(networkx.path_graph(19, create_using=networkx.DiGraph))
    counts = torch.arange(18, 0, -1, dtype=torch.float64)
    torch.testing.assert_close(path, counts / counts.norm(), rtol=0, atol=1e-15)
    torch.testing.assert_close(
        shortest_path_features(networkx.path_graph(19)), path, rtol=0, atol=1e-15
    )
    named = networkx.DiGraph([("a", "b"), ("b", "c"), ("c", "c")])
    named["a"]["b"]["weight"] = 7.0  # lengths are numbers of edges
    assert shortest_path_features(named)[:3].tolist() == pytest.approx(
        [2 / math.sqrt(5), 1 / math.sqrt(5), 0]
    )


# The game, and mistakes


def no_class():
    arms = ClassificationBandit("wine").arms()
    arms[0, -3:] = 0.5
    return arms


def play(first):
    problem = RKHSBandit()
    return next(
        bandit.play(bandit.make("random", problem.kernel, 0.1, 1.0, 0.1), problem, 2, first=first)
    )


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


def test_a_missing_library_is_named(monkeypatch):
    for module, make in (
        ("sklearn", ClassificationBandit),
        ("sklearn.datasets", lambda: TuningTable(2, 2, 2)),
    ):
        monkeypatch.setitem(__import__("sys").modules, module, None)
        with pytest.raises(MissingExtra, match=r"sklearn: pip install 'kbo\[cli\]'"):
            make()
