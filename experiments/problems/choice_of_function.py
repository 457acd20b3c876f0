"""A choice among functions of COCO, each with its own parameters: a tuning problem with conditional parameters."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from experiments.problems.base import TuningProblem, interquartile_ranges
from experiments.problems.bbob import BBOB, NOISES
from kbo._base import checks
from kbo.space import Float, Params, Space, When

_SIZES = (2, 3, 5)
"""Numbers of parameters of the options."""


class ChoiceOfFunction(TuningProblem):
    """Three functions of bbob with 2, 3 and 5 parameters, as the options of one parent.

    The unit of each function is its interquartile range over its box (1024 Sobol points). Each function is shifted so
    that its smallest value is a random number in [0, 0.3], and 0 for one of them. So the options differ by less than
    each function varies over its box.

    Args:
        functions: The numbers of three functions of bbob.
        instance: Number of their instance, which also decides the smallest values.
        noise: A key of ``experiments.problems.bbob.NOISES`` other than "heavy".
        seed: Seed of the noise; None draws from the system.

    Raises:
        InvalidInput: An argument is out of range.
        MissingExtra: COCO is not installed.
    """

    optimum = 0.0

    def __init__(
        self,
        functions: Sequence[int],
        instance: int = 1,
        noise: str = "none",
        seed: int | None = None,
    ) -> None:
        numbers = [checks.whole("functions", number, 1, 24) for number in functions]
        self.noise_std: float = NOISES[checks.one_of("noise", noise, NOISES)]
        self.name = f"choice-{'-'.join(map(str, numbers))}"
        pairs = zip(numbers, _SIZES, strict=True)
        self._functions = [BBOB(number, size, instance) for number, size in pairs]
        self._scales = [float(interquartile_ranges(f.value, f.space)) for f in self._functions]
        drawn = torch.rand(3, generator=torch.Generator().manual_seed(instance))
        self._least = (0.3 * (drawn - drawn.min())).tolist()
        options = [f"f{option}" for option in range(len(_SIZES))]
        own = []
        for option, size in zip(options, _SIZES, strict=True):
            parameters = {f"{option} x{i}": Float(-5.0, 5.0) for i in range(size)}
            own.append(When("function", option, parameters))
        self.space: Space = Space([{"function": options}, *own])
        self._rng = torch.Generator()
        if seed is None:
            self._rng.seed()
        else:
            self._rng.manual_seed(checks.seed(seed))

    def __call__(self, params: Params) -> float:
        noise = torch.randn((), generator=self._rng, dtype=torch.float64, device="cpu")
        return self.noiseless(params) + self.noise_std * float(noise)

    def noiseless(self, params: Params) -> float:
        assert isinstance(params, dict)
        option = int(params["function"][1:])
        function = self._functions[option]
        x = [value for name, value in params.items() if name != "function"]
        above = function.noiseless(x) - function.optimum
        return self._least[option] + above / self._scales[option]
