"""Draws of Gaussian processes, Himmelblau's function and random graphs: against slow formulas and their own laws."""

import itertools
import math

import networkx
import numpy as np
import pytest
import torch

from kbo import InvalidInput
from kbo.kernels import PrecomputedKernel, freeze
from kbo.problems import (
    GaussianProcessBandit,
    GraphBandit,
    HimmelblauBandit,
    himmelblau,
    random_graphs,
    shortest_path_features,
)
from kbo.problems.gaussian_process import fourier_features
from kbo.problems.himmelblau import likeliest_lengthscale

SMALL = {
    GaussianProcessBandit: {"n_points": 300, "side": 4.0},
    HimmelblauBandit: {"n_points": 300},
    GraphBandit: {"n_graphs": 300},
}
OPTIMA = [[3.0, 2.0], [-2.805118, 3.131312], [-3.779310, -3.283186], [3.584428, -1.848126]]


def small(kind, **settings):
    return kind(**SMALL[kind], **settings)


def uniform(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("kind", SMALL)
def test_an_arm_has_one_mean_in_every_batch(kind):
    problem = small(kind)
    arms, means = problem.arms(), problem.mean(problem.arms())
    assert arms is problem.fixed_arms
    assert (len(arms), arms.dtype, means.shape) == (problem.n_arms, torch.float64, (problem.n_arms,))
    assert torch.equal(problem.mean(arms.clone()), means)
    assert torch.equal(problem.mean(arms.flip(0)), means.flip(0))
    assert torch.equal(torch.cat([problem.mean(x) for x in arms.split(1)]), means)
    assert problem.mean(arms[:0]).shape == (0,)


@pytest.mark.parametrize("kind", SMALL)
def test_noise_is_gaussian_and_the_same_for_all_choices_and_batches(kind):
    problem, twin, other = (small(kind, noise_std=0.3, seed=seed) for seed in (2, 2, 3))
    arms = problem.arms()
    X = arms[torch.arange(20_000) % 300]
    noise = problem.observe(X) - problem.mean(X)
    torch.manual_seed(99)  # the stream is its own
    elsewhere = twin.arms()[torch.arange(7, 57)]
    portions = torch.cat([twin.observe(x) for x in elsewhere.split([1, 2, 20, 27])])
    torch.testing.assert_close(portions - twin.mean(elsewhere), noise[:50], rtol=0, atol=1e-13)
    assert float(noise.mean()) == pytest.approx(0, abs=4 * 0.3 / math.sqrt(20_000))
    assert float(noise.std()) == pytest.approx(0.3, rel=4 / math.sqrt(40_000))
    assert float((noise.abs() > 0.6).double().mean()) == pytest.approx(0.0455, abs=0.006)
    assert float((other.observe(other.arms()[:1]) - other.mean(other.arms()[:1])) - noise[0]) != 0


@pytest.mark.parametrize("kind", SMALL)
def test_a_seed_makes_the_problem(kind):
    first, twin, other = (small(kind, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.arms(), twin.arms())
    assert torch.equal(first.mean(first.arms()), twin.mean(twin.arms()))
    assert torch.equal(first.arms(), other.arms()) == (kind is GraphBandit)
    assert not torch.equal(first.mean(first.arms()), other.mean(other.arms()))
    assert not first.norm_is_known


@pytest.mark.parametrize(("side", "lengthscale"), [(20.0, 1.0), (3.0, 0.2), (1.0, 5.0), (50.0, 0.7)])
def test_inner_products_of_the_features_are_the_kernel(side, lengthscale):
    x = torch.cat([torch.tensor([0.0, side], dtype=torch.float64), side * uniform(200)])
    phi = fourier_features(x, side, lengthscale)
    exact = torch.exp(-((x.unsqueeze(-1) - x) ** 2) / (2 * lengthscale**2))
    torch.testing.assert_close(phi @ phi.T, exact, rtol=0, atol=1e-12)
    assert phi.shape[-1] == 1 + 2 * math.ceil(8.5 * (side / lengthscale + 8.5) / (2 * math.pi))


@pytest.mark.parametrize(
    ("dim", "side", "lengthscale"), [(1, 20.0, 1.0), (2, 20.0, 1.0), (2, 3.0, 0.7), (3, 1.0, 0.3), (3, 2.0, 2.0)]
)
def test_the_covariance_of_the_function_is_the_kernel(dim, side, lengthscale):
    """The function is linear in its coefficients, so its derivatives by them are its features."""
    problem = GaussianProcessBandit(5, side, lengthscale, dim)
    X = side * uniform(12, dim)
    problem.coefficients.requires_grad_()
    rows = [torch.autograd.grad(value, problem.coefficients, retain_graph=True)[0] for value in problem.mean(X)]
    phi = torch.stack(rows).flatten(1)
    exact = torch.exp(-torch.cdist(X, X).square() / (2 * lengthscale**2))
    torch.testing.assert_close(phi @ phi.T, exact, rtol=0, atol=1e-12)
    torch.testing.assert_close(freeze(problem.kernel, X)(X, X), exact, rtol=0, atol=1e-12)
    values = phi @ problem.coefficients.detach().flatten()
    torch.testing.assert_close(problem.mean(X).detach(), values, rtol=0, atol=1e-10)
    assert problem.norm_bound == pytest.approx(float(problem.coefficients.norm()))


@pytest.mark.parametrize(("dim", "count", "draws"), [(1, 12, 500), (2, 40, 150)])
def test_whitened_draws_are_independent_standard_normal_numbers(dim, count, draws):
    X = 20 * uniform(count, dim, seed=1)
    values = torch.stack([GaussianProcessBandit(1, dim=dim, seed=seed).mean(X) for seed in range(draws)])
    root = torch.linalg.cholesky(torch.exp(-torch.cdist(X, X).square() / 2) + 1e-10 * torch.eye(count).double())
    white = torch.linalg.solve_triangular(root, values.T, upper=False).T
    n = white.numel()
    assert float(white.mean()) == pytest.approx(0, abs=4 / math.sqrt(n))
    assert float(white.square().mean()) == pytest.approx(1, abs=4 * math.sqrt(2 / n))
    assert float(white.pow(4).mean()) == pytest.approx(3, abs=4 * math.sqrt(96 / n))
    correlations = white.T @ white / draws - torch.eye(count)
    assert float(correlations.tril(-1).abs().max()) < 4.5 / math.sqrt(draws)
    assert float(correlations.tril(-1).square().sum() * draws / (count * (count - 1) / 2)) < 1.25


def test_arms_and_function_are_uniform_in_the_box_and_independent_streams():
    problem = GaussianProcessBandit(20_000, 5.0, 1.0, 2)
    assert float(problem.arms().min()) >= 0
    assert float(problem.arms().max()) <= 5
    assert problem.arms().mean(0).tolist() == pytest.approx([2.5, 2.5], abs=0.05)
    assert problem.arms().std(0).tolist() == pytest.approx([5 / math.sqrt(12)] * 2, abs=0.03)
    mixed = torch.cat([problem.arms()[:3], torch.tensor([[0.0, 5.0]]).double()])
    assert torch.equal(problem.mean(mixed)[:3], problem.mean(problem.arms())[:3])
    fewer = GaussianProcessBandit(10, 5.0, 1.0, 2)
    assert torch.equal(fewer.coefficients, problem.coefficients)
    torch.testing.assert_close(fewer.mean(problem.arms()), problem.mean(problem.arms()), rtol=0, atol=1e-12)


def slow_himmelblau(x, y, trend=5.0):
    return -((x**2 + y - 11) ** 2) - (x + y**2 - 7) ** 2 + trend * (x + y)


@pytest.mark.parametrize("trend", [5.0, 1.0])
def test_himmelblau_is_standardised_whatever_the_arms(trend):
    problem = HimmelblauBandit(50, trend)
    axis = np.linspace(-5, 5, 201)
    x, y = (v.ravel() for v in np.meshgrid(axis, axis, indexing="ij"))
    values = slow_himmelblau(x, y, trend)
    X = torch.from_numpy(np.stack([x, y], -1))
    ours = problem.mean(X)
    assert ours.numpy() == pytest.approx((values - values.mean()) / values.std(), abs=1e-12)
    assert (float(ours.mean()), float(ours.std(correction=0))) == pytest.approx((0, 1), abs=1e-12)
    assert float(HimmelblauBandit(60, trend, seed=4).mean(X[:1])) == float(ours[0])
    assert float(problem.arms().abs().max()) <= 5


def test_himmelblau_has_four_optima_of_which_the_trend_makes_one_the_best():
    optima = torch.tensor(OPTIMA, dtype=torch.float64)
    level, tilted = HimmelblauBandit(20_000, 1e-9), HimmelblauBandit(20_000)
    values = level.mean(optima)
    torch.testing.assert_close(values, values[:1].expand(4), rtol=0, atol=1e-8)
    assert float(level.mean(level.arms()).max()) <= float(values.max()) + 1e-8
    arms, means = tilted.arms(), tilted.mean(tilted.arms())
    near = torch.cdist(arms, optima).argmin(-1)
    best = [float(means[near == i].max()) for i in range(4)]
    assert best[0] > max(best[1:]) + 2 * tilted.noise_std
    assert int((means == means.max()).sum()) == 1
    assert arms[means.argmax()].tolist() == pytest.approx([3, 2], abs=0.25)


def slow_log_likelihood(X, y, noise_std, lengthscale):
    squares = ((X[:, None] - X[None]) ** 2).sum(-1)
    covariance = np.exp(-squares / (2 * lengthscale**2)) + noise_std**2 * np.eye(len(X))
    return -y @ np.linalg.solve(covariance, y) / 2 - np.linalg.slogdet(covariance)[1] / 2


@pytest.mark.parametrize("seed", range(3))
def test_the_lengthscale_is_the_likeliest(seed, monkeypatch):
    def spy(X, y, noise_std):
        asked.append((X, y, noise_std))
        return likeliest_lengthscale(X, y, noise_std)

    asked = []
    monkeypatch.setattr(himmelblau, "likeliest_lengthscale", spy)
    problem = HimmelblauBandit(1000, noise_std=0.1, seed=seed)
    ((X, y, noise_std),) = asked
    arms = {tuple(x) for x in problem.arms().tolist()}
    assert len({tuple(x) for x in X.tolist()} & arms) == 100
    assert float((y - problem.mean(X)).std()) == pytest.approx(0.1, rel=0.3)
    grid = np.geomspace(0.1, 10, 400)
    likelihoods = [slow_log_likelihood(X.numpy(), y.numpy(), noise_std, scale) for scale in grid]
    ours = slow_log_likelihood(X.numpy(), y.numpy(), noise_std, problem.lengthscale)
    assert ours >= max(likelihoods)
    assert ours == pytest.approx(max(likelihoods), abs=0.05)
    assert problem.lengthscale == pytest.approx(grid[np.argmax(likelihoods)], rel=0.02)
    assert float(problem.kernel.lengthscale) == pytest.approx(problem.lengthscale, rel=1e-6)


def test_the_lengthscale_of_few_arms_and_of_a_draw_is_found():
    assert 0.1 <= HimmelblauBandit(5).lengthscale <= 10
    draw = GaussianProcessBandit(150, 10.0, 0.8, 2, noise_std=0.1)
    found = likeliest_lengthscale(draw.arms(), draw.observe(draw.arms()), 0.1)
    assert found == pytest.approx(0.8, rel=0.25)


def slow_lengths(graph):
    """Lengths of all shortest paths between different nodes, by Floyd and Warshall's triple loop."""
    nodes = list(graph)
    far = {(a, b): 1 if graph.has_edge(a, b) else math.inf for a in nodes for b in nodes}
    for c, a, b in itertools.product(nodes, repeat=3):
        far[a, b] = min(far[a, b], far[a, c] + far[c, b])
    return [far[a, b] for a in nodes for b in nodes if a != b and far[a, b] < math.inf]


def slow_kernel(paths, others):
    return sum(p == q for p in paths for q in others)


def test_the_graph_kernel_counts_equally_long_paths():
    problem = GraphBandit(30)
    arms, paths = problem.arms(), [slow_lengths(problem.graph(i)) for i in range(30)]
    counts = np.array([[slow_kernel(p, q) for q in paths] for p in paths], dtype=float)
    exact = counts / np.sqrt(np.outer(counts.diagonal(), counts.diagonal()))
    frozen = freeze(problem.kernel, arms)
    assert problem.kernel(arms).to_dense().numpy() == pytest.approx(exact, abs=1e-14)
    assert frozen(arms, arms).numpy() == pytest.approx(exact, abs=1e-14)
    assert frozen(arms[3:4], arms).numpy() == pytest.approx(exact[3:4], abs=1e-14)
    assert frozen.diagonal(arms).tolist() == pytest.approx([1] * 30, abs=1e-14)


def test_a_gram_matrix_is_the_same_kernel():
    problem = GraphBandit(200)
    arms, rows = problem.arms(), torch.arange(200, dtype=torch.float64).unsqueeze(-1)
    gram, linear = freeze(PrecomputedKernel(arms @ arms.T), rows), freeze(problem.kernel, arms)
    torch.testing.assert_close(gram(rows, rows[5:90]), linear(arms, arms[5:90]), rtol=0, atol=1e-14)
    torch.testing.assert_close(gram.diagonal(rows), linear.diagonal(arms), rtol=0, atol=1e-14)


def test_random_graphs_are_small_directed_and_differ_in_density():
    graphs = random_graphs(400, 3)
    assert all(type(graph) is networkx.DiGraph for graph in graphs)
    assert {len(graph) for graph in graphs} == set(range(5, 20))
    assert all(graph.number_of_edges() and not networkx.number_of_selfloops(graph) for graph in graphs)
    densities = [networkx.density(graph) for graph in graphs if len(graph) > 12]
    assert min(densities) < 0.1
    assert max(densities) > 0.45
    assert sum(any(not graph.has_edge(b, a) for a, b in graph.edges) for graph in graphs) > 350
    for graph, same in zip(graphs, random_graphs(40, 3), strict=False):
        assert set(graph.edges) == set(same.edges)
    assert any(set(graph.edges) != set(other.edges) for graph, other in zip(graphs, random_graphs(400, 4), strict=True))


def test_arms_are_graphs_and_seeds_share_them():
    problem, other = GraphBandit(300, graph_seed=3), GraphBandit(300, graph_seed=3, seed=1)
    for index, graph in enumerate(random_graphs(300, 3)):
        assert set(problem.graph(index).edges) == set(graph.edges)
        assert torch.equal(shortest_path_features(graph), problem.arms()[index])
    assert torch.equal(problem.arms(), other.arms())
    problem.graph(0).add_edge(0, 99)
    problem.arms().zero_()
    assert 99 not in other.graph(0)
    assert torch.equal(GraphBandit(300, graph_seed=3).arms(), other.arms())
    assert not torch.equal(GraphBandit(300, graph_seed=4).arms(), other.arms())


def test_graphs_that_look_alike_are_worth_the_same():
    problem = GraphBandit(300)
    groups: dict = {}
    for i, row in enumerate(problem.arms().tolist()):
        groups.setdefault(tuple(row), []).append(i)
    alike = [group for group in groups.values() if len({len(problem.graph(i)) for i in group}) > 1]
    assert alike, "no two graphs of different size share their features"
    means = problem.mean(problem.arms())
    assert all(len(set(means[group].tolist())) == 1 for group in alike)


def test_rewards_of_graphs_are_draws_of_the_process():
    arms = GraphBandit(300).arms()[[0, 20, 100, 250]]
    problems = [GraphBandit(300, seed=seed) for seed in range(300)]
    thetas = torch.stack([problem.theta for problem in problems])
    assert float(thetas.mean()) == pytest.approx(0, abs=4 / math.sqrt(300 * 18))
    assert float(thetas.square().mean()) == pytest.approx(1, abs=4 * math.sqrt(2 / (300 * 18)))
    values = torch.stack([problem.mean(arms) for problem in problems])
    torch.testing.assert_close(values, thetas @ arms.T, rtol=0, atol=1e-14)
    exact = arms @ arms.T
    errors = values.T @ values / 300 - exact
    assert bool((errors.abs() < 4 * ((1 + exact.square()) / 300).sqrt()).all())
    assert float(thetas.norm(dim=-1).max()) < problems[0].norm_bound


def test_features_count_ordered_pairs_of_any_small_graph():
    path = shortest_path_features(networkx.path_graph(19, create_using=networkx.DiGraph))
    counts = torch.arange(18, 0, -1, dtype=torch.float64)
    torch.testing.assert_close(path, counts / counts.norm(), rtol=0, atol=1e-15)
    torch.testing.assert_close(shortest_path_features(networkx.path_graph(19)), path, rtol=0, atol=1e-15)
    named = networkx.DiGraph([("a", "b"), ("b", "c"), ("c", "c")])
    named["a"]["b"]["weight"] = 7.0  # lengths are numbers of edges
    assert shortest_path_features(named)[:3].tolist() == pytest.approx([2 / math.sqrt(5), 1 / math.sqrt(5), 0])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: GaussianProcessBandit(dim=4), "dim must be a whole number from 1 to 3, got 4"),
        (lambda: GaussianProcessBandit(dim=1.5), "dim"),
        (lambda: GaussianProcessBandit(n_points=0), "n_points"),
        (lambda: GaussianProcessBandit(n_points=2.5), "whole number"),
        (lambda: GaussianProcessBandit(lengthscale=0.0), "lengthscale"),
        (lambda: GaussianProcessBandit(side=-1.0), "side"),
        (lambda: GaussianProcessBandit(noise_std=0.0), "noise_std"),
        (lambda: GaussianProcessBandit(side=100.0, lengthscale=0.01), "features.*larger lengthscale"),
        (lambda: small(GaussianProcessBandit).mean(torch.full((1, 2), 4.1).double()), "outside.*0, 4"),
        (lambda: small(GaussianProcessBandit).mean(torch.full((1, 2), -0.1).double()), "outside"),
        (lambda: small(GaussianProcessBandit).mean(uniform(3, 3)), "columns"),
        (lambda: small(GaussianProcessBandit).mean(uniform(2)), "shape"),
        (lambda: small(GaussianProcessBandit).mean(uniform(3, 2).float()), "float32"),
        (lambda: HimmelblauBandit(n_points=1), "n_points"),
        (lambda: HimmelblauBandit(n_points=2.5), "whole number"),
        (lambda: HimmelblauBandit(trend=-1.0), "trend"),
        (lambda: HimmelblauBandit(noise_std=-1.0), "noise_std"),
        (lambda: small(HimmelblauBandit).mean(uniform(3, 3)), "columns"),
        (lambda: small(HimmelblauBandit).mean(uniform(2)), "shape"),
        (lambda: GraphBandit(n_graphs=0), "n_graphs"),
        (lambda: GraphBandit(n_graphs=2.5), "whole number"),
        (lambda: GraphBandit(n_graphs=3, noise_std=math.inf), "noise_std"),
        (lambda: GraphBandit(n_graphs=3).graph(3), "0 to 2"),
        (lambda: GraphBandit(n_graphs=3).graph(-1), "index"),
        (lambda: GraphBandit(n_graphs=3).mean(uniform(3, 17)), "columns"),
        (lambda: GraphBandit(n_graphs=3).mean(uniform(18)), "shape"),
        (lambda: random_graphs(0, 0), "count"),
        (lambda: shortest_path_features(networkx.path_graph(20)), "at most 19 nodes, got 20"),
        (lambda: shortest_path_features(networkx.empty_graph(5)), "no edge"),
        (lambda: shortest_path_features(networkx.DiGraph([(0, 0)])), "no edge"),
        (lambda: shortest_path_features([[0, 1], [1, 0]]), "networkx"),
    ],
)
def test_mistakes_are_named(make, says):
    with pytest.raises(InvalidInput, match=says):
        make()
