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


MISSING = (
    np.ma.masked,
    np.ma.array([2.0], mask=[True]),
    pd.NA,
    pd.NaT,
    torch.tensor(math.nan),
    decimal.Decimal("sNaN"),
)


@pytest.mark.parametrize("value", MISSING, ids=repr)
def test_a_missing_value_fails_the_trial(value):
    optimizer = kbo.Optimizer(
        UNIT, method="random", constraints=[kbo.Constraint("memory", upper=1.0)]
    )
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
        result = kbo.minimize(objective, UNIT, n_trials, method="random", journal=path)
    assert [bool(trial.failure) for trial in result.trials] == [True, False, False, False]
    kbo.Optimizer(UNIT, method="random").load(path)


def test_a_measurement_that_a_journal_cannot_hold_is_refused_without_one_too(tmp_path):
    optimizer = kbo.Optimizer(UNIT, method="random")
    trial = optimizer.tell(optimizer.ask(), (1.0, {"\ud800": 1.0}))
    assert "cannot be recorded" in trial.failure
    with pytest.raises(kbo.InvalidInput, match="cannot hold"):
        optimizer.fail(optimizer.ask(), "broken", measured={"\ud800": 1.0})
    optimizer.save(tmp_path / "run.jsonl")


@pytest.mark.parametrize(("low", "high", "step"), [(0.0, 1.0, 1e-11), (1e15, 1e15 + 1e3, 0.5)])
def test_a_step_below_the_resolution_is_refused(low, high, step):
    with pytest.raises(kbo.InvalidInput, match="below the resolution"):
        kbo.Float(low, high, step=step)


@pytest.mark.parametrize(
    ("low", "high", "step"),
    [(0.0, 1.0, 1e-9), (0.1 + 0.2, 0.1 + 1.2, 0.25), (1.0 + 2e-16, 2.0 + 2e-16, 0.1)],
)
def test_every_point_of_a_grid_is_accepted(low, high, step):
    grid = kbo.Float(low, high, step=step)
    n = len(grid.options)
    for i in {0, 1, n // 3, n // 2, n - 2, n - 1}:
        value = grid.options[i]
        assert grid.plain(value) == grid.value(grid.unit(value)) == value


def test_a_pruned_trial_keeps_what_it_measured(tmp_path):
    class Second:
        def should_stop(self, trial, trials, maximize):
            return trial.number == 1

    def objective(params, trial):
        trial.report(1.0, step=0)
        trial.report(1.0, step=1) if trial.number == 0 else None
        return (
            (math.nan, {"memory": 7.0, "text": "x"})
            if trial.should_stop()
            else (params["x"], {"memory": 5.0})
        )

    path = tmp_path / "run.jsonl"
    result = kbo.minimize(objective, UNIT, 3, method="random", journal=path, pruner=Second())
    assert [trial.status for trial in result.trials] == ["complete", "pruned", "complete"]
    assert result.to_frame()["measured.memory"].tolist() == [5.0, 7.0, 5.0]
    again = kbo.Optimizer(UNIT, method="random")
    again.load(path)
    assert [trial.measured for trial in again.trials] == [{"memory": m} for m in (5.0, 7.0, 5.0)]


@pytest.mark.parametrize("source", ["journal", "copy", "csv"])
def test_the_values_of_its_own_journal_count_once(tmp_path, source):
    path, other = (
        tmp_path / "run.jsonl",
        tmp_path / ("copy.csv" if source == "csv" else "copy.jsonl"),
    )

    def objective(params):
        return params["x"] ** 2

    known = pd.DataFrame({"x": [0.5], "value": [0.1]})
    first = kbo.minimize(objective, UNIT, 4, method="random", journal=path, evaluated=known)
    first.to_csv(other) if source == "csv" else other.write_bytes(path.read_bytes())
    for n_trials in (4, 5, 5):
        known = path if source == "journal" else other
        result = kbo.minimize(
            objective, UNIT, n_trials, method="random", journal=path, evaluated=known
        )
    assert len(result.trials) == 6
    assert [trial.asked for trial in result.trials].count(False) == 1


ODD = [
    *(
        "NA",
        "nan",
        "",
        "01",
        "1",
        "1.0",
        "0.5",
        "1e-05",
        "inf",
        "True",
        "true",
        "None",
        "null",
        "N/A",
        '"',
        '"1"',
    ),
    *(
        "a,b",
        "a\nb",
        "a\rb",
        "\r\n",
        " x ",
        "ü",
        "-0",
        "1_000",
        "10" * 12,
        "#",
        "'",
        ";",
        "\t",
        "\ufeffx",
    ),
]
MIXED = [
    2,
    0.5,
    True,
    None,
    10**20,
    1e300,
    -3,
    "x",
    "2",
    "1",
    "0.5",
    "True",
    "",
    "None",
    "1e+300",
    str(10**20),
    "-3",
]


@pytest.mark.parametrize("options", [ODD, MIXED, ["01", "NA"], [16, 32.5, 64], [None, ""]])
def test_a_table_that_kbo_writes_is_read_exactly(tmp_path, options):
    numbers = {"x": kbo.Float(-1e3, 1e3), "n": (0, 2**40), "seed": kbo.Fixed("01")}
    inside = {"d": options, "f": kbo.Fixed(None), "y": kbo.Float(1e-9, 1.0, log=True)}
    bounds = [
        {"c": options, "o": kbo.Ordinal(options[::-1]), **numbers},
        kbo.When("c", options[0], inside),
    ]
    generator = np.random.default_rng(1)
    optimizer = kbo.Optimizer(bounds, method="random")
    for i, option in enumerate(options):
        inner = (
            {"d": options[-1], "f": None, "y": float(generator.uniform(1e-9, 1.0))}
            if i == 0
            else {}
        )
        own = {
            "c": option,
            "o": option,
            "x": float(generator.normal()),
            "n": 2**30 + i,
            "seed": "01",
        }
        optimizer.tell(
            own | inner, (float(generator.normal()), {"memory": float(generator.normal())})
        )
    optimizer.fail(optimizer.ask(), "a\r\nb,")
    path, given = (
        tmp_path / "run.csv",
        [trial for trial in optimizer.trials if trial.failure is None],
    )
    for known in (table.write(optimizer.trials, path), table.frame(optimizer.trials)):
        found = known_results(known, optimizer.space, maximize=False).results
        assert repr(found) == repr(
            [(trial.params, (trial.value, trial.measured)) for trial in given]
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x,kind,value\n0.5,a,1\n0.25,b,2,3\n", "line 3 of .*4 fields and the first line has 3"),
        ("x,kind,value\r\n\r\n0.5,a,1,\r\n", "line 3 of .*4 fields"),
        ("x,x,value\n0.5,0.5,1\n", "several columns of one name"),
        ("x,kind\n0.5,a\n", r"has the columns \['x', 'kind'\]"),
        ("x,kind,value\nhalf,a,1\n", "line 2: parameter 'x': .*'half'"),
        ("x,value\n0.5,1\n", r"line 2: params must have .*missing are \['kind'\]"),
        ("x,kind,value\n0.5,a,NA\n", "line 2: value must be a finite number, got 'NA'"),
        ('x,kind,value\n0.5,"a,1\n', "known.csv is not a table"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_with_the_line(tmp_path, text, message):
    path = tmp_path / "known.csv"
    path.write_text(text, newline="")
    with pytest.raises(kbo.InvalidInput, match=message):
        known_results(path, Space({"x": (0.0, 1.0), "kind": ["a", "b"]}), maximize=False)


@pytest.mark.parametrize("read", [lambda path: path, pd.read_csv])
def test_extra_columns_are_ignored_with_one_line_and_fixed_values_filled_in(tmp_path, caplog, read):
    when = kbo.When("on", True, {"rate": (0.0, 1.0), "mode": "fast"})
    path = tmp_path / "known.csv"
    path.write_text(
        "x,note,on,rate,value,comment\n0.5,ok,TRUE,.25,1,\n\n1,,false,,2,good\n", newline=""
    )
    known = known_results(
        read(path), Space([{"x": (0.0, 1.0), "on": bool, "seed": 3}, when]), maximize=False
    ).results
    assert known == [
        ({"x": 0.5, "on": True, "seed": 3, "rate": 0.25, "mode": "fast"}, 1.0),
        ({"x": 1.0, "on": False, "seed": 3}, 2.0),
    ]
    expected = "left out the columns ['note', 'comment'] of evaluated, which are no parameters"
    assert [record.message for record in caplog.records] == [expected]


def test_values_of_fixed_parameters_may_be_left_out_or_given(tmp_path):
    bounds, calls = {"x": (0.0, 1.0), "n": kbo.Int(1, 3), "seed": kbo.Fixed(3), "mode": "fast"}, []
    first = [{"x": 0.5, "n": 2}, {"x": 0.25, "n": 1, "seed": 3}, {"n": 3, "mode": "fast"}]

    def objective(params):
        calls.append(dict(params))
        return params["x"]

    kbo.minimize(objective, bounds, 3, try_first=first, method="random")
    assert [given.items() <= call.items() for given, call in zip(first, calls, strict=True)] == [
        True
    ] * 3
    assert all(list(call) == ["x", "n", "seed", "mode"] for call in calls)
    with pytest.raises(kbo.InvalidInput, match=r"try_first\[0\]: .*'seed': 4 is not one of \[3\]"):
        kbo.minimize(objective, bounds, 3, try_first=[{"x": 0.5, "n": 2, "seed": 4}])
    optimizer = kbo.Optimizer(bounds, method="random")
    assert optimizer.ask(choices=[{"x": 0.5, "n": 1}]) == {
        "x": 0.5,
        "n": 1,
        "seed": 3,
        "mode": "fast",
    }
    assert optimizer.tell({"x": 0.5, "n": 1}, 1.0).asked


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
    result = kbo.minimize(lambda params: params["x"], UNIT, 3, method="random", on_trial=Server())
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
    kbo.minimize(
        lambda params: params["x: (a=b)"],
        {"x: (a=b)": (0.0, 1.0)},
        1,
        method="random",
        on_trial=record,
    )
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
    path, options = tmp_path / "run.jsonl", {place: Failing()} if place else {}

    def objective(params, trial):
        for step in range(1 if trial.number else 2):
            trial.report(1.0, step=step)
        if not place:
            path.unlink()
        return params["x"]

    with pytest.raises(error) as caught:
        kbo.minimize(objective, UNIT, 4, method="random", journal=path, **options)
    assert len(caught.value.trials) == n


def test_a_run_of_nothing_but_failures_is_an_error(tmp_path):
    def objective(params):
        raise ValueError("no data set")

    for _ in range(2):
        with pytest.raises(
            kbo.TooManyFailures, match=r"all 3 trials failed.*ValueError: no data set"
        ):
            kbo.minimize(objective, UNIT, 3, method="random", journal=tmp_path / "run.jsonl")
    table = pd.DataFrame({"x": [0.5], "value": [1.0]})
    known = kbo.minimize(objective, UNIT, 3, evaluated=table, method="random")
    assert known.params == {"x": 0.5}


def test_load_says_what_to_do():
    with pytest.raises(kbo.InvalidInput, match=r"Optimizer\(bounds, ...\).load\(path\)"):
        kbo.Optimizer.load("run.jsonl")
    with pytest.raises(kbo.InvalidInput, match="path must be a path"):
        kbo.Optimizer(UNIT).load()
