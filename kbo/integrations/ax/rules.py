"""The rule of a method as a BoTorch acquisition function, and its search in Ax, repeatable by a seed."""

from __future__ import annotations

import random
from typing import Any

import torch
from ax.generators.torch.botorch_modular.acquisition import Acquisition
from torch import Tensor

from kbo.acquisition import InflatedThompsonSampling, KernelUCB
from kbo.acquisition.input_constructors import register


class MethodUCB(KernelUCB):
    """``KernelUCB`` for which Ax takes the confidence of the model's own method."""


class MethodSampling(InflatedThompsonSampling):
    """``InflatedThompsonSampling`` for which Ax takes the confidence of the model's own method."""


register(MethodUCB, confidence=lambda model: model.confidence())
register(MethodSampling, confidence=lambda model: model.confidence())


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
