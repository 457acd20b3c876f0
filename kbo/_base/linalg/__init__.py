"""Growing buffers and triangular factors: pivots and positive definiteness are handled here."""

from kbo._base.linalg.buffers import GrowingTensor
from kbo._base.linalg.cholesky import (
    GrowingCholesky,
    cholesky,
    ill_conditioned_ratio,
    panel_rows,
    safe_sqrt,
)
from kbo._base.linalg.factor import GrowingFactor

__all__ = [
    "GrowingCholesky",
    "GrowingFactor",
    "GrowingTensor",
    "cholesky",
    "ill_conditioned_ratio",
    "panel_rows",
    "safe_sqrt",
]
