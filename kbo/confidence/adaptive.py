"""Confidence sequences for noise of unknown level, on states whose ridge follows ``NoiseBounds``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from kbo.confidence.base import Confidence, WidthConfidence
from kbo.confidence.mixture import MartingaleMixture
from kbo.confidence.noise import NoiseBounds
from kbo.errors import InvalidInput, RefutedAssumptions
from kbo.regression import Regression


def noise_bounds(state: Regression) -> NoiseBounds:
    """The noise bounds that the ridge of ``state`` follows.

    Raises:
        InvalidInput: It does not follow any.
    """
    bounds = state.schedule
    if not isinstance(bounds, NoiseBounds):
        raise InvalidInput(
            f"this confidence reads the noise level from the state, and a {type(state).__name__} without NoiseBounds "
            "knows none: use kbo.AdaptiveRidge(state, bounds) or kbo.models.AdaptiveRidgeGP."
        )
    return bounds


class _Adaptive(Confidence):
    """What all have in common: the guarantee is that of the noise bounds, and there may be no bound yet."""

    variants: tuple[str, ...]

    def holds_on(self, state: Regression) -> bool:
        """On every posterior: all radii account for ``residual_trace`` and ``residual_norm``."""
        return True

    def guarantee_on(self, state: Regression) -> str | None:
        """That of the noise bounds; None where observations were imagined, or the assumptions are refuted."""
        bounds = self._described(state)
        return None if state.imagined or bounds.refuted else bounds.guarantee

    def finite_on(self, state: Regression) -> bool:
        return math.isfinite(self._described(state).upper)

    def _bounds(self, state: Regression) -> NoiseBounds:
        """The noise bounds, to be used."""
        bounds = self._described(state)
        if not state.imagined:
            bounds.refuse_if_refuted()
        return bounds

    def _described(self, state: Regression) -> NoiseBounds:
        """The noise bounds, contradictory or not."""
        bounds = noise_bounds(state)
        if bounds.variant not in self.variants:
            wanted = " or ".join(f'"{variant}"' for variant in self.variants)
            raise InvalidInput(
                f"{type(self).__name__} needs NoiseBounds of variant {wanted}, the state's are {bounds.variant!r}: "
                "other variants rest on another event."
            )
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

    variants = ("paper", "tight", "tight+grid")
    any_ridge = True

    def width(self, state: Regression) -> Tensor:  # noqa: D102
        bounds = self._bounds(state)
        error, D = float(state.residual_norm()), bounds.deviation(state)
        bias = bounds.norm_bound * (1 + math.sqrt(error / state.ridge))
        return torch.tensor(bias + bounds.upper * math.sqrt(D / state.ridge), dtype=torch.float64)


class AdaptiveMixture(_Adaptive):
    """AMM, DMM and CMM with unknown noise: the mixture at the upper bound of the noise level.

    For a fixed ridge a the event of the mixture, ``|xi|^2 <= quad(a) + sigma^2 (ln det(I + K/a) + 2 ln(1/delta))``,
    has a right side that grows with sigma: it holds for every noise level above the true one, at every ridge of the
    grid at once. So the mixture with ``noise_std = upper`` and ``scale = upper^2 / a`` is valid whatever was estimated,
    on the very event that bounds the noise level (docs/papers.md).

    Args:
        kind: "amm", "dmm" or "cmm", as for ``MartingaleMixture``.

    Raises:
        InvalidInput: An unknown kind.
    """

    variants = ("mixture",)

    def __init__(self, kind: str = "cmm") -> None:
        MartingaleMixture(1.0, 1.0, 0.1, kind)  # checks it
        self.kind = kind

    def in_force(self, state: Regression) -> MartingaleMixture:
        """The mixture at the noise level and the ridge of now."""
        b = self._bounds(state)
        level = max(b.upper, 1e-150)  # targets without any noise; a larger level is valid
        return MartingaleMixture(level, b.norm_bound, b.mixture_delta, self.kind, level**2 / state.ridge)

    def interval(self, state: Regression, X: Tensor) -> tuple[Tensor, Tensor]:
        """That of the mixture in force; infinite as long as the noise has no upper bound.

        Raises:
            RefutedAssumptions: The bounds of the noise level contradict each other, or no function of that norm fits.
        """
        if not self.finite_on(state):
            unknown = torch.full(X.shape[:-1], math.inf, dtype=X.dtype, device=X.device)
            return -unknown, unknown
        with self._asked(state) as mixture:
            return mixture.interval(state, X)

    def upper(self, state: Regression, X: Tensor) -> Tensor:  # noqa: D102
        if not self.finite_on(state):
            return self.interval(state, X)[1]
        with self._asked(state) as mixture:
            return mixture.upper(state, X)

    def lower(self, state: Regression, X: Tensor) -> Tensor:  # noqa: D102
        if not self.finite_on(state):
            return self.interval(state, X)[0]
        with self._asked(state) as mixture:
            return mixture.lower(state, X)

    def quick_upper(self, state: Regression, X: Tensor) -> Tensor:  # noqa: D102
        if not self.finite_on(state):
            return super().quick_upper(state, X)
        with self._asked(state) as mixture:
            return mixture.quick_upper(state, X)

    def leader(self, state: Regression, X: Tensor) -> tuple[int, float]:  # noqa: D102
        if not self.finite_on(state):
            return super().leader(state, X)
        with self._asked(state) as mixture:
            return mixture.leader(state, X)

    def safest(self, state: Regression, X: Tensor) -> tuple[int, float]:  # noqa: D102
        if not self.finite_on(state):
            return super().safest(state, X)
        with self._asked(state) as mixture:
            return mixture.safest(state, X)

    @contextmanager
    def _asked(self, state: Regression) -> Iterator[MartingaleMixture]:
        """The mixture in force; what refutes it is said in terms of what was given."""
        mixture = self.in_force(state)
        try:
            yield mixture
        except RefutedAssumptions as error:
            bounds = self._bounds(state)
            raise RefutedAssumptions(
                "The data refute the assumptions: no function of that norm fits them with noise of the level that they "
                "allow. Raise norm_bound, or the upper bound of the noise level if one was given, or change the "
                f"kernel; if they are right, this happens with probability at most delta = {bounds.delta:g}",
                **{**error.figures, "noise_at_most": bounds.upper},
            ) from error
