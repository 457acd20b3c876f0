"""Results that are corrected or removed, and spaces that change, by events of a run."""

import copy
import functools
import pickle
import threading

import pandas as pd
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel

import kbo
from kbo.errors import AnotherProblem, InvalidInput
from kbo.optimize.run.events import Change
from kbo.report.record import Record
from kbo.report.replay import history, miscoverage
from kbo.space import Space
from tests.faults import interrupted

X = {"x": (0.0, 1.0)}
XY = {"x": (0.0, 1.0), "y": (0.0, 1.0)}
ABC = {**X, "c": ["a", "b", "d"]}
ORDERED = {**X, "c": kbo.Ordinal([1, 2, 4])}
HOT = {**X, "t": (10.0, 30.0)}
BRANCHES = [{**X, "c": ["a", "b"]}, kbo.When("c", "a", {"z": (0.0, 1.0)})]
WIDER_BRANCHES = [{**X, "c": ["a", "b"]}, kbo.When("c", "a", {"z": (0.0, 4.0)})]
ROWS = pd.DataFrame({"x": [0.0, 0.25, 0.5, 0.75, 1.0], "k": [1, 2, 3, 4, 5]})
MORE_ROWS = pd.DataFrame({"x": [0.0, 0.25, 0.5, 0.75, 1.0, 2.0], "k": [1, 2, 3, 4, 5, 6]})
PAIRS = [(0.0, 1.0), (0.0, 1.0)]

# The spaces before and after, the values of new parameters so far, and whether a trial loses its place.
CHANGES = {
    "wider": (XY, {**XY, "x": (0.0, 2.0)}, None, "none"),
    "narrower": (XY, {**XY, "x": (0.3, 0.6)}, None, "none"),
    "elsewhere": (XY, {**XY, "x": (2.0, 3.0)}, None, "none"),
    "order": (XY, dict(reversed(XY.items())), None, "none"),
    "logarithmic": ({"x": (0.1, 1.0)}, {"x": kbo.Float(0.1, 1.0, log=True)}, None, "none"),
    "logarithmic, from 0": (
        {"x": kbo.Float(0.0, 1.0, step=0.25)},
        {"x": kbo.Float(0.1, 1.0, log=True)},
        None,
        "some",
    ),
    "linear": ({"x": kbo.Float(0.1, 1.0, log=True)}, {"x": (0.1, 1.0)}, None, "none"),
    "step": (X, {"x": kbo.Float(0.0, 1.0, step=0.25)}, None, "none"),
    "whole": ({"x": (0.0, 4.0)}, {"x": kbo.Int(0, 4)}, None, "none"),
    "real": ({"x": kbo.Int(0, 4)}, {"x": (0.0, 4.0)}, None, "none"),
    "option added": ({**X, "c": ["a", "b"]}, ABC, None, "none"),
    "option dropped": (ABC, {**X, "c": ["b", "a"]}, None, "none"),
    "option replaced": (ABC, {**X, "c": ["b", "e"]}, None, "none"),
    "ordered": (ABC, {**X, "c": kbo.Ordinal(["a", "b", "d"])}, None, "none"),
    "fewer ordered": (ORDERED, {**X, "c": kbo.Ordinal([2, 4])}, None, "none"),
    "more ordered": (ORDERED, {**X, "c": kbo.Ordinal([1, 2, 3, 4])}, None, "none"),
    "choice": (ORDERED, {**X, "c": [1, 2, 4]}, None, "none"),
    "range to fixed": (HOT, {**X, "t": 20.0}, None, "none"),
    "range to text": (HOT, {**X, "t": "hot"}, None, "all"),
    "fixed to range": ({**X, "t": 20.0}, HOT, None, "none"),
    "fixed to fixed": ({**X, "t": 20.0}, {**X, "t": 30.0}, None, "none"),
    "choice to fixed": (ABC, {**X, "c": "a"}, None, "none"),
    "added": (X, HOT, {"t": 20.0}, "none"),
    "added, outside": (X, HOT, {"t": 5.0}, "none"),
    "added, unknown": (X, HOT, None, "all"),
    "added, fixed": (X, {**X, "t": 20.0}, None, "none"),
    "left out": (XY, X, None, "none"),
    "condition added": ({**X, "c": ["a", "b"]}, BRANCHES, {"z": 0.5}, "none"),
    "condition removed": (BRANCHES, {**X, "c": ["a", "b"]}, None, "none"),
    "condition for all": (BRANCHES, {**X, "c": ["a", "b"], "z": (0.0, 1.0)}, None, "some"),
    "conditional narrower": (WIDER_BRANCHES, BRANCHES, None, "none"),
    "more rows": (ROWS, MORE_ROWS, None, "none"),
    "rows to ranges": (ROWS, {"x": (0.0, 1.0), "k": (1.0, 9.0)}, None, "none"),
    "pairs": (PAIRS, [(0.0, 2.0), (0.5, 0.7)], None, "none"),
}
EACH = pytest.mark.parametrize("name", CHANGES)
MODELLED = ["wider", "narrower", "elsewhere", "option replaced", "fixed to fixed", "left out"]


def objective(params):
    """A sum of squares of the numbers, with a cost for each text."""
    values = params if isinstance(params, list) else params.values()
    return sum((v - 0.4) ** 2 if isinstance(v, float | int) else len(v) for v in values)


def run(optimizer, n, function=objective):
    for _ in range(n):
        params = optimizer.ask()
        optimizer.tell(params, function(params))
    return optimizer


def small(params):
    return 0.2 * params["x"]


def changed(name, n=12, **options):
    before, after, was, _ = CHANGES[name]
    optimizer = run(kbo.Optimizer(before, **options), n)
    optimizer.change(after, was)
    return optimizer


@functools.cache
def example(name):
    """An optimiser after a change, which tests only read."""
    return changed(name, method="random")


def features(optimizer):
    trials = [t for t in optimizer.trials if t not in optimizer.run.trials.misplaced]
    return trials, optimizer.insight.quantities.features(trials)


def certified(**options):
    kernel = MaternKernel(nu=2.5).double()
    kernel.lengthscale = 0.3
    return kbo.Certified(kernel=kernel, noise_std=0.1, norm_bound=2.0, **options)


def guarantee(optimizer):
    return optimizer.insight.surrogate().guarantee()


# The space after a change


@EACH
def test_after_a_change_proposals_and_the_recommended_trial_are_in_the_new_space(name):
    optimizer = changed(name, method="random")
    before = optimizer.recommended()
    proposals = optimizer.ask(3)
    space = Space(CHANGES[name][1])
    assert all(space.contains(params) for params in proposals)
    assert before is None or space.contains(before.params)
    optimizer.tell(proposals[0], -1.0)
    assert optimizer.recommended().params == proposals[0]


@EACH
def test_every_trial_is_data_or_is_named_as_misplaced(name):
    trials = example(name).run.trials
    n_misplaced = {"none": [0], "some": range(1, 12), "all": [12]}[CHANGES[name][3]]
    assert len(trials.misplaced) in n_misplaced
    assert sorted(t.number for t in [*trials.complete, *trials.misplaced]) == list(range(12))
    assert [t.value for t in trials.all] == [objective(params) for params in trials.begun]
    assert trials.finished == trials.complete


@EACH
def test_features_are_those_of_the_new_space_and_tell_all_trials_apart(name):
    optimizer = example(name)
    trials, X = features(optimizer)
    assert X.shape == (len(trials), optimizer.space.columns)
    assert bool(X.isfinite().all())
    space = Space(CHANGES[name][1])
    for trial, row in zip(trials, X, strict=True):
        if space.contains(trial.params):
            unit = space.unit(trial.params).unsqueeze(0)
            assert torch.equal(row, optimizer.space.features(unit)[0])
            if optimizer.space.compared == space.compared:
                assert torch.equal(row, space.features(unit)[0])
    for i, first in enumerate(trials):
        for j, second in enumerate(trials[:i]):
            assert torch.equal(X[i], X[j]) == (first.params == second.params)


def test_values_outside_of_a_conditional_range_have_places_of_their_own():
    space = Space(BRANCHES).replacing(Space(WIDER_BRANCHES))
    numbers = [-4.0, -2.0, 0.0, 0.5, 1.0, 2.0, 4.0, 5.0]
    places = torch.stack([space.place({"x": 0.5, "c": "a", "z": number}) for number in numbers])
    distances = torch.cdist(places, places)
    for i in range(len(numbers)):  # further values of one side are further away
        assert bool((distances[i, i:].diff() > 0).all())
        assert bool((distances[i, : i + 1].diff() < 0).all())
    inside = space.features(space.unit({"x": 0.5, "c": "a", "z": 0.5}).unsqueeze(0))[0]
    assert torch.allclose(inside, places[3])


@EACH
def test_a_run_goes_on_from_its_journal_and_from_copies_as_if_nothing_had_happened(name, tmp_path):
    before, after, _, _ = CHANGES[name]
    optimizer = changed(name, method="random", journal=tmp_path / "j")
    params = optimizer.ask()
    optimizer.save(tmp_path / "saved")
    expected = optimizer.suggest()
    summary = optimizer.summary().splitlines()[:-1]  # the last one names the journal
    optimizer.close()
    loaded = kbo.Optimizer(before, method="random")
    loaded.load(tmp_path / "saved")
    opened = kbo.Optimizer(after, method="random", journal=tmp_path / "j")
    copies = [opened, loaded, copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))]
    for again in copies:
        assert again.trials == optimizer.trials
        assert again.suggest() == expected
        assert again.summary().splitlines()[:-1] == summary
        assert [t.number for t in again.run.trials.misplaced] == [
            t.number for t in optimizer.run.trials.misplaced
        ]
    assert opened.ask() == params
    opened.close()


@pytest.mark.parametrize("name", MODELLED)
def test_the_model_learns_from_all_trials_in_the_new_space(name, tmp_path):
    optimizer = changed(name, n=8, journal=tmp_path / "j")
    surrogate = optimizer.insight.surrogate()
    assert len(surrogate.values) == 8
    run(optimizer, 2)
    lower, mean, upper = optimizer.interval(optimizer.recommended().params)
    assert lower <= mean <= upper
    proposal = optimizer.suggest()
    assert Space(CHANGES[name][1]).contains(proposal)
    assert pickle.loads(pickle.dumps(optimizer)).suggest() == proposal
    optimizer.close()
    again = kbo.Optimizer(CHANGES[name][1], journal=tmp_path / "j")
    assert again.suggest() == proposal
    again.close()


def test_a_page_shows_a_run_with_a_correction_a_removal_and_changes(tmp_path):
    optimizer = changed("narrower", n=8, journal=tmp_path / "j.jsonl")
    run(optimizer, 2)
    optimizer.correct(0, 0.3)
    optimizer.remove(1, "a spill")
    optimizer.change({**XY, "t": (0.0, 1.0)})
    run(optimizer, 1)
    optimizer.close()
    page = kbo.report.write(tmp_path / "j.jsonl", tmp_path / "page.html").read_text()
    assert "a spill" in page
    assert "without a place" in page


def test_allow_change_goes_on_in_another_space_and_records_the_change(tmp_path):
    for bounds in (X, {"x": (0.0, 2.0)}, {"x": (0.0, 0.1)}):
        optimizer = kbo.Optimizer(
            bounds, method="random", journal=tmp_path / "j", allow_change=True
        )
        assert optimizer.space.describe() == Space(bounds).describe()
        optimizer.tell(optimizer.ask(), 1.0)
        optimizer.close()
    again = kbo.Optimizer(bounds, method="random", journal=tmp_path / "j", was={"nothing": 1.0})
    assert sum(isinstance(event, Change) for event in again.run.events) == 2
    assert len(again.run.trials.complete) == 3
    again.close()
    with pytest.raises(
        AnotherProblem, match=r"x high: 0.1 in the journal, 1.0 .*allow_change=True"
    ):
        kbo.Optimizer(X, method="random", journal=tmp_path / "j")


@pytest.mark.parametrize(
    "options", [{"seed": 1}, {"method": "ucb"}, {"maximize": True}, {"value_range": (0, 1)}]
)
def test_another_problem_is_refused_with_or_without_allow_change(options, tmp_path):
    kbo.Optimizer(X, method="random", journal=tmp_path / "j").close()
    options = {"method": "random", **options}
    for bounds in (X, {"x": (0.0, 2.0)}):
        with pytest.raises(AnotherProblem, match=next(iter(set(options) - {"method"}), "method")):
            kbo.Optimizer(bounds, journal=tmp_path / "j", allow_change=True, **options)


def test_functions_among_the_constraints_hold_after_a_change_and_from_the_journal(tmp_path):
    def left(params):
        return params["x"] <= 0.5

    optimizer = kbo.Optimizer(X, method="random", constraints=[left], journal=tmp_path / "j")
    optimizer.tell({"x": 0.9}, -1.0)
    optimizer.tell({"x": 0.2}, 1.0)
    wider = {"x": (0.0, 2.0)}
    optimizer.change(wider)
    assert max(params["x"] for params in optimizer.ask(8)) <= 0.5
    assert optimizer.recommended().number == 1
    optimizer.close()
    again = kbo.Optimizer(wider, method="random", constraints=[left], journal=tmp_path / "j")
    assert again.recommended().number == 1
    again.close()
    optimizer = kbo.Optimizer({"x": (0.0, 1.0)}, method="random")
    optimizer.tell({"x": 0.9}, -1.0)
    optimizer.tell({"x": 0.2}, 1.0)
    optimizer.change(X, constraints=[kbo.Linear({"x": 1.0}, upper=0.5)])
    assert max(params["x"] for params in optimizer.ask(8)) <= 0.5
    assert optimizer.recommended().number == 1


def test_results_of_pending_trials_come_by_number_and_by_parameters_after_a_change():
    optimizer = kbo.Optimizer(X, method="random")
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
    optimizer = kbo.Optimizer(X, method="random", journal=tmp_path / "j")
    optimizer.tell({"x": 0.1}, 0.0)
    optimizer.run.begin({"x": 0.9})
    optimizer.run.begin({"x": 0.2})
    optimizer.change({"x": (0.0, 0.5)})
    optimizer.close()
    again = kbo.Optimizer({"x": (0.0, 0.5)}, method="random", journal=tmp_path / "j")
    assert again.ask() == {"x": 0.2}
    assert again.ask()["x"] <= 0.5
    assert again.tell(1, 5.0).value == 5.0
    again.close()


def test_threads_may_change_the_space_while_others_ask_and_tell():
    optimizer = kbo.Optimizer(X, method="random")

    def work():
        for _ in range(20):
            optimizer.tell(optimizer.ask(), 0.0)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for step in range(10):
        optimizer.change({"x": (0.0, 2.0 + step)})
        optimizer.correct(optimizer.tell({"x": 0.5}, 9500.0), 95.0)
    for thread in threads:
        thread.join()
    assert len(optimizer.completed()) == 70
    assert not optimizer.run.trials.pending


# Corrections and removals


@pytest.mark.parametrize("how", ["value", "failure", "removal"])
def test_after_a_correction_the_run_is_that_in_which_the_right_result_came_at_once(how):
    corrected = run(kbo.Optimizer(XY), 4)
    right = run(kbo.Optimizer(XY), 4)
    params = corrected.ask()
    assert right.ask() == params
    if how == "value":
        corrected.tell(params, (9500.0, {"sem": 3.0}))
    elif how == "failure":
        corrected.fail(params, "the sensor was off")
    else:
        corrected.remove(4, "a spill")
    corrected.correct(4, (0.25, {"sem": 0.01}))
    right.tell(params, (0.25, {"sem": 0.01}))
    assert corrected.recommended().number == right.recommended().number
    assert corrected.interval({"x": 0.2, "y": 0.7}) == right.interval({"x": 0.2, "y": 0.7})
    assert corrected.suggest() == right.suggest()
    assert corrected.trials[4].reported == (9500.0 if how == "value" else None)


def test_after_a_removal_the_model_is_that_without_the_trial_and_nothing_is_avoided():
    removed = kbo.Optimizer(XY)
    without = kbo.Optimizer(XY)
    for number in range(8):
        params = {"x": (number * 0.37) % 1.0, "y": (number * 0.61) % 1.0}
        removed.tell(params, objective(params))
        if number != 5:
            without.tell(params, objective(params))
    removed.remove(5, "a spill")
    point = {"x": 0.2, "y": 0.7}
    assert removed.interval(point) == without.interval(point)
    assert removed.suggest(30) == without.suggest(30)
    assert removed.recommended().params == without.recommended().params


def test_the_parameters_of_a_removed_trial_are_free_in_a_finite_space_without_noise():
    optimizer = kbo.Optimizer({"k": kbo.Int(0, 5)})
    for k in (0, 1, 2, 3, 4, 5, 2):
        optimizer.tell({"k": k}, (k - 2.2) ** 2)
    assert optimizer.insight.exhausted()
    optimizer.remove(3, "a spill")
    assert not optimizer.insight.exhausted()
    assert optimizer.suggest() == {"k": 3}


def test_a_removed_trial_counts_as_ended_and_the_late_result_of_its_worker_is_left_out():
    optimizer = kbo.Optimizer(X, method="random")
    optimizer.ask(2)
    optimizer.remove(0, "a spill")
    assert optimizer.run.trials.n_finished == 1
    optimizer.tell(1, 1.0)
    optimizer.remove(1, "a spill")
    assert optimizer.run.trials.n_finished == 2

    def remove_the_others(trial, result):
        for number in list(result.optimizer.run.trials.pending):
            result.optimizer.remove(number, "not needed")

    result = kbo.minimize(
        objective, X, 6, method="random", workers=kbo.Threads(2), on_trial=remove_the_others
    )
    statuses = {trial.status for trial in result.trials}
    assert statuses <= {"complete", "removed"}


def test_a_corrected_known_result_is_not_added_again(tmp_path):
    table = pd.DataFrame({"x": [0.1, 0.2, 0.2, 0.3], "value": [9500.0, 9500.0, 95.0, 3.0]})
    known = {"method": "random", "evaluated": table, "journal": tmp_path / "j"}
    optimizer = kbo.Optimizer(X, **known)
    optimizer.correct(0, 95.0)
    optimizer.correct(1, 95.0)
    optimizer.remove(3, "a spill")
    optimizer.close()
    right = pd.DataFrame({**table, "value": [95.0, 95.0, 95.0, 3.0]})
    for same in (table, table[::-1], right):
        again = kbo.Optimizer(X, **{**known, "evaluated": same})
        assert [trial.value for trial in again.trials] == [95.0, 95.0, 95.0, None]
        again.close()


def test_results_of_a_journal_are_the_corrected_ones_in_its_last_space(tmp_path):
    optimizer = changed("added", n=4, method="random", journal=tmp_path / "j.jsonl")
    optimizer.correct(0, 95.0)
    optimizer.remove(1, "a spill")
    optimizer.ask()
    optimizer.close()
    given = kbo.Optimizer(HOT, method="random", evaluated=tmp_path / "j.jsonl")
    assert [trial.value for trial in given.trials] == [
        95.0,
        *(optimizer.trials[number].value for number in (2, 3)),
    ]
    assert all(trial.params["t"] == 20.0 for trial in given.trials)


def test_known_results_are_those_that_were_told():
    rows = [{"x": x, "value": (x - 0.4) ** 2} for x in (0.1, 0.3, 0.5, 0.7, 0.9)]
    given = kbo.Optimizer(X, evaluated=pd.DataFrame(rows))
    told = kbo.Optimizer(X)
    for row in rows:
        told.tell({"x": row["x"]}, row["value"])
    assert given.trials == told.trials
    assert given.suggest() == told.suggest()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda o: o.correct(7, 1.0), "there is no trial 7: the run has 2 trials"),
        (lambda o: o.remove(7, "a spill"), "there is no trial 7"),
        (lambda o: o.correct(-1, 1.0), "trial must be"),
        (lambda o: o.correct({"x": 0.5}, 1.0), "trial must be"),
        (lambda o: o.correct(1, 1.0), "trial 1 is pending: report its value with tell"),
        (lambda o: o.correct(0, float("nan")), "value must be a finite number, got nan"),
        (lambda o: o.correct(0, None), "value must be a finite number, got None"),
        (lambda o: o.correct(0, (1.0, {"sem": -1.0})), "standard error"),
        (lambda o: o.remove(0, 5), "reason must be"),
        (lambda o: (o.remove(0, "a"), o.remove(0, "b")), "trial 0 is removed already"),
        (lambda o: (o.remove(1, "a"), o.tell(1, 1.0)), "trial 1 is removed"),
        (
            lambda o: o.change(HOT, was={"u": 1.0}),
            r"was: there is no parameter 'u'; .*\['x', 't'\]",
        ),
        (lambda o: o.change(HOT, was={"t": "hot"}), "was: parameter 't': 'hot' has no place"),
        (
            lambda o: o.change({**X, "c": ["a", "b"]}, was={"c": "d"}),
            "was: parameter 'c': 'd' is not",
        ),
        (lambda o: o.change([(0.0, 1.0)]), "a list of pairs can only be replaced by a list"),
        (lambda o: o.change({"x": (1.0, 0.0)}), "reversed"),
        (lambda o: o.change({}), "empty"),
    ],
)
def test_what_cannot_be_done_is_refused_and_changes_nothing(call, message, tmp_path):
    optimizer = kbo.Optimizer(X, method="random", journal=tmp_path / "j")
    optimizer.tell(optimizer.ask(), 1.0)
    optimizer.ask()
    with pytest.raises(InvalidInput, match=message):
        call(optimizer)
    trials = optimizer.trials
    space = optimizer.space.describe()
    optimizer.close()
    again = kbo.Optimizer(X, method="random", journal=tmp_path / "j")
    assert again.trials == trials
    assert again.space.describe() == space
    again.close()


@pytest.mark.parametrize(
    "growth",
    [pytest.param(0.25, id="some"), pytest.param(0.0, id="all", marks=pytest.mark.thorough)],
)
@pytest.mark.parametrize("method", ["correct", "remove", "change"])
def test_an_interrupt_at_any_line_leaves_memory_and_disk_equal(method, growth, tmp_path):
    calls = {
        "correct": lambda o: o.correct(0, 2.0),
        "remove": lambda o: o.remove(1, "a spill"),
        "change": lambda o: o.change(HOT, was={"t": 20.0}),
    }
    line = 0
    ended = False
    while not ended:
        line += 1 + int(growth * line)
        optimizer = kbo.Optimizer(X, method="random", journal=tmp_path / f"{line}")
        optimizer.tell(optimizer.ask(), 1.0)
        optimizer.ask()
        ended = True
        try:
            interrupted(line, lambda optimizer=optimizer: calls[method](optimizer))
        except KeyboardInterrupt:
            ended = False
        trials = optimizer.run.trials
        space = optimizer.space.describe()
        optimizer.close()
        bounds = Space.described(space, True)
        again = kbo.Optimizer(bounds, method="random", journal=tmp_path / f"{line}")
        assert again.run.trials.all == trials.all
        assert again.run.trials.complete == trials.complete
        again.close()
    assert line > 40


# Guarantees


def test_a_correction_is_a_selection_unless_it_is_declared_to_be_independent_of_the_noise():
    for declared in (False, True):
        for call in (lambda o: o.correct(2, 0.1), lambda o: o.remove(2, "a spill")):
            optimizer = run(
                kbo.Optimizer(X, setting=certified(completion_independent_of_noise=declared)),
                4,
                small,
            )
            assert guarantee(optimizer)
            call(optimizer)
            text = guarantee(optimizer).text
            assert bool(guarantee(optimizer)) == declared
            assert "corrected or removed by hand: 1" in text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (XY, {**XY, "x": (0.0, 2.0)}),
        (XY, {**XY, "x": (0.3, 0.6)}),
        (XY, {**XY, "x": kbo.Float(0.0, 1.0, step=0.25)}),
        (ABC, {**X, "c": ["a", "b"]}),
        (ABC, {**X, "c": "b"}),
        (HOT, {**X, "t": 20.0}),
    ],
)
def test_a_certified_bound_holds_after_a_change_and_its_journal_goes_on(before, after, tmp_path):
    path = tmp_path / "j"
    optimizer = run(kbo.Optimizer(before, setting=certified(), journal=path), 5, small)
    recommended = optimizer.trials[0].params
    interval = optimizer.interval(recommended)
    optimizer.close()
    optimizer = kbo.Optimizer(after, setting=certified(), journal=path, allow_change=True)
    assert guarantee(optimizer)
    if optimizer.space.contains(recommended):
        assert optimizer.interval(recommended) == pytest.approx(interval)
    proposal = optimizer.suggest()
    optimizer.save(tmp_path / "saved")
    optimizer.close()
    again = kbo.Optimizer(after, setting=certified(), journal=path)
    assert again.suggest() == proposal
    again.close()
    loaded = kbo.Optimizer(before, setting=certified())
    loaded.load(tmp_path / "saved")
    assert loaded.suggest() == proposal


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ({"x": (0.1, 1.0)}, {"x": kbo.Float(0.1, 1.0, log=True)}, "'x' has another scale"),
        (X, XY, r"it compares \['x', 'y'\] in place of \['x'\]"),
        (XY, X, r"it compares \['x'\] in place of \['x', 'y'\]"),
        ({**X, "c": ["a", "b"]}, ABC, "c = d"),
        ({**X, "t": 20.0}, HOT, r"it compares \['x', 't'\]"),
        ({**X, "t": 20.0}, {**X, "t": 30.0}, "t = 30.0"),
        (ORDERED, {**X, "c": kbo.Ordinal([1, 2, 3, 4])}, "'c' has another scale"),
    ],
)
def test_a_change_that_makes_the_kernel_another_function_is_refused(before, after, reason):
    optimizer = run(kbo.Optimizer(before, setting=certified()), 2, small)
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

    def heat(x):
        return 1.0 - float(kernel(torch.tensor([[x]], dtype=torch.float64), centre).to_dense())

    for step in range(14):
        params = optimizer.ask()
        assert heat(params["x"]) <= 0.6
        optimizer.tell(params, (-params["x"], {"heat": heat(params["x"])}))
        if step == 6:
            optimizer.change({"x": (-1.0, 2.0)})
    assert min(trial.params["x"] for trial in optimizer.trials) < 0
    with pytest.raises(InvalidInput, match="start"):
        optimizer.change({"x": (0.5, 1.0)})


@pytest.mark.thorough
def test_certified_intervals_hold_in_spaces_that_change():
    kernel = RBFKernel().double().requires_grad_(False)
    kernel.lengthscale = 0.3
    misses = 0
    for seed in range(60):
        generator = torch.Generator().manual_seed(seed)
        centres = 2 * torch.rand(6, 1, generator=generator, dtype=torch.float64)
        weights = torch.randn(6, 1, generator=generator, dtype=torch.float64)
        gram = kernel(centres).to_dense()
        weights *= 2.0 / (weights.T @ gram @ weights).sqrt()
        grid = torch.linspace(0, 2, 41, dtype=torch.float64).unsqueeze(1)

        def value(X, centres=centres, weights=weights):
            return (kernel(X, centres).to_dense() @ weights)[:, 0]

        setting = kbo.Certified(kernel=kernel, noise_std=0.3, norm_bound=2.0, delta=0.1)
        optimizer = kbo.Optimizer(X, setting=setting, seed=seed)
        missed = False
        for bounds in (X, {"x": (0.0, 2.0)}, {"x": (0.5, 1.5)}, {"x": (0.0, 2.0)}):
            optimizer.change(bounds)
            for _ in range(6):
                params = optimizer.ask()
                noise = 0.3 * float(torch.randn(1, generator=generator, dtype=torch.float64))
                at = torch.tensor([[params["x"]]], dtype=torch.float64)
                optimizer.tell(params, float(value(at)) + noise)
            for x, true in zip(grid[:, 0].tolist(), value(grid).tolist(), strict=True):
                if optimizer.space.contains({"x": x}):
                    lower, _, upper = optimizer.interval({"x": x})
                    missed |= not lower - 1e-9 <= true <= upper + 1e-9
        assert guarantee(optimizer)
        misses += missed
    assert misses <= 6


# Replay


def test_replay_has_the_final_results_of_a_run(tmp_path):
    wrong = run(kbo.Optimizer(X), 9)
    right = run(kbo.Optimizer(X), 9)
    wrong.tell({"x": 0.11}, -9500.0)
    right.tell({"x": 0.11}, objective({"x": 0.11}))
    wrong.tell({"x": 0.22}, -9500.0)
    for optimizer in (wrong, right):
        optimizer.tell({"x": 0.33}, objective({"x": 0.33}))
    wrong.correct(9, objective({"x": 0.11}))
    wrong.remove(10, "a spill")
    replayed = history(wrong)
    expected = history(right)
    assert [m.value for m in replayed] == [m.value for m in expected]
    assert [m.best for m in replayed] == [m.best for m in expected]
    assert [m.expected for m in replayed] == [m.expected for m in expected]
    assert miscoverage(replayed) == miscoverage(expected)
    assert replayed[-1].finished == 12
    assert replayed[-1].mean == wrong.interval(wrong.recommended().params)[1]
    assert not any(moment.trouble for moment in replayed)


def test_replay_goes_on_after_a_change_with_a_result_outside_of_the_new_space():
    optimizer = run(kbo.Optimizer(XY), 7)
    late = optimizer.ask()
    optimizer.change({**XY, "x": (2.0, 3.0)})
    optimizer.tell(late, 1.0)
    run(optimizer, 2)
    moments = history(optimizer)
    assert len(moments) == 10
    assert not any(moment.trouble for moment in moments)
    assert moments[7].expected is None
    assert moments[-1].mean == optimizer.interval(optimizer.recommended().params)[1]
    optimizer.change({**XY, "x": (0.0, 3.0)})
    assert history(optimizer)[-1].recommended == Record.of(optimizer).recommended().number


def test_a_text_in_place_of_a_value_is_refused_and_the_trial_stays_pending():
    optimizer = kbo.Optimizer({"x": (0.0, 1.0)})
    optimizer.ask()
    with pytest.raises(InvalidInput, match="14,7"):
        optimizer.tell(0, "14,7")
    assert optimizer.trials[0].status == "pending"


@pytest.mark.parametrize("level", [0.05, 0.5])
def test_points_that_are_being_evaluated_are_not_proposed_again(level):
    space = {"t": kbo.Float(20.0, 90.0, step=5.0), "c": ["a", "b"]}
    optimizer = kbo.Optimizer(space, setting=kbo.Practical(noisy=True), seed=1)
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        batch = optimizer.ask(4)
        if len(optimizer.completed()) > 6:
            assert len({str(params) for params in batch}) == 4
        for params in batch:
            noise = level * float(torch.randn((), generator=generator))
            optimizer.tell(params, ((params["t"] - 70) / 50) ** 2 + (params["c"] == "a") + noise)


def test_trials_of_a_batch_are_not_next_to_each_other_where_values_have_noise():
    optimizer = kbo.Optimizer([(0.0, 1.0)] * 2, setting=kbo.Practical(noisy=True), seed=1)
    generator = torch.Generator().manual_seed(0)
    for _ in range(6):
        batch = torch.tensor(optimizer.ask(5), dtype=torch.float64)
        if len(optimizer.completed()) > 6:
            distances = torch.cdist(batch, batch, p=torch.inf)
            assert distances[~torch.eye(5, dtype=torch.bool)].min() > 0.049
        for params in batch.tolist():
            noise = 0.1 * float(torch.randn((), generator=generator))
            optimizer.tell(params, sum((x - 0.3) ** 2 for x in params) + noise)


def test_points_that_are_being_evaluated_are_proposed_again_where_there_are_no_others():
    optimizer = kbo.Optimizer({"c": ["a", "b"]}, setting=kbo.Practical(noisy=True), seed=1)
    for i in range(8):
        optimizer.tell({"c": "ab"[i % 2]}, i % 2 + 0.01 * i)
    batch = optimizer.ask(5)
    assert {params["c"] for params in batch[:2]} == {"a", "b"}
    assert len(batch) == 5


@pytest.mark.parametrize(
    ("parameter", "was", "n_new"),
    [
        ((0.0, 8.0), 2.5, 3),
        (kbo.Float(0.01, 100.0, log=True), 0.05, 3),
        (kbo.Int(1, 9), 2, 3),
        (["a", "b"], "a", 1),
        (["a", "b", "c", "d"], "b", 3),
    ],
)
def test_a_new_parameter_is_tried_at_a_few_values_at_once(parameter, was, n_new):
    optimizer = kbo.Optimizer(XY, setting=kbo.Practical(noisy=True), seed=3)
    for _ in range(12):
        params = optimizer.ask()
        optimizer.tell(params, (params["x"] - 0.3) ** 2 + params["y"])
    optimizer.change({**XY, "new": parameter}, was={"new": was})
    batch = optimizer.ask(5)
    space = optimizer.space
    places = space.units([{**batch[0], "new": was}, *batch])[:, 2].tolist()
    strategies = [optimizer.explain(12 + number).strategy for number in range(5)]
    at_new_values = ["new value" in text for text in strategies]
    assert not at_new_values[0]  # no other trial runs
    assert sum(at_new_values) <= n_new
    assert len({int(4 * place) for place in places}) > n_new
    assert all(space.contains(params) for params in batch)


def test_equal_repetitions_of_noisy_values_are_no_sign_that_there_is_no_noise():
    optimizers = []
    for setting in (kbo.Practical(), kbo.Practical(noisy=True)):
        optimizer = kbo.Optimizer({"x": (0.0, 1.0)}, setting=setting)
        for x, value in ((0.1, 3.0), (0.3, 2.0), (0.5, 1.0), (0.7, 2.0), (0.9, 3.0), (0.5, 1.0)):
            optimizer.tell({"x": x}, value)
        optimizers.append(optimizer)
    noiseless = [optimizer.insight.surrogate().noiseless for optimizer in optimizers]
    assert noiseless == [True, False]
