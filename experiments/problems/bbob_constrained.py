"""The functions of COCO's suite bbob-constrained as tuning problems, with noise in every output."""

from __future__ import annotations

import torch
from torch import Tensor

from experiments.problems.base import (
    NOISE_LEVEL,
    TuningProblem,
    interquartile_ranges,
    seed_or_drawn,
)
from kbo._base.extras import require
from kbo.space import Params, Space


class ConstrainedBBOB(TuningProblem):
    """A function of bbob-constrained to minimise on [-5, 5]^dim while c1, c2, ... are at most 0.

    The standard deviation of the noise of each output is 5% of its interquartile range over the box (1024 Sobol
    points), as for ``BBOB``. The optimum is not known here, so runs are compared by their values.

    Args:
        function: Its number, 1 to 54.
        dim: 2, 3, 5, 10, 20 or 40.
        instance: Number of the instance, which shifts and rotates the function.
        seed: Seed of the noise; None draws from the system.

    Attributes:
        noise_stds: Standard deviations of the noise [outputs], that of the objective first.

    Raises:
        MissingExtra: COCO is not installed.
    """

    def __init__(
        self, function: int = 1, dim: int = 5, instance: int = 1, seed: int | None = None
    ) -> None:
        require("this problem", "experiments", "cocoex")
        import cocoex

        options = f"dimensions: {dim} function_indices: {function}"
        self._function = cocoex.Suite("bbob-constrained", f"instances: {instance}", options)[0]
        self.name: str = str(self._function.id)
        self.space: Space = Space([(-5.0, 5.0)] * dim)
        count = self._function.number_of_constraints
        self.constraints: tuple[str, ...] = tuple(f"c{i + 1}" for i in range(count))
        self.noise_stds: Tensor = NOISE_LEVEL * interquartile_ranges(self.outputs, self.space)
        self._rng = torch.Generator().manual_seed(seed_or_drawn(seed))

    def __call__(self, params: Params) -> dict[str, float]:
        """One noisy evaluation of all outputs, by name."""
        count = len(self.noise_stds)
        normal = torch.randn(count, generator=self._rng, dtype=torch.float64, device="cpu")
        outputs = self.outputs(params) + self.noise_stds * normal
        return dict(zip(("objective", *self.constraints), outputs.tolist(), strict=True))

    def outputs(self, params: Params) -> Tensor:
        """The objective and the measured quantities [outputs] without noise."""
        x = list(params)
        outputs = [self._function(x), *self._function.constraint(x)]
        return torch.tensor(outputs, dtype=torch.float64, device="cpu")

    def noiseless(self, params: Params) -> float:
        return float(self.outputs(params)[0])

    def feasible(self, params: Params) -> bool:
        return bool((self.outputs(params)[1:] <= 0).all())
