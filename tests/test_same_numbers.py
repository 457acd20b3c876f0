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
from tests.test_report import checked

pytest.importorskip("matplotlib")

SPACE = {
    "lr": kbo.Float(1e-4, 1.0, log=True),
    "width": kbo.Int(4, 128, log=True),
    "act": ["relu", "tanh"],
}
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?%?(?![\w.]*\w)")


def error_rate(seed, noise):
    """An error rate in [0, 1] that diverges where the learning rate is large."""
    rng = random.Random(seed)

    def objective(params):
        value = (
            0.03
            + 0.05 * (math.log10(params["lr"]) + 2) ** 2
            + 0.02 * abs(math.log(params["width"] / 40))
        )
        if params["lr"] > 0.2:
            value += 0.7
        return min(1.0, max(0.0, value + noise * rng.gauss(0, 1)))

    return objective


def pruned_run(folder):
    """A run of which every fourth trial was stopped early, the last one among them."""
    optimizer = kbo.Optimizer(SPACE, seed=3, journal=folder / "pruned.jsonl")
    objective = error_rate(3, 0.02)
    for number in range(20):
        trial = optimizer.begin()
        value = objective(trial.params)
        optimizer.report(trial, step=1, value=1.3 * value + 0.01)
        if number % 4 == 3:
            optimizer.prune(trial)
        else:
            optimizer.tell(trial, value, seconds=20.0)
    return result_of(optimizer, "the budget of 20 trials is used", str(folder / "pruned.jsonl"))


def tuned(folder, name, noise, maximize=False, **options):
    objective = error_rate(1, noise)
    if maximize:
        return kbo.maximize(
            lambda params: -objective(params),
            SPACE,
            14,
            journal=folder / f"{name}.jsonl",
            **options,
        )
    return kbo.minimize(objective, SPACE, 14, journal=folder / f"{name}.jsonl", **options)


def limited(folder):
    def objective(params):
        if params["width"] > 100:
            raise ValueError("out of memory at 1234 MB")
        return error_rate(2, 0.02)(params), {"memory": 10.0 * params["width"]}

    return kbo.minimize(
        objective,
        SPACE,
        16,
        constraints=[kbo.Constraint("memory", upper=700.0)],
        journal=folder / "limited.jsonl",
    )


def certified(folder):
    kernel = MaternKernel(nu=2.5).double()
    kernel.lengthscale = 0.3
    rng = random.Random(0)
    setting = kbo.Certified(kernel, noise_std=0.1, norm_bound=2.0)
    return kbo.minimize(
        lambda x: math.sin(3 * x[0]) + rng.gauss(0, 0.1), [(0.0, 2.0)], 15, setting=setting, seed=2
    )


def audited(folder):
    rng = random.Random(0)
    path = folder / "table.csv"
    lines = ["lr,width,loss"]
    for _ in range(30):
        lr, width = 10 ** rng.uniform(-4, 0), rng.randint(4, 128)
        value = "" if width > 120 else error_rate(rng.random(), 0.02)({"lr": lr, "width": width})
        lines.append(f"{lr},{width},{value}")
    path.write_text("\n".join(lines))
    return kbo.audit(path)


KNOWN = pd.DataFrame([{"lr": 0.01, "width": 8, "act": "relu", "value": 0.2}])

RUNS = {
    "minimised": lambda folder: tuned(folder, "minimised", 0.02),
    "maximised": lambda folder: tuned(folder, "maximised", 0.02, maximize=True),
    "minimised without noise": lambda folder: tuned(folder, "exact", 0.0),
    "maximised without noise": lambda folder: tuned(folder, "exact-max", 0.0, maximize=True),
    "in a range": lambda folder: tuned(folder, "range", 0.02, value_range=(0.0, 1.0)),
    "known results": lambda folder: tuned(folder, "known", 0.02, evaluated=KNOWN),
    "stopped early": pruned_run,
    "limits and failures": limited,
    "certified": certified,
    "audit": audited,
}


def printed_numbers(result):
    """The numbers that the terminal shows, without paths."""
    lines = [line for line in str(result).splitlines() if not line.startswith("Details ")]
    return NUMBER.findall("\n".join(lines))


OFTEN = ("maximised", "stopped early", "certified", "audit")
CASES = [pytest.param(name, marks=() if name in OFTEN else pytest.mark.thorough) for name in RUNS]


@pytest.fixture(autouse=True)
def quick_pages(monkeypatch):
    """Pages without their figures and with few bounds of earlier times, which take most of the time."""
    monkeypatch.setattr(replay, "MOST_MOMENTS", 2)
    monkeypatch.setattr(replay, "_LEAST_MOMENTS", 2)
    monkeypatch.setattr(importance, "_MOST_WALKS", 128)
    monkeypatch.setattr(
        pages, "_pictures", lambda group: dict.fromkeys(group, Picture("data:,", 1, 1))
    )


@pytest.mark.parametrize("name", CASES)
def test_every_number_that_is_printed_is_on_the_page(name, tmp_path):
    result = RUNS[name](tmp_path)
    path = tmp_path / "page.html"
    if isinstance(result, kbo.Result):
        kbo.report.write(result, path)
    else:
        result.write(path)
    page = checked(path)
    on_page = set(NUMBER.findall(page.text))
    missing = [number for number in printed_numbers(result) if number not in on_page]
    assert missing == []


def test_the_importance_on_the_page_is_that_which_is_printed(tmp_path):
    result = tuned(tmp_path, "importance", 0.02)
    on_page = {entry.name: entry.share for entry in kbo.report.importance(result)}
    for effect in result.answers.effects:
        assert effect.share == on_page[effect.name]
        if effect.visible:
            assert f"{effect.name} ({effect.share.value:.0%})" in str(result)


def test_the_replay_of_a_run_ends_with_its_own_bounds(tmp_path):
    """Also where trials without a value have changed them after the last value."""
    for name in ("stopped early", "limits and failures"):
        result = RUNS[name](tmp_path)
        last = kbo.report.history(result)[-1]
        assert (last.lower, last.mean, last.upper) == pytest.approx(
            (result.lower, result.value, result.upper)
        )
