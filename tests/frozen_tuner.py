"""Recorded runs of the tuner, before and after a change: ``python -m tests.frozen_tuner record FILE``, or ``compare``.

Each case is a run of 40 trials, of ``minimize``, ``Optimizer``, Ax or Optuna: its points, and what it says at the end.
"""

from __future__ import annotations

import random
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from gpytorch.kernels import MaternKernel

import kbo
from kbo import Certified, Constraint, Float, Int, Linear, Optimizer, Practical, Safe, When
from tests.frozen import main

TRIALS = 40

SPACES: dict[str, Any] = {
    "line": {"x": (0.0, 1.0)},
    "square": [(-1.0, 2.0), (0.0, 1.0)],
    "five": {**{f"x{i}": (0.0, 1.0) for i in range(4)}, "lr": Float(1e-4, 1e-1, log=True)},
    "whole": {"a": Int(0, 9), "b": Int(1, 100, log=True)},
    "mixed": {
        "lr": Float(1e-4, 1e-1, log=True),
        "layers": Int(1, 4),
        "act": ["relu", "tanh", "gelu"],
    },
    "tree": [
        {"optimizer": ["adam", "sgd"], "lr": Float(1e-4, 1e-1, log=True)},
        When("optimizer", "sgd", {"momentum": (0.0, 1.0)}),
    ],
    "table": {"metal": ["Fe", "Ni", "Cu"], "pH": Int(2, 12)},
}


def number(value: Any) -> float:
    return (
        float(value)
        if isinstance(value, (int, float))
        else float(sum(map(ord, str(value))) % 7) / 7
    )


def smooth(params: Any, noise: float = 0.0, rng: random.Random | None = None) -> float:
    values = [number(value) for value in (params.values() if isinstance(params, dict) else params)]
    total = sum((value / (1 + abs(value)) - 0.3) ** 2 * (i + 1) for i, value in enumerate(values))
    return total + noise * (rng or random).gauss(0, 1)


def matern(columns: int) -> MaternKernel:
    kernel = MaternKernel(nu=2.5, ard_num_dims=columns).double()
    kernel.lengthscale = torch.full((1, columns), 0.5)
    return kernel


def certified(columns: int, noise_std: float | None = 0.1, **more: Any) -> Certified:
    return Certified(matern(columns), noise_std, 3.0, **more)


def asked(
    space: str | Any,
    noise: float = 0.0,
    *,
    batch: int = 1,
    resumed: bool = False,
    fails: bool = False,
    measured: bool = False,
    context: bool = False,
    late: bool = False,
    n: int = TRIALS,
    **options: Any,
) -> Callable[[], Iterator[tuple[str, Any]]]:
    """A run of ``Optimizer``, by ask and tell."""

    def run() -> Iterator[tuple[str, Any]]:
        rng, bounds = random.Random(1), SPACES[space] if isinstance(space, str) else space
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "run.jsonl") if resumed else None
            optimizer, told, waiting = Optimizer(bounds, journal=path, seed=3, **options), 0, []
            while told < n:
                more = {"context": {"layers": 1 + told % 4}} if context else {}
                waiting += optimizer.ask(batch, **more)
                if late:  # values come in another order, and some points are always open
                    rng.shuffle(waiting)
                for params in [waiting.pop() for _ in range(batch if not late or told else 1)]:
                    value = smooth(params, noise, rng)
                    told += 1
                    if fails and told % 7 == 0:
                        optimizer.fail(params, "no luck")
                    else:
                        optimizer.tell(
                            params,
                            (value, {"m": 1 - value + noise * rng.gauss(0, 1)})
                            if measured
                            else value,
                        )
                if resumed and told == 20:
                    optimizer.close()
                    optimizer = Optimizer(bounds, journal=path, seed=3, **options)
            yield from said(optimizer)
            optimizer.close()

    return run


def said(optimizer: Optimizer) -> Iterator[tuple[str, Any]]:
    yield "points", [trial.params for trial in optimizer.trials]
    best = optimizer.recommended()
    yield "recommended", None if best is None else best.number
    belief = optimizer.insight.surrogate()
    yield "guarantee", None if belief is None else belief.guarantee().text
    yield "account", None if belief is None else belief.account()
    interval = None if best is None else optimizer.interval(best.params)
    yield "interval", None if interval is None else torch.tensor(interval)
    feasibility, gap = optimizer.insight.feasibility(), optimizer.gap()
    yield "feasibility", str(feasibility)
    yield "gap", None if gap is None else torch.tensor(gap.value)


def tuned(
    space: str, noise: float = 0.0, reports: bool = False, **options: Any
) -> Callable[[], Iterator[tuple[str, Any]]]:
    """A run of ``minimize`` or ``maximize``."""

    def run() -> Iterator[tuple[str, Any]]:
        rng, loop = (
            random.Random(2),
            kbo.maximize if options.pop("maximize", False) else kbo.minimize,
        )

        def objective(params: Any) -> float:
            return smooth(params, noise, rng)

        def reporting(params: Any, trial: Any) -> float:
            value = smooth(params, noise, rng)
            for step in range(5):
                trial.report(value=value + 0.1 / (1 + step), step=step)
            return value

        result = loop(reporting if reports else objective, SPACES[space], TRIALS, seed=4, **options)
        yield from said(result.optimizer)
        yield "text", str(result).splitlines()

    return run


def ax_run(
    limited: bool = False, method: str | None = None, **options: Any
) -> Callable[[], Iterator[tuple[str, Any]]]:
    def run() -> Iterator[tuple[str, Any]]:
        from ax.api.client import Client
        from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig

        import kbo.integrations.ax as kbo_ax

        client, rng = Client(), random.Random(5)
        parameters: list[Any] = [
            RangeParameterConfig(name="x", parameter_type="float", bounds=(0.0, 1.0))
        ]
        if method is None:
            parameters += [
                RangeParameterConfig(name="layers", parameter_type="int", bounds=(1, 5)),
                ChoiceParameterConfig(
                    name="act", parameter_type="str", values=["relu", "tanh"], is_ordered=False
                ),
            ]
        client.configure_experiment(parameters=parameters)
        client.configure_optimization(
            objective="-loss", outcome_constraints=["m <= 0.9"] if limited else None
        )
        positional = [] if method is None else [method]
        client.set_generation_strategy(kbo_ax.generation_strategy(*positional, seed=0, **options))
        points = []
        for _ in range(15):
            for index, params in client.get_next_trials(max_trials=2).items():
                loss = smooth(params, 0.05, rng)
                points.append(params)
                client.complete_trial(
                    index, raw_data={"loss": loss, "m": 1 - loss} if limited else {"loss": loss}
                )
        yield "points", points
        number_, best = kbo_ax.recommended(client)
        yield "recommended", [number_, best]
        yield "guarantee", kbo_ax.guarantee(client)
        yield "interval", torch.tensor(kbo_ax.interval(client, best))
        yield "feasibility", str(kbo_ax.feasibility(client)) if limited else None

    return run


def optuna_run(
    tree: bool = False, limited: bool = False, pruned: bool = False, **options: Any
) -> Callable[[], Iterator[tuple[str, Any]]]:
    def run() -> Iterator[tuple[str, Any]]:
        import optuna

        from kbo.integrations.optuna import KBOSampler

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        rng, points = random.Random(6), []
        pruner = (
            optuna.pruners.MedianPruner(n_startup_trials=3)
            if pruned
            else optuna.pruners.NopPruner()
        )
        sampler = KBOSampler(seed=1, **options)
        study = optuna.create_study(sampler=sampler, pruner=pruner, study_name="frozen")

        def objective(trial: Any) -> float:
            params: dict[str, Any] = {
                "x": trial.suggest_float("x", 0, 1),
                "k": trial.suggest_int("k", 1, 4),
            }
            if tree:
                params["c"] = trial.suggest_categorical("c", ["a", "b"])
                if params["c"] == "b":
                    params["y"] = trial.suggest_float("y", 0, 1)
            points.append(params)
            value = smooth(params, 0.05, rng)
            if pruned:
                for step in range(4):
                    trial.report(value + 0.1 / (1 + step), step)
                    if trial.should_prune():
                        raise optuna.TrialPruned
            if limited:
                trial.set_constraint("m", 0.1 - value)
            return value

        study.optimize(objective, TRIALS)
        yield "points", points
        found = sampler.recommended(study)
        yield (
            "recommended",
            None if found is None else found.number if hasattr(found, "number") else str(found),
        )

    return run


LIMIT = [Constraint("m", upper=0.95)]
KNOWN_LIMIT = [Constraint("m", upper=0.95, noise_std=0.1, norm_bound=3.0)]
RANDOM = {"method": "random"}

CASES: dict[str, Callable[[], Iterator[tuple[str, Any]]]] = {
    **{f"practical {space}": asked(space) for space in SPACES},
    **{f"practical, noisy {space}": asked(space, 0.1) for space in SPACES},
    "noise given": asked("mixed", 0.1, setting=Practical(noise_std=0.1)),
    "no noise, given": asked("five", 0.0, setting=Practical(noise_std=0.0)),
    "cmm": asked("square", 0.1, method="cmm-ucb"),
    "dmm": asked("mixed", 0.1, method="dmm-ucb"),
    "igp": asked("line", 0.1, method="igp-ucb", n_trials=TRIALS),
    "thompson": asked("square", 0.1, method="kernel-ts"),
    "random": asked("mixed", 0.1, method="random"),
    "batches": asked("five", 0.1, batch=4),
    "late": asked("mixed", 0.1, batch=2, late=True),
    "resumed": asked("mixed", 0.1, resumed=True),
    "failures": asked("five", 0.1, fails=True),
    "context": asked("mixed", 0.1, context=True),
    "linear": asked([(0.0, 1.0)] * 3, 0.05, constraints=[Linear({"x0": 1, "x1": 1}, upper=1.0)]),
    "function": asked(
        "mixed", 0.05, constraints=[few_layers := lambda params: params["layers"] <= 3]
    ),
    "limit": asked("five", 0.05, measured=True, constraints=LIMIT),
    "limit, exact": asked("mixed", 0.0, measured=True, constraints=LIMIT),
    "limit on a grid": asked("whole", 0.05, measured=True, constraints=LIMIT),
    "certified": asked("square", 0.1, setting=certified(2)),
    "certified cmm": asked("line", 0.1, setting=certified(1), method="cmm-ucb"),
    "certified, adaptive": asked(
        "line", 0.1, setting=certified(1, None), method="cmm-ucb-adaptive", n=30
    ),
    "certified, late": asked("line", 0.1, setting=certified(1), batch=2, late=True),
    "certified, late, declared": asked(
        "line",
        0.1,
        setting=certified(1, completion_independent_of_noise=True),
        batch=2,
        late=True,
        fails=True,
    ),
    "certified, failures": asked("line", 0.1, setting=certified(1), fails=True),
    "certified, resumed": asked("square", 0.1, setting=certified(2), resumed=True),
    "certified, chaining": asked(
        "table", 0.1, setting=certified(4), method="chaining-ucb-rigorous", n=20
    ),
    "certified, limit": asked(
        "line", 0.1, setting=certified(1), measured=True, constraints=KNOWN_LIMIT
    ),
    "certified, limit on a grid": asked(
        "whole", 0.1, setting=certified(2), measured=True, constraints=KNOWN_LIMIT, n=20
    ),
    "safe": asked(
        "line",
        0.05,
        measured=True,
        setting=Safe(matern(1), 0.1, 3.0, start=[{"x": 0.5}]),
        constraints=KNOWN_LIMIT,
        n=25,
    ),
    "safe on a grid": asked(
        "whole",
        0.05,
        measured=True,
        n=15,
        constraints=KNOWN_LIMIT,
        setting=Safe(matern(2), 0.1, 3.0, start=[{"a": 1, "b": 10}]),
    ),
    "minimize": tuned("mixed", 0.1),
    "maximize": tuned("five", 0.0, maximize=True),
    "first": tuned(
        "mixed", 0.1, try_first=[{"layers": 2}, {"lr": 0.01, "layers": 1, "act": "tanh"}]
    ),
    "evaluated": tuned(
        "line",
        0.1,
        evaluated=pd.DataFrame(
            {"x": [i / 10 for i in range(8)], "value": [(i / 10 - 0.4) ** 2 for i in range(8)]}
        ),
    ),
    "pruned": tuned("five", 0.1, reports=True, pruner="curves"),
    "median": tuned("mixed", 0.1, reports=True, pruner="median"),
    "gap": tuned("line", 0.0, stop_at_gap=0.05),
    "exhausted": tuned("table", 0.0),
    "Ax": ax_run(),
    "Ax, limited": ax_run(limited=True),
    "Ax, certified": ax_run(method="cmm-ucb", setting=certified(1)),
    "Optuna": optuna_run(),
    "Optuna, tree": optuna_run(tree=True),
    "Optuna, limited": optuna_run(limited=True),
    "Optuna, pruned": optuna_run(pruned=True),
}


def plain(value: Any) -> Iterator[tuple[str, Any]]:
    """Numbers, texts and whole lists, each with a name."""
    if isinstance(value, torch.Tensor):
        value = value.double().tolist()
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from ((f".{key}{name}", part) for name, part in plain(entry))
    elif isinstance(value, (list, tuple)):
        for i, entry in enumerate(value):
            yield from ((f"[{i}]{name}", part) for name, part in plain(entry))
    else:
        yield "", float(value) if isinstance(value, float) else value


def answers() -> Iterator[tuple[str, Any]]:
    chosen = sys.argv[3:]
    warnings.simplefilter("ignore")
    for name, case in CASES.items():
        if chosen and name not in chosen:
            continue
        print(name, file=sys.stderr, flush=True)
        try:
            found = list(case())
        except kbo.KboError as error:
            found = [("error", f"{type(error).__name__}: {error}")]
        for what, value in found:
            yield from ((f"{name}, {what}{part}", entry) for part, entry in plain(value))


if __name__ == "__main__":
    main(*sys.argv[1:3], answers)
