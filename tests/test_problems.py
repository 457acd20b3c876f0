"""Problems: rewards against slow formulas, noise of the promised size, the same rounds for every method."""

import math

import numpy as np
import pytest
import torch

from kbo import InvalidInput, MissingExtra, bandit, recipes
from kbo.confidence import WidthConfidence
from kbo.problems import (
    BANDITS,
    Bump,
    Chessboard,
    ClassificationBandit,
    RKHSBandit,
    StepDiagonal,
    StreamingBandit,
    TuningTable,
    stationary_kernel,
)
from kbo.recipes import UniformChoice, UpperBound

CONTEXTUAL = [Bump, Chessboard, StepDiagonal]
TINY = {"n_lengthscales": 3, "n_ridges": 4, "n_splits": 3}


SIZES = {
    "tuning-table": TINY,
    "graphs": {"n_graphs": 300},
    "gp-draw": {"n_points": 300},
    "himmelblau": {"n_points": 300},
}


def tiny(name, seed=0):
    return BANDITS[name](**SIZES.get(name, {}), seed=seed)


def slow_reward(kind, x, a):
    if kind is Bump:
        w, centre = (0.70995, 0.42278, -0.21411, -0.53740, -0.23965), (0.10854, 0.51165, 0.90977, 0.21838, 0.36310)
        return max(0.0, 1 - abs(a - 0.81) - sum(p * (q - r) for p, q, r in zip(w, x, centre, strict=True)))
    if kind is Chessboard:
        cell = math.floor(4 * x[0]), math.floor(4 * a)
        return 1.0 if cell in [(1, 0), (1, 2), (3, 2)] else 0.5 if cell in [(0, 1), (2, 1), (2, 3)] else 0.0
    return 1.0 if abs(x[0] - (a + 0.15)) < 0.1 else 0.5 if abs(x[0] - (a - 0.15)) < 0.1 else 0.0


@pytest.mark.parametrize("kind", CONTEXTUAL)
def test_contextual_rewards_are_the_papers(kind):
    problem = kind(seed=3)
    for _ in range(50):
        arms = problem.arms()
        slow = [slow_reward(kind, problem.context.tolist(), float(a)) for a in problem.actions]
        torch.testing.assert_close(problem.mean(arms), torch.tensor(slow, dtype=torch.float64), rtol=0, atol=1e-12)
    grid = torch.cartesian_prod(*[torch.linspace(0, 1, 21, dtype=torch.float64)] * 2)  # edges of the cells too
    X = torch.cat([grid[:, :1].expand(-1, problem.context_dim), grid[:, 1:]], -1)
    slow = [slow_reward(kind, row[:-1], row[-1]) for row in X.tolist()]
    torch.testing.assert_close(problem.mean(X), torch.tensor(slow, dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", CONTEXTUAL)
def test_a_round_offers_the_ten_actions_of_the_paper_in_a_fresh_context(kind):
    problem = kind()
    assert problem.context is None
    first, second = problem.arms(), problem.arms()
    assert problem.actions.flatten().tolist() == [0.08, 0.70, 0.82, 0.28, 0.63, 0.0, 0.05, 0.50, 0.81, 0.04]
    assert second.shape == (problem.n_arms, problem.context_dim + 1)
    assert torch.equal(second[:, -1:], problem.actions)
    assert torch.equal(second[:, :-1], problem.context.expand(10, -1))
    assert not torch.equal(first, second)
    contexts = torch.stack([problem.arms()[0, :-1] for _ in range(2000)])
    assert contexts.mean(0) == pytest.approx(torch.full((problem.context_dim,), 0.5), abs=0.03)
    assert contexts.std(0) == pytest.approx(torch.full((problem.context_dim,), 12**-0.5), abs=0.02)


def test_a_quarter_of_the_regret_against_one_is_unavoidable_on_the_chessboard():
    """The specification counts 246 in one run of 1000 rounds; the expectation is 250."""
    problem = Chessboard()
    grid = (torch.arange(400, dtype=torch.float64) + 0.5) / 400
    best = torch.stack([problem.mean(torch.cat([x.expand(10, 1), problem.actions], -1)).max() for x in grid])
    assert float(1 - best.mean()) == pytest.approx(0.25)
    missed = sum(float(1 - problem.mean(problem.arms()).max()) for _ in range(1000))
    assert missed == pytest.approx(250, abs=4 * 0.25 * math.sqrt(1000))


@pytest.mark.parametrize("kind", CONTEXTUAL)
def test_contextual_noise_and_kernel_are_as_promised(kind):
    problem = kind(lengthscale=0.2)
    X = problem.arms()[2:3].expand(20_000, -1)
    noise = problem.observe(X) - problem.mean(X)
    assert float(noise.std()) == pytest.approx(0.1, rel=0.03)
    assert float(noise.mean()) == pytest.approx(0.0, abs=0.003)
    arms = problem.arms()
    expected = torch.exp(-torch.cdist(arms, arms).square() / (2 * 0.2**2))
    torch.testing.assert_close(problem.kernel(arms).to_dense(), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", BANDITS)
def test_rounds_do_not_depend_on_earlier_choices(name):
    a, b, other = tiny(name, 5), tiny(name, 5), tiny(name, 6)
    rewards = []
    for t in range(30):
        first, second, third = a.arms(), b.arms(), other.arms()
        assert torch.equal(first, second)
        i = t % len(first)
        rewards.append([float(p.observe(arms[i : i + 1])) for p, arms in ((a, first), (other, third))])
        j = (3 * t + 1) % len(first)  # another arm: the stream moves on as far
        b.observe(second[j : j + 1])
    X = a.arms()
    assert torch.equal(X, b.arms())
    assert torch.equal(a.mean(X), b.mean(X))
    assert torch.equal(a.observe(X), b.observe(X))
    assert any(first != second for first, second in rewards), "another seed, the same problem"


@pytest.mark.parametrize("name", BANDITS)
def test_every_bandit_runs_and_no_reward_is_above_the_best_mean(name):
    problem = tiny(name)
    for seed in range(3):
        method = recipes.make("ay-gp-ucb", problem.kernel, problem.noise_std, problem.norm_bound, 0.1)
        rows = list(bandit.play(method, problem, 10, seed))
        assert all(row["regret"] >= 0 for row in rows)
    arms = problem.arms()
    best = problem.mean(arms).argmax()
    assert float(problem.mean(arms).max() - problem.mean(arms[best : best + 1])) == 0
    assert len(arms) == problem.n_arms


@pytest.mark.parametrize(("name", "shape"), [("digits", (1797, 10, 10)), ("wine", (178, 13, 3))])
def test_classification_rewards_are_flipped_labels(name, shape):
    problem = ClassificationBandit(name, flip=0.2, seed=1)
    examples, features, classes = shape
    assert problem.examples.shape == (examples, features)
    assert float(problem.examples.min()) == 0
    assert float(problem.examples.max()) == 1
    for _ in range(50):
        arms = problem.arms()
        assert arms.shape == (classes, features + classes)
        row = int((problem.examples == problem.context).all(-1).nonzero()[0])
        slow = [0.8 if c == int(problem.labels[row]) else 0.2 for c in range(classes)]
        assert problem.mean(arms).tolist() == pytest.approx(slow)
    X = arms.repeat(5000, 1)
    rewards = problem.observe(X)
    assert set(rewards.tolist()) == {0.0, 1.0}
    torch.testing.assert_close(rewards.reshape(-1, classes).mean(0), problem.mean(arms), rtol=0, atol=0.03)
    assert problem.noise_std == 0.5


def test_classes_are_at_distance_one_and_the_kernel_is_a_product():
    problem = ClassificationBandit("wine", lengthscale=0.5, action_lengthscale=0.4)
    X = torch.cat([problem.arms(), problem.arms()])
    apart = torch.pdist(problem.actions)
    torch.testing.assert_close(apart, torch.ones_like(apart))
    width = 0.5 * float(torch.pdist(problem.examples).median())
    slow = torch.tensor([[_slow_product(x, z, width) for z in X.tolist()] for x in X.tolist()], dtype=torch.float64)
    torch.testing.assert_close(problem.kernel(X).to_dense(), slow, rtol=1e-6, atol=1e-9)


def _slow_product(x, z, width):
    features, classes = math.dist(x[:13], z[:13]), math.dist(x[13:], z[13:])
    return math.exp(-(features**2) / (2 * width**2)) * math.exp(-(classes**2) / (2 * 0.4**2))


class Fixed(WidthConfidence):
    def width(self, state):
        return torch.tensor(1.0)


@pytest.mark.parametrize(("name", "rounds"), [("digits", 300), ("wine", 100), ("breast_cancer", 100)])
def test_kernel_ucb_with_the_default_kernel_beats_random_choice(name, rounds):
    def regret(confidence, rule):
        problem = ClassificationBandit(name)
        method = recipes.Method("fixed", problem.kernel, 0.25, confidence, rule=rule)
        return list(bandit.play(method, problem, rounds))[-1]["cumulative"]

    assert regret(Fixed(), UpperBound()) < 0.65 * regret(None, UniformChoice())


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
        kernel = RBF(setting["lengthscale"]) if nu == math.inf else Matern(setting["lengthscale"], nu=nu)
        for split, order in enumerate(splits):
            train, test = order[:150], order[150:]
            centre = y[train].mean()
            model = KernelRidge(alpha=setting["ridge"], kernel="precomputed").fit(kernel(X[train]), y[train] - centre)
            score = r2_score(y[test], model.predict(kernel(X[test], X[train])) + centre)
            assert float(problem.values[split, index]) == pytest.approx(max(score, -1.0), abs=1e-5)


def test_arms_of_the_table_are_their_settings():
    problem = TuningTable(**TINY)
    names = ["rbf", "matern52", "matern32", "matern12"]
    assert problem.n_arms == len(problem.fixed_arms) == 4 * 3 * 4
    for index, row in enumerate(problem.fixed_arms.tolist()):
        setting = problem.setting(index)
        assert row[:4] == pytest.approx([(setting["kernel"] == name) / math.sqrt(2) for name in names])
        assert row[4] == pytest.approx((math.log10(setting["lengthscale"]) + 1.5) / 3)
        assert row[5] == pytest.approx((math.log10(setting["ridge"]) + 6) / 8)


def test_pulls_of_the_table_are_its_splits_and_its_noise_is_theirs():
    problem = TuningTable(**TINY)
    arms = problem.arms()
    torch.testing.assert_close(problem.mean(arms), problem.values.mean(0))
    torch.testing.assert_close(problem.mean(arms[7:9]), problem.values[:, 7:9].mean(0))
    for i in (0, 20, 33):
        pulls = problem.observe(arms[i : i + 1].expand(3000, -1))
        assert set(pulls.tolist()) == set(problem.values[:, i].tolist())
        assert float(pulls.mean()) == pytest.approx(float(problem.values[:, i].mean()), abs=0.02)
    means = problem.values.mean(0)
    decent = [i for i in range(len(arms)) if means[i] >= means.max() / 2]
    spread = [float((problem.values[:, i] - means[i]).square().mean().sqrt()) for i in decent]
    assert problem.noise_std == pytest.approx(max(spread))


def features(x, order, rho=0.3):
    """``exp(-x^2 / 2 rho^2) (x / rho)^i / sqrt(i!)`` for i = 0 .. order - 1, [n order]."""
    rows = [[(v / rho) ** i / math.sqrt(math.factorial(i)) for i in range(order)] for v in x]
    return np.exp(-(np.asarray(x)[:, None] ** 2) / (2 * rho**2)) * np.array(rows)


@pytest.mark.parametrize(("norm", "n_arms"), [(2.06, 100), (7.0, 13)])
def test_the_streaming_function_is_that_of_its_coordinates(norm, n_arms):
    problem = StreamingBandit(n_arms, norm=norm)
    theta = np.random.default_rng(12).standard_normal(25)
    theta *= norm / np.sqrt(np.sum(theta**2))
    x = problem.arms().flatten().tolist()
    assert x == pytest.approx([i / (n_arms - 1) for i in range(n_arms)], abs=1e-15)
    assert problem.mean(problem.arms()).numpy() == pytest.approx(features(x, 25) @ theta, abs=1e-12)
    assert problem.mean(problem.arms().float()).dtype == torch.float32
    assert problem.norm_bound == 5


def test_the_streaming_function_has_the_maximum_of_the_paper():
    problem = StreamingBandit()
    values = problem.mean(problem.arms())
    assert float(values.max()) == pytest.approx(0.63, abs=0.005)
    assert float(problem.arms()[values.argmax()]) == pytest.approx(0.39, abs=0.005)


def test_the_norm_of_the_streaming_function_is_that_of_its_coordinates():
    """The features sum to the kernel and are independent: so it is the norm of theta, and of the least interpolant."""
    problem = StreamingBandit()
    x = np.linspace(0, 1, 41)
    phi = features(x, 70)
    gram = problem.kernel(torch.tensor(x).unsqueeze(-1)).to_dense().numpy()
    assert gram == pytest.approx(phi @ phi.T, abs=1e-12)
    assert float(problem.theta.norm()) == pytest.approx(2.06)
    # The least interpolant at ever more points has a norm that rises to that of the function.
    mpmath = pytest.importorskip("mpmath")
    mpmath.mp.dps = 60
    points = [mpmath.mpf(i) / 12 for i in range(-24, 25)]
    rho = mpmath.mpf(3) / 10
    K = mpmath.matrix([[mpmath.exp(-((a - b) ** 2) / (2 * rho**2)) for b in points] for a in points])
    theta = [mpmath.mpf(float(v)) for v in problem.theta]
    f = mpmath.matrix(
        [
            mpmath.exp(-(v**2) / (2 * rho**2))
            * sum(c * (v / rho) ** i / mpmath.sqrt(mpmath.factorial(i)) for i, c in enumerate(theta))
            for v in points
        ]
    )
    square = float((f.T * mpmath.lu_solve(K, f))[0])
    assert 2.06 * (1 - 1e-4) < math.sqrt(square) < 2.06 * (1 + 1e-12)


@pytest.mark.parametrize("noise", ["gaussian", "rademacher", "laplace", "spikes"])
def test_streaming_noise_has_the_promised_size_and_shape(noise):
    problem = StreamingBandit(noise=noise, noise_std=0.2, seed=4)
    X = problem.arms()[30:31].expand(200_000, -1)
    draws = (problem.observe(X) - problem.mean(X)) / 0.2
    fourth = {"gaussian": 3.0, "rademacher": 1.0, "laplace": 6.0, "spikes": 50.0}[noise]
    assert float(draws.mean()) == pytest.approx(0, abs=0.01)
    assert float(draws.square().mean()) == pytest.approx(1, abs=4 * math.sqrt((fourth - 1) / 200_000) + 1e-12)
    assert float(draws.pow(4).mean()) == pytest.approx(fourth, rel=0.1)
    if noise == "rademacher":
        assert draws.abs().tolist() == pytest.approx([1.0] * len(draws))
    if noise == "spikes":
        assert float((draws.abs() > 1e-9).double().mean()) == pytest.approx(0.02, abs=0.002)
    if noise == "laplace":  # P(|xi| > u) = exp(-u sqrt(2))
        assert float((draws.abs() > 2).double().mean()) == pytest.approx(math.exp(-2 * math.sqrt(2)), rel=0.05)
    if noise == "gaussian":
        assert float((draws.abs() > 2).double().mean()) == pytest.approx(0.0455, rel=0.05)


@pytest.mark.parametrize("noise", ["gaussian", "rademacher", "laplace", "spikes"])
def test_a_seed_drives_the_streaming_noise_and_nothing_else(noise):
    first, twin, other = (StreamingBandit(noise=noise, seed=seed) for seed in (1, 1, 2))
    X = first.arms()
    assert torch.equal(first.mean(X), other.mean(X))
    together = first.observe(X)
    torch.manual_seed(99)  # the stream is its own
    one_by_one = torch.cat([twin.observe(x) for x in X.split(1)])
    torch.testing.assert_close(one_by_one, together, rtol=0, atol=1e-14)
    assert not torch.equal(other.observe(X), together)


def test_seeds_share_the_table_and_a_change_of_one_stays_there():
    first = TuningTable(**TINY)
    values = first.values.clone()
    first.values.zero_()
    assert torch.equal(TuningTable(**TINY, seed=4).values, values)


@pytest.mark.parametrize("index", [0, 2])
def test_the_first_pull_is_used_and_not_counted(index):
    class Spy(RKHSBandit):
        def observe(self, X):
            pulled.append(X[0])
            return super().observe(X)

    pulled = []
    problem, twin = Spy(seed=1), RKHSBandit(seed=1)
    method = recipes.make("ay-gp-ucb", problem.kernel, 0.1, 10.0, 0.1)
    rows = list(bandit.play(method, problem, 5, first=index))
    assert [row["round"] for row in rows] == [1, 2, 3, 4, 5]
    arms = twin.arms()
    assert torch.equal(pulled[0], arms[index])
    state = method.state()
    state.update(arms[index : index + 1], twin.observe(arms[index : index + 1]))
    arms = twin.arms()
    assert torch.equal(pulled[1], arms[method.choose(state, arms)])
    assert rows[0]["regret"] == pytest.approx(float(twin.mean(arms).max() - twin.mean(pulled[1].unsqueeze(0))[0]))
    assert rows[-1]["cumulative"] == pytest.approx(sum(row["regret"] for row in rows))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Bump(lengthscale=0.0), "lengthscale"),
        (lambda: Chessboard(noise_std=-1.0), "noise_std"),
        (lambda: Chessboard().mean(torch.rand(3, 3).double()), "columns"),
        (lambda: Chessboard().mean(torch.rand(2).double()), r"shape \[n 2\]"),
        (lambda: Bump().mean([0.1] * 6), "torch.Tensor"),
        (lambda: ClassificationBandit("iris"), "unknown data set 'iris'.*digits"),
        (lambda: ClassificationBandit("wine", flip=0.6), "below 0.5"),
        (lambda: ClassificationBandit("wine", flip=-0.1), "flip"),
        (lambda: ClassificationBandit("wine").mean(torch.rand(2, 16).double()), "no example"),
        (lambda: ClassificationBandit("wine").mean(torch.rand(2, 5).double()), "shape"),
        (lambda: ClassificationBandit("wine").mean(_no_class()), "no class"),
        (lambda: TuningTable(n_ridges=1), "n_ridges"),
        (lambda: TuningTable(n_splits=2.5), "whole number"),
        (lambda: TuningTable(**TINY).observe(torch.rand(1, 6).double()), "no arm"),
        (lambda: TuningTable(**TINY).mean(torch.rand(1, 5).double()), "columns"),
        (lambda: TuningTable(**TINY).setting(48), "0 to 47"),
        (lambda: _play(first=100), "0 to 99"),
        (lambda: _play(first=-1), "first"),
        (lambda: stationary_kernel("cubic", 1.0), "kernel must be one of"),
        (lambda: StreamingBandit(noise="cauchy"), "noise must be one of .*, got 'cauchy'"),
        (lambda: StreamingBandit(n_arms=1), "n_arms"),
        (lambda: StreamingBandit(n_arms=2.5), "whole number"),
        (lambda: StreamingBandit(noise_std=0.0), "noise_std"),
        (lambda: StreamingBandit(norm=-1.0), "norm"),
        (lambda: StreamingBandit(norm_bound=math.inf), "norm_bound"),
        (lambda: StreamingBandit().mean(torch.rand(3, 2).double()), "columns"),
    ],
)
def test_mistakes_are_named(make, says):
    with pytest.raises(InvalidInput, match=says):
        make()


def _no_class():
    arms = ClassificationBandit("wine").arms()
    arms[0, -3:] = 0.5
    return arms


def _play(first):
    problem = RKHSBandit()
    return next(bandit.play(recipes.make("random", problem.kernel, 0.1, 1.0, 0.1), problem, 2, first=first))


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sklearn", None)
    with pytest.raises(MissingExtra, match=r"sklearn: pip install 'kbo\[cli\]'"):
        ClassificationBandit()
    monkeypatch.setitem(__import__("sys").modules, "sklearn.datasets", None)
    with pytest.raises(MissingExtra, match=r"sklearn: pip install 'kbo\[cli\]'"):
        TuningTable(n_lengthscales=2, n_ridges=2, n_splits=2)
