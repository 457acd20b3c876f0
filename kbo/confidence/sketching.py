"""Widths of the papers on sketched posteriors: BKB, K-UCB, EK-UCB. For tighter bounds use the martingale mixture.

| class | paper | valid on a sketch if |
|---|---|---|
| ``BKB`` | Calandriello et al. (2019), Theorem 2 | the dictionary promises its leverages (``Regression.accuracy``) |
| ``EKUCB`` | Zenati et al. (2022), Lemma 4.1 | ``|K - K~| <= projection``, which ``guarantee_on`` checks |
| ``KUCB`` | the same, exact posterior | never |
"""

from __future__ import annotations

from torch import Tensor

from kbo import checks
from kbo.confidence import widths
from kbo.confidence.base import WidthConfidence
from kbo.regression import Regression

_GUARANTEE = (
    "holds for all rounds{until} and points at once with probability at least 1 - {delta:g}, if the function has norm "
    "at most {norm_bound:g} and the noise is {noise_std:g}-sub-Gaussian"
)


class BKB(WidthConfidence):
    """The width of BKB and BBKB.

    Args:
        noise_std: Sub-Gaussian constant of the noise, in units of the targets.
        norm_bound: Bound of the RKHS norm of the function.
        delta: Probability that the bounds may fail, the failure of the dictionary not counted.
        eps: Accuracy of the leverages that is assumed.
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
        self.guarantee = None if printed else _GUARANTEE.format(until="", **_numbers(self))

    def guarantee_on(self, state: Regression) -> str | None:
        """The guarantee, as far as the dictionary promises its leverages; the probabilities of failure add up."""
        promise = state.accuracy
        if self.printed or promise is None or promise.eps > self.eps:
            return None
        if promise.horizon is not None and state.n > promise.horizon:
            return None
        until = "" if promise.horizon is None else f" up to {promise.horizon}"
        return _GUARANTEE.format(until=until, **{**_numbers(self), "delta": self.delta + promise.delta})

    def width(self, state: Regression) -> Tensor:  # noqa: D102
        width = widths.calandriello_printed if self.printed else widths.calandriello
        numbers = state.leverage_sum(), state.trace, state.ridge
        return width(*numbers, self.eps, self.noise_std, self.norm_bound, self.delta)


class EKUCB(WidthConfidence):
    """The width of EK-UCB, for a dictionary that misses at most ``projection`` of the kernel matrix.

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
        self.guarantee = _GUARANTEE.format(until="", **_numbers(self))

    def guarantee_on(self, state: Regression) -> str | None:
        """The guarantee, if the sketch misses at most ``projection`` now; it may not have at other times."""
        return self.guarantee if float(state.residual_norm()) <= self.projection else None

    def width(self, state: Regression) -> Tensor:  # noqa: D102
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


def _numbers(confidence: BKB | EKUCB) -> dict[str, float]:
    return {name: vars(confidence)[name] for name in ("noise_std", "norm_bound", "delta")}
