"""Linear algebra of growing matrices; all checks of positive definiteness are here.

* ``buffers.py``: tensors that grow
* ``cholesky.py``: Cholesky factors, fixed and growing
* ``factor.py``: a growing Cholesky factor with its inverse
"""

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
