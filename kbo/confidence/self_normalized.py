"""Confidence sequences from self-normalised concentration: ``||f*|| <= norm_bound``, sub-Gaussian noise.

They are theorems about exact posteriors. For a sketch with error ``E = K - K~`` they are widened, and stay valid for
any dictionary: ``ln det(I + K / ridge) <= ln det(I + K~ / ridge) + ln det(I + E / ridge)``, and the part of the
function outside the dictionary adds ``B sqrt|E|`` to the radius (docs/papers.md and docs/theory/sketch.md).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kbo._base import checks
from kbo.confidence import rounding
from kbo.confidence.base import SubGaussian, WidthConfidence
from kbo.errors import InvalidInput
from kbo.regression import Posterior


class SelfNormalized(SubGaussian, WidthConfidence):
    """AY-GP-UCB: the bound of Abbasi-Yadkori (2012), Theorem 3.11 = Durand et al. (2018), Theorem 1.

    ``width = sigma sqrt((log_det + 2 ln(1/delta)) / ridge) + B`` with sigma = noise_std, B = norm_bound. With
    ``least_ridge`` it is Durand et al., Theorem 2: valid at every ridge from there on, chosen from the data or not, at
    the price of the log-determinant of the least one.

    Args:
        noise_std: Sub-Gaussian constant of the noise, in units of the targets.
        norm_bound: Bound of the RKHS norm of the function, in units of the targets over sqrt(kernel).
        delta: Probability that the bounds may fail, ever and anywhere.
        least_ridge: The least ridge that the state may have, fixed beforehand; by default its ridge is fixed.

    Raises:
        InvalidInput: A number out of its range.
    """

    covers: frozenset[str] = frozenset({"sketch", "weights"})

    def __init__(
        self, noise_std: float, norm_bound: float, delta: float, least_ridge: float | None = None
    ) -> None:
        super().__init__(noise_std, norm_bound, delta)
        self.least_ridge: float | None = (
            None if least_ridge is None else checks.positive("least_ridge", least_ridge)
        )
        if least_ridge is not None:
            self.covers = self.covers | {"moved ridge"}

    def objections(self, state: Posterior) -> list[str]:
        """Return the reasons as for any confidence; one more if the ridge is below ``least_ridge``."""
        below = self.least_ridge is not None and state.ridge < self.least_ridge
        return (
            super().objections(state)
            + [f"the ridge {state.ridge:g} is below least_ridge: use a larger one"] * below
        )

    def _least_ridge(self, state: Posterior) -> float:
        """Return ``least_ridge``, that of the log-determinant; the state's own if it is fixed."""
        return self.least_ridge or state.ridge

    def width(self, state: Posterior) -> Tensor:
        least = state.ridge if self.least_ridge is None else self.least_ridge
        if state.ridge < least:
            raise InvalidInput(
                f"the state's ridge {state.ridge:g} is below least_ridge = {least:g}: no theorem covers it."
            )
        log_det, bias = widened(state, state.ridge, self.norm_bound, least)
        noise = self.noise_std * torch.sqrt((log_det + 2 * math.log(1 / self.delta)) / state.ridge)
        return noise + self.norm_bound + bias


class ImprovedGPUCB(SubGaussian, WidthConfidence):
    """IGP-UCB: Chowdhury & Gopalan (2017), Theorem 2, always at ridge ``1 + eta``.

    ``width = sigma sqrt(log_det + n eta + 2 ln(1/delta)) + B``, with the ``n eta`` of the proof instead of the constant
    2 that ``eta = 2 / T`` gives.

    Args:
        noise_std, norm_bound, delta: As for ``SelfNormalized``.
        eta: Excess of the ridge over one; the paper takes 2 / T for T rounds.

    Raises:
        InvalidInput: A number out of its range.
    """

    covers: frozenset[str] = frozenset({"sketch", "weights"})

    def __init__(self, noise_std: float, norm_bound: float, delta: float, eta: float) -> None:
        super().__init__(noise_std, norm_bound, delta)
        self.eta: float = checks.positive("eta", eta)

    def ridge(self, state: Posterior) -> float:
        """Return ``1 + eta``, for any ridge of the state."""
        return 1 + self.eta

    def width(self, state: Posterior) -> Tensor:
        log_det, bias = widened(state, 1 + self.eta, self.norm_bound, 1 + self.eta)
        noise = self.noise_std * torch.sqrt(
            log_det + state.n * self.eta + 2 * math.log(1 / self.delta)
        )
        return noise + self.norm_bound + bias


def widened(
    state: Posterior, ridge: float, norm_bound: float, least: float
) -> tuple[Tensor, float]:
    """Return an upper bound of the exact ``log_det`` at the least ridge, and the error of a sketch in the width."""
    error, log_det = state.error, state.at(least).log_det()
    log_det = log_det + rounding.log_det_error(error, least) + error.log_det(least)
    return log_det, norm_bound * math.sqrt(error.norm() / ridge)
