"""The rule of a method as a BoTorch acquisition function, and its search in Ax, repeatable by a seed."""

from __future__ import annotations

import random
from typing import Any

import torch
from ax.generators.torch.botorch_modular.acquisition import Acquisition
from botorch.acquisition.input_constructors import acqf_input_constructor
from botorch.acquisition.objective import MCAcquisitionObjective, PosteriorTransform
from botorch.models.model import Model
from torch import Tensor

from kbo.acquisition import InflatedThompsonSampling, KernelUCB
from kbo.acquisition.input_constructors import common_inputs, round_seed


class MethodUCB(KernelUCB):
    """``KernelUCB`` for which Ax takes the confidence of the model's own method."""


class MethodSampling(InflatedThompsonSampling):
    """``InflatedThompsonSampling`` for which Ax takes the confidence of the model's own method."""


@acqf_input_constructor(MethodUCB)
def _ucb_inputs(
    model: Model,
    posterior_transform: PosteriorTransform | None = None,
    X_pending: Tensor | None = None,
    constraints: Any = None,
    objective: MCAcquisitionObjective | None = None,
) -> dict[str, Any]:
    inputs = common_inputs(model, posterior_transform, X_pending, constraints, objective)
    return {**inputs, "confidence": inputs["model"].confidence()}


@acqf_input_constructor(MethodSampling)
def _sampling_inputs(
    model: Model,
    seed: int = 0,
    posterior_transform: PosteriorTransform | None = None,
    X_pending: Tensor | None = None,
    constraints: Any = None,
    objective: MCAcquisitionObjective | None = None,
) -> dict[str, Any]:
    inputs = _ucb_inputs(model, posterior_transform, X_pending, constraints, objective)
    return {**inputs, "seed": round_seed(seed, model)}


class SeededAcquisition(Acquisition):
    """Ax's search for the largest value, with randomness that follows from a seed and the data.

    The option "seed" is that of the strategy. In spaces that are all discrete, observed points may be proposed again:
    with noise, another observation there has a value.
    """

    def optimize(self, n: int, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor, Tensor]:
        """As in Ax."""
        pending = 0 if self.X_pending is None else len(self.X_pending)
        observed = self.X_observed, self.X_pending
        before = random.getstate()
        try:
            with torch.random.fork_rng(devices=[]):
                seed = (1_000_003 * self.options.get("seed", 0) + 1009 * len(self.surrogate.Xs[0]) + pending) % 2**63
                torch.manual_seed(seed)
                random.seed(seed)
                self.X_observed = self.X_pending = None  # Ax would exclude these points
                return super().optimize(n, *args, **kwargs)
        finally:
            self.X_observed, self.X_pending = observed
            random.setstate(before)
