"""Bounds of one width for ``||f|| <= norm_bound`` and sub-Gaussian noise, at one ridge.

On paper, with sigma = noise_std, B = norm_bound, lam = ridge             | in code
``sigma sqrt((log_det + 2 ln(1/delta)) / lam) + B``                       | ``SelfNormalized``
``sigma sqrt(log_det + n ln(lam) + 2 ln(1/delta)) + B``, ``lam = 1 + eta`` | ``ImprovedGPUCB``
``sigma sqrt((gain + 2 ln(1/delta)) / lam) + (1 + sqrt(mu / lam)) B``     | ``BKB``, ``EKUCB``

The first two theorems are about exact posteriors. On a sketch with the error ``E = K - K~`` the widths
stay valid for any dictionary after two changes (docs/theory/sketch.md). ``log_det`` is replaced by the
upper bound ``log_det + ln det(I + E / lam)`` of ``ln det(I + K / lam)``, and ``B sqrt(|E| / lam)``
is added for the part of the function outside the dictionary.

BKB (Calandriello et al. 2019, Theorem 2) and EK-UCB (Zenati et al. 2022, Lemma 4.1; with mu = 0,
K-UCB) are about sketches with ``|K - K~| <= mu``. For BKB mu is ``lam / (1 - eps)``. In the width

    gain = c (1 + ln(1 + Tr K / lam)) leverage_sum,

c is 1 for EK-UCB, and ``(1 + eps) / (1 - eps)`` for BKB, the square of the accuracy of its leverages.
The factor before ``leverage_sum`` is the bound of the log-determinant that the proof of BKB needs; the
printed factor ``ln(kappa^2 t)`` is 0 at t = 1 and lacks a factor 1/lam. The printed factor 2 of EK-UCB
is unnecessary. In the papers the condition on ``|K - K~|`` holds with high probability, by random
sampling. Here ``objections`` checks it on the data: whenever it is true, the papers' radii follow for
any dictionary (docs/theory/sketch.md). ``MartingaleMixture`` is tighter.
"""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from torch import Tensor

from kbo._base import checks
from kbo.confidence import rounding
from kbo.confidence.base import Confidence, WidthConfidence
from kbo.confidence.least_norm import norm_lower_bound
from kbo.errors import InvalidInput
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
