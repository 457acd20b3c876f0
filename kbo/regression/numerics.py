"""Numerical rules of all posteriors: sizes of blocks, kernel columns, and limits of rounding."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
from torch import Tensor

from kbo._base import checks
from kbo.errors import IllConditionedWarning, InvalidInput
from kbo.kernels import DenseKernel

T = TypeVar("T")


def as_ridges(ridges: Any) -> list[float]:
    """Return one or several ridges as floats, [r].

    Raises:
        InvalidInput: There is none, or one is not a finite number above zero.
    """
    values = [ridges]
    if isinstance(ridges, Iterable):  # not a kernel, which has an item for every number
        with contextlib.suppress(TypeError):  # a tensor of one number
            values = list(ridges)
    if not values:
        raise InvalidInput("ridges must be a number or at least one number, got none.")
    return [checks.positive("ridges", value) for value in values]


def keep_latest(values: dict[float, T], ridge: float, value: T, most: int) -> None:
    """Store the value of a ridge as the latest; drop the oldest if there are more than ``most``."""
    values.pop(ridge, None)
    values[ridge] = value
    if len(values) > most:
        oldest = next(iter(values))
        del values[oldest]


def block_of(on_cpu: int, device: torch.device) -> int:
    """Return the number of entries computed at once: ``on_cpu``, or half a gigabyte elsewhere."""
    return on_cpu if device.type == "cpu" else 2**26


def in_chunks(
    moments: Callable[[Tensor], tuple[Tensor, Tensor]], X: Tensor, size: int
) -> tuple[Tensor, Tensor]:
    """Return mean and variance [N] at X [N d], computed for ``size`` points at a time.

    Args:
        moments: Returns mean and variance [r] at some of the points, [r d].
        X: The points.
        size: Number of points in a chunk, which limits the size of temporaries.
    """
    if len(X) <= size:
        return moments(X)
    if X.requires_grad:
        means, variances = zip(*map(moments, X.split(size)), strict=True)
        return torch.cat(means), torch.cat(variances)
    # Allocated in one piece: results of chunks between freed temporaries would fragment the heap.
    mean = X.new_empty(len(X))
    variance = X.new_empty(len(X))
    for start in range(0, len(X), size):
        chunk = slice(start, start + size)
        mean[chunk], variance[chunk] = moments(X[chunk])
    return mean, variance


class _DifferentiableOnce(torch.autograd.Function):
    """The identity; its second derivative is refused."""

    @staticmethod
    def forward(ctx, X: Tensor) -> Tensor:
        return X.view_as(X)

    @staticmethod
    def backward(ctx, grad: Tensor):
        if torch.is_grad_enabled():
            raise InvalidInput(
                "exact posteriors have no second derivatives in the points: differentiate once, "
                "without create_graph=True."
            )
        return grad


def kernel_columns(k: DenseKernel, rows: Tensor, X: Tensor) -> Tensor:
    """Return ``k(rows, X)`` [m q] for rows [m d] and X [q d], differentiable once in X.

    Raises:
        InvalidInput: A gradient is needed, and the kernel has none.
    """
    if not (X.requires_grad and torch.is_grad_enabled()):
        return k(rows, X)
    differentiable_once: Any = _DifferentiableOnce.apply(X)
    columns = k(rows, differentiable_once)
    if not columns.requires_grad:
        raise InvalidInput(
            "the kernel has no gradient in the coordinates of a point: choose among points, for "
            "example with optimize_acqf_discrete."
        )
    return columns


def clamped(
    variance: Tensor, prior: Tensor, ridge: float | Tensor, trace: float | Tensor
) -> Tensor:
    """Return variances raised to ``ridge / (ridge + Tr K) k(x, x)``, a lower bound of exact ones.

    K has no eigenvalue above its trace, so the data leave at least this part of the prior variance
    (Durand et al. 2018, Sec. 2). A smaller computed variance [...] is a rounding error. ``prior``
    is ``k(x, x)`` [...], and ``trace`` is ``Tr K``, [].
    """
    return variance.clamp_min(ridge / (ridge + trace) * prior.detach())


def warn_below_precision(ridge: float, least: float) -> None:
    """Warn of a ridge below ``least``, below which rounding errors are visible."""
    if ridge < least:
        warnings.warn(
            f"ridge = {ridge:.3g} is below {least:.3g}, the precision of the kernel in this dtype: "
            "bounds may be off by rounding. Use a larger ridge.",
            IllConditionedWarning,
            stacklevel=4,
        )
