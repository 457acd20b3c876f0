"""The search for a front of several objectives, and what is said of the front."""

import math

import pytest
import torch

import kbo
from kbo.optimize.hypervolume import hypervolume, n_dominating, non_dominated
from kbo.optimize.insight.front import front_of
from kbo.optimize.objective import Minimize
from kbo.optimize.run.trials import Trial
from kbo.optimize.surrogates.fitting import unit_kernel
from kbo.optimize.surrogates.model import Fitted
from kbo.optimize.surrogates.outcome_transform import OutcomeTransform
from kbo.report import summary


def _zdt3(params):
    first, *others = params
    g = 1 + 9 * sum(others) / len(others)
    share = first / g
    shape = 1 - math.sqrt(share) - share * math.sin(10 * math.pi * first)
    return {"f1": first, "f2": g * shape}


def test_the_search_leaves_the_first_part_of_a_front_that_is_not_connected():
    optimizer = kbo.Optimizer([(0.0, 1.0)] * 3, objectives=["f1", "f2"], seed=2)
    for _ in range(40):
        params = optimizer.ask()
        optimizer.tell(params, _zdt3(params))
    front = optimizer.insight.front()
    places = [point.values["f1"].mean for point in front.points]
    assert min(places) < 0.08  # the first part ends there
    assert max(places) > 0.18  # the second one begins there


def test_values_of_a_front_are_those_of_the_intervals_also_where_the_search_cuts_them():
    optimizer = kbo.Optimizer([(0.0, 1.0)], objectives=["f1", "f2"], seed=0)
    generator = torch.Generator().manual_seed(0)
    for i in range(24):
        x = i / 24
        noise = 0.01 * float(torch.randn((), generator=generator))
        optimizer.tell([x], {"f1": x + noise, "f2": math.exp(8 * (1 - x)) * (1 + noise)})
    surrogates = optimizer._quantities.surrogates()
    values = [-trial.measured["f2"] for trial in optimizer.trials]
    assert any(surrogates["f2"].transform.cuts(value) for value in values)
    front = optimizer.insight.front()
    assert len(front.points) > 3
    for point in front.points:
        for name, (lower, mean, upper) in point.values.items():
            expected = optimizer.interval(point.trial.params, name)
            assert (lower, mean, upper) == pytest.approx(expected)
    worst = max(point.values["f2"].mean for point in front.points)
    assert worst > 0.5 * math.exp(8)


class _Known:
    """A surrogate with given means, and normal errors of one size."""

    def __init__(self, means, error):
        self._means = means
        self._error = error

    def _at(self, X):
        return self._means[X.squeeze(-1).long()]

    def interval(self, X):
        mean = self._at(X)
        return mean - self._error, mean, mean + self._error

    def draws(self, X, count, generator, unexplained=0.0):
        noise = torch.randn(count, len(X), generator=generator, dtype=torch.float64)
        return self._at(X) + self._error * noise


def test_the_probability_of_a_front_counts_the_nearest_of_many_trials():
    n = 400
    means = torch.linspace(-1, -50, n, dtype=torch.float64)
    means[:2] = torch.tensor([0.0, -1e-3])  # the second one is nearly as good as the first
    surrogates = [_Known(means, 0.1), _Known(means.clone(), 0.1)]
    trials = [Trial(i, [0.0], value=0.0) for i in range(n)]
    features = torch.arange(n, dtype=torch.float64).unsqueeze(-1)
    objectives = [Minimize("a"), Minimize("b")]
    generator = torch.Generator().manual_seed(0)
    front = front_of(objectives, surrogates, trials, features, trials[0], {}, generator)
    (point,) = front.points
    # Dominated by the second one with probability 1/4; both are on the front with 1/2.
    assert point.probability == pytest.approx(0.75, abs=0.1)
    # Under limits the recommended trial may be dominated by one that keeps them less certainly.
    other = front_of(objectives, surrogates, trials, features, trials[5], {}, generator)
    assert [point.trial for point in other.points] == trials[:1]
    assert other.balanced.trial == trials[5]
    assert other.balanced.values["a"].mean == pytest.approx(-float(means[5]))


def test_the_number_of_points_that_dominate_each():
    targets = torch.tensor([[2.0, 2.0], [1.0, 1.0], [3.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    assert n_dominating(targets).tolist() == [0, 1, 0, 1, 4]


# What is said of a front, where the prior is known

_NOISE_STD = 0.5
_N_TRIALS = 24


class _Prior(kbo.Practical):
    """The model with the kernel and the noise level of the functions below."""

    def fitted(self, X, y, noise_std, errors, ratios):
        return Fitted(_kernel(), _NOISE_STD, OutcomeTransform())


def _kernel():
    kernel = unit_kernel(2)
    kernel.initialize(lengthscale=0.3)
    return kernel


def _front_of_drawn_functions(seed):
    """Return the front of noisy values of two draws from the prior, and the true values [n 2] of the trials."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.rand(_N_TRIALS, 2, generator=generator, dtype=torch.float64)
    covariance = _kernel()(points).to_dense() + 1e-10 * torch.eye(_N_TRIALS)
    normal = torch.randn(2, _N_TRIALS, 2, generator=generator, dtype=torch.float64)
    true = torch.linalg.cholesky(covariance) @ normal[0]
    observed = true + _NOISE_STD * normal[1]
    optimizer = kbo.Optimizer(
        [(0.0, 1.0)] * 2,
        objectives=["a", kbo.Maximize("b")],
        setting=_Prior(noisy=True, n_initial=_N_TRIALS),
        seed=seed,
    )
    for point, (a, b) in zip(points.tolist(), observed.tolist(), strict=True):
        optimizer.tell(point, {"a": -a, "b": b})
    return optimizer.insight.front(), true


def test_what_is_said_of_a_front_is_as_often_right_as_it_says_where_the_prior_is_known():
    said = []
    right = []
    n_inside = 0
    n_runs = 100
    for seed in range(n_runs):
        front, true = _front_of_drawn_functions(seed)
        is_on_front = non_dominated(true)
        for point in front.points:
            said.append(point.probability)
            right.append(float(is_on_front[point.trial.number]))
        rows = [point.trial.number for point in front.points]
        reference = torch.tensor([-front.reference["a"], front.reference["b"]])
        lower, _, upper = front.hypervolume
        n_inside += lower <= float(hypervolume(true[rows], reference)) <= upper
    assert 0.85 <= n_inside / n_runs <= 0.97
    said = torch.tensor(said)
    right = torch.tensor(right)
    for low, high in [(0.3, 0.5), (0.5, 0.7), (0.7, 0.85), (0.85, 1.0)]:
        between = (said >= low) & (said <= high)
        mean = float(said[between].mean())
        error = math.sqrt(mean * (1 - mean) / int(between.sum()))
        assert int(between.sum()) > 50
        assert float(right[between].mean()) == pytest.approx(mean, abs=3 * error)


def test_the_volume_is_that_of_the_means_and_its_interval_is_not_called_one_of_90_percent():
    front, _ = _front_of_drawn_functions(0)
    means = [[-point.values["a"].mean, point.values["b"].mean] for point in front.points]
    reference = [-front.reference["a"], front.reference["b"]]
    lower, mean, upper = front.hypervolume
    assert mean == pytest.approx(float(hypervolume(torch.tensor(means), torch.tensor(reference))))
    assert lower < mean < upper
    assert "(nominally 90%, held in 70 to 100% of tests)" in summary.hypervolume(front)


def test_draws_have_a_share_of_the_noise_where_a_kernel_may_be_too_smooth():
    optimizer = kbo.Optimizer([(0.0, 1.0)], setting=kbo.Practical(noisy=True))
    generator = torch.Generator().manual_seed(0)
    for i in range(20):
        optimizer.tell([i / 19], i / 19 + 0.3 * float(torch.randn((), generator=generator)))
    surrogate = optimizer.insight.surrogate()
    X = torch.linspace(0, 1, 20, dtype=torch.float64).unsqueeze(-1)

    def draws(*share):
        return surrogate.draws(X, 4000, torch.Generator().manual_seed(1), *share)

    assert torch.equal(draws(), draws(0.0))
    added = float((draws(0.25).var(0) - draws().var(0)).mean())
    share = added / surrogate.noise_std**2
    assert (
        0.2 < share < 0.5
    )  # a quarter, which the scale of the intervals, at least 1, makes larger
