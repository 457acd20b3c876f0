"""The functions of COCO's suites bbob and bbob-mixint as tuning problems, with and without noise."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from experiments.problems.base import (
    NOISE_LEVEL,
    TuningProblem,
    interquartile_ranges,
    seed_or_drawn,
)
from kbo._base import checks
from kbo._base.extras import require
from kbo.errors import InvalidInput
from kbo.space import Float, Int, Params, Space

DIMENSIONS = (2, 3, 5, 10, 20, 40)
"""Dimensions of bbob; those of bbob-mixint begin with 5."""

NOISES = {"none": 0.0, "gauss": NOISE_LEVEL, "heavy": NOISE_LEVEL, "gauss-0.5": 0.5, "gauss-2": 2.0}
"""Standard deviations of the noise by name, in interquartile ranges of the function; "heavy" is scaled like "gauss"."""

_GAUSS_TO_T3 = 0.6744897501960817 / 0.7648923284043453
"""Ratio of the upper quartiles of the standard normal distribution and Student's t with three degrees of freedom."""

_MIXINT_SCALES = {
    12: 1e-4,
    **dict.fromkeys((2, 10), 1e-3),
    **dict.fromkeys((6, 8, 9, 11), 1e-2),
    **dict.fromkeys((3, 4, 13, 15, 20, 24), 0.1),
    **dict.fromkeys((17, 19, 23), 10.0),
}
"""Factors of functions of bbob-mixint, if not 1: optimal values are those of bbob times the factor (Tušar, Brockhoff
and Hansen 2019)."""


class BBOB(TuningProblem):
    """A function of COCO to minimise.

    Args:
        function: Its number, 1 to 24.
        dim: 2, 3, 5, 10, 20 or 40 (5, 10, 20 or 40 with ``integers``).
        instance: Number of the instance, which shifts and rotates the function.
        noise: "none"; "gauss", with a standard deviation of 5% of the function's interquartile range over the box
            (1024 Sobol points); "gauss-0.5" and "gauss-2", with a half and twice that range; or "heavy", Student's t
            with 3 degrees of freedom and the same quartiles as "gauss".
        integers: Whether the function is of bbob-mixint, with four fifths of its parameters whole numbers; otherwise it
            is of bbob, on [-5, 5]^dim.
        seed: Seed of the noise; None draws from the system.

    Attributes:
        solution: The parameters with the smallest value; for bbob only.

    Raises:
        InvalidInput: An argument is out of range.
        MissingExtra: COCO is not installed.
    """

    def __init__(
        self,
        function: int = 1,
        dim: int = 5,
        instance: int = 1,
        noise: str = "none",
        integers: bool = False,
        seed: int | None = None,
    ) -> None:
        require("this problem", "experiments", "cocoex")
        import cocoex

        function = checks.whole("function", function, 1, 24)
        instance = checks.whole("instance", instance, 1, 10**6)
        dim = checks.whole("dim", dim, 1)
        known = DIMENSIONS
        if checks.flag("integers", integers):
            known = tuple(size for size in DIMENSIONS if size >= 5)
        if dim not in known:
            raise InvalidInput(f"dim must be one of {', '.join(map(str, known))}, got {dim}.")
        self.noise: str = checks.one_of("noise", noise, NOISES)
        self._rng = torch.Generator().manual_seed(seed_or_drawn(seed))
        self._function = cocoex.BareProblem("bbob", function, dim, instance)
        self.optimum: float = self._function.best_value()
        self.solution: list[float] = self._function.best_parameter().tolist()
        self.space: Space = Space([(-5.0, 5.0)] * dim)
        if integers:
            options = f"dimensions: {dim} function_indices: {function}"
            self._function = cocoex.Suite("bbob-mixint", f"instances: {instance}", options)[0]
            self.optimum *= _MIXINT_SCALES.get(function, 1.0)
            self.space = _mixed_space(self._function)
        self.name: str = str(self._function.id)
        self.noise_scale: float = 0.0
        if noise != "none":
            spread = interquartile_ranges(self.value, self.space)
            self.noise_scale = NOISES[noise] * float(spread)

    def reseed(self, seed: int) -> None:
        """Seed the noise anew."""
        self._rng = torch.Generator().manual_seed(seed)

    def __call__(self, params: Params) -> float:
        z: Tensor = torch.randn(4, generator=self._rng, dtype=torch.float64, device="cpu")
        scale = self.noise_scale
        if self.noise == "heavy":  # a t variable: a normal one over the root of a mean square
            scale *= _GAUSS_TO_T3 / float(z[1:].square().mean().sqrt())
        return self.noiseless(params) + scale * float(z[0])

    def noiseless(self, params: Params) -> float:
        if isinstance(params, dict):
            params = list(params.values())
        return float(self._function(list(params)))

    def value(self, params: Params) -> Tensor:
        """The value without noise, as a tensor."""
        return torch.tensor(self.noiseless(params), dtype=torch.float64, device="cpu")


def _mixed_space(function: Any) -> Space:
    """Return the space of a function of bbob-mixint: whole numbers first, then real ones."""
    bounds = zip(function.lower_bounds.tolist(), function.upper_bounds.tolist(), strict=True)
    parameters: dict[str, Int | Float] = {}
    for i, (low, high) in enumerate(bounds):
        kind = Int if i < function.number_of_integer_variables else Float
        parameters[f"x{i}"] = kind(low, high)
    return Space(parameters)
