"""Results that are corrected or removed, and spaces that change, by events of a run."""

import itertools
import pickle

import pandas as pd
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel

import kbo
from kbo.errors import InvalidInput
from kbo.report.record import Record
from kbo.report.replay import history, miscoverage
from kbo.space import Space
from tests.faults import interrupted
from tests.parts import once

X = {"x": (0.0, 1.0)}
WIDE = {"x": (0.0, 2.0)}
XY = {**X, "y": (0.0, 1.0)}
AB = {**X, "c": ["a", "b"]}
ABC = {**X, "c": ["a", "b", "d"]}
ORDINAL = kbo.Ordinal([1, 2, 4])
MORE = kbo.Ordinal([1, 2, 3, 4])
HOT = {**X, "t": (10.0, 30.0)}
FIXED = {**X, "t": 20.0}
BRANCHES = [AB, kbo.When("c", "a", {"z": (0.0, 1.0)})]
ROWS = pd.DataFrame({"x": [0.0, 0.25, 0.5, 0.75, 1.0], "k": [1, 2, 3, 4, 5]})
LOG = {"x": kbo.Float(0.1, 1.0, log=True)}

# The spaces before and after.
CHANGES = {
    "ranges": ({**XY, "k": kbo.Int(0, 4)}, {"k": (0.0, 4.0), "x": kbo.Int(0, 4), "y": (0.3, 0.6)}),
    "logarithmic, from 0": ({"x": kbo.Float(0.0, 1.0, step=0.25)}, LOG),
    "options": ({**ABC, "d": ["a", "b"]}, {**X, "c": ["b", "e"], "d": ["a", "b", "c"]}),
    "orders": ({**AB, "more": ORDINAL}, {**X, "c": kbo.Ordinal(["b", "a"]), "more": MORE}),
    "fixed": ({**HOT, "u": 20.0, "c": ["a", "b"]}, {**FIXED, "u": (10.0, 30.0), "c": "a"}),
    "text": (HOT, {**X, "t": "hot"}),
    "added": (X, {**HOT, "u": (10.0, 30.0)}),
    "left out": (XY, X),
    "condition added": (AB, BRANCHES),
    "condition for all": (BRANCHES, {**AB, "z": (0.0, 1.0)}),
    "rows": (ROWS, pd.concat([ROWS, ROWS + 6])),
    "pairs": ([(0.0, 1.0)] * 2, [(0.0, 2.0), (3.0, 4.0)]),
}
WAS = {"added": {"t": 20.0, "u": 5.0}, "condition added": {"z": 0.5}}
N = 8
MISPLACED = {"logarithmic, from 0": range(1, N), "condition for all": range(1, N), "text": [N]}
EACH = pytest.mark.parametrize("name", CHANGES)


def objective(params):
    """A sum of squares of the numbers, with a cost for each text."""
    values = params if isinstance(params, list) else params.values()
    return sum((v - 0.4) ** 2 if isinstance(v, float | int) else len(v) for v in values)


def run(optimizer, n, function=objective):
    for _ in range(n):
        params = optimizer.ask()
        optimizer.tell(params, function(params))
    return optimizer


def changed(name, **options):
    before, after = CHANGES[name]
    optimizer = run(kbo.Optimizer(before, **options), N)
    optimizer.change(after, WAS.get(name))
    return optimizer


def random_search(bounds, path=None, **options):
    return kbo.Optimizer(bounds, method="random", journal=path, **options)


def certified(**options):
    kernel = MaternKernel(nu=2.5).double()
    kernel.lengthscale = 0.3
    return kbo.Certified(kernel=kernel, noise_std=0.1, norm_bound=2.0, **options)


def certified_run(bounds, n, **options):
    return run(kbo.Optimizer(bounds, **options), n, lambda params: 0.2 * params["x"])


def guarantee(optimizer):
    return optimizer.insight.surrogate().guarantee()


# The space after a change


@EACH
def test_after_a_change_every_trial_has_its_place_in_the_new_space_or_is_named_as_misplaced(name):
    optimizer = changed(name, method="random")
    trials = optimizer.run.trials
    assert len(trials.misplaced) in MISPLACED.get(name, [0])
    assert sorted(t.number for t in [*trials.complete, *trials.misplaced]) == list(range(N))
    assert [t.value for t in trials.all] == [objective(params) for params in trials.begun]
    features = optimizer.insight.quantities.features(trials.complete)
    assert features.shape == (len(trials.complete), optimizer.space.columns)
    space = Space(CHANGES[name][1])
    units = torch.rand(9, space.dimension, generator=torch.Generator().manual_seed(0)).double()
    new = optimizer.space.units([space.params(unit) for unit in units])
    assert bool(optimizer.space.features(new).isfinite().all())
    rows = list(zip(trials.complete, features, strict=True))
    for trial, row in rows:
        if space.contains(trial.params):
            unit = space.unit(trial.params).unsqueeze(0)
            assert torch.equal(row, optimizer.space.features(unit)[0])
            if optimizer.space.compared == space.compared:
                assert torch.equal(row, space.features(unit)[0])
    for (first, row), (second, other) in itertools.combinations(rows, 2):
        assert torch.equal(row, other) == (first.params == second.params)


@EACH
def test_a_run_goes_on_in_the_new_space_from_its_journal_and_from_copies_too(name, tmp_path):
    before, after = CHANGES[name]
    optimizer = changed(name, method="random", journal=tmp_path / "j")
    params = optimizer.ask()
    space = Space(after)
    recommended = optimizer.recommended()
    assert space.contains(params)
    assert recommended is None or space.contains(recommended.params)
    optimizer.save(tmp_path / "saved")
    expected = optimizer.suggest()
    optimizer.close()
    loaded = random_search(before)
    loaded.run.load(tmp_path / "saved")
    opened = random_search(after, tmp_path / "j")
    for again in (opened, loaded, pickle.loads(pickle.dumps(optimizer))):
        assert again.trials == optimizer.trials
        assert again.suggest() == expected
        assert again.run.trials.misplaced == optimizer.run.trials.misplaced
    assert opened.ask() == params
    opened.tell(params, -1.0)
    assert opened.recommended().params == params
    opened.close()


def test_results_of_pending_trials_come_by_number_and_by_parameters_after_a_change():
    optimizer = random_search(X)
    asked = optimizer.ask(4)
    optimizer.change(HOT, was={"t": 20.0})
    optimizer.tell(asked[0], 0.0)
    optimizer.tell(1, 1.0)
    optimizer.tell({**asked[2], "t": 20.0}, 2.0)
    optimizer.change({"x": (2.0, 3.0)})
    optimizer.tell(asked[3], 3.0)
    assert [trial.value for trial in optimizer.trials] == [0.0, 1.0, 2.0, 3.0]
    with pytest.raises(InvalidInput, match="expected a number in"):
        optimizer.tell({"x": 0.5}, 1.0)


def test_a_pending_trial_outside_of_the_new_space_is_not_proposed_again(tmp_path):
    optimizer = random_search(X, tmp_path / "j")
    optimizer.tell({"x": 0.1}, 0.0)
    optimizer.run.begin({"x": 0.9})
    optimizer.run.begin({"x": 0.2})
    optimizer.change({"x": (0.0, 0.5)})
    optimizer.close()
    again = random_search({"x": (0.0, 0.5)}, tmp_path / "j")
    assert again.ask() == {"x": 0.2}
    assert again.ask()["x"] <= 0.5
    assert again.tell(1, 5.0).value == 5.0
    again.close()


# Corrections and removals

WRONG = {
    "value": lambda o, params: o.tell(params, (9500.0, {"sem": 3.0})),
    "failure": lambda o, params: o.fail(params, "the sensor was off"),
    "removal": lambda o, params: o.remove(4, "a spill"),
}


@pytest.mark.parametrize("name", WRONG)
def test_after_a_correction_the_run_is_that_in_which_the_right_result_came_at_once(name):
    corrected = run(kbo.Optimizer(XY), 4)
    right = run(kbo.Optimizer(XY), 4)
    params = corrected.ask()
    WRONG[name](corrected, params)
    corrected.correct(4, (0.25, {"sem": 0.01}))
    right.tell(params, (0.25, {"sem": 0.01}))
    assert corrected.interval({"x": 0.2, "y": 0.7}) == right.interval({"x": 0.2, "y": 0.7})
    assert corrected.suggest() == right.suggest()
    assert corrected.trials[4].reported == (9500.0 if name == "value" else None)


def test_after_a_removal_the_model_is_that_without_the_trial_and_nothing_is_avoided():
    removed = run(kbo.Optimizer(XY), 4)
    without = run(kbo.Optimizer(XY), 4)
    removed.remove(removed.tell({"x": 0.4, "y": 0.6}, -9500.0).number, "a spill")
    for optimizer in (removed, without):
        optimizer.tell({"x": 0.3, "y": 0.7}, 0.1)
    assert removed.interval({"x": 0.2, "y": 0.7}) == without.interval({"x": 0.2, "y": 0.7})
    assert removed.proposal(30) == without.proposal(30)


def test_the_parameters_of_a_removed_trial_are_free_in_a_finite_space_without_noise():
    optimizer = kbo.Optimizer({"k": kbo.Int(0, 5)})
    for k in (0, 1, 2, 3, 4, 5, 2):
        optimizer.tell({"k": k}, (k - 2.2) ** 2)
    assert optimizer.insight.exhausted()
    optimizer.remove(3, "a spill")
    assert not optimizer.insight.exhausted()
    assert optimizer.suggest() == {"k": 3}


def test_a_removed_trial_counts_as_ended_and_the_late_result_of_its_worker_is_left_out():
    optimizer = random_search(X)
    optimizer.ask()
    optimizer.remove(0, "a spill")
    assert optimizer.run.trials.n_asked_ended == 1

    def remove_the_others(trial, result):
        for number in list(result.optimizer.run.trials.pending):
            result.optimizer.remove(number, "not needed")

    options = {"workers": kbo.Threads(2), "on_trial": remove_the_others}
    result = kbo.minimize(objective, X, 6, method="random", **options)
    assert {trial.status for trial in result.trials} <= {"complete", "removed"}


def test_a_corrected_known_result_is_not_added_again(tmp_path):
    table = pd.DataFrame({"x": [0.1, 0.2, 0.2, 0.3], "value": [9500.0, 9500.0, 95.0, 3.0]})
    optimizer = random_search(X, tmp_path / "j", evaluated=table)
    optimizer.correct(0, 95.0)
    optimizer.correct(1, 95.0)
    optimizer.remove(3, "a spill")
    optimizer.close()
    right = pd.DataFrame({**table, "value": [95.0, 95.0, 95.0, 3.0]})
    for same in (table, table[::-1], right):
        again = random_search(X, tmp_path / "j", evaluated=same)
        assert [trial.value for trial in again.trials] == [95.0, 95.0, 95.0, None]
        again.close()


def test_known_results_of_a_journal_have_its_corrections_and_removals_in_the_last_space(tmp_path):
    optimizer = run(random_search(X, tmp_path / "j.jsonl"), 4)
    optimizer.change(HOT, was={"t": 20.0})
    optimizer.correct(0, 95.0)
    optimizer.remove(1, "a spill")
    optimizer.close()
    given = random_search(HOT, evaluated=tmp_path / "j.jsonl").trials
    assert [t.value for t in given] == [95.0, *(trial.value for trial in optimizer.trials[2:])]
    assert all(trial.params["t"] == 20.0 for trial in given)


REFUSED = {
    "there is no trial 7: the run has 2 trials": lambda o: o.correct(7, 1.0),
    "trial 1 is pending: report its value with tell": lambda o: o.correct(1, 1.0),
    "value must be a finite number, got nan": lambda o: o.correct(0, float("nan")),
    "trial 0 is removed already": lambda o: (o.remove(0, "a"), o.remove(0, "b")),
    "trial 1 is removed": lambda o: (o.remove(1, "a"), o.tell(1, 1.0)),
    r"was: there is no parameter 'u'; .*\['x', 't'\]": lambda o: o.change(HOT, was={"u": 1.0}),
    "was: parameter 't': 'hot' has no place": lambda o: o.change(HOT, was={"t": "hot"}),
    "a list of pairs can only be replaced by a list": lambda o: o.change([(0.0, 1.0)]),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_done_is_refused_and_changes_nothing(message, tmp_path):
    optimizer = random_search(X, tmp_path / "j")
    optimizer.tell(optimizer.ask(), 1.0)
    optimizer.ask()
    with pytest.raises(InvalidInput, match=message):
        REFUSED[message](optimizer)
    assert optimizer.trials[1].status in ("pending", "removed")
    assert optimizer.space.describe() == Space(X).describe()
    optimizer.close()
    again = random_search(X, tmp_path / "j")
    assert again.trials == optimizer.trials
    again.close()


CALLS = {
    "correct": lambda o: o.correct(0, 2.0),
    "remove": lambda o: o.remove(1, "a spill"),
    "change": lambda o: o.change(HOT, was={"t": 20.0}),
}


@pytest.mark.parametrize("growth", once([0.25, 0.0]), ids=["some lines", "all lines"])
@pytest.mark.parametrize("name", CALLS)
def test_an_interrupt_at_any_line_leaves_memory_and_disk_equal(name, growth, tmp_path):
    line = 0
    ended = False
    while not ended:
        line += 1 + int(growth * line)
        optimizer = random_search(X, tmp_path / f"{line}")
        optimizer.tell(optimizer.ask(), 1.0)
        optimizer.ask()
        ended = True
        try:
            interrupted(line, lambda optimizer=optimizer: CALLS[name](optimizer))
        except KeyboardInterrupt:
            ended = False
        trials = optimizer.run.trials
        bounds = Space.from_description(optimizer.space.describe(), True)
        optimizer.close()
        again = random_search(bounds, tmp_path / f"{line}")
        assert again.run.trials.all == trials.all
        assert again.run.trials.complete == trials.complete
        again.close()
    assert line > 40


# Guarantees


@pytest.mark.parametrize("declared", [False, True])
def test_a_correction_is_a_selection_unless_it_is_declared_to_be_independent_of_the_noise(declared):
    setting = certified(completion_independent_of_noise=declared)
    for call in (lambda o: o.correct(2, 0.1), lambda o: o.remove(2, "a spill")):
        optimizer = certified_run(X, 3, setting=setting)
        assert guarantee(optimizer)
        call(optimizer)
        assert bool(guarantee(optimizer)) == declared
        assert "corrected or removed by hand: 1" in str(guarantee(optimizer))


@pytest.mark.parametrize(("before", "after"), [(XY, {**XY, **WIDE}), (ABC, AB), (HOT, FIXED)])
def test_a_certified_bound_holds_after_a_change_and_its_journal_goes_on(before, after, tmp_path):
    options = {"setting": certified(), "journal": tmp_path / "j"}
    optimizer = certified_run(before, 4, **options)
    units = torch.rand(9, Space(after).dimension, dtype=torch.float64)
    points = filter(Space(before).contains, map(Space(after).params, units))
    intervals = [(params, optimizer.interval(params)) for params in points]
    optimizer.close()
    optimizer = kbo.Optimizer(after, allow_change=True, **options)
    assert guarantee(optimizer)
    for params, interval in intervals:
        assert optimizer.interval(params) == pytest.approx(interval)
    proposal = optimizer.suggest()
    optimizer.close()
    again = kbo.Optimizer(after, **options)
    again.close()
    assert again.suggest() == proposal


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ({"x": (0.1, 1.0)}, LOG, "'x' has another scale"),
        (XY, X, r"it compares \['x'\] in place of \['x', 'y'\]"),
        (AB, ABC, "c = d"),
        (FIXED, {**X, "t": 30.0}, "t = 30.0"),
        ({**X, "c": ORDINAL}, {**X, "c": MORE}, "'c' has another scale"),
    ],
)
def test_a_change_that_makes_the_kernel_another_function_is_refused(before, after, reason):
    optimizer = certified_run(before, 2, setting=certified())
    with pytest.raises(InvalidInput, match=f"the kernel stays the same function.*{reason}"):
        optimizer.change(after)
    assert optimizer.space.describe() == Space(before).describe()


def test_a_safe_run_stays_safe_in_a_wider_space():
    kernel = RBFKernel().double().requires_grad_(False)
    kernel.lengthscale = 0.5
    setting = kbo.Safe(kernel, noise_std=0.02, norm_bound=2.0, start=[{"x": 0.2}])
    limit = kbo.Constraint("heat", upper=0.6, noise_std=0.02, norm_bound=2.0)
    optimizer = kbo.Optimizer(X, setting=setting, constraints=[limit])
    centre = torch.zeros(1, 1, dtype=torch.float64)
    for step in range(10):
        x = optimizer.ask()["x"]
        heat = 1.0 - float(kernel(torch.tensor([[x]], dtype=torch.float64), centre).to_dense())
        assert heat <= 0.6
        optimizer.tell({"x": x}, (-x, {"heat": heat}))
        if step == 4:
            optimizer.change({"x": (-1.0, 2.0)})
    assert min(trial.params["x"] for trial in optimizer.trials) < 0
    with pytest.raises(InvalidInput, match="start"):
        optimizer.change({"x": (0.5, 1.0)})


# Replay


def test_replay_has_the_final_results_of_a_run():
    wrong = run(kbo.Optimizer(X), 4)
    right = run(kbo.Optimizer(X), 4)
    wrong.tell({"x": 0.11}, -9500.0)
    right.tell({"x": 0.11}, objective({"x": 0.11}))
    wrong.tell({"x": 0.22}, -9500.0)
    for optimizer in (wrong, right):
        optimizer.tell({"x": 0.33}, objective({"x": 0.33}))
    wrong.correct(4, objective({"x": 0.11}))
    wrong.remove(5, "a spill")
    replayed = history(wrong)
    expected = history(right)
    for name in ("value", "best", "expected"):
        numbers = [getattr(moment, name) for moment in replayed]
        assert numbers == [getattr(moment, name) for moment in expected]
    assert miscoverage(replayed) == miscoverage(expected)
    assert replayed[-1].mean == wrong.interval(wrong.recommended().params)[1]


def test_replay_goes_on_after_a_change_with_a_result_outside_of_the_new_space():
    optimizer = run(kbo.Optimizer(XY), 7)
    late = optimizer.ask()
    optimizer.change({**XY, "x": (2.0, 3.0)})
    optimizer.tell(late, 1.0)
    run(optimizer, 1)
    moments = history(optimizer)
    assert not any(moment.trouble for moment in moments)
    assert moments[7].expected is None
    assert moments[-1].mean == optimizer.interval(optimizer.recommended().params)[1]
    optimizer.change({**XY, "x": (0.0, 3.0)})
    assert history(optimizer)[-1].recommended == Record.of(optimizer).recommended().number


# Several trials at a time


def test_points_that_are_being_evaluated_are_not_proposed_again_nor_their_neighbours():
    bounds = {"x": (20.0, 90.0), "y": (0.0, 1.0)}
    optimizer = kbo.Optimizer(bounds, setting=kbo.Practical(noisy=True), seed=1)
    noise = torch.randn(20, generator=torch.Generator().manual_seed(0)).tolist()
    for _ in range(4):
        batch = optimizer.ask(5)
        points = optimizer.space.units(batch)
        distances = torch.cdist(points, points, p=torch.inf)
        if len(optimizer.completed()) > 6:
            assert distances[~torch.eye(5, dtype=torch.bool)].min() > 0.049
        for params in batch:
            value = ((params["x"] - 70) / 50) ** 2 + params["y"]
            optimizer.tell(params, value + 0.1 * noise.pop())


def test_a_new_parameter_is_tried_at_a_few_values_at_once():
    optimizer = kbo.Optimizer(XY, setting=kbo.Practical(noisy=True), seed=3)
    run(optimizer, 8, lambda params: (params["x"] - 0.3) ** 2 + params["y"])
    new = kbo.Float(0.01, 100.0, log=True)
    optimizer.change({**XY, "new": new}, was={"new": 0.05})
    batch = optimizer.ask(5)
    places = optimizer.space.units([{**batch[0], "new": 0.05}, *batch])[:, 2].tolist()
    strategies = [optimizer.explain(8 + number).strategy for number in range(5)]
    at_new_values = ["new value" in text for text in strategies]
    assert not at_new_values[0]  # no other trial runs
    assert sum(at_new_values) <= 3
    assert len({int(4 * place) for place in places}) > 3


@pytest.mark.parametrize("noisy", [None, True])
def test_equal_repetitions_of_noisy_values_are_no_sign_that_there_is_no_noise(noisy):
    optimizer = kbo.Optimizer(X, setting=kbo.Practical(noisy=noisy))
    for x in (0.1, 0.3, 0.5, 0.7, 0.9, 0.5):
        optimizer.tell({"x": x}, abs(x - 0.45))
    assert optimizer.insight.surrogate().noiseless == (noisy is None)


def test_equal_measurements_of_a_limit_are_no_sign_that_it_has_no_noise():
    limit = kbo.Constraint("m", upper=1.0)
    optimizer = kbo.Optimizer(X, setting=kbo.Practical(noisy=True), constraints=[limit])
    for x in (0.1, 0.3, 0.5, 0.5, 0.5, 0.7, 0.9, 0.2):
        optimizer.tell({"x": x}, ((x - 0.5) ** 2, {"m": round(0.5 + x, 1)}))
    point = optimizer.space.unit({"x": 0.5}).unsqueeze(0)
    lower, _, upper = optimizer.insight.quantities.intervals(point, "m")
    assert lower < 1.0 < upper
