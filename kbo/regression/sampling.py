"""Draws from a posterior, less its mean: over finite sets of points, and as functions.

Functions can be evaluated, and differentiated, anywhere. Notation: h a draw from the prior; h + update has the law of
the posterior, less its mean.

On paper                                                          | in code
``h(x) = phi(x)'e``, phi random features of the kernel            | ``draw_prior``
``h(x) - k(x, X) (K + ridge C^-1)^-1 (h(X) + eps)``                | exact: eps_i ~ N(0, ridge / c_i) (Matheron)
``z(x)'w + h(x) - z(x)'L^-1 h(Z)``, w ~ N(0, ridge M^-1)           | sketch: the residual keeps its joint law

Matheron's rule is that of Wilson et al. (2020), Sec. 3. Every draw has random features of its own, and the update is
linear in h, so the covariance of draws is that of the posterior however few features there are; more of them only bring
a draw nearer to a Gaussian one. On a sketch it is farther from that: where the dictionary explains little, the residual
of 1024 features at its anchors has heavy tails. Finite sets are drawn exactly.

A joint draw over N points needs an N x N covariance and O(N^3) work. Where that is too much:

* A sketched posterior is ``z(x)'w + r(x)`` with Gaussian feature weights w of covariance ``ridge M^-1`` and a residual
  r of covariance ``k(x, x') - z(x)'z(x')``. Draws have the joint law of the first part, which carries the data, and
  the variances of the second, drawn independently for every point. So every marginal is exactly that of the DTC
  posterior, which is all that the proofs of Thompson sampling over finite sets use (Durand et al. 2018, Sec. 6.4: each
  point within its width, a union bound over points, and one point that is optimistic often enough). The joint law of
  the residual would need an N x N matrix.
* An exact posterior is drawn as a function, which is evaluated anywhere in O(n) per point.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from botorch.sampling.pathwise.features.generators import gen_kernel_features
from gpytorch.kernels import AdditiveKernel, Kernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from kbo.errors import InvalidInput
from kbo.regression.numerics import block_of

_FEATURES = 1024
"""Random features of a draw."""

_BLOCK = 2**19
"""Features that are evaluated at once."""

Function = Callable[[Tensor], Tensor]


class SamplePath:
    """A draw less its mean, ``prior(x) + weights'basis(x)``; it stays as it is when the posterior learns.

    Args:
        prior: The draw from the prior, [N d] -> [N].
        basis: Functions that carry the data, [N d] -> [n N].
        weights: Their weights, [n].
    """

    def __init__(self, prior: Function, basis: Function, weights: Tensor) -> None:
        self._prior, self._basis, self._weights = prior, basis, weights

    def __call__(self, X: Tensor) -> Tensor:
        """Return the values [...] at X [... d]."""
        flat = X.reshape(-1, X.shape[-1]).to(self._weights.dtype)
        size = max(1, block_of(_BLOCK, X.device) // (_FEATURES + len(self._weights)))
        values = [
            self._prior(part) + self._weights @ self._basis(part) for part in flat.split(size)
        ]
        return torch.cat(values).reshape(X.shape[:-1]).to(X.dtype)


def draw_prior(kernel: Kernel, like: Tensor, generator: torch.Generator | None = None) -> Function:
    """Return a draw h of the function from the prior, [N d] -> [N], by random features.

    Args:
        kernel: An RBF or Matern kernel, on some of the columns or all, their multiples and sums.
        like: A tensor [... d].
        generator: Source of randomness, on the CPU.

    Raises:
        InvalidInput: There are no random features for the kernel.
    """
    # A scale kernel selects columns for all that it multiplies, whatever they would select alone.
    columns: Any = kernel.active_dims
    columns = None if columns is None else columns.to(like.device)
    own = like if columns is None else like[..., columns]
    scale: Tensor | float = 1.0
    while type(kernel) is ScaleKernel:
        scale, kernel = scale * kernel.outputscale.detach().to(like).sqrt(), kernel.base_kernel
    if type(kernel) is AdditiveKernel:
        parts: Any = kernel.kernels
        return _Prior(tuple(draw_prior(part, own, generator) for part in parts), scale, columns)
    if type(kernel) not in (RBFKernel, MaternKernel):
        raise InvalidInput(
            f"a {type(kernel).__name__} has no random features, so no function can be drawn for it: use an RBFKernel, "
            "a MaternKernel, a ScaleKernel of one or a sum of them, or draw over a finite set of candidates, which "
            "works with every kernel on a sketched posterior, and on an exact one for up to 2048 points."
        )
    return _Prior((_random_features(kernel, own, generator),), scale, columns)


@dataclass(frozen=True)
class PriorPath:
    """A draw from the prior at points of any batch shape, [... d] -> [...].

    Args:
        prior: The draw, [N d] -> [N].
    """

    prior: Function

    def __call__(self, X: Tensor) -> Tensor:
        """Return the values [...] at X [... d]."""
        return self.prior(X.reshape(-1, X.shape[-1])).reshape(X.shape[:-1])


@dataclass(frozen=True)
class _Prior:
    """A multiple of the sum of some draws, all of the same columns of the points; None for all columns.

    An object, like all functions that are drawn: closures could not be pickled.
    """

    terms: tuple[Function, ...]
    scale: Tensor | float
    columns: Tensor | None

    def __call__(self, X: Tensor) -> Tensor:
        if self.columns is not None:
            X = X[..., self.columns]
        values = [term(X) for term in self.terms]
        total = values[0] if len(values) == 1 else torch.stack(values).sum(0)
        return self.scale * total


@dataclass(frozen=True)
class _Features:
    """Random features of a kernel, times coefficients [_FEATURES]."""

    features: Function
    coefficients: Tensor

    def __call__(self, X: Tensor) -> Tensor:
        return self.features(X) @ self.coefficients


def _random_features(kernel: Kernel, like: Tensor, generator: torch.Generator | None) -> Function:
    """Return a draw from the prior of one stationary kernel on all columns; see ``botorch.sampling.pathwise``."""
    plain = copy.deepcopy(kernel).double().cpu().requires_grad_(False)
    plain.register_buffer("active_dims", None)
    seed = int(torch.randint(2**62, (), generator=generator, device="cpu"))
    # BoTorch draws from torch's global generator of the CPU, which stays as it is.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        features = gen_kernel_features(plain, num_inputs=like.shape[-1], num_outputs=_FEATURES)
        normal = torch.randn(_FEATURES, dtype=torch.float64, device="cpu")
    return _Features(features.to(like), normal.to(like))
