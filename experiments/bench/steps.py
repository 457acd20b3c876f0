"""Steps of the algorithms on one posterior: an observation, bounds, an evaluation, a draw; and their data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.bench.setups import uniform
from experiments.problems import stationary_kernel
from kbo.acquisition import CMMUCB, KernelUCB
from kbo.confidence import Chaining, Confidence, FixedWidth, MartingaleMixture, SelfNormalized
from kbo.models import KernelRidgeGP
from kbo.regression import FixedDictionary, KernelRidge, NystromRidge, Posterior

Step = Callable[[], object]
RIDGE = 0.01


@dataclass(frozen=True)
class Setup:
    """Data of the steps: points of the unit cube in three dimensions.

    Attributes:
        device: Their device.
        dtype: Their dtype.
        n: Observations.
        m: Anchors of the sketch.
        points: Points scored by a step.
        many: Points over which a function is drawn.
    """

    device: torch.device
    dtype: torch.dtype = torch.float64
    n: int = 1000
    m: int = 512
    points: int = 1000
    many: int = 100_000

    def uniform(self, n: int, seed: int) -> Tensor:
        """Return points [n 3]."""
        return uniform(n, 3, seed).to(self.device, self.dtype)

    def targets(self, X: Tensor) -> Tensor:
        """Return the function at points [n 3]."""
        return torch.sin(5 * X).sum(-1)

    def exact(self) -> KernelRidge:
        """Return an exact posterior of the n observations."""
        state = KernelRidge(stationary_kernel("rbf", 0.3), RIDGE)
        X = self.uniform(self.n, 1)
        state.update(X, self.targets(X))
        return state

    def sketch(self) -> NystromRidge:
        """Return a posterior of as many observations through m anchors."""
        dictionary = FixedDictionary(self.uniform(self.m, 2))
        state = NystromRidge(stationary_kernel("rbf", 0.3), RIDGE, dictionary)
        X = self.uniform(self.n, 1)
        state.update(X, self.targets(X))
        return state

    def model(self) -> KernelRidgeGP:
        """Return BoTorch's side of the exact posterior."""
        X = self.uniform(self.n, 1)
        return KernelRidgeGP(X, self.targets(X).unsqueeze(-1), stationary_kernel("rbf", 0.3), RIDGE)


def update(state: Posterior, setup: Setup) -> Step:
    """Add one observation after the other."""
    X = setup.uniform(1000, 3)
    rows = iter(zip(X.split(1), setup.targets(X).split(1), strict=True))
    return lambda: state.update(*next(rows))


def bounds(state: Posterior, confidence: Confidence, setup: Setup) -> Step:
    """Add an observation and compute the upper bounds of the points."""
    add = update(state, setup)
    Z = setup.uniform(setup.points, 4)

    def step() -> object:
        add()
        return confidence.upper(state, Z)

    return step


def evaluation(acquisition: Callable[[Tensor], Tensor], setup: Setup) -> Step:
    """Evaluate an acquisition function at 20 points with its gradient, as ``optimize_acqf`` does."""
    X = setup.uniform(20, 5).unsqueeze(-2).requires_grad_()

    @torch.enable_grad()
    def step() -> object:
        return torch.autograd.grad(acquisition(X).sum(), X)

    return step


def steps(setup: Setup) -> dict[str, Callable[[], Step]]:
    """Return the steps by name; each entry makes its data."""
    mixture = MartingaleMixture(0.1, 50.0, 0.1)
    self_normalized = SelfNormalized(0.1, 50.0, 0.1)
    arms = setup.uniform(setup.points, 4)
    return {
        "exact update": lambda: update(setup.exact(), setup),
        "sketch update": lambda: update(setup.sketch(), setup),
        "update and AY bounds": lambda: bounds(setup.exact(), self_normalized, setup),
        "update and CMM bounds": lambda: bounds(setup.exact(), mixture, setup),
        "update and CMM bounds, sketch": lambda: bounds(setup.sketch(), mixture, setup),
        "update and chaining": lambda: bounds(setup.exact(), Chaining(0.1, points=arms), setup),
        "optimize_acqf evaluation, KernelUCB": lambda: evaluation(
            KernelUCB(setup.model(), self_normalized), setup
        ),
        "optimize_acqf evaluation, CMMUCB": lambda: evaluation(
            CMMUCB(setup.model(), 0.1, 50.0, 0.1), setup
        ),
        f"Thompson draw over {setup.many} points": lambda: thompson(setup),
        f"best of {setup.many} points, sketch": lambda: best(setup),
    }


def thompson(setup: Setup) -> Step:
    """Draw a function over many points."""
    state = setup.sketch()
    Z = setup.uniform(setup.many, 6)
    rng = torch.Generator().manual_seed(0)
    return lambda: (state.predict(Z)[0] + state.at().draw(Z, 1, rng)).argmax()


def best(setup: Setup) -> Step:
    """Find the largest upper bound among many points."""
    state = setup.sketch()
    Z = setup.uniform(setup.many, 6)
    return lambda: FixedWidth(2.0).argmax_upper(state, Z)
