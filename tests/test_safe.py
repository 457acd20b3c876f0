"""Safe exploration: the sets against dense recomputation, and the safe setting of a run, which breaks no limit."""

import pandas as pd
import pytest
import torch
from gpytorch.kernels import LinearKernel

import kbo
from experiments.guarantees.safe import play
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
    """An objective and a temperature on a finite set, observed with noise, and the bounds of both; times ``unit``."""

    def __init__(self, seed=0, make=MartingaleMixture, unit=1.0, device="cpu"):
        options = {
            "lengthscale": 0.4,
            "dim": 2,
            "norm": 3.0,
            "noise_std": 0.1,
            "n_arms": 60,
            "fixed": True,
        }
        self.outputs = [RKHSBandit(seed=2 * seed + i, **options) for i in range(2)]
        X = self.outputs[0].fixed_arms
        self.points = X.to(device)
        heat = self.outputs[1].mean(X)
        self.unit, self.limit, self.start = unit, float(heat.quantile(0.7)), int(heat.argmin())
        self.safe = heat <= self.limit
        self.states = [KernelRidge(bandit.kernel, 0.1**2) for bandit in self.outputs]
        scales = [{"scale": u**2} if make is MartingaleMixture else {} for u in (1.0, unit)]
        self.bounds = [
            make(0.1 * u, 3.0 * u, 0.05, **scale)
            for u, scale in zip((1.0, unit), scales, strict=True)
        ]

    @property
    def limits(self):
        return [Limit(self.states[1], self.bounds[1], upper=self.unit * self.limit)]

    def observe(self, row):
        X = self.points[row : row + 1]
        for state, bandit, unit in zip(self.states, self.outputs, (1.0, self.unit), strict=True):
            state.update(X, unit * bandit.observe(X.cpu()).to(X))

    def play(self, rounds):
        """Yield the safe set and the next row in every round."""
        found, row = (
            SafeSet(self.points, torch.arange(60, device=self.points.device) == self.start),
            self.start,
        )
        for _ in range(rounds):
            self.observe(row)
            found.update(self.limits)
            yield found, (row := found.widest(self.states[0], self.bounds[0]))


@pytest.mark.parametrize(("make", "rounds"), [(MartingaleMixture, 2), (SelfNormalized, 20)])
def test_the_sets_are_those_of_a_dense_recomputation(device, make, rounds):
    """With a width that stays, the expanders are those of a state with the hypothetical observation."""
    problem, grown = Problem(1, make=make, device=device), 0
    ever = torch.arange(60, device=device) == problem.start
    for found, row in problem.play(rounds):
        (limit,), (objective, bound), X = (
            problem.limits,
            (problem.states[0], problem.bounds[0]),
            problem.points,
        )
        ever = ever | (limit.certain(X) >= 0)
        assert torch.equal(found.safe, ever)
        lower, upper = bound.quick_interval(objective, X)
        members = ever & (upper >= lower[ever].max())
        for x in ever.nonzero()[:, 0].tolist():
            view = Hypothetical(
                limit.state, X[x : x + 1], limit.upper - limit.quick_slacks(X[x : x + 1])[1]
            )
            if make is SelfNormalized:
                certain = Limit(view, limit.confidence, upper=limit.upper).certain(X)
            else:
                (m, v), (m_after, v_after) = limit.state.predict(X), view.predict(X)
                certain = (
                    limit.upper
                    - m_after
                    - (limit.upper - m - limit.certain(X)) * (v_after / v).sqrt()
                )
            if bool((certain[~ever] >= 0).any()):
                members[x] = True
                grown += 1
        width = torch.maximum(
            *(state.predict(X)[1] / state.prior_variance(X) for state in problem.states)
        )
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
    everything.update(problem.limits)
    assert not everything.grows()


def test_a_change_of_units_changes_nothing():
    assert (
        len({tuple(row for _, row in Problem(unit=unit).play(10)) for unit in (1.0, 1000.0)}) == 1
    )


def test_a_large_set_is_bounded_roughly_and_safely(monkeypatch):
    exact = [(row, found.safe) for found, row in Problem(1).play(12)]
    for name in ("_REFINED", "_BLOCK", "_FRONTIER", "_TOGETHER"):
        monkeypatch.setattr(rules, name, 7)
    rough = [(row, found.safe) for found, row in Problem(1).play(12)]
    assert exact[0][0] == rough[0][0]
    assert all(bool(Problem(1).safe[found].all()) for _, found in rough)
    assert int(rough[-1][1].sum()) > 0.7 * int(exact[-1][1].sum())


def test_a_point_of_no_variance_is_known():
    points = torch.linspace(0, 1, 11, dtype=torch.float64).unsqueeze(-1)
    state, bound = KernelRidge(LinearKernel().double(), 0.1**2), MartingaleMixture(0.1, 3.0, 0.05)
    found = SafeSet(points, torch.arange(11) == 5)
    state.update(points[5:6], torch.zeros(1, dtype=torch.float64))
    found.update([Limit(state, bound, upper=1.0)])
    assert bool(found.safe[0])
    assert found.widest(state, bound) != 0


def test_pending_points_are_not_chosen_again(device):
    problem = Problem(device=device)
    *_, (found, row) = problem.play(20)
    problem.observe(row)
    found.update(problem.limits)
    pending = [Hypothetical(state, problem.points[row : row + 1]) for state in problem.states]
    assert found.widest(problem.states[0], problem.bounds[0], pending) != row


def test_bounds_that_hold_break_no_limit_and_the_tightest_find_most():
    """The study of docs/reliability.md on one function; a multiplier of 2 breaks the limit there."""
    cmm, ay, heuristic = (play(19, name, rounds=20) for name in ("CMM", "AY", "beta = 2"))
    assert cmm["violations"] == ay["violations"] == cmm["unsafe in S"] == 0
    assert heuristic["violations"] > 0
    part = "part of the safe points in S"
    assert cmm[part] > ay[part]


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
        return params["x"] * (1 - params["y"]) + float(e[0]), {
            "heat": heat(params) + self.shift + float(e[1])
        }


def safe(**options):
    return kbo.Safe(KERNEL, NOISE, NORM, **{"start": [START], **options})


def limit(name="heat", **options):
    return kbo.Constraint(
        name, **{"upper": LIMIT, "noise_std": NOISE, "norm_bound": NORM, **options}
    )


def opened(bounds=GRID, constraints=None, **options):
    constraints = [limit()] if constraints is None else constraints
    return kbo.Optimizer(
        bounds, constraints=constraints, maximize=True, **{"setting": safe(), **options}
    )


def run(bench, n, bounds=GRID, setting=None, constraints=None, **options):
    constraints = [limit()] if constraints is None else constraints
    return kbo.maximize(
        bench, bounds, n, setting=setting or safe(), constraints=constraints, **options
    )


@pytest.mark.parametrize("bounds", [GRID, BOX, ROWS])
def test_a_run_begins_at_the_starts_and_breaks_no_limit(bounds):
    starts, bench = [START, {"x": 0.3, "y": 0.0}], Bench()
    result = run(bench, 10, bounds, safe(start=starts))
    assert bench.called[:2] == starts
    assert all(heat(params) <= LIMIT for params in bench.called)
    assert len({tuple(params.values()) for params in bench.called}) > 4
    assert result.certified
    assert "certain to keep all limits" in result.guarantee
    assert "certain to be safe" in str(result)
    assert result.gap_exact == (bounds is not BOX)


def test_a_gap_over_points_that_may_become_more_says_so():
    gap = run(Bench(), 3).optimizer.gap(100)
    assert (gap.exact, gap.final, gap.proved) == (True, False, False)
    assert gap.reason == "other points may become certain to be safe"


def test_a_run_goes_on_after_it_was_reopened_and_its_journal_is_read_with_its_starts(tmp_path):
    at_once, bench, journal = run(Bench(), 6), Bench(), tmp_path / "run.jsonl"
    run(bench, 4, journal=journal)
    again = run(bench, 6, journal=journal)
    assert [t.params for t in again.trials] == [t.params for t in at_once.trials]
    record = Record.of(journal, KERNEL)
    assert record.reopened().safe_points() == at_once.optimizer.safe_points()


def test_starts_of_bounds_that_are_a_list_are_in_the_journal(tmp_path):
    journal = tmp_path / "run.jsonl"
    bounds = [(0.0, 1.0), (0.0, 1.0)]
    constraints = [limit()]
    setting = safe(start=[[0.2, 0.2]])
    optimizer = kbo.Optimizer(bounds, setting=setting, constraints=constraints, journal=journal)
    asked = optimizer.ask()
    assert asked == [0.2, 0.2]
    optimizer.close()
    again = kbo.Optimizer(bounds, setting=setting, constraints=constraints, journal=journal)
    assert again.ask() == asked


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
    bench, optimizer, trusting = (
        Bench(),
        opened(),
        opened(setting=safe(completion_independent_of_noise=True)),
    )
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
    assert not optimizer.insight.surrogate().guarantee(["trials failed: 1"])


def test_every_limit_must_be_certain():
    """Also while one of the quantities has never been measured, and where only one of them is near its limit."""
    for wear, more in ((None, False), (0.2, False), (-0.5, True)):
        optimizer = opened(
            constraints=[limit(), limit("wear")], setting=safe(completion_independent_of_noise=True)
        )
        for _ in range(3):
            value = None if wear is None else 0.1
            optimizer.tell(optimizer.ask(), {"objective": value, "heat": -0.5, "wear": wear})
        assert (optimizer.safe_points() != [START]) == more
        assert more or optimizer.ask() == START


def test_constraints_on_parameters_are_kept_too():
    bench = Bench()
    run(bench, 6, BOX, constraints=[limit(), kbo.Linear({"x": 1, "y": 1}, upper=0.42)])
    assert all(
        params["x"] + params["y"] <= 0.42 and heat(params) <= LIMIT for params in bench.called
    )


def test_a_start_that_is_measured_to_be_unsafe_ends_the_run():
    bench = Bench(shift=0.6)
    with pytest.raises(
        RefutedAssumptions, match=r"start .* is not safe: heat is at least 0\.\d+ \(heat <= 0.3\)"
    ):
        run(bench, 40)
    assert {tuple(params.values()) for params in bench.called} == {(0.2, 0.2)}


def test_refuted_assumptions_end_the_run_before_another_trial():
    values, called = iter([0.0, 5.0, -5.0, 5.0]), []

    def objective(params):
        called.append(params)
        return 0.1, {"heat": next(values)}

    with pytest.raises(RefutedAssumptions, match="heat"):
        run(objective, 4, constraints=[limit(noise_std=0.01)])
    assert 2 <= len(called) < 4


def test_no_point_is_returned_after_a_refutation(monkeypatch):
    """Also where only the bounds at some points have noticed it, as those with unknown noise may."""

    def refuted(*_):
        raise RefutedAssumptions("The data refute the assumptions")

    optimizer = opened()
    optimizer.tell(optimizer.ask(), Bench()(START))
    monkeypatch.setattr(SafeSet, "update", refuted)
    for _ in range(2):
        with pytest.raises(RefutedAssumptions):
            optimizer.ask()


def test_a_context_without_safe_points_is_refused():
    optimizer, bench = opened(), Bench()
    for _ in range(4):
        optimizer.tell(optimizer.ask(), bench(START))
    for given in ({"context": {"x": 1.0}}, {"choices": [{"x": 1.0, "y": 1.0}]}):
        with pytest.raises(InvalidInput, match="certain to keep all limits"):
            optimizer.ask(**given)
    assert optimizer.ask(context={"x": 0.2})["x"] == 0.2
    assert optimizer.best(context={"x": 0.2}) is not None


def test_the_objective_may_have_the_limit():
    """As in the first papers: the value itself must not become too low."""

    def objective(params):
        return 0.5 - (params["x"] - 0.4) ** 2

    bounds, at_least = {"x": kbo.Float(0, 1, step=0.05)}, kbo.Constraint("objective", lower=0.1)
    result = run(objective, 8, bounds, safe(start=[{"x": 0.4}]), [at_least])
    assert all(objective(trial.params) >= 0.1 for trial in result.trials)
    assert max(trial.params["x"] for trial in result.trials) >= 0.5


def test_it_stops_when_nothing_more_can_be_gained():
    options = {
        "bounds": {"x": kbo.Float(0, 1, step=0.5)},
        "setting": safe(start=[{"x": 0.0}]),
        "stop_at_gap": 0.2,
    }
    result = run(lambda p: (p["x"], {"heat": p["x"] - 0.5}), 60, **options)
    assert "gap" in result.stopped
    assert len(result.trials) < 60


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"constraints": []}, "needs a limit that a trial can break"),
        ({"constraints": [limit(upper=9.0)]}, "every function of their norm_bound"),
        ({"constraints": [limit(norm_bound=None)]}, "needs its own"),
        ({"constraints": [limit(), kbo.Linear({"x": 1}, lower=0.5)]}, r"start\[0\]: .* violates"),
        ({"setting": lambda: safe(start=[START, {"x": 0.0}])}, r"start\[1\]"),
        ({"setting": lambda: safe(start=())}, "start must be a list"),
        ({"method": "random"}, "no bounds"),
        ({"method": "cmm-ucb-doubling"}, "nothing is ever certain"),
    ],
)
def test_a_problem_that_cannot_be_explored_safely_is_refused(options, message):
    with pytest.raises(InvalidInput, match=message):
        opened(**{**options, "setting": options.get("setting", safe)()})


def test_measurements_that_are_missing_are_failures_and_safe_points_belong_to_the_setting():
    with pytest.raises(kbo.errors.TooManyFailures, match="no measurement of 'heat'"):
        run(lambda params: 0.1, 12)
    with pytest.raises(InvalidInput, match=r"kbo\.Safe"):
        kbo.Optimizer(GRID).safe_points()
