"""Widths of the papers on sketched posteriors: BKB, K-UCB, EK-UCB. For tighter bounds use the martingale mixture.

| class | paper | valid on a sketch if |
|---|---|---|
| ``BKB`` | Calandriello et al. (2019), Theorem 2 | ``|K - K~| <= ridge / (1 - eps)`` |
| ``EKUCB`` | Zenati et al. (2022), Lemma 4.1 | ``|K - K~| <= projection`` |
| ``KUCB`` | the same, exact posterior | never |

``guarantee_on`` checks the condition on the data instead of trusting that random sampling brought it about: the papers'
radii follow from it for any dictionary (docs/papers.md), at every round in which it is true.
"""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from kbo import checks
from kbo.confidence import widths
from kbo.confidence.base import WidthConfidence
from kbo.regression import Posterior


class _Projected(WidthConfidence):
    """Bounds that hold as long as the dictionary misses at most ``missed`` of the kernel matrix."""

    noise_std: float
    norm_bound: float
    delta: float

    @abstractmethod
    def missed(self, state: Posterior) -> float:
        """The largest ``|K - K~|`` that the radius covers."""

    def holds_on(self, state: Posterior) -> bool:
        """Whether the dictionary misses little enough, now."""
        return float(state.residual_norm()) <= self.missed(state)

    def guarantee_on(self, state: Posterior) -> str | None:
        if self.guarantee is None or super().guarantee_on(state) is None:
            return None
        return self._statement(exact=float(state.residual_trace) == 0)

    def _statement(self, exact: bool) -> str:
        here = "for this round, all others in which the dictionary misses as little,"
        rounds = "for all rounds" if exact else here
        return (
            f"holds {rounds} and all points at once with probability at least 1 - {self.delta:g}, if the function has "
            f"norm at most {self.norm_bound:g} and the noise is {self.noise_std:g}-sub-Gaussian"
        )


class BKB(_Projected):
    """The width of BKB and BBKB: Calandriello et al. (2019), Theorem 2.

    Args:
        noise_std: Sub-Gaussian constant of the noise, in units of the targets.
        norm_bound: Bound of the RKHS norm of the function.
        delta: Probability that the bounds may fail, ever and anywhere.
        eps: Accuracy of the leverages that the paper assumes.
        printed: Use the width as it is printed, which proves nothing.

    Raises:
        InvalidInput: A number out of its range.
    """

    def __init__(
        self, noise_std: float, norm_bound: float, delta: float, eps: float = 0.5, printed: bool = False
    ) -> None:
        self.noise_std = checks.positive("noise_std", noise_std)
        self.norm_bound = checks.positive("norm_bound", norm_bound)
        self.delta, self.eps = checks.probability("delta", delta), checks.probability("eps", eps)
        self.printed = printed
        self.guarantee = None if printed else self._statement(exact=True)

    def missed(self, state: Posterior) -> float:
        """``ridge / (1 - eps)``: then what the dictionary misses costs at most ``sqrt(ridge / (1 - eps)) F``."""
        return state.ridge / (1 - self.eps)

    def width(self, state: Posterior) -> Tensor:  # noqa: D102
        width = widths.calandriello_printed if self.printed else widths.calandriello
        numbers = state.leverage_sum(), state.trace, state.ridge
        return width(*numbers, self.eps, self.noise_std, self.norm_bound, self.delta)


class EKUCB(_Projected):
    """The width of EK-UCB, for a dictionary that misses at most ``projection``: Zenati et al. (2022), Lemma 4.1.

    Args:
        noise_std: Sub-Gaussian constant of the noise, in units of the targets.
        norm_bound: Bound of the RKHS norm of the function.
        delta: Probability that the bounds may fail, ever and anywhere.
        projection: mu, bound of the operator norm of ``K - K~``, in units of the kernel; that of KORS.
        factor: Factor of the effective dimension: 1 is enough, 2 is printed.

    Raises:
        InvalidInput: A number out of its range.
    """

    def __init__(
        self, noise_std: float, norm_bound: float, delta: float, projection: float, factor: float = 1.0
    ) -> None:
        self.noise_std = checks.positive("noise_std", noise_std)
        self.norm_bound = checks.positive("norm_bound", norm_bound)
        self.delta = checks.probability("delta", delta)
        self.projection = checks.non_negative("projection", projection)
        self.factor = checks.at_least("factor", factor, 1)
        self.guarantee = self._statement(exact=True)

    def missed(self, state: Posterior) -> float:  # noqa: D102
        return self.projection

    def width(self, state: Posterior) -> Tensor:  # noqa: D102
        numbers = state.leverage_sum(), state.trace, state.ridge
        return widths.zenati(*numbers, self.projection, self.noise_std, self.norm_bound, self.delta, self.factor)


class KUCB(EKUCB):
    """The width of K-UCB as in the paper, with the effective dimension under the root.

    ``SelfNormalized`` has the log-determinant itself there: always tighter, and O(n) instead of O(n^3) a step.

    Args:
        noise_std: Sub-Gaussian constant of the noise, in units of the targets.
        norm_bound: Bound of the RKHS norm of the function.
        delta: Probability that the bounds may fail, ever and anywhere.
    """

    def __init__(self, noise_std: float, norm_bound: float, delta: float) -> None:
        super().__init__(noise_std, norm_bound, delta, projection=0.0)
