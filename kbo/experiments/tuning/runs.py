"""A tuner meets a problem, as a cell of a sweep."""

from __future__ import annotations

import contextlib
import functools
import importlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from botorch.test_functions import Cosine8, Michalewicz, Rosenbrock, SixHumpCamel, StyblinskiTang

from kbo.experiments.sweep.cells import Cell
from kbo.experiments.tuning.tuners import tuner
from kbo.problems import (
    DiabetesSVR,
    DigitsMLP,
    GridBandit,
    NoisyFunction,
    TuningProblem,
    ackley,
    branin,
    hartmann6,
    levy,
)
from kbo.space import Params

SUITE: dict[str, Callable[..., TuningProblem]] = {
    "branin": branin,
    "hartmann6": hartmann6,
    "ackley10": functools.partial(ackley, 10),
    "levy4": levy,
    "diabetes": DiabetesSVR,
    "arms": GridBandit,
    "digits": DigitsMLP,
}
"""What tuners are compared on; nothing was tuned on these."""


def _practice(make: Callable[[], Any], name: str, noise_std: float) -> Callable[..., TuningProblem]:
    return lambda seed: NoisyFunction(name, make(), noise_std, seed)


PRACTICE: dict[str, Callable[..., TuningProblem]] = {
    "camel": _practice(SixHumpCamel, "camel", 0.5),
    "styblinski5": _practice(functools.partial(StyblinskiTang, dim=5), "styblinski5", 5.0),
    "cosine8": _practice(Cosine8, "cosine8", 0.2),
    "michalewicz5": _practice(functools.partial(Michalewicz, dim=5), "michalewicz5", 0.2),
    "rosenbrock4": _practice(functools.partial(Rosenbrock, dim=4), "rosenbrock4", 100.0),
    "arms-rough": functools.partial(GridBandit, 30, 2, 0.5),
}
"""What the defaults of kbo were tuned on."""

AGAIN = 20
"""New evaluations whose mean stands for the value without noise, where that is not known."""

_FRESH = 1_000_000_000
"""Added to a seed for evaluations that judge a recommendation."""


def play(
    problem: str,
    name: str,
    seed: int,
    checkpoints: Sequence[int],
    options: Mapping[str, Any] | None = None,
    constants: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """One run of a tuner.

    Args:
        problem: A key of ``SUITE`` or ``PRACTICE``.
        name: See ``tuners.tuner``.
        seed: Of problem, noise and tuner.
        checkpoints: Numbers of trials after which the recommendation is judged; the run ends with the last.
        options: Of kbo.
        constants: Other values of constants of kbo, by "module:NAME".

    Returns:
        A row per checkpoint: ``trials``, ``value`` (without noise) of the recommendation, ``regret`` (NaN where the
        optimum is not known), and ``cpu_seconds`` of the tuner, the objective's own not included.
    """
    with _changed(constants or {}):
        return _play(problem, name, seed, checkpoints, options)


@contextlib.contextmanager
def _changed(constants: Mapping[str, Any]) -> Iterator[None]:
    """Other values of module constants for a while."""
    with contextlib.ExitStack() as stack:
        for place, value in constants.items():
            module, _, name = place.partition(":")
            owner = importlib.import_module(module)
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)
        yield


def _play(
    problem: str, name: str, seed: int, checkpoints: Sequence[int], options: Mapping[str, Any] | None
) -> list[dict[str, Any]]:
    make = {**SUITE, **PRACTICE}[problem]
    world, rows = make(seed=seed), []
    start = time.process_time()
    chosen = tuner(name, world.space, seed, options)
    spent = time.process_time() - start
    for trial in range(1, max(checkpoints) + 1):
        start = time.process_time()
        params = chosen.ask()
        spent += time.process_time() - start
        value = world(params)
        start = time.process_time()
        chosen.tell(params, value)
        spent += time.process_time() - start
        if trial in checkpoints:
            start = time.process_time()
            params = chosen.recommended()
            spent += time.process_time() - start
            value = true_value(make, world, params, seed)
            regret = float("nan") if world.optimum is None else value - world.optimum
            rows.append({"trials": trial, "value": value, "regret": regret, "cpu_seconds": spent})
    return rows


def true_value(make: Callable[..., TuningProblem], world: TuningProblem, params: Params, seed: int) -> float:
    """The value without noise; where it is not known, the mean of new evaluations, the same for all tuners."""
    value = world.noiseless(params)
    if value is not None:
        return value
    fresh = make(seed=_FRESH + seed)
    return sum(fresh(params) for _ in range(AGAIN)) / AGAIN


def cell(problem: str, name: str, seed: int, checkpoints: Sequence[int], label: str = "", **more: Any) -> Cell:
    """The same as a cell; ``label`` says in a word what is different about it."""
    arguments = {"problem": problem, "name": name, "seed": seed, "checkpoints": list(checkpoints), **more}
    return Cell(f"{__name__}:play", arguments, f"{problem} {name} {label} seed{seed} T{max(checkpoints)}")
