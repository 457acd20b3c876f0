"""Growth of the cost of a step: its time at twice the size, divided by its time at the size."""

from __future__ import annotations

import torch

from experiments.bench.race import Bench, Goal, Result, race
from experiments.bench.steps import Setup, steps

_IN_A_ROW = 16


def doubled(device: torch.device, step: str, by: str, size: int, power: int) -> list[Result]:
    """Time steps in a row at twice the size and at the size.

    Args:
        device: The device of the data.
        step: The name of the step.
        by: The size that is doubled: "n", the observations, or "m", the anchors.
        size: The smaller size.
        power: The arithmetic grows as the size to this power.
    """
    works = {}
    for name, times in (("small", 1), ("large", 2)):
        sizes = {"n": 1000, "m": 512, by: times * size}
        work = steps(Setup(device, n=sizes["n"], m=sizes["m"], points=100))[step]()
        work()
        works[name] = [work] * _IN_A_ROW
    name = f"{step}, {by} = {2 * size} / {size}"
    return race(device, None, works, [(name, "large", "small", Goal(1.1 * 2**power))])


_BY_N = {
    "exact update": 2,
    "update and AY bounds": 2,
    "update and CMM bounds": 3,  # an eigendecomposition now and then
    "update and chaining": 2,
    "optimize_acqf evaluation, KernelUCB": 2,
    "optimize_acqf evaluation, CMMUCB": 2,
    "sketch update": 0,
    "update and CMM bounds, sketch": 0,
}
_BY_M = {"sketch update": 2, "update and CMM bounds, sketch": 2}


def _benches(by: str, size: int, powers: dict[str, int]) -> list[Bench]:
    """The benchmarks of steps, given the power of each step by name."""
    found = []
    for step, power in powers.items():
        sizes = {"step": step, "by": by, "size": size, "power": power}
        found.append(Bench(doubled, sizes, {"size": 50}))
    return found


BENCHES = [*_benches("n", 1000, _BY_N), *_benches("m", 512, _BY_M)]
