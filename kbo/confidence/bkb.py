"""The bounds of BKB, K-UCB and EK-UCB for sketched posteriors; ``MartingaleMixture`` is tighter.

| class | paper | valid on a sketch if |
|---|---|---|
| ``BKB`` | Calandriello et al. (2019), Theorem 2 | ``|K - K~| <= ridge / (1 - eps)`` |
| ``EKUCB`` | Zenati et al. (2022), Lemma 4.1; with 0, K-UCB | ``|K - K~| <= projection`` |

With sigma = noise_std, B = norm_bound, and mu = ``largest_error``, the largest ``|K - K~|`` that is
allowed,

    width = sigma sqrt((gain + 2 ln(1/delta)) / ridge) + (1 + sqrt(mu / ridge)) B,
    gain = c (1 + ln(1 + Tr K / ridge)) leverage_sum,

where c = 1 for EK-UCB, and ``(1 + eps) / (1 - eps)`` for BKB, the square of the accuracy of its
leverages. The factor before ``leverage_sum`` is the bound of the log-determinant that the proof of
BKB needs; the printed factor ``ln(kappa^2 t)`` is 0 at t = 1 and lacks a factor 1/ridge. The printed
factor 2 of EK-UCB is unnecessary.

In the papers the condition on ``|K - K~|`` holds with high probability, by random sampling. Here
``objections`` checks it on the data: whenever it is true, the papers' radii follow for any
dictionary (docs/theory/sketch.md).
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
    """Bounds by the sum of the leverages, valid while ``|K - K~|`` is at most ``largest_error``."""

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
        eps: The accuracy of the leverages that the paper assumes, in (0, 1).

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
        projection: mu, a bound of the operator norm of ``K - K~``, in units of the kernel; the mu
            of KORS. 0 gives K-UCB, for exact posteriors. On these ``SelfNormalized`` is always
            tighter, and costs O(n) instead of O(n^3) per step.

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

    It is at least the effective dimension of the exact kernel matrix, because
    ``Tr (A + E)(A + E + a I)^-1 <= Tr A (A + a I)^-1 + Tr E / a``. Indeed the function is operator
    concave and zero at zero, so its trace is subadditive.
    """
    return state.at().effective_dimension() + state.error.trace / state.ridge
