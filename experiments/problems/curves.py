"""Recorded learning curves of real trainings. They show what a pruner saves and loses, without any training."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.problems.base import TuningProblem
from kbo._base import checks
from kbo.space import Float, Int, Params, Space

FILE: Path = Path(__file__).with_name("curves.npz")

STEPS = 30
"""Number of reports of a whole training."""

_ALIKE = 11
"""Number of trainings with similar results whose noise is assumed to be alike."""

_NETWORK = Space(
    {
        "learning_rate": Float(1e-4, 1e-1, log=True),
        "alpha": Float(1e-6, 1.0, log=True),
        "width": Int(8, 128, log=True),
        "layers": Int(1, 2),
        "batch_size": Int(16, 128, log=True),
    }
)
_TREES = Space(
    {
        "learning_rate": Float(5e-3, 1.0, log=True),
        "max_depth": Int(1, 6),
        "subsample": Float(0.3, 1.0),
        "max_features": Float(0.1, 1.0),
        "min_samples_leaf": Int(1, 30, log=True),
    }
)
_LINEAR = Space(
    {
        "learning_rate": Float(1e-5, 1e-1, log=True),
        "power": Float(0.0, 0.9),
        "alpha": Float(1e-6, 1.0, log=True),
        "l1_ratio": Float(0.0, 1.0),
    }
)

SPACES: dict[str, Space] = {
    "network-digits": _NETWORK,
    "network-friedman": _NETWORK,
    "linear-digits": _LINEAR,
    "trees-cancer": _TREES,
    "trees-diabetes": _TREES,
}
"""The search space of each set of trainings."""


@cache
def _recorded(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return units [n P] and curves [2 n STEPS] of a set."""
    with np.load(FILE) as found:
        return found[f"{name}/units"], found[f"{name}/curves"]


class TrainingCurves(TuningProblem):
    """A training with one of 200 recorded parameters. The validation error is reported after every step.

    Every parameter vector was trained twice, with different splits, starts and orders of the data. An evaluation
    replays the mean of both curves plus noise, at least 0. The noise is a standard normal number times the difference
    of two curves, divided by sqrt(2). These two curves are of one of the eleven parameter vectors with the nearest
    final means, since the two own curves say little about the variance. Smaller values are better. The space is the
    table of the recorded parameters.

    Args:
        name: A key of ``SPACES``: networks, linear models and boosted trees on small data of scikit-learn.
        seed: Seed of the normal numbers; None draws from the system.
    """

    def __init__(self, name: str, seed: int | None = None) -> None:
        self.name: str = checks.one_of("name", name, SPACES)
        units, curves = _recorded(name)
        self._means = curves.mean(0)
        self._deviations = (curves[0] - curves[1]) / math.sqrt(2)
        rows: list[Any] = [SPACES[name].params(torch.from_numpy(unit).double()) for unit in units]
        entries = SPACES[name].to_dict()
        for parameter, entry in entries.items():
            entry["rows"] = [row[parameter] for row in rows]
        self.space: Space = Space.from_dict(entries)
        self._rows = {tuple(row.values()): number for number, row in enumerate(rows)}
        self._seed = seed
        self.renew()
        self.optimum: float | None = float(self._means[:, -1].min())

    def renew(self) -> None:
        self._rng = np.random.default_rng(self._seed)

    def noiseless(self, params: Params) -> float:
        """Return the mean error of both whole trainings."""
        return float(self._means[self._row(params), -1])

    def __call__(self, params: Params, trial: Any = None) -> float:
        row = self._row(params)
        distances = abs(self._means[:, -1] - self._means[row, -1])
        nearest = np.argsort(distances, kind="stable")[:_ALIKE]
        noise = self._rng.standard_normal() * self._deviations[self._rng.choice(nearest)]
        curve = np.maximum(self._means[row] + noise, 0.0)
        value = 0.0
        for step, value in enumerate(curve.tolist(), 1):
            if trial is not None:
                trial.report(value, step=step)
                if step < STEPS and trial.should_stop():
                    break
        return value

    def _row(self, params: Params) -> int:
        """Return the number of the recorded parameters."""
        assert isinstance(params, dict)
        return self._rows[tuple(params.values())]
