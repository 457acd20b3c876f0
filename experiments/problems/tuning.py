"""Tuning problems: test functions with noise, and a grid of arms."""

from __future__ import annotations

import torch
from botorch.test_functions import Ackley, Branin, Hartmann, Levy, SyntheticTestFunction
from torch import Tensor

from experiments.problems.base import TuningProblem, seed_or_drawn
from experiments.problems.rkhs import RKHSBandit
from kbo._base import checks
from kbo.errors import InvalidInput
from kbo.space import Float, Int, Params, Space, When


class NoisyFunction(TuningProblem):
    """A test function to minimise, or one to maximise with its sign changed, observed with Gaussian noise.

    Args:
        name: Name of the problem.
        function: A synthetic test function of BoTorch.
        noise_std: Standard deviation of the noise.
        seed: Seed of the noise; None draws from the system.
    """

    def __init__(
        self, name: str, function: SyntheticTestFunction, noise_std: float, seed: int | None = None
    ) -> None:
        self.name = name
        self.noise_std: float = checks.non_negative("noise_std", noise_std)
        self.function: SyntheticTestFunction = function.to(torch.float64)
        self.space: Space = Space([tuple(pair) for pair in self.function.bounds.T.tolist()])
        self._sign = 1
        if not self.function.is_minimization_problem:
            self._sign = -1
        self.optimum: float = self._sign * float(self.function.optimal_value)
        self._seed = seed
        self._rng = torch.Generator().manual_seed(seed_or_drawn(seed))

    def renew(self) -> None:
        self._rng.seed()

    def __call__(self, params: Params) -> float:
        noise = torch.randn((), generator=self._rng, dtype=torch.float64, device="cpu")
        return self.noiseless(params) + self.noise_std * float(noise)

    def noiseless(self, params: Params) -> float:
        x = torch.tensor(list(params), dtype=torch.float64, device="cpu")
        return self._sign * float(self.function(x))


def branin(noise_std: float = 1.0, seed: int | None = None) -> NoisyFunction:
    """Branin on its usual box, minimum 0.398."""
    return NoisyFunction("branin", Branin(), noise_std, seed)


def hartmann6(noise_std: float = 0.1, seed: int | None = None) -> NoisyFunction:
    """Hartmann in six dimensions, minimum -3.322."""
    return NoisyFunction("hartmann6", Hartmann(dim=6), noise_std, seed)


def ackley(dim: int = 5, noise_std: float = 0.3, seed: int | None = None) -> NoisyFunction:
    """Ackley, minimum 0 at the origin."""
    return NoisyFunction("ackley", Ackley(dim=checks.whole("dim", dim, 1, 1000)), noise_std, seed)


def levy(dim: int = 4, noise_std: float = 1.0, seed: int | None = None) -> NoisyFunction:
    """Levy on [-10, 10]^dim, minimum 0 at (1, ..., 1)."""
    return NoisyFunction("levy", Levy(dim=checks.whole("dim", dim, 1, 1000)), noise_std, seed)


class TreeFunction(TuningProblem):
    """The tree of Jenatton et al. (2017, Section 5): two choices select one of four squares, without noise.

    The value of a branch is the square of its own parameter (relative to its minimum), plus a constant, plus a
    parameter that two branches share. The minima are drawn from [-0.6, 0.6], so that they are not in the middle of
    their ranges.

    Args:
        seed: Seed of the minima; None draws from the system.
    """

    name = "tree"
    optimum = 0.1
    space: Space = Space(
        [
            {"x1": bool},
            When("x1", False, {"x2": bool, "r8": Float(0, 1)}),
            When("x1", True, {"x3": bool, "r9": Float(0, 1)}),
            When("x2", False, {"x4": Float(-1, 1)}),
            When("x2", True, {"x5": Float(-1, 1)}),
            When("x3", False, {"x6": Float(-1, 1)}),
            When("x3", True, {"x7": Float(-1, 1)}),
        ]
    )

    def __init__(self, seed: int | None = None) -> None:
        rng = torch.Generator().manual_seed(seed_or_drawn(seed))
        uniform = torch.rand(4, generator=rng, dtype=torch.float64, device="cpu")
        minima = (1.2 * uniform - 0.6).tolist()
        self._minima: dict[str, float] = dict(zip(("x4", "x5", "x6", "x7"), minima, strict=True))

    def __call__(self, params: Params) -> float:
        return self.noiseless(params)

    def noiseless(self, params: Params) -> float:
        assert isinstance(params, dict)
        shared = "r8"
        if params["x1"]:
            shared = "r9"
        for branch, (name, minimum) in enumerate(self._minima.items(), 1):
            if name in params:
                return (params[name] - minimum) ** 2 + branch / 10 + params[shared]
        raise AssertionError("one of the four parameters is always active")


class GridBandit(TuningProblem):
    """The negative of a function of RKHS norm 5 (Matern 5/2, lengthscale 0.3) on a grid of arms, observed with noise.

    Arms may be pulled several times. With noise as large as the spread of the function this is necessary.

    Args:
        side: Arms along each axis.
        dim: Number of axes.
        noise_std: Standard deviation of the Gaussian noise.
        seed: Seed of function and noise; None draws from the system.
    """

    name = "arms"

    def __init__(
        self, side: int = 10, dim: int = 3, noise_std: float = 1.0, seed: int | None = None
    ) -> None:
        self.side: int = checks.whole("side", side, 2)
        self.noise_std: float = checks.non_negative("noise_std", noise_std)
        if self.side ** checks.whole("dim", dim, 1, 1000) > 10**7:
            raise InvalidInput(f"side ** dim must be at most 10**7 arms, got {side} ** {dim}.")
        self.space: Space = Space({f"x{i}": Int(0, side - 1) for i in range(dim)})
        self._seed = seed
        self._bandit = RKHSBandit(
            "matern52", 0.3, dim, norm=5.0, noise_std=noise_std, seed=seed_or_drawn(seed)
        )
        axis = torch.linspace(0, 1, side, dtype=torch.float64, device="cpu")
        arms = torch.cartesian_prod(*[axis] * dim)
        self.optimum: float = -float(self._bandit.mean(arms).max())

    def renew(self) -> None:
        self._bandit.noise_rng.seed()

    def __call__(self, params: Params) -> float:
        return -float(self._bandit.observe(self._arm(params)))

    def noiseless(self, params: Params) -> float:
        return -float(self._bandit.mean(self._arm(params)))

    def _arm(self, params: Params) -> Tensor:
        """The arm [1 dim] of the parameters."""
        assert isinstance(params, dict)
        numbers = torch.tensor([list(params.values())], dtype=torch.float64, device="cpu")
        return numbers / (self.side - 1)
