"""Self-normalised confidence sequences: ``||f|| <= norm_bound``, sub-Gaussian noise, one ridge.

On paper, with sigma = noise_std, B = norm_bound, lam = ridge             | in code
``sigma sqrt((log_det + 2 ln(1/delta)) / lam) + B``                       | ``SelfNormalized.width``
``sigma sqrt(log_det + n ln(lam) + 2 ln(1/delta)) + B``, ``lam = 1 + eta`` | ``ImprovedGPUCB.width``

The theorems are about exact posteriors. On a sketch with the error ``E = K - K~`` the widths stay
valid for any dictionary after two changes (docs/theory/sketch.md). ``log_det`` is replaced by the
upper bound ``log_det + ln det(I + E / lam)`` of ``ln det(I + K / lam)``, and ``B sqrt(|E| / lam)``
is added for the part of the function outside the dictionary.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kbo._base import checks
from kbo.confidence import rounding
from kbo.confidence.base import WidthConfidence
from kbo.confidence.mixture.sub_gaussian import SubGaussian
from kbo.errors import InvalidInput
from kbo.regression import Posterior


class SelfNormalized(SubGaussian, WidthConfidence):
    """The standard bounds for functions of known norm and noise of known level: AY-GP-UCB.

    Abbasi-Yadkori (2012), Theorem 3.11, the same as Durand et al. (2018), Theorem 1. With
    ``least_ridge`` it is Durand et al., Theorem 2: valid at every larger ridge, also one chosen
    from the data, but with the log-determinant at the least ridge. ``MartingaleMixture`` is tighter
    on exact posteriors.

    Args:
        noise_std: Sub-Gaussian constant of the noise, in units of the targets.
        norm_bound: Bound of the RKHS norm of the function, in units of the targets over
            sqrt(kernel).
        delta: Probability that the bounds fail at any time and any point.
        least_ridge: The least ridge that the state may have, fixed beforehand; None if the ridge of
            the state is fixed.

    Raises:
        InvalidInput: A number out of its range.
    """

    covers: frozenset[str] = frozenset({"sketch", "weights"})

    def __init__(
        self, noise_std: float, norm_bound: float, delta: float, least_ridge: float | None = None
    ) -> None:
        super().__init__(noise_std, norm_bound, delta)
        self.least_ridge: float | None = None
        if least_ridge is not None:
            self.least_ridge = checks.positive("least_ridge", least_ridge)
            self.covers = self.covers | {"moved ridge"}

    def width(self, state: Posterior) -> Tensor:
        ridge = state.ridge
        least_ridge = self.least_ridge_on(state)
        if ridge < least_ridge:
            raise InvalidInput(
                f"the state's ridge {ridge:g} is below least_ridge = {least_ridge:g}: no "
                "theorem covers it."
            )
        gain = log_det_bound(state, least_ridge) + 2 * math.log(1 / self.delta)
        noise = self.noise_std * torch.sqrt(gain / ridge)
        return noise + self.norm_bound + sketch_bias(state, self.norm_bound, ridge)

    def objections(self, state: Posterior) -> list[str]:
        """Return the objections of any confidence, and one if the ridge is too small."""
        reasons = super().objections(state)
        if state.ridge < self.least_ridge_on(state):
            reasons.append(f"the ridge {state.ridge:g} is below least_ridge: use a larger one")
        return reasons

    def least_ridge_on(self, state: Posterior) -> float:
        """Return the ridge of the log-determinant."""
        if self.least_ridge is None:
            return state.ridge
        return self.least_ridge


class ImprovedGPUCB(SubGaussian, WidthConfidence):
    """Bounds of IGP-UCB for functions of known norm, always at ridge ``1 + eta``.

    Chowdhury & Gopalan (2017), Theorem 2, with one change. The term ``n ln(1 + eta)``, from ``ln
    det((1 + eta) I + K)`` in their Theorem 1, replaces the constant 2, which is larger at ``eta = 2
    / T`` for n <= T.

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
        """Return ``1 + eta``; the ridge of the state is not used."""
        return 1 + self.eta

    def width(self, state: Posterior) -> Tensor:
        ridge = 1 + self.eta
        log_det = log_det_bound(state, ridge) + state.n * math.log1p(self.eta)
        gain = log_det + 2 * math.log(1 / self.delta)
        noise = self.noise_std * torch.sqrt(gain)
        return noise + self.norm_bound + sketch_bias(state, self.norm_bound, ridge)


def log_det_bound(state: Posterior, ridge: float) -> Tensor:
    """Return an upper bound of the exact ``ln det(I + K / ridge)``, []."""
    error = state.error
    log_det = state.at(ridge).log_det()
    return log_det + rounding.log_det_error(error, ridge) + error.log_det(ridge)


def sketch_bias(state: Posterior, norm_bound: float, ridge: float) -> float:
    """Return ``B sqrt(|E| / ridge)``, the part of the width for the error of a sketch."""
    return norm_bound * math.sqrt(state.error.norm() / ridge)
