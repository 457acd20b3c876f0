"""Runs with several objectives: bad input, known results, tables, journals, pages and the command line."""

from __future__ import annotations

import copy
import logging
import math
import pickle
import random
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import kbo
import kbo.report
from kbo.cli.app import app
from kbo.errors import InvalidInput
from kbo.optimize.hypervolume import hypervolume, volumes_so_far
from kbo.optimize.objective import Maximize, Minimize, targets_of
from kbo.optimize.table import by_name
from kbo.report.record import Record

BOUNDS: dict[str, Any] = {"x": (0.0, 1.0), "kind": ["a", "b"]}
OBJECTIVES: list[Any] = ["error", kbo.Maximize("throughput")]
REFERENCE = {"error": 3.0, "throughput": -1.0}

SCRIPT = """
import kbo
bounds = {"x": (0.0, 1.0), "kind": ["a", "b"]}
objectives = ["error", kbo.Maximize("throughput")]
reference = {"error": 3.0, "throughput": -1.0}

def objective(params):
    offset = 0.2 if params["kind"] == "b" else 0.0
    return {"error": params["x"] ** 2 + offset, "throughput": params["x"], "memory": 1 + params["x"]}
"""


def objective(params: Any) -> dict[str, float]:
    """Return an error, a throughput and the memory: every x of kind "a" is on the front."""
    offset = 0.2 if params["kind"] == "b" else 0.0
    x = params["x"]
    return {"error": x**2 + offset, "throughput": x, "memory": 1 + x}


def run(n_trials: int = 8, function: Any = objective, **options: Any) -> kbo.Result:
    given = {"objectives": OBJECTIVES, "reference": REFERENCE, "progress": False, **options}
    return kbo.minimize(function, BOUNDS, n_trials, **given)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> kbo.Result:
    return run(10, journal=tmp_path_factory.mktemp("several") / "run.jsonl")


def values(result: kbo.Result) -> list[tuple[float | None, float | None]]:
    return [(trial.value, trial.measured.get("throughput")) for trial in result.trials]


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        ({"error": 1.0}, "there is no measurement of 'throughput'"),
        ({"throughput": 1.0}, "without an entry 'error'"),
        ({"error": math.nan, "throughput": 1.0}, "nan"),
        ({"error": 1.0, "throughput": math.nan}, "the measurement of 'throughput' is nan"),
        ({"error": 1.0, "speed": 1.0}, "it came with ['speed']"),
        (1.0, "returned 1.0 instead of a dict with ['error', 'throughput']"),
        ((1.0, {"error": 2.0, "throughput": 1.0}), "with two values of 'error'"),
        ((1.0, 2.0), "returned (1.0, 2.0) instead of a dict with ['error', 'throughput']"),
    ],
)
def test_a_bad_result_fails_its_trial_and_the_run_goes_on(returned: Any, reason: str) -> None:
    def sometimes(params: Any) -> Any:
        calls.append(params)
        if len(calls) == 2:
            return returned
        return objective(params)

    calls: list[Any] = []
    result = run(8, function=sometimes)
    assert [trial.status for trial in result.trials].count("failed") == 1
    assert reason in str(result.trials[1].failure)
    assert sum(trial.value is not None for trial in result.trials) == 7
    if isinstance(returned, dict) and returned.get("error") == 1.0:
        assert result.trials[1].measured["error"] == 1.0  # nothing that came is lost
    assert result.front is not None
    assert 1 not in [point.trial.number for point in result.front.points]


def test_a_reference_that_nothing_reaches_gives_no_volume_and_says_so() -> None:
    result = run(7, reference={"error": -5.0, "throughput": 10.0})
    assert result.hypervolume == (0, 0, 0)
    assert "no trial is better than the reference, error -5, throughput 10" in result.summary()
    result.plot("front")


@pytest.mark.parametrize(
    "reference", [{"error": 1.0, "speed": 2.0}, [1.0, 2.0], "ab", {"error": math.nan}]
)
def test_a_reference_that_does_not_fit_is_refused(reference: Any) -> None:
    with pytest.raises(InvalidInput, match="reference"):
        run(reference=reference)


def test_more_than_four_objectives_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    names = ["a", "b", "c", "d", "e"]

    def many(params: Any) -> dict[str, float]:
        return {name: abs(params["x"] - i / 4) for i, name in enumerate(names)}

    with caplog.at_level(logging.WARNING, logger="kbo"):
        result = run(7, function=many, objectives=names, reference=None)
    assert "with 5 objectives nearly every trial is on the front" in caplog.text
    assert result.front is not None
    with pytest.raises(InvalidInput, match="nothing to draw for 'history'"):
        result.plot("history")  # the exact hypervolume would take too long


def test_numbers_of_an_objective_may_be_tensors() -> None:
    number: Any = torch.tensor(0.5)
    objectives = ["error", kbo.Maximize("throughput", noise_std=number)]
    optimizer = kbo.Optimizer(BOUNDS, objectives=objectives)
    assert optimizer.objectives[1].noise_std == 0.5
    with pytest.raises(InvalidInput, match="objectives must be a list of names"):
        kbo.Optimizer(BOUNDS, objectives=b"ab")
    front = run(6).front
    assert front is not None
    for bad in (0, ["error"]):
        with pytest.raises(
            InvalidInput, match=r"weights must be .* give a dict of numbers, by the"
        ):
            front.choose(bad)  # pyright: ignore


@pytest.mark.parametrize("name", ["pruner", "stop_when", "value_range"])
def test_arguments_for_one_objective_are_refused(name: str) -> None:
    argument: Any = {"pruner": "asha", "stop_when": 0.1, "value_range": (0, 1)}[name]
    with pytest.raises(InvalidInput, match="for one objective"):
        run(**{name: argument})


def test_points_are_evaluated_again_while_one_of_the_objectives_has_noise() -> None:
    normal = random.Random(0).gauss

    def half_exact(params: Any) -> dict[str, float]:
        return {"error": float(params["n"]), "throughput": -params["n"] + normal(0, 0.5)}

    def exact(params: Any) -> dict[str, float]:
        return {"error": float(params["n"]), "throughput": -float(params["n"])}

    space = {"n": kbo.Int(0, 5)}
    options: Any = {"objectives": OBJECTIVES, "progress": False}
    result = kbo.minimize(half_exact, space, 14, **options)
    assert len(result.trials) == 14
    assert result.exact is False
    result = kbo.minimize(exact, space, 14, **options)
    assert len(result.trials) < 14
    assert result.exact is True


def test_questions_about_one_objective_are_refused(finished: kbo.Result) -> None:
    with pytest.raises(InvalidInput, match="best is for one objective"):
        finished.optimizer.best()
    with pytest.raises(InvalidInput, match="confirm is for one objective, and this run has 2"):
        finished.confirm(objective, 20)
    with pytest.raises(InvalidInput, match="compare is for one objective"):
        finished.compare({"x": 0.1, "kind": "a"})
    assert finished.answers is None


def test_an_objective_with_a_limit_only_has_to_keep_it(finished: kbo.Result) -> None:
    assert finished.front is not None
    limits = {"throughput": 0.4}
    kept = [p for p in finished.front.points if p.values["throughput"].mean >= 0.4]
    chosen = finished.choose(limits=limits)
    assert chosen.values["error"].mean == min(point.values["error"].mean for point in kept)
    weighted = finished.choose({"throughput": 1.0}, limits)
    largest = max(point.values["throughput"].mean for point in kept)
    assert weighted.values["throughput"].mean == largest
    assert finished.choose(limits={"error": 9.0, "throughput": -9.0}) == finished.choose()
    with pytest.raises(InvalidInput, match="no point of the front keeps the limits"):
        finished.choose(limits={"error": -9.0})


def test_predictions_are_of_any_objective(finished: kbo.Result) -> None:
    at = {"x": 0.5, "kind": "a"}
    interval = finished.predict(at, "throughput")
    assert interval is not None
    lower, mean, upper = interval
    assert lower <= mean <= upper
    assert mean == pytest.approx(0.5, abs=0.1)
    assert finished.predict(at) == finished.predict(at, "error")


# Journals, copies, changes


def test_a_journal_resumes_the_run(tmp_path: Path) -> None:
    whole = run(9)
    run(6, journal=tmp_path / "run.jsonl")
    assert values(run(9, journal=tmp_path / "run.jsonl")) == values(whole)


def test_a_journal_of_other_objectives_is_refused(tmp_path: Path) -> None:
    run(6, journal=tmp_path / "run.jsonl")
    with pytest.raises(kbo.KboError, match="objectives"):
        run(6, journal=tmp_path / "run.jsonl", objectives=["error", "throughput"])


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_a_copy_goes_on_as_the_original(duplicate: Any) -> None:
    optimizer = kbo.Optimizer(BOUNDS, objectives=OBJECTIVES, reference=REFERENCE)
    for _ in range(7):
        params = optimizer.ask()
        optimizer.tell(params, objective(params))
    other = duplicate(optimizer)
    assert other.objectives == optimizer.objectives
    assert other.reference == optimizer.reference
    assert other.ask() == optimizer.ask()


def test_workers_get_all_objectives() -> None:
    result = run(8, workers=kbo.Threads(2))
    xs = [by_name(trial.params)["x"] for trial in result.trials]
    assert [trial.measured["throughput"] for trial in result.trials] == xs
    assert result.front is not None


def test_corrected_and_removed_trials_change_the_front() -> None:
    optimizer = kbo.Optimizer(BOUNDS, objectives=OBJECTIVES, reference=REFERENCE)
    for _ in range(8):
        params = optimizer.ask()
        optimizer.tell(params, objective(params))
    optimizer.correct(0, {"error": -2.0, "throughput": 0.5})
    assert optimizer.trials[0].value == -2.0
    assert optimizer.trials[0].measured == {"throughput": 0.5}
    with pytest.raises(InvalidInput, match="throughput"):
        optimizer.correct(0, {"error": -2.0})
    assert optimizer.trials[0].value == -2.0
    front = optimizer.insight.front()
    assert front is not None
    assert 0 in [point.trial.number for point in front.points]
    optimizer.remove(0, "a slip")
    front = optimizer.insight.front()
    assert front is not None
    assert 0 not in [point.trial.number for point in front.points]


def test_the_recommended_trial_is_on_the_front() -> None:
    normal = random.Random(0).gauss

    def noisy(params: Any) -> dict[str, float]:
        return {"error": normal(0, 1), "throughput": params["x"] + normal(0, 0.05)}

    def rounded(params: Any) -> dict[str, float]:  # all errors are equal but for rounding
        return {"error": 1e16 + params["x"], "throughput": -abs(params["x"] - 0.3)}

    for function in (noisy, rounded):
        for seed in range(5):
            result = run(9, function, seed=seed, reference=None)
            assert result.front is not None
            numbers = [point.trial.number for point in result.front.points]
            assert result.front.balanced.trial.number in numbers
            assert "Balanced  " in result.summary()


def test_a_hypervolume_beyond_the_largest_number_is_unknown() -> None:
    def huge(params: Any) -> dict[str, float]:
        return {"error": 1e300 * params["x"], "throughput": 1e300 * params["x"]}

    result = run(8, huge, reference=None)
    assert result.front is not None
    assert result.hypervolume is None
    assert "Volume" not in result.summary()


def test_a_front_of_the_smallest_numbers_has_a_summary() -> None:
    def tiny(params: Any) -> dict[str, float]:
        return {"error": 5e-324 * round(3 * params["x"]), "throughput": params["x"]}

    assert "Front" in run(8, tiny, reference=None).summary()


def test_a_changed_space_goes_on(tmp_path: Path) -> None:
    run(7, journal=tmp_path / "run.jsonl")
    narrower = {"x": (0.0, 0.5), "kind": ["a", "b"]}
    options: Any = {"objectives": OBJECTIVES, "reference": REFERENCE, "progress": False}
    result = kbo.minimize(
        objective, narrower, 9, journal=tmp_path / "run.jsonl", allow_change=True, **options
    )
    assert result.front is not None
    assert all(by_name(point.trial.params)["x"] <= 0.5 for point in result.front.points)


def test_trials_beyond_a_limit_are_not_on_the_front() -> None:
    limit = kbo.Constraint("memory", upper=1.5)
    result = run(10, constraints=[limit])
    assert result.front is not None
    assert all(point.trial.measured["memory"] <= 1.5 for point in result.front.points)
    assert "memory <= 1.5" in result.summary()


def test_conditional_parameters_have_a_front_and_a_page(tmp_path: Path) -> None:
    space = kbo.Space([{"kind": ["a", "b"]}, kbo.When("kind", "b", {"depth": kbo.Int(1, 5)})])

    def tree(params: Any) -> dict[str, float]:
        depth = params.get("depth", 0)
        return {"error": 1 / (1 + depth), "throughput": -float(depth)}

    result = kbo.minimize(tree, space, 6, objectives=OBJECTIVES, progress=False)
    assert result.front is not None
    assert "kind=b" in kbo.report.write(result, tmp_path / "run.html").read_text()


def test_one_objective_is_as_before() -> None:
    result = kbo.minimize(lambda params: params["x"] ** 2, BOUNDS, 6, progress=False)
    assert result.front is None
    assert result.hypervolume is None
    assert list(result.to_frame().columns)[:4] == ["number", "status", "value", "seconds"]
    with pytest.raises(InvalidInput, match="there is no front"):
        result.choose()


# Tables and known results


def test_tables_have_a_column_for_each_objective(finished: kbo.Result, tmp_path: Path) -> None:
    table = finished.to_frame()
    assert "value" not in table
    assert list(table["measured.error"]) == [trial.value for trial in finished.trials]
    for name in ("throughput", "memory"):
        measured = [trial.measured[name] for trial in finished.trials]
        assert list(table[f"measured.{name}"]) == measured
    finished.to_csv(tmp_path / "trials.csv")
    assert list(pd.read_csv(tmp_path / "trials.csv").columns) == list(table.columns)


@pytest.mark.parametrize("form", ["frame", "csv", "jsonl", "plain"])
def test_known_results_are_learned_from(form: str, finished: kbo.Result, tmp_path: Path) -> None:
    known: Any = finished.to_frame()
    if form == "csv":
        known = finished.to_csv(tmp_path / "trials.csv")
    elif form == "jsonl":
        known = finished.journal
    elif form == "plain":
        rows = [{**by_name(trial.params), **objective(trial.params)} for trial in finished.trials]
        known = pd.DataFrame(rows)
    reversed_objectives = [kbo.Maximize("throughput"), kbo.Minimize("error")]
    result = run(1, evaluated=known, objectives=reversed_objectives)
    assert len(result.trials) == len(finished.trials) + 1
    for trial, earlier in zip(result.trials, finished.trials, strict=False):
        assert (trial.value, trial.measured["error"]) == (
            pytest.approx(earlier.measured["throughput"]),
            pytest.approx(earlier.value),
        )
    assert not [reason for reason in result.left_out if "results" in reason]


def test_an_objective_may_have_the_name_of_another_column() -> None:
    def timed(params: Any) -> dict[str, float]:
        return {"error": params["x"] ** 2, "seconds": 1 - params["x"]}

    result = run(6, function=timed, objectives=["seconds", "error"], reference=None)
    table = result.to_frame()
    assert list(table["measured.seconds"]) == [trial.value for trial in result.trials]
    again = run(1, function=timed, objectives=["seconds", "error"], reference=None, evaluated=table)
    assert [trial.value for trial in again.trials[:6]] == [trial.value for trial in result.trials]


def test_a_limit_may_have_the_name_of_another_column() -> None:
    def timed(params: Any) -> dict[str, float]:
        return {"objective": params["x"], "seconds": 1.0}

    limit = kbo.Constraint("seconds", upper=2.0)
    options: Any = {"constraints": [limit], "progress": False}
    result = kbo.minimize(timed, BOUNDS, 5, **options)
    again = kbo.minimize(timed, BOUNDS, 1, evaluated=result.to_frame(), **options)
    assert [trial.measured for trial in again.trials[:5]] == [{"seconds": 1.0}] * 5


def test_known_results_without_an_objective_are_refused(finished: kbo.Result) -> None:
    table = finished.to_frame()
    with pytest.raises(InvalidInput, match="Rename the one with the results to 'error'"):
        run(evaluated=table.drop(columns="measured.error"))
    with pytest.raises(InvalidInput, match="no measurement of 'throughput'"):
        run(evaluated=table.drop(columns="measured.throughput"))
    with pytest.raises(InvalidInput, match="other objectives: error"):
        run(evaluated=finished.journal, objectives=["error", "throughput"])
    with pytest.raises(InvalidInput, match="other objectives: error"):
        kbo.minimize(lambda params: 0.0, BOUNDS, 3, evaluated=finished.journal)


# Reports


def test_the_volume_so_far_is_that_of_the_first_trials() -> None:
    generator = torch.Generator().manual_seed(0)
    targets = torch.rand(12, 3, generator=generator, dtype=torch.float64)
    reference = torch.full((3,), 0.2, dtype=torch.float64)
    expected = [float(hypervolume(targets[: i + 1], reference)) for i in range(12)]
    assert volumes_so_far(targets, reference) == pytest.approx(expected)


def test_targets_have_the_signs_of_the_objectives(finished: kbo.Result) -> None:
    objectives = [Minimize("error"), Maximize("throughput")]
    trial = finished.trials[0]
    ((error, throughput),) = targets_of([trial], objectives).tolist()
    assert (-error, throughput) == (trial.value, trial.measured["throughput"])


def test_the_full_summary_has_a_line_for_each_setting(finished: kbo.Result) -> None:
    assert finished.front is not None
    assert len(finished.summary().splitlines()) <= 8
    full = finished.summary(full=True)
    for point in finished.front.points:
        (line,) = [
            line for line in full.splitlines() if line.startswith(f"trial {point.trial.number} ")
        ]
        assert "on the front with" in line
        assert f"kind={by_name(point.trial.params)['kind']}" in line
    assert "\ngap" not in full


def test_too_few_trials_are_said() -> None:
    assert "unknown: there are too few trials" in run(1).summary()


@pytest.mark.parametrize("n_objectives", [2, 3])
def test_the_page_shows_the_front(n_objectives: int, tmp_path: Path) -> None:
    objectives = [*OBJECTIVES, "memory"][:n_objectives]
    result = run(8, objectives=objectives, reference=None, journal=tmp_path / "run.jsonl")
    page = kbo.report.write(tmp_path / "run.jsonl").read_text()
    assert result.front is not None
    assert page.count("and the other trials.") == n_objectives * (n_objectives - 1) // 2
    for sentence in (
        "on the front with",
        "Hypervolume",
        "Balanced parameters",
        "smaller is better",
    ):
        assert sentence in page
    for sentence in ("best observed", "What matters", "None"):
        assert sentence not in page


def test_pages_of_unfinished_runs(tmp_path: Path) -> None:
    run(1, journal=tmp_path / "run.jsonl")
    assert "too few trials" in kbo.report.write(tmp_path / "run.jsonl").read_text()


def test_figures(finished: kbo.Result) -> None:
    assert len(finished.plot("front").axes) == 1
    assert len(finished.plot().axes) == 2
    volumes = finished.plot("history").axes[0].lines[0].get_ydata()
    assert list(volumes) == sorted(volumes)
    assert finished.hypervolume is not None
    assert volumes[-1] == pytest.approx(finished.hypervolume.mean, rel=1e-3)
    with pytest.raises(InvalidInput, match="nothing to draw for 'slices'"):
        finished.plot("slices")


def test_the_line_of_the_front_is_the_border_of_its_volume(finished: kbo.Result) -> None:
    front = finished.front
    assert front is not None
    border = finished.plot("front").axes[0].lines[0]
    x, y = border.get_data()
    area = 0.0
    for i in range(len(x) - 1):
        area += (x[i + 1] - x[i]) * (y[i] - front.reference["throughput"])
    assert front.hypervolume is not None
    assert area == pytest.approx(front.hypervolume.mean, rel=1e-3)
    assert (x[-1], y[0]) == (front.reference["error"], front.reference["throughput"])


def test_the_record_has_the_objectives(finished: kbo.Result) -> None:
    assert [str(objective) for objective in Record.of(finished).objectives] == [
        "error (smaller is better)",
        "throughput (larger is better)",
    ]


# The command line


def invoke(*words: str) -> str:
    outcome = CliRunner(env={"COLUMNS": "200"}).invoke(app, list(words))
    return outcome.output + str(outcome.exception or "")


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "front_script.py").write_text(SCRIPT)
    return "front_script.py"


def test_kbo_tune_shows_the_front(script: str, tmp_path: Path) -> None:
    shown = invoke("tune", script, "-n", "8")
    assert "each best for some taste" in shown
    assert "volume=" in shown
    assert (tmp_path / "kbo-runs" / "tune-front_script.png").stat().st_size > 10_000
    journal = "kbo-runs/tune-front_script.jsonl"
    header = invoke("journal", "export", journal).splitlines()[0]
    assert header.startswith("number,status,seconds")
    assert "measured.error,measured.throughput" in header
    assert "throughput" in invoke("journal", "show", journal)
    assert "lacks the measurement of 'throughput'" in invoke("tell", journal, "0", "0.5")
    assert "confirm is for one objective" in invoke("confirm", script)
    assert "throughput=0.5" in invoke(
        "journal", "correct", journal, "1=0.25", "--measured", "throughput=0.5"
    )


@pytest.mark.parametrize(
    "option", [["--confirm", "9"], ["--prune", "asha"], ["--stop-when", "0.1"]]
)
def test_kbo_tune_refuses_options_for_one_objective(script: str, option: list[str]) -> None:
    shown = invoke("tune", script, "-n", "8", *option)
    assert option[0] in shown
    assert "for one objective" in shown


def test_a_script_may_use_the_name_reference_for_something_else(script: str) -> None:
    Path(script).write_text(
        "bounds = [(0.0, 1.0)]\nreference = 3\ndef objective(params): return params[0]\n"
    )
    assert "budget of 3 trials" in invoke("tune", script, "-n", "3")


def test_one_objective_with_noise_means_that_equal_values_of_another_are_a_coincidence(tmp_path):
    path = tmp_path / "run.jsonl"
    options = {"objectives": ["a", "b"], "journal": path, "seed": 1}
    optimizer = kbo.Optimizer([(0.0, 1.0)], **options)
    for i, x in enumerate([0.1, 0.3, 0.5, 0.7, 0.9, 0.5, 0.2, 0.4]):
        optimizer.tell([x], {"a": x, "b": 1 - x + 0.01 * (i == 5)})
        optimizer.suggest()
    assert optimizer.insight.quantities.noiseless() is False
    for point in optimizer.insight.front().points:
        assert point.values["a"].lower < point.values["a"].upper
    proposed = optimizer.suggest()
    optimizer.close()
    again = kbo.Optimizer([(0.0, 1.0)], **options)
    assert again.suggest() == proposed
    again.close()
