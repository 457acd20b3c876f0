"""Known results and points to try first."""

import math
import time

import pandas as pd
import pytest
from gpytorch.kernels import MaternKernel

import kbo
from kbo.optimize.evaluated import first_points, known_results, remaining, unrecorded
from kbo.optimize.run.trials import Trial
from kbo.space import Space

SPACE = Space({"x": (0.0, 1.0), "layers": kbo.Int(1, 3), "act": ["relu", "tanh"]})
A, B = {"x": 0.5, "layers": 2, "act": "relu"}, {"x": 0.25, "layers": 3, "act": "tanh"}
CERTIFIED = kbo.Certified(MaternKernel(nu=2.5).double(), noise_std=0.1, norm_bound=10.0)
KNOWN = [(A, 1.5), (B, -2.0)]


def frame(results):
    """Return a DataFrame of pairs (params, value)."""
    return pd.DataFrame([{**params, "value": value} for params, value in results])


TABLE = frame(KNOWN)


def loss(params):
    return params["x"] + params["layers"] + (params["act"] == "tanh")


def journal(path, bounds=SPACE, results=KNOWN, **options):
    optimizer = kbo.Optimizer(bounds, journal=path / "old.jsonl", **options)
    for params, value in results:
        optimizer.tell(params, value)
    optimizer.close()
    return path / "old.jsonl"


def as_csv(path):
    TABLE.to_csv(path / "known.csv", index=False)
    return path / "known.csv"


def exported(path):
    return kbo.minimize(loss, SPACE, 1, evaluated=TABLE).to_frame().iloc[:2]


@pytest.mark.parametrize("given", [lambda path: TABLE, as_csv, journal, exported])
def test_known_results_are_a_table_or_a_journal(tmp_path, given):
    assert known_results(given(tmp_path), SPACE, maximize=False).results == KNOWN


def test_results_that_do_not_fit_the_space_are_left_out_and_named(tmp_path, caplog):
    wider = {"x": (0.0, 9.0), "layers": kbo.Int(1, 8), "act": ["relu", "tanh", "gelu"]}
    odd = [({**A, "x": 4.0}, 0.0), KNOWN[0], ({**A, "act": "gelu"}, 0.0), KNOWN[1]]
    caplog.set_level("WARNING", "kbo")  # commands in other tests set it too
    path = journal(tmp_path, wider, odd)
    assert known_results(path, SPACE, maximize=False).results == KNOWN
    table = frame([(A, math.inf), (A, None), (A, 1.5)])
    assert known_results(table, SPACE, maximize=False).results == KNOWN[:1]
    for words in (
        "left out 2 of 4 known results. trial 0: parameter 'x'",
        "trial 2: parameter 'act'",
        "give ranges that contain them first",
        "row 0: value must be a finite number, got inf",
    ):
        assert words in caplog.text


def test_results_outside_of_the_ranges_are_learned_from_by_a_change_of_the_space(tmp_path):
    results = frame([({"x": 0.5}, 1.0), ({"x": 3.0}, 2.0)])
    path = journal(tmp_path, {"x": (0.0, 4.0)}, [], evaluated=results)
    optimizer = kbo.Optimizer({"x": (0.0, 1.0)}, journal=path, allow_change=True)
    assert [trial.value for trial in optimizer.completed()] == [1.0, 2.0]
    assert not optimizer.run.trials.misplaced
    assert optimizer.recommended().number == 0
    optimizer.close()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, "evaluated must be a DataFrame"),
        (KNOWN, r"got \[.*pandas.DataFrame\(\[\{\*\*params, 'value': value\}"),
        ([{**A, "value": 1.0}], r"got \[.*pandas.DataFrame\(rows\)"),
        (
            frame([({**A, "layers": 7}, 1.0)]),
            "none of the 1 results can be used. row 0: .*layers",
        ),
        (
            pd.DataFrame([{**A, "loss": 1.0}]),
            r"a column 'value', .* has the columns \['x', 'layers', 'act', 'loss'\]",
        ),
        ("missing.csv", "evaluated: there is no file missing.csv"),
        ("missing.jsonl", "evaluated: cannot read the journal missing.jsonl"),
        (lambda path: journal(path, maximize=True), "is of a run that maximises"),
    ],
)
def test_wrong_known_results_are_named(given, message, tmp_path):
    with pytest.raises(kbo.InvalidInput, match=message):
        known_results(given(tmp_path) if callable(given) else given, SPACE, maximize=False)


def test_known_results_are_recorded_once_and_points_to_try_may_be_complete_or_not():
    # The second one was evaluated in this run.
    trials = [Trial(0, A, 1.5, asked=False), Trial(1, B, -2.0)]
    assert unrecorded([*KNOWN, KNOWN[0]], trials) == [KNOWN[0]]
    points = first_points([A, {"layers": 3}], SPACE)
    assert points == [{"choices": [A]}, {"context": {"layers": 3}}]
    for trials, left in (
        ([], points),
        ([Trial(0, A), Trial(1, A, asked=False)], points[1:]),
        ([Trial(0, A), Trial(1, B)], []),
    ):
        assert remaining(points, SPACE, trials) == left
    listed = first_points([[0.5, 0.1], {1: 0.5}], Space([(0.0, 1.0)] * 2))
    assert listed == [{"choices": [[0.5, 0.1]]}, {"context": {1: 0.5}}]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (A, "try_first must be a list"),
        ([{"layers": 7}], r"try_first\[0\]: .*layers.*\[1, 3\]"),
        ([A, {"dropout": 0.1}], r"try_first\[1\]: .*dropout"),
    ],
)
def test_wrong_points_to_try_are_named(given, message):
    with pytest.raises(kbo.InvalidInput, match=message):
        first_points(given, SPACE)


def test_a_run_begins_with_known_results_and_points_to_try_and_repeats_neither(tmp_path):
    calls = []
    first = [{"act": "tanh", "layers": 3}, B, {"x": 0.125}]

    def counted(params):
        calls.append(params)
        return loss(params)

    def run(n_trials, try_first):
        options = {"evaluated": TABLE, "journal": tmp_path / "run.jsonl"}
        return kbo.minimize(counted, SPACE, n_trials, try_first=try_first, **options)

    for n_trials in (2, 2, 5):
        result = run(n_trials, first)
    assert [(t.params, t.value) for t in result.trials[:2]] == KNOWN
    assert [t.asked for t in result.trials] == [False] * 2 + [True] * 5
    summary = "Trials    7 trials, of which 2 known results; the budget of 5 trials is used"
    assert str(result).startswith(summary)
    assert calls == [t.params for t in result.trials[2:]]
    assert first[0].items() <= calls[0].items()
    assert calls[1] == B
    assert calls[2]["x"] == 0.125
    assert run(6, [*first, A]).trials[-1].params == A


def test_a_known_result_is_not_the_value_of_a_trial_that_was_ended_at_the_same_point(tmp_path):
    def interrupted(params):
        raise KeyboardInterrupt

    run = {"try_first": [A], "journal": tmp_path / "run.jsonl"}
    kbo.minimize(interrupted, SPACE, 1, **run)
    for _ in range(2):
        result = kbo.minimize(loss, SPACE, 1, evaluated=frame([(A, 7.0)]), **run)
    values = [(trial.value, trial.asked) for trial in result.trials]
    assert values == [(loss(A), True), (7.0, False)]


def test_the_time_between_two_runs_is_not_that_of_known_results(tmp_path, monkeypatch):
    run = {"journal": tmp_path / "run.jsonl", "time_budget": 3600.0}
    kbo.minimize(loss, SPACE, 1, **run)
    later = time.time() + 86_400
    monkeypatch.setattr(time, "time", lambda: later)
    stopped = kbo.minimize(loss, SPACE, 2, evaluated=TABLE, **run).stopped
    assert stopped.startswith("the budget of 2")


def test_known_results_inform_the_first_point_and_are_recommended():
    known = frame([({**A, "x": i / 8}, i / 8) for i in range(9)])
    setting = kbo.Practical(noise_std=0.0)
    result = kbo.minimize(loss, SPACE, 1, evaluated=known, setting=setting)
    assert result.trials[-1].params not in [trial.params for trial in result.trials[1:-1]]
    assert result.params["x"] == 0.0
    guarantee = kbo.minimize(loss, SPACE, 2, evaluated=known, setting=CERTIFIED).guarantee
    words = "not certified: trials with a value at parameters that ask did not return: 9"
    assert guarantee.startswith(words)
    assert kbo.minimize(loss, SPACE, 3, try_first=[A, {"layers": 1}], setting=CERTIFIED).certified
