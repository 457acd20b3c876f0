"""Suites of problems for comparisons of tuners. Each has two halves: one for development, and one for the report."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from experiments import problems
from experiments.problems import (
    BBOB,
    AnyLearner,
    ChoiceOfFunction,
    ConstrainedBBOB,
    GridBandit,
    LearnerOnData,
    TuningProblem,
)
from experiments.problems.bbob import DIMENSIONS, NOISES
from experiments.problems.learners import DATA, LEARNERS
from kbo._base import checks
from kbo.errors import InvalidInput
from kbo.space import Params

Make = Callable[..., TuningProblem]
"""A function that makes a problem; its argument ``seed`` determines all random numbers of the problem."""

TABLES: dict[str, Make] = {
    "branin": problems.branin,
    "hartmann6": problems.hartmann6,
    "ackley10": functools.partial(problems.ackley, 10),
    "levy4": problems.levy,
    "diabetes": problems.DiabetesSVR,
    "arms": GridBandit,
    "digits": problems.DigitsMLP,
}
"""Problems of the tables of ``experiments.tuning.comparison``; nothing was tuned on these."""


CONDITIONAL: dict[str, Make] = {"tree": problems.TreeFunction, "learners": problems.AnyLearner}
"""Problems with conditional parameters."""


def _function(name: str, number: int, dim: int, noise: str) -> Make:
    return lambda seed: BBOB(number, dim, seed, noise, integers=name == "bbob-mixint", seed=seed)


_FUNCTIONS = {
    (name, dim, noise): {
        f"{name}-f{n}-d{dim}-{noise}": _function(name, n, dim, noise) for n in range(1, 25)
    }
    for name, least in (("bbob", 2), ("bbob-mixint", 5))
    for dim in DIMENSIONS
    for noise in NOISES
    if dim >= least
}
"""The functions of COCO by suite, dimension and noise; the seed is also the instance."""

_TASKS = {
    f"{learner}-{data}": functools.partial(LearnerOnData, learner, data)
    for learner in LEARNERS
    for data in DATA
}

DEVELOPMENT = {
    *("svm-digits", "svm-cancer", "svm-housing", "forest-wine", "forest-diabetes"),
    *("boosting-digits", "boosting-cancer", "boosting-housing", "mlp-wine", "mlp-diabetes"),
    *(name for suite in _FUNCTIONS.values() for name in list(suite)[::2]),
}
"""Problems for development: half of the tasks of "hpo", and the functions of odd number."""


def _choice(numbers: tuple[int, ...], noise: str) -> Make:
    return lambda seed: ChoiceOfFunction(numbers, seed, noise, seed)


def _constrained(number: int, dim: int) -> Make:
    return lambda seed: ConstrainedBBOB(number, dim, seed, seed)


CHOICES: dict[str, dict[str, Make]] = {
    noise: {
        f"choice-{'-'.join(map(str, numbers))}-{noise}": _choice(numbers, noise)
        for numbers in ((2, 8, 14), (4, 10, 16), (6, 12, 18), (20, 22, 24))
    }
    for noise in ("none", "gauss", "gauss-0.5")
}
"""Choices among functions of COCO of even number, by noise: held out."""

ANY_LEARNER: dict[str, Make] = {
    f"learners-{data}": functools.partial(AnyLearner, data)
    for data in ("digits", "diabetes", "housing")
}
"""The choice of a learner on data that were not used for development: held out."""

CONSTRAINED: dict[int, dict[str, Make]] = {
    dim: {
        f"constrained-f{number}-d{dim}": _constrained(number, dim)
        for number in range(1, 54)
        if number % 6 in (1, 2)
    }
    for dim in (2, 5)
}
"""The functions of bbob-constrained with one and three constraints, by dimension: held out."""

PROBLEMS: dict[str, Make] = functools.reduce(
    dict.__or__,
    [
        TABLES | CONDITIONAL | _TASKS | ANY_LEARNER,
        *_FUNCTIONS.values(),
        *CHOICES.values(),
        *CONSTRAINED.values(),
    ],
)
"""All problems by name."""

SUITES = ("bbob", "bbob-mixint", "hpo")
HALVES = ("development", "held-out")


def half_of(suite: str, half: str, dim: int | None = None, noise: str | None = None) -> list[str]:
    """Return the names of the problems of half a suite.

    Args:
        suite: "bbob" or "bbob-mixint", the functions of COCO, or "hpo", learners on small data.
        half: "development" or "held-out".
        dim: Dimension of functions, by default 5.
        noise: Noise of functions, a key of ``experiments.problems.bbob.NOISES``; by default "gauss".

    Raises:
        InvalidInput: There is no such suite or half, or it has no such dimension or noise.
    """
    develops = checks.one_of("half", half, HALVES) == "development"
    if checks.one_of("suite", suite, SUITES) == "hpo":
        if (dim, noise) != (None, None):
            raise InvalidInput(
                "dim and noise belong to the functions of COCO: leave them out for the suite 'hpo'."
            )
        names = list(_TASKS)
    else:
        noise = checks.one_of("noise", noise or "gauss", NOISES)
        dim = dim or 5
        if (suite, dim, noise) not in _FUNCTIONS:
            dims = sorted({known for name, known, _ in _FUNCTIONS if name == suite})
            raise InvalidInput(
                f"dim of {suite} must be one of {', '.join(map(str, dims))}, got {dim}."
            )
        names = list(_FUNCTIONS[suite, dim, noise])
    return [name for name in names if (name in DEVELOPMENT) == develops]


N_EVALUATIONS = 20
"""Number of new evaluations whose mean counts as the value without noise, if that is unknown."""


def true_value(
    make: Callable[..., TuningProblem], objective: TuningProblem, params: Params, seed: int
) -> float:
    """Return the value without noise; if it is unknown, the mean of new evaluations, the same for all tuners."""
    value = objective.noiseless(params)
    if value is not None:
        return value
    fresh: Any = make(seed=1_000_000_000 + seed)
    return sum(fresh(params) for _ in range(N_EVALUATIONS)) / N_EVALUATIONS
