"""Bounds that assume a norm bound of the function and a sub-Gaussian constant of the noise."""

from __future__ import annotations

import math

from kbo._base import checks
from kbo.confidence.base import Confidence
from kbo.confidence.mixture.least_norm import norm_lower_bound
from kbo.regression import Posterior

_CLOSE = 0.01
"""Largest relative distance from ``norm_lower_bound`` at which a norm bound is an objection.

Then nearly one function is left: the norm bound was chosen from the data, or is nearly refuted.
"""


class SubGaussian(Confidence):
    """The base of bounds for functions of known norm and sub-Gaussian noise of known level.

    A norm bound near the least norm that fits the data is an objection, because it was probably
    chosen from the data.

    Args:
        noise_std: Sub-Gaussian constant of the noise, in units of the targets.
        norm_bound: Bound of the RKHS norm of the function, in units of the targets over
            sqrt(kernel).
        delta: Probability that the bounds fail at any time and any point.

    Raises:
        InvalidInput: A number out of its range.
    """

    def __init__(self, noise_std: float, norm_bound: float, delta: float) -> None:
        self.noise_std: float = checks.positive("noise_std", noise_std)
        self.norm_bound: float = checks.positive("norm_bound", norm_bound)
        self.delta: float = checks.probability("delta", delta)
        self.guarantee: str | None = self.statement("all rounds and points at once")

    def statement(self, scope: str) -> str:
        """Return the guarantee for the rounds and points that ``scope`` names, in words."""
        return (
            f"holds for {scope} with probability at least 1 - {self.delta:g}, if the function has "
            f"norm at most {self.norm_bound:g}, the noise is {self.noise_std:g}-sub-Gaussian "
            "given the past, and kernel, norm bound and noise level were chosen without these data"
        )

    def objections(self, state: Posterior) -> list[str]:
        """Return the objections of any confidence, and one to a norm bound near the least norm."""
        reasons = super().objections(state)
        if not reasons and state.n:
            least_norm = self._least_norm(state)
            if math.isclose(least_norm, self.norm_bound, rel_tol=_CLOSE):
                reasons.append(
                    f"norm_bound = {self.norm_bound:.6g} is within {_CLOSE:.0%} of "
                    f"norm_lower_bound of these data, {least_norm:.6g}, below which the norm is "
                    "not, and a guarantee needs an upper bound that was chosen without them"
                )
        return reasons

    def _least_norm(self, state: Posterior) -> float:
        """Return ``norm_lower_bound`` of the data, in units of the targets over sqrt(kernel).

        It is 0, which is always valid, if the ridge ``noise_std ** 2`` is below the precision of
        the kernel, or if delta is 1.
        """
        if self.noise_std**2 < state.error.least_ridge or self.delta >= 1:
            return 0.0
        return norm_lower_bound(state, self.noise_std, self.delta)
