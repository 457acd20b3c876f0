"""Values, files and reports of every kind: each is kept exactly, or refused with the reason."""

import decimal
import math

import numpy as np
import pandas as pd
import pytest
import torch

import kbo
from kbo.optimize import tracking
from kbo.optimize.evaluated.results import known_results
from kbo.optimize.run import table
from kbo.optimize.tracking import Tracker
from kbo.space import Space

UNIT = {"x": (0.0, 1.0)}
MISSING = [np.ma.masked, pd.NA, pd.NaT, torch.tensor(math.nan), decimal.Decimal("sNaN")]


def begun(**options):
    return kbo.Optimizer(UNIT, method="random", **options)


def run(objective, n_trials=3, bounds=UNIT, **options):
    return kbo.minimize(objective, bounds, n_trials, method="random", **options)


def x_of(params):
    return params["x"]


@pytest.mark.parametrize("value", MISSING, ids=repr)
def test_a_missing_value_fails_the_trial(value):
    optimizer = begun(constraints=[kbo.Constraint("memory", upper=1.0)])
    for returned in ((value, {"memory": 0.5}), (0.5, {"memory": value})):
        trial = optimizer.tell(optimizer.ask(), returned)
        assert trial.status == "failed"
        assert trial.failure
        assert "memory" not in trial.measured or trial.value is None


UNFIT = [(1, {"\ud800": 1.0}), (1, {"m" * 1_100_000: 1.0}), (2**60, {})]


@pytest.mark.parametrize(("step", "measured"), UNFIT, ids=["half a character", "long", "step"])
def test_what_a_journal_cannot_hold_fails_its_trial_and_the_run_goes_on(tmp_path, step, measured):
    def objective(params, trial):
        if trial.number == 0:
            trial.report(1.0, step=step)
            return 1.0, measured
        return params["x"]

    for journal in (None, tmp_path / "run.jsonl", tmp_path / "run.jsonl"):
        result = run(objective, journal=journal)
        assert [bool(trial.failure) for trial in result.trials] == [True, False, False]
    if step == 1:
        optimizer = begun()
        with pytest.raises(kbo.InvalidInput, match="measured"):
            optimizer.fail(optimizer.ask(), "broken", measured=measured)


def test_a_grid_keeps_each_of_its_points_or_is_refused():
    for low, high, step in [(0.0, 1.0, 1e-11), (1e15, 1e15 + 1e3, 0.5)]:
        with pytest.raises(kbo.InvalidInput, match="below the resolution"):
            kbo.Float(low, high, step=step)
    for low, high, step in [(0.0, 1.0, 1e-9), (0.1 + 0.2, 1.3, 0.25)]:
        grid = kbo.Float(low, high, step=step)
        n = len(grid.options)
        for i in (0, 1, n // 3, n - 1):
            value = grid.options[i]
            assert grid.plain(value) == grid.value(grid.unit(value)) == value


def test_a_pruned_trial_keeps_what_it_measured(tmp_path):
    class Second:
        def should_stop(self, trial, trials, maximize):
            return trial.number == 1

    def objective(params, trial):
        trial.report(1.0, step=0)
        if trial.number == 0:
            trial.report(1.0, step=1)
        if trial.should_stop():
            return math.nan, {"memory": 7.0, "text": "x"}
        return params["x"], {"memory": 5.0}

    path = tmp_path / "run.jsonl"
    result = run(objective, journal=path, pruner=Second())
    assert [trial.status for trial in result.trials] == ["complete", "pruned", "complete"]
    again = begun()
    again.run.load(path)
    for trials in (result.trials, again.trials):
        assert [trial.measured for trial in trials] == [{"memory": m} for m in (5.0, 7.0, 5.0)]


TEXTS = "NA|nan||01|1|1.0|0.5|1e-05|inf|True|None|null|a,b|a\nb|a\rb|\r\n| x |ü|-0|1_000"
ODD = [*TEXTS.split("|"), '"', '"1"', "10" * 12, "#", "\ufeffx"]
MIXED = [2, 0.5, True, None, 10**20, 1e300, "x", "2", "0.5", "True", "", "None", "1e+300"]


@pytest.mark.parametrize("options", [ODD, MIXED, ["01", "NA"], [16, 32.5, 64], [None, ""]])
def test_a_table_that_kbo_writes_is_read_exactly(tmp_path, options):
    outer = {"c": options, "o": kbo.Ordinal(options[::-1]), "x": kbo.Float(-1e3, 1e3)}
    outer |= {"n": (0, 2**40), "seed": kbo.Fixed("01")}
    inner = {"d": options, "f": kbo.Fixed(None), "y": kbo.Float(1e-9, 1.0, log=True)}
    rng = np.random.default_rng(1)
    optimizer = kbo.Optimizer([outer, kbo.When("c", options[0], inner)], method="random")
    for i, option in enumerate(options):
        params = {"c": option, "o": option, "x": float(rng.normal()), "n": 2**30 + i, "seed": "01"}
        if i == 0:
            params |= {"d": options[-1], "f": None, "y": float(rng.uniform(1e-9, 1.0))}
        optimizer.tell(params, (float(rng.normal()), {"memory": float(rng.normal())}))
    written = [(trial.params, (trial.value, trial.measured)) for trial in optimizer.trials]
    optimizer.fail(optimizer.ask(), "a\r\nb,")
    file = table.write(optimizer.trials, tmp_path / "run.csv")
    for known in (file, table.frame(optimizer.trials)):
        found = known_results(known, optimizer.space, maximize=False).results
        assert repr(found) == repr(written)


UNFIT_TABLES = [
    ("x,kind,value\r\n\r\n0.5,a,1,\r\n", "line 3 of .*4 fields and the first line has 3"),
    ("x,x,value\n0.5,0.5,1\n", "several columns of one name"),
    ("x,kind\n0.5,a\n", r"has the columns \['x', 'kind'\]"),
    ("x,kind,value\nhalf,a,1\n", "line 2: parameter 'x': .*'half'"),
    ("x,value\n0.5,1\n", r"line 2: params must have .*missing are \['kind'\]"),
    ("x,kind,value\n0.5,a,NA\n", "line 2: value must be a finite number, got 'NA'"),
    ('x,kind,value\n0.5,"a,1\n', "known.csv is not a table"),
]


@pytest.mark.parametrize(("text", "message"), UNFIT_TABLES)
def test_a_table_that_does_not_fit_is_refused_with_the_line(tmp_path, text, message):
    path = tmp_path / "known.csv"
    path.write_text(text, newline="")
    with pytest.raises(kbo.InvalidInput, match=message):
        known_results(path, Space({**UNIT, "kind": ["a", "b"]}), maximize=False)


@pytest.mark.parametrize("read", [lambda path: path, pd.read_csv])
def test_extra_columns_are_ignored_with_one_line_and_fixed_values_filled_in(tmp_path, caplog, read):
    path = tmp_path / "known.csv"
    rows = "x,note,on,rate,value,comment\n0.5,ok,TRUE,.25,1,\n\n1,,false,,2,good\n"
    path.write_text(rows, newline="")
    when = kbo.When("on", True, {"rate": (0.0, 1.0), "mode": "fast"})
    space = Space([{**UNIT, "on": bool, "seed": 3}, when])
    assert known_results(read(path), space, maximize=False).results == [
        ({"x": 0.5, "on": True, "seed": 3, "rate": 0.25, "mode": "fast"}, 1.0),
        ({"x": 1.0, "on": False, "seed": 3}, 2.0),
    ]
    assert "left out the columns ['note', 'comment'] of evaluated" in caplog.text


def test_values_of_fixed_parameters_may_be_left_out_or_given():
    bounds = {**UNIT, "seed": kbo.Fixed(3), "mode": "fast"}
    optimizer = kbo.Optimizer(bounds, method="random")
    point = {"x": 0.5}
    assert optimizer.ask(choices=[point]) == {**point, "seed": 3, "mode": "fast"}
    assert optimizer.tell(point, 1.0).asked
    first = [point, {"seed": 3, "x": 0.25}]
    trials = run(x_of, 2, bounds, try_first=first).trials
    assert [trial.params for trial in trials] == [{"seed": 3, "mode": "fast"} | p for p in first]
    with pytest.raises(kbo.InvalidInput, match=r"try_first\[0\]: .*'seed': 4 is not one of \[3\]"):
        run(x_of, bounds=bounds, try_first=[{"x": 0.5, "seed": 4}])


@pytest.mark.parametrize("at", ["_begin", "_record", "_end"])
def test_a_tracker_that_fails_warns_once_and_is_dropped(monkeypatch, caplog, at):
    recorded = []

    class Server(Tracker):
        def _record(self, trial, result):
            recorded.append(trial.number)

    def broken(self, *_):
        raise ConnectionError("the server is away")

    caplog.set_level("WARNING", "kbo")
    monkeypatch.setattr(Server, at, broken)
    result = run(x_of, on_trial=Server())
    assert caplog.text.count("ConnectionError: the server is away") == 1
    assert [trial.status for trial in result.trials] == ["complete"] * 3
    assert recorded == ([0, 1, 2] if at == "_end" else [])
    for kind in (tracking.MLflow, tracking.WandB):
        assert issubclass(kind, Tracker)


class Failing:
    def __call__(self, trial, result):
        if trial.number == 1:
            raise SystemExit(3)

    def should_stop(self, trial, trials, maximize):
        raise ArithmeticError


@pytest.mark.parametrize(
    ("place", "error", "n"),
    [("on_trial", SystemExit, 2), ("pruner", ArithmeticError, 2), ("", kbo.JournalError, 1)],
)
def test_every_exception_that_ends_a_run_has_its_trials(tmp_path, place, error, n):
    path = tmp_path / "run.jsonl"

    def objective(params, trial):
        for step in range(1 if trial.number else 2):
            trial.report(1.0, step=step)
        if not place:
            path.unlink()
        return params["x"]

    with pytest.raises(error) as caught:
        run(objective, 4, journal=path, **({place: Failing()} if place else {}))
    assert len(caught.value.trials) == n


@pytest.mark.parametrize(
    ("returned", "options", "reason"),
    [
        (
            (1.0, {"caffeine": 0.5}),
            {"constraints": [kbo.Constraint("cafeine", upper=1.0)]},
            r"there is no measurement of 'cafeine'; it came with \['caffeine'\]",
        ),
        (
            {"yield": 0.5, "cost": 3.0},
            {"objectives": ["yeld", "cost"]},
            ".* without an entry 'yeld'",
        ),
    ],
)
def test_a_name_that_no_result_has_ends_a_run_at_once(returned, options, reason):
    message = f"trial 0 failed, as every other one would, with: {reason}. Correct the name in constraints or"
    with pytest.raises(kbo.TooManyFailures, match=message) as error:
        kbo.minimize(lambda params: returned, UNIT, 9, **options)
    assert len(error.value.trials) == 1


def test_a_name_that_is_missing_once_fails_its_trial():
    def objective(params, trial):
        if trial.number == 1:
            return 1.0
        return 1.0, {"memory": 0.5}

    constraints = [kbo.Constraint("memory", upper=1.0)]
    result = kbo.minimize(objective, UNIT, 3, constraints=constraints)
    assert [bool(trial.failure) for trial in result.trials] == [False, True, False]


def test_a_run_of_nothing_but_failures_is_an_error(tmp_path):
    def objective(params):
        raise ValueError("no data set")

    for _ in range(2):
        with pytest.raises(
            kbo.TooManyFailures, match=r"all 3 trials failed.*ValueError: no data set"
        ):
            run(objective, journal=tmp_path / "run.jsonl")
    known = run(objective, evaluated=pd.DataFrame({"x": [0.5], "value": [1.0]}))
    assert known.params == {"x": 0.5}
