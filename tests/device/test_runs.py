"""Whole runs on a device: where things are, and the same trials as on the CPU."""

import copy
import math

import optuna
import pandas as pd
import pytest
from ax.api.client import Client
from ax.api.configs import RangeParameterConfig
from gpytorch.kernels import RBFKernel

import kbo
from kbo import report
from kbo.integrations.ax import generation_strategy
from kbo.integrations.optuna import KBOSampler
from kbo.optimize.surrogates import practical_posterior
from tests import commands
from tests.laws.states import unit_square

SQUARE = [(0.0, 1.0), (0.0, 1.0)]
KERNEL = RBFKernel().double().initialize(lengthscale=0.3)
START = 3
"""Trials that no model chooses."""

NUMBERS = {"noise_std": 0.1, "norm_bound": 3.0}


def noisy(x):
    return math.sin(5 * x[0]) + (x[1] - 0.3) ** 2 + 0.1 * math.sin(1e4 * x[0])


def measured(x):
    return noisy(x), {"memory": noisy(x) - 0.3}


CERTIFIED = kbo.Certified(KERNEL, **NUMBERS)
SAFE = kbo.Safe(KERNEL, **NUMBERS, start=[[0.8, 0.3]])


MIXED = {"x": (0.0, 1.0), "i": kbo.Int(0, 2), "c": ["a", "b"]}
LIMIT = {"constraints": [kbo.Constraint("memory", upper=0.5)]}
CERTAIN = {"constraints": [kbo.Constraint("memory", upper=0.5, **NUMBERS)]}
CASES = {
    "no noise": (lambda p: (p["x"] - 0.4) ** 2 + p["i"] + (p["c"] == "a"), MIXED, {}),
    "draws": (noisy, SQUARE, {"method": "kernel-ts"}),
    "limits": (measured, SQUARE, LIMIT),
    "chaining": (
        lambda p: noisy([p["i"] / 20, 0.3]),
        {"i": kbo.Int(0, 20)},
        {"setting": kbo.Certified(KERNEL, 0.1), "method": "chaining-ucb", "n_trials": 5},
    ),
    "certified limits": (measured, SQUARE, {"setting": CERTIFIED, **CERTAIN, "n_trials": 5}),
    "safe": (measured, SQUARE, {"setting": SAFE, **CERTAIN, "n_trials": 4}),
}


def same(device, first, second):
    """Whether as many trials are equal; on a GPU rounding may choose others once a model chooses."""
    some = slice(START if device.type == "cuda" else None)
    shown = [[(t.params, t.value) for t in trials] for trials in (first, second)]
    return len(first) == len(second) and shown[0][some] == shown[1][some]


@pytest.mark.parametrize("case", CASES)
def test_a_run_has_its_posterior_on_the_device_and_the_trials_of_one_on_the_cpu(device, case):
    objective, bounds, options = CASES[case]
    options = {"n_trials": 9, **options}
    here, there = (kbo.minimize(objective, bounds, **options, device=d) for d in (None, device))
    assert there.optimizer.insight.surrogate().posterior.like.device == device
    assert same(device, here.trials, there.trials)
    if device.type != "cuda":
        assert str(here) == str(there)


def test_a_sketch_of_many_trials_is_on_the_device(device, monkeypatch):
    for name, number in (("MOST_EXACT", 20), ("MOST_POINTS", 20), ("N_DRAWN", 10)):
        monkeypatch.setattr(practical_posterior, name, number)
    known = pd.DataFrame(unit_square(45, 0).tolist(), columns=["x0", "x1"])
    known["value"] = [noisy(x) for x in unit_square(45, 0).tolist()]
    here, there = (
        kbo.minimize(noisy, SQUARE, 2, evaluated=known, device=d) for d in (None, device)
    )
    posterior = there.optimizer.insight.surrogate().posterior
    assert posterior.like.device == device
    assert posterior.error.norm() > 0
    assert same(device, here.trials, there.trials)


def test_a_batch_is_chosen_and_a_journal_is_continued_on_another_device(device, tmp_path):
    def trials(devices):
        path = tmp_path / f"{len(devices)}.jsonl"
        for d in devices:
            optimizer = kbo.Optimizer(SQUARE, journal=path, device=d)
            for _ in range(4 // len(devices)):
                for x in optimizer.ask(3):
                    optimizer.tell(x, noisy(x))
            optimizer.close()
        return optimizer.trials

    assert same(device, trials([None]), trials([device, None]))


def test_a_run_is_drawn_and_a_copy_of_it_is_on_the_cpu(device):
    result = kbo.minimize(noisy, SQUARE, 8, device=device)
    assert len(report.importance(result)) == 2
    result.plot("slices")
    assert copy.deepcopy(result.optimizer).space.device.type == "cpu"


def test_the_command_line_takes_a_device(device, tmp_path):
    commands.kbo("tune", "branin", "-n", "8", "-q", "--device", device, "-o", tmp_path)


def test_optuna_takes_a_device(device):
    def objective(trial):
        return noisy([trial.suggest_float("x", 0, 1), trial.suggest_float("y", 0, 1)])

    studies = []
    for d in (None, device):
        studies.append(optuna.create_study(sampler=KBOSampler(seed=0, device=d)))
        studies[-1].optimize(objective, n_trials=9)
    assert same(device, *(study.trials for study in studies))
    assert studies[1].sampler.interval(studies[1], studies[1].best_params) is not None


def test_ax_takes_a_device(device):
    def tuned(d):
        client = Client()
        client.configure_experiment(
            [RangeParameterConfig(name="x", parameter_type="float", bounds=(0.0, 1.0))]
        )
        client.configure_optimization(objective="-loss")
        strategy = generation_strategy(setting=kbo.Practical(n_initial=3), seed=0, device=d)
        client.set_generation_strategy(strategy)
        for _ in range(5):
            for number, params in client.get_next_trials(1).items():
                client.complete_trial(number, {"loss": noisy([params["x"], 0.3])})
        return client.summarize()["x"].tolist()

    some = slice(START if device.type == "cuda" else None)
    assert tuned(None)[some] == tuned(device)[some]
