"""Data that are off by rounding are used, and what is left out is said in an output that the user sees."""

import json
import math
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import kbo
from kbo.errors import InvalidInput, TooManyFailures
from kbo.space import Space

BOX = {"x": (0.0, 1.0), "y": (0.0, 1.0)}
NUMBERS = {
    "real": (kbo.Float(-3.0, 0.7), [-3.0, 0.7]),
    "log": (kbo.Float(1e-9, 0.1, log=True), [1e-9, 0.1]),
    "grid": (kbo.Float(0.1, 0.7, step=0.1), [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]),
    "whole": (kbo.Int(1, 1000, log=True), list(range(1, 1001))),
    "steps": (kbo.Int(-50, 50, step=5), list(range(-50, 51, 5))),
    "choice": (kbo.Choice([0.1, 1e-5, 300, "auto", None, True]), [0.1, 1e-5, 300]),
    "order": (kbo.Ordinal([1e-3, 1e-2, 0.3]), [1e-3, 1e-2, 0.3]),
    "fixed": (kbo.Fixed(0.1), [0.1]),
}
"""One parameter of each kind, with numbers that it may have: the ends of a range, or all."""


def float32(value):
    return float(np.float32(value))


def by_logarithm(value):
    return float(np.exp(np.log(np.float32(value)))) if value > 0 else value


@pytest.mark.parametrize("name", NUMBERS)
def test_values_that_rounding_has_moved_are_those_of_the_space(name):
    parameter, values = NUMBERS[name]
    for value in values:
        for rounded in (float32(value), by_logarithm(value), value * (1 + 4e-16)):
            for moved in (rounded, np.float32(rounded)):
                within = not parameter.options and parameter.low <= moved <= parameter.high
                assert parameter.plain(moved) == (moved if within else value)


def test_values_that_are_outside_stay_errors():
    for parameter, value in [
        (kbo.Float(0.0, 1.0), 1 + 1e-5),
        (kbo.Float(1e-5, 0.1, log=True), 0.9999e-5),
        (kbo.Float(1e9, 1e9 + 1), 1e9 + 1.5),
        (kbo.Float(0.0, 1.0, step=0.1), 0.15),
        (kbo.Int(0, 10**9), 10**8 + 0.25),
        (kbo.Choice([0.1, 0.1000001]), 0.10000005),
        (kbo.Ordinal([0, 1]), math.nan),
    ]:
        with pytest.raises(InvalidInput, match=r"expected|is not one of"):
            parameter.plain(value)


def test_a_table_of_candidates_has_its_rows_in_every_precision():
    exact = pd.DataFrame({"pH": [0.1, 0.2, 0.7], "metal": ["Fe", "Ni", "Cu"]})
    rough = exact.astype({"pH": "float32"})
    for mine, theirs in ((exact, rough), (rough, exact)):
        space = Space(mine)
        rows = mine.to_dict("records")
        assert [space.canonical(row) for row in theirs.to_dict("records")] == rows
    optimizer = kbo.Optimizer(exact)
    assert optimizer.ask(context={"pH": float32(0.2)}) == {"pH": 0.2, "metal": "Ni"}
    with pytest.raises(InvalidInput, match="row of the table"):
        optimizer.tell({"pH": 0.2001, "metal": "Ni"}, 1.0)


def test_sums_that_exceed_their_limit_by_rounding_violate_nothing():
    limit = kbo.Linear({"a": 1, "b": 1}, upper=0.9)
    space = Space({"a": (0.0, 1.0), "b": (0.0, 1.0)}, [limit])
    on_limit = {"a": float32(0.3), "b": float32(0.6)}
    assert on_limit["a"] + on_limit["b"] > 0.9
    assert space.violated(on_limit) == []
    assert space.violated({"a": 0.3, "b": 0.60001}) == ["a + b <= 0.9"]
    optimizer = kbo.Optimizer(space, setting=kbo.Practical(noise_std=0.0))
    for shift in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5):
        optimizer.tell({"a": on_limit["a"], "b": on_limit["b"] - shift}, shift)
    assert optimizer.recommended().params == on_limit
    assert space.satisfies(space.units([optimizer.ask()])).all()


def test_values_contexts_and_first_points_are_rounded_as_well():
    bounds = {"lr": kbo.Float(1e-5, 0.1, log=True), "n": kbo.Int(1, 4), "rate": [0.1, 0.2, 0.5]}
    rough = {"lr": float32(0.1), "n": 3.0000001, "rate": float32(0.2)}
    exact = {"lr": 0.1, "n": 3, "rate": 0.2}
    optimizer = kbo.Optimizer(bounds, value_range=(0.0, 1.0))
    assert optimizer.tell(rough, 1.0000001).value == 1.0
    assert optimizer.trials[0].params == exact
    assert optimizer.tell(exact, 1.001).status == "failed"
    context = {name: rough[name] for name in ("lr", "rate")}
    assert optimizer.ask(context=context).items() >= {"lr": 0.1, "rate": 0.2}.items()
    assert optimizer.ask(choices=[rough]) == exact
    assert kbo.minimize(lambda p: p["lr"], bounds, 1, try_first=[rough]).trials[0].params == exact


def left_out(**options):
    """Return what the first line of a result says of data that are not used."""
    result = kbo.minimize(lambda p: p["x"], BOX, 1, method="random", **options)
    _, _, texts = str(result).splitlines()[0].partition("; not used: ")
    return texts.split("; ")


def test_what_known_results_are_not_used_is_in_the_text_of_the_result(tmp_path, caplog):
    table = pd.DataFrame(
        {
            "params.x": [0.1, 0.2, 3.0, 0.4],
            "params.y": [0.1] * 4,
            "note": "?",
            "value": [1.0, None, 1.0, 1.0],
            "status": ["complete", "failed", "complete", "complete"],
        }
    )
    path = tmp_path / "table.csv"
    table.to_csv(path, index=False)
    limit = [kbo.Linear({"x": 1}, upper=0.35)]
    caplog.set_level("WARNING", "kbo")
    for given, place in ((table, "row 2"), (path, "line 4")):
        caplog.clear()
        lines = left_out(evaluated=given, constraints=limit)
        assert [line.split(",")[0] for line in lines] == [
            "the columns ['note'] of evaluated",
            "1 trials of evaluated",
            f"1 of 3 known results. {place}: parameter 'x': expected a number in [0",
            "1 of 3 known results of what may be recommended",
        ]
        assert [record.message for record in caplog.records] == [f"left out {x}" for x in lines]
    optimizer = kbo.Optimizer(BOX, journal=tmp_path / "old.jsonl")
    optimizer.tell({"x": 0.5, "y": 0.5}, 1.0)
    optimizer.tell({"x": 0.25, "y": 0.5}, math.nan)
    optimizer.ask()
    optimizer.close()
    (line,) = left_out(evaluated=tmp_path / "old.jsonl")
    assert line.endswith("which have no value. Trial 1: failed. Trial 2: pending.")
    lines = left_out(try_first=[{"x": 0.1}, {"x": 0.2}])
    assert lines == ["1 of 2 points of try_first, for which there was no trial"]


def test_a_parameter_that_is_called_value_has_a_prefix_or_is_refused():
    def known(row):
        bounds = {"value": (0.0, 1.0), "y": (0.0, 1.0)}
        return kbo.Optimizer(bounds, evaluated=pd.DataFrame([row])).trials[0]

    trial = known({"params.value": 0.5, "params.y": 0.25, "value": 3.0})
    assert (trial.params, trial.value) == ({"value": 0.5, "y": 0.25}, 3.0)
    with pytest.raises(InvalidInput, match=r"'value' is a parameter.*'params\.value'"):
        known({"value": 3.0, "y": 0.25})


def test_the_step_of_a_report_is_given_by_name():
    optimizer = kbo.Optimizer(BOX, method="random")
    trial = optimizer.begin()
    with pytest.raises(TypeError, match="positional"):
        optimizer.report(trial, 3, 2)
    with pytest.raises(TooManyFailures, match="positional"):
        kbo.minimize(lambda p, trial: trial.report(3, 2), BOX, 2, method="random")


TALKING = """
bounds = {"x": (0.0, 1.0)}

def objective(params):
    print("x" * 100_000, flush=True)
    return params["x"]
"""


UNWRITTEN = (
    "error: cannot write to standard output (No space left on device): what follows is not shown."
)


@pytest.mark.parametrize(
    ("workers", "end", "code", "said"), [(2, "> /dev/full", 1, UNWRITTEN), (1, "| true", 0, "")]
)
def test_a_run_goes_on_when_its_output_cannot_be_written(tmp_path, workers, end, code, said):
    (tmp_path / "script.py").write_text(TALKING)
    command = f"{sys.executable} -m kbo tune script.py -n 4 --method random -q -j {workers}"
    line = f"set -o pipefail; {command} --journal run.jsonl {end}"
    ended = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == code
    assert ended.stderr.startswith(said)
    assert bool(ended.stderr) == bool(said)
    assert "Traceback" not in ended.stderr
    lines = (tmp_path / "run.jsonl").read_text().splitlines()
    events = [json.loads(line).get("event") for line in lines]
    assert (events.count("tell"), events.count("fail")) == (4, 0)
