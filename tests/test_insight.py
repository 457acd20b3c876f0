"""Statistics of a run against independent dense computations, and their laws."""

import copy
import itertools
import math
import random

import pytest
import torch

import kbo
from kbo.optimize.insight import optima as optima_module
from kbo.optimize.insight.comparison import Estimate
from kbo.optimize.insight.credible_sets import CredibleSet, credible_set, good_values
from kbo.optimize.insight.expected_gain import decision, expected_gain
from kbo.optimize.insight.importance import importance, shapley_shares, walks
from kbo.optimize.insight.optima import optima
from kbo.optimize.surrogates.functions import Data, Regression
from kbo.optimize.surrogates.surrogate import data
from kbo.report import summary


def at_random(objective, space, n, seed=0, **options):
    """An optimiser after trials at random points."""
    optimizer = kbo.Optimizer(space, seed=seed, **options)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(n):
        unit = torch.rand(optimizer.space.dimension, generator=generator, dtype=torch.float64)
        params = optimizer.space.params(unit)
        optimizer.tell(params, objective(params))
    return optimizer


def noisy(objective, level, seed=0):
    rng = random.Random(seed)
    return lambda params: objective(params) + level * rng.gauss(0, 1)


def by_name(optimizer, **options):
    return {effect.name: effect for effect in optimizer.insight.answers(**options).effects}


QUADRATIC = {"x": (0.0, 1.0), "y": (0.0, 1.0)}


def quadratic(params):
    return (params["x"] - 0.3) ** 2 + 0.5 * (params["y"] - 0.6) ** 2


# Draws as functions


def without_bowl(loss):
    """The same model with a constant trend."""
    other = copy.copy(loss)
    other.B, other.b0, other.P = loss.B[:, :1], loss.b0[:1], loss.P[:1, :1]
    other.y_and_B = loss.y_and_B[:, :2]
    return other


def moments(predictive, Z):
    """Mean and standard deviation at Z of models with and without the bowl, with equal weights."""
    trends = predictive._loss, without_bowl(predictive._loss)
    predictions = [
        (weight / 2, *loss.predict(theta, Z))
        for loss in trends
        for theta, weight in zip(predictive._thetas, predictive._weights, strict=True)
    ]
    mean = sum(weight * means for weight, means, _ in predictions)
    variance = sum(
        weight * (predictive._error**2 * variances + (means - mean) ** 2)
        for weight, means, variances in predictions
    )
    return torch.from_numpy(mean), torch.from_numpy(variance).sqrt()


def test_functions_have_the_moments_of_a_dense_gaussian_process():
    optimizer = at_random(noisy(quadratic, 0.05), QUADRATIC, 20)
    surrogate = optimizer.insight.description()
    functions = surrogate.functions(20_000, torch.Generator().manual_seed(0))
    Z = torch.rand(5, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    values = functions.targets(Z)
    mean, std = moments(surrogate._predictive, Z)
    torch.testing.assert_close(values.mean(0), mean, rtol=0, atol=0.03)
    torch.testing.assert_close(values.std(0), std, rtol=0.12, atol=0)
    own = functions.own_targets(Z.expand(functions.count, -1, -1))
    torch.testing.assert_close(own, values, rtol=0, atol=1e-4)


def test_means_after_more_values_are_a_martingale_with_less_variance():
    optimizer = at_random(noisy(quadratic, 0.05), QUADRATIC, 20)
    surrogate = optimizer.insight.description()
    functions = surrogate.functions(4000, torch.Generator().manual_seed(0))
    Z = torch.rand(4, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    X = torch.rand(3, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    mean, variance = functions.updated(Z, X, torch.Generator().manual_seed(3))
    before, std = moments(surrogate._predictive, X)
    torch.testing.assert_close(mean.mean(0), before, rtol=0, atol=0.03)
    assert bool((variance.sqrt().mean(0) < std).all())


# Ranges


def test_the_range_of_a_quadratic_is_that_of_the_optima_of_dense_draws():
    """The optimum of each of many draws on a grid, by the joint distribution of all its points."""
    optimizer = at_random(noisy(lambda p: (p["x"] - 0.3) ** 2, 0.1), {"x": (0.0, 1.0)}, 25)
    low, high = by_name(optimizer)["x"].range.values
    surrogate = optimizer.insight.description()
    grid = torch.linspace(0, 1, 401, dtype=torch.float64)
    X, y = data(surrogate.values)
    targets = surrogate.transform(y)
    predictive = surrogate._predictive
    found = []
    for theta, weight in zip(predictive._thetas, predictive._weights, strict=True):
        count = round(2000 * weight)
        if count:
            draws = dense_draws(X[:, 0], targets, grid, theta, predictive._error, count)
            found.append(grid[draws.argmax(1)])
    found = torch.cat(found)
    tails = found.quantile(torch.tensor([0.05, 0.95], dtype=torch.float64)).tolist()
    inside = float(((found >= low) & (found <= high)).double().mean())
    assert inside == pytest.approx(0.9, abs=0.05)
    assert high - low <= tails[1] - tails[0] + 0.05


def dense_draws(X, y, grid, theta, factor, count):
    """Draws of a Gaussian process with a quadratic trend, by its joint covariance on a grid."""
    lengthscale, noise = math.exp(theta[0]), math.exp(theta[1])

    def kernel(a, b):
        r = math.sqrt(5) * (a[:, None] - b[None, :]).abs() / lengthscale
        bowl = lambda x: -((2 * x - 1) ** 2 - 1 / 3) / math.sqrt(4 / 45)  # noqa: E731
        trend = 1e4 + bowl(a)[:, None] * bowl(b)[None, :]
        return (1 + r + r**2 / 3) * (-r).exp() + trend

    bowl = lambda x: -0.4 * ((2 * x - 1) ** 2 - 1 / 3) / math.sqrt(4 / 45)  # noqa: E731
    solved = torch.linalg.solve(
        kernel(X, X) + noise * torch.eye(len(X), dtype=X.dtype), kernel(X, grid)
    )
    mean = bowl(grid) + (y - bowl(X)) @ solved
    covariance = kernel(grid, grid) - kernel(grid, X) @ solved
    values, vectors = torch.linalg.eigh((covariance + covariance.T) / 2)
    normal = torch.randn(count, len(grid), generator=torch.Generator().manual_seed(0)).double()
    return mean + factor * (normal * values.clamp_min(0).sqrt()) @ vectors.T


@pytest.mark.parametrize("dim", [1, 2, 4])
@pytest.mark.parametrize("level", [0.0, 0.1])
def test_twice_as_many_points_change_no_end_of_a_range_by_more_than_a_twentieth(dim, level):
    objective = noisy(lambda p: sum((x - 0.3) ** 2 for x in p), level)
    optimizer = at_random(objective, [(0.0, 1.0)] * dim, 30)
    surrogate, space = optimizer.insight.description(), optimizer.space
    best = optimizer.recommended().params
    trials = space.units([best])
    found = []
    for times in (1, 2):
        functions = surrogate.functions(256, torch.Generator().manual_seed(0))
        peaks = optima(
            space,
            functions,
            [],
            trials,
            torch.Generator().manual_seed(1),
            times * optima_module.N_COVERING,
        )
        parameters = space.parameters.values()
        sets = [credible_set(p, peaks.units[:, i], trials[0, i]) for i, p in enumerate(parameters)]
        found.append([end for one in sets for end in one.values])
    differences = [abs(a - b) for a, b in zip(*found, strict=True)]
    assert max(differences) <= 0.05


def test_the_optima_are_at_least_as_large_as_the_draws_on_a_grid():
    optimizer = at_random(noisy(quadratic, 0.1), QUADRATIC, 20)
    functions = optimizer.insight.description().functions(64, torch.Generator().manual_seed(0))
    trials = optimizer.space.units([optimizer.recommended().params])
    found = optima(optimizer.space, functions, [], trials, torch.Generator().manual_seed(1))
    line = torch.linspace(0, 1, 101, dtype=torch.float64)
    grid = torch.cartesian_prod(line, line)
    largest = functions(grid).amax(1)
    spread = float(largest.std())
    missing = (largest - found.values) / spread
    assert float(missing.max()) < 0.4  # another of several peaks
    assert float(missing.median()) <= 0
    assert float(missing.mean()) < 0.02
    at_own = functions.own(found.units.unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(at_own, found.values, rtol=0, atol=1e-4)


def test_the_smallest_sets_of_values():
    line = torch.linspace(0.0, 1.0, 1001, dtype=torch.float64)
    low, high = credible_set(kbo.Float(0.0, 10.0), line.clamp_max(0.05), line[50]).values
    assert low == high == 0.5  # of equal ones, 95% are at one place
    low, high = credible_set(kbo.Float(0.0, 1.0), line**2, line[0]).values
    assert (low, high) == pytest.approx((0.0, 0.81), abs=0.01)
    assert credible_set(kbo.Float(0.0, 1.0), line, line[0]).all  # nine tenths rule out nothing
    assert not credible_set(kbo.Float(0.0, 1.0), line**3, line[0]).all
    choice = kbo.Choice(["a", "b", "c"])
    places = choice.middles(torch.tensor([0] * 50 + [1] * 8 + [2] * 42))
    assert credible_set(choice, places, places[0]) == CredibleSet(("a", "c"), False, False)
    assert credible_set(choice, places[:0], places[0]) is None
    thirds = kbo.Int(1, 3).middles(torch.arange(30) % 3)
    assert credible_set(kbo.Int(1, 3), thirds, thirds[0]) == CredibleSet((1, 3), True, True)


def test_the_recommended_value_is_among_those_that_may_be_the_best():
    line = torch.linspace(0.0, 0.25, 101, dtype=torch.float64)
    recommended = line.new_tensor(0.75)
    low, high = credible_set(kbo.Float(0.0, 1.0), line, recommended).values
    assert (low, high) == pytest.approx((0.012, 0.75), abs=0.002)
    choice = kbo.Choice(["a", "b", "c"])
    places = choice.middles(torch.tensor([0] * 10 + [1]))
    assert credible_set(choice, places[:10], places[10]).values == ("a", "b")


def test_good_values_are_none_where_the_next_ones_are_not_known_to_be_good():
    parameter = kbo.Float(0.0, 1.0)
    grid = torch.linspace(0, 1, 65, dtype=torch.float64)
    units = torch.cat([grid[32:33], grid])
    feasible = torch.ones(len(units), dtype=torch.bool)
    sharp = -(units - 0.5).square().unsqueeze(0)
    assert good_values(parameter, units, 1e4 * sharp, feasible, 0.5) is None
    good = good_values(parameter, units, sharp, feasible, 0.01)
    assert good.values == pytest.approx((0.4, 0.6), abs=1 / 64)
    feasible[40:] = False
    assert good_values(parameter, units, sharp, feasible, 0.01).values[1] < 0.6
    assert good_values(parameter, units, 0 * sharp, feasible | True, 0.0).all


# Gain


@pytest.mark.parametrize("seed", range(6))
def test_the_gain_is_never_negative(seed):
    rng = random.Random(seed)
    space = [(0.0, 1.0)] * rng.randint(1, 3)
    level = rng.choice([0.0, 0.1, 1.0, 10.0])
    optimizer = at_random(noisy(lambda p: math.sin(5 * p[0]), level, seed), space, 12, seed)
    more = optimizer.insight.answers(effects=False).more
    assert more.value >= 0
    assert more.lower <= more.value <= more.upper


def test_the_gain_of_draws_in_numbers():
    gains = torch.tensor([-1.0] * 10 + [0.5] * 80 + [3.0] * 10, dtype=torch.float64)
    assert expected_gain(gains, noiseless=False) == Estimate(pytest.approx(0.6), -1.0, 3.0)
    assert expected_gain(gains, noiseless=True).lower == 0
    assert expected_gain(-gains, noiseless=False).value == 0
    assert [decision(gains, tolerance) for tolerance in (0.7, 0.55, 0.4)] == [
        "stop",
        "undecided",
        "go on",
    ]


def test_the_gain_of_a_known_function_is_nothing_and_that_of_an_unknown_one_is_its_spread():
    known = at_random(lambda p: (p[0] - 0.3) ** 2, [(0.0, 1.0)], 40)
    known.tell([0.3], 0.0)
    known.tell([0.3], 0.0)
    assert known.insight.answers(effects=False).more.value < 1e-3
    assert known.insight.answers(effects=False).decision == "stop"
    unknown = at_random(lambda p: math.sin(40 * p[0]) + p[1], [(0.0, 1.0)] * 2, 8)
    assert unknown.insight.answers(effects=False).more.value > 0.05


# Importance


def sobol_shares(function, d, n=200_000):
    """Shapley effects by their definition: the mean over all orders of the variance that a parameter adds."""
    rng = torch.Generator().manual_seed(0)
    A = torch.rand(n, d, generator=rng, dtype=torch.float64)
    B = torch.rand(n, d, generator=rng, dtype=torch.float64)
    f_A = function(A)
    centre = f_A.mean()

    def explained(names):
        mixed = B.clone()
        for name in names:
            mixed[:, name] = A[:, name]
        return float(((f_A - centre) * (function(mixed) - centre)).mean())

    shares = torch.zeros(d, dtype=torch.float64)
    orders = list(itertools.permutations(range(d)))
    for order in orders:
        for position, name in enumerate(order):
            gain = explained(order[: position + 1]) - explained(order[:position])
            shares[name] += gain / len(orders)
    return shares / shares.sum()


@pytest.mark.parametrize(
    "function",
    [
        lambda X: X[:, 0] + 2 * X[:, 1],
        lambda X: (X[:, 0] - 0.5) * (X[:, 1] - 0.5) + 0.2 * X[:, 2],
        lambda X: torch.sin(6 * X[:, 0]) * X[:, 1] + X[:, 2] ** 3,
    ],
)
def test_shapley_effects_are_those_of_their_definition(function):
    wanted = sobol_shares(function, 3)
    order, points = walks(3, range(3), 2**14)
    values = function(points.flatten(0, 1)).reshape(1, *points.shape[:2])
    found = shapley_shares(values, order, torch.arange(len(order)).unsqueeze(0))[0]
    torch.testing.assert_close(found, wanted, rtol=0, atol=0.015)
    assert float(found.sum()) == pytest.approx(1.0)


@pytest.mark.parametrize("level", [0.0, 0.2, 2.0])
def test_shares_add_up_and_have_one_order(level):
    optimizer = at_random(noisy(quadratic, level), QUADRATIC | {"c": ["a", "b"]}, 25)
    effects = optimizer.insight.answers().effects
    assert sum(effect.share.value for effect in effects) == pytest.approx(1.0)
    values = [effect.share.value for effect in effects]
    assert values == sorted(values, reverse=True)
    for effect, entry in zip(
        effects, importance(optimizer.space, optimizer.insight.description()), strict=True
    ):
        assert (effect.name, effect.share, effect.visible) == (
            entry.name,
            entry.share,
            entry.visible,
        )
        assert effect.share.lower <= effect.share.value <= effect.share.upper


def test_a_constant_function_has_no_effect():
    optimizer = at_random(lambda p: 3.0, [(0.0, 1.0)] * 2, 12)
    answers = optimizer.insight.answers()
    assert not any(effect.visible for effect in answers.effects)
    assert (answers.more.value, answers.decision) == (pytest.approx(0, abs=1e-3), "stop")
    optimizer.tell([0.5, 0.5], 2.0)
    assert optimizer.insight.answers(effects=False).outlier is None  # the first one that is better
    wrong = 0
    for seed in range(10):
        pure_noise = at_random(noisy(lambda p: 0.0, 1.0, seed), [(0.0, 1.0)] * 3, 20, seed)
        wrong += any(entry.visible for entry in kbo.report.importance(pure_noise))
    assert wrong <= 3


# Outliers


def measured(n, wrong, sign=1, seed=1):
    """An optimiser after noisy values 60 to 100, one of which is wrong."""
    optimizer = kbo.Optimizer(QUADRATIC, seed=0, maximize=sign > 0)
    rng = random.Random(seed)
    for number in range(n):
        params = {"x": rng.random(), "y": rng.random()}
        value = 100 - 60 * quadratic(params) + rng.gauss(0, 0.5)
        if number == 11:
            value = wrong(value)
        optimizer.tell(params, sign * value)
    return optimizer


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    "wrong",
    [lambda v: 9500.0, lambda v: -9500.0, lambda v: v / 10, lambda v: 10 * v, lambda v: v - 30],
    ids=["large", "small", "a tenth", "ten times", "other"],
)
def test_a_wrong_value_is_named_with_the_prediction_of_a_run_without_it(wrong, sign):
    optimizer = measured(20, wrong, sign)
    found = optimizer.insight.answers(effects=False).outlier
    assert (found.number, found.repeated) == (11, None)
    assert found.value == optimizer.trials[11].value
    others = kbo.Optimizer(QUADRATIC, seed=0, maximize=sign > 0)
    for trial in optimizer.trials:
        if trial.number != 11:
            others.tell(trial.params, trial.value)
    surrogate = others.insight.description()
    X = torch.tensor([[*optimizer.trials[11].params.values()]], dtype=torch.float64)
    mean, std = (float(number) for number in surrogate.prediction(X))
    ends = [mean - 1.6449 * std, mean + 1.6449 * std]
    expected = sorted(sign * surrogate.transform.inverse(torch.tensor(ends)))
    assert [found.lower, found.upper] == pytest.approx([float(end) for end in expected], rel=1e-3)
    assert found.doubtful
    question = summary.in_question(found)
    assert question.startswith(f"trial 11 ({found.value:.4g}) is far from what the others predict")
    assert "do not rely on it while trial 11 is in question" in optimizer.summary()


@pytest.mark.parametrize("sign", [1, -1])
def test_a_value_better_than_predicted_is_to_be_repeated_and_counts(sign):
    optimizer = measured(20, lambda v: v + 30, sign)
    found = optimizer.insight.answers(effects=False).outlier
    assert (found.number, found.doubtful) == (11, False)
    assert summary.in_question(found).endswith("repeat it to be sure")
    assert "in question" not in optimizer.summary()


def test_values_that_fit_are_no_outliers():
    found = [
        measured(20, lambda v: v, seed=seed).insight.answers(effects=False).outlier
        for seed in range(10)
    ]
    assert found == [None] * 10


def test_the_prediction_of_a_value_has_the_noise():
    surrogate = measured(20, lambda v: v).insight.description()
    X = torch.rand(5, 2, dtype=torch.float64)
    mean, error = surrogate._predictive(X)
    assert surrogate.prediction(X)[0].equal(mean)
    variance = error.square() + surrogate._predictive.noise_std**2
    assert torch.allclose(surrogate.prediction(X)[1], variance.sqrt())


def test_values_without_noise_are_no_outliers():
    objective = lambda p: (p["x"] - 0.3) ** 2 + 100 * (p["c"] == "b")  # noqa: E731
    result = kbo.minimize(objective, {"x": (0.0, 1.0), "c": ["a", "b"]}, 20, seed=1)
    assert result.exact
    assert result.answers.outlier is None


def test_a_value_far_from_a_repetition_is_named():
    rng = random.Random(1)
    optimizer = at_random(noisy(quadratic, 0.001), QUADRATIC, 30)
    params = optimizer.trials[7].params
    optimizer.tell(params, quadratic(params) + 0.001 * rng.gauss(0, 1))
    assert optimizer.insight.answers(effects=False).outlier is None
    optimizer.tell(params, quadratic(params) + 0.3)
    found = optimizer.insight.answers(effects=False).outlier
    assert (found.number, found.repeated) == (31, 7)
    assert found.lower < quadratic(params) < found.upper


# Edge cases


def test_few_trials_have_no_statistics():
    optimizer = kbo.Optimizer(QUADRATIC, seed=0)
    assert optimizer.insight.answers() is None
    optimizer.tell({"x": 0.2, "y": 0.3}, 1.0)
    assert optimizer.insight.answers() is None
    optimizer.tell({"x": 0.2, "y": 0.3}, 1.0)
    assert optimizer.insight.answers() is None


def test_one_point_again_and_again():
    optimizer = kbo.Optimizer(QUADRATIC, seed=0)
    for i in range(8):
        optimizer.tell({"x": 0.2, "y": 0.3}, 1.0 + 0.01 * (-1) ** i)
    answers = optimizer.insight.answers()
    assert answers.more.value >= 0
    assert answers.outlier is None
    assert not any(effect.visible for effect in answers.effects)


@pytest.mark.parametrize("size", [1e300, 1e-300])
def test_values_of_any_size(size):
    optimizer = at_random(lambda p: size * quadratic(p), QUADRATIC, 15)
    answers = optimizer.insight.answers()
    numbers = [*answers.more, answers.tolerance]
    for effect in answers.effects:
        numbers += [*effect.share, *effect.range.values]
    assert all(math.isfinite(number) for number in numbers)
    assert sum(effect.share.value for effect in answers.effects) == pytest.approx(1.0)


def test_parameters_that_are_not_active_have_no_values():
    space = [
        {"kind": ["a", "b"]},
        kbo.When("kind", "a", {"x": (0.0, 1.0)}),
        kbo.When("kind", "b", {"y": (0.0, 1.0)}),
    ]

    def objective(params):
        if params["kind"] == "a":
            return (params["x"] - 0.2) ** 2
        return 2 + params["y"]

    effects = by_name(at_random(objective, space, 30))
    assert effects["kind"].range.values == ("a",)
    assert effects["y"].range is effects["y"].good is None
    low, high = effects["x"].range.values
    assert low <= 0.2 <= high


def test_ranges_keep_the_constraints():
    space = {"x": (0.0, 1.0), "z": (0.0, 1.0)}
    limit = kbo.Linear({"x": 1, "z": 1}, upper=0.5)
    optimizer = kbo.Optimizer(space, constraints=[limit], seed=0)
    for _ in range(20):
        params = optimizer.ask()
        optimizer.tell(params, -params["x"] - params["z"])
    effects = by_name(optimizer)
    for name in space:
        assert effects[name].range.values[1] <= 0.5 + 1e-9


def test_left_out_errors_are_those_of_models_without_each_value():
    optimizer = at_random(noisy(quadratic, 0.1), QUADRATIC, 12)
    surrogate = optimizer.insight.description()
    predictive = surrogate._predictive
    errors, stds = surrogate.left_out_errors()
    whole = Data.of(predictive._loss)
    y = torch.from_numpy(predictive._loss.y)
    P = torch.from_numpy(predictive._loss.P)
    b0 = torch.from_numpy(predictive._loss.b0)
    theta = predictive._thetas[0]
    own = []
    for i in range(len(y)):
        others = torch.arange(len(y)) != i
        part = Regression(Data(*(column[others] for column in whole)), P, theta)
        trend, weights = part(y[others].unsqueeze(1), b0.unsqueeze(1))
        kernel = matern(whole.X[i : i + 1], whole.X[others], theta)
        predicted = whole.B[i : i + 1] @ trend + kernel @ weights
        assert float(y[i] - predicted) == pytest.approx(float(errors[i]), abs=1e-8)
        variance = part.variance(kernel, whole.B[i : i + 1]) + math.exp(theta[-1])
        own.append(float(variance.sqrt()))
    ratio = stds / torch.tensor(own, dtype=torch.float64)
    torch.testing.assert_close(ratio, ratio[:1].expand(len(y)))


def matern(X, Z, theta):
    scaled = (X[:, None] - Z[None, :]) / torch.from_numpy(theta[:-1]).exp()
    r = math.sqrt(5) * scaled.square().sum(-1).sqrt()
    return (1 + r + r**2 / 3) * (-r).exp()


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
    for effect in by_name(optimizer).values():
        low, high = effect.range.values
        assert high - low > 0.3
