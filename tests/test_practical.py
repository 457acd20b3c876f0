"""The practical setting: the fit, its targets, the local search, the sketch of long runs, and what it recommends."""

import math
import re
from dataclasses import replace

import pytest
import torch
from gpytorch.kernels import MaternKernel
from scipy import stats
from torch.distributions import MultivariateNormal, Normal

import kbo
from kbo.bandit import PRACTICAL_WIDTHS
from kbo.confidence import AlternatingWidth
from kbo.optimize.result import result_of
from kbo.optimize.search import bounds
from kbo.optimize.search.search import Search
from kbo.optimize.search.subspace import Subspace
from kbo.optimize.settings import practical
from kbo.optimize.strategies import upper_bound
from kbo.optimize.strategies.trust_region import GROWTH, LEAST, SHRINKAGE, START, trust_radius
from kbo.optimize.surrogates import fitting, practical_surrogate, predictive
from kbo.optimize.surrogates.fitting import Loss, bowl, fit
from kbo.optimize.surrogates.inducing_points import FocusedDictionary
from kbo.optimize.surrogates.model import fit_values
from kbo.optimize.surrogates.outcome_transform import OutcomeTransform, least_skewed, linear
from kbo.optimize.surrogates.practical_surrogate import PracticalSurrogate
from kbo.optimize.surrogates.predictive import Predictive
from kbo.optimize.surrogates.surrogate import Evaluation, Problem
from kbo.regression import KernelRidge, NystromRidge
from kbo.report import summary
from kbo.report.record import Record
from kbo.space import Space
from tests.dense import close, gram

LINE = {"x": (0.0, 1.0)}
NOISY = kbo.Practical(noise_std=0.1)
NOISELESS = kbo.Practical(noise_std=0)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def uniform(*shape, seed=0):
    return torch.rand(*shape, generator=seeded(seed), dtype=torch.float64)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


def data(n, d, noise=0.2):
    X = uniform(n, d)
    y = (4 * X[:, 0]).sin() + X[:, -1] ** 2 + noise * normal(n, seed=1)
    return X, (y - y.mean()) / y.std()


def wavy(x):
    return (x - 0.3) ** 2 + 0.1 * math.sin(1000 * x)


def run(n, objective=wavy, noise=0.0, **options):
    optimizer = kbo.Optimizer(LINE, **{"seed": 2, **options})
    for draw in normal(n).tolist():
        params = optimizer.ask()
        optimizer.tell(params, objective(params["x"]) + noise * draw)
    return optimizer


def told(xs, objective=wavy, **options):
    optimizer = kbo.Optimizer(LINE, seed=2, **options)
    for x in xs:
        optimizer.tell({"x": x}, objective(x))
    return optimizer


def at_once(optimizer):
    """A second optimiser that gets all values before it chooses a point."""
    late = kbo.Optimizer(LINE, seed=2)
    for trial in optimizer.trials:
        late.tell(trial.params, trial.value)
    return late


# The fit, against dense formulas


def covariance(X, theta):
    kernel = MaternKernel(nu=2.5, ard_num_dims=X.shape[-1]).double()
    kernel.lengthscale = theta[:-1].exp()
    return gram(kernel, X, X)


def dense_log_posterior(X, y, theta, constant, height, ratios, errors):
    """The same density from GPyTorch's kernel, torch's normal distributions and the priors as they are written."""
    D = X.shape[-1]
    A = covariance(X, theta) + (theta[-1].exp() * ratios + errors**2).diag()
    q = sum((2 * x - 1) ** 2 - 1 / 3 for x in X.T) / math.sqrt(4 * D / 45)
    likelihood = MultivariateNormal(constant - height * q, A).log_prob(y)
    prior = 0.2 * torch.eye(D, dtype=torch.float64) + 3.0
    away = theta[:-1] - math.sqrt(2) - math.log(D) / 2
    lengthscales = -away @ torch.linalg.solve(prior, away) / 2
    return float(likelihood + lengthscales - (theta[-1] + 4) ** 2 / 2 - (height - 0.4) ** 2 / 2)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_log_posterior_is_the_dense_one_at_its_best_trend_and_its_gradient_too(weighted):
    X, y = data(12, 3)
    ratios = 1 + weighted * uniform(12, seed=2)
    errors = weighted * uniform(12, seed=3)
    loss = Loss(X, y, errors=errors, ratios=ratios)
    theta = normal(4, seed=1)
    value, gradient = loss(theta.numpy())
    c, h, _ = loss.trend(theta.numpy())
    trends = [(c, h), (c - 0.01, h), (c + 0.01, h), (c, h - 0.01), (c, h + 0.01)]
    best, *others = (dense_log_posterior(X, y, theta, *t, ratios, errors) for t in trends)
    assert -float(value) == pytest.approx(best, rel=1e-9)
    assert max(others) < best
    steps = 1e-5 * torch.eye(4, dtype=torch.float64)
    slopes = [(loss((theta + e).numpy())[0] - loss((theta - e).numpy())[0]) / 2e-5 for e in steps]
    close(torch.from_numpy(gradient), torch.tensor(slopes, dtype=torch.float64), 1e-6)


def test_the_bowl_has_variance_1_and_follows_the_data():
    X = uniform(200_000, 3)
    assert float(bowl(X).mean()) == pytest.approx(0, abs=0.01)
    assert float(bowl(X).var()) == pytest.approx(1, abs=0.01)
    X = X[:60]
    noise = 0.3 * normal(60, seed=1)
    for height in (1.0, -1.0):
        y = -height * bowl(X) + noise
        assert fit(X, (y - y.mean()) / y.std()).height * height > 0.5
    assert fit(X, noise / noise.std(), with_bowl=False).height == 0.0


@pytest.mark.parametrize("noise_std", [None, 0.5])
def test_the_fit_is_a_maximum_keeps_a_given_noise_level_and_tells_its_gain(noise_std):
    X, y = data(40, 2)
    fitted = fit(X, y, noise_std=noise_std)
    loss = Loss(X, y)
    assert noise_std is None or fitted.noise_std == pytest.approx(noise_std)
    log_variance = torch.tensor([2 * math.log(fitted.noise_std)], dtype=torch.float64)
    theta = torch.cat([fitted.kernel.lengthscale[0].log(), log_variance])
    value, gradient = loss(theta.numpy())
    assert float(abs(gradient[: 3 if noise_std is None else 2]).max()) < 0.05
    assert (fitted.constant, fitted.height) == pytest.approx(loss.trend(theta.numpy())[:2])
    if noise_std is None:
        others = theta + 0.5 * normal(10, 3)
        assert min(float(loss(other.numpy())[0]) for other in others) > value
        K = covariance(X, theta) + fitted.noise_std**2 * torch.eye(40, dtype=torch.float64)
        likely = MultivariateNormal(fitted.constant - fitted.height * bowl(X), K).log_prob(y)
        null = Normal(y.mean(), y.std(unbiased=False)).log_prob(y).sum()
        assert fitted.gain == pytest.approx(float(likely - null), rel=1e-6)


def dense_gaussian(X, y, theta, Z, with_bowl):
    """Mean and variance of c - h q + f at Z: one Gaussian of all, with a flat prior of c as one of variance 10^6."""
    n = len(X)
    points = torch.cat([X, Z])
    q = bowl(points) * with_bowl
    K = covariance(points, theta) + 1e6 + torch.outer(q, q)
    A = K[:n, :n] + theta[-1].exp() * torch.eye(n, dtype=torch.float64)
    solved = torch.linalg.solve(A, torch.column_stack([y + 0.4 * q[:n], K[:n, n:]]))
    mean = K[n:, :n] @ solved[:, 0] - 0.4 * q[n:]
    return mean, (K[n:, n:] - K[n:, :n] @ solved[:, 1:]).diagonal()


@pytest.mark.parametrize("with_bowl", [True, False])
def test_predictions_are_those_of_the_dense_gaussian_and_left_out_errors_those_of_the_others(
    with_bowl,
):
    X, y = data(12, 2)
    Z = uniform(5, 2, seed=1)
    theta = torch.tensor([-0.5, 0.3, -2.0], dtype=torch.float64)
    loss = Loss(X, y, with_bowl=with_bowl)
    mean, variance = loss.predict(theta.numpy(), Z)
    dense = dense_gaussian(X, y, theta, Z, with_bowl)
    close(torch.from_numpy(mean), dense[0], 1e-4)
    close(torch.from_numpy(variance), dense[1], 1e-3)
    errors, _ = loss.left_out(theta.numpy())
    for i in range(len(y)):
        others = torch.arange(len(y)) != i
        mean, variance = dense_gaussian(X[others], y[others], theta, X[i : i + 1], with_bowl)
        error = (y[i] - mean) / (variance + theta[-1].exp()).sqrt()
        assert errors[i] == pytest.approx(float(error), rel=1e-3)


def test_the_predictive_distribution_is_wider_than_that_of_one_fit_and_repeats_itself():
    X, y = data(9, 2, noise=1.0)
    parts = (X, y, torch.zeros(9), torch.ones(9), torch.zeros(9, dtype=torch.bool), None)
    first = Predictive(*parts, noiseless=False, with_bowl=True)
    second = Predictive(*parts, noiseless=False, with_bowl=True)
    _, error = first(X)
    close(torch.stack(second(X)), torch.stack(first(X)), 0)
    close(torch.cat([first(x.unsqueeze(0))[1] for x in X]), error, 1e-9)
    loss = Loss(X, y, predictive.NOISE)
    _, variance = loss.predict(fitting.mode(loss, None)[1], X)
    assert (error.square() > torch.from_numpy(variance)).double().mean() > 0.8


def test_intervals_of_recommended_points_contain_the_truth_as_often_as_they_say():
    n_inside = 0
    for seed in range(12):
        noise = iter(normal(10, seed=seed))
        centre = uniform(2, seed=seed + 100).tolist()

        def truth(x, centre=centre):
            return sum(math.sin(3 * (a - c)) ** 2 for a, c in zip(x, centre, strict=True))

        def objective(x, truth=truth, noise=noise):
            return truth(x) + float(next(noise))

        result = kbo.minimize(objective, [(0.0, 1.0)] * 2, 10, seed=seed)
        assert result.lower < result.value < result.upper
        n_inside += result.lower <= truth(result.params) <= result.upper
    assert n_inside / 12 >= 0.8


def test_intervals_stay_in_the_range_of_the_values_and_others_are_failures(tmp_path):
    def error(x):
        return 2.0 if x[0] > 0.9 else min(1.0, abs(x[0] - 0.3) / 5)

    options = {"value_range": (0.0, 1.0), "journal": tmp_path / "run.jsonl", "try_first": [[0.95]]}
    result = kbo.minimize(error, [(0.0, 1.0)], 12, **options)
    message = "the objective returned 2, which is outside the value_range (0.0, 1.0)"
    assert message in result.trials[0].failure
    for optimizer in (result.optimizer, Record.of(tmp_path / "run.jsonl").reopened()):
        low, mean, high = optimizer.insight.intervals(uniform(50, 1))
        assert 0 <= low.min() <= mean.min() <= high.max() <= 1
    with pytest.raises(kbo.InvalidInput, match="value_range must be a pair"):
        kbo.minimize(error, [(0.0, 1.0)], 12, value_range=1.0)


def test_of_many_observations_a_part_is_fitted_always_the_same_with_all_early_ones(monkeypatch):
    X, y = data(60, 2)
    monkeypatch.setattr(fitting, "MOST", 30)
    noise_std = fit(X, y).noise_std
    assert fit(X, y).noise_std == noise_std
    assert fit(X[:30], y[:30]).noise_std != noise_std
    for early in (0, 7, 14):
        assert fit(X, y + (torch.arange(60) == early)).noise_std != noise_std


def test_replaying_a_long_run_costs_one_fit_and_leads_to_the_same_point(monkeypatch):
    fits = []

    def recording(X, y, *others, **options):
        fits.append(len(y))
        return fit_values(X, y, *others, **options)

    step_by_step = run(18)
    late = at_once(step_by_step)
    proposal = step_by_step.ask()
    monkeypatch.setattr(practical, "fit_values", recording)
    assert late.ask() == proposal
    assert fits == [15]
    assert late.interval({"x": 0.3}) == pytest.approx(step_by_step.interval({"x": 0.3}), rel=1e-9)


# The transformation of the values


def test_the_transformation_is_that_of_yeo_and_johnson_and_has_an_inverse():
    values = torch.linspace(-6, 9, 41, dtype=torch.float64)
    step = 1e-6 * torch.tensor([-1.0, 1.0], dtype=torch.float64)
    for power in (0.0, 0.5, 1.0, 1.75, 2.0):
        expected = torch.from_numpy(stats.yeojohnson(values.numpy(), power))
        close(OutcomeTransform(power=power)(values), expected, 1e-12)
        moved = OutcomeTransform(centre=2.0, spread=3.0, power=power, location=0.4, unit=1.7)
        close(moved.inverse(moved(values)), values, 1e-12)
        below, above = moved.inverse(step).tolist()
        assert moved.scale == pytest.approx((above - below) / 2e-6, rel=1e-6)


def test_values_below_the_floor_count_as_the_floor_and_equal_values_are_no_error():
    y = torch.tensor([1.0, 2.0, 3.0, 4.0, -1e6], dtype=torch.float64)
    plain = linear(y)
    assert plain.floor == pytest.approx(1 - 1.5 * 2)
    assert float(plain(y)[-1]) == pytest.approx((plain.floor - plain.centre) / plain.spread)
    assert abs(float(plain(y).mean())) < 1e-12
    assert least_skewed(torch.full((5,), 7.0, dtype=torch.float64)) == OutcomeTransform(7.0, 1.0)


def test_the_power_is_the_most_likely_one():
    quantiles = torch.from_numpy(stats.norm.ppf((torch.arange(200).numpy() + 0.5) / 200))
    assert least_skewed(quantiles) == linear(quantiles)
    skewed = -quantiles.exp()  # a long tail of bad values
    plain = linear(skewed)
    z = ((skewed.clamp_min(plain.floor) - plain.centre) / plain.spread).numpy()
    likelihoods = [stats.yeojohnson_llf(i / 8, z) for i in range(17)]
    assert least_skewed(skewed).power == max(range(17), key=likelihoods.__getitem__) / 8 > 1.5


@pytest.mark.parametrize(
    "transform", [OutcomeTransform(power=1.5, location=0.2, unit=1.3), OutcomeTransform()]
)
def test_densities_of_the_same_values_can_be_compared(transform):
    y = torch.tensor([0.3, -1.2, 2.5, 0.9], dtype=torch.float64)
    slopes = (transform(y + 1e-6) - transform(y - 1e-6)) / 2e-6
    assert transform.log_slope(y) == pytest.approx(float(slopes.log().mean()), abs=1e-8)


def test_of_skewed_noise_alone_the_less_skewed_values_are_more_likely():
    assert fit_values(uniform(40, 2), -normal(40, seed=3).exp()).transform.power == 2


# The search


def test_a_search_starts_at_the_best_trials_and_scores_half_as_many_points_after_many(monkeypatch):
    starts, sizes = [], []

    def recording(confidence, posterior, search, *limits):
        points = []
        search.argmax_point(lambda features: points.append(len(features)) or features[:, 0])
        starts.append(search.starts.flatten().tolist())
        sizes.append(sum(points))
        return bounds.argmax_upper(confidence, posterior, search)

    monkeypatch.setattr(upper_bound, "argmax_upper", recording)
    monkeypatch.setattr("kbo.optimize.searches.MANY", 12)
    optimizer = kbo.Optimizer([(0.0, 1.0)], setting=NOISY)
    for i, x in enumerate(uniform(14).tolist()):
        optimizer.tell([x], None if i == 3 else i % 4)
        if i > 10:
            best = sorted(optimizer.completed(), key=lambda trial: trial.value)
            optimizer.suggest()
            assert starts[-1] == [trial.params[0] for trial in best[:8]]
    assert sizes == [8 + 1024 + 6 * 256] + [8 + 512 + 6 * 128] * 2


def test_widths_alternate_with_the_observations():
    X, y = data(5, 2)
    state = KernelRidge(MaternKernel(nu=2.5).double(), 0.1)
    confidence = AlternatingWidth(0.5, 3.0)
    for n in range(4):
        state.update(X[n : n + 1], y[n : n + 1])
        mean, variance = state.predict(X)
        width = (0.5, 3.0)[(n + 1) % 2]
        close(confidence.upper(state, X), mean + width * variance.sqrt(), 1e-12)
    assert confidence.guarantee is None
    for widths in ((), (1.0, -1.0)):
        with pytest.raises(kbo.InvalidInput):
            AlternatingWidth(*widths)


def test_trials_of_a_batch_have_different_widths(monkeypatch):
    widths = []

    def anywhere(bound, posterior, search, limits=()):
        widths.append(bound.multiplier)
        return search.subspace.sample(search.generator)

    optimizer = run(7, setting=NOISY)
    monkeypatch.setattr(upper_bound, "argmax_upper", anywhere)
    optimizer.ask(8)
    assert sorted(widths) == sorted(PRACTICAL_WIDTHS)


def test_the_box_grows_after_a_better_observation_in_it_and_shrinks_after_a_worse_one():
    def observe(x, y):
        values.append(Evaluation(len(values), (x, 0.5), y))
        return trust_radius(values)

    values = []
    assert observe(0.5, 0.0) == START
    assert observe(0.6, 1.0) == pytest.approx(GROWTH * START)
    assert observe(0.5, 0.5) == pytest.approx(GROWTH * SHRINKAGE * START)
    assert observe(0.0, 0.9) == pytest.approx(GROWTH * SHRINKAGE * START), "outside and worse"
    for _ in range(3):
        observe(0.6, 0.0)
    assert observe(0.0, 2.0) == START, "outside and better: the first size again"
    while trust_radius(values) > LEAST / SHRINKAGE:
        observe(0.0, 0.0)
    assert observe(0.0, 0.0) == START


def test_the_local_search_follows_a_narrow_oblique_valley_inside_the_box():
    space = Space([(0.0, 1.0)] * 4)
    centre = torch.full((1, 4), 0.4).double()
    turn = torch.linalg.qr(normal(4, 4, seed=1))[0]
    peak = torch.tensor([0.45, 0.3, 0.42, 0.7]).double()
    curvature = torch.tensor([1.0, 10.0, 1e2, 1e3]).double()

    def score(U):
        return -(((U - peak) @ turn).square() * curvature).sum(-1)

    search = Search(space, Subspace(space), centre, 1, seeded(0))
    close(search.argmax_point_near(score, 0.35), peak, 1e-4)
    assert bool(((search.argmax_point_near(score, 0.1) - centre).abs() <= 0.1 + 1e-12).all())


@pytest.mark.parametrize("noise_std", [0.0, 1.0])
def test_every_second_trial_is_near_the_best_one_if_there_is_no_noise(noise_std):
    space = Space([(0.0, 1.0)] * 3)
    optimizer = kbo.Optimizer(space, setting=kbo.Practical(noise_std=noise_std), seed=1)
    values = []
    is_near = []
    for number in range(14):
        x = space.unit(optimizer.ask())
        if number > 6 and number % 2:
            best = space.unit(optimizer.recommended().params)
            is_near.append(float((x - best).abs().max()) <= trust_radius(values))
        y = float((20 * x).sin().sum() - 3 * (x - 0.4).square().sum())
        optimizer.tell(space.params(x), y)
        values.append(Evaluation(number, tuple(x.tolist()), -y))
    assert all(is_near) == (noise_std == 0)


# Long runs


def test_long_runs_are_sketched_and_short_ones_exact(monkeypatch):
    assert isinstance(run(6).insight.surrogate().posterior.state, KernelRidge)
    for name, value in {"MOST_EXACT": 10, "MOST_POINTS": 9, "N_DRAWN": 6}.items():
        monkeypatch.setattr(practical_surrogate, name, value)
    optimizer = run(18)
    late = at_once(optimizer)
    posterior = optimizer.insight.surrogate().posterior.state
    assert isinstance(posterior, NystromRidge)
    assert posterior.n == 18
    assert posterior.m < 9
    low, mean, high = optimizer.interval({"x": 0.35})
    assert low < mean < high
    assert abs(optimizer.recommended().params["x"] - 0.3) < 0.3
    assert late.interval({"x": 0.35}) == pytest.approx((low, mean, high), rel=1e-9)
    assert late.ask() == optimizer.ask()


def test_a_focused_dictionary_is_finest_where_the_targets_are_largest():
    X, y = data(40, 2)
    kernel = MaternKernel(nu=2.5).double()
    state = NystromRidge(kernel, 0.01, FocusedDictionary(0.01, 12, 8))
    state.update(X, y)
    K = gram(kernel, X, X)
    rank = y.argsort(descending=True).argsort() + 1
    drawn = []
    left = K
    for _ in range(8):
        drawn.append(int((left.diagonal() / rank).argmax()))
        left = K - K[:, drawn] @ torch.linalg.solve(K[drawn][:, drawn], K[drawn])
    assert torch.equal(state.anchors, X[drawn])
    assert state.dictionary.capped
    sizes = []
    for x in uniform(40, 2, seed=1).split(1):
        state.update(x, x[:, 0])
        sizes.append(state.m)
    assert {8, 11} <= set(sizes) <= set(range(8, 12))


# Noise, and the recommendation


def test_without_noise_the_best_observed_trial_is_recommended_and_the_value_of_a_trial_is_known():
    optimizer = run(12, lambda x: math.exp(4 * x) * (x - 0.3) ** 2)
    points = [trial.params["x"] for trial in optimizer.trials]
    assert points[4] in points[:4]  # one repetition shows it
    assert len(set(points)) == 11
    result = result_of(optimizer, "", None)
    assert result.exact
    least = min(trial.value for trial in optimizer.trials)
    assert (result.lower, result.value, result.upper) == (least, least, least)
    assert summary.evaluations(result) == "once"
    repeated = f"trial 4 repeated trial {points.index(points[4])} with the same value"
    assert result.account["noise"] == f"none: {repeated}"
    assert result.account["rule"] == "the best observed value, since there is no noise"
    power = optimizer.insight.surrogate().transform.power
    assert f"(Yeo-Johnson, power {power:g})" in result.account["model"]
    assert "MaternKernel fitted to the first 11 of 12 values" in result.account["model"]
    assert result.account["search"].startswith("ucb")
    for line in result.account.values():
        assert line in result.summary(full=True)
    trial = optimizer.trials[3]
    assert optimizer.interval(trial.params) == (trial.value, trial.value, trial.value)
    low, mean, high = optimizer.interval({"x": 0.8123})
    assert low < mean < high

    def steep(x):  # the mean is better at 1, by its slope
        return -1.0005 if x == 0.9999 else -x

    declared = told([*(x / 10 for x in range(11)), 0.9999], steep, setting=NOISELESS)
    assert declared.recommended().params == {"x": 0.9999}
    assert declared.insight.surrogate().account()["noise"] == "none, as given"


def test_a_repetition_has_the_same_parameters_and_equal_values_may_differ_by_rounding():
    space = {"lr": kbo.Float(1e-5, 1e-1, log=True), "wd": (0.0, 1.0)}
    for seed in range(2):
        optimizer = kbo.Optimizer(space, seed=seed)
        for draw in uniform(8, seed=seed).tolist():
            params = optimizer.ask()
            value = (math.log10(params["lr"]) + 3) ** 2 + math.sin(4 * params["wd"])
            optimizer.tell(params, value * (1 + 1e-13 * draw))
        points = [tuple(trial.params.values()) for trial in optimizer.trials]
        assert points[6] in points[:6]
        assert optimizer.insight.surrogate().noiseless


def test_with_noise_one_repetition_shows_it_and_the_recommended_mean_is_large():
    optimizer = run(14, lambda x: (x - 0.3) ** 2, 0.1)
    surrogate = optimizer.insight.surrogate()
    assert surrogate.noiseless is False
    points = [trial.params for trial in optimizer.trials]
    repeated = f"fitted; trial 4 repeated trial {points.index(points[4])} with another value"
    assert surrogate.account()["noise"].endswith(repeated)
    X = torch.tensor([[params["x"]] for params in points], dtype=torch.float64)
    mean, variance = surrogate.posterior.predict(X)
    assert optimizer.recommended().number == int((mean - variance.sqrt()).argmax())


def test_a_repetition_that_runs_is_not_asked_for_again_and_one_that_fails_is_not_tried_for_ever():
    optimizer = run(4)
    first, second = optimizer.ask(2)
    known = [trial.params for trial in optimizer.completed()]
    assert first in known
    assert second not in known
    optimizer.fail(first, "crashed")
    assert optimizer.ask() not in known
    assert optimizer.insight.surrogate().noiseless is None


def test_a_given_noise_level_is_used():
    xs = uniform(8).tolist()
    surrogate = told(xs, setting=kbo.Practical(noise_std=0.2)).insight.surrogate()
    assert surrogate.assumptions()["noise_std"] == pytest.approx(0.2)
    assert "standard deviation 0.2, given" in surrogate.account()["noise"]
    assert told(xs, setting=kbo.Practical(noise_std=1e308)).interval({"x": 0.5}) is not None


# Settings of the caller's own


class LatestSurrogate(PracticalSurrogate):
    rule = "the latest trial"

    def criterion(self, X, y):
        return torch.arange(len(y))


class Latest(kbo.Practical):
    surrogate = LatestSurrogate


class LargeNoise(Latest):
    def fitted(self, X, y, noise_std, errors, ratios):
        return replace(super().fitted(X, y, noise_std, errors, ratios), noise_std=0.5)


def test_a_subclass_replaces_parts_and_is_named_in_the_journal_and_the_account(tmp_path):
    path = tmp_path / "run.jsonl"
    optimizer = run(7, journal=path, setting=LargeNoise(delta=0.2))
    assert optimizer.recommended().number == 6
    surrogate = optimizer.insight.surrogate()
    assert surrogate.fitted.noise_std == 0.5
    assert "fitted by LargeNoise" in surrogate.account()["model"]
    assert surrogate.account()["rule"] == "the latest trial"
    optimizer.close()
    named = re.escape(f"class: '{__name__}.LargeNoise' in the journal")
    with pytest.raises(kbo.JournalError, match=named):
        run(0, journal=path, setting=Latest(delta=0.2))
    assert kbo.Optimizer(LINE, setting=Latest(), constraints=[kbo.Constraint("m", upper=1.0)]).ask()
    assert "pass its optimiser" in Record.of(path).obstacle


# Surrogates are functions of the evaluations


def evaluations(n=16):
    """Evaluations in two dimensions that end in another order than they began, with repeats, failures, an outlier."""
    points = uniform(n, 2).tolist()
    points[5] = points[8] = points[3]
    values = normal(n).tolist()
    values[6] = values[11] = None
    values[13] = 1e6
    order = (torch.arange(n) + 3 * uniform(n, seed=1)).argsort().tolist()
    failed = {number: ["failed"] for number in (6, 11)}
    return [Evaluation(i, tuple(points[i]), values[i], failed.get(i, [])) for i in order]


CERTIFIED = kbo.Certified(MaternKernel(nu=2.5).double(), 1.0, 1e10)


@pytest.mark.parametrize(
    ("setting", "method"),
    [
        (kbo.Practical(), "ucb"),
        (NOISELESS, "dmm-ucb"),
        (CERTIFIED, "cmm-ucb"),
        (replace(CERTIFIED, completion_independent_of_noise=True), "amm-ucb"),
        (replace(CERTIFIED, noise_std=None), "dmm-ucb-adaptive"),
    ],
)
def test_a_surrogate_of_evaluations_at_once_is_that_of_them_one_by_one_and_does_not_change(
    setting, method
):
    def predicted(surrogate):
        return torch.stack(surrogate.bound(0).posterior.predict(X))

    ends = evaluations()
    problem = Problem(method, None, Space([(0.0, 1.0)] * 2))
    X = uniform(5, 2, seed=2)
    known = None
    steps = []
    for n in range(len(ends) + 1):
        known = setting.fit(problem, ends[:n], known)
        if known is not None:
            steps.append((known, predicted(known)))
    whole = setting.fit(problem, ends)
    close(predicted(whole), predicted(known), 1e-9)
    close(torch.stack(whole.posterior.predict(X)), torch.stack(known.posterior.predict(X)), 1e-9)
    assert whole.guarantee() == known.guarantee()
    assert whole.values == known.values
    for surrogate, before in steps:
        close(predicted(surrogate), before, 1e-12)


def test_the_model_of_a_limit_on_the_objective_is_most_accurate_there():
    optimizer = run(7, constraints=[kbo.Constraint("objective", upper=0.4)])
    ((_, quantity),) = optimizer._quantities.limited
    assert quantity.surrogate().transform.centre == -0.4


def test_random_points_and_the_design_leave_no_point_of_a_finite_space_out():
    space = {"a": kbo.Int(0, 5), "b": kbo.Int(0, 3)}
    plain = kbo.Optimizer(space, seed=3)
    one_by_one = []
    for _ in range(3):
        one_by_one.append(plain.ask())
        plain.tell(one_by_one[-1], 0.0)
    assert kbo.Optimizer(space, seed=3).ask(3) == one_by_one
