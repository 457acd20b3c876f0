"""Widths of the papers on sketched posteriors: BKB, K-UCB, EK-UCB. For tighter bounds use the martingale mixture.

| class | paper | valid on a sketch if |
|---|---|---|
| ``BKB`` | Calandriello et al. (2019), Theorem 2 | ``|K - K~| <= ridge / (1 - eps)`` |
| ``EKUCB`` | Zenati et al. (2022), Lemma 4.1; K-UCB if ``projection`` is 0 | ``|K - K~| <= projection`` |

With sigma = noise_std, B = norm_bound, and mu the part of the kernel matrix that the dictionary may miss, ``missed``,

    width = sigma sqrt((c (1 + ln(1 + Tr K / ridge)) leverage_sum + 2 ln(1/delta)) / ridge) + (1 + sqrt(mu / ridge)) B,

c = 1 for EK-UCB, and the square of the accuracy of the leverages for BKB, ``(1 + eps) / (1 - eps)``. The factor of the
leverages bounds the log-determinant as the proof of BKB needs it: in print, ``ln(kappa^2 t)`` is 0 at t = 1 and lacks a
factor 1/ridge. The factor 2 of ``leverage_sum`` that EK-UCB has in print is unnecessary.

``objections`` checks the condition on the data instead of trusting that random sampling brought it about: the papers'
radii follow from it for any dictionary (docs/papers.md), at every round in which it is true.
"""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from torch import Tensor

from kbo._base import checks
from kbo.confidence.base import SubGaussian, WidthConfidence
from kbo.regression import Posterior


class _Projected(SubGaussian, WidthConfidence):
    """Bounds that are valid as long as the dictionary misses at most ``missed`` of the kernel matrix."""

    covers: frozenset[str] = frozenset({"sketch", "weights"})
    _inflation: float = 1.0
    """c, the factor of the leverages."""

    @abstractmethod
    def missed(self, state: Posterior) -> float:
        """Return the largest ``|K - K~|`` that the radius covers."""

    def width(self, state: Posterior) -> Tensor:
        ridge = state.ridge
        gain = self._inflation * (1 + math.log1p(state.trace / ridge)) * leverage_sum(state)
        noise = self.noise_std * torch.sqrt((gain + 2 * math.log(1 / self.delta)) / ridge)
        return noise + (1 + math.sqrt(self.missed(state) / ridge)) * self.norm_bound

    def objections(self, state: Posterior) -> list[str]:
        """Return the reasons as for any confidence; one more if the dictionary misses too much at this round."""
        error, covered = state.error.norm(), self.missed(state)
        short = f"the error of the dictionary is up to {error:.3g}, and the theorem allows {covered:.3g}"
        return super().objections(state) + [short] * (error > covered)

    def _statement_on(self, state: Posterior) -> str | None:
        if self.guarantee is None or state.error.trace == 0:
            return self.guarantee
        return self.statement(
            "this round, all others in which the dictionary misses as little, and all points at once"
        )


class BKB(_Projected):
    """The width of BKB and BBKB: Calandriello et al. (2019), Theorem 2.

    Args:
        noise_std, norm_bound, delta: As for ``SelfNormalized``.
        eps: Accuracy of the leverages that the paper assumes.

    Raises:
        InvalidInput: A number out of its range.
    """

    def __init__(self, noise_std: float, norm_bound: float, delta: float, eps: float = 0.5) -> None:
        super().__init__(noise_std, norm_bound, delta)
        self.eps: float = checks.probability("eps", eps)
        self._inflation: float = (1 + self.eps) / (1 - self.eps)

    def missed(self, state: Posterior) -> float:
        """Return ``ridge / (1 - eps)``: so much adds at most ``sqrt(ridge / (1 - eps)) F`` to the radius."""
        return state.ridge / (1 - self.eps)


class EKUCB(_Projected):
    """The width of EK-UCB, for a dictionary that misses at most ``projection``: Zenati et al. (2022), Lemma 4.1.

    Args:
        noise_std, norm_bound, delta: As for ``SelfNormalized``.
        projection: mu, bound of the operator norm of ``K - K~``, in units of the kernel; that of KORS. At 0 the width
            is that of K-UCB, for exact posteriors; ``SelfNormalized`` is always tighter, and O(n) instead of O(n^3) a
            step.

    Raises:
        InvalidInput: A number out of its range.
    """

    def __init__(
        self, noise_std: float, norm_bound: float, delta: float, projection: float
    ) -> None:
        super().__init__(noise_std, norm_bound, delta)
        self.projection: float = checks.non_negative("projection", projection)

    def missed(self, state: Posterior) -> float:
        return self.projection


def leverage_sum(state: Posterior) -> Tensor:
    """Return the sum of the leverages of the observations, [].

    At least the effective dimension of the exact kernel matrix: ``Tr (A + E)(A + E + a I)^-1`` is at most
    ``Tr A (A + a I)^-1 + Tr E / a`` (the function is operator concave and zero at zero, so its trace is subadditive).
    """
    return state.at().effective_dimension() + state.error.trace / state.ridge
