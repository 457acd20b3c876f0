"""Known results and points to try first."""

import math

import pandas as pd
import pytest
from gpytorch.kernels import MaternKernel

import kbo
from kbo.optimize.evaluated.first_points import first_points, remaining
from kbo.optimize.evaluated.results import known_results, unrecorded
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


@pytest.mark.parametrize("given", [lambda path: TABLE, as_csv, journal])
def test_known_results_are_a_table_or_a_journal(tmp_path, given):
    assert known_results(given(tmp_path), SPACE, maximize=False).results == KNOWN


def test_results_that_do_not_fit_the_space_are_left_out_and_named(tmp_path, caplog):
    wider = {"x": (0.0, 9.0), "layers": kbo.Int(1, 8), "act": ["relu", "tanh", "gelu"]}
    odd = [({**A, "x": 4.0}, 0.0), KNOWN[0], ({**A, "act": "gelu"}, 0.0), KNOWN[1]]
    caplog.set_level("WARNING", "kbo")  # commands in other tests set it too
    path = journal(tmp_path, wider, odd)
    assert known_results(path, SPACE, maximize=False).results == KNOWN
    assert "left out 2 of 4 known results. trial 0: parameter 'x'" in caplog.text
    table = frame([(A, math.inf), (A, None), (A, 1.5)])
    assert known_results(table, SPACE, maximize=False).results == KNOWN[:1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (KNOWN, r"must be a DataFrame.* got \[.*DataFrame\(\[\{\*\*params, 'value': value\}"),
        (frame([({**A, "layers": 7}, 1.0)]), "none of the 1 results can be used. row 0: .*layers"),
        ("missing.csv", "evaluated: there is no file missing.csv"),
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
    assert remaining(points, SPACE, [Trial(0, A), Trial(1, A, asked=False)]) == points[1:]
    assert remaining(points, SPACE, [Trial(0, A), Trial(1, B)]) == []
    listed = first_points([[0.5, 0.1], {1: 0.5}], Space([(0.0, 1.0)] * 2))
    assert listed == [{"choices": [[0.5, 0.1]]}, {"context": {1: 0.5}}]
    wrong = {
        "try_first must be a list": A,
        r"try_first\[0\]: parameter 'layers': .*\[1, 3\]": [{"layers": 7}],
        r"try_first\[0\]: there is no parameter 'y7': the parameters are": [{"y7": 1}],
        r"try_first\[1\]: .*dropout": [A, {"dropout": 0.1}],
        r"try_first\[0\]: there is no parameter 'layer': did you mean 'layers'\?": [{"layer": 1}],
    }
    for message, given in wrong.items():
        with pytest.raises(kbo.InvalidInput, match=message):
            first_points(given, SPACE)


def test_a_run_begins_with_known_results_and_points_to_try_and_repeats_neither(tmp_path):
    calls = []

    def counted(params):
        calls.append(params)
        return loss(params)

    first = [{"act": "tanh", "layers": 3}, B, {"x": 0.125}]
    options = {"evaluated": TABLE, "journal": tmp_path / "run.jsonl", "try_first": first}
    for n_trials in (2, 2, 5):
        result = kbo.minimize(counted, SPACE, n_trials, **options)
    assert [(t.params, t.value) for t in result.trials[:2]] == KNOWN
    assert [t.asked for t in result.trials] == [False] * 2 + [True] * 5
    assert "7 trials, of which 2 known results; the budget of 5 trials is used" in str(result)
    assert calls == [t.params for t in result.trials[2:]]
    assert first[0].items() <= calls[0].items()
    assert calls[1] == B
    assert calls[2]["x"] == 0.125


def test_a_known_result_that_is_a_repetition_is_counted_as_known():
    result = kbo.minimize(loss, SPACE, 2, evaluated=frame([(A, 7.0), (A, 7.1), (B, 6.0)]))
    assert "5 trials, of which 3 known results; the budget" in str(result)


def test_a_known_result_is_not_the_value_of_a_trial_that_was_ended_at_the_same_point(tmp_path):
    def interrupted(params):
        raise KeyboardInterrupt

    run = {"try_first": [A], "journal": tmp_path / "run.jsonl"}
    kbo.minimize(interrupted, SPACE, 1, **run)
    for _ in range(2):
        result = kbo.minimize(loss, SPACE, 1, evaluated=frame([(A, 7.0)]), **run)
    values = [(trial.value, trial.asked) for trial in result.trials]
    assert values == [(loss(A), True), (7.0, False)]


def test_known_results_inform_the_first_point_and_are_recommended():
    known = frame([({**A, "x": i / 8}, i / 8) for i in range(9)])
    setting = kbo.Practical(noise_std=0.0)
    result = kbo.minimize(loss, SPACE, 1, evaluated=known, setting=setting)
    assert result.trials[-1].params not in [trial.params for trial in result.trials[1:-1]]
    assert result.params["x"] == 0.0
    guarantee = kbo.minimize(loss, SPACE, 1, evaluated=known, setting=CERTIFIED).guarantee
    assert "not certified: trials with a value at parameters that ask did not ret" in guarantee
    assert kbo.minimize(loss, SPACE, 2, try_first=[A], setting=CERTIFIED).certified


def test_a_table_of_optuna_is_known_as_it_is_written(tmp_path):
    columns = {
        "number": [0, 1, 2],
        "value": [1, 2, None],
        "datetime_start": ["2024-01-01"] * 3,
        "params_x": [0.25, 0.5, 0.75],
        "params_k": ["a", None, "b"],
        "state": ["COMPLETE", "COMPLETE", "FAIL"],
    }
    frame = pd.DataFrame(columns)
    frame.to_csv(tmp_path / "table.csv", index=False)
    space = Space({"x": (0.0, 1.0), "k": ["a", "b", None]})
    for table, place in ((frame, "row 2"), (tmp_path / "table.csv", "line 4")):
        known = known_results(table, space, False)
        assert known.results == [({"x": 0.25, "k": "a"}, 1.0), ({"x": 0.5, "k": None}, 2.0)]
        (sentence,) = known.left_out
        assert sentence.endswith(f"which have no value. {place}: fail.")
