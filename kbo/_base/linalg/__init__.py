"""Growing buffers and triangular factors: dtypes, pivots and positive definiteness are handled here."""

from kbo._base.linalg.buffers import GrowingTensor
from kbo._base.linalg.cholesky import (
    PANEL,
    GrowingCholesky,
    cholesky,
    ill_conditioned_ratio,
    safe_sqrt,
)
from kbo._base.linalg.factor import GrowingFactor
from kbo._base.linalg.inverse_root import REFRESH, InverseRoot

__all__ = [
    "PANEL",
    "REFRESH",
    "GrowingCholesky",
    "GrowingFactor",
    "GrowingTensor",
    "InverseRoot",
    "cholesky",
    "ill_conditioned_ratio",
    "safe_sqrt",
]
