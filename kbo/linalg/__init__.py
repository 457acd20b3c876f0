"""Growing buffers and triangular factors: dtypes, pivots and positive definiteness are handled here."""

from kbo.linalg.buffers import GrowingTensor
from kbo.linalg.cholesky import PANEL, GrowingCholesky, cholesky, ill_conditioned_ratio, safe_sqrt
from kbo.linalg.factor import GrowingFactor
from kbo.linalg.inverse_root import REFRESH, InverseRoot

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
