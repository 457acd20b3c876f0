"""How far a sketched kernel matrix may be from the exact one, without forming either.

E = K - B'B is positive semi-definite. Cut the observations into blocks in the order of arrival: the norm of a positive
semi-definite matrix is at most the sum of the norms of its diagonal blocks (``|E| = |V|^2`` for E = V'V, and
``|[V_1 V_2]|^2 <= |V_1|^2 + |V_2|^2``), so

    |E| <= sum over complete blocks of |E_bb| + Tr E over the rest.

Every norm on the right is computed in full, and lifted by its rounding error, so the result is never below |E|. Against
the trace it gains a factor of about the effective rank of the residual within a block. Norms are computed when somebody
asks. More anchors only make E smaller, so what was computed before they came stays valid.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from kbo.kernels import DenseKernel
from kbo.regression.rows import Rows

BLOCK = 1024
"""Observations of a complete block: its norm costs BLOCK^3 once, so BLOCK^2 per observation."""

_LEAST = 32
"""Observations of the smallest block whose norm is computed; fewer count with their trace."""


class ResidualNorm:
    """A running upper bound of ``|K - B'B|`` over the entries of ``Rows.order``.

    The entries after the last complete block are cut into blocks of 512, 256, .. 32, as their number is in binary.
    """

    def __init__(self) -> None:
        self._complete, self._done = 0.0, 0
        self._norms: dict[tuple[int, int], float] = {}

    @torch.no_grad()
    def bound(self, k: DenseKernel, rows: Rows) -> float:
        """A number that is never below the operator norm of E."""
        while len(rows.order) - self._done >= BLOCK:
            self._complete += block_norm(k, rows, self._done, BLOCK)
            self._done += BLOCK
            self._norms = {}
        total, start, size = self._complete, self._done, BLOCK // 2
        while size >= _LEAST:
            if len(rows.order) - start >= size:
                if (start, size) not in self._norms:
                    self._norms[start, size] = block_norm(k, rows, start, size)
                total, start = total + self._norms[start, size], start + size
            size //= 2
        rest = slice(start, None)
        residual, weights = rows.residual[rows.order[rest]], rows.residual.new_tensor(rows.weights[rest])
        return total + float(weights @ lifted(residual, rows.prior[rows.order[rest]], rows.features.shape[1]))

    def state_dict(self) -> dict[str, Any]:
        """Plain values from which ``load_state_dict`` restores the bound."""
        return {"complete": self._complete, "done": self._done, "norms": dict(self._norms)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of ``state_dict``."""
        self._complete, self._done, self._norms = state["complete"], state["done"], dict(state["norms"])

    def fork(self) -> ResidualNorm:
        """An independent copy."""
        twin = copy.copy(self)
        twin._norms = dict(self._norms)
        return twin


def lifted(residual: Tensor, prior: Tensor, m: int) -> Tensor:
    """Residuals, lifted by their rounding error: rounding never makes a sketch of m points look better than it is."""
    return residual + 4 * torch.finfo(residual.dtype).eps * m * prior


def block_norm(k: DenseKernel, rows: Rows, start: int, size: int) -> float:
    """An upper bound of the operator norm of E over a block of observations, rounding included."""
    block = slice(start, start + size)
    root = rows.residual.new_tensor(rows.weights[block]).sqrt()
    X, features = rows.X[rows.order[block]], root.unsqueeze(-1) * rows.features[rows.order[block]]
    K = root.unsqueeze(-1) * k(X, X) * root
    largest = torch.linalg.eigvalsh(K - features @ features.mT)[-1].clamp_min(0)
    return float(largest + 4 * torch.finfo(K.dtype).eps * size * K.diagonal().max())
