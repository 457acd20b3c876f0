"""Joint draws of the function over finite sets of points, less its mean.

A joint draw over N points needs an N x N covariance and O(N^3) work. Where that is too much:

* A sketched posterior is ``z(x)'w + r(x)`` with Gaussian feature weights w of covariance ``ridge M^-1`` and a residual
  r of covariance ``k(x, x') - z(x)'z(x')``. Draws have the joint law of the first part, which carries the data, and
  the variances of the second, drawn independently for every point. So every marginal is exactly that of the DTC
  posterior, which is all that the proofs of Thompson sampling over finite sets use (Durand et al. 2018, Sec. 6.4: each
  point within its width, a union bound over points, and one point that is optimistic often enough). The joint law of
  the residual would need an N x N matrix.
* An exact posterior is drawn as a function (``function.py``), which is evaluated anywhere in O(n) per point.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kbo import checks
from kbo.errors import InvalidInput
from kbo.regression.posterior import Posterior


@torch.no_grad()
def centred_draws(
    state: Posterior,
    X: Tensor,
    count: int = 1,
    generator: torch.Generator | None = None,
    ridge: float | None = None,
) -> Tensor:
    """Return draws [count N] of the function at X [N d] from its Gaussian posterior, less its mean.

    Sketched posteriors take any N, in O(N m^2 + count N m); others up to ``MOST_JOINT`` points jointly, and more of
    them as functions. No N x N matrix is formed for more points than that.

    Args:
        state: The posterior.
        X: Points [N d].
        count: Number of independent draws.
        generator: Source of randomness, on the CPU; None for torch's global one.
        ridge: At another ridge than the state's own.

    Raises:
        InvalidInput: X or count cannot be used, or there are too many points for such a posterior.
    """
    if checks.at_least("count", count, 1) % 1:
        raise InvalidInput(f"count must be a whole number, got {count}.")
    if not isinstance(X, Tensor) or X.ndim != 2 or not len(X):
        shape = tuple(X.shape) if isinstance(X, Tensor) else type(X).__name__
        raise InvalidInput(f"X must be a tensor of shape [N d] with at least one row, got {shape}.")
    state.check(X)
    return state.at(ridge).deviations(X, int(count), generator)
