"""The exact posterior against BoTorch's ``SingleTaskGP`` on the same data, kernel, hyper-parameters and noise."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from botorch.models.model import Model
from torch import Tensor

from experiments.bench.race import (
    REPEATS,
    Bench,
    Goal,
    Result,
    agree,
    device_megabytes,
    megabytes,
    race,
    seconds,
)
from experiments.bench.setups import (
    RIDGE,
    example_kernel,
    matched_models,
    mean_and_variance,
    noisy_data,
)
from kbo.regression import FixedPoints, KernelRidge

_IN_A_ROW = 10


def new_row(device: torch.device, n: int, times: float) -> list[Result]:
    """Time a new observation and a prediction after it: ``KernelRidge.update`` in place, or a conditioned model."""
    X, y, new, point = noisy_data(n, 1 + (1 + REPEATS) * (1 + _IN_A_ROW), 1, device=device)
    gp, model = matched_models(X, y)
    rebuilt, _ = matched_models(X, y)
    state = model.state.fork()
    rows = iter(new.split(1))
    target = new.new_zeros(1, 1)
    X_grown = torch.cat([X, new[:1]])
    y_grown = torch.cat([y, target[0]])

    def in_place() -> tuple[Tensor, Tensor]:
        state.update(next(rows), target[0])
        return state.predict(point)

    def set_train_data() -> tuple[Tensor, Tensor]:
        rebuilt.set_train_data(X_grown, y_grown, strict=False)
        return mean_and_variance(rebuilt, point)

    def condition(model: Model) -> tuple[Tensor, Tensor]:
        return mean_and_variance(model.condition_on_observations(new[:1], target), point)

    works: dict[str, Any] = {
        "theirs": lambda: condition(gp),
        "rebuilt": set_train_data,
        "model_cold": lambda: condition(model),
        "in_place_cold": in_place,
    }
    agree(*works.values())
    works |= {"model": [works["model_cold"]] * _IN_A_ROW, "in_place": [in_place] * _IN_A_ROW}
    goal = Goal(1 / times)
    cold = "processor caches cold"
    row = "one row, new model"
    lines = [
        ("one row in place / condition_on_observations", "in_place", "theirs", goal),
        (f"one row in place, {cold} / the same", "in_place_cold", "theirs", goal),
        (f"{row} / condition_on_observations", "model", "theirs", goal),
        (f"{row}, {cold} / the same", "model_cold", "theirs", None),
        (f"{row}, {cold} / set_train_data", "model_cold", "rebuilt", None),
    ]
    return race(device, n, works, lines)


def rescoring(device: torch.device, n: int, candidates: int) -> list[Result]:
    """Time mean and variance of fixed candidates after each new observation."""
    X, y, new, points = noisy_data(n, 4 * REPEATS, candidates, device=device)
    gp, model = matched_models(X, y)
    target = new.new_zeros(1, 1)
    updated = gp.condition_on_observations(new[:1], target)
    how, score = _fastest_scoring(updated, points, device)
    rows = iter(new.split(1))
    view = FixedPoints(model.state.fork(), points)
    view.predict(points)

    def tracked() -> tuple[Tensor, Tensor]:
        view.update(next(rows), target[0])
        return view.predict(points)

    works = {
        "tracked": tracked,
        "conditioned": lambda: score(gp.condition_on_observations(new[:1], target)),
        "scored": lambda: score(updated),
    }
    agree(*works.values())
    goal = Goal(1 / 30)
    name = f"{candidates} fixed candidates after a row / {how}"
    lines = [
        (name, "tracked", "conditioned", goal),
        (f"{name}, row not counted", "tracked", "scored", goal),
    ]
    return race(device, n, works, lines)


def _fastest_scoring(gp: Model, X: Tensor, device: torch.device) -> tuple[str, Callable]:
    """The fastest way in which a SingleTaskGP scores many points: as a t-batch or jointly, in chunks."""

    def score(points: Tensor, size: int, gp: Model) -> tuple[Tensor, Tensor]:
        means = []
        variances = []
        for part in points.split(size):
            mean, variance = mean_and_variance(gp, part)
            means.append(mean)
            variances.append(variance)
        return torch.cat(means), torch.cat(variances)

    sizes = (1000, len(X))
    if device.type == "cpu":
        sizes = (50, 100, 200, 500)
    ways: dict[str, Callable] = {}
    for size in sizes:
        ways[f"chunks [{size} d]"] = partial(score, X, size)
        ways[f"chunks [{size} 1 d]"] = partial(score, X.unsqueeze(1), size)
    times = {}
    for way, scoring in ways.items():
        work = partial(scoring, gp)
        times[way] = min(seconds([work], device), seconds([work], device))
    best = min(times, key=lambda way: times[way])
    return best, ways[best]


def fresh_candidates(device: torch.device, n: int, points: int) -> list[Result]:
    """Time mean and variance of points that the posterior has not seen before."""
    X, y, P = noisy_data(n, points, device=device)
    gp, model = matched_models(X, y)
    shapes = {
        f"{points} fresh candidates [{points} 1 d]": P.unsqueeze(1),
        f"{points} fresh candidates [{points} d]": P,
    }
    works = {}
    lines = []
    for name, Z in shapes.items():
        works[f"kbo {name}"] = partial(mean_and_variance, model, Z)
        works[f"theirs {name}"] = partial(mean_and_variance, gp, Z)
        lines.append((name, f"kbo {name}", f"theirs {name}", Goal(1.0)))
    agree(*works.values())
    return race(device, n, works, lines)


def memory(device: torch.device, n: int, arms: int) -> list[Result]:
    """Measure the memory in MB after half and after all of a stream of tracked, repeated arms."""
    points, _ = noisy_data(arms, device=device)
    view = FixedPoints(KernelRidge(example_kernel(), RIDGE), points)
    used = []
    for half in range(2):
        for step in range(n // 2):
            arm = points[(7 * step + half) % arms]
            view.update(arm.unsqueeze(0), arm[:1])
            view.predict(points)
        used.append(megabytes(peak=False) + device_megabytes(device, peak=False))
    name = f"memory after {n} updates on {arms} arms / after {n // 2}"
    return [Result(name, used[1], used[0], Goal(1.0, 20, "MB"), n, "MB")]


def imports(device: torch.device) -> list[Result]:
    """Time what importing kbo costs on top of BoTorch, in fresh processes."""
    clock = "import time; start = time.process_time(); {}; print(time.process_time() - start)"
    statements = {
        "kbo": "import botorch, kbo",
        "botorch": "import botorch",
        "model": "from kbo.models import KernelRidgeGP",
        "their_model": "from botorch.models import SingleTaskGP",
    }

    def cpu_seconds(statement: str) -> float:
        command = [sys.executable, "-c", clock.format(statement)]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    times: dict[str, list[float]] = {name: [] for name in statements}
    for _ in range(1 + REPEATS):
        for name, statement in statements.items():
            times[name].append(cpu_seconds(statement))
    found = {name: statistics.median(taken[1:]) for name, taken in times.items()}
    goal = Goal(1.0, 0.1)
    packages = "import botorch, kbo / import botorch"
    models = "import KernelRidgeGP / import SingleTaskGP"
    return [
        Result(packages, found["kbo"], found["botorch"], goal),
        Result(models, found["model"], found["their_model"], goal),
    ]


BENCHES = [
    Bench(new_row, {"n": 1000, "times": 100}),
    Bench(new_row, {"n": 4000, "times": 200}, quick=None),
    Bench(rescoring, {"n": 1000, "candidates": 10_000}),
    Bench(fresh_candidates, {"n": 1000, "points": 1000}),
    Bench(memory, {"n": 2000, "arms": 100}, fresh=True),
    Bench(imports),
]
