"""Bounds of the papers on sketched posteriors: BKB, K-UCB, EK-UCB.

``MartingaleMixture`` is tighter on the same posteriors.

| class | paper | valid on a sketch if |
|---|---|---|
| ``BKB`` | Calandriello et al. (2019), Theorem 2 | ``|K - K~| <= ridge / (1 - eps)`` |
| ``EKUCB`` | Zenati et al. (2022), Lemma 4.1; with 0, K-UCB | ``|K - K~| <= projection`` |

With sigma = noise_std, B = norm_bound, and mu the largest ``|K - K~|`` that is allowed,
``largest_error``,

    width = sigma sqrt((gain + 2 ln(1/delta)) / ridge) + (1 + sqrt(mu / ridge)) B,
    gain = c (1 + ln(1 + Tr K / ridge)) leverage_sum,

c = 1 for EK-UCB, and ``(1 + eps) / (1 - eps)`` for BKB, the square of the accuracy of its
leverages. The factor of ``leverage_sum`` bounds the log-determinant as the proof of BKB needs it:
in print, ``ln(kappa^2 t)`` is 0 at t = 1 and lacks a factor 1/ridge. The factor 2 of
``leverage_sum`` that EK-UCB has in print is unnecessary.

``objections`` checks the condition on the data instead of trusting that random sampling brought it
about: the papers' radii follow from it for any dictionary (docs/theory/sketch.md), at every round
in which it is true.
"""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from torch import Tensor

from kbo._base import checks
from kbo.confidence.base import WidthConfidence
from kbo.confidence.mixture.sub_gaussian import SubGaussian
from kbo.regression import Posterior


class _LeverageBound(SubGaussian, WidthConfidence):
    """Bounds by the sum of the leverages, valid while the sketch misses at most ``largest_error``."""

    covers: frozenset[str] = frozenset({"sketch", "weights"})
    _leverage_factor: float = 1.0  # c

    @abstractmethod
    def largest_error(self, state: Posterior) -> float:
        """Return mu, the largest ``|K - K~|`` that the width covers, in units of the kernel."""

    def width(self, state: Posterior) -> Tensor:
        ridge = state.ridge
        log_factor = 1 + math.log1p(state.trace / ridge)
        gain = self._leverage_factor * log_factor * leverage_sum(state)
        noise = self.noise_std * torch.sqrt((gain + 2 * math.log(1 / self.delta)) / ridge)
        return noise + (1 + math.sqrt(self.largest_error(state) / ridge)) * self.norm_bound

    def objections(self, state: Posterior) -> list[str]:
        """Return the objections of any confidence, and one if the sketch is too coarse."""
        reasons = super().objections(state)
        error = state.error.norm()
        largest = self.largest_error(state)
        if error > largest:
            reasons.append(
                f"the error of the dictionary is up to {error:.3g}, and the theorem allows "
                f"{largest:.3g}"
            )
        return reasons

    def statement_on(self, state: Posterior) -> str | None:
        if self.guarantee is None or state.error.trace == 0:
            return self.guarantee
        return self.statement(
            "this round, all others in which the dictionary misses as little, and all points at "
            "once"
        )


class BKB(_LeverageBound):
    """Bounds of BKB and BBKB on a sketched posterior, for functions of known norm.

    Calandriello et al. (2019), Theorem 2.

    Args:
        noise_std, norm_bound, delta: As for ``SelfNormalized``.
        eps: Accuracy of the leverages that the paper assumes.

    Raises:
        InvalidInput: A number out of its range.
    """

    def __init__(self, noise_std: float, norm_bound: float, delta: float, eps: float = 0.5) -> None:
        super().__init__(noise_std, norm_bound, delta)
        self.eps: float = checks.probability("eps", eps)
        self._leverage_factor: float = (1 + self.eps) / (1 - self.eps)

    def largest_error(self, state: Posterior) -> float:
        """Return ``ridge / (1 - eps)``, which adds at most ``B / sqrt(1 - eps)`` to the width."""
        return state.ridge / (1 - self.eps)


class EKUCB(_LeverageBound):
    """Bounds of EK-UCB on a sketched posterior, for functions of known norm.

    Zenati et al. (2022), Lemma 4.1.

    Args:
        noise_std, norm_bound, delta: As for ``SelfNormalized``.
        projection: mu, bound of the operator norm of ``K - K~``, in units of the kernel; that of
            KORS. At 0 the width is that of K-UCB, for exact posteriors; ``SelfNormalized`` is
            always tighter, and O(n) instead of O(n^3) a step.

    Raises:
        InvalidInput: A number out of its range.
    """

    def __init__(
        self, noise_std: float, norm_bound: float, delta: float, projection: float
    ) -> None:
        super().__init__(noise_std, norm_bound, delta)
        self.projection: float = checks.non_negative("projection", projection)

    def largest_error(self, state: Posterior) -> float:
        return self.projection


def leverage_sum(state: Posterior) -> Tensor:
    """Return the sum of the leverages of the observations, [].

    It is at least the effective dimension of the exact matrix:
    ``Tr (A + E)(A + E + a I)^-1`` is at most ``Tr A (A + a I)^-1 + Tr E / a``: the function is
    operator concave and zero at zero, so its trace is subadditive.
    """
    return state.at().effective_dimension() + state.error.trace / state.ridge
