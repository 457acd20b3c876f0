"""Base classes of problems: tuning problems, and bandits with the same arms in every round; seeds and generators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from kbo._base import checks
from kbo._base.extras import require
from kbo.bandit.problem import Bandit
from kbo.errors import InvalidInput
from kbo.space import Params, Space


class TuningProblem(ABC):
    """A problem to tune: a function of parameters of its space; smaller values are better.

    Attributes:
        name: The name in tables.
        space: The search space.
        optimum: The smallest value without noise; None if it is unknown.
        constraints: Names of the measured quantities that must be at most 0.
    """

    name: str
    space: Space
    optimum: float | None = None
    constraints: tuple[str, ...] = ()

    @abstractmethod
    def __call__(self, params: Params) -> float | dict[str, float]:
        """One noisy evaluation, in the form for ``kbo.minimize``."""

    def noiseless(self, params: Params) -> float | None:
        """The value without noise; None if it is unknown."""
        return None

    def feasible(self, params: Params) -> bool:
        """Return whether the parameters satisfy every constraint, without noise."""
        return True

    def renew(self) -> None:  # noqa: B027
        """Seed the noise anew from the system."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        # The copies of several workers must not draw the same numbers.
        if state.get("_seed", 0) is None:
            self.renew()


class FixedArms(Bandit):
    """A bandit problem that offers the same arms [A d] in every round."""

    fixed_arms: Tensor

    def checked(self, index: int) -> int:
        """The index after a check that it is the index of an arm."""
        if not 0 <= index < self.n_arms:
            raise InvalidInput(
                f"index must be that of an arm, 0 to {self.n_arms - 1}, got {index}."
            )
        return index


class RowNumbers:
    """The row numbers of known points, for functions with known values there, which must be equal to the last bit."""

    def __init__(self, points: Tensor) -> None:
        self._numbers = {tuple(row): i for i, row in enumerate(points.tolist())}

    def __call__(self, X: Tensor) -> Tensor:
        """Row numbers [n] of points X [n d]; -1 for a point that is not known."""
        numbers = [self._numbers.get(tuple(row), -1) for row in X.tolist()]
        return torch.tensor(numbers, dtype=torch.long, device="cpu")


NOISE_LEVEL = 0.05
"""Standard deviation of the noise of test functions, in interquartile ranges."""


def interquartile_ranges(function: Callable[[Params], Tensor], space: Space) -> Tensor:
    """The interquartile ranges [...] of a function over 1024 Sobol points of a space."""
    sobol = torch.quasirandom.SobolEngine(space.dimension, scramble=True, seed=0)
    points = sobol.draw(1024, dtype=torch.float32)
    values = torch.stack([function(space.params(point)) for point in points])
    quartiles = torch.tensor([0.25, 0.75], dtype=torch.float64, device="cpu")
    lower, upper = values.quantile(quartiles, dim=0)
    return upper - lower


def generators(*seeds: int) -> list[torch.Generator]:
    """One generator for each seed."""
    found = []
    for seed in seeds:
        if abs(seed) >= 2**63:
            seed %= 2**63
        found.append(torch.Generator().manual_seed(seed))
    return found


def seed_or_drawn(seed: int | None) -> int:
    """The given seed, or a seed drawn by the system if it is None."""
    if seed is None:
        return torch.Generator().seed() % 2**31
    return checks.seed(seed)


def streams(seed: int) -> list[torch.Generator]:
    """Independent generators of the arms, the function and the noise of a problem; torch uses 32 bits of a seed."""
    seed = checks.seed(seed)
    return generators(500_000_000 + seed, 1_000_000_000 + seed, 1_500_000_000 + seed)


def unit_scaled(X: Tensor) -> Tensor:
    """X [n d] with every column shifted and scaled to [0, 1]."""
    least = X.amin(0)
    return (X - least) / (X.amax(0) - least)


def sklearn_datasets() -> ModuleType:
    """The data sets of scikit-learn."""
    require("this problem", "cli", "sklearn")
    from sklearn import datasets

    return datasets
