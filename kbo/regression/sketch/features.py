"""Features of a dictionary: the kernel seen through its inducing points Z.

    z(x) = L^-1 k(Z, x),    L = chol k(Z, Z),

so that ``z(x)'z(x')`` is the Nystrom approximation of ``k(x, x')``. A new inducing point z* adds a
coordinate to every feature vector and leaves the others as they are: with ``b = z(z*)`` and
``p^2 = k(z*, z*) - |b|^2``,

    L <- [[L, 0], [b', p]],    z(x) <- (z(x), (k(z*, x) - b'z(x)) / p).

A point with ``p^2 <= DEPENDENT k(z*, z*)`` adds only rounding error and never becomes an inducing
point. A larger p is not enough. With ``c = k(Z, Z)^-1 k(Z, z*)`` the new row of ``L^-1`` has the
norm ``sqrt(1 + |c|^2) / p``, by which the features multiply rounding errors. It can be arbitrarily
large for any p, if points come one by one along a path or are very close to each other. If ``(1 +
|c|^2) / p^2`` would exceed ``1 / (CONDITION k(z*, z*))``, all inducing points are chosen again by
pivoting (``Dictionary.chosen``): among given points there is always a well-conditioned choice that
explains the others.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.linalg import vector_norm

from kbo._base.checks import Location
from kbo._base.linalg import GrowingFactor, GrowingTensor, cholesky
from kbo._base.stateful import Stateful
from kbo.kernels import DenseKernel

DEPENDENT = 1e-9
"""Fraction of the prior variance below which the residual of a new point is rounding error."""

CONDITION = 1e-9
"""Inverse of the largest squared norm of the row of ``L^-1`` that one new point may add, in units
of the prior variance."""

_DEPENDENT_TOGETHER = 1e-13
"""As ``DEPENDENT``, for points that come together, which pivoting keeps well-conditioned."""

_CONDITION_TOGETHER = 1e-14
"""As ``CONDITION``, for points that come together."""


class Features(Stateful):
    """``z(x)`` for inducing points Z.

    Args:
        k: The kernel.
        points: Candidates for inducing points, [m d]; dependent ones are left out.
    """

    def __init__(self, k: DenseKernel, points: Tensor) -> None:
        self._k = k
        gram = points.new_empty(0, 0)
        if len(points):
            gram = k(points, points)
        chosen, self._factor = independent(gram)
        if chosen is not None:
            points = points[chosen]
        self._Z = GrowingTensor(points)
        self._row_norms = GrowingTensor(vector_norm(self.whitener, dim=1))
        self._index: dict[Location, int] = {
            tuple(point): i for i, point in enumerate(points.tolist())
        }

    @property
    def m(self) -> int:
        """Number of inducing points."""
        return self._Z.n

    @property
    def anchors(self) -> Tensor:
        """The inducing points Z, [m d]."""
        return self._Z.value

    @property
    def L(self) -> Tensor:
        """``chol k(Z, Z)``, [m m]."""
        return self._factor.L

    @property
    def whitener(self) -> Tensor:
        """``L^-1``, [m m]."""
        return self._factor.inverse

    @property
    def row_norms(self) -> Tensor:
        """Norms of the rows of ``L^-1``, [m], by which features multiply rounding errors."""
        return self._row_norms.value

    def at(self, location: Location) -> int | None:
        """Return the index of the inducing point at a location; None if there is none."""
        return self._index.get(location)

    def columns(self, X: Tensor) -> Tensor:
        """Return ``k(Z, X)``, [m N] for X [N d]."""
        if self.m == 0:
            return X.new_empty(0, len(X))
        return self._k(self.anchors, X)

    def __call__(self, X: Tensor) -> Tensor:
        """Return ``z(X)``, [m N] for X [N d], by a product with ``L^-1``: fast, for predictions."""
        columns = self.columns(X)
        return constant_for(columns, self.whitener) @ columns

    def solve(self, columns: Tensor) -> Tensor:
        """Return ``z(X)``, [m N], from ``k(Z, X)`` by a triangular solve: accurate, for data."""
        return self._factor.solve(columns)

    def coefficients(self, b: Tensor) -> Tensor:
        """Return ``k(Z, Z)^-1 k(Z, x)``, [m], of a point with features b [m]."""
        return self._factor.coefficients(b)

    def residual(self, X: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``k(x, x) - |z(x)|^2 >= 0`` and ``k(x, x)``, [N], of X [N d], z [m N]."""
        prior = self._k.diagonal(X)
        return (prior - z.square().sum(0)).clamp_min(0), prior

    def spread(self, z: Tensor) -> Tensor:
        """Return an upper bound of the norm of the coefficients, [N], of features z [m N]."""
        return self.row_norms @ z.abs()

    def next_coordinate(self, j: int, X: Tensor, z: Tensor) -> Tensor:
        """Return coordinate j of the features of X [N d], [N], from those before it, z [j N]."""
        row = self.L[j]
        column = self._k(self.anchors[j : j + 1], X)[0]
        return (column - row[:j] @ z) / row[j]

    def append(self, point: Tensor, b: Tensor, c: Tensor, pivot: float, location: Location) -> None:
        """Add an inducing point [1 d] at ``location``.

        Its features are b [m], its coefficients c [m], and ``pivot^2 = k(z, z) - |b|^2``.
        """
        self._index[location] = self.m
        self._Z.append(point)
        self._factor.append(b, c, pivot)
        self._row_norms.append(vector_norm(self.whitener[-1:], dim=1))


def independent(gram: Tensor) -> tuple[list[int] | None, GrowingFactor]:
    """Return a well-conditioned choice of points, given ``k(Z, Z)`` [m m], and its Cholesky factor.

    The residual of every other point is at most ``_DEPENDENT_TOGETHER`` of its prior variance. The
    choice is None if all points are chosen, which is the usual case.
    """
    prior = gram.diagonal()
    L, info = torch.linalg.cholesky_ex(gram)
    factor = GrowingFactor(L)
    inverse_square = vector_norm(factor.inverse, dim=1).square()
    is_conditioned = inverse_square * prior * _CONDITION_TOGETHER < 1
    is_independent = L.diagonal().square() > _DEPENDENT_TOGETHER * prior
    if bool((is_conditioned & is_independent & (info == 0)).all()):
        return None, factor
    scale = prior.outer(prior).sqrt()
    correlation = (gram / scale).masked_fill(scale == 0, 0)
    # Weights that break ties: the first point wins.
    first_wins = torch.linspace(1, 0.9, len(gram), dtype=gram.dtype, device=gram.device)
    least = _DEPENDENT_TOGETHER
    chosen, _ = pivots(
        correlation.__getitem__, correlation.diagonal(), len(gram), least, first_wins
    )
    chosen.sort()
    return chosen, GrowingFactor(cholesky(gram[chosen][:, chosen]))


def pivots(
    row: Callable[[int], Tensor],
    prior: Tensor,
    m: int,
    least: Tensor | float,
    weight: Tensor | float = 1.0,
) -> tuple[list[int], Tensor]:
    """Return at most m of n points by pivoted Cholesky, and the residual variances, [n]. O(n m^2).

    The next pivot has the largest ``weight * (residual - least)``. Points whose residual is at most
    ``least`` are not chosen.

    Args:
        row: The row [n] of the kernel matrix of a point.
        prior: The diagonal of that matrix [n].
        m: Largest number of points.
        least: The largest residual that a point may keep, [n] or one number.
        weight: Positive numbers [n].
    """
    residual = prior.clone()
    factor = GrowingTensor(prior.new_empty(0, len(prior)))  # rows of the Cholesky factor
    chosen: list[int] = []
    while len(chosen) < m:
        excess = weight * (residual - least)
        pivot = int(excess.argmax())
        if not float(excess[pivot]) > 0:
            break
        rows = factor.value
        coordinate = (row(pivot) - rows[:, pivot] @ rows) / residual[pivot].sqrt()
        factor.append(coordinate.unsqueeze(0))
        residual = (residual - coordinate.square()).clamp_min(0)
        residual[pivot] = 0  # without its rounding error
        chosen.append(pivot)
    return chosen, residual


def constant_for(X: Tensor, matrix: Tensor) -> Tensor:
    """Return a matrix for a product with X, as a copy if a gradient in X may be computed later.

    The matrix itself may be overwritten before the gradient is computed.
    """
    if X.requires_grad:
        return matrix.clone()
    return matrix
