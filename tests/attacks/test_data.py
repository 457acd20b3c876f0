"""Values, files and reports of every kind: each is kept exactly, or refused with the reason."""

import decimal
import math

import numpy as np
import pandas as pd
import pytest
import torch

import kbo
from kbo.optimize import table, tracking
from kbo.optimize.evaluated import known_results
from kbo.optimize.tracking.tracker import Tracker
from kbo.space import Space

UNIT = {"x": (0.0, 1.0)}
MISSING = [np.ma.masked, np.ma.array([2.0], mask=[True]), pd.NA, pd.NaT]
MISSING += [torch.tensor(math.nan), decimal.Decimal("sNaN")]


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


UNFIT = {"half a character": {"\ud800": 1.0}, "long name": {"m" * 1_100_000: 1.0}, "huge step": {}}


@pytest.mark.parametrize("kind", UNFIT)
def test_what_a_journal_cannot_hold_fails_its_trial_and_the_run_goes_on(tmp_path, kind):
    def objective(params, trial):
        if trial.number == 0:
            trial.report(1.0, step=2**60 if kind == "huge step" else 1)
            return 1.0, UNFIT[kind]
        return params["x"]

    path = tmp_path / "run.jsonl"
    for n_trials in (3, 4):
        result = run(objective, n_trials, journal=path)
    assert [bool(trial.failure) for trial in result.trials] == [True, False, False, False]
    begun().load(path)


def test_a_measurement_that_a_journal_cannot_hold_is_refused_without_one_too(tmp_path):
    optimizer = begun()
    trial = optimizer.tell(optimizer.ask(), (1.0, {"\ud800": 1.0}))
    assert "cannot be recorded" in trial.failure
    with pytest.raises(kbo.InvalidInput, match="cannot hold"):
        optimizer.fail(optimizer.ask(), "broken", measured={"\ud800": 1.0})
    optimizer.save(tmp_path / "run.jsonl")


def test_a_grid_keeps_each_of_its_points_or_is_refused():
    for low, high, step in [(0.0, 1.0, 1e-11), (1e15, 1e15 + 1e3, 0.5)]:
        with pytest.raises(kbo.InvalidInput, match="below the resolution"):
            kbo.Float(low, high, step=step)
    for low, high, step in [(0.0, 1.0, 1e-9), (0.1 + 0.2, 1.3, 0.25), (1.0 + 2e-16, 2.0, 0.1)]:
        grid = kbo.Float(low, high, step=step)
        n = len(grid.options)
        for i in (0, 1, n // 3, n // 2, n - 2, n - 1):
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
    assert result.to_frame()["measured.memory"].tolist() == [5.0, 7.0, 5.0]
    again = begun()
    again.load(path)
    assert [trial.measured for trial in again.trials] == [{"memory": m} for m in (5.0, 7.0, 5.0)]


@pytest.mark.parametrize("source", ["run.jsonl", "copy.jsonl", "copy.csv"])
def test_the_values_of_its_own_journal_count_once(tmp_path, source):
    path = tmp_path / "run.jsonl"
    known = pd.DataFrame({"x": [0.5], "value": [0.1]})
    first = run(x_of, 4, journal=path, evaluated=known)
    if source == "copy.csv":
        first.to_csv(tmp_path / source)
    else:
        (tmp_path / source).write_bytes(path.read_bytes())
    for n_trials in (4, 5, 5):
        result = run(x_of, n_trials, journal=path, evaluated=tmp_path / source)
    assert len(result.trials) == 6
    assert [trial.asked for trial in result.trials].count(False) == 1


TEXTS = "NA|nan||01|1|1.0|0.5|1e-05|inf|True|true|None|null|N/A|a,b|a\nb|a\rb|\r\n| x |ü|-0|1_000"
ODD = [*TEXTS.split("|"), '"', '"1"', "10" * 12, "#", "'", ";", "\t", "\ufeffx"]
MIXED = [2, 0.5, True, None, 10**20, 1e300, -3, "x", "2", "1", "0.5", "True", "", "None"]
MIXED += ["1e+300", str(10**20), "-3"]


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
    ("x,kind,value\n0.5,a,1\n0.25,b,2,3\n", "line 3 of .*4 fields and the first line has 3"),
    ("x,kind,value\r\n\r\n0.5,a,1,\r\n", "line 3 of .*4 fields"),
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
    expected = "left out the columns ['note', 'comment'] of evaluated, which are no parameters"
    assert [record.message for record in caplog.records] == [expected]


def test_values_of_fixed_parameters_may_be_left_out_or_given():
    bounds = {**UNIT, "n": kbo.Int(1, 3), "seed": kbo.Fixed(3), "mode": "fast"}
    first = [{"x": 0.5, "n": 2}, {"x": 0.25, "n": 1, "seed": 3}, {"n": 3, "mode": "fast"}]
    calls = []
    run(lambda params: calls.append(params) or params["x"], bounds=bounds, try_first=first)
    for given, call in zip(first, calls, strict=True):
        assert given.items() <= call.items()
        assert list(call) == ["x", "n", "seed", "mode"]
    with pytest.raises(kbo.InvalidInput, match=r"try_first\[0\]: .*'seed': 4 is not one of \[3\]"):
        run(x_of, bounds=bounds, try_first=[{"x": 0.5, "n": 2, "seed": 4}])
    optimizer = kbo.Optimizer(bounds, method="random")
    point = {"x": 0.5, "n": 1}
    assert optimizer.ask(choices=[point]) == {**point, "seed": 3, "mode": "fast"}
    assert optimizer.tell(point, 1.0).asked


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
    expected = "Server failed, and records no more of this run, which goes on: ConnectionError: the server is away"
    assert [record.message for record in caplog.records] == [expected]
    assert [trial.status for trial in result.trials] == ["complete"] * 3
    assert recorded == ([0, 1, 2] if at == "_end" else [])
    assert issubclass(tracking.MLflow, Tracker)
    assert issubclass(tracking.WandB, Tracker)


@pytest.mark.thorough
@pytest.mark.keeps(
    r"file .*runs\.db", "MLflow keeps the connections to its database until the process ends"
)
def test_mlflow_takes_every_name_of_a_parameter(tmp_path, caplog):
    pytest.importorskip("mlflow")
    caplog.set_level("WARNING", "kbo")
    record = tracking.MLflow("odd", f"sqlite:///{tmp_path / 'runs.db'}")
    name = "x: (a=b)"
    run(lambda params: params[name], 1, {name: (0.0, 1.0)}, on_trial=record)
    assert not [entry for entry in caplog.records if entry.name == "kbo"]


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


def test_load_says_what_to_do():
    with pytest.raises(kbo.InvalidInput, match=r"Optimizer\(bounds, ...\).load\(path\)"):
        kbo.Optimizer.load("run.jsonl")
    with pytest.raises(kbo.InvalidInput, match="path must be a path"):
        begun().load()
