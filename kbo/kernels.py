"""Kernels as plain dense functions, and kernels on arbitrary objects through their Gram matrix.

GPyTorch kernels are lazy, batched and trainable; a streaming posterior needs single rows, a thousand times a second,
with constant hyper-parameters. ``freeze`` turns a kernel into such a function. Distances are taken from differences,
not from ``|x|^2 - 2xz + |z|^2``, so the distance of a repeated point is exactly zero and a row never depends on the
other rows of its batch.
"""

from __future__ import annotations

import copy
import functools
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gpytorch
import torch
from gpytorch.kernels import AdditiveKernel, Kernel, MaternKernel, ProductKernel, RBFKernel, ScaleKernel
from torch import Tensor

from kbo import checks
from kbo.errors import InvalidInput

_CACHED = 2**15  # entries of a block that one thread evaluates at once on the CPU
_SHARED = 2**16  # entries of a block that several threads share, which PyTorch does not do for smaller ones
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
        if not checks.tensor("gram", gram).is_floating_point():
            raise InvalidInput(f"gram must be a floating-point tensor [N N], got {gram.dtype}: use gram.double().")
        if not bool(torch.isfinite(gram).all()):
            raise InvalidInput("gram contains NaN or infinite values.")
        if gram.ndim != 2 or gram.shape[0] != gram.shape[1]:
            raise InvalidInput(f"gram must be a symmetric matrix [N N], got shape {tuple(gram.shape)}.")
        if not torch.allclose(gram, gram.T):
            most = float((gram - gram.T).abs().max())
            raise InvalidInput(f"gram must be a symmetric matrix; it differs from its transpose by up to {most:.3g}.")
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
        return torch.arange(len(self.gram), dtype=self.gram.dtype, device=self.gram.device).unsqueeze(-1)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Gram entries at the indices x1 [... n 1] and x2 [... m 1]."""
        i, j = _indices(x1, self.gram), _indices(x2, self.gram)
        return self.gram[i, j] if diag else self.gram[i.unsqueeze(-1), j.unsqueeze(-2)]


def _pairs_possible(gram: Tensor) -> bool:
    """Whether ``k(x, z)^2 <= k(x, x) k(z, z)`` up to rounding, and no entry of the diagonal is negative."""
    most = gram.diagonal() * (1 + 1e-5)
    rows = zip(gram.split(256), most.split(256), strict=True)  # no second matrix of that size
    return not bool((most < 0).any()) and all(bool((a.square() <= b.unsqueeze(-1) * most).all()) for a, b in rows)


def _semi_definite(gram: Tensor) -> bool:
    """Whether no eigenvalue is below zero by more than rounding."""
    slack = 100 * torch.finfo(gram.dtype).eps * len(gram) * gram.diagonal().abs().sum() / max(1, len(gram))
    shifted = gram + torch.eye(len(gram)).to(gram) * slack.clamp_min(torch.finfo(gram.dtype).tiny)
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
    """

    constant: float | None = None

    @abstractmethod
    def __call__(self, X: Tensor, Z: Tensor) -> Tensor:
        """``k(X, Z)`` [... n m] for X [... n d] and Z [... m d]."""

    @abstractmethod
    def diagonal(self, X: Tensor) -> Tensor:
        """``k(x, x)`` [... n] for X [... n d]."""

    def error(self, places: Sequence[Sequence[float]]) -> float:
        """Bound of the error of ``k(x, z)`` at these points, relative to ``k(x, x)``, by rounding of their coordinates.

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

    def scaled(self, scale: Tensor) -> DenseKernel:
        """The kernel times a number []."""
        return _Combined([self], functools.partial(_scaled_part, scale))


def freeze(kernel: Kernel, like: Tensor) -> DenseKernel:
    """A dense, constant copy of a GPyTorch kernel in the dtype and on the device of ``like``.

    Raises:
        InvalidInput: The kernel is not a single unbatched GPyTorch kernel.
    """
    return _dense(copy.deepcopy(checks.kernel(kernel)).to(like).requires_grad_(False).eval())


def _dense(kernel: Kernel) -> DenseKernel:
    # A subclass may change the formula, so only the classes themselves have a form of their own.
    return _FORMS.get(type(kernel), _Generic)(kernel)


_MOST_COMPARED = 0.1
"""Difference between float32 and float64, relative to ``k(x, x)``, from which on it does not grow with the error."""


def has_known_formula(kernel: Kernel) -> bool:
    """Return whether all classes of a kernel are GPyTorch's or kbo's: their distances are taken from differences.

    Not so with the frequencies of a spectral mixture, which ``DenseKernel.error`` does not know.
    """
    return all(
        type(part).__module__.startswith(("gpytorch.", "kbo.", "torch.")) and not hasattr(part, "mixture_means")
        for part in kernel.modules()
    )


def measured_error(kernel: Kernel, X: Tensor) -> float:
    """Return the error of ``k(x, z)`` that is assumed of a kernel of unknown formula, relative to ``k(x, x)``.

    Among points X [n d], float32 is compared with float64. Distances from ``|x|^2 - 2xz + |z|^2``, the worst of the
    usual ones, lose half of the digits, so the error in float64 is taken to be smaller by the root of that ratio.
    It is 1 where points are so far from zero, or values so rough, that a comparison in float32 tells nothing.
    """
    rough, fine = X.float(), X.float().double()
    # The points in another order: some formulas treat equal arguments apart.
    exact, prior = freeze(kernel, fine)(fine, fine.flip(0)), freeze(kernel, fine).diagonal(fine).max()
    lost = (freeze(kernel, rough)(rough, rough.flip(0)).double() - exact).abs().max() / prior
    moved = (freeze(kernel, X.double())(X.double(), X.double().flip(0)) - exact).abs().max() / prior
    if not max(float(lost), float(moved)) <= _MOST_COMPARED:
        return 1.0
    return float(lost) * (torch.finfo(torch.float64).eps / torch.finfo(torch.float32).eps) ** 0.5


def _covar_dist(
    x1: Tensor, x2: Tensor, diag: bool = False, last_dim_is_batch: bool = False, square_dist: bool = False, **_: Any
) -> Tensor:
    """Distances as ``Kernel.covar_dist`` of GPyTorch returns them, but from differences."""
    if last_dim_is_batch:
        x1, x2 = x1.mT.unsqueeze(-1), x2.mT.unsqueeze(-1)
    r = torch.linalg.vector_norm(x1 - x2, dim=-1) if diag else _distances(x1, x2)
    return r * r if square_dist else r


class _Generic(DenseKernel):
    """Any other kernel, evaluated by GPyTorch."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self._scales: list[list[float]] = []
        for part in kernel.modules():
            if getattr(type(part), "covar_dist", None) is Kernel.covar_dist:
                vars(part)["covar_dist"] = _covar_dist
            for name in ("lengthscale", "period_length"):
                if isinstance(scale := getattr(part, name, None), Tensor):
                    self._scales.append((2 * math.pi / scale.detach()).flatten().tolist())  # a period is that steep

    def error(self, places: Sequence[Sequence[float]]) -> float:
        return sum(_coordinate_error(places, scales) for scales in self._scales)

    def __call__(self, X: Tensor, Z: Tensor) -> Tensor:
        with gpytorch.settings.lazily_evaluate_kernels(False):
            value = self.kernel(X, Z)
        return value if isinstance(value, Tensor) else value.to_dense()

    def diagonal(self, X: Tensor) -> Tensor:
        value = self.kernel(X, diag=True)
        return value if isinstance(value, Tensor) else value.to_dense()


class _Shape(NamedTuple):
    """A decreasing function g of a distance r.

    Attributes:
        value: g(r).
        slope: ``g'(r) / r``: the gradient of ``g(|x - z|)`` in z is ``slope (z - x)``. None if it has a pole at 0, so
            that a sum over points would lose its digits.
    """

    value: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor] | None = None

    def scaled(self, scale: Tensor) -> _Shape:
        """Return g times a number []."""
        value, slope = functools.partial(_multiple, self.value, scale), self.slope
        return _Shape(value, slope and functools.partial(_multiple, slope, scale))


class _Stationary(DenseKernel):
    """``shape(|x - z| / lengthscale)``."""

    constant: float

    def __init__(self, inverse_lengthscale: Tensor, shape: _Shape) -> None:
        self.inverse_lengthscale, self.shape = inverse_lengthscale, shape
        self._scales: list[float] = inverse_lengthscale.flatten().tolist()
        self.constant = float(shape.value(inverse_lengthscale.new_zeros(())))

    def __call__(self, X: Tensor, Z: Tensor) -> Tensor:
        X, Z = self._coordinates(X), self._coordinates(Z)
        small = X.ndim == Z.ndim == 2 and X.shape[0] * Z.shape[0] <= _CACHED
        if small or X.device.type != "cpu" or X.ndim > 2 or Z.ndim > 2 or X.requires_grad or Z.requires_grad:
            return self.shape.value(_distances(X, Z))
        # In blocks that stay in the cache: several times faster than passes over large temporaries.
        out = X.new_empty(len(X), len(Z))
        entries = _CACHED if torch.get_num_threads() == 1 else _SHARED
        for start in range(0, len(X), size := max(1, entries // max(1, len(Z)))):
            out[start : start + size] = self.shape.value(_distances(X[start : start + size], Z))
        return out

    def diagonal(self, X: Tensor) -> Tensor:
        self._check(X)
        return X.new_full(X.shape[:-1], self.constant)

    def error(self, places: Sequence[Sequence[float]]) -> float:
        return _coordinate_error(places, self._scales)

    def radial(self, X: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]] | None:
        return self._coordinates(X), self.shape.value

    def scaled(self, scale: Tensor) -> DenseKernel:
        return _Stationary(self.inverse_lengthscale, self.shape.scaled(scale))

    def with_gradient(self, X: Tensor, Z: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        if (slope := self.shape.slope) is None:
            return super().with_gradient(X, Z)
        X, Z = self._coordinates(X), self._coordinates(Z)
        r, centre = _distances(X, Z), Z.mean(0)  # far from zero the differences below would lose digits

        def gradient(weights: Tensor) -> Tensor:
            C = weights * slope(r)
            return (C.sum(0).unsqueeze(-1) * (Z - centre) - C.mT @ (X - centre)) * self.inverse_lengthscale

        return self.shape.value(r), gradient

    def _coordinates(self, X: Tensor) -> Tensor:
        self._check(X)
        return X * self.inverse_lengthscale

    def _check(self, X: Tensor) -> None:
        lengthscales, columns = self.inverse_lengthscale.shape[-1], X.shape[-1]
        if lengthscales not in (1, columns):
            raise InvalidInput(f"The kernel has {lengthscales} lengthscales for {columns} columns.")


def _coordinate_error(places: Sequence[Sequence[float]], scales: list[float]) -> float:
    """``2 u max |x / lengthscale|``, the error of a distance: no shape is steeper than ``k(x, x)`` per lengthscale."""
    if len(scales) == 1:
        largest = scales[0] * math.sqrt(max((sum(map(operator.mul, place, place)) for place in places), default=0.0))
    else:
        scaled = (map(operator.mul, place, scales) for place in places)
        largest = math.sqrt(max((sum(value * value for value in place) for place in scaled), default=0.0))
    return torch.finfo(torch.float64).eps * largest


def _distances(X: Tensor, Z: Tensor) -> Tensor:
    return torch.cdist(X, Z, compute_mode="donot_use_mm_for_euclid_dist")


def _multiple(part: Callable[[Tensor], Tensor], scale: Tensor, r: Tensor) -> Tensor:
    return part(r) * scale


def _gaussian(r: Tensor) -> Tensor:
    return (r * r).mul_(-0.5).exp_()


def _gaussian_slope(r: Tensor) -> Tensor:
    return _gaussian(r).neg_()


def _matern12(r: Tensor) -> Tensor:
    return r.neg().exp_()


def _matern32(r: Tensor) -> Tensor:
    s = r * math.sqrt(3)
    return (s + 1).mul_(s.neg().exp_())


def _matern32_slope(r: Tensor) -> Tensor:
    return (r * -math.sqrt(3)).exp_().mul_(-3)


def _matern52(r: Tensor) -> Tensor:
    s = r * math.sqrt(5)
    return torch.addcmul(s + 1, s, s, value=1 / 3).mul_(s.neg().exp_())


def _matern52_slope(r: Tensor) -> Tensor:
    s = r * math.sqrt(5)
    return (s + 1).mul_(-5 / 3).mul_(s.neg().exp_())


_RBF = _Shape(_gaussian, _gaussian_slope)
_MATERN = {
    0.5: _Shape(_matern12),
    1.5: _Shape(_matern32, _matern32_slope),
    2.5: _Shape(_matern52, _matern52_slope),
}


class _Selected(DenseKernel):
    """A kernel on some of the columns."""

    def __init__(self, columns: Tensor, base: DenseKernel) -> None:
        self.columns, self.base, self.constant = columns, base, base.constant
        self._listed: list[int] = columns.tolist()

    def __call__(self, X: Tensor, Z: Tensor) -> Tensor:
        return self.base(X[..., self.columns], Z[..., self.columns])

    def diagonal(self, X: Tensor) -> Tensor:
        return self.base.diagonal(X[..., self.columns])

    def error(self, places: Sequence[Sequence[float]]) -> float:
        return self.base.error([[place[i] for i in self._listed] for place in places])

    def radial(self, X: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]] | None:
        return self.base.radial(X[..., self.columns])

    def with_gradient(self, X: Tensor, Z: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        value, gradient = self.base.with_gradient(X[..., self.columns], Z[..., self.columns])
        return value, lambda weights: torch.zeros_like(Z).index_add_(-1, self.columns, gradient(weights))

    def scaled(self, scale: Tensor) -> DenseKernel:
        return _Selected(self.columns, self.base.scaled(scale))


class _Combined(DenseKernel):
    """The sum or product of kernels, or a multiple of one."""

    def __init__(self, parts: list[DenseKernel], combine: Callable[[list[Any]], Any]) -> None:
        self.parts, self.combine = parts, combine
        constants = [part.constant for part in parts]
        self.constant = None if None in constants else float(combine(constants))

    def error(self, places: Sequence[Sequence[float]]) -> float:
        return sum(part.error(places) for part in self.parts)

    def __call__(self, X: Tensor, Z: Tensor) -> Tensor:
        return self.combine([part(X, Z) for part in self.parts])

    def diagonal(self, X: Tensor) -> Tensor:
        return self.combine([part.diagonal(X) for part in self.parts])


def _scaled_part(scale: Tensor, values: list[Any]) -> Tensor:
    return scale * values[0]


def _parts(kernel: Any) -> list[DenseKernel]:
    return [_dense(part) for part in kernel.kernels]


def _stationary(kernel: Any, shape: _Shape) -> DenseKernel:
    base = _Stationary(1 / kernel.lengthscale.detach(), shape)
    return base if kernel.active_dims is None else _Selected(kernel.active_dims, base)


def _scale(kernel: Any) -> DenseKernel:
    base = _dense(kernel.base_kernel)
    if kernel.active_dims is not None and kernel.base_kernel.active_dims is None:  # else GPyTorch made them equal
        base = _Selected(kernel.active_dims, base)
    return base.scaled(kernel.outputscale.detach())


_FORMS: dict[type[Kernel], Callable[[Any], DenseKernel]] = {
    RBFKernel: lambda kernel: _stationary(kernel, _RBF),
    MaternKernel: lambda kernel: _stationary(kernel, _MATERN[kernel.nu]),
    ScaleKernel: _scale,
    AdditiveKernel: lambda kernel: _Combined(_parts(kernel), sum),
    ProductKernel: lambda kernel: _Combined(_parts(kernel), math.prod),
}
