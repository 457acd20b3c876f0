"""How far a sketched kernel matrix may be from the exact one, without forming either.

E = K - B'B is positive semi-definite. Cut the observations into blocks in the order of arrival: the norm of a positive
semi-definite matrix is at most the sum of the norms of its diagonal blocks (``|E| = |V|^2`` for E = V'V, and
``|[V_1 V_2]|^2 <= |V_1|^2 + |V_2|^2``), so

    |E| <= sum over complete blocks of |E_bb| + Tr E over the rest.

Every norm on the right is computed in full, and lifted by its rounding error, so the result is never below |E|. Against
the trace it gains a factor of about the effective rank of the residual within a block.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kbo.kernels import DenseKernel

BLOCK = 1024
"""Observations of a complete block: its norm costs BLOCK^3 once, so BLOCK^2 per observation."""

_LEAST = 32
"""Observations of the smallest block whose norm is computed; fewer count with their trace."""


class ResidualNorm:
    """A running upper bound of ``|K - B'B|``, a function of the data alone.

    The observations after the last complete block are cut into blocks of 512, 256, .. 32, as their number is in binary.

    Args:
        like: A tensor [... d] of the right dtype and device.
    """

    def __init__(self, like: Tensor) -> None:
        self._complete = like.new_zeros(())
        self._waiting: list[tuple[Tensor, Tensor, Tensor]] = []
        self._rows = 0
        self._norms: dict[tuple[int, int], Tensor] = {}

    @torch.no_grad()
    def update(self, k: DenseKernel, X: Tensor, features: Tensor, residual: Tensor) -> None:
        """Take in points X [r d], their features [m r] and ``k(x, x) - |z(x)|^2`` [r] under the kernel k."""
        self._waiting.append((X, features, residual))
        self._rows += len(X)
        if self._rows < BLOCK:
            return
        X, features, residual = self._joined()
        while len(X) >= BLOCK:
            self._complete = self._complete + block_norm(k, X[:BLOCK], features[:, :BLOCK])
            X, features, residual = X[BLOCK:], features[:, BLOCK:], residual[BLOCK:]
        self._waiting, self._rows, self._norms = [(X.clone(), features.clone(), residual.clone())], len(X), {}

    @torch.no_grad()
    def bound(self, k: DenseKernel) -> Tensor:
        """A number that is never below the operator norm of E, []."""
        if not self._rows:
            return self._complete
        X, features, residual = self._joined()
        self._waiting = [(X, features, residual)]
        total, start, size = self._complete, 0, BLOCK // 2
        while size >= _LEAST:
            if self._rows - start >= size:
                if (start, size) not in self._norms:
                    block = slice(start, start + size)
                    self._norms[start, size] = block_norm(k, X[block], features[:, block])
                total, start = total + self._norms[start, size], start + size
            size //= 2
        return total + residual[start:].sum()

    def fork(self) -> ResidualNorm:
        """An independent copy."""
        copy = object.__new__(ResidualNorm)
        vars(copy).update(vars(self))
        copy._waiting, copy._norms = list(self._waiting), dict(self._norms)
        return copy

    def _joined(self) -> tuple[Tensor, Tensor, Tensor]:
        X, features, residual = zip(*self._waiting, strict=True)
        return torch.cat(X), torch.cat(features, 1), torch.cat(residual)


def block_norm(k: DenseKernel, X: Tensor, features: Tensor) -> Tensor:
    """An upper bound of the operator norm of ``k(X, X) - z(X)'z(X)``, rounding included."""
    K = k(X, X)
    largest = torch.linalg.eigvalsh(K - features.mT @ features)[-1].clamp_min(0)
    return largest + 4 * torch.finfo(K.dtype).eps * len(X) * K.diagonal().max()
