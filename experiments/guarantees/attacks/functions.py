"""Functions at the edge of a norm bound, and draws of a prior: dense, in extended precision, and without kbo."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, RBFKernel, RQKernel, ScaleKernel
from torch import Tensor

Array = np.ndarray
Values = Callable[[Array, Array], Array]
"""Kernel values [n m] at points [n d] and [m d]."""

JUST_WITHIN = 1 - 1e-6
"""Norm of the functions, as a share of the norm bound."""


class Subclass(MaternKernel):
    """A subclass of a kernel that changes nothing."""


class Expanded(MaternKernel):
    """Matern-1/2 by squared distances ``|x|^2 - 2xz + |z|^2``, which round badly far from zero."""

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params) -> Tensor:
        a = x1 / self.lengthscale
        b = x2 / self.lengthscale
        square = a.square().sum(-1, keepdim=True) - 2 * a @ b.mT + b.square().sum(-1).unsqueeze(-2)
        value = (-square.clamp_min(1e-30).sqrt()).exp()
        if diag:
            return value.diagonal(dim1=-2, dim2=-1)
        return value


R3 = np.sqrt(np.longdouble(3))
R5 = np.sqrt(np.longdouble(5))


def rational() -> Kernel:
    """Return a rational quadratic kernel."""
    kernel = RQKernel()
    kernel.alpha = 1.0
    return kernel


def scaled() -> Kernel:
    """Return a Matern-5/2 kernel of variance 4."""
    kernel = ScaleKernel(MaternKernel(nu=2.5))
    kernel.outputscale = 4.0
    return kernel


def matern12(r: Array) -> Array:
    """Return the values of Matern-1/2 at distances."""
    return np.exp(-r)


def matern52(r: Array) -> Array:
    """Return the values of Matern-5/2 at distances."""
    return (1 + R5 * r + (R5 * r) ** 2 / 3) * np.exp(-R5 * r)


def rq(r: Array) -> Array:
    """Return the values of the rational quadratic kernel at distances."""
    return 1 / (1 + r * r / 2)


RADIAL: dict[str, tuple[Callable[[], Kernel], Callable[[Array], Array], float]] = {
    "rbf": (RBFKernel, lambda r: np.exp(-r * r / 2), 1.0),
    "matern12": (lambda: MaternKernel(nu=0.5), matern12, 1.0),
    "matern32": (lambda: MaternKernel(nu=1.5), lambda r: (1 + R3 * r) * np.exp(-R3 * r), 1.0),
    "matern52": (lambda: MaternKernel(nu=2.5), matern52, 1.0),
    "subclass": (lambda: Subclass(nu=0.5), matern12, 1.0),
    "expanded": (lambda: Expanded(nu=0.5), matern12, 1.0),
    "rational": (rational, rq, 1.0),
    "scaled": (scaled, matern52, 4.0),
    "product": (lambda: MaternKernel(nu=0.5) * rational(), lambda r: matern12(r) * rq(r), 1.0),
}
"""Kernels by name: a function that makes one, its values at distances over the lengthscale, and a factor of them."""


def stretch(kernel: Kernel, lengthscale: float) -> None:
    """Set the lengthscale of a kernel and of all its parts."""
    parts: list[Any] = list(kernel.modules())
    for part in parts:
        if getattr(part, "has_lengthscale", False):
            part.lengthscale = lengthscale


def radial(name: str, lengthscale: float) -> tuple[Kernel, Values]:
    """Return a kernel of GPyTorch, and a function that computes its values independently."""
    make, profile, factor = RADIAL[name]
    kernel = make().double()
    stretch(kernel, lengthscale)
    scale = np.longdouble(lengthscale)

    def values(A: Array, B: Array) -> Array:
        difference = (A[:, None].astype(np.longdouble) - B[None].astype(np.longdouble)) / scale
        return factor * profile(np.sqrt((difference * difference).sum(-1)))

    return kernel, values


def linear(variance: float = 1.0) -> tuple[Kernel, Values]:
    """Return the kernel ``variance x z``, which is 0 at the origin."""
    kernel = LinearKernel().double()
    kernel.variance = variance
    return kernel, lambda A, B: variance * A.astype(np.longdouble) @ B.astype(np.longdouble).T


def factor(K: Array) -> tuple[Array, list[int]]:
    """Return the Cholesky factor [k k] of k rows of K [n n], and their indices; dependent rows are left out."""
    L = np.zeros_like(K)
    kept = []
    for j in range(len(K)):
        row = L[j]
        for column, i in enumerate(kept):
            row[column] = (K[j, i] - row[:column] @ L[i, :column]) / L[i, column]
        pivot = K[j, j] - row @ row
        if pivot > 1e-13 * max(K[j, j], K.max() * 1e-3):
            row[len(kept)] = np.sqrt(pivot)
            kept.append(j)
        else:
            row[:] = 0
    return L[kept][:, : len(kept)], kept


class Function:
    """``sum_i a_i k(c_i, .)`` of the given norm; without one, a draw of the prior at the centres.

    Args:
        values: The kernel.
        centres: The centres [m d].
        norm: The norm of the function; None for a draw.
        rng: Source of randomness. Often the function is 0 at all centres except one, and there it is as large as its
            norm allows.
    """

    def __init__(
        self, values: Values, centres: Array, norm: float | None, rng: random.Random
    ) -> None:
        # With K = L L', the function a = L'^-1 u has norm |u|, and values L u at the centres.
        L, kept = factor(values(centres, centres))
        m = len(kept)
        u = np.array([rng.gauss(0, 1) for _ in range(m)], dtype=np.longdouble)
        if norm is not None:
            if rng.random() < 0.7:
                u = signed_unit_vector(m, rng)
            u *= norm * JUST_WITHIN / np.sqrt(u @ u)
        self.values = values
        self.centres = centres[kept]
        self.a: Array = np.zeros(m, dtype=np.longdouble)
        for i in reversed(range(m)):
            self.a[i] = (u[i] - L[i + 1 :, i] @ self.a[i + 1 :]) / L[i, i]

    def __call__(self, points: Array) -> Array:
        """Return the values [n] at points [n d]."""
        return (self.values(points, self.centres) @ self.a).astype(np.float64)


def signed_unit_vector(m: int, rng: random.Random) -> Array:
    """Return plus or minus a unit vector [m], most often the last one."""
    position = m - 1
    if rng.random() >= 0.6:
        position = rng.randrange(m)
    vector = np.zeros(m, dtype=np.longdouble)
    vector[position] = rng.choice([-1, 1])
    return vector


def tensor(a: Array) -> Tensor:
    """Return an array as a tensor in float64."""
    return torch.tensor(np.asarray(a, dtype=np.float64), dtype=torch.float64)
