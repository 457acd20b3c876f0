"""Safe exploration: the sets against dense recomputation, and the safe setting of a run, which breaks no limit."""

import pandas as pd
import pytest
import torch

import kbo
from experiments.problems import RKHSBandit
from experiments.problems.rkhs import stationary_kernel
from kbo import KernelRidge
from kbo.bandit import safe as rules
from kbo.bandit.safe import SafeSet
from kbo.confidence import Limit, MartingaleMixture, SelfNormalized
from kbo.errors import InvalidInput, RefutedAssumptions
from kbo.regression import Hypothetical
from kbo.report.record import Record


class Problem:
    """An objective and a temperature on a finite set, observed with noise, and the bounds of both."""

    def __init__(self, seed=0, make=MartingaleMixture, device="cpu"):
        options = {"lengthscale": 0.4, "dim": 2, "norm": 3.0, "noise_std": 0.1, "n_arms": 60}
        self.outputs = [RKHSBandit(seed=2 * seed + i, fixed=True, **options) for i in range(2)]
        X = self.outputs[0].fixed_arms
        heat = self.outputs[1].mean(X)
        self.points = X.to(device)
        self.start = int(heat.argmin())
        self.safe = heat <= heat.quantile(0.7)
        self.states = [KernelRidge(bandit.kernel, 0.1**2) for bandit in self.outputs]
        self.bound = make(0.1, 3.0, 0.05)
        self.limit = Limit(self.states[1], self.bound, upper=float(heat.quantile(0.7)))

    def play(self, rounds):
        """Yield the safe set and the next row in every round."""
        row = self.start
        found = SafeSet(self.points, torch.arange(60, device=self.points.device) == row)
        for _ in range(rounds):
            X = self.points[row : row + 1]
            for state, bandit in zip(self.states, self.outputs, strict=True):
                state.update(X, bandit.observe(X.cpu()).to(X))
            found.update([self.limit])
            row = found.widest(self.states[0], self.bound)
            yield found, row


@pytest.mark.parametrize(("make", "rounds"), [(MartingaleMixture, 2), (SelfNormalized, 20)])
def test_the_sets_are_those_of_a_dense_recomputation(device, make, rounds):
    """With a width that stays, the expanders are those of a state with the hypothetical observation."""
    problem, grown = Problem(1, make=make, device=device), 0
    X, limit = problem.points, problem.limit
    ever = torch.arange(60, device=device) == problem.start
    for found, row in problem.play(rounds):
        ever = ever | (limit.certain(X) >= 0)
        assert torch.equal(found.safe, ever)
        lower, upper = problem.bound.quick_interval(problem.states[0], X)
        members = ever & (upper >= lower[ever].max())
        for x in ever.nonzero()[:, 0].tolist():
            best = limit.upper - limit.quick_slacks(X[x : x + 1])[1]
            view = Hypothetical(limit.state, X[x : x + 1], best)
            if make is SelfNormalized:
                certain = Limit(view, limit.confidence, upper=limit.upper).certain(X)
            else:
                (m, v), (m_after, v_after) = limit.state.predict(X), view.predict(X)
                width = limit.upper - m - limit.certain(X)
                certain = limit.upper - m_after - width * (v_after / v).sqrt()
            if bool((certain[~ever] >= 0).any()):
                members[x] = True
                grown += 1
        shares = [state.predict(X)[1] / state.prior_variance(X) for state in problem.states]
        width = torch.maximum(*shares)
        assert bool(members[row])
        assert width[row] == width[members].max()
    assert grown


def test_the_set_grows_and_every_point_is_safe():
    problem, before, size = Problem(), None, 0
    for found, row in problem.play(25):
        assert bool(found.safe[row] & problem.safe[row])
        assert bool(problem.safe[found.safe].all())
        assert before is None or bool(found.safe[before].all())
        before, size = found.safe, int(found.safe.sum())
    assert size > 5
    everything = SafeSet(problem.points, torch.ones(60, dtype=torch.bool))
    everything.update([problem.limit])
    assert not everything.grows()


def test_a_large_set_is_bounded_roughly_and_safely(monkeypatch):
    exact = [(row, found.safe) for found, row in Problem(1).play(12)]
    for name in ("_REFINED", "_BLOCK", "_FRONTIER", "_EXAMINED"):
        monkeypatch.setattr(rules, name, 7)
    rough = [(row, found.safe) for found, row in Problem(1).play(12)]
    assert exact[0][0] == rough[0][0]
    assert all(bool(Problem(1).safe[found].all()) for _, found in rough)
    assert int(rough[-1][1].sum()) > 0.7 * int(exact[-1][1].sum())


# The setting

NOISE, NORM, LIMIT = 0.05, 1.5, 0.3
KERNEL = stationary_kernel("rbf", 0.6)
START = {"x": 0.2, "y": 0.2}
BOX = {"x": (0.0, 1.0), "y": (0.0, 1.0)}
GRID = {name: kbo.Float(0, 1, step=0.05) for name in "xy"}
ROWS = pd.DataFrame([(i / 20, 0.2 * j) for i in range(21) for j in range(6)], columns=["x", "y"])


def heat(params):
    return 0.8 * (params["x"] - 0.2) ** 2 + 0.4 * params["y"]


class Bench:
    """An objective with reproducible noise that keeps what it was called with."""

    def __init__(self, shift=0.0):
        self.rng, self.called, self.shift = torch.Generator().manual_seed(0), [], shift

    def __call__(self, params):
        self.called.append(params)
        e = NOISE * torch.randn(2, generator=self.rng, dtype=torch.float64)
        value = params["x"] * (1 - params["y"]) + float(e[0])
        return value, {"heat": heat(params) + self.shift + float(e[1])}


def safe(start=(START,), **options):
    return kbo.Safe(KERNEL, NOISE, NORM, start=list(start), **options)


def limit(name="heat", **options):
    numbers = {"upper": LIMIT, "noise_std": NOISE, "norm_bound": NORM}
    return kbo.Constraint(name, **{**numbers, **options})


def opened(bounds=GRID, constraints=None, setting=None, **options):
    constraints = [limit()] if constraints is None else constraints
    given = {"setting": setting or safe(), "constraints": constraints, "maximize": True}
    return kbo.Optimizer(bounds, **given, **options)


def run(bench, n, bounds=GRID, setting=None, constraints=None, **options):
    constraints = [limit()] if constraints is None else constraints
    given = {"setting": setting or safe(), "constraints": constraints}
    return kbo.maximize(bench, bounds, n, **given, **options)


@pytest.mark.parametrize("bounds", [GRID, BOX, ROWS])
def test_a_run_begins_at_the_starts_and_breaks_no_limit(bounds):
    starts, bench = [START, {"x": 0.3, "y": 0.0}], Bench()
    result = run(bench, 8, bounds, safe(starts))
    assert bench.called[:2] == starts
    assert all(heat(params) <= LIMIT for params in bench.called)
    assert len({tuple(params.values()) for params in bench.called}) > 4
    assert result.certified
    assert "certain to keep all limits" in result.guarantee
    assert "certain to be safe" in str(result)
    gap = result.optimizer.gap(100)
    assert gap.exact == (bounds is not BOX)
    assert not gap.final
    assert not gap.proved


def test_a_run_goes_on_after_it_was_reopened_and_its_journal_is_read_with_its_starts(tmp_path):
    at_once, bench, journal = run(Bench(), 4), Bench(), tmp_path / "run.jsonl"
    run(bench, 2, journal=journal)
    again = run(bench, 4, journal=journal)
    assert [t.params for t in again.trials] == [t.params for t in at_once.trials]
    record = Record.of(journal, KERNEL)
    assert record.reopened().safe_points() == at_once.optimizer.safe_points()


def test_parallel_trials_are_safe():
    """More workers than starts: while nothing is known, the starts are repeated."""
    optimizer, bench = opened(), Bench()
    assert optimizer.ask(3) == [START] * 3
    for _ in range(3):
        optimizer.tell(START, bench(START))
    asked = optimizer.ask(3)
    assert len({tuple(params.values()) for params in asked}) == 3
    assert all(heat(params) <= LIMIT for params in asked)


def test_failures_and_values_of_others_add_nothing_to_the_safe_points():
    """A value that was not asked for may have been selected by its noise: no bound rests on it."""
    bench, optimizer = Bench(), opened()
    trusting = opened(setting=safe(completion_independent_of_noise=True))
    for _ in range(3):
        value = bench(START)
        optimizer.tell(optimizer.ask(), value)
        trusting.tell(trusting.ask(), value)
    before = optimizer.safe_points()
    for one in (optimizer, trusting):
        one.tell({"x": 0.0, "y": 0.0}, (0.1, {"heat": -0.2}))
        one.fail(one.ask(), "broken")
        assert heat(one.ask()) <= LIMIT
    assert optimizer.safe_points() == before
    assert len(trusting.safe_points()) > len(before)
    assert all(heat(params) <= LIMIT for params in trusting.safe_points())


def test_every_limit_must_be_certain():
    """Also while one of the quantities has never been measured, and where only one of them is near its limit."""
    trusting = safe(completion_independent_of_noise=True)
    for wear, more in ((None, False), (0.2, False), (-0.5, True)):
        optimizer = opened(constraints=[limit(), limit("wear")], setting=trusting)
        for _ in range(3):
            value = None if wear is None else 0.1
            optimizer.tell(optimizer.ask(), {"objective": value, "heat": -0.5, "wear": wear})
        assert (optimizer.safe_points() != [START]) == more
        assert more or optimizer.ask() == START


def test_constraints_on_parameters_are_kept_too():
    bench = Bench()
    run(bench, 6, BOX, constraints=[limit(), kbo.Linear({"x": 1, "y": 1}, upper=0.42)])
    for params in bench.called:
        assert params["x"] + params["y"] <= 0.42
        assert heat(params) <= LIMIT


def test_a_start_that_is_measured_to_be_unsafe_ends_the_run():
    bench = Bench(shift=0.6)
    with pytest.raises(RefutedAssumptions, match=r"start .* is not safe: heat is at least 0\.\d+"):
        run(bench, 40)
    assert all(params == START for params in bench.called)


def test_refuted_assumptions_end_the_run_before_another_trial():
    values, called = iter([0.0, 5.0, -5.0, 5.0]), []

    def objective(params):
        called.append(params)
        return 0.1, {"heat": next(values)}

    with pytest.raises(RefutedAssumptions, match="heat"):
        run(objective, 4, constraints=[limit(noise_std=0.01)])
    assert 2 <= len(called) < 4


def test_a_context_without_safe_points_is_refused():
    optimizer, bench = opened(), Bench()
    for _ in range(4):
        optimizer.tell(optimizer.ask(), bench(START))
    for given in ({"context": {"x": 1.0}}, {"choices": [{"x": 1.0, "y": 1.0}]}):
        with pytest.raises(InvalidInput, match="certain to keep all limits"):
            optimizer.ask(**given)
    assert optimizer.ask(context={"x": 0.2})["x"] == 0.2


def test_the_objective_may_have_the_limit():
    """As in the first papers: the value itself must not become too low."""

    def objective(params):
        return 0.5 - (params["x"] - 0.4) ** 2

    at_least = kbo.Constraint("objective", lower=0.1)
    result = run(objective, 8, {"x": GRID["x"]}, safe([{"x": 0.4}]), [at_least])
    assert all(objective(trial.params) >= 0.1 for trial in result.trials)
    assert max(trial.params["x"] for trial in result.trials) >= 0.5


def test_a_problem_that_cannot_be_explored_safely_is_refused():
    for options, message in (
        ({"constraints": []}, "needs a limit that a trial can break"),
        ({"constraints": [limit(upper=9.0)]}, "every function of their norm_bound"),
        ({"constraints": [limit(), kbo.Linear({"x": 1}, lower=0.5)]}, r"start\[0\]: .* violates"),
        ({"method": "random"}, "no bounds"),
        ({"method": "cmm-ucb-doubling"}, "nothing is ever certain"),
    ):
        with pytest.raises(InvalidInput, match=message):
            opened(**options)
