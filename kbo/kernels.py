"""Kernels as plain dense functions, and kernels on arbitrary objects by their Gram matrix.

GPyTorch kernels are lazy, batched and trainable. A streaming posterior needs single rows, a
thousand times a second, with constant hyper-parameters; ``freeze`` turns a kernel into such a
function. Distances are computed from differences, not from ``|x|^2 - 2xz + |z|^2``. So the distance
of equal points is exactly zero, and a row never depends on the other rows of its batch.
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

_BLOCK = 2**16
"""Number of kernel values that are computed at once on the CPU: as many as fit into its cache.

PyTorch does not divide smaller blocks among threads.
"""

_MOST_CHECKED = 2000
"""Largest number of rows of a Gram matrix that are checked to be positive semi-definite."""

_GRAM_SLACK = 100
"""Units of rounding, relative to the trace, by which eigenvalues of a Gram matrix may be below zero."""

_HALF_OF_THE_DIGITS = 1e-8
"""Error of distances from ``|x|^2 - 2xz + |z|^2`` in float64."""

_MOST_DIFFERENT = 0.1
"""Largest difference of float32 and float64, relative to ``k(x, x)``, that measures the error."""


# Kernels of finite sets of objects


class PrecomputedKernel(Kernel):
    """The kernel of any finite set of objects, given by its Gram matrix; points are indices.

    A point is the row number of an object, as a float tensor of shape [... 1]; ``points`` has all
    of them.

    Args:
        gram: Symmetric positive semi-definite matrix [N N].

    Raises:
        InvalidInput: The matrix is not symmetric and positive semi-definite. All pairs of objects
            are checked, and up to 2000 objects together.
    """

    def __init__(self, gram: Tensor) -> None:
        super().__init__()
        self.gram: Tensor
        if len(checks.rows("gram", gram)) != gram.shape[1]:
            raise InvalidInput(
                f"gram must be a symmetric matrix [N N], got shape {tuple(gram.shape)}."
            )
        if not torch.allclose(gram, gram.T):
            difference = float((gram - gram.T).abs().max())
            raise InvalidInput(
                "gram must be a symmetric matrix; it differs from its transpose by up to "
                f"{difference:.3g}."
            )
        step = max(1, -(-len(gram) // _MOST_CHECKED))
        if not _pairs_are_possible(gram) or not _is_semi_definite(gram[::step, ::step]):
            raise InvalidInput(
                "gram must be positive semi-definite, as the Gram matrix of every kernel is. A "
                "matrix of similarities need not be: set its negative eigenvalues to zero, or add a"
                " multiple of the identity."
            )
        self.register_buffer("gram", gram, persistent=False)

    def __repr__(self) -> str:
        return f"PrecomputedKernel({len(self.gram)} objects)"

    @property
    def points(self) -> Tensor:
        """The row numbers [N 1] as points."""
        numbers = torch.arange(len(self.gram), dtype=self.gram.dtype, device=self.gram.device)
        return numbers.unsqueeze(-1)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return the entries [... n m] of the Gram matrix at the row numbers x1 [... n 1], x2 [... m 1]."""
        rows = _row_numbers(x1, self.gram)
        columns = _row_numbers(x2, self.gram)
        if diag:
            return self.gram[rows, columns]
        return self.gram[rows.unsqueeze(-1), columns.unsqueeze(-2)]


def _pairs_are_possible(gram: Tensor) -> bool:
    """Return whether ``k(x, z)^2 <= k(x, x) k(z, z)`` and ``k(x, x) >= 0``, up to rounding."""
    diagonal = gram.diagonal() * (1 + 1e-5)
    if bool((diagonal < 0).any()):
        return False
    # By blocks of rows, so that no second matrix of this size is allocated.
    for rows, variances in zip(gram.split(256), diagonal.split(256), strict=True):
        if bool((rows.square() > variances.unsqueeze(-1) * diagonal).any()):
            return False
    return True


def _is_semi_definite(gram: Tensor) -> bool:
    """Return whether no eigenvalue is below zero by more than rounding."""
    finfo = torch.finfo(gram.dtype)
    slack = _GRAM_SLACK * finfo.eps * gram.diagonal().abs().sum()
    identity = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    factor = torch.linalg.cholesky_ex(gram + identity * slack.clamp_min(finfo.tiny))
    return not bool(factor.info)


def _row_numbers(X: Tensor, gram: Tensor) -> Tensor:
    """Return the row numbers [...] of points X [... 1].

    Raises:
        InvalidInput: X is no row numbers of the matrix.
    """
    is_valid = X.shape[-1] == 1
    numbers = X
    if is_valid:
        numbers = X[..., 0].long()
        is_whole = numbers == X[..., 0]
        is_valid = bool((is_whole & (numbers >= 0) & (numbers < len(gram))).all())
    if not is_valid:
        raise InvalidInput(
            f"Points of a PrecomputedKernel are row numbers 0 .. {len(gram) - 1} in a tensor of "
            "shape [... 1], see its points; over them search with optimize_acqf_discrete, not with "
            "optimize_acqf."
        )
    return numbers


# Frozen kernels


def freeze(kernel: Kernel, like: Tensor) -> DenseKernel:
    """Return a dense, constant copy of a GPyTorch kernel, in the dtype and on the device of ``like``.

    Raises:
        InvalidInput: The kernel is not a single unbatched GPyTorch kernel, or reads a column that
            ``like`` [... d] does not have.
    """
    _check_columns(checks.kernel(kernel), like.shape[-1])
    return _dense(copy.deepcopy(kernel).to(like).requires_grad_(False).eval())


def _check_columns(kernel: Kernel, columns: int) -> None:
    """Raise InvalidInput if a part of a kernel reads a column that points do not have.

    Args:
        kernel: The kernel.
        columns: The number of columns of the points; 0 if it is unknown.
    """
    for part in _kernels_in(kernel):
        active = part.active_dims
        if columns and active is not None and int(active.max()) >= columns:
            raise InvalidInput(
                f"active_dims of {type(part).__name__} must be columns 0 .. {columns - 1} of the "
                f"points, which have {columns}, got {active.tolist()}."
            )


def _kernels_in(kernel: Kernel) -> list[Kernel]:
    """Return a kernel and all kernels inside it."""
    return [part for part in kernel.modules() if isinstance(part, Kernel)]


class DenseKernel(ABC):
    """A kernel with constant hyper-parameters, evaluated densely.

    Attributes:
        constant: ``k(x, x)`` if it is the same everywhere, else None.
        monotone: Whether ``k(x, z)`` is a decreasing function of ``|x_i - z_i|`` in every column i.
    """

    constant: float | None = None
    monotone: bool = False

    @abstractmethod
    def __call__(self, X: Tensor, Z: Tensor) -> Tensor:
        """Return ``k(X, Z)`` [... n m] for X [... n d] and Z [... m d]."""

    @abstractmethod
    def diagonal(self, X: Tensor) -> Tensor:
        """Return ``k(x, x)`` [... n] for X [... n d]."""

    def error(self, X: Tensor) -> float:
        """Return a bound of the error of ``k(x, z)`` by rounding of the coordinates of X [n d].

        It is relative to ``k(x, x)`` and grows with the distance of the points from zero. It does
        not include the error of every computed value, a few units in the last place.
        """
        return 0.0

    def radial(self, X: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]] | None:
        """Return coordinates c(X) [n c] and a decreasing g with ``k(x, z) = g(|c(x) - c(z)|)``.

        None if the kernel has no such form.
        """
        return None


def _dense(kernel: Any, scale: Tensor | float = 1.0) -> DenseKernel:
    """Return ``scale`` times a kernel as a dense function; the given kernel may be changed."""
    # A subclass may have another formula, so the exact class decides.
    kind = type(kernel)
    if kind is ScaleKernel:
        if kernel.active_dims is not None:  # equal to those of the base kernel, if it has any
            kernel.base_kernel.active_dims = kernel.active_dims
        return _dense(kernel.base_kernel, scale * kernel.outputscale.detach())
    if kind is RBFKernel:
        return _Stationary(kernel, _gaussian, scale)
    if kind is MaternKernel:
        return _Stationary(kernel, _MATERN[kernel.nu], scale)
    if kind in (AdditiveKernel, ProductKernel) and kernel.active_dims is None:
        combine = sum if kind is AdditiveKernel else math.prod
        return _Combined([_dense(part) for part in kernel.kernels], combine, scale)
    return _Generic(kernel, scale)


class _Stationary(DenseKernel):
    """The kernel ``scale * shape(|x - z| / lengthscale)`` of the active columns; shape decreases."""

    constant: float
    monotone = True

    def __init__(
        self, kernel: Any, shape: Callable[[Tensor], Tensor], scale: Tensor | float
    ) -> None:
        self.inverse_lengthscale: Tensor = 1 / kernel.lengthscale.detach().squeeze(0)  # [d] or [1]
        self.columns: Tensor | None = kernel.active_dims
        self.shape = shape
        self.scale = scale
        self.constant = float(self._value(self.inverse_lengthscale.new_zeros(())))

    def __call__(self, X: Tensor, Z: Tensor) -> Tensor:
        X = self._coordinates(X)
        Z = self._coordinates(Z)
        rows_at_once = max(1, _BLOCK // max(1, Z.shape[-2]))
        are_plain = X.ndim == Z.ndim == 2 and not X.requires_grad and not Z.requires_grad
        if not are_plain or len(X) <= rows_at_once or X.device.type != "cpu":
            return self._value(_distances(X, Z))
        # Blocks that stay in the cache are up to three times as fast as large temporaries.
        K = X.new_empty(len(X), len(Z))
        for rows, block in zip(X.split(rows_at_once), K.split(rows_at_once), strict=True):
            block.copy_(self._value(_distances(rows, Z)))
        return K

    def diagonal(self, X: Tensor) -> Tensor:
        self._active_columns(X)
        return X.new_full(X.shape[:-1], self.constant)

    def error(self, X: Tensor) -> float:
        return _distance_error(self._coordinates(X))

    def radial(self, X: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]] | None:
        return self._coordinates(X), self._value

    def _value(self, r: Tensor) -> Tensor:
        """Return the kernel at distances r, in units of the lengthscale."""
        return self.shape(r) * self.scale

    def _coordinates(self, X: Tensor) -> Tensor:
        """Return the active columns of X, in units of the lengthscales."""
        return self._active_columns(X) * self.inverse_lengthscale

    def _active_columns(self, X: Tensor) -> Tensor:
        if self.columns is not None:
            X = X[..., self.columns]
        n_lengthscales = self.inverse_lengthscale.shape[-1]
        if n_lengthscales not in (1, X.shape[-1]):
            raise InvalidInput(
                f"The kernel has {n_lengthscales} lengthscales for {X.shape[-1]} columns."
            )
        return X


# Shapes: decreasing functions of the distance r in units of the lengthscale, with value 1 at 0


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


class _Combined(DenseKernel):
    """A multiple of the sum or product of kernels.

    Args:
        kernels: The kernels.
        combine: ``sum`` or ``math.prod``.
        scale: The factor.
    """

    def __init__(
        self, kernels: list[DenseKernel], combine: Callable[[list[Any]], Any], scale: Tensor | float
    ) -> None:
        self.kernels = kernels
        self.combine = combine
        self.scale = scale
        constants = [k.constant for k in kernels]
        if None not in constants:
            self.constant = float(scale * combine(constants))
        self.monotone = all(k.monotone for k in kernels)  # also for products: none is negative

    def __call__(self, X: Tensor, Z: Tensor) -> Tensor:
        return self.scale * self.combine([k(X, Z) for k in self.kernels])

    def diagonal(self, X: Tensor) -> Tensor:
        return self.scale * self.combine([k.diagonal(X) for k in self.kernels])

    def error(self, X: Tensor) -> float:
        return sum(k.error(X) for k in self.kernels)


class _Generic(DenseKernel):
    """A multiple of any other kernel, evaluated by GPyTorch."""

    def __init__(self, kernel: Kernel, scale: Tensor | float) -> None:
        self.kernel = kernel
        self.scale = scale
        self.steepness: float = 0.0  # relative to ``k(x, x)``, per unit of a coordinate
        for part in _kernels_in(kernel):
            if type(part).covar_dist is Kernel.covar_dist:
                vars(part)["covar_dist"] = _covar_dist
        for module in kernel.modules():
            for name in ("lengthscale", "period_length"):
                length = getattr(module, name, None)
                if isinstance(length, Tensor):
                    self.steepness += 2 * math.pi / float(length.min())  # steepness of a period

    def __call__(self, X: Tensor, Z: Tensor) -> Tensor:
        with gpytorch.settings.lazily_evaluate_kernels(False):
            K = self.kernel(X, Z)
        return self._checked(K, (X.shape[-2], Z.shape[-2])) * self.scale

    def diagonal(self, X: Tensor) -> Tensor:
        return self._checked(self.kernel(X, diag=True), X.shape[-2:-1]) * self.scale

    def _checked(self, value: Any, shape: tuple[int, ...]) -> Tensor:
        """Return a kernel matrix or diagonal as a tensor, after a check of its last axes."""
        dense = to_dense(value)
        if dense.shape[-len(shape) :] != shape:
            raise InvalidInput(
                f"forward of the kernel {type(self.kernel).__name__} must return a tensor of shape "
                f"[... {' '.join(map(str, shape))}] here, got shape {list(dense.shape)}."
            )
        return dense

    def error(self, X: Tensor) -> float:
        return self.steepness * _distance_error(X)


def _distances(X: Tensor, Z: Tensor) -> Tensor:
    """Return ``|x - z|``, [... n m], from differences of coordinates."""
    return torch.cdist(X, Z, compute_mode="donot_use_mm_for_euclid_dist")


def _covar_dist(
    x1: Tensor,
    x2: Tensor,
    diag: bool = False,
    last_dim_is_batch: bool = False,
    square_dist: bool = False,
    **_: Any,
) -> Tensor:
    """Return the distances of GPyTorch's ``Kernel.covar_dist``, computed from differences."""
    if last_dim_is_batch:
        x1, x2 = x1.mT.unsqueeze(-1), x2.mT.unsqueeze(-1)
    r = torch.linalg.vector_norm(x1 - x2, dim=-1) if diag else _distances(x1, x2)
    return r * r if square_dist else r


# Rounding


def _distance_error(X: Tensor) -> float:
    """Return ``2 u max |x|``, a bound of the error of a distance.

    It also bounds the relative error of a kernel, since no shape is steeper than ``k(x, x)`` per
    unit of distance.
    """
    if not X.numel():
        return 0.0
    return torch.finfo(torch.float64).eps * float(torch.linalg.vector_norm(X, dim=-1).max())


def measured_error(kernel: Kernel, X: Tensor) -> float:
    """Return an estimate of the rounding error of ``k(x, z)``, relative to ``k(x, x)``.

    It is 0 if the formula of the kernel is known: if all its classes are GPyTorch's or kbo's, for
    which ``freeze`` computes distances from differences. A spectral mixture counts as unknown,
    because ``DenseKernel.error`` does not know its frequencies.

    The estimate compares float32 with float64 among points X [n d]. The least accurate of the usual
    formulas, distances from ``|x|^2 - 2xz + |z|^2``, loses half of the digits. So the error in
    float64 is estimated by the error in float32 times the square root of the ratio of the units of
    rounding. It is 1 where points are so far from zero, or values so rough, that float32 tells
    nothing.
    """
    if all(_is_known(part) for part in kernel.modules()):
        return 0.0

    def values(points: Tensor) -> Tensor:
        # The points are reversed, because some formulas treat equal arguments as a special case.
        return freeze(kernel, points)(points, points.flip(0)).double()

    single = X.float()
    rounded = single.double()
    exact = values(rounded)
    prior = freeze(kernel, rounded).diagonal(rounded).max()
    error_in_float32 = float((values(single) - exact).abs().max() / prior)
    change_by_rounded_points = float((values(X.double()) - exact).abs().max() / prior)
    if not max(error_in_float32, change_by_rounded_points) <= _MOST_DIFFERENT:
        return 1.0
    return (
        error_in_float32 * (torch.finfo(torch.float64).eps / torch.finfo(torch.float32).eps) ** 0.5
    )


def least_error(kernel: Kernel | None, dtype: torch.dtype) -> float:
    """Return the least error of ``k(x, z)`` to assume, relative to ``k(x, x)``.

    It is zero if kbo knows the formula. Other formulas and Gram matrices are assumed to have half
    of the digits of float64, and at most the accuracy that ``PrecomputedKernel`` requires in this
    dtype.
    """
    if kernel is not None:
        parts = list(kernel.modules())
        has_gram = any(isinstance(part, PrecomputedKernel) for part in parts)
        if all(map(_is_known, parts)) and not has_gram:
            return 0.0
    return max(_HALF_OF_THE_DIGITS, _GRAM_SLACK * torch.finfo(dtype).eps)


def is_positive_definite(kernel: Any) -> bool:
    """Return whether a theorem says that no matrix of the kernel has a negative eigenvalue.

    It does for RBF and Matern kernels, their sums and products, and positive multiples (Rasmussen &
    Williams 2006, Sec. 4.2). It does not for subclasses, which may have another formula.
    """
    kind = type(kernel)
    if kind is ScaleKernel:
        return bool(kernel.outputscale > 0) and is_positive_definite(kernel.base_kernel)
    if kind in (AdditiveKernel, ProductKernel):
        return all(is_positive_definite(term) for term in kernel.kernels)
    return kind in (RBFKernel, MaternKernel)


def _is_known(part: torch.nn.Module) -> bool:
    """Return whether kbo knows the formula of a module of a kernel, and its rounding errors."""
    packages = ("gpytorch.", "kbo.", "torch.")
    return type(part).__module__.startswith(packages) and not hasattr(part, "mixture_means")
