"""The practical setting: the fit, its targets, the local search, the sketch of long runs, and what it recommends."""

import math
import re
from dataclasses import dataclass, replace

import pytest
import torch
from gpytorch.kernels import MaternKernel
from scipy import stats
from torch.distributions import MultivariateNormal

import kbo
from kbo.bandit import PRACTICAL_WIDTHS
from kbo.confidence import AlternatingWidth
from kbo.optimize.result import result_of
from kbo.optimize.search import bounds
from kbo.optimize.search.search import Search
from kbo.optimize.search.subspace import Subspace
from kbo.optimize.settings import practical
from kbo.optimize.strategies import InitialDesign, Strategy, upper_bound
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


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def data(n, d, seed=0, noise=0.2):
    g = seeded(seed)
    X = torch.rand(n, d, generator=g, dtype=torch.float64)
    y = (
        (4 * X[:, 0]).sin()
        + X[:, -1] ** 2
        + noise * torch.randn(n, generator=g, dtype=torch.float64)
    )
    return X, (y - y.mean()) / y.std()


def wavy(x):
    return (x - 0.3) ** 2 + 0.1 * math.sin(1000 * x)


def valley(x):
    return math.exp(4 * x) * (x - 0.3) ** 2


def run(n, objective=wavy, noise=0.0, **options):
    draws, optimizer = seeded(0), kbo.Optimizer(LINE, **{"seed": 2, **options})
    for _ in range(n):
        params = optimizer.ask()
        optimizer.tell(
            params, objective(params["x"]) + noise * float(torch.randn((), generator=draws))
        )
    return optimizer


def at_once(optimizer):
    """A second optimiser that gets all values before it chooses a point."""
    late = kbo.Optimizer(LINE, seed=2)
    for trial in optimizer.trials:
        late.tell(trial.params, trial.value)
    return late


# The fit


def dense_log_posterior(X, y, theta, constant, height):
    """The same density from GPyTorch's kernel, torch's normal distributions and the priors as they are written."""
    D = X.shape[-1]
    kernel = MaternKernel(nu=2.5, ard_num_dims=D).double()
    kernel.lengthscale = theta[:-1].exp()
    A = kernel(X).to_dense().detach() + theta[-1].exp() * torch.eye(len(X), dtype=torch.float64)
    bowl = sum((2 * x - 1) ** 2 - 1 / 3 for x in X.T) / math.sqrt(4 * D / 45)
    likelihood = MultivariateNormal(constant - height * bowl, A).log_prob(y)
    covariance = 0.2 * torch.eye(D, dtype=torch.float64) + 3.0
    away = theta[:-1] - torch.full((D,), math.sqrt(2) + math.log(D) / 2, dtype=torch.float64)
    of_height = (height - 0.4) ** 2 / 2
    return float(
        likelihood
        - away @ torch.linalg.solve(covariance, away) / 2
        - (theta[-1] + 4) ** 2 / 2
        - of_height
    )


@pytest.mark.parametrize(("n", "d"), [(7, 1), (25, 3)])
def test_the_log_posterior_is_the_dense_one_at_its_best_trend_and_its_gradient_too(n, d):
    X, y = data(n, d)
    loss, theta = Loss(X, y), torch.randn(d + 1, generator=seeded(1), dtype=torch.float64)
    value, gradient = loss(theta.numpy())
    c, h, _ = loss.trend(theta.numpy())
    assert -float(value) == pytest.approx(dense_log_posterior(X, y, theta, c, h), rel=1e-9)
    for other in ((c - 0.01, h), (c + 0.01, h), (c, h - 0.01), (c, h + 0.01)):
        assert dense_log_posterior(X, y, theta, *other) < -float(value)
    steps = 1e-5 * torch.eye(d + 1, dtype=torch.float64)
    numerical = [
        (loss((theta + e).numpy())[0] - loss((theta - e).numpy())[0]) / 2e-5 for e in steps
    ]
    close(torch.from_numpy(gradient), torch.tensor(numerical, dtype=torch.float64), 1e-6)


def test_the_bowl_has_variance_1_and_follows_the_data():
    X = torch.rand(200_000, 3, generator=seeded(0), dtype=torch.float64)
    assert float(bowl(X).mean()) == pytest.approx(0, abs=0.01)
    assert float(bowl(X).var()) == pytest.approx(1, abs=0.01)
    X, noise = X[:60], 0.3 * torch.randn(60, generator=seeded(1), dtype=torch.float64)
    for height in (1.0, -1.0):
        y = -height * bowl(X) + noise
        assert fit(X, (y - y.mean()) / y.std()).height * height > 0.5
    assert fit(X, noise / noise.std(), with_bowl=False).height == 0.0


@pytest.mark.parametrize("noise_std", [None, 0.5])
def test_the_fit_is_a_maximum_and_keeps_a_given_noise_level(noise_std):
    X, y = data(40, 2)
    fitted, loss = fit(X, y, noise_std=noise_std), Loss(X, y)
    assert noise_std is None or fitted.noise_std == pytest.approx(noise_std)
    log_variance = torch.tensor([2 * math.log(fitted.noise_std)], dtype=torch.float64)
    theta = torch.cat([fitted.kernel.lengthscale[0].log(), log_variance])
    value, gradient = loss(theta.numpy())
    assert float(abs(gradient[: 3 if noise_std is None else 2]).max()) < 0.05
    assert (fitted.constant, fitted.height) == pytest.approx(loss.trend(theta.numpy())[:2])
    for seed in range(10 * (noise_std is None)):
        assert (
            loss((theta + 0.5 * torch.randn(3, generator=seeded(seed)).double()).numpy())[0] > value
        )


@pytest.mark.parametrize(("height", "visible"), [(0.0, False), (4.0, True)])
def test_a_run_says_when_a_constant_and_noise_explain_its_values(height, visible):
    optimizer, noise = kbo.Optimizer([(0.0, 1.0)] * 2, seed=0), seeded(0)
    for _ in range(25):
        x = optimizer.ask()
        optimizer.tell(
            x, height * (x[0] - 0.3) ** 2 + 0.3 * float(torch.randn((), generator=noise))
        )
    assert ("effects" in optimizer.insight.surrogate().account()) != visible
    X, y = data(20, 2)
    kernel = fit(X, y).kernel
    K = gram(kernel, X, X) + fit(X, y).noise_std ** 2 * torch.eye(20, dtype=torch.float64)
    mean = fit(X, y).constant - fit(X, y).height * bowl(X)
    null = torch.distributions.Normal(y.mean(), y.std(unbiased=False)).log_prob(y).sum()
    assert fit(X, y).gain == pytest.approx(
        float(MultivariateNormal(mean, K).log_prob(y) - null), rel=1e-6
    )


def dense_gaussian(X, y, theta, Z, with_bowl):
    """Mean and variance of c - h q + f at Z: one Gaussian of all, with a flat prior of c as one of variance 10^6."""
    kernel = (
        MaternKernel(nu=2.5, ard_num_dims=X.shape[1])
        .double()
        .initialize(lengthscale=theta[:-1].exp())
    )
    points = torch.cat([X, Z])
    q = bowl(points) * with_bowl
    K = gram(kernel, points, points) + 1e6 + torch.outer(q, q)
    A, K_Z = (
        K[: len(X), : len(X)] + theta[-1].exp() * torch.eye(len(X), dtype=torch.float64),
        K[len(X) :, : len(X)],
    )
    solved = torch.linalg.solve(A, torch.column_stack([y + 0.4 * q[: len(X)], K_Z.T]))
    return K_Z @ solved[:, 0] - 0.4 * q[len(X) :], (
        K[len(X) :, len(X) :] - K_Z @ solved[:, 1:]
    ).diagonal()


@pytest.mark.parametrize("with_bowl", [True, False])
def test_predictions_are_those_of_the_dense_gaussian_and_left_out_errors_those_of_the_others(
    with_bowl,
):
    X, y = data(12, 2)
    theta = torch.tensor([-0.5, 0.3, -2.0], dtype=torch.float64)
    loss = Loss(X, y, with_bowl=with_bowl)
    mean, variance = loss.predict(theta.numpy(), Z := data(5, 2, seed=1)[0])
    dense = dense_gaussian(X, y, theta, Z, with_bowl)
    close(torch.from_numpy(mean), dense[0], 1e-4)
    close(torch.from_numpy(variance), dense[1], 1e-3)
    errors, _ = loss.left_out(theta.numpy())
    for i in range(len(y)):
        others = torch.arange(len(y)) != i
        mean, variance = dense_gaussian(X[others], y[others], theta, X[i : i + 1], with_bowl)
        assert errors[i] == pytest.approx(
            float((y[i] - mean) / (variance + theta[-1].exp()).sqrt()), rel=1e-3
        )


def test_the_predictive_distribution_is_wider_than_that_of_one_fit_and_repeats_itself():
    X, y = data(9, 2, noise=1.0)
    one, other = (
        Predictive(
            X,
            y,
            torch.zeros(9),
            torch.ones(9),
            torch.zeros(9, dtype=torch.bool),
            None,
            noiseless=False,
            with_bowl=True,
        )
        for _ in range(2)
    )
    mean, error = one(X)
    assert [part.tolist() for part in other(X)] == [mean.tolist(), error.tolist()]
    close(torch.cat([one(x.unsqueeze(0))[1] for x in X]), error, 1e-9)
    loss = Loss(X, y, predictive.NOISE)
    assert (
        error.square() > torch.from_numpy(loss.predict(fitting.mode(loss, None)[1], X)[1])
    ).double().mean() > 0.8


def test_without_noise_the_value_of_a_trial_is_known_and_elsewhere_the_unexplained_part_counts():
    optimizer = run(12)
    known, value = [(t.params, t.value) for t in optimizer.completed()][3]
    assert optimizer.interval(known) == (value, value, value)
    low, mean, high = optimizer.interval({"x": 0.8123})
    assert low < mean < high


@pytest.mark.parametrize("noise", [0.1, 1.0])
def test_intervals_of_recommended_points_contain_the_truth_as_often_as_they_say(noise):
    inside = []
    for seed in range(30):
        rng, centre = (
            torch.Generator().manual_seed(seed),
            torch.rand(2, generator=seeded(seed + 100)),
        )

        def objective(x, rng=rng, centre=centre):
            return truth(x, centre) + noise * float(torch.randn((), generator=rng))

        result = kbo.minimize(objective, [(0.0, 1.0)] * 2, 15, seed=seed)
        inside.append(result.lower <= truth(result.params, centre) <= result.upper)
    assert sum(inside) / len(inside) >= 0.8


def truth(x, centre):
    return sum(math.sin(3 * (a - float(c))) ** 2 for a, c in zip(x, centre, strict=True))


def test_intervals_stay_in_the_range_of_the_values_and_others_are_failures(tmp_path):
    def error(x):
        return 2.0 if x[0] > 0.9 else min(1.0, abs(x[0] - 0.3) / 5)

    options = {"value_range": (0.0, 1.0), "journal": tmp_path / "run.jsonl", "try_first": [[0.95]]}
    result = kbo.minimize(error, [(0.0, 1.0)], 12, **options)
    assert (
        "the objective returned 2, which is outside the value_range (0.0, 1.0)"
        in result.trials[0].failure
    )
    low, mean, high = result.optimizer.insight.intervals(data(50, 1)[0])
    assert 0 <= low.min() <= mean.min() <= high.max() <= 1
    low, _, high = Record.of(tmp_path / "run.jsonl").reopened().insight.intervals(data(50, 1)[0])
    assert 0 <= low.min() <= high.max() <= 1
    with pytest.raises(kbo.InvalidInput, match="value_range must be a pair"):
        kbo.minimize(error, [(0.0, 1.0)], 12, value_range=1.0)


def test_of_many_observations_a_part_is_fitted_always_the_same_with_all_early_ones(monkeypatch):
    X, y = data(60, 2)
    monkeypatch.setattr(fitting, "MOST", 30)
    first, second = fit(X, y), fit(X, y)
    assert (first.noise_std, first.constant) == (second.noise_std, second.constant)
    assert first.noise_std != fit(X[:30], y[:30]).noise_std
    for early in (0, 7, 14):
        assert fit(X, y + (torch.arange(60) == early)).noise_std != first.noise_std


def test_replaying_a_long_run_costs_one_fit_and_leads_to_the_same_point(monkeypatch):
    fits = []
    monkeypatch.setattr(
        practical,
        "fit_values",
        lambda X, y, *a, **k: fits.append(len(y)) or fit_values(X, y, *a, **k),
    )
    step_by_step = run(30)
    late = at_once(step_by_step)
    fits.clear()
    assert late.ask() == step_by_step.ask()
    assert fits == [26]
    assert late.interval({"x": 0.3}) == pytest.approx(step_by_step.interval({"x": 0.3}), rel=1e-9)


# OutcomeTransform


def test_the_transformation_is_that_of_yeo_and_johnson_and_has_an_inverse():
    values, step = (
        torch.linspace(-6, 9, 41, dtype=torch.float64),
        1e-6 * torch.tensor([-1.0, 1.0], dtype=torch.float64),
    )
    for power in (0.0, 0.5, 1.0, 1.75, 2.0):
        close(
            OutcomeTransform(power=power)(values),
            torch.from_numpy(stats.yeojohnson(values.numpy(), power)),
            1e-12,
        )
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
    normal = torch.from_numpy(stats.norm.ppf((torch.arange(200).numpy() + 0.5) / 200))
    assert least_skewed(normal) == linear(normal)
    skewed = -normal.exp()  # a long tail of bad values
    found, plain = least_skewed(skewed), linear(skewed)
    z = ((skewed.clamp_min(plain.floor) - plain.centre) / plain.spread).numpy()
    likelihoods = [stats.yeojohnson_llf(i / 8, z) for i in range(17)]
    assert found.power == max(range(17), key=likelihoods.__getitem__) / 8 > 1.5


def test_densities_of_the_same_values_can_be_compared():
    y, h = torch.tensor([0.3, -1.2, 2.5, 0.9], dtype=torch.float64), 1e-6
    for targets in (OutcomeTransform(power=1.5, location=0.2, unit=1.3), OutcomeTransform()):
        slopes = (targets(y + h) - targets(y - h)) / (2 * h)
        assert targets.log_slope(y) == pytest.approx(float(slopes.log().mean()), abs=1e-8)


def test_skewed_values_change_by_a_monotone_map_and_bounds_return_to_their_units():
    optimizer = run(20, lambda x: math.exp(12 * x) * (1 + x))
    assert optimizer.insight.surrogate().transform.power > 1
    low, mean, high = optimizer.interval({"x": 0.05})
    assert low <= min(mean, math.exp(0.6) * 1.05) <= max(mean, math.exp(0.6) * 1.05) <= high


def test_of_skewed_noise_alone_the_less_skewed_values_are_more_likely():
    draws = seeded(1)
    X = torch.rand(40, 2, generator=draws, dtype=torch.float64)
    assert (
        fit_values(X, -torch.randn(40, generator=draws, dtype=torch.float64).exp()).transform.power
        == 2
    )


# The search


def test_a_search_starts_at_the_best_trials_and_scores_half_as_many_points_after_many(monkeypatch):
    searches = []

    def recording(confidence, posterior, search, *limits):
        points = []
        search.argmax_point(lambda features: points.append(len(features)) or features[:, 0])
        searches.append((search.starts.flatten().tolist(), sum(points)))
        return bounds.argmax_upper(confidence, posterior, search)

    monkeypatch.setattr(upper_bound, "argmax_upper", recording)
    monkeypatch.setattr("kbo.optimize.searches.MANY", 12)
    optimizer = kbo.Optimizer([(0.0, 1.0)], setting=kbo.Practical(noise_std=0.1))
    for i in range(14):
        optimizer.tell([optimizer.ask()[0]], None if i == 3 else i % 4)
        best = sorted(optimizer.completed(), key=lambda trial: trial.value)
        optimizer.suggest()
        if searches:
            assert searches[-1][0] == [trial.params[0] for trial in best[:8]]
    assert [size for _, size in searches[-6:]] == [8 + 1024 + 6 * 256] * 3 + [8 + 512 + 6 * 128] * 3


def test_widths_alternate_with_the_observations():
    X, y = data(5, 2)
    state = KernelRidge(MaternKernel(nu=2.5).double(), 0.1)
    confidence = AlternatingWidth(0.5, 3.0)
    for n in range(5):
        state.update(X[n : n + 1], y[n : n + 1])
        mean, variance = state.predict(X)
        close(confidence.upper(state, X), mean + (0.5, 3.0)[(n + 1) % 2] * variance.sqrt(), 1e-12)
    close(confidence.for_trial(4).upper(state, X), mean + 0.5 * variance.sqrt(), 1e-12)
    assert confidence.guarantee is None
    for widths in ((), (1.0, -1.0)):
        with pytest.raises(kbo.InvalidInput):
            AlternatingWidth(*widths)


def test_trials_of_a_batch_have_different_widths(monkeypatch):
    widths, optimizer = [], run(7, setting=kbo.Practical(noise_std=0.1))

    def anywhere(bound, posterior, search, limits=()):
        widths.append(bound.multiplier)
        return search.subspace.sample(search.generator)

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
    assert observe(0.0, 0.9) == pytest.approx(GROWTH * SHRINKAGE * START), (
        "outside and worse: unchanged"
    )
    for _ in range(3):
        observe(0.6, 0.0)
    assert observe(0.0, 2.0) == START, "outside and better: the first size again"
    while trust_radius(values) > LEAST / SHRINKAGE:
        observe(0.0, 0.0)
    assert observe(0.0, 0.0) == START


def test_the_local_search_follows_a_narrow_oblique_valley_inside_the_box():
    space, centre = Space([(0.0, 1.0)] * 4), torch.full((1, 4), 0.4).double()
    turn = torch.linalg.qr(torch.randn(4, 4, generator=seeded(1)).double())[0]
    peak, curvature = (
        torch.tensor([0.45, 0.3, 0.42, 0.7]).double(),
        torch.tensor([1.0, 10.0, 1e2, 1e3]).double(),
    )

    def found(radius):
        search = Search(space, Subspace(space), centre, 1, seeded(0))
        return search.argmax_point_near(
            lambda U: -(((U - peak) @ turn).square() * curvature).sum(-1), radius
        )

    torch.testing.assert_close(found(0.35), peak, rtol=0, atol=1e-4)
    assert bool(((found(0.1) - centre).abs() <= 0.1 + 1e-12).all())


@pytest.mark.parametrize("noise_std", [0.0, 1.0])
def test_every_second_trial_is_near_the_best_one_if_there_is_no_noise(noise_std):
    space = Space([(0.0, 1.0)] * 3)
    optimizer, values, near = (
        kbo.Optimizer(space, setting=kbo.Practical(noise_std=noise_std), seed=1),
        [],
        [],
    )
    for number in range(21):
        x = space.unit(optimizer.ask())
        if number > 6 and number % 2:
            best = space.unit(optimizer.recommended().params)
            near.append(float((x - best).abs().max()) <= trust_radius(values))
        y = float((20 * x).sin().sum() - 3 * (x - 0.4).square().sum())
        optimizer.tell(space.params(x), y)
        values.append(Evaluation(number, tuple(x.tolist()), -y))
    assert all(near) == (noise_std == 0)


# Long runs


def test_long_runs_are_sketched_and_short_ones_exact(monkeypatch):
    assert isinstance(run(6).insight.surrogate().posterior.state, KernelRidge)
    monkeypatch.setattr(practical_surrogate, "MOST_EXACT", 10)
    monkeypatch.setattr(practical_surrogate, "MOST_POINTS", 9)
    monkeypatch.setattr(practical_surrogate, "N_DRAWN", 6)
    optimizer = run(25)
    late, posterior = at_once(optimizer), optimizer.insight.surrogate().posterior.state
    assert isinstance(posterior, NystromRidge)
    assert posterior.n == 25
    assert posterior.m < 9
    low, mean, high = optimizer.interval({"x": 0.35})
    assert low < mean < high
    assert abs(optimizer.recommended().params["x"] - 0.3) < 0.3
    assert late.interval({"x": 0.35}) == pytest.approx((low, mean, high), rel=1e-9)
    assert late.ask() == optimizer.ask()


def test_a_focused_dictionary_is_finest_where_the_targets_are_largest():
    (X, y), kernel = data(40, 2), MaternKernel(nu=2.5).double()
    state = NystromRidge(kernel, 0.01, FocusedDictionary(0.01, 12, 8))
    state.update(X, y)
    K, rank, drawn = gram(kernel, X, X), y.argsort(descending=True).argsort() + 1, []
    for _ in range(8):
        left = K - K[:, drawn] @ torch.linalg.solve(K[drawn][:, drawn], K[drawn]) if drawn else K
        drawn.append(int((left.diagonal() / rank).argmax()))
    assert torch.equal(state.anchors, X[drawn])
    assert state.dictionary.capped
    sizes = []
    for x in torch.rand(40, 2, generator=seeded(1), dtype=torch.float64).split(1):
        state.update(x, x[:, 0])
        sizes.append(state.m)
    assert {8, 11} <= set(sizes) <= set(range(8, 12))


# Noise, and the recommendation


def test_without_noise_the_best_observed_trial_is_recommended():
    optimizer = run(12, valley)
    points = [trial.params["x"] for trial in optimizer.trials]
    assert points[4] in points[:4]  # one repetition shows it
    assert len(set(points)) == 11
    result = result_of(optimizer, "", None)
    assert result.exact
    assert (
        result.value
        == result.lower
        == result.upper
        == min(trial.value for trial in optimizer.trials)
    )
    assert summary.evaluations(result) == "once"
    assert (
        result.account["noise"]
        == f"none: trial 4 repeated trial {points.index(points[4])} with the same value"
    )
    assert result.account["rule"] == "the best observed value, since there is no noise"
    assert (
        f"(Yeo-Johnson, power {optimizer.insight.surrogate().transform.power:g})"
        in result.account["model"]
    )
    declared = kbo.Optimizer(LINE, setting=kbo.Practical(noise_std=0))
    for x in range(11):
        declared.tell({"x": x / 10}, -x / 10)
    declared.tell({"x": 0.9999}, -1.0005)  # the mean is better at 1, by its slope
    assert declared.recommended().params == {"x": 0.9999}
    assert declared.insight.surrogate().account()["noise"] == "none, as given"


def test_a_repetition_has_the_same_parameters_and_equal_values_may_differ_by_rounding():
    draws = seeded(0)
    for seed in range(2):
        optimizer = kbo.Optimizer(
            {"lr": kbo.Float(1e-5, 1e-1, log=True), "wd": (0.0, 1.0)}, seed=seed
        )
        for _ in range(9):
            params = optimizer.ask()
            value = (math.log10(params["lr"]) + 3) ** 2 + math.sin(4 * params["wd"])
            optimizer.tell(params, value * (1 + 1e-13 * float(torch.rand((), generator=draws))))
        points = [tuple(trial.params.values()) for trial in optimizer.trials]
        assert points[6] in points[:6]
        assert optimizer.insight.surrogate().noiseless


def test_with_noise_one_repetition_shows_it_and_the_recommended_mean_is_large():
    optimizer = run(20, lambda x: (x - 0.3) ** 2, 0.1)
    belief = optimizer.insight.surrogate()
    assert belief.noiseless is False
    assert belief.account()["noise"].endswith("fitted; trial 4 repeated trial 2 with another value")
    X = torch.tensor([[trial.params["x"]] for trial in optimizer.trials], dtype=torch.float64)
    mean, variance = belief.posterior.predict(X)
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
    optimizer = run(12, setting=kbo.Practical(noise_std=0.2))
    assert optimizer.insight.surrogate().assumptions()["noise_std"] == pytest.approx(0.2)
    assert "standard deviation 0.2, given" in optimizer.insight.surrogate().account()["noise"]
    assert run(8, setting=kbo.Practical(noise_std=1e308)).interval({"x": 0.5}) is not None


def test_the_account_names_the_parts_and_is_the_same_after_a_replay(tmp_path):
    path = tmp_path / "run.jsonl"
    run(12, valley, 0.3, journal=path).close()
    first, second = (
        result_of(optimizer := run(0, journal=path), "", optimizer.close()) for _ in range(2)
    )
    assert first == second
    assert "MaternKernel fitted to the first 11 of 12 values" in first.account["model"]
    assert first.account["search"].startswith("ucb")
    for line in first.account.values():
        assert line in first.summary(full=True)
    assert len(str(first).splitlines()) <= 8


def test_before_a_bound_and_in_the_certified_setting_nothing_is_said_of_how_sure_it_is():
    early = result_of(run(3), "", None)
    assert (early.answers, early.exact) == (None, None)
    assert "too few trials to say more" in str(early)
    assert (
        run(
            3, noise=0.1, setting=kbo.Certified(fitting.unit_kernel(1), 0.3, 40.0)
        ).insight.answers()
        is None
    )


# Settings of the caller's own


class LatestSurrogate(PracticalSurrogate):
    rule = "the latest trial"

    def criterion(self, X, y):
        return torch.arange(len(y))


class Latest(kbo.Practical):
    surrogate = LatestSurrogate


@dataclass(frozen=True)
class OfLargestMean(Strategy):
    def propose(self, search):
        if search.bound is None:
            return None
        return search.argmax(lambda features: search.bound.posterior.predict(features)[0])


class LargestMean(Latest):
    def fitted(self, X, y, noise_std, errors, ratios):
        return replace(super().fitted(X, y, noise_std, errors, ratios), noise_std=0.5)


def test_a_subclass_replaces_parts_and_is_named_in_the_journal_and_the_account(tmp_path):
    path = tmp_path / "run.jsonl"
    optimizer = run(
        7,
        journal=path,
        setting=LargestMean(delta=0.2, strategies=[InitialDesign(), OfLargestMean()]),
    )
    assert optimizer.recommended().number == 6
    assert optimizer.insight.surrogate().fitted.noise_std == 0.5
    assert optimizer.ask() != run(7).ask()
    account = optimizer.insight.surrogate().account()
    assert "fitted by LargestMean" in account["model"]
    assert account["rule"] == "the latest trial"
    assert optimizer.explain(6).strategy == "OfLargestMean"
    optimizer.close()
    with pytest.raises(
        kbo.JournalError, match=re.escape(f"class: '{__name__}.LargestMean' in the journal")
    ):
        run(0, journal=path, setting=Latest(delta=0.2))
    assert kbo.Optimizer(LINE, setting=Latest(), constraints=[kbo.Constraint("m", upper=1.0)]).ask()
    assert "pass its optimiser" in Record.of(path).obstacle
    assert "pass its optimiser" in Record.of(path).obstacle


# Beliefs are functions of the evaluations


def evaluations(seed: int, n: int = 30) -> list[Evaluation]:
    """Evaluations in two dimensions that end in another order than they began, with repeats, failures, an outlier."""
    generator = seeded(seed)
    points = torch.rand(n, 2, generator=generator, dtype=torch.float64).tolist()
    points[7], points[12] = points[3], points[3]
    values = torch.randn(n, generator=generator, dtype=torch.float64).tolist()
    values[9], values[20], values[25] = None, None, 1e6
    order = (torch.arange(n) + 3 * torch.rand(n, generator=generator)).argsort().tolist()
    return [
        Evaluation(i, tuple(points[i]), values[i], ["failed"] * (values[i] is None)) for i in order
    ]


CERTIFIED = kbo.Certified(MaternKernel(nu=2.5).double(), 1.0, 1e10)


@pytest.mark.parametrize(
    ("setting", "method"),
    [
        (kbo.Practical(), "ucb"),
        (kbo.Practical(noise_std=0.0), "dmm-ucb"),
        (CERTIFIED, "cmm-ucb"),
        (replace(CERTIFIED, completion_independent_of_noise=True), "amm-ucb"),
        (replace(CERTIFIED, noise_std=None), "dmm-ucb-adaptive"),
    ],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_belief_is_the_same_whether_evaluations_come_at_once_or_one_by_one_and_does_not_change(
    setting, method, seed
):
    ends, problem, X = (
        evaluations(seed),
        Problem(method, None, Space([(0.0, 1.0)] * 2)),
        torch.rand(5, 2).double(),
    )
    known, steps = None, []
    for n in range(len(ends) + 1):
        known = setting.fit(problem, ends[:n], known)
        steps.append(known and (known, known.bound(0).posterior.predict(X)))
    whole = setting.fit(problem, ends)
    for mine, other in (
        (whole.posterior, known.posterior),
        (whole.bound(0).posterior, known.bound(0).posterior),
    ):
        close(torch.stack(mine.predict(X)), torch.stack(other.predict(X)), 1e-9)
    assert whole.guarantee() == known.guarantee()
    assert [one.number for one in whole.values] == [one.number for one in known.values]
    for belief, before in filter(None, steps):
        close(torch.stack(belief.bound(0).posterior.predict(X)), torch.stack(before), 1e-12)


def test_a_guarantee_is_true_without_objections():
    estimated = run(6).insight.surrogate().guarantee()
    setting = kbo.Certified(fitting.unit_kernel(1), 0.3, 40.0, delta=0.2)
    given = run(3, noise=0.1, setting=setting).insight.surrogate()
    assert bool(given.guarantee())
    assert str(given.guarantee()).startswith("certified: ")
    assert given.guarantee().delta == 0.2
    for guarantee in (estimated, given.guarantee(["trials failed: 1"])):
        assert not guarantee
        assert guarantee.objections[0] in guarantee.text


def test_the_model_of_a_limit_on_the_objective_is_most_accurate_there():
    optimizer = run(12, constraints=[kbo.Constraint("objective", upper=0.4)])
    ((_, quantity),) = optimizer._quantities.limited
    assert quantity.surrogate().transform.centre == -0.4


def test_random_points_and_the_design_leave_no_point_of_a_finite_space_out():
    space = {"a": kbo.Int(0, 5), "b": kbo.Int(0, 3)}
    plain, several = kbo.Optimizer(space, seed=3), kbo.Optimizer(space, seed=3)
    one_by_one = []
    for _ in range(3):
        one_by_one.append(plain.ask())
        plain.tell(one_by_one[-1], 0.0)
    assert several.ask(3) == one_by_one
