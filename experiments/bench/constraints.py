"""The cost of measured constraints in a step of the practical setting."""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any

import torch

from experiments.bench.race import Bench, Goal, Result, seconds
from kbo.optimize import Constraint, Optimizer

_CONSTRAINTS = 3


def steps(device: torch.device, trials: int, times: int) -> list[Result]:
    """Time ``ask`` and ``tell`` with three constraints and without, in turns, after ``trials`` trials."""
    rng = torch.Generator().manual_seed(0)
    optimizers = {}
    for m in (_CONSTRAINTS, 0):
        limits = [Constraint(f"c{i}", upper=0.5) for i in range(m)]
        optimizers[m] = Optimizer([(0.0, 1.0)] * 3, constraints=limits, device=device)

    def tell(m: int, x: Any) -> None:
        noise = (0.05 * torch.randn(1 + m, generator=rng, dtype=torch.float64)).tolist()
        measured = {f"c{i}": abs(x[i] - 0.2) + noise[i] for i in range(m)}
        value = sum((coordinate - 0.4) ** 2 for coordinate in x)
        optimizers[m].tell(x, (value + noise[m], measured))

    def step(m: int) -> None:
        tell(m, optimizers[m].ask())

    for x in torch.rand(trials, 3, generator=rng, dtype=torch.float64).tolist():
        for m in optimizers:
            tell(m, x)
    taken: dict[int, list[float]] = {m: [] for m in optimizers}
    for _ in range(times):
        for m in optimizers:
            taken[m].append(seconds([partial(step, m)], device))
    with_constraints = statistics.median(taken[_CONSTRAINTS])
    without = statistics.median(taken[0])
    name = f"a step with {_CONSTRAINTS} constraints, against one without"
    return [Result(name, with_constraints, without, Goal(3.3), n=trials)]


BENCHES = [
    Bench(steps, {"trials": 30, "times": 21}, {"times": 2}),
    Bench(steps, {"trials": 200, "times": 21}, {"trials": 30, "times": 2}),
]
