"""Runs with several objectives: bad input, known results, tables, journals, pages and the command line."""

import math
import pickle

import pandas as pd
import pytest

import kbo
from kbo.errors import InvalidInput
from tests.commands import kbo as kbo_command

BOUNDS = {"x": (0.0, 1.0), "kind": ["a", "b"]}
OBJECTIVES = ["error", kbo.Maximize("throughput")]
REFERENCE = {"error": 3.0, "throughput": -1.0}

SCRIPT = """
import kbo
bounds = {"x": (0.0, 1.0)}
objectives = ["error", kbo.Maximize("throughput")]
reference = {"error": 3.0, "throughput": -1.0}

def objective(params):
    return {"error": params["x"] ** 2, "throughput": params["x"]}
"""


def objective(params):
    """Return an error, a throughput and the memory: every x of kind "a" is on the front."""
    offset = {"a": 0.0, "b": 0.2}[params["kind"]]
    x = params["x"]
    return {"error": x**2 + offset, "throughput": x, "memory": 1 + x}


def run(n_trials, function=objective, bounds=BOUNDS, **options):
    given = {"objectives": OBJECTIVES, "reference": REFERENCE, "progress": False, **options}
    return kbo.minimize(function, bounds, n_trials, **given)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return run(9, journal=tmp_path_factory.mktemp("several") / "run.jsonl")


def values(result):
    return [(trial.value, trial.measured.get("throughput")) for trial in result.trials]


def numbers_on(front):
    return [point.trial.number for point in front.points]


# Input


def test_a_bad_result_fails_its_trial_and_the_run_goes_on():
    good = {"error": 1.0, "throughput": 1.0}
    bad = {
        "there is no measurement of 'throughput'": {"error": 1.0},
        "without an entry 'error'": {"throughput": 1.0},
        "the measurement of 'throughput' is nan": {"error": 1.0, "throughput": math.nan},
        "returned 1.0 instead of a dict with ['error', 'throughput']": 1.0,
        "with two values of 'error'": (1.0, good),
    }
    results = iter([good, *bad.values()])
    trials = run(6, lambda params: next(results), max_failures=9).trials
    assert trials[0].value == 1.0
    for trial, reason in zip(trials[1:], bad, strict=True):
        assert reason in trial.failure
    assert trials[1].measured == {"error": 1.0}  # nothing that came is lost


def test_one_objective_with_noise_means_that_equal_values_of_another_are_a_coincidence():
    optimizer = kbo.Optimizer([(0.0, 1.0)], objectives=["a", "b"], seed=1)
    for i, x in enumerate([0.1, 0.3, 0.5, 0.7, 0.9, 0.5, 0.2, 0.4]):
        optimizer.tell([x], {"a": x, "b": 1 - x + 0.01 * (i == 5)})
    assert optimizer.insight.quantities.noiseless() is False
    for point in optimizer.insight.front().points:
        assert point.values["a"].lower < point.values["a"].upper


# Answers


def test_questions_about_one_objective_are_refused_and_others_are_about_any(finished):
    params = {"x": 0.5, "kind": "a"}
    questions = {
        "best": finished.optimizer.best,
        "confirm": lambda: finished.confirm(objective, 20),
        "compare": lambda: finished.compare(params),
    }
    for name, question in questions.items():
        with pytest.raises(InvalidInput, match=f"{name} is for one objective"):
            question()
    lower, mean, upper = finished.interval(params, "throughput")
    assert lower <= mean <= upper
    assert mean == pytest.approx(0.5, abs=0.1)
    assert finished.interval(params) == finished.interval(params, "error")
    other = pickle.loads(pickle.dumps(finished.optimizer))
    assert other.suggest() == finished.optimizer.suggest()


def test_an_objective_with_a_limit_only_has_to_keep_it(finished):
    def mean(point, name):
        return point.values[name].value

    points = finished.front.points
    limits = {"throughput": 0.4}
    least = min(mean(point, "error") for point in points if mean(point, "throughput") >= 0.4)
    assert mean(finished.choose(limits=limits), "error") == least
    largest = max(mean(point, "throughput") for point in points)
    assert mean(finished.choose({"throughput": 1.0}, limits), "throughput") == largest
    with pytest.raises(InvalidInput, match="no point of the front keeps the limits"):
        finished.choose(limits={"error": -9.0})
    with pytest.raises(InvalidInput, match=r"weights must be .* give a dict of numbers"):
        finished.front.choose(0)


def test_the_recommended_trial_is_on_the_front():
    def rounded(params):  # all errors are equal but for rounding
        return {"error": 1e16 + params["x"], "throughput": -abs(params["x"] - 0.3)}

    result = run(6, rounded, reference=None)
    assert result.front.balanced.trial.number in numbers_on(result.front)
    assert "Balanced  " in result.summary()


def test_a_journal_resumes_the_run_also_in_a_changed_space(finished, tmp_path):
    path = tmp_path / "run.jsonl"
    run(6, journal=path)
    with pytest.raises(kbo.KboError, match="objectives"):
        run(6, journal=path, objectives=["error", "throughput"])
    assert values(run(7, journal=path)) == values(finished)[:7]
    result = run(8, bounds={**BOUNDS, "x": (0.0, 0.5)}, journal=path, allow_change=True)
    assert all(point.trial.params["x"] <= 0.5 for point in result.front.points)


def test_corrected_and_removed_trials_change_the_front():
    optimizer = kbo.Optimizer(BOUNDS, objectives=OBJECTIVES)
    for number in range(7):
        params = {"x": number / 7, "kind": "b"}
        optimizer.tell(params, objective(params))
    optimizer.correct(0, {"error": -2.0, "throughput": 0.5})
    with pytest.raises(InvalidInput, match="throughput"):
        optimizer.correct(0, {"error": -2.0})
    assert optimizer.trials[0].measured == {"throughput": 0.5}
    assert 0 in numbers_on(optimizer.insight.front())
    optimizer.remove(0, "a slip")
    assert 0 not in numbers_on(optimizer.insight.front())


# Tables and known results


def test_known_results_are_learned_from(finished, tmp_path):
    table = finished.to_frame()
    assert "value" not in table
    plain = pd.DataFrame([{**t.params, **objective(t.params)} for t in finished.trials])
    objectives = [kbo.Maximize("throughput"), kbo.Minimize("error")]
    for known in (finished.to_csv(tmp_path / "trials.csv"), finished.journal, plain):
        trials = kbo.Optimizer(BOUNDS, evaluated=known, objectives=objectives).trials
        for trial, (error, throughput) in zip(trials, values(finished), strict=True):
            assert trial.value == pytest.approx(throughput)
            assert trial.measured["error"] == pytest.approx(error)
    with pytest.raises(InvalidInput, match="Rename the one with the results to 'error'"):
        run(1, evaluated=table.drop(columns="measured.error"))
    with pytest.raises(InvalidInput, match="no measurement of 'throughput'"):
        run(1, evaluated=table.drop(columns="measured.throughput"))
    with pytest.raises(InvalidInput, match="other objectives: error"):
        run(1, evaluated=finished.journal, objectives=["error", "throughput"], reference=None)


# Reports


def test_the_summary_and_the_page_show_the_front(finished, tmp_path):
    assert len(finished.summary().splitlines()) <= 8
    full = finished.summary(full=True)
    for point in finished.front.points:
        assert f"\ntrial {point.trial.number} " in full
    page = kbo.report.write(finished.journal, tmp_path / "run.html").read_text()
    shown = ["on the front with", "Hypervolume", "Balanced parameters", "smaller is better"]
    assert all(sentence in page for sentence in shown)
    for sentence in ("best observed", "What matters", "None"):
        assert sentence not in page
    assert "unknown: there are too few trials" in run(1).summary()


def test_the_line_of_the_front_is_the_border_of_its_volume(finished):
    (axes,) = finished.plot("front").axes
    x, y = axes.lines[0].get_data()
    area = sum((x[1:] - x[:-1]) * (y[:-1] - finished.front.reference["throughput"]))
    assert area == pytest.approx(finished.hypervolume.value, rel=1e-3)
    volumes = finished.plot("history").axes[0].lines[0].get_ydata()
    assert volumes[-1] == pytest.approx(area, rel=1e-3)


# The command line


def test_kbo_tune_shows_the_front(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    journal = "kbo-runs/tune-script.jsonl"
    printed = kbo_command("tune", script, "-n", 4).stdout
    assert "none better than another in every objective" in printed
    advice = f'kbo.audit("{journal}").result.choose(limits=...) picks one'
    assert advice in printed
    assert advice in kbo_command("audit", journal).stdout
    assert "measured.error,measured" in kbo_command("journal", "export", journal).stdout
    for command, text in (
        (["confirm", script], "confirm is for one objective"),
        (["tune", script, "-n", 8, "--prune", "asha"], "for one objective"),
    ):
        assert text in kbo_command(*command, code=1).stderr
    # A script may use the name for something else.
    script.write_text("bounds = [(0.0, 1.0)]\nreference = 3\ndef objective(x): return x[0]\n")
    assert "budget of 3 trials" in kbo_command("tune", script, "-n", 3, "--fresh").stdout
