"""What a program has set in PyTorch, NumPy and Python: kbo computes as if it had not, and the objective sees it."""

from __future__ import annotations

import contextlib
import logging
import math
import random
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import optuna
import pandas as pd
import pytest
import torch
from gpytorch.kernels import RBFKernel

import kbo
from experiments.problems import RKHSBandit
from kbo import bandit, report
from kbo._base.settings import Settings
from kbo._base.surroundings import callers, fixed
from kbo.errors import InvalidInput
from kbo.integrations.optuna import KBOSampler

BOX = {"x": (0.0, 1.0), "y": (0.0, 1.0)}
KERNEL = RBFKernel().double().initialize(lengthscale=0.3).requires_grad_(False)
NUMBERS = {"noise_std": 0.1, "norm_bound": 3.0}
MEMORY = kbo.Constraint("memory", upper=0.8, **NUMBERS)


def seen() -> dict[str, Any]:
    """Return what code of the caller sees."""
    return {
        "device": torch.get_default_device(),
        "dtype": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "errors": np.geterr(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "anomalies": torch.is_anomaly_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "warnings": warnings.filters[:1],
        "digits": np.get_printoptions()["precision"],
    }


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def default_device(device: str) -> Iterator[None]:
    torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_device(None)


@contextlib.contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextlib.contextmanager
def warnings_as_errors() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for module in ("ax", "optuna", "sqlalchemy"):  # what they call in themselves is deprecated
            warnings.filterwarnings("ignore", module=module)
        yield


@contextlib.contextmanager
def printed_short() -> Iterator[None]:
    torch.set_printoptions(precision=2, sci_mode=True)
    with np.printoptions(precision=2, legacy="1.13"):
        yield
    torch.set_printoptions(profile="default")


@contextlib.contextmanager
def other_seeds() -> Iterator[None]:
    """Seed the global generators, and check that nobody draws from them or seeds them again."""
    torch.manual_seed(17)
    np.random.seed(17)  # noqa: NPY002
    random.seed(17)
    before = torch.get_rng_state(), str(np.random.get_state()), random.getstate()  # noqa: NPY002
    yield
    assert torch.equal(torch.get_rng_state(), before[0])
    assert str(np.random.get_state()) == before[1]  # noqa: NPY002
    assert random.getstate() == before[2]


STATES: dict[str, Callable[[], Any]] = {
    "default device": lambda: default_device("meta"),  # on which nothing can be computed
    "device context": lambda: torch.device("meta"),
    "float64": lambda: default_dtype(torch.float64),
    "errors of numpy": lambda: np.errstate(all="raise"),
    "no gradients": torch.no_grad,
    "inference mode": torch.inference_mode,
    "deterministic": deterministic,
    "anomalies": lambda: torch.autograd.set_detect_anomaly(True),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "warnings": warnings_as_errors,
    "print options": printed_short,
    "seeds": other_seeds,
}

SIGHTINGS: list[dict[str, Any]] = []
"""What objectives, constraints and callbacks saw."""


def noisy(params: dict[str, float]) -> float:
    SIGHTINGS.append(seen())
    return (params["x"] - 0.3) ** 2 + 0.3 * params["y"] + 0.1 * math.sin(1e4 * params["x"])


def measured(params: dict[str, float]) -> tuple[float, dict[str, float]]:
    value = noisy(params)
    return value, {"memory": value - 0.1}


def allowed(params: dict[str, float]) -> bool:
    SIGHTINGS.append(seen())
    return params["x"] + params["y"] > 0.1


class Watching:
    """A callback that is a context manager too."""

    def __enter__(self) -> None:
        SIGHTINGS.append(seen())

    def __exit__(self, *error: object) -> None:
        SIGHTINGS.append(seen())

    def __call__(self, trial: kbo.Trial, result: kbo.Result) -> None:
        SIGHTINGS.append(seen())


def minimised(objective: Any = noisy, n_trials: int = 9, **options: Any) -> list[Any]:
    result = kbo.minimize(objective, BOX, n_trials, **options)
    return [[(trial.params, trial.value) for trial in result.trials], str(result)]


def limited() -> list[Any]:
    rules = [kbo.Constraint("memory", upper=0.3), kbo.Linear({"x": 1, "y": 1}, upper=1.2), allowed]
    return minimised(measured, constraints=rules, on_trial=Watching())


def kinds() -> list[Any]:
    bounds = {**BOX, "k": kbo.Int(1, 9, log=True), "c": ["a", "b"]}
    result = kbo.minimize(
        lambda params: noisy(params) + params["k"] + (params["c"] == "a"), bounds, 9
    )
    return [[(trial.params, trial.value) for trial in result.trials], str(result)]


def certified() -> list[Any]:
    result = kbo.minimize(noisy, BOX, 4, setting=kbo.Certified(KERNEL, **NUMBERS))
    return [[trial.params for trial in result.trials], str(result), str(result.optimizer.gap(50))]


def safe() -> list[Any]:
    setting = kbo.Safe(KERNEL, **NUMBERS, start=[{"x": 0.3, "y": 0.1}])
    return minimised(measured, 3, constraints=[MEMORY], setting=setting)


def hypotheses() -> str:
    return str(kbo.Optimizer(BOX, setting=kbo.Certified(kbo.hypotheses(0.1, 1.0))).run.header)


def ask_and_tell() -> list[Any]:
    optimizer = kbo.Optimizer(BOX)
    for _ in range(4):
        for params in optimizer.ask(2):
            optimizer.tell(params, noisy(params))
    point = {"x": 0.2, "y": 0.2}
    belief = optimizer.insight.surrogate()
    assert belief is not None
    answers = [
        optimizer.interval(point),
        optimizer.best(),
        str(optimizer.insight.answers()),
        str(optimizer.gap()),
    ]
    return [
        [trial.params for trial in optimizer.trials],
        answers,
        str(belief.account()),
        str(belief.assumptions()),
    ]


def study() -> list[Any]:
    sampler = KBOSampler(seed=0)
    found = optuna.create_study(sampler=sampler)
    found.optimize(
        lambda t: noisy({"x": t.suggest_float("x", 0, 1), "y": t.suggest_float("y", 0, 1)}),
        n_trials=8,
    )
    interval = sampler.interval(found, found.best_params)
    return [
        [t.params for t in found.trials],
        interval,
        sampler.guarantee(found),
        sampler.recommended(found).number,
    ]


def audit() -> str:
    numbers = [(i / 15, (7 * i % 15) / 15) for i in range(15)]
    rows = [{"x": x, "y": y, "value": noisy({"x": x, "y": y})} for x, y in numbers]
    return str(kbo.audit(pd.DataFrame(rows)))


def confirmed() -> str:
    numbers = iter(range(99))
    candidates = [{"x": 0.2, "y": 0.0}, {"x": 0.3, "y": 0.0}]
    return str(
        kbo.confirm(
            lambda params: noisy(params) + 0.01 * next(numbers), candidates, 30, tolerance=1.0
        )
    )


def played() -> list[Any]:
    problem = RKHSBandit("rbf", 0.3, 2, seed=0, n_arms=20)
    method = bandit.make("dmm-ucb", problem.kernel, problem.noise_std, 30.0, 0.1)
    return [(row["arm"], row["regret"]) for row in bandit.play(method, problem, 5)]


def importance() -> str:
    return str(report.importance(kbo.minimize(noisy, BOX, 8)))


ENTRIES: dict[str, Callable[[], Any]] = {
    "practical": minimised,
    "draws": lambda: minimised(method="kernel-ts"),
    "kinds": kinds,
    "limits": limited,
    "certified": certified,
    "safe": safe,
    "hypotheses": hypotheses,
    "ask and tell": ask_and_tell,
    "study": study,
    "audit": audit,
    "confirm": confirmed,
    "bandit": played,
    "importance": importance,
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_no_setting_of_the_program_changes_a_result_and_the_objective_sees_all(entry, caplog):
    caplog.set_level(logging.WARNING, logger="optuna")
    expected = ENTRIES[entry]()
    for name, state in STATES.items():
        SIGHTINGS.clear()
        with state():
            before = seen()
            assert ENTRIES[entry]() == expected, name
            assert seen() == before, name
        assert [one for one in SIGHTINGS if one != before] == [], name


@pytest.mark.parametrize(
    "workers", [kbo.Threads(2), kbo.Processes(1)], ids=["threads", "processes"]
)
def test_objectives_of_threads_and_processes_see_the_settings_of_the_program(workers):
    def objective(params):
        import numpy
        import torch

        seen = [torch.get_default_device().type == "meta", numpy.geterr()["under"] == "raise"]
        seen += [not torch.is_grad_enabled(), torch.is_inference_mode_enabled()]
        seen += [
            torch.get_default_dtype() == torch.float64,
            torch.are_deterministic_algorithms_enabled(),
        ]
        return float(sum(seen))

    with contextlib.ExitStack() as stack:
        for name in (
            "default device",
            "errors of numpy",
            "inference mode",
            "float64",
            "deterministic",
        ):
            stack.enter_context(STATES[name]())
        result = kbo.minimize(objective, BOX, 2, workers=workers)
    assert [trial.value for trial in result.trials] == [6.0, 6.0]


def test_a_setting_that_a_worker_cannot_have_is_the_reason_of_the_failure():
    assert "the settings of the program" in Settings(device="nothing:3").obstacle()
    assert Settings(device="meta", gradients=False).obstacle() == ""


def test_settings_are_put_aside_and_back_in_every_order_of_calls():
    @fixed
    def compute(depth: int) -> None:
        assert torch.zeros(()).device.type == "cpu"
        with callers():
            assert torch.zeros(()).device.type == "meta"
            if depth:
                compute(depth - 1)
            assert torch.zeros(()).device.type == "meta"
        assert torch.zeros(()).device.type == "cpu"
        if not depth:
            raise InvalidInput("over")

    with default_device("meta"):
        with pytest.raises(InvalidInput):
            compute(2)
        assert torch.zeros(()).device.type == "meta"


def test_kbo_may_be_imported_when_the_default_device_is_set_already():
    text = "import torch; torch.set_default_device('meta'); import kbo; "
    text += "print(len(kbo.minimize(lambda x: x[0], [(0.0, 1.0)], 7).trials))"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert done.stdout.strip() == "7", done.stderr
