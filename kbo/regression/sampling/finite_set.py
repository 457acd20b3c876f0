"""Joint draws of the function over finite sets of points, less its mean.

A joint draw over N points needs an N x N covariance and O(N^3) work. Where that is too much:

* A sketched posterior is ``z(x)'w + r(x)`` with Gaussian features weights w of covariance ``ridge M^-1`` and a residual
  r of covariance ``k(x, x') - z(x)'z(x')``. Draws have the joint law of the first part, which carries what the data
  taught, and the variances of the second, drawn independently for every point. So every marginal is exactly that of
  the DTC posterior, which is all that the proofs of Thompson sampling over finite sets use (Durand et al. 2018,
  Sec. 6.4: each point within its width, a union bound over points, and one point that is optimistic often enough). The
  joint law of the residual would need an N x N matrix.
* An exact posterior is drawn as a function (``sample_path.py``), which is evaluated anywhere in O(n) per point.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kbo import checks
from kbo.errors import InvalidInput
from kbo.regression.exact.state import KernelRidge
from kbo.regression.posterior import Posterior, View
from kbo.regression.sampling.function import draw_path, sketched_weights
from kbo.regression.sketch.features import Features
from kbo.regression.sketch.state import NystromRidge
from kbo.regression.views.hypothetical import Hypothetical
from kbo.regression.views.tracked import MOST_JOINT, Tracked, TrackedPoints
from kbo.regression.views.tracked_sketch import TrackedSketch

__all__ = ["MOST_JOINT", "centred_draws"]

_CHUNK = {"cpu": 2**19, "cuda": 2**26}
"""Features that are evaluated at once."""


@torch.no_grad()
def centred_draws(
    state: Posterior,
    X: Tensor,
    count: int = 1,
    generator: torch.Generator | None = None,
    ridge: float | None = None,
) -> Tensor:
    """Draws [count N] of the function at X [N d] from its Gaussian posterior, less its mean.

    Sketched posteriors take any N, in O(N m^2 + count N m); exact ones up to ``MOST_JOINT`` points jointly, and more of
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
    real = behind(state)
    if isinstance(real, (NystromRidge, TrackedSketch)):
        return _sketched(real, X, count, generator, ridge)
    if isinstance(real, Hypothetical):
        real.refuse_batches()
    if len(X) <= MOST_JOINT:
        return state.deviations(X, count, generator, ridge)
    if not isinstance(real, (KernelRidge, Tracked)):
        raise InvalidInput(
            f"joint draws from a {type(real).__name__} are of at most {MOST_JOINT} points, got {len(X)}: pass fewer, "
            "or draw from a posterior without imagined observations."
        )
    return torch.stack([_along_path(state, X, generator, ridge) for _ in range(int(count))])


def behind(state: Posterior) -> Posterior:
    """What a view that passes on another posterior passes on; what follows fixed points counts as itself."""
    while isinstance(state, View) and not isinstance(state, TrackedPoints) and not state.imagined:
        state = state.state
    return state


def _along_path(state: Posterior, X: Tensor, generator: torch.Generator | None, ridge: float | None) -> Tensor:
    """One draw [N] as a function."""
    path = draw_path(state, X, generator, ridge)
    size = max(1, _CHUNK.get(X.device.type, 2**19) // path.columns)
    out = X.new_empty(len(X))
    for start in range(0, len(X), size):
        out[start : start + size] = path(X[start : start + size])
    return out


def _sketched(
    real: NystromRidge | TrackedSketch, X: Tensor, count: int, generator: torch.Generator | None, ridge: float | None
) -> Tensor:
    """Draws [count N] of the features' part, jointly, and of the residual, point by point."""
    state = real.state if isinstance(real, TrackedSketch) else real
    state.check(X)
    if state.m == 0 and state.n == 0:
        state.prior_variance(X)  # before the first observation the state learns the dtype and columns of its points
    weights = sketched_weights(state, count, generator, ridge)
    normal = torch.randn(count, len(X), generator=generator, dtype=torch.float64).to(X.device)
    known = real.features(X) if isinstance(real, TrackedSketch) else None
    if known is not None:
        z, residual = known
        return (weights.mT @ z).addcmul_(residual.sqrt(), normal).to(X.dtype)
    out = X.new_empty(count, len(X))
    size = max(1, _CHUNK.get(X.device.type, 2**19) // max(1, state.m))
    for start in range(0, len(X), size):
        here = slice(start, start + size)
        z, residual = _decomposed(state.sketch.features, state.sketch.k.diagonal(X[here].double()), X[here].double())
        out[:, here] = (weights.mT @ z).addcmul_(residual.sqrt(), normal[:, here])
    return out


def _decomposed(features: Features, prior: Tensor, X: Tensor) -> tuple[Tensor, Tensor]:
    """Features [m N] of X [N d], and what they leave of the prior variance [N]."""
    z = features(X)
    return z, (prior - z.square().sum(0)).clamp_min(0)
