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
from tests.parts import once
from tests.test_report import Page

pytest.importorskip("matplotlib")

SPACE = {"lr": kbo.Float(1e-4, 1.0, log=True), "width": kbo.Int(4, 128, log=True)}
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?%?(?![\w.]*\w)")
NOISE = random.Random(1)


def error_rate(params):
    """An error rate in [0, 1] that diverges where the learning rate is large."""
    value = 0.03 + 0.05 * (math.log10(params["lr"]) + 2) ** 2
    value += 0.02 * abs(math.log(params["width"] / 40))
    if params["lr"] > 0.2:
        value += 0.7
    return min(1.0, max(0.0, value + 0.02 * NOISE.gauss(0, 1)))


def pruned(folder):
    """A run of which every fourth trial was stopped early, the last one among them."""
    optimizer = kbo.Optimizer(SPACE, seed=3, journal=folder / "run.jsonl")
    for number in range(12):
        trial = optimizer.begin()
        value = error_rate(trial.params)
        optimizer.report(trial, step=1, value=1.3 * value + 0.01)
        if number % 4 == 3:
            optimizer.prune(trial)
        else:
            optimizer.tell(trial, value, seconds=20.0)
    return result_of(optimizer, "the budget of 12 trials is used", str(folder / "run.jsonl"))


def certified(folder):
    kernel = MaternKernel(nu=2.5).double().initialize(lengthscale=0.3)
    setting = kbo.Certified(kernel, noise_std=0.1, norm_bound=2.0)

    def objective(x):
        return math.sin(3 * x[0]) + NOISE.gauss(0, 0.1)

    return kbo.minimize(objective, [(0.0, 2.0)], 15, setting=setting, seed=2)


def audited(folder):
    rows = []
    for _ in range(30):
        row = {"lr": 10 ** NOISE.uniform(-4, 0), "width": NOISE.randint(4, 128)}
        rows.append({**row, "loss": "" if row["width"] > 120 else error_rate(row)})
    pd.DataFrame(rows).to_csv(folder / "table.csv", index=False)
    return kbo.audit(folder / "table.csv")


@pytest.fixture(autouse=True)
def quick_pages(monkeypatch):
    """Pages without their figures and with few bounds of earlier times, which take most of the time."""
    NOISE.seed(1)
    monkeypatch.setattr(replay, "MOST_MOMENTS", 2)
    monkeypatch.setattr(replay, "_LEAST_MOMENTS", 2)
    monkeypatch.setattr(importance, "_MOST_WALKS", 128)
    picture = Picture("data:,", 1, 1)
    monkeypatch.setattr(pages, "_pictures", lambda group: dict.fromkeys(group, picture))


@pytest.mark.parametrize("run", once([pruned, certified, audited]))
def test_every_number_that_is_printed_is_on_the_page(run, tmp_path):
    result = run(tmp_path)
    path = tmp_path / "page.html"
    if run is audited:
        result.write(path)
    else:
        kbo.report.write(result, path)
    on_page = set(NUMBER.findall(Page(path).text))
    lines = [line for line in str(result).splitlines() if not line.startswith("Details ")]
    assert [number for number in NUMBER.findall("\n".join(lines)) if number not in on_page] == []
    if run is not pruned:
        return
    # The replay ends with the bounds of the run, which a trial without a value has changed last.
    last = kbo.report.history(result)[-1]
    bounds = result.lower, result.value, result.upper
    assert (last.lower, last.mean, last.upper) == pytest.approx(bounds)
    shares = {entry.name: entry.share for entry in kbo.report.importance(result)}
    for effect in result.answers.effects:
        assert effect.share == shares[effect.name]
        if effect.visible:
            ends = [f"{100 * end:.0f}" for end in (effect.share.lower, effect.share.upper)]
            assert f"{effect.name} ({' to '.join(dict.fromkeys(ends))}%)" in str(result)
