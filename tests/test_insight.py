"""Statistics of a run against independent dense computations, and their laws."""

import copy
import itertools
import math
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel

import kbo
from kbo.optimize.insight.comparison import Estimate
from kbo.optimize.insight.credible_sets import CredibleSet, credible_set, good_values
from kbo.optimize.insight.expected_gain import decision, expected_gain, gains
from kbo.optimize.insight.importance import _explained, importance, shapley_shares, walks
from kbo.optimize.insight.optima import DrawnObjective, optima
from kbo.optimize.surrogates.process import Process, Regression
from kbo.report import summary
from tests.dense import close, gram

QUADRATIC = {"x": (0.0, 1.0), "y": (0.0, 1.0)}
UNIT = kbo.Float(0.0, 1.0)
CHOICE = kbo.Choice(["a", "b", "c"])


def quadratic(params):
    return (params["x"] - 0.3) ** 2 + 0.5 * (params["y"] - 0.6) ** 2


def noisy(objective, level, seed=0):
    rng = random.Random(seed)
    return lambda params: objective(params) + level * rng.gauss(0, 1)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def at_random(objective, space, n, seed=0, **options):
    """An optimiser after trials at random points."""
    optimizer = kbo.Optimizer(space, seed=seed, **options)
    dimension = optimizer.space.dimension
    for unit in torch.rand(n, dimension, generator=generator(seed), dtype=torch.float64):
        params = optimizer.space.params(unit)
        optimizer.tell(params, objective(params))
    return optimizer


@pytest.fixture(scope="module")
def optimizer():
    """A run with noise, which tests only read."""
    return at_random(noisy(quadratic, 0.05), QUADRATIC, 16)


@pytest.fixture(scope="module")
def surrogate(optimizer):
    return optimizer.insight.report_surrogate()


def by_name(answers):
    return {effect.name: effect for effect in answers.effects}


# Draws as functions


def moments(predictive, Z):
    """Mean and standard deviation at Z of models with and without the bowl, with equal weights."""
    predictions = [
        (weight / 2, *Regression(process, theta).predict(Z))
        for process in (predictive._process, predictive._process.without_bowl())
        for theta, weight in zip(predictive._thetas, predictive._weights, strict=True)
    ]
    mean = sum(weight * means for weight, means, _ in predictions)
    variance = sum(
        weight * (predictive._error**2 * variances + (means - mean) ** 2)
        for weight, means, variances in predictions
    )
    return torch.from_numpy(mean), torch.from_numpy(variance).sqrt()


def test_functions_have_dense_moments_and_after_more_values_are_a_martingale(surrogate):
    functions = surrogate.functions(6000, generator())
    Z = torch.rand(5, 2, generator=generator(1), dtype=torch.float64)
    values = functions.targets(Z)
    mean, std = moments(surrogate.predictive, Z)
    torch.testing.assert_close(values.mean(0), mean, rtol=0, atol=0.03)
    torch.testing.assert_close(values.std(0), std, rtol=0.12, atol=0)
    of_each = functions.targets(Z.expand(functions.count, -1, -1))
    torch.testing.assert_close(of_each, values, rtol=0, atol=1e-4)
    updated, variance = functions.updated(Z[:3], Z[3:], generator(3))
    torch.testing.assert_close(updated.mean(0), mean[3:], rtol=0, atol=0.03)
    assert bool((variance.sqrt().mean(0) < std[3:]).all())


@pytest.fixture(scope="module")
def spread(surrogate):
    """A predictive distribution whose kernels differ much, with deviations that count twice."""
    predictive = copy.copy(surrogate.predictive)
    mode = predictive._thetas[0]
    predictive._thetas = mode + np.array([[1.0, 1.0, 0.0], [4.0, 4.0, 3.0]])
    predictive._weights = np.array([0.5, 0.5])
    predictive._error = 2.0
    return predictive


def test_draws_have_the_moments_of_the_intervals(surrogate, spread):
    Z = torch.rand(5, 2, generator=generator(1), dtype=torch.float64)
    mean, std = spread(Z)
    draws, _ = spread.draws(surrogate.transform, Z, 6000, generator())
    torch.testing.assert_close(draws.mean(0), mean, rtol=0, atol=0.05)
    torch.testing.assert_close(draws.std(0), std, rtol=0.06, atol=0)


def test_what_more_values_leave_and_what_they_explain_is_the_variance_of_the_draws(
    surrogate, spread
):
    """The law of total variance, for draws with the factor 2."""
    functions = spread.functions(surrogate.transform, 6000, generator())
    Z = torch.rand(5, 2, generator=generator(1), dtype=torch.float64)
    updated, variance = functions.updated(Z[:3], Z[3:], generator(3))
    expected = moments(spread, Z[3:])[1].square()
    torch.testing.assert_close(updated.var(0) + variance.mean(0), expected, rtol=0.02, atol=0)


def test_draws_with_one_kernel_have_the_covariance_of_its_regression(surrogate):
    """Each draw has its own random features, so their average has no error but that of a sample."""
    predictive = copy.copy(surrogate.predictive)
    predictive._thetas = predictive._thetas[:1] + np.array([[-0.5, -0.5, -2.0]])
    predictive._weights = np.array([1.0])
    predictive._error = 1.0
    Z = torch.rand(5, 2, generator=generator(1), dtype=torch.float64)
    draws, _ = predictive.draws(surrogate.transform, Z, 20_000, generator())
    mean, variance = Regression(predictive._process, predictive._thetas[0]).predict(Z)
    torch.testing.assert_close(draws.mean(0), torch.from_numpy(mean), rtol=0, atol=0.02)
    torch.testing.assert_close(draws.var(0), torch.from_numpy(variance), rtol=0.06, atol=0)


def test_the_variance_of_a_regression_has_that_of_its_trend():
    """A trend B b with b ~ N(0, P^-1) adds B P^-1 B' to the kernel of a Gaussian process."""
    points = torch.rand(9, 2, generator=generator(), dtype=torch.float64)
    B = torch.randn(9, 3, generator=generator(1), dtype=torch.float64)
    lengthscales = torch.tensor([[0.5, 0.9]], dtype=torch.float64)
    kernel = MaternKernel(nu=2.5, ard_num_dims=2).double().initialize(lengthscale=lengthscales)
    P = torch.tensor([[2.0, 0.3, 0.0], [0.3, 1.0, 0.2], [0.0, 0.2, 0.5]], dtype=torch.float64)
    ratios = torch.tensor([1.0, 0.5, 2.0, 1.0, 3.0, 1.0], dtype=torch.float64)
    errors = torch.tensor([0.0, 0.0, 0.1, 0.0, 0.0, 0.2], dtype=torch.float64).sqrt()
    process = Process(points[:6], torch.zeros(6, dtype=torch.float64), errors, ratios)
    process.B, process.P = B[:6].numpy(), P.numpy()
    theta = torch.cat([lengthscales[0].log(), torch.tensor([0.04], dtype=torch.float64).log()])
    columns = process.kernel(points[6:], theta.numpy())
    close(torch.from_numpy(columns), gram(kernel, points[6:], points[:6]))
    found = Regression(process, theta.numpy()).variance(columns, B[6:].numpy())
    K = gram(kernel, points, points) + B @ torch.linalg.inv(P) @ B.mT
    noisy_K = K[:6, :6] + torch.diag(0.04 * ratios + errors.square())
    posterior = K[6:, 6:] - K[6:, :6] @ torch.linalg.inv(noisy_K) @ K[:6, 6:]
    close(torch.from_numpy(found), posterior.diagonal())


# Ranges


def test_the_optima_are_at_least_as_large_as_the_draws_on_a_grid(optimizer, surrogate):
    functions = surrogate.functions(64, generator())
    trials = optimizer.space.units([optimizer.recommended().params])
    found = optima(DrawnObjective(optimizer.space, functions, []), trials, generator(1))
    line = torch.linspace(0, 1, 51, dtype=torch.float64)
    largest = functions(torch.cartesian_prod(line, line)).amax(1)
    missing = (largest - found.values) / float(largest.std())
    assert float(missing.max()) < 0.4  # another of several peaks
    assert float(missing.median()) <= 0
    assert float(missing.mean()) < 0.02
    targets = functions.targets(found.units.unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(
        functions.transform.inverse(targets), found.values, rtol=0, atol=1e-4
    )


def test_the_smallest_sets_of_values_have_the_recommended_one():
    line = torch.linspace(0.0, 1.0, 1001, dtype=torch.float64)
    low, high = credible_set(kbo.Float(0.0, 10.0), line.clamp_max(0.05), line[50]).values
    assert low == high == 0.5  # of equal ones, 95% are at one place
    low, high = credible_set(UNIT, line.flip(0) ** 2, line[0]).values
    assert (low, high) == pytest.approx((0.0, 0.81), abs=0.01)
    low, high = credible_set(UNIT, line / 4, line[750]).values
    assert (low, high) == pytest.approx((0.012, 0.75), abs=0.002)
    assert credible_set(UNIT, line, line[0]).has_all  # nine tenths rule out nothing
    places = CHOICE.middles(torch.tensor([0] * 50 + [1] * 8 + [2] * 42))
    assert credible_set(CHOICE, places, places[0]) == CredibleSet(("a", "c"), False, False)
    assert credible_set(CHOICE, places[:0], places[0]) is None


def test_good_values_are_none_where_the_next_ones_are_not_known_to_be_good():
    grid = torch.linspace(0, 1, 65, dtype=torch.float64)
    feasible = torch.ones(len(grid), dtype=torch.bool)
    loss = (grid - 0.5).square().unsqueeze(0)
    assert good_values(UNIT, grid, 32, 1e4 * loss, feasible, 0.5) is None
    good = good_values(UNIT, grid, 32, loss, feasible, 0.01)
    assert good.values == pytest.approx((0.4, 0.6), abs=1 / 64)
    assert good_values(UNIT, grid, 32, 0 * loss, feasible, 0.0).has_all
    feasible[39:] = False
    assert good_values(UNIT, grid, 32, loss, feasible, 0.01).values[1] < 0.6


# Finalists


def test_finalists_are_the_trials_that_may_be_better_the_most_probable_first():
    optimizer = at_random(noisy(quadratic, 0.1), QUADRATIC, 12)
    best = optimizer.recommended()
    others = [trial for trial in optimizer.trials if trial is not best]
    units = optimizer.space.units([trial.params for trial in (best, *others)])
    features = optimizer.space.features(units)
    surrogate = optimizer.insight.report_surrogate()
    draws = surrogate.draws(features, 20_000, generator())
    tolerance = surrogate.noise_std / 4
    probability = (draws[:, 1:] > draws[:, :1] + tolerance).double().mean(0).tolist()
    better = dict(zip([trial.number for trial in others], probability, strict=True))
    finalists = [trial.number for trial in optimizer.insight.finalists()]
    assert finalists[0] == best.number
    chosen = [better.pop(number) for number in finalists[1:]]
    assert len(chosen) == 4
    for earlier, later in itertools.pairwise([*chosen, max(better.values())]):
        assert earlier > later - 0.05
    assert min(chosen) >= 0.05


# Gain


def test_the_loss_that_counts_as_none_is_a_twentieth_of_the_median_loss(optimizer):
    grid = [i / 50 for i in range(51)]
    median_loss = np.median([quadratic({"x": x, "y": y}) for x in grid for y in grid])
    tolerance = optimizer.insight.answers(effects=False).tolerance
    assert tolerance == pytest.approx(0.05 * median_loss, rel=0.4)


def test_the_gain_of_draws_in_numbers():
    gains = torch.tensor([-1.0] * 10 + [0.5] * 80 + [3.0] * 10, dtype=torch.float64)
    assert expected_gain(gains, noiseless=False, size=1.0) == Estimate(
        -1.0, pytest.approx(0.6), 3.0
    )
    assert expected_gain(gains, noiseless=True, size=1.0).lower == 0
    assert expected_gain(-gains, noiseless=False, size=1.0).value == 0
    decisions = [decision(gains, tolerance) for tolerance in (0.7, 0.55, 0.4)]
    assert decisions == ["stop", "undecided", "go on"]


def test_a_gain_that_is_rounding_of_the_values_is_none():
    gains = torch.tensor([-1e-17] * 20 + [2e-17] * 80, dtype=torch.float64)
    assert expected_gain(gains, noiseless=False, size=0.3) == Estimate(0.0, 0.0, 0.0)
    of_small_values = expected_gain(gains, noiseless=False, size=1e-16)
    assert of_small_values == Estimate(-1e-17, pytest.approx(1.4e-17), 2e-17)


def test_after_further_trials_the_mean_less_its_standard_deviation_is_recommended():
    values, mean, variance = torch.rand(3, 256, 6, generator=generator(), dtype=torch.float64)
    expected = []
    for f, m, v in zip(values.tolist(), mean.tolist(), variance.tolist(), strict=True):
        best = max(range(6), key=lambda i: m[i] - math.sqrt(v[i]))
        expected.append(f[best] - f[0])

    class Functions:
        def __call__(self, X):
            return values

        def updated(self, Z, X, generator):
            return mean, variance

    surrogate = SimpleNamespace(
        values=[SimpleNamespace(value=0.0), SimpleNamespace(value=1.0)],
        noiseless=False,
        functions=lambda count, generator: Functions(),
    )
    X = torch.rand(6, 2, generator=generator(1), dtype=torch.float64)
    close(gains(surrogate, X[:4], X[4:], generator()), torch.tensor(expected, dtype=torch.float64))


# Importance


def shapley_by_definition(function, d, n=100_000):
    """Shapley effects: the mean over all orders of the variance that a parameter adds."""
    A, B = torch.rand(2, n, d, generator=generator(), dtype=torch.float64)
    f_A = function(A)

    def explained(names):
        mixed = B.clone()
        mixed[:, names] = A[:, names]
        return float(((f_A - f_A.mean()) * (function(mixed) - f_A.mean())).mean())

    shares = torch.zeros(d, dtype=torch.float64)
    for order in map(list, itertools.permutations(range(d))):
        for position, name in enumerate(order):
            shares[name] += explained(order[: position + 1]) - explained(order[:position])
    return shares / shares.sum()


def test_shapley_effects_are_those_of_their_definition():
    def function(X):
        return torch.sin(6 * X[:, 0]) * X[:, 1] + X[:, 2] ** 3

    order, points = walks(3, range(3), 2**14)
    values = function(points.flatten(0, 1)).reshape(1, *points.shape[:2])
    found = shapley_shares(values, order, torch.arange(len(order)).unsqueeze(0))[0]
    torch.testing.assert_close(found, shapley_by_definition(function, 3), rtol=0, atol=0.015)
    assert float(found.sum()) == pytest.approx(1.0)


def test_the_share_that_the_mean_of_draws_explains_is_their_correlation():
    """Two draws have in common what the mean explains: their covariance, averaged over pairs."""
    mean = torch.randn(1, 40, generator=generator(), dtype=torch.float64)
    draws = mean + torch.randn(5, 40, generator=generator(1), dtype=torch.float64)
    covariance = torch.cov(draws)
    of_pairs = [float(covariance[i, j]) for i, j in itertools.combinations(range(5), 2)]
    expected = sum(of_pairs) / len(of_pairs) / float(covariance.diagonal().mean())
    assert _explained(draws.reshape(5, 8, 5)) == pytest.approx(expected)


def test_a_constant_function_has_no_effect():
    optimizer = at_random(lambda p: 3.0, [(0.0, 1.0)] * 2, 12)
    answers = optimizer.insight.answers()
    assert not any(effect.visible for effect in answers.effects)
    assert (answers.gain.value, answers.decision) == (pytest.approx(0, abs=1e-3), "stop")
    optimizer.tell([0.5, 0.5], 2.0)
    assert optimizer.insight.outlier() is None  # the first one that is better
    pure_noise = at_random(noisy(lambda p: 0.0, 1.0, 1), [(0.0, 1.0)] * 3, 20, 1)
    assert not any(entry.visible for entry in kbo.report.importance(pure_noise))


def test_no_effect_is_visible_where_a_constant_explains_the_values(
    optimizer, surrogate, monkeypatch
):
    def visible():
        return [e.name for e in importance(optimizer.space, surrogate) if e.visible]

    assert surrogate.has_effects
    assert visible()
    monkeypatch.setattr(type(surrogate), "has_effects", False)
    assert not visible()
    assert "none is visible" in surrogate.account()["effects"]


# Outliers


def measured(wrong=lambda value: value, sign=1, level=0.5):
    """An optimiser after noisy values 60 to 100, one of which may be wrong."""
    optimizer = kbo.Optimizer(QUADRATIC, seed=0, maximize=sign > 0)
    rng = random.Random(1)
    for number in range(20):
        params = {"x": rng.random(), "y": rng.random()}
        value = 100 - 60 * quadratic(params) + level * rng.gauss(0, 1)
        if number == 11:
            value = wrong(value)
        optimizer.tell(params, sign * value)
    return optimizer


@pytest.mark.parametrize(
    ("wrong", "sign", "level"),
    [
        (lambda v: 9500.0, 1, 0.5),
        (lambda v: v / 10, -1, 0.5),
        (lambda v: v / 10, 1, 15.0),
    ],
    ids=["large", "a tenth", "a tenth with much noise"],
)
def test_a_wrong_value_is_named_with_the_prediction_of_a_run_without_it(wrong, sign, level):
    optimizer = measured(wrong, sign, level=level)
    found = optimizer.insight.outlier()
    suspect = optimizer.trials[11]
    assert (found.number, found.value, found.repeated) == (11, suspect.value, None)
    others = kbo.Optimizer(QUADRATIC, seed=0, maximize=sign > 0)
    for trial in optimizer.trials:
        if trial.number != 11:
            others.tell(trial.params, trial.value)
    surrogate = others.insight.report_surrogate()
    X = torch.tensor([[*suspect.params.values()]], dtype=torch.float64)
    mean, std = (float(number) for number in surrogate.predictive.new_values(X))
    ends = torch.tensor([mean - 1.6449 * std, mean + 1.6449 * std])
    expected = sorted(sign * surrogate.transform.inverse(ends))
    assert [found.lower, found.upper] == pytest.approx([float(end) for end in expected], rel=1e-3)
    assert found.doubtful
    question = summary.in_question(found, range(20))
    assert question.startswith(
        f"trial 11 ({found.shown_value}) is far from what the others predict"
    )


def test_a_value_better_than_predicted_is_to_be_repeated_and_counts():
    found = measured(lambda v: v + 30).insight.outlier()
    assert (found.number, found.doubtful) == (11, False)
    assert summary.in_question(found, range(20)).endswith("repeat it to be sure")


def test_values_that_fit_are_no_outliers():
    assert measured().insight.outlier() is None


def test_a_value_far_from_a_repetition_is_named():
    optimizer = at_random(noisy(quadratic, 0.001), QUADRATIC, 12)
    params = optimizer.trials[7].params
    optimizer.tell(params, quadratic(params) + 0.001)
    assert optimizer.insight.outlier() is None
    optimizer.tell(params, quadratic(params) + 0.3)
    found = optimizer.insight.outlier()
    assert (found.number, found.repeated) == (13, 7)
    assert found.lower < quadratic(params) < found.upper


# Edge cases


@pytest.mark.parametrize("size", [1e300, 1e-300])
def test_values_of_any_size_have_finite_statistics_and_shares_that_add_up(size):
    answers = at_random(lambda p: size * quadratic(p), QUADRATIC, 9).insight.answers()
    numbers = [*answers.gain, answers.tolerance]
    for effect in answers.effects:
        numbers += [*effect.share, *effect.range.values]
        assert effect.share.lower <= effect.share.value <= effect.share.upper
    assert all(math.isfinite(number) for number in numbers)
    shares = [effect.share.value for effect in answers.effects]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1.0)


def test_parameters_that_are_not_active_have_no_values():
    space = [
        {"kind": ["a", "b"]},
        kbo.When("kind", "a", {"x": (0.0, 1.0)}),
        kbo.When("kind", "b", {"y": (0.0, 1.0)}),
    ]

    def objective(params):
        return (params["x"] - 0.2) ** 2 if params["kind"] == "a" else 2 + params["y"]

    effects = by_name(at_random(objective, space, 24).insight.answers())
    assert effects["kind"].range.values == ("a",)
    assert effects["y"].range is effects["y"].good is None
    low, high = effects["x"].range.values
    assert low <= 0.2 <= high


def test_what_the_bowl_alone_says_is_not_said_of_the_objective():
    """A constant with noise, but for a few bad values near the bounds: no small range in the middle is certain."""
    rng = random.Random(2)
    space = {name: (0.0, 1.0) for name in "abcd"}
    optimizer = kbo.Optimizer(space, seed=1)
    for number in range(40):
        params = dict.fromkeys(space, 0.5)
        value = 0.03 + 0.006 * rng.gauss(0, 1)
        if number % 8 == 0:
            params = {name: rng.choice([0.02, 0.98]) for name in space}
            value += 0.05
        optimizer.tell(params, value)
    for effect in optimizer.insight.answers().effects:
        low, high = effect.range.values
        assert high - low > 0.3


def test_ranges_keep_the_constraints():
    limit = kbo.Linear({"x": 1, "y": 1}, upper=0.5)
    optimizer = kbo.Optimizer(QUADRATIC, constraints=[limit], seed=0)
    for _ in range(12):
        params = optimizer.ask()
        optimizer.tell(params, -params["x"] - params["y"])
    for effect in optimizer.insight.answers().effects:
        assert effect.range.values[1] <= 0.5 + 1e-9
