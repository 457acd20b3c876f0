"""The features of a dictionary, one anchor after the other.

    z(x) = L^-1 k(Z, x),    L = chol k(Z, Z),

so that ``z(x)'z(x')`` is the kernel seen through the dictionary. A new anchor z* adds a coordinate to every feature
vector and leaves the others as they are: with ``b = z(z*)`` and ``p^2 = k(z*, z*) - |b|^2``,

    L <- [[L, 0], [b', p]],    z(x) <- (z(x), (k(z*, x) - b'z(x)) / p).

A point with ``p^2 <= DEPENDENT k(z*, z*)`` adds nothing but rounding, and never becomes an anchor. A larger p does not
say that it can: with ``c = k(Z, Z)^-1 k(Z, z*)`` the new row of ``L^-1`` has the norm ``sqrt(1 + |c|^2) / p``, and the
larger it is the more rounding the features multiply. Points that come one by one along a path, or some of which are
very close to each other, can make it as large as they like, whatever p is. Where ``(1 + |c|^2) / p^2`` would be more
than ``1 / (CONDITION k(z*, z*))`` the anchors are chosen again, by pivoting: among points that are all known there is
always a well-conditioned choice that explains the others (``Dictionary.chosen``).
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.linalg import vector_norm

from kbo._base.linalg import GrowingFactor, GrowingTensor, cholesky
from kbo._base.stateful import Stateful, passed_on
from kbo.kernels import DenseKernel

Place = tuple[float, ...]
"""A location on the host."""

DEPENDENT = 1e-9
"""Fraction of the prior variance below which a point that comes alone adds nothing but rounding."""

CONDITION = 1e-9
"""Inverse of the largest square of a row of ``L^-1``, in units of the inverse prior variance, for points that come."""

_NOTHING, _SINGULAR = 1e-13, 1e-14
"""The same for points that come together, which pivoting keeps well-conditioned; and for a combination of points."""


class Features(Stateful):
    """``z(x)`` for the anchors Z.

    Args:
        k: The kernel.
        points: Candidates for anchors, [m d]; those that depend on the others are left out.

    Attributes:
        m: Number of anchors.
        anchors: Z, [m d].
        L: ``chol k(Z, Z)``, [m m].
        whitener: ``L^-1``, [m m].
        row_norms: The norms of the rows of ``L^-1``, [m]: how much each coordinate multiplies rounding.
    """

    saved: tuple[str, ...] = ("_Z", "_factor", "_row_norms")

    def __init__(self, k: DenseKernel, points: Tensor) -> None:
        self._k = k
        gram = k(points, points) if len(points) else points.new_empty(0, 0)
        kept, self._factor = independent(gram)
        self._Z = GrowingTensor(points if kept is None else points[kept])
        self._row_norms = GrowingTensor(
            vector_norm(self.whitener, dim=1)
        )  # sqrt(1 + |c|^2) / p of every point
        self._places: dict[Place, int] = {}  # of the anchors; empty until it is needed

    m: int = passed_on("_Z.n")
    anchors: Tensor = passed_on("_Z.value")
    L: Tensor = passed_on("_factor.L")
    whitener: Tensor = passed_on("_factor.inverse")
    row_norms: Tensor = passed_on("_row_norms.value")

    def coefficients(self, b: Tensor) -> Tensor:
        """Return the coefficients c [m] of a point from its features b [m]."""
        return self._factor.coefficients(b)

    def columns(self, X: Tensor) -> Tensor:
        """``k(Z, X)``, [m N] for X [N d]."""
        return self._k(self.anchors, X) if self.m else X.new_empty(0, len(X))

    def __call__(self, X: Tensor) -> Tensor:
        """``z(X)``, [m N], by a product: for predictions."""
        columns = self.columns(X)
        return kept_for(columns, self.whitener) @ columns

    def solve(self, X: Tensor) -> Tensor:
        """``z(X)``, [m N], by a triangular solve: for features that are stored and grow."""
        return self._factor.solve(self.columns(X))

    def solve_columns(self, columns: Tensor) -> Tensor:
        """The same, given ``k(Z, X)`` [m N]."""
        return self._factor.solve(columns)

    def residual(self, X: Tensor, Z: Tensor) -> tuple[Tensor, Tensor]:
        """``k(x, x) - |z(x)|^2 >= 0`` and ``k(x, x)``, [N] each, of X [N d] with features Z [m N]."""
        prior = self._k.diagonal(X)
        return (prior - Z.square().sum(0)).clamp_min(0), prior

    def spread(self, Z: Tensor) -> Tensor:
        """A bound of the norm of the coefficients of points [N] with features Z [m N]; see ``error.py``."""
        return self.row_norms @ Z.abs()

    def next_coordinate(self, j: int, X: Tensor, Z: Tensor) -> Tensor:
        """Coordinate j of the features of X [N d], [N], from those before it, Z [j N]."""
        row = self.L[j]
        return (self._k(self.anchors[j : j + 1], X)[0] - row[:j] @ Z) / row[j]

    def append(self, z: Tensor, b: Tensor, c: Tensor, pivot: float, place: Place) -> None:
        """Make z [1 d], at ``place``, an anchor.

        Its features are b [m], its coefficients c [m], and ``pivot^2 = k(z, z) - |b|^2``.
        """
        self._Z.append(z)
        self._factor.append(b, c, pivot)
        self._row_norms.append(vector_norm(self.whitener[-1:], dim=1))
        if self._places:
            self._places[place] = self.m - 1

    def at(self, place: Place) -> int | None:
        """The anchor at a location; None if there is none."""
        if not self._places:
            self._places = {tuple(anchor): i for i, anchor in enumerate(self.anchors.tolist())}
        return self._places.get(place)

    def _restored(self) -> None:
        self._places = {}


def independent(gram: Tensor) -> tuple[list[int] | None, GrowingFactor]:
    """Rows of ``k(Z, Z)`` [m m] that leave no more than a fraction ``_NOTHING`` of any other, and their factor.

    The rows are None for all of them, which is the usual case.
    """
    prior = gram.diagonal()
    L, info = torch.linalg.cholesky_ex(gram)
    factor = GrowingFactor(L)
    row_norms = vector_norm(factor.inverse, dim=1)
    regular = (row_norms.square() * prior * _SINGULAR < 1) & (
        L.diagonal().square() > _NOTHING * prior
    )
    if bool((regular & (info == 0)).all()):
        return None, factor
    on_host = gram.cpu().numpy()  # where a pivot is read and compared at a fifth of the cost
    root = np.sqrt(on_host.diagonal())
    unit = on_host * np.divide(
        1, root * root[:, None], out=np.zeros_like(on_host), where=root * root[:, None] > 0
    )
    rest, rows, kept = unit.diagonal().copy(), np.zeros_like(unit), []
    while len(kept) < len(gram):
        i = int((rest >= 0.999 * rest.max()).argmax())  # the first of those that are nearly equal
        if not rest[i] > _NOTHING:
            break
        q = len(kept)
        rows[q] = (unit[i] - rows[:q, i] @ rows[:q]) / math.sqrt(rest[i])
        rest -= rows[q] ** 2
        kept.append(i)
    kept.sort()
    return kept, GrowingFactor(cholesky(gram[kept][:, kept]))


def kept_for(X: Tensor, matrix: Tensor) -> Tensor:
    """A matrix that is written to in place; a copy of it if a graph of X is to keep it."""
    return matrix.clone() if X.requires_grad else matrix
