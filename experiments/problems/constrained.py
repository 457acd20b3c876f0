"""Test functions with measured constraints; objective and constraints have noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

import torch
from botorch.test_functions import synthetic
from botorch.test_functions.synthetic import ConstrainedSyntheticTestFunction
from torch import Tensor

from experiments.problems.base import (
    NOISE_LEVEL,
    TuningProblem,
    interquartile_ranges,
    seed_or_drawn,
)
from kbo.space import Params, Space


class Gardner1(ConstrainedSyntheticTestFunction):
    """The first simulation of Gardner et al. (2014)."""

    dim = 2
    num_constraints = 1
    continuous_inds: ClassVar[list[int]] = [0, 1]
    _bounds: ClassVar[list[tuple[float, float]]] = [(0.0, 6.0)] * 2

    def _evaluate_true(self, X: Tensor) -> Tensor:
        x, y = X.unbind(-1)
        return (2 * x).cos() * y.cos() + x.sin()

    def _evaluate_slack_true(self, X: Tensor) -> Tensor:
        return 0.5 - X.sum(-1, keepdim=True).cos()


class Gardner2(ConstrainedSyntheticTestFunction):
    """The second simulation of Gardner et al. (2014), whose feasible regions are small."""

    dim = 2
    num_constraints = 1
    continuous_inds: ClassVar[list[int]] = [0, 1]
    _bounds: ClassVar[list[tuple[float, float]]] = [(0.0, 6.0)] * 2

    def _evaluate_true(self, X: Tensor) -> Tensor:
        x, y = X.unbind(-1)
        return x.sin() + y

    def _evaluate_slack_true(self, X: Tensor) -> Tensor:
        return -0.95 - X.sin().prod(-1, keepdim=True)


class Townsend(ConstrainedSyntheticTestFunction):
    """Townsend's function with the constraint in polar coordinates (Townsend 2014, modified)."""

    dim = 2
    num_constraints = 1
    continuous_inds: ClassVar[list[int]] = [0, 1]
    _bounds: ClassVar[list[tuple[float, float]]] = [(-2.25, 2.25), (-2.5, 1.75)]

    def _evaluate_true(self, X: Tensor) -> Tensor:
        x, y = X.unbind(-1)
        return -(((x - 0.1) * y).cos().square()) - x * (3 * x + y).sin()

    def _evaluate_slack_true(self, X: Tensor) -> Tensor:
        t = torch.atan2(X[..., :1], X[..., 1:])
        edge = 2 * t.cos() - (2 * t).cos() / 2 - (3 * t).cos() / 4 - (4 * t).cos() / 8
        return edge.square() + (2 * t.sin()).square() - X.square().sum(-1, keepdim=True)


class BraninDisk(synthetic.Branin, ConstrainedSyntheticTestFunction):
    """Branin's function inside a disk (Gelbart, Snoek & Adams 2014)."""

    num_constraints = 1

    def _evaluate_slack_true(self, X: Tensor) -> Tensor:
        return 50 - (X - X.new_tensor([2.5, 7.5])).square().sum(-1, keepdim=True)


class AckleyBall(synthetic.Ackley, ConstrainedSyntheticTestFunction):
    """Ackley's function with the two constraints of Eriksson & Poloczek (2021)."""

    num_constraints = 2

    def _evaluate_slack_true(self, X: Tensor) -> Tensor:
        return torch.stack([-X.sum(-1), 5 - X.norm(dim=-1)], -1)


class ConstrainedFunction(TuningProblem):
    """A test function to minimise while measured quantities c1, c2, ... are at most 0.

    The standard deviation of the noise of each output is 5% of its interquartile range over the box (1024 Sobol
    points), as for ``BBOB``.

    Args:
        name: Name of the problem.
        function: A synthetic test function of BoTorch with constraints, without noise, to be minimised.
        best: Its best feasible point.
        seed: Seed of the noise; None draws from the system.

    Attributes:
        constraints: The names of the measured quantities.
        noise_stds: Standard deviations of the noise [outputs], that of the objective first.
    """

    def __init__(
        self,
        name: str,
        function: ConstrainedSyntheticTestFunction,
        best: Sequence[float],
        seed: int | None = None,
    ) -> None:
        self.name = name
        self.function: ConstrainedSyntheticTestFunction = function.to(torch.float64)
        self.space: Space = Space([tuple(pair) for pair in self.function.bounds.T.tolist()])
        numbers = range(1, function.num_constraints + 1)
        self.constraints: tuple[str, ...] = tuple(f"c{number}" for number in numbers)
        self.best: list[float] = list(best)
        self.optimum: float = self.noiseless(self.best)
        self.noise_stds: Tensor = NOISE_LEVEL * interquartile_ranges(self.outputs, self.space)
        self._seed = seed
        self._rng = torch.Generator().manual_seed(seed_or_drawn(seed))

    def renew(self) -> None:
        self._rng.seed()

    def __call__(self, params: Params) -> dict[str, float]:
        """One noisy evaluation of all outputs, by name."""
        count = len(self.noise_stds)
        normal = torch.randn(count, generator=self._rng, dtype=torch.float64, device="cpu")
        outputs = self.outputs(params) + self.noise_stds * normal
        return dict(zip(("objective", *self.constraints), outputs.tolist(), strict=True))

    def outputs(self, params: Params) -> Tensor:
        """The objective and the measured quantities [outputs] without noise."""
        X = torch.tensor([list(params)], dtype=torch.float64, device="cpu")
        value = self.function.evaluate_true(X)
        return torch.cat([value, -self.function.evaluate_slack_true(X)[0]])

    def noiseless(self, params: Params) -> float:
        return float(self.outputs(params)[0])

    def feasible(self, params: Params) -> bool:
        return bool((self.outputs(params)[1:] <= 0).all())


_FUNCTIONS: dict[str, tuple[Callable[[], ConstrainedSyntheticTestFunction], list[float]]] = {
    "gardner1": (Gardner1, [3 * math.pi / 2, 0.0]),
    "gardner2": (Gardner2, [4.712388972956958, 1.2532358975033968]),
    "townsend": (Townsend, [2.005400565560665, 1.19425737504034]),
    "gramacy": (synthetic.ConstrainedGramacy, [0.19511808180329826, 0.40466997121691906]),
    "pressure-vessel": (
        synthetic.PressureVessel,
        [0.8437499938201382, 0.44322953592264425, 43.71761384630545, 157.55496586872366],
    ),
    "welded-beam": (
        synthetic.WeldedBeamSO,
        [0.16799999999999846, 4.067084773093915, 10.0, 0.1680000000101413],
    ),
    "branin-disk": (BraninDisk, [3.1415926633844933, 2.2750000141690414]),
    "keane2": (partial(synthetic.KeaneBumpFunction, 2), [1.600868676068663, 0.468495643155429]),
    "spring": (
        synthetic.TensionCompressionString,
        [0.05168834770218144, 0.35670057797051924, 11.289971967520106],
    ),
    "ackley5": (partial(AckleyBall, 5, bounds=[(-5.0, 10.0)] * 5), [0.0] * 5),
    "hartmann6-ball": (
        synthetic.ConstrainedHartmann,
        [0.201689512, 0.150010691, 0.476873974, 0.275332430, 0.311651616, 0.657300534],
    ),
    "speed-reducer": (
        synthetic.SpeedReducer,
        [3.4999999999999996, 0.7, 17.0, 7.3, 7.8, 3.3502146661011083, 5.286683229760325],
    ),
}
"""Functions with their best points: the best of 2^19 Sobol points, of SLSQP from 80 starts, and of random steps around
it. The points are feasible to the last digit. For the pressure vessel and the welded beam they are better than the
published optima, since BoTorch rounds two of the parameters in the objective only, and has another buckling load."""


def _make(name: str, seed: int | None = None) -> ConstrainedFunction:
    function, best = _FUNCTIONS[name]
    return ConstrainedFunction(name, function(), best, seed)


CONSTRAINED: dict[str, Callable[..., ConstrainedFunction]] = {
    name: partial(_make, name) for name in _FUNCTIONS
}
"""Problems with constraints by name; each takes a ``seed``."""
