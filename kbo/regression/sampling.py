"""Draws from a posterior, less its mean: over finite sets of points, and as functions.

A drawn function can be evaluated, and differentiated, anywhere. Notation: h is a draw from the
prior. A draw of the posterior, less its mean, is h plus an update by the data.

On paper                                             | in code
``h(x) = phi(x)'e``, phi random features              | ``draw_prior``
``h(x) - k(x, X) (K + ridge C^-1)^-1 (h(X) + eps)``  | ``exact.kernel_ridge.ExactAt``
``z(x)'w + h(x) - z(x)'L^-1 h(Z)``                   | ``sketch.nystrom.NystromAt``

with eps_i ~ N(0, ridge / c_i) and w ~ N(0, ridge M^-1). The second line is Matheron's rule (Wilson
et al. 2020, Sec. 3). Every draw has its own random features, and the update is linear in h. So
drawn functions have exactly the covariance of the posterior, for any number of features. Their law
is only nearly Gaussian: the more features, the nearer. On a sketch whose dictionary explains little
it has heavy tails. Draws over finite sets are Gaussian.

A joint draw over N points needs an N x N covariance and O(N^3) work. Where that is too much:

* A sketched posterior is ``z(x)'w + r(x)`` with Gaussian feature weights w of covariance ``ridge
  M^-1`` and a residual r of covariance ``k(x, x') - z(x)'z(x')``. The first part, which carries the
  data, is drawn jointly; the second is drawn independently for every point, with the right
  variance. So every marginal is exactly that of the DTC posterior. The proofs of Thompson sampling
  over finite sets use only the marginals (Durand et al. 2018, Sec. 6.4).
* An exact posterior is drawn as a function, at O(n) per point.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor
from torch.distributions import Gamma

from kbo._base.quasirandom import sobol
from kbo.errors import InvalidInput
from kbo.regression.numerics import block_of

_FEATURES = 1024
"""Number of random features of a draw."""

_BLOCK = 2**19
"""Number of feature values that are computed at once."""

Function = Callable[[Tensor], Tensor]
"""Values [...] at points [... d]. Drawn functions are objects, because closures cannot be pickled."""


@torch.no_grad()
def joint_draws(covariance: Tensor, count: int, generator: torch.Generator | None = None) -> Tensor:
    """Return draws [count N] with mean zero and covariance [N N].

    They are products with the symmetric root of the covariance, which is unique. Eigenvectors are
    not: their signs depend on the device. Negative eigenvalues, which rounding causes, are set to
    zero.
    """
    values, vectors = torch.linalg.eigh(covariance)
    shape = (count, len(covariance))
    normal = torch.randn(shape, generator=generator, dtype=covariance.dtype, device="cpu")
    in_eigenbasis = normal.to(covariance.device) @ vectors
    return (in_eigenbasis * values.clamp_min(0).sqrt()) @ vectors.mT


class SamplePath:
    """A draw of the posterior less its mean, ``prior(x) + weights'basis(x)``.

    Later data do not change it.

    Args:
        prior: The draw from the prior, [... d] -> [...].
        basis: Functions that carry the data, [N d] -> [n N].
        weights: Their weights, [n].
    """

    def __init__(self, prior: Function, basis: Function, weights: Tensor) -> None:
        self._prior = prior
        self._basis = basis
        self._weights = weights

    def __call__(self, X: Tensor) -> Tensor:
        """Return the values [...] at X [... d]."""
        points = X.reshape(-1, X.shape[-1]).to(self._weights.dtype)
        size = max(1, block_of(_BLOCK, X.device) // (_FEATURES + len(self._weights)))
        values = [self._prior(Z) + self._weights @ self._basis(Z) for Z in points.split(size)]
        return torch.cat(values).reshape(X.shape[:-1]).to(X.dtype)


def draw_prior(kernel: Kernel, like: Tensor, generator: torch.Generator | None = None) -> Function:
    """Return a draw h of the function from the prior, [... d] -> [...], by random features.

    Args:
        kernel: An RBF or Matern kernel, on some or all columns, or multiples and sums of these.
        like: A tensor [... d] of the dtype and device of the points.
        generator: Source of randomness, on the CPU.

    Raises:
        InvalidInput: There are no random features for the kernel.
    """
    # The columns of a scale kernel replace those of its base kernel.
    columns: Any = kernel.active_dims
    if columns is not None:
        columns = columns.to(like.device)
        like = like[..., columns]
    scale: Tensor | float = 1.0
    while type(kernel) is ScaleKernel:
        scale = scale * kernel.outputscale.detach().to(like).sqrt()
        kernel = kernel.base_kernel
    if type(kernel) is AdditiveKernel:
        kernels: Any = kernel.kernels
        terms = tuple(draw_prior(term, like, generator) for term in kernels)
        return _Sum(terms, scale, columns)
    if type(kernel) not in (RBFKernel, MaternKernel):
        raise InvalidInput(
            f"a {type(kernel).__name__} has no random features, so no function can be drawn for "
            "it: use an RBFKernel, a MaternKernel, a ScaleKernel of one or a sum of them, or draw "
            "over a finite set of candidates, which works with every kernel on a sketched "
            "posterior, and on an exact one for up to 2048 points."
        )
    return _Sum((_draw_stationary(kernel, like, generator),), scale, columns)


@dataclass(frozen=True)
class _Sum:
    """A multiple of a sum of draws, which read the same columns of the points (None for all)."""

    terms: tuple[Function, ...]
    scale: Tensor | float
    columns: Tensor | None

    def __call__(self, X: Tensor) -> Tensor:
        if self.columns is not None:
            X = X[..., self.columns]
        values = torch.stack([term(X) for term in self.terms])
        return self.scale * values.sum(0)


@dataclass(frozen=True)
class _FourierSeries:
    """The function ``sum_i a_i sin(v_i'x) + b_i cos(v_i'x)``.

    Frequencies v are [_FEATURES/2 d], coefficients (a, b) [_FEATURES].
    """

    frequencies: Tensor
    coefficients: Tensor

    def __call__(self, X: Tensor) -> Tensor:
        phases = X @ self.frequencies.mT
        return torch.cat([phases.sin(), phases.cos()], -1) @ self.coefficients


def _draw_stationary(kernel: Any, like: Tensor, generator: torch.Generator | None) -> Function:
    """Return a draw from the prior of an RBF or Matern kernel on all columns.

    The features are random Fourier features (Rahimi & Recht 2007), sines and cosines in pairs
    (Sutherland & Schneider 2015). Their frequencies have the spectral density of the kernel: normal
    for an RBF kernel, Student's t with 2 nu degrees of freedom for a Matern kernel. The normal
    numbers are from a scrambled Sobol sequence.
    """
    n_frequencies = _FEATURES // 2
    lengthscale = kernel.lengthscale.detach().double().cpu()  # [1 1] or [1 d]
    seed = int(torch.randint(2**62, (), generator=generator, device="cpu"))
    # Scrambling and gamma variables use torch's global generator; fork_rng restores it afterwards.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        uniform = sobol(n_frequencies, like.shape[-1], seed=None)
        inside = (1 - torch.finfo(torch.float64).eps) * (2 * uniform - 1)
        frequencies = torch.erfinv(inside) * math.sqrt(2)
        if isinstance(kernel, MaternKernel):
            nu = torch.tensor(kernel.nu, dtype=torch.float64, device="cpu")
            frequencies = frequencies * Gamma(nu, nu).rsample((n_frequencies, 1)).rsqrt()
        coefficients = torch.randn(_FEATURES, dtype=torch.float64, device="cpu")
    amplitude = math.sqrt(2 / _FEATURES)
    return _FourierSeries((frequencies / lengthscale).to(like), (amplitude * coefficients).to(like))
