"""All benchmarks of ``python -m experiments.bench``.

Both sides of a comparison have the same data, kernel, hyper-parameters and noise. They run in one process on one
thread, in turns (A, B, A, B, ...), and must give the same numbers before they are timed. The figures are medians: of
CPU time on the CPU, of synchronised wall-clock time on a GPU. Only the ratios are valid for other machines.
"""

from __future__ import annotations

import warnings

import torch
from botorch.exceptions.warnings import InputDataWarning
from tqdm import tqdm

from experiments.bench import (
    acquisition,
    bounds,
    chaining,
    constraints,
    exact,
    growth,
    sketch,
    straight,
)
from experiments.bench.race import Bench, Result
from experiments.sweep.threads import threads
from kbo._base import devices

_MODULES = (straight, growth, exact, acquisition, bounds, sketch, chaining, constraints)

BENCHES: list[Bench] = [bench for module in _MODULES for bench in module.BENCHES]


def run(device: str | torch.device | None = None, quick: bool = False) -> list[Result]:
    """Measure everything; progress goes to stderr.

    Args:
        device: The device of the data, for example "cuda"; the CPU by default.
        quick: Whether sizes are small, and slow parts are left out.

    Raises:
        InvalidInput: There is no such device here.
    """
    chosen = devices.device("device", device)
    # The warnings are about targets that are not standardised.
    quiet = warnings.catch_warnings(action="ignore", category=InputDataWarning)
    results = []
    with threads(1), torch.no_grad(), quiet:
        for bench in tqdm(BENCHES, desc="benchmarks"):
            results += bench.run(chosen, quick)
    return results
