"""Runs of a tuner on a problem, as cells of a sweep."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

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
"""Problems of the comparison; nothing was tuned on these."""


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
"""Problems on which the defaults of kbo were tuned."""

EVALUATIONS = 20
"""New evaluations whose mean stands for the value without noise, where that is not known."""

_FRESH = 1_000_000_000
"""Added to a seed for evaluations that judge a recommendation."""


def run(
    problem: str,
    name: str,
    seed: int,
    checkpoints: Sequence[int],
    options: Mapping[str, Any] | None = None,
    constants: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Run a tuner on a problem.

    Args:
        problem: A key of ``SUITE`` or ``PRACTICE``.
        name: See ``tuners.tuner``.
        seed: Of problem, noise and tuner.
        checkpoints: Numbers of trials after which the recommendation is judged; the run ends with the last.
        options: Options of the tuner.
        constants: Other values of constants of kbo for the time of the run, by "module.NAME".

    Returns:
        A row per checkpoint: ``trials``, ``value`` (without noise) of the recommendation, ``regret`` (NaN where the
        optimum is not known), and ``cpu_seconds`` of the tuner, the objective's own not included.
    """
    make, rows, spent = {**SUITE, **PRACTICE}[problem], [], []
    objective = make(seed=seed)
    with ExitStack() as changed:
        for constant, value in (constants or {}).items():
            changed.enter_context(mock.patch(constant, value))
        with _timed(spent):
            chosen = tuner(name, objective.space, seed, **(options or {}))
        for trial in range(1, max(checkpoints) + 1):
            with _timed(spent):
                params = chosen.ask()
            value = objective(params)
            with _timed(spent):
                chosen.tell(params, value)
            if trial in checkpoints:
                with _timed(spent):
                    params = chosen.recommended()
                value = true_value(make, objective, params, seed)
                regret = float("nan") if objective.optimum is None else value - objective.optimum
                rows.append({"trials": trial, "value": value, "regret": regret, "cpu_seconds": sum(spent)})
    return rows


@contextmanager
def _timed(spent: list[float]) -> Iterator[None]:
    """Append the CPU seconds of the block."""
    start = time.process_time()
    yield
    spent.append(time.process_time() - start)


def true_value(make: Callable[..., TuningProblem], objective: TuningProblem, params: Params, seed: int) -> float:
    """Return the value without noise; where it is not known, the mean of new evaluations, the same for all tuners."""
    value = objective.noiseless(params)
    if value is not None:
        return value
    fresh = make(seed=_FRESH + seed)
    return sum(fresh(params) for _ in range(EVALUATIONS)) / EVALUATIONS


def cell(problem: str, name: str, seed: int, checkpoints: Sequence[int], label: str = "", **more: Any) -> Cell:
    """Return the run as a cell; ``label`` says in a word what is different about it."""
    arguments = {"problem": problem, "name": name, "seed": seed, "checkpoints": list(checkpoints), **more}
    return Cell(f"{__name__}:run", arguments, f"{problem} {name} {label} seed{seed} T{max(checkpoints)}")
