"""The practical setting: the fit, its targets, the local search, the sketch of long runs, and what it recommends."""

import math
import re
from dataclasses import fields, replace
from itertools import product

import pytest
import torch
from gpytorch.kernels import MaternKernel
from scipy import stats
from torch.distributions import MultivariateNormal, Normal

import kbo
from kbo.bandit import PRACTICAL_WIDTHS
from kbo.optimize.objectives.objective import Objective
from kbo.optimize.result import result_of
from kbo.optimize.search.search import Search
from kbo.optimize.search.subspace import Subspace
from kbo.optimize.settings import practical
from kbo.optimize.strategies import RandomPoint, upper_bounds
from kbo.optimize.strategies.without_noise import FIRST_RADIUS, GROWTH, SHRINKAGE, trust_radius
from kbo.optimize.surrogates import practical_posterior
from kbo.optimize.surrogates.evaluation import Evaluation, SearchProblem
from kbo.optimize.surrogates.fitting import Loss
from kbo.optimize.surrogates.model import _fit_under, fit_values
from kbo.optimize.surrogates.outcome_transform import OutcomeTransform, least_skewed, linear
from kbo.optimize.surrogates.practical_posterior import FocusedDictionary
from kbo.optimize.surrogates.practical_surrogate import PracticalSurrogate
from kbo.optimize.surrogates.process import PLAIN, Bowl, Process, Regression
from kbo.regression import KernelRidge, NystromRidge
from kbo.report.record import Record
from kbo.space import Space
from tests.dense import close, gram

LINE = {"x": (0.0, 1.0)}
NOISY = kbo.Practical(noise_std=0.1)


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
    optimizer = kbo.Optimizer(LINE, seed=2, **options)
    for draw in normal(n).tolist():
        params = optimizer.ask()
        optimizer.tell(params, objective(params["x"]) + noise * draw)
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


def test_the_log_posterior_is_the_dense_one_at_its_best_trend_and_its_gradient_too():
    X, y = data(12, 3)
    ratios = 1 + uniform(12, seed=2)
    errors = uniform(12, seed=3)
    loss = Loss(Process(X, y, errors, ratios))
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


def test_the_fit_is_a_maximum_keeps_a_given_noise_level_and_tells_its_gain():
    X, y = data(40, 2)
    process = Process(X, y)
    given = _fit_under(OutcomeTransform(), process, 0.5, PLAIN)[1]
    assert given.noise_std == pytest.approx(0.5)
    fitted = _fit_under(OutcomeTransform(), process, None, PLAIN)[1]
    constant = fitted.transform.location
    loss = Loss(process)
    log_variance = torch.tensor([2 * math.log(fitted.noise_std)], dtype=torch.float64)
    theta = torch.cat([fitted.kernel.lengthscale[0].log(), log_variance])
    value, gradient = loss(theta.numpy())
    assert float(abs(gradient).max()) < 0.05
    assert (constant, fitted.height) == pytest.approx(loss.trend(theta.numpy())[:2])
    others = theta + 0.5 * normal(10, 3)
    assert min(float(loss(other.numpy())[0]) for other in others) > value
    K = covariance(X, theta) + fitted.noise_std**2 * torch.eye(40, dtype=torch.float64)
    likely = MultivariateNormal(constant - fitted.height * PLAIN(X), K).log_prob(y)
    null = Normal(y.mean(), y.std(unbiased=False)).log_prob(y).sum()
    assert fitted.gain == pytest.approx(float(likely - null), rel=1e-6)


def dense_gaussian(X, y, theta, Z):
    """Mean and variance of c - h q + f at Z: one Gaussian of all, with a flat prior of c as one of variance 10^6."""
    n = len(X)
    points = torch.cat([X, Z])
    q = PLAIN(points)
    K = covariance(points, theta) + 1e6 + torch.outer(q, q)
    A = K[:n, :n] + theta[-1].exp() * torch.eye(n, dtype=torch.float64)
    solved = torch.linalg.solve(A, torch.column_stack([y + 0.4 * q[:n], K[:n, n:]]))
    mean = K[n:, :n] @ solved[:, 0] - 0.4 * q[n:]
    return mean, (K[n:, n:] - K[n:, :n] @ solved[:, 1:]).diagonal()


def test_predictions_are_those_of_the_dense_gaussian_and_left_out_errors_those_of_the_others():
    X, y = data(12, 2)
    Z = uniform(5, 2, seed=1)
    theta = torch.tensor([-0.5, 0.3, -2.0], dtype=torch.float64)
    regression = Regression(Process(X, y), theta.numpy())
    mean, variance = regression.predict(Z)
    dense = dense_gaussian(X, y, theta, Z)
    close(torch.from_numpy(mean), dense[0], 1e-4)
    close(torch.from_numpy(variance), dense[1], 1e-3)
    errors, _ = regression.left_out()
    for i in range(len(y)):
        others = torch.arange(len(y)) != i
        mean, variance = dense_gaussian(X[others], y[others], theta, X[i : i + 1])
        error = (y[i] - mean) / (variance + theta[-1].exp()).sqrt()
        assert errors[i] == pytest.approx(float(error), rel=1e-3)


def options_of_none_and_five_parameters():
    own = {"large": bool} | {f"x{i}": (0.0, 1.0) for i in range(5)}
    return Space([{"z": (0.0, 1.0), "option": ["none", "five"]}, kbo.When("option", "five", own)])


def at(option, x, large=True, z=0.5):
    params = {"z": z, "option": option}
    if option == "five":
        params |= {"large": large} | {f"x{i}": x for i in range(5)}
    return params


def test_in_the_bowl_a_parameter_that_is_not_active_counts_as_in_the_middle_of_its_range():
    space = options_of_none_and_five_parameters()
    X = space.features(space.units([at("none", 0.5), at("five", 0.5), at("five", 0.5, False)]))
    q = Bowl.of(space)(X)
    close(q, q[:1].expand(3), 1e-12)
    X = space.features(space.units([at("five", x, z=x) for x in (0.0, 0.2, 0.5, 1.0)]))
    q = Bowl.of(space)(X)
    plain = PLAIN(X)
    close(q - q[:1], plain - plain[:1], 1e-12)


def test_an_option_without_parameters_is_not_expected_to_be_bad():
    space = options_of_none_and_five_parameters()
    optimizer = kbo.Optimizer(space, setting=kbo.Practical(noisy=True), seed=0)
    for i, x in enumerate(uniform(14, seed=4).tolist()):
        optimizer.tell(at("five", x), (x - 0.5) ** 2 + 0.01 * (-1) ** i)
    posterior = optimizer.insight.surrogate().posterior
    X = space.features(space.units([at("none", 0.5), at("five", 0.5), at("five", 0.0)]))
    none, middle, corner = posterior.predict(X)[0].tolist()
    assert none == pytest.approx(middle, abs=0.3)
    assert corner < middle - 1


def test_intervals_of_recommended_points_contain_the_truth_as_often_as_they_say():
    n_inside = 0
    for seed in range(12):
        noise = iter(normal(10, seed=seed).tolist())
        centre = uniform(2, seed=seed + 100).tolist()

        def truth(x, centre=centre):
            return sum(math.sin(3 * (a - c)) ** 2 for a, c in zip(x, centre, strict=True))

        def objective(x, truth=truth, noise=noise):
            return truth(x) + next(noise)

        result = kbo.minimize(objective, [(0.0, 1.0)] * 2, 10, seed=seed)
        assert result.lower < result.value < result.upper
        n_inside += result.lower <= truth(result.params) <= result.upper
    assert n_inside / 12 >= 0.8


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


def test_the_transformation_is_that_of_yeo_and_johnson_and_has_an_inverse_and_slopes():
    values = torch.linspace(-6, 9, 41, dtype=torch.float64)
    for power in (0.0, 0.5, 1.0, 1.75, 2.0):
        expected = torch.from_numpy(stats.yeojohnson(values.numpy(), power))
        close(OutcomeTransform(power=power)(values), expected, 1e-12)
        moved = OutcomeTransform(centre=2.0, spread=3.0, power=power, location=0.4, unit=1.7)
        close(moved.inverse(moved(values)), values, 1e-12)
        slopes = 3.0 * (moved(values + 1e-6) - moved(values - 1e-6)) / 2e-6  # of centred values
        assert moved.log_slope(values) == pytest.approx(float(slopes.log().mean()), abs=1e-8)
        at_zero = moved.inverse(torch.tensor([-1e-6, 1e-6], dtype=torch.float64))
        assert moved.scale == pytest.approx(float(at_zero.diff()) / 2e-6, rel=1e-6)
        compressed = replace(moved, floor=0.5, compression=0.7)
        for transform, y in product((moved, compressed), (-4.0, 1.0, 6.0)):
            targets = transform(torch.tensor([y - 1e-6, y + 1e-6], dtype=torch.float64))
            assert transform.scale_at(y) == pytest.approx(2e-6 / float(targets.diff()), rel=1e-6)


def test_values_below_the_floor_count_as_the_floor_and_equal_values_are_no_error():
    y = torch.tensor([1.0, 2.0, 3.0, 4.0, -1e6], dtype=torch.float64)
    plain = linear(y)
    assert plain.floor == pytest.approx(1 - 1.5 * 2)
    assert float(plain(y)[-1]) == pytest.approx((plain.floor - plain.centre) / plain.spread)
    assert least_skewed(torch.full((5,), 7.0, dtype=torch.float64)) == OutcomeTransform(7.0, 1.0)


def test_of_skewed_noise_alone_the_less_skewed_values_are_more_likely():
    assert fit_values(uniform(40, 2), -normal(40, seed=3).exp()).transform.power == 2


# The search


def test_a_search_starts_at_the_best_trials(monkeypatch):
    def recording(bound, search, limits):
        starts.append(search.starts.flatten().tolist())
        return search.subspace.sample(search.generator)

    starts = []
    monkeypatch.setattr(upper_bounds, "argmax_upper", recording)
    optimizer = kbo.Optimizer([(0.0, 1.0)], setting=NOISY)
    for i, x in enumerate(uniform(14).tolist()):
        optimizer.tell([x], None if i == 3 else i % 4)
        if i > 10:
            optimizer.suggest()
            best = sorted(optimizer.completed(), key=lambda trial: trial.value)
            assert starts[-1] == [trial.params[0] for trial in best[:8]]


def test_trials_of_a_batch_have_different_widths(monkeypatch):
    widths = []

    def anywhere(bound, search, limits):
        widths.append(bound.confidence.multiplier)
        return search.subspace.sample(search.generator)

    optimizer = run(7, setting=NOISY)
    monkeypatch.setattr(upper_bounds, "argmax_upper", anywhere)
    optimizer.ask(8)
    assert sorted(widths) == sorted(PRACTICAL_WIDTHS)


def test_the_box_grows_after_a_better_observation_in_it_and_shrinks_after_a_worse_one():
    def observe(x, y):
        values.append(Evaluation(len(values), (x, 0.5), y))
        return trust_radius(values)

    values = []
    assert observe(0.5, 0.0) == FIRST_RADIUS
    assert observe(0.6, 1.0) == pytest.approx(GROWTH * FIRST_RADIUS)
    assert observe(0.5, 0.5) == pytest.approx(GROWTH * SHRINKAGE * FIRST_RADIUS)
    assert observe(0.0, 0.9) == pytest.approx(GROWTH * SHRINKAGE * FIRST_RADIUS), (
        "outside and worse"
    )
    for _ in range(3):
        observe(0.6, 0.0)
    assert observe(0.0, 2.0) == FIRST_RADIUS, "outside and better: the first size again"


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


# Long runs


def test_long_runs_are_sketched_and_short_ones_exact(monkeypatch):
    assert isinstance(run(6).insight.surrogate().posterior.state, KernelRidge)
    for name, value in {"MOST_EXACT": 10, "MOST_POINTS": 9, "N_DRAWN": 6}.items():
        monkeypatch.setattr(practical_posterior, name, value)
    optimizer = run(18)
    posterior = optimizer.insight.surrogate().posterior.state
    assert isinstance(posterior, NystromRidge)
    assert posterior.m < 9 < posterior.n == 18
    low, mean, high = optimizer.interval({"x": 0.35})
    assert low < mean < high
    late = at_once(optimizer)
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
    for x in uniform(40, 2, seed=1).split(1):
        state.update(x, x[:, 0])
        assert 8 <= state.m < 12


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
    repeated = f"trial 4 repeated trial {points.index(points[4])} with the same value"
    assert result.account["noise"] == f"none: {repeated}"
    trial = optimizer.trials[3]
    assert optimizer.interval(trial.params) == (trial.value, trial.value, trial.value)
    low, mean, high = optimizer.interval({"x": 0.8123})
    assert low < mean < high

    declared = kbo.Optimizer(LINE, setting=kbo.Practical(noise_std=0))
    for i in range(11):
        declared.tell({"x": i / 10}, -i / 10)
    declared.tell({"x": 0.9999}, -1.0005)  # the mean is better at 1, by its slope
    assert declared.recommended().params == {"x": 0.9999}


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


def test_equal_values_at_one_point_mean_little_if_values_at_different_points_are_equal_too():
    optimizer = kbo.Optimizer([(0.0, 1.0)])
    points = [0.1, 0.3, 0.5, 0.7]
    for point, value in zip(points, [0.6, 0.8, 0.9, 0.9], strict=True):
        optimizer.tell([point], value)
    for n_repeated in (1, 2, 3):
        assert optimizer.insight.surrogate().noiseless is None, n_repeated
        params = optimizer.ask()
        assert params[0] in points
        optimizer.tell(params, {0.1: 0.6, 0.3: 0.8}.get(params[0], 0.9))
    assert optimizer.insight.surrogate().noiseless
    assert optimizer.ask()[0] not in points


def test_a_tie_refutes_what_one_repetition_has_shown_and_limits_need_one_repetition():
    limit = kbo.Constraint("m", upper=2.0)
    optimizer = kbo.Optimizer([(0.0, 1.0)], constraints=[limit])
    values = {0.1: 0.6, 0.3: 0.8, 0.5: 0.9, 0.7: 0.7}
    for point, value in values.items():
        optimizer.tell([point], (value, {"m": 1.0}))
    optimizer.tell([0.1], (0.6, {"m": 1.0}))
    assert optimizer.insight.surrogate().noiseless
    (limited,) = optimizer.insight.quantities.limits()
    assert limited.surrogate.noiseless
    optimizer.tell([0.9], (0.8, {"m": 1.0}))
    assert optimizer.insight.surrogate().noiseless is None


def test_a_repetition_that_runs_is_not_asked_for_again_and_one_that_fails_is_not_tried_for_ever():
    optimizer = run(4)
    first, second = optimizer.ask(2)
    known = [trial.params for trial in optimizer.completed()]
    assert first in known
    assert second not in known
    optimizer.fail(first, "crashed")
    assert optimizer.ask() not in known
    assert optimizer.insight.surrogate().noiseless is None


# Settings of the caller's own


class LatestSurrogate(PracticalSurrogate):
    rule = "the latest trial"

    def criterion(self, X, y):
        return torch.arange(len(y))


class Latest(kbo.Practical):
    surrogate = LatestSurrogate

    def fitted(self, *given):
        return replace(super().fitted(*given), noise_std=0.5)


def test_a_subclass_replaces_parts_and_is_named_in_the_journal_and_the_account(tmp_path):
    path = tmp_path / "run.jsonl"
    optimizer = run(7, journal=path, setting=Latest())
    assert optimizer.recommended().number == 6
    surrogate = optimizer.insight.surrogate()
    assert surrogate.fitted.noise_std == 0.5
    assert "fitted by Latest" in surrogate.account()["model"]
    optimizer.close()
    with pytest.raises(kbo.JournalError, match=re.escape(f"'{__name__}.Latest'")):
        run(0, journal=path)
    assert "pass its optimiser" in Record.of(path).obstacle


def test_a_subclass_models_the_objectives_and_practical_the_constraints():
    setting = Latest(n_initial=3)
    assert type(setting.for_quantity(Objective("speed"), 2)) is Latest
    assert type(setting.for_quantity(kbo.Constraint("memory", upper=1.0), 2)) is kbo.Practical


def test_a_setting_shows_its_arguments_only():
    setting = kbo.Practical(n_initial=3)
    space = Space(LINE)
    limited = setting.for_quantity(kbo.Constraint("memory", upper=1.0), 2)
    for variant in (setting.for_reports(), limited):
        assert repr(variant) == repr(setting)
        assert variant.describe(space) == setting.describe(space)
        assert variant != setting


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
    problem = SearchProblem(method, None, Space([(0.0, 1.0)] * 2))
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


@pytest.mark.parametrize("quantity", [kbo.Constraint, Objective])
def test_a_measured_quantity_has_every_argument_of_the_setting_but_the_noise_level(quantity):
    arguments = {
        "delta": 0.2,
        "scale": 2.0,
        "norm_factor": 3.0,
        "n_initial": 9,
        "noise_std": 0.3,
        "noisy": True,
        "strategies": (RandomPoint(),),
    }
    limits = {"upper": 1.0} if quantity is kbo.Constraint else {}
    defaults = kbo.Practical()
    assert arguments.keys() == {field.name for field in fields(kbo.Practical) if field.init}
    assert all(getattr(defaults, name) != value for name, value in arguments.items())
    setting = kbo.Practical(**arguments).for_quantity(quantity("m", noise_std=0.4, **limits), 2)
    arguments["noise_std"] = 0.4
    assert {name: getattr(setting, name) for name in arguments} == arguments
