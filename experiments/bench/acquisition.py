"""Whole steps of ``optimize_acqf``: bounds on kbo's models against BoTorch's own acquisition functions.

Both models have the same data, kernel, hyper-parameters and noise. Both searches begin with the same raw points. The
first line maximises equal functions; in the others the functions, and so the numbers of evaluations, differ.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction, LogExpectedImprovement, UpperConfidenceBound
from botorch.optim import optimize_acqf
from torch import Tensor

from experiments.bench.race import Bench, Goal, Result, agree, race
from experiments.bench.setups import matched_models, noisy_data
from kbo.acquisition import CMMUCB, KernelUCB
from kbo.confidence import FixedWidth

_WIDTH = 2.0


@torch.enable_grad()
def _step(acquisition: AcquisitionFunction, box: Tensor) -> Tensor:
    """Return the largest value that a search finds."""
    torch.manual_seed(0)
    value: Any = optimize_acqf(acquisition, box, q=1, num_restarts=4, raw_samples=64)[1]
    return value


def steps(device: torch.device, n: int, times: float, mixture: float | None) -> list[Result]:
    """Time the choice of a point by KernelUCB and CMMUCB, and by UpperConfidenceBound and LogExpectedImprovement.

    Args:
        device: The device of the data.
        n: Number of observations.
        times: The goal: KernelUCB is so many times faster than each of BoTorch's functions.
        mixture: The same goal for CMMUCB; None for no goal.
    """
    X, y = noisy_data(n, device=device)
    gp, model = matched_models(X, y)
    box = torch.stack([torch.zeros_like(X[0]), torch.ones_like(X[0])])
    acquisitions = {
        "KernelUCB": KernelUCB(model, FixedWidth(_WIDTH)),
        "CMMUCB": CMMUCB(model, noise_std=0.1, norm_bound=10.0, delta=0.05),
        "UpperConfidenceBound": UpperConfidenceBound(gp, beta=_WIDTH**2),
        "LogExpectedImprovement": LogExpectedImprovement(gp, best_f=y.max()),
    }
    works = {name: partial(_step, acquisition, box) for name, acquisition in acquisitions.items()}
    agree(works["KernelUCB"], works["UpperConfidenceBound"])
    works["CMMUCB"]()
    works["LogExpectedImprovement"]()
    goals: dict[str, Goal | None] = {"KernelUCB": Goal(1 / times), "CMMUCB": None}
    if mixture is not None:
        goals["CMMUCB"] = Goal(1 / mixture)
    pairs = product(goals, ("UpperConfidenceBound", "LogExpectedImprovement"))
    lines = [
        (f"optimize_acqf of {ours} / {theirs}", ours, theirs, goals[ours]) for ours, theirs in pairs
    ]
    return race(device, n, works, lines)


BENCHES = [
    Bench(steps, {"n": 50, "times": 2, "mixture": 2}),
    Bench(steps, {"n": 200, "times": 1.8, "mixture": 1}, quick=None),
    Bench(steps, {"n": 1000, "times": 1.5, "mixture": 1.5}, quick=None),
    Bench(steps, {"n": 4000, "times": 1.5, "mixture": None}, quick=None),
]
