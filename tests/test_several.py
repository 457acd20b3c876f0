"""Runs with several objectives: bad input, known results, tables, journals, pages and the command line."""

import copy
import logging
import math
import pickle
import random

import pandas as pd
import pytest
import torch

import kbo
import kbo.report
from kbo.cli.app import app
from kbo.errors import InvalidInput
from kbo.optimize.hypervolume import hypervolume, volumes_so_far
from kbo.report.record import Record
from tests.commands import CliRunner

BOUNDS = {"x": (0.0, 1.0), "kind": ["a", "b"]}
OBJECTIVES = ["error", kbo.Maximize("throughput")]
REFERENCE = {"error": 3.0, "throughput": -1.0}

SCRIPT = """
import kbo
bounds = {"x": (0.0, 1.0), "kind": ["a", "b"]}
objectives = ["error", kbo.Maximize("throughput")]
reference = {"error": 3.0, "throughput": -1.0}

def objective(params):
    offset = 0.2 if params["kind"] == "b" else 0.0
    return {"error": params["x"] ** 2 + offset, "throughput": params["x"]}
"""


def objective(params):
    """Return an error, a throughput and the memory: every x of kind "a" is on the front."""
    offset = {"a": 0.0, "b": 0.2}[params["kind"]]
    x = params["x"]
    return {"error": x**2 + offset, "throughput": x, "memory": 1 + x}


def run(n_trials, function=objective, **options):
    given = {"objectives": OBJECTIVES, "reference": REFERENCE, "progress": False, **options}
    return kbo.minimize(function, BOUNDS, n_trials, **given)


def told(n_trials, **options):
    optimizer = kbo.Optimizer(BOUNDS, objectives=OBJECTIVES, reference=REFERENCE, **options)
    for _ in range(n_trials):
        params = optimizer.ask()
        optimizer.tell(params, objective(params))
    return optimizer


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return run(9, journal=tmp_path_factory.mktemp("several") / "run.jsonl")


def values(result):
    return [(trial.value, trial.measured.get("throughput")) for trial in result.trials]


def numbers_on(front):
    return [point.trial.number for point in front.points]


# Input


def test_a_bad_result_fails_its_trial_and_the_run_goes_on():
    bad = [
        ({"error": 1.0}, "there is no measurement of 'throughput'"),
        ({"throughput": 1.0}, "without an entry 'error'"),
        ({"error": math.nan, "throughput": 1.0}, "nan"),
        ({"error": 1.0, "throughput": math.nan}, "the measurement of 'throughput' is nan"),
        ({"error": 1.0, "speed": 1.0}, "it came with ['speed']"),
        (1.0, "returned 1.0 instead of a dict with ['error', 'throughput']"),
        ((1.0, {"error": 2.0, "throughput": 1.0}), "with two values of 'error'"),
        ((1.0, 2.0), "returned (1.0, 2.0) instead of a dict with ['error', 'throughput']"),
    ]
    bad_results = iter([returned for returned, _ in bad])

    def sometimes(params):
        calls.append(params)
        if len(calls) % 2 == 0:
            return next(bad_results)
        return objective(params)

    calls = []
    result = run(16, sometimes)
    for trial, (returned, reason) in zip(result.trials[1::2], bad, strict=True):
        assert reason in trial.failure
        if isinstance(returned, dict) and returned.get("error") == 1.0:
            assert trial.measured["error"] == 1.0  # nothing that came is lost
    assert all(trial.value is not None for trial in result.trials[::2])
    assert not any(number % 2 for number in numbers_on(result.front))


def test_a_reference_that_nothing_reaches_gives_no_volume_and_says_so():
    result = run(7, reference={"error": -5.0, "throughput": 10.0})
    assert result.hypervolume == (0, 0, 0)
    assert "no trial is better than the reference, error -5, throughput 10" in result.summary()
    result.plot("front")


REFUSED = {
    "reference": [
        {"reference": reference}
        for reference in ({"error": 1.0, "speed": 2.0}, [1.0, 2.0], "ab", {"error": math.nan})
    ],
    "for one objective": [{"pruner": "asha"}, {"stop_when": 0.1}, {"value_range": (0, 1)}],
}


@pytest.mark.parametrize("message", REFUSED)
def test_arguments_that_do_not_fit_are_refused(message):
    for options in REFUSED[message]:
        with pytest.raises(InvalidInput, match=message):
            run(8, **options)


def test_more_than_four_objectives_are_a_warning(caplog):
    names = ["a", "b", "c", "d", "e"]

    def many(params):
        return {name: abs(params["x"] - i / 4) for i, name in enumerate(names)}

    with caplog.at_level(logging.WARNING, logger="kbo"):
        result = run(7, many, objectives=names, reference=None)
    assert "with 5 objectives nearly every trial is on the front" in caplog.text
    assert result.front is not None
    with pytest.raises(InvalidInput, match="nothing to draw for 'history'"):
        result.plot("history")  # the exact hypervolume would take too long


def test_numbers_of_an_objective_may_be_tensors_and_objectives_are_a_list():
    objectives = ["error", kbo.Maximize("throughput", noise_std=torch.tensor(0.5))]
    optimizer = kbo.Optimizer(BOUNDS, objectives=objectives)
    assert optimizer.objectives[1].noise_std == 0.5
    with pytest.raises(InvalidInput, match="objectives must be a list of names"):
        kbo.Optimizer(BOUNDS, objectives=b"ab")


@pytest.mark.parametrize("level", [0.0, 0.5])
def test_points_are_evaluated_again_while_one_of_the_objectives_has_noise(level):
    rng = random.Random(0)

    def function(params):
        return {"error": float(params["n"]), "throughput": -params["n"] + rng.gauss(0, level)}

    space = {"n": kbo.Int(0, 4)}
    result = kbo.minimize(function, space, 10, objectives=OBJECTIVES, progress=False)
    assert result.exact is (level == 0)
    assert (len(result.trials) < 10) is (level == 0)


def test_one_objective_with_noise_means_that_equal_values_of_another_are_a_coincidence(tmp_path):
    options = {"objectives": ["a", "b"], "journal": tmp_path / "run.jsonl", "seed": 1}
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


# Answers


def test_questions_about_one_objective_are_refused(finished):
    questions = {
        "best": finished.optimizer.best,
        "confirm": lambda: finished.confirm(objective, 20),
        "compare": lambda: finished.compare({"x": 0.1, "kind": "a"}),
    }
    for name, question in questions.items():
        with pytest.raises(InvalidInput, match=f"{name} is for one objective"):
            question()
    assert finished.answers is None


def test_an_objective_with_a_limit_only_has_to_keep_it(finished):
    def mean(point, name):
        return point.values[name].mean

    points = finished.front.points
    limits = {"throughput": 0.4}
    least = min(mean(point, "error") for point in points if mean(point, "throughput") >= 0.4)
    assert mean(finished.choose(limits=limits), "error") == least
    largest = max(mean(point, "throughput") for point in points)
    assert mean(finished.choose({"throughput": 1.0}, limits), "throughput") == largest
    assert finished.choose(limits={"error": 9.0, "throughput": -9.0}) == finished.choose()
    with pytest.raises(InvalidInput, match="no point of the front keeps the limits"):
        finished.choose(limits={"error": -9.0})
    for bad in (0, ["error"]):
        with pytest.raises(
            InvalidInput, match=r"weights must be .* give a dict of numbers, by the"
        ):
            finished.front.choose(bad)


def test_predictions_are_of_any_objective(finished):
    params = {"x": 0.5, "kind": "a"}
    lower, mean, upper = finished.predict(params, "throughput")
    assert lower <= mean <= upper
    assert mean == pytest.approx(0.5, abs=0.1)
    assert finished.predict(params) == finished.predict(params, "error")


def test_the_recommended_trial_is_on_the_front():
    rng = random.Random(0)

    def noisy(params):
        return {"error": rng.gauss(0, 1), "throughput": params["x"] + rng.gauss(0, 0.05)}

    def rounded(params):  # all errors are equal but for rounding
        return {"error": 1e16 + params["x"], "throughput": -abs(params["x"] - 0.3)}

    for function, seed in ((noisy, 0), (noisy, 1), (rounded, 0)):
        result = run(8, function, seed=seed, reference=None)
        assert result.front.balanced.trial.number in numbers_on(result.front)
        assert "Balanced  " in result.summary()


@pytest.mark.parametrize("size", [1e300, 5e-324])
def test_the_largest_and_smallest_numbers_have_a_front_and_too_large_ones_no_hypervolume(size):
    def extreme(params):
        return {"error": size * round(3 * params["x"]), "throughput": size * params["x"]}

    result = run(6, extreme, reference=None)
    assert "Front" in result.summary()
    assert (result.hypervolume is None) == (size > 1)
    assert ("Volume" not in result.summary()) == (size > 1)


def test_trials_beyond_a_limit_are_not_on_the_front():
    result = run(8, constraints=[kbo.Constraint("memory", upper=1.5)])
    assert all(point.trial.measured["memory"] <= 1.5 for point in result.front.points)
    assert "memory <= 1.5" in result.summary()


def test_conditional_parameters_have_a_front_and_a_page(tmp_path):
    space = kbo.Space([{"kind": ["a", "b"]}, kbo.When("kind", "b", {"depth": kbo.Int(1, 5)})])

    def tree(params):
        depth = params.get("depth", 0)
        return {"error": 1 / (1 + depth), "throughput": -float(depth)}

    result = kbo.minimize(tree, space, 6, objectives=OBJECTIVES, progress=False)
    assert result.front is not None
    assert "kind=b" in kbo.report.write(result, tmp_path / "run.html").read_text()


def test_one_objective_has_no_front():
    result = kbo.minimize(lambda params: params["x"] ** 2, BOUNDS, 2, progress=False)
    assert result.front is result.hypervolume is None
    assert list(result.to_frame().columns)[:4] == ["number", "status", "value", "seconds"]
    with pytest.raises(InvalidInput, match="there is no front"):
        result.choose()


# Journals, copies, changes


def test_a_journal_resumes_the_run_also_in_a_changed_space(finished, tmp_path):
    path = tmp_path / "run.jsonl"
    run(6, journal=path)
    with pytest.raises(kbo.KboError, match="objectives"):
        run(6, journal=path, objectives=["error", "throughput"])
    assert values(run(9, journal=path)) == values(finished)
    narrower = {**BOUNDS, "x": (0.0, 0.5)}
    options = {"objectives": OBJECTIVES, "reference": REFERENCE, "progress": False}
    result = kbo.minimize(objective, narrower, 10, journal=path, allow_change=True, **options)
    assert all(point.trial.params["x"] <= 0.5 for point in result.front.points)


def test_a_copy_goes_on_as_the_original():
    optimizer = told(7)
    for other in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        assert other.objectives == optimizer.objectives
        assert other.reference == optimizer.reference
        assert other.suggest() == optimizer.suggest()


def test_workers_get_all_objectives():
    result = run(4, workers=kbo.Threads(2))
    for trial in result.trials:
        assert trial.measured["throughput"] == trial.params["x"]


def test_corrected_and_removed_trials_change_the_front():
    optimizer = told(7)
    optimizer.correct(0, {"error": -2.0, "throughput": 0.5})
    with pytest.raises(InvalidInput, match="throughput"):
        optimizer.correct(0, {"error": -2.0})
    trial = optimizer.trials[0]
    assert (trial.value, trial.measured) == (-2.0, {"throughput": 0.5})
    assert 0 in numbers_on(optimizer.insight.front())
    optimizer.remove(0, "a slip")
    assert 0 not in numbers_on(optimizer.insight.front())


# Tables and known results


def test_tables_have_a_column_for_each_objective(finished, tmp_path):
    table = finished.to_frame()
    assert "value" not in table
    assert list(table["measured.error"]) == [trial.value for trial in finished.trials]
    for name in ("throughput", "memory"):
        measured = [trial.measured[name] for trial in finished.trials]
        assert list(table[f"measured.{name}"]) == measured
    finished.to_csv(tmp_path / "trials.csv")
    assert list(pd.read_csv(tmp_path / "trials.csv").columns) == list(table.columns)


@pytest.mark.parametrize("form", ["csv", "jsonl", "plain"])
def test_known_results_are_learned_from(form, finished, tmp_path):
    if form == "csv":
        known = finished.to_csv(tmp_path / "trials.csv")
    elif form == "jsonl":
        known = finished.journal
    else:
        known = pd.DataFrame([{**t.params, **objective(t.params)} for t in finished.trials])
    objectives = [kbo.Maximize("throughput"), kbo.Minimize("error")]
    result = run(1, evaluated=known, objectives=objectives)
    assert len(result.trials) == len(finished.trials) + 1
    for trial, (error, throughput) in zip(result.trials, values(finished), strict=False):
        assert trial.value == pytest.approx(throughput)
        assert trial.measured["error"] == pytest.approx(error)
    assert not [reason for reason in result.left_out if "results" in reason]


def test_an_objective_and_a_limit_may_have_the_name_of_another_column():
    def timed(params):
        x = params["x"]
        return {"seconds": 1 - x, "error": x**2, "objective": x}

    limit = [kbo.Constraint("seconds", upper=2.0)]
    front = {"objectives": ["seconds", "error"], "reference": None}
    for options in (front, {"objectives": (), "reference": None, "constraints": limit}):
        result = run(5, timed, **options)
        again = run(1, timed, evaluated=result.to_frame(), **options)
        for trial, other in zip(again.trials[:5], result.trials, strict=True):
            assert (trial.value, trial.measured) == (other.value, other.measured)
    assert list(result.to_frame()["measured.seconds"]) == [1 - t.params["x"] for t in result.trials]


def test_known_results_without_an_objective_are_refused(finished):
    table = finished.to_frame()
    with pytest.raises(InvalidInput, match="Rename the one with the results to 'error'"):
        run(1, evaluated=table.drop(columns="measured.error"))
    with pytest.raises(InvalidInput, match="no measurement of 'throughput'"):
        run(1, evaluated=table.drop(columns="measured.throughput"))
    for others in (["error", "throughput"], ()):
        with pytest.raises(InvalidInput, match="other objectives: error"):
            run(1, evaluated=finished.journal, objectives=others, reference=None)


# Reports


def test_the_volume_so_far_is_that_of_the_first_trials():
    generator = torch.Generator().manual_seed(0)
    targets = torch.rand(12, 3, generator=generator, dtype=torch.float64)
    reference = torch.full((3,), 0.2, dtype=torch.float64)
    expected = [float(hypervolume(targets[: i + 1], reference)) for i in range(12)]
    assert volumes_so_far(targets, reference) == pytest.approx(expected)


def test_the_full_summary_has_a_line_for_each_setting(finished):
    assert len(finished.summary().splitlines()) <= 8
    full = finished.summary(full=True)
    for point in finished.front.points:
        start = f"trial {point.trial.number} "
        (line,) = [line for line in full.splitlines() if line.startswith(start)]
        assert "on the front with" in line
        assert f"kind={point.trial.params['kind']}" in line
    assert "\ngap" not in full


def test_too_few_trials_are_said_also_on_the_page(tmp_path):
    result = run(1, journal=tmp_path / "run.jsonl")
    assert "unknown: there are too few trials" in result.summary()
    assert "too few trials" in kbo.report.write(tmp_path / "run.jsonl").read_text()


@pytest.mark.parametrize("n_objectives", [2, 3])
def test_the_page_shows_the_front(n_objectives, finished, tmp_path):
    path = finished.journal
    if n_objectives == 3:
        path = tmp_path / "run.jsonl"
        run(6, objectives=[*OBJECTIVES, "memory"], reference=None, journal=path)
    page = kbo.report.write(path, tmp_path / "run.html").read_text()
    assert page.count("and the other trials.") == n_objectives * (n_objectives - 1) // 2
    shown = ["on the front with", "Hypervolume", "Balanced parameters", "smaller is better"]
    assert all(sentence in page for sentence in shown)
    for sentence in ("best observed", "What matters", "None"):
        assert sentence not in page


def test_the_line_of_the_front_is_the_border_of_its_volume(finished):
    assert len(finished.plot().axes) == 2
    volume = finished.hypervolume.mean
    volumes = finished.plot("history").axes[0].lines[0].get_ydata()
    assert list(volumes) == sorted(volumes)
    assert volumes[-1] == pytest.approx(volume, rel=1e-3)
    (axes,) = finished.plot("front").axes
    x, y = axes.lines[0].get_data()
    reference = finished.front.reference
    area = sum((x[1:] - x[:-1]) * (y[:-1] - reference["throughput"]))
    assert area == pytest.approx(volume, rel=1e-3)
    assert (x[-1], y[0]) == (reference["error"], reference["throughput"])
    with pytest.raises(InvalidInput, match="nothing to draw for 'slices'"):
        finished.plot("slices")


def test_the_record_has_the_objectives(finished):
    objectives = [str(objective) for objective in Record.of(finished).objectives]
    assert objectives == ["error (smaller is better)", "throughput (larger is better)"]


# The command line


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "front_script.py").write_text(SCRIPT)
    return tmp_path / "front_script.py"


def invoke(words):
    outcome = CliRunner(env={"COLUMNS": "200"}).invoke(app, words.split())
    return outcome.output + str(outcome.exception or "")


def test_kbo_tune_shows_the_front(script, tmp_path):
    shown = invoke("tune front_script.py -n 6")
    assert "each best for some taste" in shown
    assert "volume=" in shown
    assert (tmp_path / "kbo-runs" / "tune-front_script.png").stat().st_size > 10_000
    journal = "kbo-runs/tune-front_script.jsonl"
    header = invoke(f"journal export {journal}").splitlines()[0]
    assert header.startswith("number,status,seconds")
    assert "measured.error,measured.throughput" in header
    outputs = {
        f"journal show {journal}": "throughput",
        f"tell {journal} 0 0.5": "lacks the measurement of 'throughput'",
        "confirm front_script.py": "confirm is for one objective",
        f"journal correct {journal} 1=0.25 --measured throughput=0.5": "throughput=0.5",
    }
    for command, text in outputs.items():
        assert text in invoke(command)


def test_kbo_tune_refuses_options_for_one_objective(script):
    for option in ("--confirm 9", "--prune asha", "--stop-when 0.1"):
        shown = invoke(f"tune front_script.py -n 8 {option}")
        assert option.split()[0] in shown
        assert "for one objective" in shown


def test_a_script_may_use_the_name_reference_for_something_else(script):
    script.write_text("bounds = [(0.0, 1.0)]\nreference = 3\ndef objective(x): return x[0]\n")
    assert "budget of 3 trials" in invoke("tune front_script.py -n 3")
