"""``H(a)^-1 = (K + a I)^-1`` for every ridge a, from one eigendecomposition.

The first n0 rows, ``K0 = Q diag(l) Q'``, are decomposed once. The b later rows form a border, whose
columns C are rotated by Q':

    H(a) = [[diag(l) + a, C], [C', T]],     T = D + a I,     S = T - C' diag(1 / (l + a)) C.

With W = 1 / (l + a), block elimination gives, for vectors p and q in the basis and at the border,

    p'H^-1 q = sum_i p_i q_i W_i + e_p'S^-1 e_q,     e_p = p_border - C' diag(W) p.

On paper                                                   | in code
``ln det(I + K / a) = sum ln(1 + l / a) + ln det(S / a)``  | ``Resolvent.log_det``
``y'(I + K / a)^-1 y = constant + a y'H^-1 y``             | ``Resolvent.shifted``
``|y - mean(X)|^2 = constant + a^2 |H^-1 y|^2``            | ``Resolvent.rss``

``spectral_ridges.py`` computes mean and covariance of points. Two posteriors use this file: the
exact one (exact/eigenbasis.py) and the sketched one (``NystromSpectrum``, sketch/nystrom.py), which
is exact for the kernel matrix B'B and has no border.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy.linalg.lapack import dposv  # pyright: ignore[reportAttributeAccessIssue]
from torch import Tensor

from kbo._base import devices
from kbo._base.linalg import cholesky
from kbo._base.stateful import Stateful
from kbo.kernels import DenseKernel
from kbo.regression.numerics import block_of

_BLOCK = 2**20
"""Entries of the largest temporary, ridges x border x basis."""


class Shifted(NamedTuple):
    """``H(a)`` and the fit of the data at several ridges.

    Attributes:
        ridges: a, [r].
        W: ``1 / (l + a)``, [r n0].
        L: The Cholesky factor of S, [r b b].
        s_y: ``L^-1 e_y``, [r b].
        quad: ``y'(I + K / a)^-1 y``, [r].
    """

    ridges: Tensor
    W: Tensor
    L: Tensor
    s_y: Tensor
    quad: Tensor


class Resolvent(Stateful, ABC):
    """``H(a)^-1`` for every ridge a.

    Attributes:
        k: The kernel.
        values: Eigenvalues l [n0] of K0, at least 0.
        vectors: Eigenvectors Q [N n0] of K0, times the scale of rows of the data.
        C: The border in the basis, [n0 b].
        D: The corner of K at the border, [b b].
        target: y in the basis [n0] and at the border [b].
        constant: The part of y'y that no ridge explains, [].
    """

    k: DenseKernel
    values: Tensor
    vectors: Tensor
    C: Tensor
    D: Tensor
    target: tuple[Tensor, Tensor]
    constant: Tensor
    _latest: tuple[tuple[float, ...], Shifted] | None = None

    @abstractmethod
    def coordinates(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the kernel columns of X [q d] in the basis [n0 q] and at the border [b q]."""

    def shifted(self, ridges: Tensor, checked: bool = True) -> Shifted:
        """Return ``H(a)`` at ridges [r].

        Args:
            ridges: a.
            checked: Whether a matrix without a Cholesky factor is an error; otherwise it is NaN.
        """
        ridges = ridges.to(self.values)
        y, y_border = self.target
        W = (self.values + ridges.unsqueeze(-1)).reciprocal()
        form = W @ y.square()
        if not len(y_border):
            L = W.new_zeros(len(W), 0, 0)
            return Shifted(ridges, W, L, W[:, :0], self._quad(form, ridges))
        size = max(1, block_of(_BLOCK, W.device) // max(1, self.C.numel()))
        chunks = [self.D - (self.C.mT * w.unsqueeze(-2)) @ self.C for w in W.split(size)]
        S = torch.cat(chunks)
        S.diagonal(dim1=-2, dim2=-1).add_(ridges.unsqueeze(-1))
        if checked:
            L = cholesky(S, len(self.values))
        else:
            L, failed_row = torch.linalg.cholesky_ex(S)
            L = L.masked_fill((failed_row > 0).reshape(-1, 1, 1), torch.nan)
        e = torch.addmm(y_border, W * y, self.C, alpha=-1).unsqueeze(-1)
        s_y = torch.linalg.solve_triangular(L, e, upper=False).squeeze(-1)
        return Shifted(ridges, W, L, s_y, self._quad(form + s_y.square().sum(-1), ridges))

    def _quad(self, form: Tensor, ridges: Tensor) -> Tensor:
        """Return ``y'(I + K / a)^-1 y``, [r], given ``y'H^-1 y`` [r]."""
        return self.constant + ridges * form

    def grid(self, ridges: Sequence[float]) -> Shifted:
        """Return ``H(a)`` at ridges; the last result is kept for several reads in turn."""
        key = tuple(ridges)
        latest = self._latest  # read once: another thread may replace it
        if latest is None or latest[0] != key:
            latest = (key, self.shifted(self.values.new_tensor(key)))
            self._latest = latest
        return latest[1]

    def log_det(self, shifted: Shifted) -> Tensor:
        """Return ``ln det(I + K / a)``, [r]."""
        ridges = shifted.ridges.unsqueeze(-1)
        of_border = shifted.L.diagonal(dim1=-2, dim2=-1).square() / ridges
        return torch.log1p(self.values / ridges).sum(-1) + of_border.log().sum(-1)

    def rss(self, shifted: Shifted) -> Tensor:
        """Return ``|y - mean(X)|^2``, [r]: the residuals are ``a H^-1 y``."""
        # H^-1 y at the border [r b], and in the basis [r n0].
        solved = torch.linalg.solve_triangular(shifted.L.mT, shifted.s_y.unsqueeze(-1), upper=True)
        border = solved.squeeze(-1)
        basis = shifted.W * (self.target[0] - border @ self.C.mT)
        square = basis.square().sum(-1) + border.square().sum(-1)
        return self.constant + shifted.ridges.square() * square

    @torch.no_grad()
    def quadratic_forms(self, p: Tensor, p_border: Tensor) -> Callable[[float], np.ndarray]:
        """Return ``P'H^-1 P`` of y and p [n0 q], [1+q 1+q], as a function of one ridge.

        It computes on the host, which is faster for few points than calls of PyTorch. It is NaN
        where H has no factor. With ``V = [C, P]`` in the basis, ``[[T, .], [P_border', 0]] - V'
        diag(W) V`` contains S, e and the first sum of the form.
        """
        values, C, D, y, y_border = devices.on_host(self.values, self.C, self.D, *self.target)
        points, points_border = devices.on_host(p, p_border)
        V = np.column_stack([C, y, points]).T.copy()  # [b+1+q n0]
        b = len(D)
        at_border = np.zeros((len(V), len(V)))
        at_border[:b, :b] = D
        at_border[b, :b] = y_border
        at_border[b + 1 :, :b] = points_border.T
        diagonal = np.arange(b)

        def forms(ridge: float) -> np.ndarray:
            scaled = V / np.sqrt(values + ridge)
            reduced = at_border - scaled @ scaled.T
            if b == 0:
                return -reduced
            reduced[diagonal, diagonal] += ridge
            e = reduced[b:, :b]
            _, solved, failed_row = dposv(reduced[:b, :b], e.T)
            if failed_row:
                return np.full_like(reduced[b:, b:], np.nan)
            return e @ solved - reduced[b:, b:]

        return forms
