"""A draw from a posterior as a function that can be evaluated, and differentiated, anywhere.

Notation: h a draw from the prior; h + update has the law of the posterior, less its mean.

On paper                                                          | in code
``h(x) = phi(x)'e``, phi random features of the kernel            | ``draw_prior``
``h(x) - k(x, X) (K + ridge C^-1)^-1 (h(X) + eps)``                | ``_exact``: eps_i ~ N(0, ridge / c_i) (Matheron)
``z(x)'w + h(x) - z(x)'L^-1 h(Z)``, w ~ N(0, ridge M^-1)           | ``_sketched``: the residual keeps its joint law

Matheron's rule is that of Wilson et al. (2020), Sec. 3. Every path has random features of its own, and what the data
do to h is linear in h: so the covariance of paths is that of the posterior however few features there are, and more of
them only bring a path nearer to a Gaussian one. On a sketch it is farther from that: where the dictionary sees little,
the residual of 1024 features at its anchors has heavy tails. Finite sets are drawn exactly (``draws.py``).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch
from botorch.sampling.pathwise.features.generators import gen_kernel_features
from gpytorch.kernels import AdditiveKernel, Kernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from kbo.errors import InvalidInput
from kbo.kernels import freeze
from kbo.linalg import cholesky
from kbo.regression.exact.state import KernelRidge
from kbo.regression.posterior import Posterior, View
from kbo.regression.sketch.state import NystromRidge
from kbo.regression.views.hypothetical import Hypothetical

_FEATURES = 1024
"""Random features of a path."""

Function = Callable[[Tensor], Tensor]


class SamplePath:
    """A draw less its mean, ``prior(x) + weights'basis(x)``: deterministic, and it stays when the posterior learns.

    Args:
        prior: The draw from the prior, [N d] -> [N].
        basis: Functions that the data weigh, [N d] -> [n N]; None before there are data.
        weights: Their weights, [n].

    Attributes:
        columns: Numbers per point that an evaluation needs.
    """

    def __init__(self, prior: Function, basis: Function | None, weights: Tensor) -> None:
        self._prior, self._basis, self._weights = prior, basis, weights
        self.columns = _FEATURES + len(weights)

    def __call__(self, X: Tensor) -> Tensor:
        """Values [...] at X [... d]."""
        flat = X.reshape(-1, X.shape[-1]).to(self._weights.dtype)
        value = self._prior(flat)
        if self._basis is not None:
            value = value + self._weights @ self._basis(flat)
        return value.reshape(X.shape[:-1]).to(X.dtype)


@torch.no_grad()
def draw_path(
    state: Posterior, like: Tensor, generator: torch.Generator | None = None, ridge: float | None = None
) -> SamplePath:
    """A draw of the function from its Gaussian posterior, less its mean, to be evaluated anywhere.

    Args:
        state: The posterior.
        like: Any points [... d] of the dtype, device and columns of those to come.
        generator: Source of randomness, on the CPU; None for torch's global one.
        ridge: At another ridge than the state's own.

    Raises:
        InvalidInput: The kernel has no random features, or the posterior is of another kind.
    """
    ridge, real = state.ridge if ridge is None else ridge, state
    while isinstance(real, View) and not real.imagined:
        real = real.state
    if isinstance(real, Hypothetical):
        return _hypothetical(real, like, generator, ridge)
    if isinstance(real, KernelRidge):
        real.check(like)
        return _exact(real, like, generator, ridge)
    if isinstance(real, NystromRidge):
        real.check(like)
        return _sketched(real, like, generator, ridge)
    raise InvalidInput(
        "functions are drawn from a KernelRidge or a NystromRidge, tracked, with a ridge that moves or with "
        f"hypothetical data, got {type(real).__name__}: draw from the posterior behind it."
    )


def _exact(state: KernelRidge, like: Tensor, generator: torch.Generator | None, ridge: float) -> SamplePath:
    prior = draw_prior(state.kernel, like, generator)
    data = state.data
    if data is None:
        return SamplePath(prior, None, like.new_empty(0))
    X, cholesky, k = data.X, state.factor(ridge).cholesky, freeze(state.kernel, data.X)
    noise = torch.randn(len(X), generator=generator, dtype=X.dtype).to(X.device) * (ridge / data.counts).sqrt()
    weights = -cholesky.solve_transposed(cholesky.solve(prior(X) + noise))
    return SamplePath(prior, lambda points: k(X, points), weights)


def _hypothetical(view: Hypothetical, like: Tensor, generator: torch.Generator | None, ridge: float) -> SamplePath:
    """Matheron's rule once more, for imagined observations at points [p d]."""
    view.refuse_batches()
    path, P = draw_path(view.state, like, generator, ridge), view.P
    S = view.state.covariance(P, P, ridge) + ridge * torch.eye(len(P), dtype=P.dtype, device=P.device)
    noise = math.sqrt(ridge) * torch.randn(len(P), generator=generator, dtype=P.dtype).to(P.device)
    weights = -torch.cholesky_solve((path(P) + noise).unsqueeze(-1), cholesky(S)).squeeze(-1)
    return SamplePath(path, lambda X: view.state.covariance(P, X, ridge), weights)


def _sketched(state: NystromRidge, like: Tensor, generator: torch.Generator | None, ridge: float) -> SamplePath:
    like = like.double()
    prior = draw_prior(state.kernel, like, generator)
    features = state.sketch.features.fork()  # a living dictionary goes on without the path
    learned = sketched_weights(state, 1, generator, ridge)[:, 0]
    if not features.m:
        return SamplePath(prior, None, learned)
    projected = torch.linalg.solve_triangular(features.L, prior(features.anchors).unsqueeze(-1), upper=False)
    return SamplePath(prior, features, learned - projected.squeeze(-1))


def sketched_weights(
    state: NystromRidge, count: int, generator: torch.Generator | None, ridge: float | None = None
) -> Tensor:
    """Weights [m count] of the features, less their mean: draws of ``N(0, ridge M^-1)``."""
    if ridge is None or ridge == state.ridge:
        ridge, root = state.ridge, state.sketch.root.S
    else:
        values, vectors = torch.linalg.eigh(state.sketch.G)
        root = vectors / (values.clamp_min(0) + ridge).sqrt()
    normal = torch.randn(root.shape[-1], count, generator=generator, dtype=torch.float64)
    return math.sqrt(ridge) * root @ normal.to(root.device)


def draw_prior(kernel: Kernel, like: Tensor, generator: torch.Generator | None = None) -> Function:
    """A draw h of the function from the prior, [N d] -> [N], by random features.

    Args:
        kernel: An RBF or Matern kernel, on some of the columns or all, their multiples and sums.
        like: A tensor [... d].
        generator: Source of randomness, on the CPU.

    Raises:
        InvalidInput: There are no random features for the kernel.
    """
    # A scale kernel selects columns for all that it multiplies, whatever they would select alone.
    part, scale = _restricted(kernel.active_dims, like), 1.0  # pyright: ignore[reportArgumentType]
    while type(kernel) is ScaleKernel:
        scale, kernel = scale * kernel.outputscale.detach().to(like).sqrt(), kernel.base_kernel
    if type(kernel) is AdditiveKernel:
        terms = [draw_prior(term, part(like), generator) for term in kernel.kernels]  # pyright: ignore[reportArgumentType]
        return lambda X: scale * torch.stack([term(part(X)) for term in terms]).sum(0)
    if type(kernel) not in (RBFKernel, MaternKernel):
        raise InvalidInput(
            f"a {type(kernel).__name__} has no random features, so no function can be drawn for it: use an RBFKernel, "
            "a MaternKernel, a ScaleKernel of one or a sum of them, or draw over a finite set of candidates, which "
            "works with every kernel on a sketched posterior, and on an exact one for up to 2048 points."
        )
    features = _random_features(kernel, part(like), generator)
    return lambda X: scale * features(part(X))


def _restricted(columns: Tensor | None, like: Tensor) -> Function:
    """The columns on which a kernel acts."""
    if columns is None:
        return lambda X: X
    columns = columns.to(like.device)
    return lambda X: X[..., columns]


def _random_features(kernel: Kernel, like: Tensor, generator: torch.Generator | None) -> Function:
    """The same for one stationary kernel on all columns; see ``botorch.sampling.pathwise``."""
    plain = copy.deepcopy(kernel).double().cpu().requires_grad_(False)
    plain.register_buffer("active_dims", None)
    seed = int(torch.randint(2**62, (), generator=generator))
    # BoTorch draws from torch's global generator of the CPU, which stays as it is.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        features = gen_kernel_features(plain, num_inputs=like.shape[-1], num_outputs=_FEATURES)
        normal = torch.randn(_FEATURES, dtype=torch.float64)
    features, coefficients = features.to(like), normal.to(like)
    return lambda X: features(X) @ coefficients
