"""Dictionaries: the points that span a sketched posterior."""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo import checks
from kbo.errors import InvalidInput
from kbo.kernels import freeze


class FixedDictionary:
    """Points given in advance, whatever is observed.

    Args:
        points: Z [m d]. Points that add nothing to those before them are left out by the posterior.

    Raises:
        InvalidInput: Not a finite floating-point matrix.
    """

    def __init__(self, points: Tensor) -> None:
        checks.points("points", points)
        if points.ndim != 2:
            raise InvalidInput(f"points must have shape [m d], got {tuple(points.shape)}.")
        self.points = points.detach().clone()

    def __repr__(self) -> str:
        return f"FixedDictionary({len(self.points)} points)"

    @classmethod
    def pivoted(cls, kernel: Kernel, X: Tensor, m: int, tolerance: float = 1e-9) -> FixedDictionary:
        """At most m rows of X [n d], each the one that those before it explain least, O(n m^2).

        Pivoted Cholesky (Harbrecht, Peters & Schneider 2012, Alg. 1).

        Args:
            kernel: The kernel of the posterior.
            X: Candidates, for example a sample of where observations are expected.
            m: Largest number of points.
            tolerance: Fraction of the largest prior variance at which everything counts as explained.
        """
        if checks.points("X", X).ndim != 2 or len(X) == 0 or m < 1:
            raise InvalidInput(f"pivoted needs X [n d] with at least one row and m >= 1, got {tuple(X.shape)} and {m}.")
        k = freeze(kernel, X)
        rest = k.diagonal(X).clone()
        least = tolerance * float(rest.max())
        rows, chosen = X.new_zeros(m, len(X)), []
        while len(chosen) < m and float(rest.max()) > least:
            j, i = len(chosen), int(rest.argmax())
            rows[j] = (k(X[i : i + 1], X)[0] - rows[:j, i] @ rows[:j]) / rest[i].sqrt()
            rest = (rest - rows[j].square()).clamp_min(0)
            chosen.append(i)
        return cls(X[chosen])

    def to(self, like: Tensor) -> FixedDictionary:
        """The same points in the dtype and on the device of ``like``."""
        return FixedDictionary(self.points.to(like))


def anchors(gram: Tensor, tolerance: float = 1e-9) -> list[int]:
    """The rows that add something to those before them: ``k(z, z) - |L^-1 k_z|^2 > tolerance k(z, z)``.

    Args:
        gram: ``k(Z, Z)``, [m m].
        tolerance: Fraction of the prior variance below which a point is dependent.
    """
    kept: list[int] = []
    rows = torch.zeros_like(gram)  # the factor of the points kept so far, row by row against all points
    for i in range(len(gram)):
        column = rows[: len(kept), i]
        rest = float(gram[i, i] - column @ column)
        if rest > tolerance * float(gram[i, i]):
            rows[len(kept)] = (gram[i] - column @ rows[: len(kept)]) / rest**0.5
            kept.append(i)
    return kept
