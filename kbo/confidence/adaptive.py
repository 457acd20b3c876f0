"""Bounds whose norm bound or noise level is not given, but follows the data.

* ``UnknownNorm``: mixture bounds for an unknown norm, without a guarantee
* ``AdaptiveSelfNormalized``, ``AdaptiveMixture``: for noise of unknown level, on an
  ``AdaptiveRidge`` that follows bounds of the level
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from kbo._base import checks
from kbo.confidence.base import Confidence, WidthConfidence, checked_state
from kbo.confidence.confidence_set import Scale
from kbo.confidence.least_norm import norm_lower_bound
from kbo.confidence.mixture import MartingaleMixture
from kbo.confidence.noise_level import NoiseLevel
from kbo.confidence.noise_mixture import MixtureNoiseBounds
from kbo.confidence.noise_residuals import NoiseBounds
from kbo.errors import InvalidInput, RefutedAssumptions
from kbo.regression import Posterior


class _Delegated(Confidence):
    """The bounds of the confidence that ``choose`` returns; it is called once after every change.

    Used for an unknown norm (``UnknownNorm``) or an unknown noise level (``AdaptiveMixture``).
    """

    _chosen: tuple[int, Confidence] | None = None  # version of the posterior, its confidence

    @abstractmethod
    def choose(self, state: Posterior) -> Confidence:
        """Return the confidence to use on ``state``."""

    def current(self, state: Posterior) -> Any:
        """Return the chosen confidence, the same object until the data change."""
        version = checked_state(state).version
        if self._chosen is None or self._chosen[0] != version:
            self._chosen = (version, self.choose(state))
        return self._chosen[1]

    def interval(self, state: Posterior, X: Tensor) -> tuple[Tensor, Tensor]:
        return self.current(state).interval(state, X)

    def upper(self, state: Posterior, X: Tensor) -> Tensor:
        return self.current(state).upper(state, X)

    def lower(self, state: Posterior, X: Tensor) -> Tensor:
        return self.current(state).lower(state, X)

    def quick_interval(self, state: Posterior, X: Tensor) -> tuple[Tensor, Tensor]:
        return self.current(state).quick_interval(state, X)

    def argmax_upper(self, state: Posterior, X: Tensor) -> tuple[int, float]:
        return self.current(state).argmax_upper(state, X)

    def argmax_lower(self, state: Posterior, X: Tensor) -> tuple[int, float]:
        return self.current(state).argmax_lower(state, X)

    def underlying_bounds(self) -> list[Confidence]:
        """Return an empty list, because the chosen confidence needs no statement of its own."""
        return []


PRACTICAL_MULTIPLE = 1.25
"""Multiple of ``norm_lower_bound`` that serves as a norm bound in practice, by measurement."""

_ABOVE = 1 + 1e-6
"""Multiple of ``B_low``, where F is a single function, that exceeds it by more than rounding."""


class UnknownNorm(_Delegated):
    """Mixture bounds for functions of unknown norm, which is estimated; without a guarantee.

    The norm bound follows ``B_low``, a lower confidence bound of the norm. Data can refute a norm
    bound but never prove one, so there is no guarantee. But the data never refute the present norm
    bound; and with probability 1 - delta the interval holds at all times when
    ``norm_bound_on(state)`` is at least the norm. This norm bound depends only on the data, and may
    fall again, because ``B_low`` is not monotone.

    * ``multiple=None`` doubles ``guess`` until the data do not refute it. All values are ``guess``
      times a power of two, and all hold on one event, so no union over them is needed.
    * ``multiple=m`` takes m times ``B_low``, but at least ``guess``: tighter, and in practice often
      right.

    Args:
        noise_std: Sub-Gaussian constant of the noise, in units of the targets.
        delta: Probability that ``B_low`` fails at any time.
        kind: The kind of the mixture: "amm", "dmm" or "cmm".
        scale: Covariance scale of the mixture, or several.
        guess: The least norm bound, in units of the targets over sqrt(kernel); by default
            ``noise_std``.
        multiple: The multiple m of ``B_low``, at least 1; None to double ``guess``.

    Raises:
        InvalidInput: A number out of its range, or an unknown kind.
    """

    covers: frozenset[str] = MartingaleMixture.covers  # only the norm is unknown

    def __init__(
        self,
        noise_std: float,
        delta: float,
        kind: str = "cmm",
        scale: Scale = 1.0,
        guess: float | None = None,
        multiple: float | None = None,
    ) -> None:
        self.noise_std: float = checks.positive("noise_std", noise_std)
        if guess is None:
            guess = self.noise_std
        self.guess: float = checks.positive("guess", guess)
        mixture = MartingaleMixture(noise_std, self.guess, delta, kind, scale)  # checks the numbers
        self.delta: float = mixture.delta
        self.kind: str = mixture.kind
        self.scale: Scale = mixture.scale
        self.multiple: float | None = checks.maybe(checks.at_least, "multiple", multiple, 1.0)

    def norm_bound_on(self, state: Posterior) -> float:
        """Return the estimated norm bound, in units of the targets over sqrt(kernel)."""
        B_low = norm_lower_bound(state, self.noise_std, self.delta, self.scale, rounded_down=False)
        if self.multiple is not None:
            return max(self.guess, self.multiple * B_low, _ABOVE * B_low)
        doublings = math.ceil(math.log2(max(_ABOVE * B_low / self.guess, 1.0)))
        return self.guess * 2.0**doublings

    def choose(self, state: Posterior) -> MartingaleMixture:
        """Return the mixture with the norm bound ``norm_bound_on(state)``."""
        norm_bound = self.norm_bound_on(state)
        return MartingaleMixture(self.noise_std, norm_bound, self.delta, self.kind, self.scale)


class _Adaptive(Confidence):
    """The base of bounds that use the noise bounds of a posterior's schedule, and their guarantee."""

    covers: frozenset[str] = frozenset({"sketch", "weights", "moved ridge"})
    rests_on: type[NoiseLevel]
    """The class of noise bounds on whose event the confidence holds."""

    def statement_on(self, state: Posterior) -> str:
        """Return the statement of the noise bounds."""
        return self.noise_bounds(state).guarantee

    def delta_on(self, state: Posterior) -> float:
        """Return the probability that the noise bounds fail; these bounds hold whenever they do."""
        return self.noise_bounds(state).delta

    def objections(self, state: Posterior) -> list[str]:
        """Return the objections to any confidence, and to refuted or outdated noise bounds."""
        bounds = self.noise_bounds(state)
        reasons = super().objections(state)
        if bounds.refuted:
            reasons.append("the bounds of the noise level contradict each other")
        if bounds.n != state.n:  # an update was interrupted
            reasons.append(f"the noise bounds have seen {bounds.n} of {state.n} observations")
        return reasons

    def least_ridge_on(self, state: Posterior) -> float:
        return min(state.ridge, self.noise_bounds(state).least_ridge_used)

    def finite_on(self, state: Posterior) -> bool:
        return math.isfinite(self.noise_bounds(state).upper)

    def noise_bounds(self, state: Posterior) -> Any:
        """Return the noise bounds that the ridge of ``state`` follows.

        Raises:
            InvalidInput: It follows no noise bounds, or noise bounds of another class.
        """
        bounds = state.schedule
        if not isinstance(bounds, self.rests_on):
            required = self.rests_on.__name__
            followed = "nothing" if bounds is None else type(bounds).__name__
            raise InvalidInput(
                f"{type(self).__name__} reads the noise level from the {required} that the ridge "
                f"follows, and that of this {type(state).__name__} follows {followed}: use "
                f"kbo.AdaptiveRidge(state, {required}(...)) or kbo.models.AdaptiveRidgeGP."
            )
        return bounds

    def _unrefuted_noise_bounds(self, state: Posterior) -> Any:
        """Return the noise bounds.

        Raises:
            RefutedAssumptions: Observed data refute them. Hypothetical data never do.
        """
        bounds = self.noise_bounds(state)
        if bounds.refuted and not state.provenance.hypothetical:
            state.error.refuse_no_kernel()
            bounds.refuse_if_refuted()
        return bounds


class AdaptiveSelfNormalized(_Adaptive, WidthConfidence):
    """Self-normalised bounds for noise of unknown level: Durand et al. (2018), Corollary 1.

    For an ``AdaptiveRidge`` whose schedule is ``NoiseBounds``.

    ``width = C + C sqrt(|E| / lam) + upper sqrt(D / lam)``, with D from ``NoiseBounds.deviation``:
    the printed radius divided by ``sqrt(lam)``, and widened on a sketch as in ``SelfNormalized``.
    It is infinite as long as the noise level has no upper bound.

    Example:
        >>> state = AdaptiveRidge(KernelRidge(kernel, bounds.ridge), bounds)
        >>> lower, upper = AdaptiveSelfNormalized().interval(state, X)
    """

    rests_on: type[NoiseLevel] = NoiseBounds

    def width(self, state: Posterior) -> Tensor:
        """Return ``C + C sqrt(|E| / lam) + upper sqrt(D / lam)``, [].

        Raises:
            RefutedAssumptions: The bounds of the noise level contradict each other.
        """
        bounds = self._unrefuted_noise_bounds(state)
        error = state.error.norm()
        D = bounds.deviation(state)
        bias = bounds.norm_bound * (1 + math.sqrt(error / state.ridge))
        width = bias + bounds.upper * math.sqrt(D / state.ridge)
        return torch.tensor(width, dtype=torch.float64, device="cpu")


class AdaptiveMixture(_Adaptive, _Delegated):
    """Mixture bounds AMM, DMM or CMM for noise of unknown level, at its upper bound.

    For an ``AdaptiveRidge`` whose schedule is ``MixtureNoiseBounds``. The event of the mixture over
    fixed ridges is ``|xi|^2 <= R^2``, and R^2 grows with sigma. So if it holds at the true noise
    level, it holds at every larger one. The mixture with ``noise_std = upper`` over these ridges is
    therefore valid on the same event as the noise bounds (docs/theory/mixtures.md).

    Args:
        kind: "amm", "dmm" or "cmm", as for ``MartingaleMixture``.

    Raises:
        InvalidInput: An unknown kind.
    """

    rests_on: type[NoiseLevel] = MixtureNoiseBounds

    def __init__(self, kind: str = "cmm") -> None:
        self.kind: str = MartingaleMixture(1.0, 1.0, 0.1, kind).kind  # checks it

    def choose(self, state: Posterior) -> Confidence:
        """Return the mixture at the present upper bound of the level; infinite bounds without one.

        Raises:
            RefutedAssumptions: The bounds of the noise level contradict each other.
        """
        bounds = self._unrefuted_noise_bounds(state)
        if math.isinf(bounds.upper):
            return _Infinite()
        return _AtNoiseLevel(bounds, self.kind, state.ridge)


class _AtNoiseLevel(MartingaleMixture):
    """The mixture at the upper bound of the noise level; messages name the given numbers instead."""

    def __init__(self, bounds: MixtureNoiseBounds, kind: str, ridge: float) -> None:
        level = max(bounds.upper, 1e-150)  # above 0 without any noise; a larger level is valid
        super().__init__(level, bounds.norm_bound, bounds.mixture_delta, kind, level**2 / ridge)
        # The bound is computed at ridges around the best one; the martingale averages over all.
        self._mixture_ridges = bounds.mixture_ridges[::-1]
        self.scale = tuple(level**2 / a for a in self._mixture_ridges)
        self.guarantee = None  # the level came from the data; AdaptiveMixture has the guarantee
        self._total_delta = bounds.delta

    def _refuted(self, reason: str, **figures: float) -> None:
        raise RefutedAssumptions(
            f"The data refute the assumptions: {reason}, with noise of the level that they allow. "
            "Raise norm_bound, or the upper bound of the noise level if one was given, or change "
            "the kernel; if they are right, this happens with probability at most delta = "
            f"{self._total_delta:g}",
            norm_bound=self.norm_bound,
            noise_at_most=self.noise_std,
            **figures,
        )


class _Infinite(Confidence):
    """Infinite bounds, while the noise level has no upper bound."""

    def finite_on(self, state: Posterior) -> bool:
        return False

    def interval(self, state: Posterior, X: Tensor) -> tuple[Tensor, Tensor]:
        unknown = torch.full(X.shape[:-1], math.inf, dtype=X.dtype, device=X.device)
        return -unknown, unknown
