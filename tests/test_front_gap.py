"""The gap of a front: exact on finite sets, proved on boxes, never below the true distance while the bounds hold."""

import copy
import dataclasses
import math
import pickle

import pytest
import torch
from gpytorch.kernels import PeriodicKernel, RBFKernel

import kbo
from experiments.guarantees import fronts as front_figures
from kbo.confidence import MartingaleMixture
from kbo.optimize.insight.branch_and_bound import CellBound, bound_maximum
from kbo.optimize.insight.front_gap import front_gap, front_guarantee
from kbo.optimize.surrogates.surrogate import Bound
from kbo.report.record import Record
from tests.test_proved_gap import SPACES, case

NOISE = torch.Generator().manual_seed(0)
OBJECTIVES = ["size", kbo.Maximize("speed", noise_std=0.04, norm_bound=4.0)]
FINITE = {"x": kbo.Int(0, 6), "c": ["a", "b", "d"]}
BOX = {"x": (0.0, 1.0), "y": (0.0, 1.0)}


def kernel(lengthscale=0.5):
    made = RBFKernel().double()
    made.lengthscale = lengthscale
    return made


def certified(**changed):
    return kbo.Certified(**({"kernel": kernel(), "noise_std": 0.05, "norm_bound": 3.0} | changed))


def true_values(params):
    x = params["x"] / 6 if "c" in params else params["x"]
    y = "abd".index(params["c"]) / 2 if "c" in params else params["y"]
    return {"size": x**2 + 0.5 * y, "speed": math.sin(2 * x) - y * (1 - x)}


def objective(params):
    values = true_values(params)
    noise = torch.randn(2, generator=NOISE).tolist()
    return {"size": values["size"] + 0.05 * noise[0], "speed": values["speed"] + 0.04 * noise[1]}


def run(bounds, n=20, objectives=OBJECTIVES, measure=objective, **options):
    optimizer = kbo.Optimizer(
        bounds, **({"setting": certified(), "objectives": objectives} | options)
    )
    for _ in range(n):
        params = optimizer.ask()
        optimizer.tell(params, measure(params))
    return optimizer


def distance(optimizer, points, front, sides):
    """The gap by its definition: the largest over points, the least over the front, the largest over objectives.

    ``sides`` returns the best and the worst values [n] of an objective at params, in the direction that improves it.
    """
    extents = optimizer.insight.front().extents
    over = []
    for objective in optimizer.objectives:
        best, _ = sides(points, objective)
        _, worst = sides([trial.params for trial in front], objective)
        over.append((best.unsqueeze(1) - worst) / extents[objective.name])
    return float(torch.stack(over).amax(0).amin(1).amax())


def by_bounds(optimizer, points, front):
    """The gap by the reported intervals."""

    def sides(params, objective):
        units = optimizer.space.units(params)
        low, _, high = optimizer.insight.quantities.intervals(units, objective.name)
        return (high, low) if objective.maximize else (-low, -high)

    return distance(optimizer, points, front, sides)


def by_truth(optimizer, points, front):
    """The true distance of a front."""

    def sides(params, objective):
        values = torch.tensor([true_values(p)[objective.name] for p in params]).double()
        return objective.sign * values, objective.sign * values

    return distance(optimizer, points, front, sides)


def points_of(optimizer):
    return [optimizer.space.params(unit) for unit in optimizer.space.points(10_000)]


def front_of(optimizer):
    return [point.trial for point in optimizer.insight.front().points]


THREE = [*OBJECTIVES, kbo.Minimize("weight", noise_std=0.1, norm_bound=2.0, kernel=kernel(0.8))]


def weighed(params):
    noise = float(torch.randn((), generator=NOISE))
    return {**objective(params), "weight": 0.4 + 0.2 * true_values(params)["speed"] + 0.1 * noise}


@pytest.mark.parametrize("objectives", [OBJECTIVES, THREE], ids=["two", "three"])
def test_on_a_finite_set_the_gap_is_exact_and_holds(objectives):
    optimizer = run(FINITE, 20, objectives, weighed)
    gap = optimizer.gap()
    assert gap.proved
    assert gap.exact
    assert gap.scope == "over the whole space"
    expected = by_bounds(optimizer, points_of(optimizer), front_of(optimizer))
    assert gap.value == gap.found == pytest.approx(expected, rel=1e-9)
    if objectives is OBJECTIVES:
        assert 0 < by_truth(optimizer, points_of(optimizer), front_of(optimizer)) <= gap.value


def test_points_that_break_a_rule_or_a_limit_do_not_count():
    rule = kbo.Linear({"x": 1.0}, upper=4)
    optimizer = run(FINITE, 12, constraints=[rule])
    allowed = [params for params in points_of(optimizer) if params["x"] <= 4]
    gap = optimizer.gap()
    assert gap.scope == "over all points that satisfy the constraints"
    assert gap.value == pytest.approx(by_bounds(optimizer, allowed, front_of(optimizer)))

    limit = kbo.Constraint("heat", upper=0.3, noise_std=0.01, norm_bound=4.0)

    def measured(params):
        noise = 0.01 * float(torch.randn((), generator=NOISE))
        return {**objective(params), "heat": true_values(params)["speed"] + noise}

    setting = certified(completion_independent_of_noise=True)
    optimizer = kbo.Optimizer(FINITE, setting=setting, objectives=OBJECTIVES, constraints=[limit])
    points = points_of(optimizer)
    NOISE.manual_seed(0)
    optimizer.tell(points[-1], measured(points[-1]))
    assert optimizer.gap() is None  # no trial of the front is certain to keep the limit
    for _ in range(6):
        for params in points:
            optimizer.tell(params, measured(params))
        front = front_of(optimizer)
        kept = [t for t in front if optimizer.interval(t.params, "heat")[2] <= 0.3]
        possible = [p for p in points if optimizer.interval(p, "heat")[0] <= 0.3]
        gap = optimizer.gap()
        assert gap.proved
        assert gap.value == pytest.approx(by_bounds(optimizer, possible, kept))
    assert gap.value < by_bounds(optimizer, points, kept) - 0.01  # other points would be better


def test_on_a_box_the_gap_is_proved_and_falls_with_the_work():
    optimizer = run(BOX)
    found = optimizer.gap()
    assert not found.proved
    assert found.reason == "no proof was asked for: pass evaluations="
    gaps = [optimizer.gap(evaluations) for evaluations in (1, 300, 20_000)]
    assert all(gap.proved for gap in gaps)
    values = [gap.value for gap in gaps]
    assert values == sorted(values, reverse=True)
    assert found.value <= values[-1] <= 1.05 * found.value
    assert gaps[-1].scope == f"over the whole space, proved; {found.value:.4g} was found"
    grid = [{"x": i / 40, "y": j / 40} for i in range(41) for j in range(41)]
    front = front_of(optimizer)
    assert 0 < by_truth(optimizer, grid, front) <= values[-1]
    assert by_bounds(optimizer, grid, front) <= values[-1]
    coarse = optimizer.gap(20_000, goal=2 * values[-1])
    assert values[-1] < coarse.value <= 2 * values[-1]


@pytest.mark.parametrize("name", SPACES)
def test_the_score_of_two_functions_is_bounded_over_a_space(name):
    space = kbo.Space(SPACES[name])
    for seed in range(4):
        state, _, values = case(space, seed, n=60)
        generator = torch.Generator().manual_seed(seed)
        lower = torch.rand(4, 2, generator=generator).double()

        def score(upper, lower=lower):
            return (upper.unsqueeze(-2) - lower).amax(-1).amin(-1)

        bound = Bound(MartingaleMixture(0.1, 2.0, 0.01), state, 2.0)
        functions = [CellBound([bound], unit=0.7), CellBound([bound], sign=-1, unit=1.3)]
        truth = float(score(torch.stack([values / 0.7, -values / 1.3], -1)).max())
        proofs = [
            bound_maximum(functions, space, most, score=score, lower=-9.0) for most in (1, 50, 4000)
        ]
        largest = [proof.largest for proof in proofs]
        assert largest == sorted(largest, reverse=True)
        assert largest[-1] >= truth
        if name == "interval":
            assert largest[-1] - proofs[-1].found <= 0.05 * (proofs[-1].found + 9.0)
            X = space.features(torch.linspace(0, 1, 2001, dtype=torch.float64).unsqueeze(1))
            still = torch.zeros_like(X)
            at_points = score(torch.stack([f(X, still)[0] for f in functions], -1))
            for proof in proofs:
                assert proof.largest >= float(at_points.max())


def surrogates_of(optimizer):
    return optimizer.insight.quantities.surrogates()


def gap_of(optimizer, surrogates):
    front = optimizer.insight.front()
    features = optimizer.insight.quantities.features(front_of(optimizer))
    return front_gap(
        surrogates,
        front.extents,
        [],
        features,
        optimizer._search(),
        optimizer.run.trials.finished,
        2000,
        0.0,
        False,
    )


@pytest.mark.parametrize("bounds", [FINITE, BOX], ids=["finite", "box"])
@pytest.mark.parametrize("name", ["size", "speed"])
def test_a_gap_is_not_proved_if_one_objective_has_no_guarantee(bounds, name):
    optimizer = run(bounds, 8)
    surrogates = surrogates_of(optimizer)
    assert gap_of(optimizer, surrogates).proved
    assert front_guarantee(surrogates)
    surrogates[name] = dataclasses.replace(surrogates[name], selected={"failed": 1})
    gap = gap_of(optimizer, surrogates)
    assert not gap.proved
    assert gap.reason.startswith(f"{name}: trials failed: 1")
    guarantee = front_guarantee(surrogates)
    assert not guarantee
    assert guarantee.text.startswith(f"not certified: {name}: trials failed: 1")


def test_a_gap_is_not_proved_after_a_failure_a_correction_or_where_nothing_can_be_proved():
    failed = run(BOX, 8)
    failed.fail(failed.ask(), "out of memory")
    corrected = run(BOX, 8)
    corrected.correct(3, {"size": 0.5, "speed": 0.5})
    own_kernel = kbo.Minimize("speed", noise_std=0.1, norm_bound=2.0, kernel=PeriodicKernel())
    branches = [kbo.When("c", "a", {"x": (0.0, 1.0)}), {"c": ["a", "b"]}]
    cases = {
        "size: trials that failed: 1": failed,
        "size: trials corrected or removed by hand: 1": corrected,
        "the kernel is not made of RBF and Matern kernels": run(BOX, 8, ["size", own_kernel]),
    }
    for reason, optimizer in cases.items():
        gap = optimizer.gap(500)
        assert not gap.proved
        assert reason in gap.reason or "failed" in gap.reason, gap.reason
        assert gap.scope == f"by a search from many starts; not proved: {gap.reason}"
    optimizer = kbo.Optimizer(branches, setting=certified(), objectives=OBJECTIVES)
    for i in range(8):
        optimizer.tell(optimizer.ask(), {"size": i / 80, "speed": i / 90})
    assert optimizer.gap(500).reason == "the space has conditional parameters"
    practical = run(BOX, 10, setting=kbo.Practical(), objectives=["size", "speed"])
    assert not practical.gap(500).proved


def test_several_hypotheses_about_an_objective_hold_if_one_is_true():
    wrong = kbo.Hypothesis(kernel(2.0), 0.04, 0.5)
    true = kbo.Hypothesis(kernel(), 0.04, 4.0)
    for bounds in (FINITE, BOX):
        gaps = []
        for hypotheses in ([true], [wrong, true]):
            speed = kbo.Maximize("speed", kernel=hypotheses)
            NOISE.manual_seed(1)
            optimizer = kbo.Optimizer(bounds, setting=certified(), objectives=["size", speed])
            for unit in torch.rand(8, 2, generator=NOISE):
                params = optimizer.space.params(unit.double())
                optimizer.tell(params, objective(params))
            surrogates = surrogates_of(optimizer)
            declared = dataclasses.replace(surrogates["speed"], selected={})
            gaps.append(gap_of(optimizer, {**surrogates, "speed": declared}))
        assert gaps[1].value >= gaps[0].value - 1e-9


def test_every_objective_has_its_own_assumptions_and_an_equal_share_of_delta():
    limit = kbo.Constraint("heat", upper=9.0, noise_std=0.05, norm_bound=30.0)
    optimizer = kbo.Optimizer(
        FINITE, setting=certified(delta=0.2), objectives=THREE, constraints=[limit]
    )
    for _ in range(6):
        params = optimizer.ask()
        optimizer.tell(params, {**weighed(params), "heat": 1.0})
    size, speed, weight = surrogates_of(optimizer).values()
    heat = optimizer.insight.quantities.limits()[0].surrogate
    numbers = [(s.given.noise_std, s.given.norm_bound) for s in (size, speed, weight, heat)]
    assert numbers == [(0.05, 3.0), (0.04, 4.0), (0.1, 2.0), (0.05, 30.0)]
    assert {s.given.delta for s in (size, speed, weight, heat)} == {0.05}
    lengthscales = [s.posterior.kernel.lengthscale.item() for s in (size, speed, weight)]
    assert lengthscales == pytest.approx([0.5, 0.5, 0.8])
    guarantee = optimizer.insight.guarantee()
    assert guarantee.delta == pytest.approx(0.15)
    assert guarantee.text.startswith("certified: with probability at least 0.85 for all objective")
    for text in ("size: the inter", "norm at most 3", "speed: the inter", "norm at most 4"):
        assert text in guarantee.text
    copies = [copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))]
    for other in copies:
        described = [objective.describe() for objective in optimizer.objectives]
        assert [objective.describe() for objective in other.objectives] == described
        assert other.gap() == optimizer.gap()


def test_a_result_states_the_joint_guarantee_and_the_gap_in_units_of_the_objectives():
    result = kbo.minimize(objective, BOX, 12, setting=certified(), objectives=OBJECTIVES)
    assert result.certified
    assert result.gap_proved
    assert result.assumptions["delta"] == 0.1
    assert result.assumptions["objectives"]["speed"]["norm_bound"] == 4.0
    assert result.sure == "90%"
    text = str(result)
    assert "for every setting one of these is at most" in text
    assert "worse in size and" in text
    assert "with probability at least 0.9 for all objectives at once; size: " in text
    stopped = kbo.minimize(
        objective, BOX, 12, setting=certified(), objectives=OBJECTIVES, stop_at_gap=9.0
    )
    assert "is at most 9" in stopped.stopped
    practical = kbo.minimize(objective, BOX, 12, objectives=["size", "speed"])
    assert not practical.certified
    assert practical.guarantee.startswith("practical, not certified: size: kernel and noise")


def test_assumptions_that_are_missing_or_at_the_wrong_place_are_refused():
    def made(objectives, **options):
        return kbo.Optimizer(BOX, **({"setting": certified(), "objectives": objectives} | options))

    with pytest.raises(
        kbo.InvalidInput,
        match=r"objective 'speed': the certified setting needs its own noise_std and norm_bound, as in "
        r"objectives=\[\.\.\., kbo\.Maximize\('speed', noise_std=0\.1, norm_bound=2\.0\)\]",
    ):
        made(["size", kbo.Maximize("speed")])
    with pytest.raises(kbo.InvalidInput, match=r"'size': .* first objective belong to the setting"):
        made([kbo.Minimize("size", noise_std=0.1), OBJECTIVES[1]])
    with pytest.raises(kbo.InvalidInput, match=r"'speed': norm_bound and kernel are for kbo\.Cert"):
        made(OBJECTIVES, setting=kbo.Practical())
    with pytest.raises(kbo.InvalidInput, match="those of the setting are about the objective"):
        made(OBJECTIVES, setting=kbo.Certified([kbo.Hypothesis(kernel(), 0.05, 3.0)]))
    with pytest.raises(kbo.InvalidInput, match="objective 'speed': norm_bound must be"):
        kbo.Maximize("speed", norm_bound=-1.0)
    with pytest.raises(kbo.InvalidInput, match="'size': the first objective is called 'objective'"):
        made(OBJECTIVES, constraints=[kbo.Constraint("size", upper=1, noise_std=1, norm_bound=1)])
    online = made(
        ["size", kbo.Minimize("speed", norm_bound=2.0)],
        setting=certified(noise_std=None),
        method="dmm-ucb-adaptive",
    )
    assert online.objectives[1].noise_std is None
    practical = made(
        ["size", kbo.Minimize("speed", noise_std=0.0)], setting=kbo.Practical(noise_std=0.3)
    )
    for _ in range(8):
        params = practical.ask()
        practical.tell(params, objective(params))
    size, speed = surrogates_of(practical).values()
    assert [size.choices.noise_std, speed.choices.noise_std] == [0.3, 0.0]
    assert speed.noiseless
    assert not size.noiseless


def test_an_objective_whose_repeated_values_are_equal_has_no_guarantee():
    def fixed_seed(params):
        return {**objective(params), "speed": true_values(params)["speed"]}

    optimizer = run({"x": kbo.Int(0, 1), "c": ["a", "b"]}, 60, measure=fixed_seed)
    gap = optimizer.gap()
    assert not gap.proved
    assert gap.reason.startswith("speed: each of ")
    assert "noise is not independent" in gap.reason
    assert "size: " not in optimizer.insight.guarantee().text


def test_a_search_goes_on_while_no_trial_keeps_the_limits():
    limit = kbo.Constraint("size", upper=0.1, noise_std=0.05, norm_bound=3.0)
    for setting, limits in (
        (certified(), [limit]),
        (kbo.Practical(), [kbo.Constraint("size", upper=0.1)]),
    ):
        speed = kbo.Maximize("speed", noise_std=0.04)
        if setting.certified:
            speed = OBJECTIVES[1]
        names = [kbo.Minimize("cost"), speed]
        optimizer = kbo.Optimizer(BOX, setting=setting, objectives=names, constraints=limits)
        for _ in range(14):
            params = optimizer.ask()
            optimizer.tell(params, {**objective(params), "cost": objective(params)["size"]})
        kept = [trial for trial in optimizer.trials if trial.measured["size"] <= 0.1]
        assert len(kept) > 2


def test_a_journal_records_the_assumptions_of_every_objective(tmp_path):
    path = tmp_path / "run.jsonl"
    run(BOX, 6, journal=path).close()
    optimizer = kbo.Optimizer(BOX, setting=certified(), objectives=OBJECTIVES, journal=path)
    assert len(optimizer.trials) == 6
    optimizer.close()
    record = Record.of(path, kernel())
    assert record.optimizer.objectives == tuple([kbo.Minimize("size"), OBJECTIVES[1]])
    assert record.blank().objectives == record.optimizer.objectives
    other = [OBJECTIVES[0], kbo.Maximize("speed", noise_std=0.04, norm_bound=5.0)]
    with pytest.raises(kbo.JournalError, match="objectives"):
        kbo.Optimizer(BOX, setting=certified(), objectives=other, journal=path)
    own = tmp_path / "own.jsonl"
    kept = run(BOX, 3, THREE[::2], weighed, journal=own)
    kept.close()
    with pytest.raises(
        kbo.InvalidInput, match="'weight' among the objectives has a kernel of its own"
    ):
        Record.of(own, kernel())
    assert Record.of(kept).blank().objectives == kept.objectives


def check(runs):
    for kind, space, outcomes in front_figures.rows(runs):
        holds = sum(outcome.holds for outcome in outcomes)
        assert holds >= (1 - front_figures.DELTA) * runs, (kind, space, holds)
        assert all(outcome.proved for outcome in outcomes if outcome.holds)
        assert max(outcome.share for outcome in outcomes) > 0.2  # the functions come near to it
        if kind == "hidden peak":  # the same statement by posterior means is wrong
            assert sum(outcome.holds_by_means for outcome in outcomes) < runs / 2


def test_the_statement_holds_on_functions_of_the_given_norms():
    check(3)


@pytest.mark.thorough
def test_the_statement_holds_in_a_hundred_runs_of_each_kind():
    check(100)
