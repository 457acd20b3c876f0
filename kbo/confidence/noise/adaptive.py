"""Confidence sequences for noise of unknown level, on states whose ridge follows ``NoiseBounds``."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from kbo.confidence.base import Confidence, WidthConfidence
from kbo.confidence.delegated import Delegated
from kbo.confidence.mixture.bound import MartingaleMixture
from kbo.confidence.noise.bounds import MixtureNoiseBounds, NoiseBounds, NoiseLevel
from kbo.errors import InvalidInput, RefutedAssumptions
from kbo.regression import Posterior


class _Adaptive(Confidence):
    """Bounds at the noise level of the state's ``NoiseBounds``, with their guarantee; infinite before the first."""

    covers: frozenset[str] = frozenset({"sketch", "weights", "moved ridge"})
    rests_on: type[NoiseLevel]
    """The class of noise bounds whose event is that of the confidence."""

    def _statement_on(self, state: Posterior) -> str:
        """Return that of the noise bounds."""
        return self.noise_bounds(state).guarantee

    def delta_on(self, state: Posterior) -> float:
        """Return that of the noise bounds."""
        return self.noise_bounds(state).delta

    def objections(self, state: Posterior) -> list[str]:
        """Return the reasons as for any confidence; more if the noise bounds are refuted, or of other data."""
        bounds = self.noise_bounds(state)
        reasons = ["the bounds of the noise level contradict each other"] * bounds.refuted
        if bounds.n != state.n:  # after an interrupt, or a state that could not be loaded
            reasons.append(f"the noise bounds have seen {bounds.n} of {state.n} observations")
        return super().objections(state) + reasons

    def _least_ridge(self, state: Posterior) -> float:
        return min(state.ridge, self.noise_bounds(state).least_ridge_used)

    def finite_on(self, state: Posterior) -> bool:
        return math.isfinite(self.noise_bounds(state).upper)

    def noise_bounds(self, state: Posterior, check: bool = False) -> Any:
        """Return the noise bounds that the ridge of ``state`` follows.

        Raises:
            InvalidInput: It follows none, or those of another class, which rest on another event.
            RefutedAssumptions: They contradict each other, if ``check``.
        """
        bounds, wanted = state.schedule, self.rests_on.__name__
        if not isinstance(bounds, NoiseLevel):
            raise InvalidInput(
                f"{type(self).__name__} reads the noise level from the state, and a {type(state).__name__} without "
                f"{wanted} knows none: use kbo.AdaptiveRidge(state, bounds) or kbo.models.AdaptiveRidgeGP."
            )
        if not isinstance(bounds, self.rests_on):
            raise InvalidInput(
                f"{type(self).__name__} needs {wanted}, the state has {type(bounds).__name__}, which rest on another "
                "event."
            )
        if check and not state.provenance.hypothetical:
            bounds.refuse_if_refuted()
        return bounds


class AdaptiveSelfNormalized(_Adaptive, WidthConfidence):
    """Kernel UCB with unknown noise: Durand et al. (2018), Corollary 1.

    ``width = C + C sqrt(|E| / lam) + upper sqrt(D / lam)``, with ``D`` from ``NoiseBounds.deviation``; the printed
    radius divided by ``sqrt(lam)``, widened on a sketch as ``SelfNormalized`` is. Infinite as long as the noise has no
    upper bound.

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
        bounds = self.noise_bounds(state, check=True)
        error, D = state.error.norm(), bounds.deviation(state)
        bias = bounds.norm_bound * (1 + math.sqrt(error / state.ridge))
        return torch.tensor(
            bias + bounds.upper * math.sqrt(D / state.ridge), dtype=torch.float64, device="cpu"
        )


class AdaptiveMixture(_Adaptive, Delegated):
    """AMM, DMM and CMM with unknown noise: the mixture at the upper bound of the noise level.

    The event of the mixture over fixed ridges, ``|xi|^2 <= R^2``, has a right side that grows with sigma: it holds for
    every noise level above the true one. So the mixture with ``noise_std = upper`` over these ridges is valid whatever
    was estimated, on the very event that bounds the noise level (docs/theory/mixtures.md).

    Args:
        kind: "amm", "dmm" or "cmm", as for ``MartingaleMixture``.

    Raises:
        InvalidInput: An unknown kind.
    """

    rests_on: type[NoiseLevel] = MixtureNoiseBounds

    def __init__(self, kind: str = "cmm") -> None:
        self.kind: str = MartingaleMixture(1.0, 1.0, 0.1, kind).kind  # checks it

    def choose(self, state: Posterior) -> Confidence:
        """Return the mixture at the present noise level and ridge; infinite bounds as long as no level is known.

        Raises:
            RefutedAssumptions: The bounds of the noise level contradict each other.
        """
        bounds = self.noise_bounds(state, check=True)
        return (
            _AtNoiseLevel(bounds, self.kind, state.ridge)
            if math.isfinite(bounds.upper)
            else _Infinite()
        )


class _AtNoiseLevel(MartingaleMixture):
    """The mixture at the upper bound of the noise level; its messages name the numbers that were given."""

    def __init__(self, bounds: MixtureNoiseBounds, kind: str, ridge: float) -> None:
        level = max(bounds.upper, 1e-150)  # targets without any noise; a larger level is valid
        super().__init__(level, bounds.norm_bound, bounds.mixture_delta, kind, level**2 / ridge)
        self._mixture_ridges = bounds.mixture_ridges[::-1]
        self.guarantee = None  # its level came from the data; AdaptiveMixture has the guarantee
        self._total_delta = bounds.delta

    def _refuted(self, reason: str, **figures: float) -> None:
        raise RefutedAssumptions(
            f"The data refute the assumptions: {reason}, with noise of the level that they allow. Raise norm_bound, or "
            "the upper bound of the noise level if one was given, or change the kernel; if they are right, this "
            f"happens with probability at most delta = {self._total_delta:g}",
            norm_bound=self.norm_bound,
            noise_at_most=self.noise_std,
            **figures,
        )


class _Infinite(Confidence):
    """Bounds without any information."""

    def finite_on(self, state: Posterior) -> bool:
        return False

    def interval(self, state: Posterior, X: Tensor) -> tuple[Tensor, Tensor]:
        unknown = torch.full(X.shape[:-1], math.inf, dtype=X.dtype, device=X.device)
        return -unknown, unknown
