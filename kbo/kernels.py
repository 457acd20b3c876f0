"""Kernels as plain dense functions, and kernels on arbitrary objects through their Gram matrix.

GPyTorch kernels are lazy, batched and trainable; a streaming posterior needs single rows, a thousand times a second,
with constant hyper-parameters. ``freeze`` turns a kernel into such a function. Distances are taken from differences,
not from ``|x|^2 - 2xz + |z|^2``, so the distance of a repeated point is exactly zero and a row never depends on the
other rows of its batch.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import gpytorch
import torch
from gpytorch.kernels import (
    AdditiveKernel,
    Kernel,
    MaternKernel,
    ProductKernel,
    RBFKernel,
    ScaleKernel,
)
from linear_operator import to_dense
from torch import Tensor

from kbo._base import checks
from kbo.errors import InvalidInput

_BLOCK = (
    2**16
)  # entries that are evaluated at once on the CPU: in its cache; threads share no smaller blocks
_CHECKED = 2000  # rows of a Gram matrix that are checked to be positive semi-definite


class PrecomputedKernel(Kernel):
    """The kernel of any finite set of objects, given by its Gram matrix; points are indices.

    A point is the row number of the object, as a float tensor of shape [... 1]; ``points`` has them all.

    Args:
        gram: Symmetric positive semi-definite matrix [N N].

    Raises:
        InvalidInput: Anything else. Every pair of objects is checked, and up to 2000 objects together.
    """

    def __init__(self, gram: Tensor) -> None:
        super().__init__()
        self.gram: Tensor
        if len(checks.rows("gram", gram)) != gram.shape[1]:
            raise InvalidInput(
                f"gram must be a symmetric matrix [N N], got shape {tuple(gram.shape)}."
            )
        if not torch.allclose(gram, gram.T):
            most = float((gram - gram.T).abs().max())
            raise InvalidInput(
                f"gram must be a symmetric matrix; it differs from its transpose by up to {most:.3g}."
            )
        step = max(1, -(-len(gram) // _CHECKED))
        if not _pairs_possible(gram) or not _semi_definite(gram[::step, ::step]):
            raise InvalidInput(
                "gram must be positive semi-definite, as the Gram matrix of every kernel is. A matrix of similarities "
                "need not be: set its negative eigenvalues to zero, or add a multiple of the identity."
            )
        self.register_buffer("gram", gram, persistent=False)

    def __repr__(self) -> str:
        return f"PrecomputedKernel({len(self.gram)} objects)"

    @property
    def points(self) -> Tensor:
        """The row numbers [N 1] as points."""
        return torch.arange(
            len(self.gram), dtype=self.gram.dtype, device=self.gram.device
        ).unsqueeze(-1)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Gram entries at the indices x1 [... n 1] and x2 [... m 1]."""
        i, j = _indices(x1, self.gram), _indices(x2, self.gram)
        return self.gram[i, j] if diag else self.gram[i.unsqueeze(-1), j.unsqueeze(-2)]


def _pairs_possible(gram: Tensor) -> bool:
    """Whether ``k(x, z)^2 <= k(x, x) k(z, z)`` up to rounding, and no entry of the diagonal is negative."""
    most = gram.diagonal() * (1 + 1e-5)
    rows = zip(gram.split(256), most.split(256), strict=True)  # no second matrix of that size
    return not bool((most < 0).any()) and all(
        bool((a.square() <= b.unsqueeze(-1) * most).all()) for a, b in rows
    )


def _semi_definite(gram: Tensor) -> bool:
    """Whether no eigenvalue is below zero by more than rounding."""
    slack = (
        100
        * torch.finfo(gram.dtype).eps
        * len(gram)
        * gram.diagonal().abs().sum()
        / max(1, len(gram))
    )
    identity = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    shifted = gram + identity * slack.clamp_min(torch.finfo(gram.dtype).tiny)
    return not bool(torch.linalg.cholesky_ex(shifted).info)


def _indices(X: Tensor, gram: Tensor) -> Tensor:
    index = X[..., 0].long() if X.shape[-1] else X
    if X.shape[-1] != 1 or bool(((index != X[..., 0]) | (index < 0) | (index >= len(gram))).any()):
        raise InvalidInput(
            f"Points of a PrecomputedKernel are row numbers 0 .. {len(gram) - 1} in a tensor of shape [... 1], see its "
            "points; over them search with optimize_acqf_discrete, not with optimize_acqf."
        )
    return index


class DenseKernel(ABC):
    """A kernel with constant hyper-parameters, evaluated densely.

    Attributes:
        constant: ``k(x, x)`` if it is the same everywhere, else None.
        monotone: Whether ``k(x, z)`` is a function of ``|x - z|``, column by column, that falls in each.
    """

    constant: float | None = None
    monotone: bool = False

    @abstractmethod
    def __call__(self, X: Tensor, Z: Tensor) -> Tensor:
        """``k(X, Z)`` [... n m] for X [... n d] and Z [... m d]."""

    @abstractmethod
    def diagonal(self, X: Tensor) -> Tensor:
        """``k(x, x)`` [... n] for X [... n d]."""

    def error(self, X: Tensor) -> float:
        """Bound of the error of ``k(x, z)`` among points X [n d], relative to ``k(x, x)``, by rounding of coordinates.

        Beyond the few units in the last place that every value has. It grows with their distance from zero.
        """
        return 0.0

    def radial(self, X: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]] | None:
        """Coordinates c(X) [n c] and a decreasing g with ``k(x, z) = g(|c(x) - c(z)|)``; None if there are none."""
        return None

    def with_gradient(self, X: Tensor, Z: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Return ``k(X, Z)`` for X [n d] and Z [m d], and ``sum(weights * k(X, Z))`` differentiated in Z.

        The second is a function of the weights [n m], with results [m d]; neither keeps a graph of Z.
        """
        with torch.enable_grad():
            Z = Z.detach().requires_grad_()
            value = self(X, Z)

        def gradient(weights: Tensor) -> Tensor:
            if not value.requires_grad:
                raise InvalidInput(
                    "the kernel has no gradient in the coordinates of a point: choose among points, for example with "
                    "optimize_acqf_discrete."
                )
            return torch.autograd.grad(value, Z, weights, retain_graph=True)[0]

        return value.detach(), gradient


def freeze(kernel: Kernel, like: Tensor) -> DenseKernel:
    """A dense, constant copy of a GPyTorch kernel in the dtype and on the device of ``like``.

    Raises:
        InvalidInput: The kernel is not a single unbatched GPyTorch kernel.
    """
    return _dense(copy.deepcopy(checks.kernel(kernel)).to(like).requires_grad_(False).eval())


def _dense(kernel: Any, scale: Tensor | float = 1.0) -> DenseKernel:
    """Return ``scale`` times a kernel, which may be changed."""
    kind = type(
        kernel
    )  # a subclass may change the formula, so only the classes themselves have a form of their own
    if kind is ScaleKernel:
        if kernel.active_dims is not None:  # GPyTorch makes them those of the base, if that has any
            kernel.base_kernel.active_dims = kernel.active_dims
        return _dense(kernel.base_kernel, scale * kernel.outputscale.detach())
    if kind in (RBFKernel, MaternKernel):
        return _Stationary(kernel, _gaussian if kind is RBFKernel else _MATERN[kernel.nu], scale)
    if kind in (AdditiveKernel, ProductKernel) and kernel.active_dims is None:
        return _Combined(
            list(map(_dense, kernel.kernels)), sum if kind is AdditiveKernel else math.prod, scale
        )
    return _Generic(kernel, scale)


_MOST_COMPARED = 0.1
"""Difference between float32 and float64, relative to ``k(x, x)``, from which on it does not grow with the error."""


def measured_error(kernel: Kernel, X: Tensor) -> float:
    """Return the error of ``k(x, z)`` that is assumed if the formula is unknown, relative to ``k(x, x)``; else 0.

    It is known if all classes are GPyTorch's or kbo's: ``freeze`` takes their distances from differences. Not so with
    the frequencies of a spectral mixture, which ``DenseKernel.error`` does not know.

    Among points X [n d], float32 is compared with float64. Distances from ``|x|^2 - 2xz + |z|^2``, the worst of the
    usual ones, lose half of the digits, so the error in float64 is taken to be smaller by the root of that ratio.
    It is 1 where points are so far from zero, or values so rough, that a comparison in float32 tells nothing.
    """
    known = ("gpytorch.", "kbo.", "torch.")
    if all(
        type(part).__module__.startswith(known) and not hasattr(part, "mixture_means")
        for part in kernel.modules()
    ):
        return 0.0
    rough, fine = X.float(), X.float().double()
    # The points in another order: some formulas treat equal arguments apart.
    exact, prior = (
        freeze(kernel, fine)(fine, fine.flip(0)),
        freeze(kernel, fine).diagonal(fine).max(),
    )
    lost = (freeze(kernel, rough)(rough, rough.flip(0)).double() - exact).abs().max() / prior
    moved = (freeze(kernel, X.double())(X.double(), X.double().flip(0)) - exact).abs().max() / prior
    if not max(float(lost), float(moved)) <= _MOST_COMPARED:
        return 1.0
    return float(lost) * (torch.finfo(torch.float64).eps / torch.finfo(torch.float32).eps) ** 0.5


def _distances(X: Tensor, Z: Tensor) -> Tensor:
    return torch.cdist(X, Z, compute_mode="donot_use_mm_for_euclid_dist")


def _distance_error(X: Tensor) -> float:
    """``2 u max |x|``, the error of a distance, and of a kernel: no shape is steeper than ``k(x, x)`` per unit."""
    return (
        torch.finfo(torch.float64).eps * float(torch.linalg.vector_norm(X, dim=-1).max())
        if X.numel()
        else 0.0
    )


def _covar_dist(
    x1: Tensor,
    x2: Tensor,
    diag: bool = False,
    last_dim_is_batch: bool = False,
    square_dist: bool = False,
    **_: Any,
) -> Tensor:
    """Distances as ``Kernel.covar_dist`` of GPyTorch returns them, but from differences."""
    if last_dim_is_batch:
        x1, x2 = x1.mT.unsqueeze(-1), x2.mT.unsqueeze(-1)
    r = torch.linalg.vector_norm(x1 - x2, dim=-1) if diag else _distances(x1, x2)
    return r * r if square_dist else r


class _Generic(DenseKernel):
    """A multiple of any other kernel, evaluated by GPyTorch."""

    def __init__(self, kernel: Kernel, scale: Tensor | float) -> None:
        self.kernel, self.scale = kernel, scale
        self.steepness: float = 0.0  # relative to ``k(x, x)``
        for part in kernel.modules():
            if getattr(type(part), "covar_dist", None) is Kernel.covar_dist:
                vars(part)["covar_dist"] = _covar_dist
            for name in ("lengthscale", "period_length"):
                if isinstance(length := getattr(part, name, None), Tensor):
                    self.steepness += 2 * math.pi / float(length.min())  # a period is that steep

    def __call__(self, X: Tensor, Z: Tensor) -> Tensor:
        with gpytorch.settings.lazily_evaluate_kernels(False):
            return self._checked(self.kernel(X, Z), (X.shape[-2], Z.shape[-2])) * self.scale

    def diagonal(self, X: Tensor) -> Tensor:
        return self._checked(self.kernel(X, diag=True), X.shape[-2:-1]) * self.scale

    def _checked(self, value: Any, shape: tuple[int, ...]) -> Tensor:
        """Return a kernel matrix as a tensor, if its last axes have these sizes."""
        found = to_dense(value)
        if found.shape[-len(shape) :] != shape:
            raise InvalidInput(
                f"forward of the kernel {type(self.kernel).__name__} must return a tensor of shape [... "
                f"{' '.join(map(str, shape))}] here, got shape {list(found.shape)}."
            )
        return found

    def error(self, X: Tensor) -> float:
        return self.steepness * _distance_error(X)


class _Combined(DenseKernel):
    """A multiple of the sum or product of kernels."""

    def __init__(
        self, parts: list[DenseKernel], combine: Callable[[list[Any]], Any], scale: Tensor | float
    ) -> None:
        self.parts, self.combine, self.scale = parts, combine, scale
        constants = [part.constant for part in parts]
        self.constant = None if None in constants else float(scale * combine(constants))
        self.monotone = all(part.monotone for part in parts)  # none is negative

    def __call__(self, X: Tensor, Z: Tensor) -> Tensor:
        return self.scale * self.combine([part(X, Z) for part in self.parts])

    def diagonal(self, X: Tensor) -> Tensor:
        return self.scale * self.combine([part.diagonal(X) for part in self.parts])

    def error(self, X: Tensor) -> float:
        return sum(part.error(X) for part in self.parts)


class _Stationary(DenseKernel):
    """``scale * shape(|x - z| / lengthscale)``, of the active columns; the shape decreases."""

    constant: float
    monotone = True

    def __init__(
        self, kernel: Any, shape: Callable[[Tensor], Tensor], scale: Tensor | float
    ) -> None:
        self.inverse_lengthscale: Tensor = 1 / kernel.lengthscale.detach().squeeze(0)  # [d] or [1]
        self.columns: Tensor | None = kernel.active_dims
        self.shape, self.scale = shape, scale
        self.constant = float(self._value(self.inverse_lengthscale.new_zeros(())))

    def __call__(self, X: Tensor, Z: Tensor) -> Tensor:
        X, Z = self._coordinates(X), self._coordinates(Z)
        size = max(1, _BLOCK // max(1, Z.shape[-2]))
        matrices = X.ndim == Z.ndim == 2 and X.device.type == "cpu"
        if not matrices or len(X) <= size or X.requires_grad or Z.requires_grad:
            return self._value(_distances(X, Z))
        # In blocks that stay in the cache: up to three times as fast as passes over large temporaries.
        K = X.new_empty(len(X), len(Z))
        for rows, block in zip(X.split(size), K.split(size), strict=True):
            block.copy_(self._value(_distances(rows, Z)))
        return K

    def diagonal(self, X: Tensor) -> Tensor:
        self._check(X)
        return X.new_full(X.shape[:-1], self.constant)

    def error(self, X: Tensor) -> float:
        return _distance_error(self._coordinates(X))

    def radial(self, X: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]] | None:
        return self._coordinates(X), self._value

    def _value(self, r: Tensor) -> Tensor:
        return self.shape(r) * self.scale

    def _coordinates(self, X: Tensor) -> Tensor:
        return self._check(X) * self.inverse_lengthscale

    def _check(self, X: Tensor) -> Tensor:
        """Return the active columns of X, checked."""
        if self.columns is not None:
            X = X[..., self.columns]
        if (lengthscales := self.inverse_lengthscale.shape[-1]) not in (1, X.shape[-1]):
            raise InvalidInput(
                f"The kernel has {lengthscales} lengthscales for {X.shape[-1]} columns."
            )
        return X


def _gaussian(r: Tensor) -> Tensor:
    return (r * r).mul_(-0.5).exp_()


def _matern12(r: Tensor) -> Tensor:
    return r.neg().exp_()


def _matern32(r: Tensor) -> Tensor:
    s = r * math.sqrt(3)
    return (s + 1).mul_(s.neg().exp_())


def _matern52(r: Tensor) -> Tensor:
    s = r * math.sqrt(5)
    return torch.addcmul(s + 1, s, s, value=1 / 3).mul_(s.neg().exp_())


_MATERN = {0.5: _matern12, 1.5: _matern32, 2.5: _matern52}
