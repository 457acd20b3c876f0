"""The functions of COCO's suites bbob and bbob-mixint as tuning problems, with and without noise."""

from __future__ import annotations

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
"""Standard deviations of the noise, in interquartile ranges of the function, by name; of "heavy" that of "gauss"."""

_GAUSS_TO_T3 = 0.6744897501960817 / 0.7648923284043453
"""Ratio of the upper quartiles of the standard normal distribution and Student's t with three degrees of freedom."""

_MIXINT_SCALES = {
    number: scale
    for scale, numbers in {
        1e-4: [12],
        1e-3: [2, 10],
        1e-2: [6, 8, 9, 11],
        0.1: [3, 4, 13, 15, 20, 24],
        10.0: [17, 19, 23],
    }.items()
    for number in numbers
}
"""Factors other than 1 of the functions of bbob-mixint (Tušar, Brockhoff and Hansen 2019): their optimal values are
those of bbob, multiplied by them."""


class BBOB(TuningProblem):
    """A function of COCO to minimise.

    Args:
        function: Its number, 1 to 24.
        dim: 2, 3, 5, 10, 20 or 40 (5, 10, 20 or 40 with ``integers``).
        instance: Number of the instance, which shifts and rotates the function.
        noise: "none"; "gauss", with a standard deviation of 5% of the function's interquartile range over the box
            (1024 Sobol points); "gauss-0.5" and "gauss-2", with a half and twice that range; or "heavy", Student's t
            with 3 degrees of freedom and the same quartiles as "gauss".
        integers: The function of bbob-mixint, with four fifths of its parameters whole numbers, instead of that of
            bbob, on [-5, 5]^dim.
        seed: Seed of the noise; None draws from the system.

    Attributes:
        solution: The parameters with the least value, of bbob.

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

        function, instance = (
            checks.whole("function", function, 1, 24),
            checks.whole("instance", instance, 1, 10**6),
        )
        known = DIMENSIONS
        if checks.flag("integers", integers):
            known = tuple(least for least in DIMENSIONS if least >= 5)
        if (dim := checks.whole("dim", dim, 1)) not in known:
            raise InvalidInput(f"dim must be one of {', '.join(map(str, known))}, got {dim}.")
        self.noise: str = checks.one_of("noise", noise, NOISES)
        self._rng = torch.Generator().manual_seed(seed_or_drawn(seed))
        self._function = cocoex.BareProblem("bbob", function, dim, instance)
        self.optimum: float = self._function.best_value() * (
            _MIXINT_SCALES.get(function, 1.0) if integers else 1.0
        )
        self.solution: list[float] = self._function.best_parameter().tolist()
        if integers:
            options = f"dimensions: {dim} function_indices: {function}"
            self._function = f = cocoex.Suite("bbob-mixint", f"instances: {instance}", options)[0]
            kinds = [Int] * f.number_of_integer_variables + [Float] * dim
            ends = zip(f.lower_bounds.tolist(), f.upper_bounds.tolist(), strict=True)
            self.space: Space = Space({f"x{i}": kinds[i](*pair) for i, pair in enumerate(ends)})
        else:
            self.space = Space([(-5.0, 5.0)] * dim)
        self.name: str = str(self._function.id)
        self.noise_scale: float = 0.0
        if noise != "none":
            spread = interquartile_ranges(self.value, self.space)
            self.noise_scale = NOISES[noise] * float(spread)

    def reseed(self, seed: int) -> None:
        """Draw the noise from another seed from now on."""
        self._rng = torch.Generator().manual_seed(seed)

    def __call__(self, params: Params) -> float:
        z: Tensor = torch.randn(4, generator=self._rng, dtype=torch.float64, device="cpu")
        heavy = _GAUSS_TO_T3 / float(z[1:].square().mean().sqrt()) if self.noise == "heavy" else 1.0
        return self.noiseless(params) + self.noise_scale * heavy * float(z[0])

    def noiseless(self, params: Params) -> float:
        return float(self._function(list(params.values() if isinstance(params, dict) else params)))

    def value(self, params: Params) -> Tensor:
        """The value without noise, as a tensor."""
        return torch.tensor(self.noiseless(params), dtype=torch.float64, device="cpu")
