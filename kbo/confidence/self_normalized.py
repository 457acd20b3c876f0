"""Confidence sequences from self-normalised concentration: ``||f*|| <= norm_bound``, sub-Gaussian noise.

They are theorems about exact posteriors. On a sketch they can be computed, but nothing is proved and much can fail:
``guarantee_on`` says so.
"""

from __future__ import annotations

from torch import Tensor

from kbo import checks
from kbo.confidence import widths
from kbo.confidence.base import WidthConfidence
from kbo.regression import Regression

_GUARANTEE = (
    "holds for all rounds and points at once with probability at least 1 - {delta:g}, if the function has norm at "
    "most {norm_bound:g} and the noise is {noise_std:g}-sub-Gaussian"
)


class SelfNormalized(WidthConfidence):
    """AY-GP-UCB: the bound of Abbasi-Yadkori (2012), Theorem 3.11 = Durand et al. (2018), Theorem 1.

    Args:
        noise_std: Sub-Gaussian constant of the noise, in units of the targets.
        norm_bound: Bound of the RKHS norm of the function, in units of the targets over sqrt(kernel).
        delta: Probability that the bounds may fail, ever and anywhere.

    Raises:
        InvalidInput: A number out of its range.
    """

    def __init__(self, noise_std: float, norm_bound: float, delta: float) -> None:
        self.noise_std = checks.positive("noise_std", noise_std)
        self.norm_bound = checks.positive("norm_bound", norm_bound)
        self.delta = checks.probability("delta", delta)
        self.guarantee = _GUARANTEE.format(**vars(self))

    def width(self, state: Regression) -> Tensor:  # noqa: D102
        return widths.abbasi_yadkori(state.log_det(), state.ridge, self.noise_std, self.norm_bound, self.delta)


class ImprovedGPUCB(WidthConfidence):
    """IGP-UCB: Chowdhury & Gopalan (2017), Theorem 2, always at ridge ``1 + eta``.

    Args:
        noise_std: Sub-Gaussian constant of the noise, in units of the targets.
        norm_bound: Bound of the RKHS norm of the function.
        delta: Probability that the bounds may fail, ever and anywhere.
        eta: Excess of the ridge over one; the paper takes 2 / T for T rounds.

    Raises:
        InvalidInput: A number out of its range.
    """

    def __init__(self, noise_std: float, norm_bound: float, delta: float, eta: float) -> None:
        self.noise_std = checks.positive("noise_std", noise_std)
        self.norm_bound = checks.positive("norm_bound", norm_bound)
        self.delta = checks.probability("delta", delta)
        self.eta = checks.positive("eta", eta)
        self.guarantee = _GUARANTEE.format(**vars(self))

    def ridge(self, state: Regression) -> float:
        """``1 + eta``, whatever the state's own ridge."""
        return 1 + self.eta

    def width(self, state: Regression) -> Tensor:  # noqa: D102
        log_det = state.log_det(1 + self.eta)
        return widths.chowdhury_gopalan(log_det, state.n, self.eta, self.noise_std, self.norm_bound, self.delta)
