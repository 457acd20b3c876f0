"""Safe exploration: the sets against dense recomputation, what they never do, and units."""

import pytest
import torch
from gpytorch.kernels import LinearKernel

from kbo import KernelRidge
from kbo.confidence import Limit, MartingaleMixture, SelfNormalized
from kbo.problems import RKHSBandit
from kbo.recipes import safe
from kbo.recipes.safe import SafeSet
from kbo.regression import Hypothetical
from tests.safe_figures import play

NOISE, NORM, DELTA = 0.1, 3.0, 0.05


class Problem:
    """An objective and a temperature on a finite set, observed with noise, and the bounds of both; times ``unit``."""

    def __init__(self, seed=0, n_arms=60, make=MartingaleMixture, unit=1.0, device="cpu"):
        options = {"lengthscale": 0.4, "dim": 2, "norm": NORM, "noise_std": NOISE, "n_arms": n_arms, "fixed": True}
        self.outputs = [RKHSBandit(seed=2 * seed + i, **options) for i in range(2)]
        X = self.outputs[0].fixed_arms
        self.points = X.to(device)
        self.values = [bandit.mean(X) for bandit in self.outputs]
        heat = self.values[1]
        self.unit, self.limit, self.start = unit, float(heat.quantile(0.7)), int(heat.argmin())
        self.states = [KernelRidge(bandit.kernel, NOISE**2) for bandit in self.outputs]
        scales = [{"scale": u**2} if make is MartingaleMixture else {} for u in (1.0, unit)]
        self.bounds = [make(NOISE * u, NORM * u, DELTA, **scale) for u, scale in zip((1.0, unit), scales, strict=True)]

    @property
    def limits(self):
        return [Limit(self.states[1], self.bounds[1], upper=self.unit * self.limit)]

    @property
    def safe(self):
        return self.values[1] <= self.limit

    def begin(self):
        given = torch.zeros_like(self.points[:, 0], dtype=torch.bool)
        given[self.start] = True
        found = SafeSet(self.points, given)
        self.observe(self.start)
        found.update(self.limits)
        return found

    def observe(self, row):
        X = self.points[row : row + 1]
        for state, bandit, unit in zip(self.states, self.outputs, (1.0, self.unit), strict=True):
            state.update(X, unit * bandit.observe(X.cpu()).to(X))

    def play(self, rounds):
        """Yield the safe set and the next row in every round."""
        found = self.begin()
        for _ in range(rounds):
            row = found.widest(self.states[0], self.bounds[0])
            yield found, row
            self.observe(row)
            found.update(self.limits)


@pytest.mark.parametrize("make", [MartingaleMixture, SelfNormalized])
def test_the_sets_are_those_of_a_dense_recomputation(device, make):
    """With a width that stays, the expanders are those of a state with the hypothetical observation."""
    problem, ever, grown = Problem(make=make, device=device), None, 0
    for found, row in problem.play(12):
        (limit,), (objective, bound), X = problem.limits, (problem.states[0], problem.bounds[0]), problem.points
        ever = torch.zeros_like(X[:, 0], dtype=torch.bool) if ever is None else ever
        ever[problem.start] = True
        ever |= limit.certain(X) >= 0
        assert torch.equal(found.safe, ever)
        lower, upper = bound.quick_interval(objective, X)
        members = ever & (upper >= lower[ever].max())
        for x in ever.nonzero()[:, 0].tolist():
            target = limit.upper - limit.roughly(X[x : x + 1])[1]
            view = Hypothetical(limit.state, X[x : x + 1], target)
            if make is SelfNormalized:
                certain = Limit(view, limit.confidence, upper=limit.upper).certain(X)
            else:
                (m, v), (m_after, v_after) = limit.state.predict(X), view.predict(X)
                certain = limit.upper - m_after - (limit.upper - m - limit.certain(X)) * (v_after / v).sqrt()
            if bool((certain[~ever] >= 0).any()):
                members[x] = True
                grown += 1
        width = torch.maximum(*(state.predict(X)[1] / state.prior_variance(X) for state in problem.states))
        assert bool(members[row])
        assert width[row] == width[members].max()
    assert grown


@pytest.mark.parametrize("seed", range(3))
def test_the_set_grows_and_every_point_is_safe(seed):
    problem, before = Problem(seed), None
    for found, row in problem.play(40):
        assert bool(found.safe[row])
        assert bool(problem.safe[row])
        assert bool(problem.safe[found.safe].all())
        assert before is None or bool(found.safe[before].all())
        before = found.safe
    assert int(before.sum()) > 5


def test_a_change_of_units_changes_nothing():
    rows = [[row for _, row in Problem(unit=unit).play(20)] for unit in (1.0, 1000.0)]
    assert rows[0] == rows[1]


def test_a_large_set_is_bounded_roughly_and_safely(monkeypatch):
    exact = [(row, found.safe) for found, row in Problem(1).play(15)]
    for name in ("_REFINED", "_BLOCK", "_FRONTIER", "_TOGETHER"):
        monkeypatch.setattr(safe, name, 7)
    rough = [(row, found.safe) for found, row in Problem(1).play(15)]
    assert exact[0][0] == rough[0][0]
    assert all(bool(Problem(1).safe[found].all()) for _, found in rough)
    assert int(rough[-1][1].sum()) > 0.7 * int(exact[-1][1].sum())


def test_a_set_of_all_points_does_not_grow():
    problem = Problem()
    assert problem.begin().grows()
    everything = SafeSet(problem.points, torch.ones(60, dtype=torch.bool))
    everything.update(problem.limits)
    assert not everything.grows()


def test_a_point_of_no_variance_is_known():
    kernel = LinearKernel().double()
    points = torch.linspace(0, 1, 11, dtype=torch.float64).unsqueeze(-1)
    state, bound = KernelRidge(kernel, NOISE**2), MartingaleMixture(NOISE, NORM, DELTA)
    found = SafeSet(points, torch.arange(11) == 5)
    state.update(points[5:6], torch.zeros(1, dtype=torch.float64))
    found.update([Limit(state, bound, upper=1.0)])
    assert bool(found.safe[0])
    assert found.widest(state, bound) != 0


def test_pending_points_are_not_chosen_again(device):
    problem = Problem(device=device)
    *_, (found, row) = problem.play(20)
    pending = [Hypothetical(state, problem.points[row : row + 1]) for state in problem.states]
    assert found.widest(problem.states[0], problem.bounds[0], pending) != row


def test_bounds_that_hold_break_no_limit_and_the_tightest_find_most():
    """The study of docs/validity.md on one function; a multiplier of 2 breaks the limit there."""
    cmm, ay, heuristic = (play(19, name, rounds=20) for name in ("CMM", "AY", "beta = 2"))
    assert cmm["violations"] == ay["violations"] == cmm["unsafe in S"] == 0
    assert heuristic["violations"] > 0
    part = "part of the safe points in S"
    assert cmm[part] > ay[part]
