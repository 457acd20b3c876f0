"""Every number that the terminal shows of a run is on its page, and one quantity has one value there."""

import math
import random
import re

import pandas as pd
import pytest
from gpytorch.kernels import MaternKernel

import kbo
from kbo.optimize.insight import importance
from kbo.optimize.result import result_of
from kbo.report import page as pages
from kbo.report import replay
from kbo.report.rendering import Picture
from tests.test_report import Page

pytest.importorskip("matplotlib")

SPACE = {"lr": kbo.Float(1e-4, 1.0, log=True), "width": kbo.Int(4, 128, log=True)}
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?%?(?![\w.]*\w)")


def error_rate(seed, noise=0.02):
    """An error rate in [0, 1] that diverges where the learning rate is large."""
    rng = random.Random(seed)

    def objective(params):
        value = 0.03 + 0.05 * (math.log10(params["lr"]) + 2) ** 2
        value += 0.02 * abs(math.log(params["width"] / 40))
        if params["lr"] > 0.2:
            value += 0.7
        return min(1.0, max(0.0, value + noise * rng.gauss(0, 1)))

    return objective


def tuned(folder, noise=0.02, **options):
    return kbo.minimize(error_rate(1, noise), SPACE, 12, journal=folder / "run.jsonl", **options)


def maximised(folder):
    objective = error_rate(1)
    return kbo.maximize(lambda params: -objective(params), SPACE, 12, journal=folder / "run.jsonl")


def pruned(folder):
    """A run of which every fourth trial was stopped early, the last one among them."""
    optimizer = kbo.Optimizer(SPACE, seed=3, journal=folder / "run.jsonl")
    objective = error_rate(3)
    for number in range(16):
        trial = optimizer.begin()
        value = objective(trial.params)
        optimizer.report(trial, step=1, value=1.3 * value + 0.01)
        if number % 4 == 3:
            optimizer.prune(trial)
        else:
            optimizer.tell(trial, value, seconds=20.0)
    return result_of(optimizer, "the budget of 16 trials is used", str(folder / "run.jsonl"))


def limited(folder):
    objective = error_rate(2)

    def measured(params):
        if params["width"] > 100:
            raise ValueError("out of memory at 1234 MB")
        return objective(params), {"memory": 10.0 * params["width"]}

    limit = kbo.Constraint("memory", upper=700.0)
    return kbo.minimize(measured, SPACE, 16, constraints=[limit], journal=folder / "run.jsonl")


def certified(folder):
    kernel = MaternKernel(nu=2.5).double().initialize(lengthscale=0.3)
    rng = random.Random(0)
    setting = kbo.Certified(kernel, noise_std=0.1, norm_bound=2.0)

    def objective(x):
        return math.sin(3 * x[0]) + rng.gauss(0, 0.1)

    return kbo.minimize(objective, [(0.0, 2.0)], 15, setting=setting, seed=2)


def audited(folder):
    rng = random.Random(0)
    rows = []
    for seed in range(30):
        row = {"lr": 10 ** rng.uniform(-4, 0), "width": rng.randint(4, 128)}
        value = "" if row["width"] > 120 else error_rate(seed)(row)
        rows.append({**row, "loss": value})
    pd.DataFrame(rows).to_csv(folder / "table.csv", index=False)
    return kbo.audit(folder / "table.csv")


KNOWN = pd.DataFrame([{"lr": 0.01, "width": 8, "value": 0.2}])
RUNS = {
    "maximised": maximised,
    "stopped early": pruned,
    "certified": certified,
    "audit": audited,
}
MORE_RUNS = {
    "without noise": lambda folder: tuned(folder, 0.0),
    "in a range": lambda folder: tuned(folder, value_range=(0.0, 1.0)),
    "known results": lambda folder: tuned(folder, evaluated=KNOWN),
    "limits and failures": limited,
}


@pytest.fixture(autouse=True)
def quick_pages(monkeypatch):
    """Pages without their figures and with few bounds of earlier times, which take most of the time."""
    monkeypatch.setattr(replay, "MOST_MOMENTS", 2)
    monkeypatch.setattr(replay, "_LEAST_MOMENTS", 2)
    monkeypatch.setattr(importance, "_MOST_WALKS", 128)
    monkeypatch.setattr(
        pages, "_pictures", lambda group: dict.fromkeys(group, Picture("data:,", 1, 1))
    )


@pytest.mark.parametrize(
    "run",
    [
        *RUNS.values(),
        *(pytest.param(run, marks=pytest.mark.thorough) for run in MORE_RUNS.values()),
    ],
    ids=[*RUNS, *MORE_RUNS],
)
def test_every_number_that_is_printed_is_on_the_page(run, tmp_path):
    result = run(tmp_path)
    path = tmp_path / "page.html"
    if isinstance(result, kbo.Result):
        kbo.report.write(result, path)
    else:
        result.write(path)
    on_page = set(NUMBER.findall(Page(path).text))
    lines = [line for line in str(result).splitlines() if not line.startswith("Details ")]
    assert [number for number in NUMBER.findall("\n".join(lines)) if number not in on_page] == []


def test_the_importance_on_the_page_is_that_which_is_printed(tmp_path):
    result = tuned(tmp_path)
    on_page = {entry.name: entry.share for entry in kbo.report.importance(result)}
    for effect in result.answers.effects:
        assert effect.share == on_page[effect.name]
        if effect.visible:
            assert f"{effect.name} ({effect.share.value:.0%})" in str(result)


@pytest.mark.parametrize("run", [pruned, limited])
def test_the_replay_of_a_run_ends_with_its_own_bounds(run, tmp_path):
    """Also where trials without a value have changed them after the last value."""
    result = run(tmp_path)
    last = kbo.report.history(result)[-1]
    bounds = result.lower, result.value, result.upper
    assert (last.lower, last.mean, last.upper) == pytest.approx(bounds)
