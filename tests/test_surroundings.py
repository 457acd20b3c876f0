"""What a program has set in PyTorch, NumPy and Python: kbo computes as if it had not, and the objective sees it."""

from __future__ import annotations

import contextlib
import logging
import math
import random
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
from tests.processes import python

BOX = {"x": (0.0, 1.0), "y": (0.0, 1.0)}
KERNEL = RBFKernel().double().initialize(lengthscale=0.3).requires_grad_(False)
NUMBERS = {"noise_std": 0.1, "norm_bound": 3.0}
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
        "anomalies": torch.is_anomaly_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "warnings": warnings.filters[:1],
        "digits": np.get_printoptions()["precision"],
    }


@contextlib.contextmanager
def between(begin: Callable[[], Any], end: Callable[[], Any]) -> Iterator[None]:
    begin()
    try:
        yield
    finally:
        end()


def float64() -> Any:
    return between(
        lambda: torch.set_default_dtype(torch.float64),
        lambda: torch.set_default_dtype(torch.float32),
    )


def default_device() -> Any:  # one on which nothing can be computed
    return between(lambda: torch.set_default_device("meta"), lambda: torch.set_default_device(None))


def deterministic() -> Any:
    return between(
        lambda: torch.use_deterministic_algorithms(True),
        lambda: torch.use_deterministic_algorithms(False),
    )


@contextlib.contextmanager
def warnings_as_errors() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for module in ("ax", "optuna", "sqlalchemy"):  # they call what is deprecated
            warnings.filterwarnings("ignore", module=module)
        yield


@contextlib.contextmanager
def printed_short() -> Iterator[None]:
    torch.set_printoptions(precision=2, sci_mode=True)
    with np.printoptions(precision=2, legacy="1.13"):
        yield
    torch.set_printoptions(profile="default")


def states_of_generators() -> tuple[Any, ...]:
    numpy = str(np.random.get_state())  # noqa: NPY002
    return torch.get_rng_state().tolist(), numpy, random.getstate()


@contextlib.contextmanager
def other_seeds() -> Iterator[None]:
    """Seed the global generators, and check that nobody draws from them or seeds them again."""
    torch.manual_seed(17)
    np.random.seed(17)  # noqa: NPY002
    random.seed(17)
    before = states_of_generators()
    yield
    assert states_of_generators() == before


SETTINGS: dict[str, list[Callable[[], Any]]] = {
    "in force": [
        default_device,
        float64,
        torch.inference_mode,
        deterministic,
        warnings_as_errors,
        printed_short,
        other_seeds,
        lambda: np.errstate(all="raise"),
    ],
    "as contexts": [
        lambda: torch.device("meta"),
        torch.no_grad,
        lambda: torch.autograd.set_detect_anomaly(True),
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    ],
}
"""Settings that a program has at the same time."""


@contextlib.contextmanager
def entered(settings: list[Callable[[], Any]]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for setting in settings:
            stack.enter_context(setting())
        yield


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


def minimised(objective: Any = noisy, n_trials: int = 7, bounds: Any = BOX, **options: Any) -> Any:
    result = kbo.minimize(objective, bounds, n_trials, **options)
    gap = str(result.optimizer.gap(50)) if "setting" in options else ""
    return [(trial.params, trial.value) for trial in result.trials], str(result), gap


def of_all_kinds() -> Any:
    bounds = {**BOX, "k": kbo.Int(1, 9, log=True), "c": ["a", "b"]}
    return minimised(lambda p: noisy(p) + p["k"] + (p["c"] == "a"), bounds=bounds)


def limited() -> Any:
    rules = [kbo.Constraint("memory", upper=0.3), kbo.Linear({"x": 1, "y": 1}, upper=1.2), allowed]
    return minimised(measured, constraints=rules, on_trial=Watching())


def safe() -> Any:
    setting = kbo.Safe(KERNEL, **NUMBERS, start=[{"x": 0.3, "y": 0.1}])
    memory = kbo.Constraint("memory", upper=0.8, **NUMBERS)
    return minimised(measured, 3, constraints=[memory], setting=setting)


def ask_and_tell() -> Any:
    optimizer = kbo.Optimizer(BOX)
    for _ in range(4):
        for params in optimizer.ask(2):
            optimizer.tell(params, noisy(params))
    insight = optimizer.insight
    belief = insight.surrogate()
    assert belief is not None
    numbers = optimizer.interval({"x": 0.2, "y": 0.2}), optimizer.best(), optimizer.gap()
    texts = insight.answers(), belief.account(), belief.assumptions()
    return [trial.params for trial in optimizer.trials], str(numbers), [*map(str, texts)]


def study() -> Any:
    def objective(trial: Any) -> float:
        return noisy({name: trial.suggest_float(name, 0, 1) for name in BOX})

    sampler = KBOSampler(seed=0)
    found = optuna.create_study(sampler=sampler)
    found.optimize(objective, n_trials=7)
    answers = sampler.interval(found, found.best_params), sampler.guarantee(found)
    return [t.params for t in found.trials], answers, sampler.recommended(found).number


def audit() -> str:
    points = [{"x": i / 15, "y": (7 * i % 15) / 15} for i in range(15)]
    return str(kbo.audit(pd.DataFrame([{**point, "value": noisy(point)} for point in points])))


def confirmed() -> str:
    numbers = iter(range(99))
    candidates = [{"x": 0.2, "y": 0.0}, {"x": 0.3, "y": 0.0}]
    race = kbo.confirm(lambda p: noisy(p) + 0.01 * next(numbers), candidates, 30, tolerance=1.0)
    return str(race)


def played() -> Any:
    problem = RKHSBandit("rbf", 0.3, 2, seed=0, n_arms=20)
    method = bandit.make("dmm-ucb", problem.kernel, problem.noise_std, 30.0, 0.1)
    return [(row["arm"], row["regret"]) for row in bandit.play(method, problem, 5)]


ENTRIES: dict[str, Callable[[], Any]] = {
    "practical": minimised,
    "draws": lambda: minimised(method="kernel-ts"),
    "kinds": of_all_kinds,
    "limits": limited,
    "certified": lambda: minimised(n_trials=4, setting=kbo.Certified(KERNEL, **NUMBERS)),
    "safe": safe,
    "hypotheses": lambda: str(
        kbo.Optimizer(BOX, setting=kbo.Certified(kbo.hypotheses(0.1, 1.0))).run.header
    ),
    "ask and tell": ask_and_tell,
    "study": study,
    "audit": audit,
    "confirm": confirmed,
    "bandit": played,
    "importance": lambda: str(report.importance(kbo.minimize(noisy, BOX, 7))),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_no_setting_of_the_program_changes_a_result_and_the_objective_sees_all(entry, caplog):
    caplog.set_level(logging.WARNING, logger="optuna")
    expected = ENTRIES[entry]()
    for name, settings in SETTINGS.items():
        SIGHTINGS.clear()
        with entered(settings):
            before = seen()
            assert ENTRIES[entry]() == expected, name
            assert seen() == before, name
        assert [sighting for sighting in SIGHTINGS if sighting != before] == [], name


@pytest.mark.parametrize(
    "workers", [kbo.Threads(2), kbo.Processes(1)], ids=["threads", "processes"]
)
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

    with entered(SETTINGS["in force"][:4]), np.errstate(all="raise"):
        result = kbo.minimize(objective, BOX, 2, workers=workers)
    assert [trial.value for trial in result.trials] == [6.0, 6.0]


def test_a_setting_that_a_worker_cannot_have_is_the_reason_of_the_failure():
    assert "the settings of the program" in Settings(device="nothing:3").obstacle()
    assert Settings(device="meta", gradients=False).obstacle() == ""


def test_settings_are_put_aside_and_back_in_every_order_of_calls():
    def device() -> str:
        return torch.zeros(()).device.type

    @fixed
    def compute(depth: int) -> None:
        assert device() == "cpu"
        with callers():
            assert device() == "meta"
            if depth:
                compute(depth - 1)
            assert device() == "meta"
        assert device() == "cpu"
        if not depth:
            raise InvalidInput("over")

    with default_device():
        with pytest.raises(InvalidInput):
            compute(2)
        assert device() == "meta"


def test_kbo_may_be_imported_when_the_default_device_is_set_already():
    text = "import torch; torch.set_default_device('meta'); import kbo; "
    text += "print(len(kbo.minimize(lambda x: x[0], [(0.0, 1.0)], 7).trials))"
    assert python("-c", text).stdout.strip() == "7"
