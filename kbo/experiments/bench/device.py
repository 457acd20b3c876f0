"""Speed on a GPU against what it allows: ``make bench-device``, or ``python -m kbo.experiments.bench.device``.

For each step of an algorithm: kernels, synchronisations, arithmetic and memory traffic, the least time that follows
from them (a roofline for each kernel), and the time that was measured.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd
import torch
from torch import Tensor

from kbo.acquisition import CMMUCB, KernelUCB
from kbo.confidence import Chaining, Confidence, FixedWidth, MartingaleMixture, SelfNormalized
from kbo.experiments.bench.operations import Operations
from kbo.experiments.bench.setups import uniform
from kbo.models import KernelRidgeGP
from kbo.problems import stationary_kernel
from kbo.regression import FixedDictionary, KernelRidge, NystromRidge, Posterior

Step = Callable[[], object]
RIDGE = 0.01


@dataclass(frozen=True)
class GPU:
    """Largest rates of a GPU.

    Attributes:
        name: Its name.
        flops: Floating-point operations of a matrix product in a second.
        bandwidth: Bytes read or written in a second.
        launch: Seconds from one small kernel to the next.
        wait: Seconds that a synchronisation adds.
    """

    name: str
    flops: float
    bandwidth: float
    launch: float = 5e-6
    wait: float = 2e-5

    def seconds(self, counted: Operations) -> float:
        """Return the least time of counted operations: of each kernel its arithmetic, traffic or launch; and waits."""
        kernels = (max(k.flops / self.flops, k.bytes / self.bandwidth, self.launch) for k in counted.kernels)
        return sum(kernels) + self.wait * counted.syncs.total()


# Data sheets; fp64 by tensor cores and fp32 without TF32 have the same figure.
SHEETS = (GPU("H100 (sheet)", 67e12, 3.35e12), GPU("H200 (sheet)", 67e12, 4.8e12))


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
        state = NystromRidge(stationary_kernel("rbf", 0.3), RIDGE, FixedDictionary(self.uniform(self.m, 2)))
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
    add, Z = update(state, setup), setup.uniform(setup.points, 4)

    def step() -> object:
        add()
        return confidence.upper(state, Z)

    return step


def evaluation(acquisition: Callable[[Tensor], Tensor], setup: Setup) -> Step:
    """Evaluate an acquisition function at 20 points with its gradient, as ``optimize_acqf`` does."""
    X = setup.uniform(20, 5).unsqueeze(-2)
    return lambda: torch.autograd.grad(acquisition(X.requires_grad_()).sum(), X)


def steps(setup: Setup) -> dict[str, Callable[[], Step]]:
    """Return the steps by name; each entry makes its data."""
    mixture, self_normalized = MartingaleMixture(0.1, 50.0, 0.1), SelfNormalized(0.1, 50.0, 0.1)
    arms = setup.uniform(setup.points, 4)
    return {
        "exact update": lambda: update(setup.exact(), setup),
        "sketch update": lambda: update(setup.sketch(), setup),
        "update and AY bounds": lambda: bounds(setup.exact(), self_normalized, setup),
        "update and CMM bounds": lambda: bounds(setup.exact(), mixture, setup),
        "update and CMM bounds, sketch": lambda: bounds(setup.sketch(), mixture, setup),
        "update and chaining": lambda: bounds(setup.exact(), Chaining(0.1, points=arms), setup),
        "optimize_acqf evaluation, KernelUCB": lambda: evaluation(KernelUCB(setup.model(), self_normalized), setup),
        "optimize_acqf evaluation, CMMUCB": lambda: evaluation(CMMUCB(setup.model(), 0.1, 50.0, 0.1), setup),
        f"Thompson draw over {setup.many} points": lambda: thompson(setup),
        f"best of {setup.many} points, sketch": lambda: best(setup),
    }


def thompson(setup: Setup) -> Step:
    """Draw a function over many points."""
    state, Z, rng = setup.sketch(), setup.uniform(setup.many, 6), torch.Generator().manual_seed(0)
    return lambda: state.sample(Z, 1, generator=rng).argmax()


def best(setup: Setup) -> Step:
    """Find the largest upper bound among many points."""
    state, Z = setup.sketch(), setup.uniform(setup.many, 6)
    return lambda: FixedWidth(2.0).argmax_upper(state, Z)


def count(step: Step, device: torch.device) -> Operations:
    """Return the operations of a step on a device, after a first one that fills caches."""
    step()
    with Operations(device) as counted:
        step()
    return counted


def measured(device: torch.device, dtype: torch.dtype) -> GPU:
    """Measure what a GPU does at most: a large product, a large copy, small kernels in a row, and waits for one."""
    A, one = torch.ones(4096, 4096, dtype=dtype, device=device), torch.ones(1, dtype=dtype, device=device)
    B = torch.empty_like(A)
    launch = seconds(lambda: [one.add_(1) for _ in range(1000)], device) / 1000
    wait = seconds(lambda: [one.add_(1).item() for _ in range(100)], device) / 100 - launch
    rate, pace = (seconds(work, device) for work in (lambda: A @ A, lambda: B.copy_(A)))
    return GPU("this one", 2 * 4096**3 / rate, 2 * A.numel() * A.element_size() / pace, launch, max(wait, 0.0))


def seconds(work: Step, device: torch.device, times: int = 7) -> float:
    """Return the median time of some work, its kernels included."""
    taken = []
    for _ in range(times):
        torch.accelerator.synchronize(device)
        start = time.perf_counter()
        work()
        torch.accelerator.synchronize(device)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def table(setup: Setup, sheets: Sequence[GPU] = ()) -> str:
    """Return counts and least times of all steps as text, by data sheets, or for this GPU with measured times."""
    gpus = sheets or [measured(setup.device, setup.dtype)]
    rows = {}
    for name, make in steps(setup).items():
        step = make()
        counted = count(step, setup.device)
        rows[name] = {
            "kernels": len(counted.kernels),
            "syncs": counted.syncs.total(),
            "Gflop": f"{sum(k.flops for k in counted.kernels) / 1e9:.3g}",
            "MB": f"{sum(k.bytes for k in counted.kernels) / 1e6:.3g}",
            **{f"{gpu.name}, ms": f"{1e3 * gpu.seconds(counted):.3g}" for gpu in gpus},
            **({} if sheets else {"measured, ms": f"{1e3 * seconds(step, setup.device):.3g}"}),
        }
    return pd.DataFrame.from_dict(rows, orient="index").to_string()


def main() -> None:
    """Print the table in both dtypes for the GPU of this machine."""
    device = torch.accelerator.current_accelerator(check_available=True)
    if device is None:
        raise SystemExit("no GPU was found; python -m tests.device.counts counts the same steps on a stand-in for one")
    for dtype in (torch.float64, torch.float32):
        setup = Setup(device, dtype)
        print(f"{device}, {dtype}: n = {setup.n}, m = {setup.m}, {setup.points} points\n{table(setup)}\n")


if __name__ == "__main__":
    main()
