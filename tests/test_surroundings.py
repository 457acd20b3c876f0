"""What a program has set in PyTorch, NumPy and Python: kbo computes as if it had not, and the objective sees it."""

from __future__ import annotations

import contextlib
import copy
import logging
import math
import random
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import optuna
import pytest
import torch
from gpytorch.kernels import RBFKernel

import kbo
from experiments.problems import RKHSBandit
from kbo import bandit
from kbo.integrations.optuna import KBOSampler
from tests.parts import once

BOX = {"x": (0.0, 1.0), "y": (0.0, 1.0)}
KERNEL = RBFKernel().double().initialize(lengthscale=0.3).requires_grad_(False)
SIGHTINGS: list[dict[str, Any]] = []
"""Settings that objectives, constraints and callbacks saw."""


def seen() -> dict[str, Any]:
    """Return the settings that code of the caller sees."""
    return {
        "device": torch.get_default_device(),
        "dtype": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "errors": np.geterr(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "warnings": warnings.filters[:1],
    }


def states_of_generators() -> tuple[Any, ...]:
    numpy = str(np.random.get_state())  # noqa: NPY002
    return torch.get_rng_state().tolist(), numpy, random.getstate()


@contextlib.contextmanager
def set_for_good() -> Iterator[None]:
    """Settings of the process, with the global generators, from which nobody may draw."""
    before = states_of_generators()
    with contextlib.ExitStack() as stack:
        stack.callback(torch.set_default_device, None)
        torch.set_default_device("meta")  # nothing can be computed on it
        stack.callback(torch.set_default_dtype, torch.float32)
        torch.set_default_dtype(torch.float64)
        stack.callback(torch.use_deterministic_algorithms, False)
        torch.use_deterministic_algorithms(True)
        stack.callback(torch.set_printoptions, profile="default")
        torch.set_printoptions(precision=2, sci_mode=True)
        stack.enter_context(np.printoptions(precision=2, legacy="1.13"))
        stack.enter_context(torch.inference_mode())
        stack.enter_context(np.errstate(all="raise"))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("error")
        for module in ("ax", "optuna", "sqlalchemy"):  # they call what is deprecated
            warnings.filterwarnings("ignore", module=module)
        yield
    assert states_of_generators() == before


@contextlib.contextmanager
def as_contexts() -> Iterator[None]:
    with (
        torch.device("meta"),
        torch.no_grad(),
        torch.autograd.set_detect_anomaly(True),
        torch.autocast("cpu", dtype=torch.bfloat16),
    ):
        yield


def noisy(params: dict[str, float]) -> float:
    SIGHTINGS.append(seen())
    return (params["x"] - 0.3) ** 2 + 0.3 * params["y"] + 0.1 * math.sin(1e4 * params["x"])


def measured(params: dict[str, float]) -> tuple[float, dict[str, float]]:
    kbo.minimize(noisy, BOX, 1, method="random")  # kbo in an objective of kbo
    return noisy(params), {"memory": noisy(params) - 0.1}


def allowed(params: dict[str, float]) -> bool:
    return noisy(params) > -9


class Watching:
    """A callback that is a context manager too."""

    def __enter__(self) -> None:
        SIGHTINGS.append(seen())

    def __exit__(self, *error: object) -> None:
        SIGHTINGS.append(seen())

    def __call__(self, *_: object) -> None:
        SIGHTINGS.append(seen())


def at_random() -> Any:
    rules = [kbo.Constraint("memory", upper=0.3), kbo.Linear({"x": 1, "y": 1}, upper=1.2), allowed]
    options = {"constraints": rules, "on_trial": Watching(), "method": "random"}
    return [trial.params for trial in kbo.minimize(measured, BOX, 4, **options).trials]


def certified() -> Any:
    result = kbo.minimize(noisy, BOX, 4, setting=kbo.Certified(KERNEL, 0.1, 3.0))
    return [trial.params for trial in result.trials], str(result), result.optimizer.gap(50)


def ask_and_tell() -> Any:
    optimizer = kbo.Optimizer(BOX)
    for _ in range(4):
        for params in optimizer.ask(2):
            optimizer.tell(params, noisy(params))
    interval = optimizer.interval({"x": 0.2, "y": 0.2})
    return [trial.params for trial in optimizer.trials], interval


def study() -> Any:
    def objective(trial: Any) -> float:
        return noisy({name: trial.suggest_float(name, 0, 1) for name in BOX})

    sampler = KBOSampler(seed=0)
    found = optuna.create_study(sampler=sampler)
    found.optimize(objective, n_trials=7)
    answers = sampler.interval(found, found.best_params), sampler.guarantee(found)
    return [t.params for t in found.trials], answers, sampler.recommended(found).number


def played() -> Any:
    problem = RKHSBandit("rbf", 0.3, 2, seed=0, n_arms=20)
    method = bandit.make("dmm-ucb", problem.kernel, problem.noise_std, 30.0, 0.1)
    return [(row["arm"], row["regret"]) for row in bandit.play(method, problem, 5)]


ENTRIES = [at_random, ask_and_tell, certified, study, played]


@pytest.mark.parametrize("entry", ENTRIES)
def test_no_setting_of_the_program_changes_a_result_and_the_objective_sees_all(entry, caplog):
    caplog.set_level(logging.WARNING, logger="optuna")
    expected = entry()
    for settings in (set_for_good, as_contexts):
        SIGHTINGS.clear()
        with settings():
            before = seen()
            assert entry() == expected
            assert seen() == before
        assert [sighting for sighting in SIGHTINGS if sighting != before] == []


@pytest.mark.parametrize("workers", once([kbo.Processes(1), kbo.Threads(2)]))
def test_objectives_of_threads_and_processes_see_the_settings_of_the_program(workers):
    def objective(params):
        import numpy
        import torch

        settings = [
            torch.get_default_device().type == "meta",
            numpy.geterr()["under"] == "raise",
            not torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.get_default_dtype() == torch.float64,
            torch.are_deterministic_algorithms_enabled(),
        ]
        return float(sum(settings))

    with set_for_good():
        result = kbo.minimize(objective, BOX, 2, workers=workers)
    assert [trial.value for trial in result.trials] == [6.0, 6.0]


def test_a_copy_of_a_reopened_run_leaves_the_original_as_it_was(tmp_path):
    path = tmp_path / "run.jsonl"
    kbo.minimize(lambda x: x[0], [(0.0, 1.0)], 6, journal=path)
    optimizer = kbo.Optimizer([(0.0, 1.0)], journal=path)
    with torch.device("meta"):
        copied = copy.copy(optimizer)
    assert optimizer.suggest() == copied.suggest()
