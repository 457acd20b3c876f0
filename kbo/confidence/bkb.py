"""Widths of the papers on sketched posteriors: BKB, K-UCB, EK-UCB. For tighter bounds use the martingale mixture.

| class | paper | valid on a sketch if |
|---|---|---|
| ``BKB`` | Calandriello et al. (2019), Theorem 2 | ``|K - K~| <= ridge / (1 - eps)`` |
| ``EKUCB`` | Zenati et al. (2022), Lemma 4.1 | ``|K - K~| <= projection`` |
| ``KUCB`` | the same, exact posterior | never |

``objections`` checks the condition on the data instead of trusting that random sampling brought it about: the papers'
radii follow from it for any dictionary (docs/papers.md), at every round in which it is true.
"""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from kbo import checks
from kbo.confidence import widths
from kbo.confidence.base import SubGaussian, WidthConfidence
from kbo.regression import Posterior


class _Projected(SubGaussian, WidthConfidence):
    """Bounds that are valid as long as the dictionary misses at most ``missed`` of the kernel matrix."""

    covers: frozenset[str] = frozenset({"sketch", "weights"})

    @abstractmethod
    def missed(self, state: Posterior) -> float:
        """Return the largest ``|K - K~|`` that the radius covers."""

    def objections(self, state: Posterior) -> list[str]:
        """Return the reasons as for any confidence; one more if the dictionary misses too much at this round."""
        error, covered = state.error.norm(), self.missed(state)
        short = f"the error of the dictionary is up to {error:.3g}, and the theorem allows {covered:.3g}"
        return super().objections(state) + [short] * (error > covered)

    def _statement_on(self, state: Posterior) -> str | None:
        if self.guarantee is None or state.error.trace == 0:
            return self.guarantee
        return self.statement("this round, all others in which the dictionary misses as little, and all points at once")


class BKB(_Projected):
    """The width of BKB and BBKB: Calandriello et al. (2019), Theorem 2.

    Args:
        noise_std, norm_bound, delta: As for ``SelfNormalized``.
        eps: Accuracy of the leverages that the paper assumes.
        printed: Use the width as it is printed, which proves nothing.

    Raises:
        InvalidInput: A number out of its range.
    """

    def __init__(
        self, noise_std: float, norm_bound: float, delta: float, eps: float = 0.5, printed: bool = False
    ) -> None:
        super().__init__(noise_std, norm_bound, delta)
        self.eps: float = checks.probability("eps", eps)
        self.printed: bool = checks.flag("printed", printed)
        if printed:
            self.guarantee: str | None = None

    def missed(self, state: Posterior) -> float:
        """Return ``ridge / (1 - eps)``: so much adds at most ``sqrt(ridge / (1 - eps)) F`` to the radius."""
        return state.ridge / (1 - self.eps)

    def width(self, state: Posterior) -> Tensor:
        width = widths.calandriello_printed if self.printed else widths.calandriello
        numbers = leverage_sum(state), state.trace, state.ridge
        return width(*numbers, self.eps, self.noise_std, self.norm_bound, self.delta)


class EKUCB(_Projected):
    """The width of EK-UCB, for a dictionary that misses at most ``projection``: Zenati et al. (2022), Lemma 4.1.

    Args:
        noise_std, norm_bound, delta: As for ``SelfNormalized``.
        projection: mu, bound of the operator norm of ``K - K~``, in units of the kernel; that of KORS.
        factor: Factor of the effective dimension: 1 is enough, 2 is printed.

    Raises:
        InvalidInput: A number out of its range.
    """

    def __init__(
        self, noise_std: float, norm_bound: float, delta: float, projection: float, factor: float = 1.0
    ) -> None:
        super().__init__(noise_std, norm_bound, delta)
        self.projection: float = checks.non_negative("projection", projection)
        self.factor: float = checks.at_least("factor", factor, 1)

    def missed(self, state: Posterior) -> float:
        return self.projection

    def width(self, state: Posterior) -> Tensor:
        numbers = leverage_sum(state), state.trace, state.ridge
        return widths.zenati(*numbers, self.projection, self.noise_std, self.norm_bound, self.delta, self.factor)


class KUCB(EKUCB):
    """The width of K-UCB as in the paper, with the effective dimension under the root; arguments as ``SelfNormalized``.

    ``SelfNormalized`` has the log-determinant itself there: always tighter, and O(n) instead of O(n^3) a step.
    """

    def __init__(self, noise_std: float, norm_bound: float, delta: float) -> None:
        super().__init__(noise_std, norm_bound, delta, projection=0.0)


def leverage_sum(state: Posterior) -> Tensor:
    """Return the sum of the leverages of the observations, [].

    At least the effective dimension of the exact kernel matrix: ``Tr (A + E)(A + E + a I)^-1`` is at most
    ``Tr A (A + a I)^-1 + Tr E / a`` (the function is operator concave and zero at zero, so its trace is subadditive).
    """
    return state.effective_dimension() + state.error.trace / state.ridge
