"""The features of a dictionary, one anchor after the other.

    z(x) = L^-1 k(Z, x),    L = chol k(Z, Z),

so that ``z(x)'z(x')`` is the kernel seen through the dictionary. A new anchor z* adds a coordinate to every feature
vector and leaves the others as they are: with ``b = z(z*)`` and ``p^2 = k(z*, z*) - |b|^2``,

    L <- [[L, 0], [b', p]],    z(x) <- (z(x), (k(z*, x) - b'z(x)) / p).
"""

from __future__ import annotations

import torch
from torch import Tensor

from kbo.kernels import DenseKernel
from kbo.linalg import GrowingMatrix, GrowingTensor

DEPENDENT = 1e-9
"""Fraction of the prior variance below which a point adds nothing: dividing by less would only amplify rounding."""


class GrowingInverse:
    """``L^-1`` of a lower Cholesky factor that grows row by row.

    Args:
        inverse: ``L^-1`` to begin with, [m m].
    """

    def __init__(self, inverse: Tensor) -> None:
        self._matrix = GrowingMatrix(inverse)

    @property
    def value(self) -> Tensor:
        """``L^-1``, [m m]."""
        return self._matrix.value

    def append(self, whitened: Tensor, pivot: float) -> None:
        """Take in the row ``[whitened', pivot]`` of L, where whitened [m] is ``L^-1`` times the new column."""
        m = len(whitened)
        row = whitened @ self.value / -pivot
        self._matrix.grow(1, 1)
        self._matrix.value[m, :m] = row
        self._matrix.value[m, m] = 1 / pivot

    def fork(self) -> GrowingInverse:
        """An independent copy."""
        return GrowingInverse(self.value)


class Features:
    """``z(x)`` for the anchors Z; dependent points never become anchors.

    Args:
        k: The kernel.
        points: The first candidates for anchors, [m d].
    """

    def __init__(self, k: DenseKernel, points: Tensor) -> None:
        self._k = k
        gram = k(points, points) if len(points) else points.new_empty(0, 0)
        L, info = torch.linalg.cholesky_ex(gram)
        self.kept = list(range(len(points)))
        """Which of the points became anchors."""
        if len(points) and (int(info) or bool((L.diagonal().square() <= DEPENDENT * gram.diagonal()).any())):
            L, self.kept = independent(gram)
        self._Z = GrowingTensor(points[self.kept])
        self._L = GrowingMatrix(L)
        identity = torch.eye(len(L), dtype=L.dtype, device=L.device)
        self._inverse = GrowingInverse(torch.linalg.solve_triangular(L, identity, upper=False))

    @property
    def m(self) -> int:
        """Number of anchors."""
        return self._Z.n

    @property
    def anchors(self) -> Tensor:
        """Z, [m d]."""
        return self._Z.value

    @property
    def L(self) -> Tensor:
        """``chol k(Z, Z)``, [m m]."""
        return self._L.value

    @property
    def whitener(self) -> Tensor:
        """``L^-1``, [m m]."""
        return self._inverse.value

    def columns(self, X: Tensor) -> Tensor:
        """``k(Z, X)``, [m N] for X [N d]."""
        return self._k(self.anchors, X) if self.m else X.new_empty(0, len(X))

    def __call__(self, X: Tensor) -> Tensor:
        """``z(X)``, [m N]."""
        return self.whitener @ self.columns(X)

    def next_coordinate(self, j: int, X: Tensor, Z: Tensor) -> Tensor:
        """Coordinate j of the features of X [N d], [N], from those before it, Z [j N]."""
        row = self.L[j]
        return (self._k(self.anchors[j : j + 1], X)[0] - row[:j] @ Z) / row[j]

    def append(self, z: Tensor, b: Tensor, pivot: float) -> None:
        """Make z [d] an anchor, given its features b [m] and ``pivot^2 = k(z, z) - |b|^2``."""
        m = self.m
        self._Z.append(z.unsqueeze(0))
        self._L.grow(1, 1)
        self.L[m, :m] = b
        self.L[m, m] = pivot
        self._inverse.append(b, pivot)

    def at(self, x: Tensor) -> int | None:
        """The anchor at the location x [1 d]; None if there is none."""
        found = (self.anchors == x).all(-1).nonzero()
        return int(found[0]) if len(found) else None

    def state_dict(self) -> dict[str, Tensor]:
        """Plain tensors from which ``load_state_dict`` restores the same features."""
        return {"Z": self.anchors.clone(), "L": self.L.clone(), "inverse": self.whitener.clone()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """The inverse of ``state_dict``."""
        self._Z, self._L = GrowingTensor(state["Z"]), GrowingMatrix(state["L"])
        self._inverse = GrowingInverse(state["inverse"])

    def fork(self) -> Features:
        """An independent copy."""
        copy = object.__new__(Features)
        copy._k, copy.kept = self._k, self.kept
        copy._Z, copy._L, copy._inverse = self._Z.fork(), self._L.fork(), self._inverse.fork()
        return copy


def independent(gram: Tensor) -> tuple[Tensor, list[int]]:
    """The rows that add something to those before them, ``k(z, z) - |L^-1 k_z|^2 > DEPENDENT k(z, z)``.

    Args:
        gram: ``k(Z, Z)``, [m m].

    Returns:
        The Cholesky factor [q q] of the q rows that were kept, and their numbers.
    """
    kept: list[int] = []
    rows = torch.zeros_like(gram)  # the factor of the points kept so far, row by row against all points
    for i in range(len(gram)):
        column = rows[: len(kept), i]
        rest = float(gram[i, i] - column @ column)
        if rest > DEPENDENT * float(gram[i, i]):
            rows[len(kept)] = (gram[i] - column @ rows[: len(kept)]) / rest**0.5
            kept.append(i)
    return rows[: len(kept), kept].mT.tril().contiguous(), kept
