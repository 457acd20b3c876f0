"""The search for a front of several objectives, and what is said of the front."""

import itertools
import math

import pytest
import torch

import kbo
from kbo.optimize.insight.front import front_of
from kbo.optimize.objectives.hypervolume import (
    directions,
    hypervolume,
    improvement,
    n_dominating,
    non_dominated,
)
from kbo.optimize.objectives.objective import Minimize
from kbo.optimize.proposal.trial_search import search_for_trial
from kbo.optimize.quantities.front_trials import FrontTrials
from kbo.optimize.run.trials import Trial
from kbo.optimize.search.search import Search
from kbo.optimize.search.subspace import Subspace
from kbo.optimize.strategies import HypervolumeUpperBound, upper_bounds
from kbo.optimize.surrogates.fitting import unit_kernel
from kbo.optimize.surrogates.model import Fitted
from kbo.optimize.surrogates.outcome_transform import OutcomeTransform


def test_values_of_a_front_are_those_of_the_intervals_also_where_the_search_cuts_them():
    optimizer = kbo.Optimizer([(0.0, 1.0)], objectives=["f1", "f2"], seed=0)
    generator = torch.Generator().manual_seed(0)
    for i in range(24):
        x = i / 24
        noise = 0.01 * float(torch.randn((), generator=generator))
        optimizer.tell([x], {"f1": x + noise, "f2": math.exp(8 * (1 - x)) * (1 + noise)})
    front = optimizer.insight.front()
    assert len(front.points) > 3
    for point in front.points:
        for name, interval in point.values.items():
            assert tuple(interval) == pytest.approx(optimizer.interval(point.trial.params, name))
    worst = max(point.values["f2"].value for point in front.points)
    assert worst > 0.5 * math.exp(8)  # which the search cuts


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
    compared = FrontTrials.of(surrogates, trials, features)
    front = front_of(objectives, surrogates, compared, {}, generator)
    (point,) = front.points
    # Dominated by the second one with probability 1/4; both are on the front with 1/2.
    assert point.probability == pytest.approx(0.75, abs=0.1)


def test_the_number_of_points_that_dominate_each():
    targets = torch.tensor([[2.0, 2.0], [1.0, 1.0], [3.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    assert n_dominating(targets).tolist() == [0, 1, 0, 1, 4]


def _volume_by_inclusion_and_exclusion(targets, reference):
    """Return the volume of the union of the boxes between a reference [m] and targets [n m]."""
    sides = (targets - reference).clamp_min(0)
    total = 0.0
    for size in range(1, len(sides) + 1):
        for rows in itertools.combinations(range(len(sides)), size):
            common = sides[list(rows)].amin(0)
            total += (-1) ** (size + 1) * float(common.prod())
    return total


@pytest.mark.parametrize("m", [2, 3, 4])
def test_the_hypervolume_is_that_of_inclusion_and_exclusion(m):
    generator = torch.Generator().manual_seed(m)
    sets = torch.rand(4, 6, m, generator=generator, dtype=torch.float64)
    reference = torch.full((m,), 0.1, dtype=torch.float64)
    expected = [_volume_by_inclusion_and_exclusion(targets, reference) for targets in sets]
    assert hypervolume(sets, reference).tolist() == pytest.approx(expected)
    assert float(hypervolume(sets[:1, :0], reference)) == 0


@pytest.mark.parametrize("m", [2, 3, 4])
def test_directions_are_uniform_on_the_sphere(m):
    weights = directions(100_000, m, torch.Generator().manual_seed(0))
    assert bool((weights > 0).all())
    torch.testing.assert_close(weights.norm(dim=-1), torch.ones(len(weights)).double())
    # The fourth moment of a coordinate of a uniform point of the sphere
    expected = torch.full((m,), 3 / (m * (m + 2)), dtype=torch.float64)
    torch.testing.assert_close(weights.pow(4).mean(0), expected, rtol=0, atol=0.004)


@pytest.mark.parametrize("m", [2, 3])
def test_the_improvement_is_the_growth_of_the_exact_volume(m):
    generator = torch.Generator().manual_seed(m)
    front = torch.rand(4, m, generator=generator, dtype=torch.float64)
    targets = torch.rand(20, m, generator=generator, dtype=torch.float64) + 0.3
    reference = torch.full((m,), -0.1, dtype=torch.float64)
    with_target = torch.stack([torch.cat([front, target.unsqueeze(0)]) for target in targets])
    exact = hypervolume(with_target, reference) - hypervolume(front, reference)
    assert int((exact > 0.1).sum()) >= 10
    weights = directions(100_000, m, generator)
    constant = math.pi ** (m / 2) / (2**m * math.gamma(m / 2 + 1))
    found = constant * improvement(targets, front, reference, weights)
    torch.testing.assert_close(found.clamp_min(0), exact, rtol=0.02, atol=0.005)


def _optimizer_with_a_limit():
    objectives = ["a", kbo.Maximize("b")]
    limit = kbo.Constraint("c", upper=0.5)
    setting = kbo.Practical(noise_std=0.1)
    optimizer = kbo.Optimizer(
        [(0.0, 1.0)] * 2, objectives=objectives, constraints=[limit], setting=setting
    )
    for x, z in torch.rand(12, 2, generator=torch.Generator().manual_seed(1)).tolist():
        measured = {"a": (x - 0.3) ** 2 + z, "b": x - z**2, "c": x + 0.1 * z}
        optimizer.tell([x, z], measured)
    return optimizer


@pytest.mark.parametrize("number", [12, 13])
def test_the_score_of_the_search_for_a_front_is_that_of_its_description(number, monkeypatch):
    drawn = []
    scores = []

    def recorded(count, m, generator):
        drawn.append(directions(count, m, generator))
        return drawn[-1]

    monkeypatch.setattr(upper_bounds, "directions", recorded)
    monkeypatch.setattr(Search, "argmax", lambda search, score: scores.append(score))
    optimizer = _optimizer_with_a_limit()
    quantities = optimizer.insight.quantities
    search = search_for_trial(quantities, 0, Subspace(optimizer.space), number, [])
    HypervolumeUpperBound().propose(search)
    X = torch.rand(40, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    with torch.no_grad():
        found = scores[0](X)
        uppers = [b.confidence.upper(b.posterior, X) for b in search.bounds]
        (limit,) = search.limits
        mean, variance = limit.state.predict(X)
    (weights,) = drawn
    assert len(weights) == (1 if number % 2 else 128)

    def distance(target, weight):
        """Return the smallest share of an objective of a direction by which a target exceeds the reference."""
        excess = (target - search.front.reference) / search.front.scale
        return float((excess / weight).amin())

    is_growth = []
    for row, target in enumerate(torch.stack(uppers, -1)):
        if len(weights) == 1:
            expected = distance(target, weights[0])
        else:
            grown = []
            gains = []
            for weight in weights:
                best = max(0.0, *[distance(other, weight) for other in search.front.targets])
                own = distance(target, weight)
                grown.append(max(own, best) ** 2 - best**2)
                gains.append(own - best)
            is_growth.append(max(gains) > 0)
            expected = sum(grown) / len(grown) if is_growth[-1] else max(gains)
        slack = float((mean[row] - limit.lower) / variance[row].sqrt())
        expected += math.log(math.erfc(-slack / math.sqrt(2)) / 2)
        assert float(found[row]) == pytest.approx(expected, rel=1e-6)
    assert len(weights) == 1 or len(set(is_growth)) == 2


class _NearlyExact(kbo.Practical):
    """A model whose means are the observed values of points that are far from each other."""

    def fitted(self, space, X, y, noise_std, errors, ratios):
        kernel = unit_kernel(1)
        kernel.initialize(lengthscale=0.01)
        return Fitted(kernel, 1e-3, OutcomeTransform())


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        # a: extent 10, so a tenth of it below the least. b: extent 0.5, so 2 standard deviations below the largest.
        ({}, [-1.0, -1.0]),
        ({"b": 0.25}, [-1.0, 0.25]),
    ],
)
def test_the_default_reference_is_a_tenth_of_the_extent_below_the_front(given, expected):
    optimizer = kbo.Optimizer(
        [(0.0, 1.0)],
        objectives=["a", kbo.Maximize("b")],
        reference=given or None,
        setting=_NearlyExact(noisy=True, n_initial=4),
    )
    front = [(0.0, 1.0), (4.0, 0.8), (10.0, 0.5)]
    dominated = (-20.0, -20.0)
    for x, (a, b) in zip([0.1, 0.3, 0.5, 0.9], [*front, dominated], strict=True):
        optimizer.tell([x], {"a": -a, "b": b})
    quantities = optimizer.insight.quantities
    searched = search_for_trial(quantities, 0, Subspace(optimizer.space), 4, []).front
    assert sorted(searched.targets.tolist()) == [pytest.approx(point, abs=1e-3) for point in front]
    assert searched.reference.tolist() == pytest.approx(expected, abs=1e-3)
    assert searched.scale.tolist() == pytest.approx([11.0, 2.0], abs=1e-3)


# What is said of a front, where the prior is known

_NOISE_STD = 0.5
_N_TRIALS = 24


class _Prior(kbo.Practical):
    """The model with the kernel and the noise level of the functions below."""

    def fitted(self, space, X, y, noise_std, errors, ratios):
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
    setting = _Prior(noisy=True, n_initial=_N_TRIALS)
    objectives = ["a", kbo.Maximize("b")]
    optimizer = kbo.Optimizer([(0.0, 1.0)] * 2, objectives=objectives, setting=setting, seed=seed)
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
        reference = [-front.reference["a"], front.reference["b"]]
        reference = torch.tensor(reference, dtype=torch.float64)
        lower, mean, upper = front.hypervolume
        means = [[-point.values["a"].value, point.values["b"].value] for point in front.points]
        means = torch.tensor(means, dtype=torch.float64)
        assert mean == pytest.approx(float(hypervolume(means, reference)))
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
