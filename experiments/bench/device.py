"""Speed on a GPU against its limits: ``make bench-device``, or ``python -m experiments.bench.device``.

The table has for each step of an algorithm: kernels, synchronisations, arithmetic and memory traffic; the least time
that these allow (a roofline for each kernel); and the measured time.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import pandas as pd
import torch

from experiments.bench.operations import Operations
from experiments.bench.steps import Setup, Step, steps


@dataclass(frozen=True)
class GPU:
    """Largest rates of a GPU.

    Attributes:
        flops: Floating-point operations of a matrix product in a second.
        bandwidth: Bytes read or written in a second.
        launch: Seconds from one small kernel to the next.
        wait: Seconds that a synchronisation adds.
    """

    flops: float
    bandwidth: float
    launch: float = 5e-6
    wait: float = 2e-5

    def seconds(self, counted: Operations) -> float:
        """Return the least seconds of counted operations: arithmetic, traffic or launch of each kernel, and waits."""
        total = self.wait * counted.syncs.total()
        for kernel in counted.kernels:
            total += max(kernel.flops / self.flops, kernel.bytes / self.bandwidth, self.launch)
        return total


def count(step: Step, device: torch.device) -> Operations:
    """Return the operations of a step on a device, after a first one that fills caches."""
    step()
    with Operations(device) as counted:
        step()
    return counted


def measured(device: torch.device, dtype: torch.dtype) -> GPU:
    """Measure the largest rates of a GPU by a large product, a large copy, small kernels in a row, and waits."""
    A = torch.ones(4096, 4096, dtype=dtype, device=device)
    B = torch.empty_like(A)
    one = torch.ones(1, dtype=dtype, device=device)
    flops = 2 * 4096**3 / seconds(lambda: A @ A, device)
    bandwidth = 2 * A.numel() * A.element_size() / seconds(lambda: B.copy_(A), device)
    launch = seconds(lambda: [one.add_(1) for _ in range(1000)], device) / 1000
    wait = seconds(lambda: [one.add_(1).item() for _ in range(100)], device) / 100 - launch
    return GPU(flops, bandwidth, launch, max(wait, 0.0))


def seconds(work: Step, device: torch.device, times: int = 7) -> float:
    """Return the median seconds of some work, until its kernels have ended."""
    taken = []
    for _ in range(times):
        torch.accelerator.synchronize(device)
        start = time.perf_counter()
        work()
        torch.accelerator.synchronize(device)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def table(setup: Setup) -> str:
    """Return counts, least times and measured times of all steps as text."""
    gpu = measured(setup.device, setup.dtype)
    rows = {}
    for name, make in steps(setup).items():
        step = make()
        counted = count(step, setup.device)
        rows[name] = {
            "kernels": len(counted.kernels),
            "syncs": counted.syncs.total(),
            "Gflop": f"{sum(kernel.flops for kernel in counted.kernels) / 1e9:.3g}",
            "MB": f"{sum(kernel.bytes for kernel in counted.kernels) / 1e6:.3g}",
            "least, ms": f"{1e3 * gpu.seconds(counted):.3g}",
            "measured, ms": f"{1e3 * seconds(step, setup.device):.3g}",
        }
    return pd.DataFrame.from_dict(rows, orient="index").to_string()


def main() -> None:
    """Print the table in both dtypes for the GPU of this machine."""
    device = torch.accelerator.current_accelerator(check_available=True)
    if device is None:
        raise SystemExit("no GPU was found")
    for dtype in (torch.float64, torch.float32):
        setup = Setup(device, dtype)
        print(f"{device}, {dtype}: n = {setup.n}, m = {setup.m}, {setup.points} points")
        print(f"{table(setup)}\n")


if __name__ == "__main__":
    main()
