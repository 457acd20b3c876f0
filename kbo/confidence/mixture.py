"""Martingale-mixture confidence sequences of Flynn & Reeb (2024), arXiv:2403.12732.

Notation: sigma = noise_std, B = norm_bound, c = scale, a0 = sigma^2 / c.

On paper                                                           | in code
``R^2 = quad(a0) + sigma^2 log_det(a0) + 2 sigma^2 ln(1/delta)``   | ``squared_radius``            (eq. 8)
``F = {f : |f(x_1..n) - y| <= R, ||f|| <= B}``                     | holds f* with prob. 1 - delta  (Lemma 4.2)
``R^2(a) = (R + B sqrt|E|)^2 + a B^2 - quad(a)``                   | ``slack``                     (Cor. 4.3)
``h(a; x) = mean(x; a) + sqrt(R^2(a) / a) sqrt(variance(x; a))``   | every a bounds max f(x) over F (eq. 13)
AMM: h at one a;  DMM: min of h over a grid                        | ``kind``

All bounds hold for all n and all x at once. ``R^2(a) < 0`` says that F is empty. E is the error of an approximate
kernel matrix (the state's residual), zero for exact states: every f in F fits the approximate features to within
``R + B sqrt|E|``, so the bounds stay valid whatever the approximation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from kbo import checks
from kbo.confidence.base import Confidence
from kbo.errors import InvalidInput, RefutedAssumptions
from kbo.linalg import safe_sqrt
from kbo.regression import Hypothetical, Regression

DMM_GRID = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Multiples of a0 over which DMM minimises (Flynn & Reeb 2024, Sec. 7)."""


class MartingaleMixture(Confidence):
    """AMM, DMM and CMM bounds; on an exact state tighter than ``SelfNormalized`` at equal ridge (Thm 6.3).

    Args:
        noise_std: Sub-Gaussian constant of the noise, in units of the targets.
        norm_bound: Bound of the RKHS norm of the function.
        delta: Probability that the bounds may fail, ever and anywhere.
        kind: "amm" (one ridge), "dmm" (best of a grid of ridges).
        scale: Covariance scale c > 0 of the mixture; a0 = noise_std^2 / scale.
        ridges: The ridges, in units of the kernel; by default a0 for "amm" and 0.1, 0.3, 1, 3, 10 times a0
            for "dmm". Any fixed choice is valid.

    Raises:
        InvalidInput: A number out of its range, or an unknown kind.
    """

    def __init__(
        self,
        noise_std: float,
        norm_bound: float,
        delta: float,
        kind: str = "cmm",
        scale: float = 1.0,
        ridges: Sequence[float] | None = None,
    ) -> None:
        self.noise_std = checks.positive("noise_std", noise_std)
        self.norm_bound = checks.positive("norm_bound", norm_bound)
        self.delta = checks.probability("delta", delta)
        self.scale = checks.positive("scale", scale)
        if kind == "cmm":
            raise InvalidInput(
                'kind="cmm" (the exact minimum over all ridges) is not in this version; it arrives with the next one. '
                'Use kind="dmm", the minimum over a grid of ridges.'
            )
        if kind not in ("amm", "dmm"):
            raise InvalidInput(f'kind must be "amm" or "dmm", got {kind!r}.')
        self.kind = kind
        grid = ([1.0] if kind == "amm" else DMM_GRID) if ridges is None else None
        chosen = [self.mixture_ridge * g for g in grid] if grid else list(ridges or ())
        if not chosen or (kind == "amm" and len(chosen) != 1):
            raise InvalidInput(f'kind="{kind}" needs {"one ridge" if kind == "amm" else "at least one ridge"}.')
        self.ridges = [checks.positive("ridge", ridge) for ridge in chosen]
        self.guarantee = (
            f"holds for all rounds and points at once with probability at least 1 - {delta:g}, if the function has "
            f"norm at most {norm_bound:g} and the noise is {noise_std:g}-sub-Gaussian"
        )

    @property
    def mixture_ridge(self) -> float:
        """``a0 = noise_std^2 / scale``."""
        return self.noise_std**2 / self.scale

    def interval(self, state: Regression, X: Tensor) -> tuple[Tensor, Tensor]:
        """The largest lower and the smallest upper bound over the ridges.

        Raises:
            RefutedAssumptions: The set of functions with norm at most ``norm_bound`` that fit the data is empty.
        """
        lower, upper = self._candidates(state, X)
        lower, upper = lower.amax(0), upper.amin(0)
        crossed = lower - upper > 1e-6 * (lower.abs() + upper.abs())
        # Only for real data is crossing a contradiction: hallucinated points shrink variances without evidence.
        if bool(crossed.any()) and not isinstance(state, Hypothetical):
            self._refuted("lower and upper bound cross", n=state.n, crossing=float((lower - upper).max()))
        return lower, upper

    def upper(self, state: Regression, X: Tensor) -> Tensor:  # noqa: D102
        return self._candidates(state, X)[1].amin(0)

    def lower(self, state: Regression, X: Tensor) -> Tensor:  # noqa: D102
        return self._candidates(state, X)[0].amax(0)

    def _candidates(self, state: Regression, X: Tensor) -> tuple[Tensor, Tensor]:
        """``mean -+ sqrt(R^2(a) / a) sqrt(variance)`` for every ridge a, [r ...] each."""
        mean, variance = state.predict(X, self.ridges)
        ridges = torch.as_tensor(self.ridges, dtype=mean.dtype, device=mean.device)
        width = torch.sqrt(self.slack(state) / ridges).to(mean)
        margin = width.reshape(-1, *[1] * (mean.ndim - 1)) * safe_sqrt(variance)
        return mean - margin, mean + margin

    def slack(self, state: Regression) -> Tensor:
        """``R^2(a) = (R + B sqrt|E|)^2 + a B^2 - quad(a)`` for every ridge, [r], in squared units of the targets.

        Raises:
            RefutedAssumptions: It is negative for some ridge, so F is empty.
        """
        quad = state.quad(self.ridges)
        ridges = torch.as_tensor(self.ridges, dtype=quad.dtype, device=quad.device)
        radius = squared_radius(state, self.noise_std, self.delta, self.scale).sqrt()
        widened = radius + self.norm_bound * state.residual_norm().to(quad).sqrt()
        slack = widened**2 + ridges * self.norm_bound**2 - quad
        if bool((slack < 0).any()):
            least = norm_lower_bound(state, self.noise_std, self.delta, self.scale, self.ridges)
            self._refuted(
                "a function that fits the data must have a larger norm", n=state.n, norm_at_least=float(least)
            )
        return slack

    def _refuted(self, reason: str, **figures: float) -> None:
        raise RefutedAssumptions(
            f"The data refute the assumptions: {reason}. Raise norm_bound or noise_std, or change the kernel; if they "
            f"are right, this happens with probability at most delta = {self.delta:g}",
            norm_bound=self.norm_bound,
            noise_std=self.noise_std,
            **figures,
        )


def squared_radius(state: Regression, noise_std: float, delta: float, scale: float = 1.0) -> Tensor:
    """``R^2 = quad(a0) + sigma^2 log_det(a0) + c Tr E + 2 sigma^2 ln(1/delta)``, [].

    Flynn & Reeb (2024), eq. 8, for an exact state, whose residual E is zero. For the residual ``E = K - K~ >= 0`` of an
    approximate state it is an upper bound of the exact R^2: ``quad`` only grows, and ``ln det(I + A + E')`` is at most
    ``ln det(I + A) + Tr E'``.
    """
    a0 = noise_std**2 / scale
    noise = noise_std**2 * (state.log_det(a0) + 2 * math.log(1 / delta))
    return state.quad(a0) + noise + scale * state.residual_trace


def norm_lower_bound(
    state: Regression, noise_std: float, delta: float, scale: float = 1.0, ridges: Sequence[float] | None = None
) -> Tensor:
    """``B_low``, the largest B at which ``(R + B sqrt|E|)^2 + a B^2 = quad(a)`` for some ridge a, or 0; [].

    For an exact state (E = 0) that is ``sqrt(max over a of (quad(a) - R^2) / a, 0)``. With probability 1 - delta, for
    all n at once and on the same event as the mixture bounds, the function has at least this norm: for a smaller
    norm bound ``slack`` is negative and F is empty (Flynn & Reeb 2024, Lemma 4.2 and Cor. 4.3; R does not contain B).

    Args:
        state: The posterior.
        noise_std: Sub-Gaussian constant of the noise, in units of the targets.
        delta: Probability that the bound may fail, ever.
        scale: Covariance scale of the mixture.
        ridges: Grid over which the maximum is taken (a coarser grid gives a smaller, still valid bound);
            by default the grid of DMM.
    """
    a0 = noise_std**2 / scale
    values = [a0 * g for g in DMM_GRID] if ridges is None else ridges
    quad = state.quad(values)
    grid = torch.as_tensor(list(values), dtype=quad.dtype, device=quad.device)
    square = squared_radius(state, noise_std, delta, scale)
    excess = quad - square
    error = state.residual_norm().to(quad)
    # The B at which (R + B sqrt|E|)^2 + a B^2 = quad(a): a quadratic equation, sqrt(excess / a) if E = 0.
    root = torch.sqrt((square * error + (grid + error) * excess).clamp_min(0)) - torch.sqrt(square * error)
    return torch.where(excess > 0, root / (grid + error), 0).max()
