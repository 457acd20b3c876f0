"""Numerical rules that all posteriors share: ridges, chunks, rounding, joint draws."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kbo._base import checks
from kbo.errors import IllConditionedWarning, InvalidInput


@torch.no_grad()
def joint_draws(covariance: Tensor, count: int, generator: torch.Generator | None = None) -> Tensor:
    """Return draws [count N] with mean zero and covariance [N N]; negative eigenvalues (rounding) count as zero."""
    values, vectors = torch.linalg.eigh(covariance)
    normal = torch.randn(
        count, len(covariance), generator=generator, dtype=covariance.dtype, device="cpu"
    ).to(covariance.device)
    return (normal * values.clamp_min(0).sqrt()) @ vectors.mT


def as_ridges(ridge: Any, name: str = "ridge") -> list[float]:
    """Return one or several ridges as floats.

    Raises:
        InvalidInput: There is none, or one is not a finite number above zero.
    """
    try:
        found = ridge.tolist() if isinstance(ridge, Tensor) else ridge
        values = list(found) if hasattr(found, "__iter__") else [found]
    except Exception:  # a tensor without data
        values = [ridge]
    if not values:
        raise InvalidInput(f"{name} must be a number or at least one number, got none.")
    return [checks.positive(name, value) for value in values]


def block_of(on_cpu: int, device: torch.device) -> int:
    """Return how many numbers are computed at once: ``on_cpu`` stay in its cache, elsewhere half a gigabyte."""
    return on_cpu if device.type == "cpu" else 2**26


def in_chunks(
    answer: Callable[[Tensor], tuple[Tensor, Tensor]], X: Tensor, size: int
) -> tuple[Tensor, Tensor]:
    """Return mean and variance [N] of X [N d], computed ``size`` points at a time: temporaries stay small."""
    if X.shape[0] <= size:
        return answer(X)
    if X.requires_grad:
        mean, variance = zip(*(answer(part) for part in X.split(size)), strict=True)
        return torch.cat(mean), torch.cat(variance)
    # Results in one piece: kept apart between freed temporaries, they would fragment the heap without bound.
    mean, variance = X.new_empty(len(X)), X.new_empty(len(X))
    for start in range(0, len(X), size):
        here = slice(start, start + size)
        mean[here], variance[here] = answer(X[here])
    return mean, variance


def differentiable_once(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Return the ``backward`` of an autograd function that refuses second derivatives.

    That of torch refuses them only where the gradient that comes in depends on the inputs; elsewhere they would be
    zero.
    """

    @functools.wraps(backward)
    def once(ctx: Any, *gradients: Tensor) -> Any:
        if torch.is_grad_enabled():
            raise InvalidInput(
                "exact posteriors have no second derivatives in the points: differentiate once, without "
                "create_graph=True."
            )
        return backward(ctx, *gradients)

    return once


def clamped(
    variance: Tensor, prior: Tensor, ridge: float | Tensor, trace: float | Tensor
) -> Tensor:
    """Return ``variance`` clamped from below at the least value that it can have; only rounding is ever below it.

    K has no eigenvalue above its trace, so ``(K + ridge I)^-1`` leaves at least ``ridge / (ridge + Tr K)`` of the prior
    variance (Durand et al. 2018, Sec. 2).

    Args:
        variance: Computed variances [...].
        prior: ``k(x, x)``, [...].
        ridge: The ridge.
        trace: ``Tr K``, [].
    """
    return variance.clamp_min(ridge / (ridge + trace) * prior.detach())


def warn_below_precision(ridge: float, least: float) -> None:
    """Warn about a ridge below ``least``, the least one at which rounding does not show in the results."""
    if ridge < least:
        warnings.warn(
            f"ridge = {ridge:.3g} is below {least:.3g}, the precision of the kernel in this dtype: bounds "
            "may be off by rounding. Use a larger ridge.",
            IllConditionedWarning,
            stacklevel=4,
        )
