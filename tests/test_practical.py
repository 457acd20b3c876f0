"""The practical setting: the fit, when it happens, and the sketch of long runs."""

import math

import pytest
import torch
from gpytorch.kernels import MaternKernel
from torch.distributions import MultivariateNormal

import kbo
from kbo.confidence import AlternatingWidth, FixedWidth, MartingaleMixture
from kbo.optimize import belief, fitting, model, practical, proposal
from kbo.optimize import optimizer as optimizer_module
from kbo.optimize.fitting import LogDensity, fit
from kbo.optimize.focus import FocusedDictionary
from kbo.optimize.model import fit_values
from kbo.optimize.result import result_of
from kbo.recipes import PRACTICAL_WIDTHS
from kbo.regression import KernelRidge, NystromRidge
from tests.dense import close, gram


def data(n, d, seed=0, noise=0.2):
    g = torch.Generator().manual_seed(seed)
    X = torch.rand(n, d, generator=g, dtype=torch.float64)
    f = (4 * X[:, 0]).sin() + X[:, -1] ** 2
    y = f + noise * torch.randn(n, generator=g, dtype=torch.float64)
    return X, (y - y.mean()) / y.std()


def dense_log_posterior(X, y, theta, constant):
    """The same density from GPyTorch's kernel, torch's normal distributions and the priors as they are written."""
    D = X.shape[-1]
    kernel = MaternKernel(nu=2.5, ard_num_dims=D).double()
    kernel.lengthscale = theta[:-1].exp()
    A = kernel(X).to_dense().detach() + theta[-1].exp() * torch.eye(len(X), dtype=torch.float64)
    likelihood = MultivariateNormal(torch.full_like(y, constant), A).log_prob(y)
    covariance = 0.2 * torch.eye(D, dtype=torch.float64) + 3.0
    mean = torch.full((D,), math.sqrt(2) + math.log(D) / 2, dtype=torch.float64)
    away = theta[:-1] - mean
    return float(likelihood - away @ torch.linalg.solve(covariance, away) / 2 - (theta[-1] + 4) ** 2 / 2)


@pytest.mark.parametrize(("n", "d"), [(7, 1), (25, 3), (60, 6)])
def test_the_log_posterior_is_the_dense_one_at_its_best_constant_and_its_gradient_too(n, d):
    X, y = data(n, d)
    posterior = LogDensity(X, y)
    for seed in range(4):
        theta = torch.randn(d + 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        value, gradient = posterior(theta.numpy())
        c = posterior.constant(theta.numpy())
        assert float(value) == pytest.approx(dense_log_posterior(X, y, theta, c), rel=1e-9)
        for other in (c - 0.01, c + 0.01):
            assert dense_log_posterior(X, y, theta, other) < float(value)
        steps = 1e-5 * torch.eye(d + 1, dtype=torch.float64)
        numerical = [(posterior((theta + e).numpy())[0] - posterior((theta - e).numpy())[0]) / 2e-5 for e in steps]
        close(torch.from_numpy(gradient), torch.tensor(numerical, dtype=torch.float64), 1e-6)


@pytest.mark.parametrize(("n", "d"), [(12, 5), (80, 2)])
def test_the_fit_is_a_maximum_and_a_function_of_the_data(n, d):
    X, y = data(n, d)
    fitted, again = fit(X, y), fit(X.clone(), y.clone())
    assert (fitted.noise_std, fitted.constant) == (again.noise_std, again.constant)
    assert torch.equal(fitted.kernel.lengthscale, again.kernel.lengthscale)
    log_variance = torch.tensor([2 * math.log(fitted.noise_std)], dtype=torch.float64)
    theta = torch.cat([fitted.kernel.lengthscale[0].log(), log_variance])
    value, gradient = LogDensity(X, y)(theta.numpy())
    assert float(abs(gradient).max()) < 0.05
    for seed in range(20):
        other = theta + 0.5 * torch.randn(d + 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        assert LogDensity(X, y)(other.numpy())[0] < value


def test_the_fit_finds_the_noise_and_what_matters():
    X, y = data(300, 4, noise=0.5)
    spread = ((4 * X[:, 0]).sin() + X[:, -1] ** 2).var() + 0.25
    fitted = fit(X, y)
    assert fitted.noise_std == pytest.approx(0.5 / float(spread.sqrt()), rel=0.15)
    lengthscales = fitted.kernel.lengthscale[0]
    assert float(lengthscales[[1, 2]].min()) > 1.5 * float(lengthscales[0])


def test_a_given_noise_level_is_kept_and_the_rest_is_the_best_with_it():
    X, y = data(40, 2)
    fitted = fit(X, y, noise_std=0.5)
    assert fitted.noise_std == pytest.approx(0.5)
    theta = torch.cat([fitted.kernel.lengthscale[0].log(), torch.tensor([2 * math.log(0.5)], dtype=torch.float64)])
    posterior = LogDensity(X, y)
    assert float(abs(posterior(theta.numpy())[1][:-1]).max()) < 0.05
    assert fitted.constant == pytest.approx(posterior.constant(theta.numpy()))
    assert fit(X, y).noise_std != pytest.approx(0.5, rel=0.05)


def test_of_many_observations_a_part_is_fitted_always_the_same_with_all_early_ones(monkeypatch):
    X, y = data(100, 2)
    monkeypatch.setattr(fitting, "MOST", 40)
    first, second = fit(X, y), fit(X, y)
    assert (first.noise_std, first.constant) == (second.noise_std, second.constant)
    assert first.noise_std != fit(X[:40], y[:40]).noise_std
    for early in range(20):
        assert fit(X, y + (torch.arange(100) == early)).noise_std != first.noise_std


def noisy(params):
    return (params["x"] - 0.3) ** 2 + 0.1 * math.sin(1000 * params["x"])


def run(n, at_once, **options):
    """A run, trial by trial; or a second optimiser that gets all values before it chooses a point."""
    optimizer = kbo.Optimizer({"x": (0.0, 1.0)}, seed=2, **options)
    for _ in range(n):
        x = optimizer.ask()
        optimizer.tell(x, noisy(x))
    if not at_once:
        return optimizer
    late = kbo.Optimizer({"x": (0.0, 1.0)}, seed=2, **options)
    for trial in optimizer.trials:
        late.tell(trial.params, trial.value)
    return late


def test_replaying_a_long_run_costs_one_fit_and_leads_to_the_same_point(monkeypatch):
    fits = []
    monkeypatch.setattr(practical, "fit_values", lambda X, y, *a: fits.append(len(y)) or fit_values(X, y, *a))
    step_by_step, late = run(30, False), run(30, True)
    fits.clear()
    assert late.ask() == step_by_step.ask()
    assert fits == [26]
    assert late.interval({"x": 0.3}) == pytest.approx(step_by_step.interval({"x": 0.3}), rel=1e-9)


def test_long_runs_are_sketched_and_short_ones_exact(monkeypatch):
    assert isinstance(run(12, False).belief().posterior, KernelRidge)
    monkeypatch.setattr(practical, "MOST_EXACT", 10)
    monkeypatch.setattr(practical, "ANCHORS", (9, 6))
    optimizer, late = run(25, False), run(25, True)
    posterior = optimizer.belief().posterior
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
    for x in torch.rand(40, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64).split(1):
        state.update(x, x[:, 0])
        sizes.append(state.m)
    assert {8, 11} <= set(sizes) <= set(range(8, 12))


def test_a_search_starts_at_the_best_trials_and_scores_half_as_many_points_after_many(monkeypatch):
    searches = []

    def recording(confidence, posterior, search):
        points = []
        search.argmax(lambda features: points.append(len(features)) or features[:, 0])
        searches.append((search.starts.flatten().tolist(), sum(points)))
        return proposal.argmax_upper(confidence, posterior, search)

    monkeypatch.setattr(optimizer_module, "MANY", 12)
    optimizer = kbo.Optimizer([(0.0, 1.0)], setting=kbo.Practical(search=recording))
    for i in range(14):
        optimizer.tell([optimizer.ask()[0]], None if i == 3 else i % 4)
        best = sorted(optimizer.completed(), key=lambda trial: trial.value)
        optimizer.suggest()
        if searches:
            assert searches[-1][0] == [trial.params[0] for trial in best[:8]]
    assert [size for _, size in searches[-6:]] == [8 + 1024 + 6 * 256] * 3 + [8 + 512 + 6 * 128] * 3


@pytest.mark.parametrize(
    ("setting", "effort"),
    [(kbo.Practical(n_initial=2), 0.5), (kbo.Certified(fitting.unit_kernel(1), 1.0, 9.0), 1.0)],
)
def test_bounds_and_points_of_the_certified_setting_are_searched_for_with_all_points(monkeypatch, setting, effort):
    efforts = []
    monkeypatch.setattr(optimizer_module, "MANY", 3)
    monkeypatch.setattr(proposal.Search, "argmax", lambda self, *_: efforts.append(self.effort) or self.starts[0])
    optimizer = kbo.Optimizer([(0.0, 1.0)], setting=setting)
    for x in (0.1, 0.5, 0.5, 0.9):
        optimizer.tell([x], x + len(optimizer.trials))
    optimizer.suggest(), optimizer.gap(), optimizer.best()
    assert efforts == [effort, 1.0, 1.0]


def test_the_default_search_is_a_plain_bound_and_the_report_a_mixture():
    optimizer = run(12, False)
    assert optimizer.method == "ucb"
    assert isinstance(optimizer.belief().confidence(), FixedWidth)
    reported = optimizer.belief().reported()
    assert isinstance(reported, MartingaleMixture)
    assert reported.kind == "amm"
    assert kbo.Optimizer({"x": (0.0, 1.0)}, setting=kbo.Certified(MaternKernel(), 0.1, 1.0)).method == "dmm-ucb"


def test_widths_alternate_with_the_observations():
    X, y = data(9, 2)
    state = KernelRidge(MaternKernel(nu=2.5).double(), 0.1)
    confidence = AlternatingWidth(0.5, 3.0)
    for n in range(9):
        state.update(X[n : n + 1], y[n : n + 1])
        mean, variance = state.predict(X)
        close(confidence.upper(state, X), mean + (0.5, 3.0)[(n + 1) % 2] * variance.sqrt(), 1e-12)
    close(confidence.in_turn(4).upper(state, X), mean + 0.5 * variance.sqrt(), 1e-12)
    assert confidence.guarantee is None
    with pytest.raises(kbo.InvalidInput):
        AlternatingWidth()
    with pytest.raises(kbo.InvalidInput):
        AlternatingWidth(1.0, -1.0)


def test_the_belief_follows_the_data_in_any_order_of_reading():
    one, other = run(12, False), run(12, False)
    assert one.belief().assumptions() == (other.interval({"x": 0.5}), other.belief().assumptions())[1]
    assert run(12, True).belief().assumptions() == other.belief().assumptions()
    assert kbo.Optimizer({"x": (0.0, 1.0)}).belief() is None
    early = one.belief()
    before = early.norm_bound()
    for _ in range(4):  # without a fit in between
        one.tell({"x": 0.9}, -30.0)
    assert one.belief().posterior.n == 16
    assert one.belief().norm_bound() != before


def test_nothing_is_fitted_before_a_belief_is_needed(monkeypatch):
    monkeypatch.setattr(model, "fit", lambda *_, **__: pytest.fail("fitted"))
    optimizer = kbo.Optimizer({"x": (0.0, 1.0)})
    for i in range(30):
        optimizer.tell({"x": i / 30}, float(i))
    assert len(optimizer.completed()) == 30
    random = kbo.Optimizer({"x": (0.0, 1.0)}, method="random")
    for i in range(30):
        random.tell(random.ask(), float(i))
    assert random.belief() is None


@pytest.mark.parametrize(
    ("owner", "where"), [(model, "fit"), (practical.PracticalBelief, "__init__"), (KernelRidge, "update")]
)
def test_an_interrupted_fit_or_update_is_done_again(monkeypatch, owner, where):
    whole, broken = run(20, True), run(20, True)
    with monkeypatch.context() as patch:

        def interrupt(*args, **options):
            raise KeyboardInterrupt

        patch.setattr(owner, where, interrupt)
        with pytest.raises(KeyboardInterrupt):
            broken.interval({"x": 0.5})
    assert broken.interval({"x": 0.5}) == whole.interval({"x": 0.5})
    for optimizer in (whole, broken):
        optimizer.tell({"x": 0.9}, 0.4)
    with monkeypatch.context() as patch:
        patch.setattr(KernelRidge, "update", interrupt)
        with pytest.raises(KeyboardInterrupt):
            broken.interval({"x": 0.5})
    assert broken.interval({"x": 0.5}) == pytest.approx(whole.interval({"x": 0.5}), rel=1e-9)


def test_large_seeds_are_seeds():
    optimizer = kbo.Optimizer({"x": (0.0, 1.0)}, seed=2**60)
    for _ in range(6):
        optimizer.tell(optimizer.ask(), 1.0 + len(optimizer.trials))


def test_trials_of_a_batch_have_different_widths(monkeypatch):
    widths, optimizer = [], run(7, False, setting=kbo.Practical(noise_std=0.1))

    def anywhere(bound, posterior, search, limits=()):
        widths.append(bound.multiplier)
        return search.restriction.sample(search.generator)

    monkeypatch.setattr(belief, "argmax_upper", anywhere)
    optimizer.ask(8)
    assert sorted(widths) == sorted(PRACTICAL_WIDTHS)


def exact_run(n, objective=lambda x: (x - 0.3) ** 2 + 0.3 * math.sin(40 * x), **options):
    optimizer = kbo.Optimizer({"x": (0.0, 1.0)}, seed=2, **options)
    for _ in range(n):
        params = optimizer.ask()
        optimizer.tell(params, objective(params["x"]))
    return optimizer


def test_without_noise_the_best_observed_trial_is_recommended():
    optimizer = exact_run(15)
    points = [trial.params["x"] for trial in optimizer.trials]
    assert points[4] in points[:4]  # one repetition shows it
    assert len(set(points)) == 14
    assert optimizer.recommended().value == min(trial.value for trial in optimizer.trials)
    assert optimizer.belief().account()["noise"].startswith("none")
    declared = exact_run(15, setting=kbo.Practical(noise_std=0))
    assert len({trial.params["x"] for trial in declared.trials}) == 15
    result = result_of(declared, "", None)
    assert result.value == result.lower == result.upper == result.best_observed == declared.recommended().value


def test_a_repetition_has_the_same_parameters_and_equal_values_may_differ_by_rounding():
    draws = torch.Generator().manual_seed(0)

    def rounded(params):
        value = (math.log10(params["lr"]) + 3) ** 2 + math.sin(4 * params["wd"])
        return value * (1 + 1e-13 * float(torch.rand((), generator=draws)))

    for seed in range(8):
        optimizer = kbo.Optimizer({"lr": kbo.Float(1e-5, 1e-1, log=True), "wd": (0.0, 1.0)}, seed=seed)
        for _ in range(12):
            params = optimizer.ask()
            optimizer.tell(params, rounded(params))
        points = [tuple(trial.params.values()) for trial in optimizer.trials]
        assert points[6] in points[:6]
        assert optimizer.belief().exact


def test_with_noise_one_repetition_shows_it_and_the_recommended_mean_is_large():
    optimizer = run(12, False)
    assert optimizer.belief().exact in (False, True)  # the noise of this objective is a function of the point
    draws = torch.Generator().manual_seed(0)
    noisy_run = exact_run(20, lambda x: (x - 0.3) ** 2 + 0.1 * float(torch.randn((), generator=draws)))
    belief = noisy_run.belief()
    assert belief.exact is False
    X = torch.tensor([[trial.params["x"]] for trial in noisy_run.trials], dtype=torch.float64)
    mean, variance = belief.posterior.predict(X)
    assert noisy_run.recommended().number == int((mean - variance.sqrt()).argmax())


def test_a_repetition_that_runs_is_not_asked_for_again_and_one_that_fails_is_not_tried_for_ever():
    optimizer = exact_run(4)
    first, second = optimizer.ask(2)
    known = [trial.params for trial in optimizer.completed()]
    assert first in known
    assert second not in known
    optimizer.fail(first, "crashed")
    assert optimizer.ask() not in known
    assert optimizer.belief().exact is None


def test_a_given_noise_level_is_used_and_a_bad_one_refused():
    optimizer = exact_run(12, setting=kbo.Practical(noise_std=0.2))
    assert optimizer.belief().assumptions()["noise_std"] == pytest.approx(0.2)
    assert "0.2, given" in optimizer.belief().account()["noise"]
    with pytest.raises(kbo.InvalidInput, match="noise_std"):
        kbo.Practical(noise_std=-1.0)
    assert exact_run(8, setting=kbo.Practical(noise_std=1e308)).interval({"x": 0.5}) is not None


def test_skewed_values_change_by_a_monotone_map_and_bounds_return_to_their_units():
    optimizer = exact_run(30, lambda x: math.exp(12 * x) * (1 + x))
    belief = optimizer.belief()
    assert belief.targets.power > 1
    low, mean, high = optimizer.interval({"x": 0.05})
    assert low <= mean <= high
    assert low <= math.exp(0.6) * 1.05 <= high


def test_of_skewed_noise_alone_the_less_skewed_values_are_more_likely():
    draws = torch.Generator().manual_seed(1)
    X = torch.rand(40, 2, generator=draws, dtype=torch.float64)
    assert fit_values(X, -torch.randn(40, generator=draws, dtype=torch.float64).exp()).targets.power == 2
