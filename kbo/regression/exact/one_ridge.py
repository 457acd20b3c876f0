"""The exact posterior at one ridge: a Cholesky factor that grows by one row in O(n^2).

Notation: A = K + ridge C^-1 over the rows of ``observations.py``, A = L L', W = L^-1 k(X, x), z = L^-1 y.

On paper                         | in code
``mean = k(x)'A^-1 y``           | ``z @ W``
``variance = k - k(x)'A^-1 k(x)``| ``prior - (W * W).sum(0)``
``ln det(I + K / ridge)``        | ``2 sum ln L_ii - sum ln(ridge / c)``
``y'(I + K / ridge)^-1 y``       | ``within + ridge * z'z``
"""

from __future__ import annotations

import torch
from torch import Tensor

from kbo.kernels import DenseKernel
from kbo.linalg import GrowingCholesky
from kbo.regression.exact.observations import Observations
from kbo.regression.numerics import block_of, clamped, differentiable_once, in_chunks
from kbo.regression.posterior import LowRankAnswers, Posterior
from kbo.regression.sampling import SamplePath
from kbo.stateful import Stateful, passed_on

_BLOCK = 2**20
"""Entries of k(X, x) that are evaluated at once, whatever the number of points; the peak is several times that."""


class Factor(Stateful):
    """L, z = L^-1 y and the determinant for one ridge, over the first n rows of the data."""

    def __init__(self, ridge: float, data: Observations, k: DenseKernel) -> None:
        self.ridge = ridge
        self.data = data
        self.k = k
        self.cholesky: GrowingCholesky = GrowingCholesky(data.y)

    z: Tensor = passed_on("cholesky.z")

    def grow(self) -> None:
        """Take in all rows of the data, which have no gradients."""
        data = self.data
        for start, stop in data.blocks_after(self.cholesky.n):
            new = data.X[start:stop]
            block = self.k.diagonal(new) if stop - start == 1 else self.k(new, new)
            noise = self.ridge if data.uniform else self.ridge / data.counts[start:stop]
            self.cholesky.append(self.k(data.X[:start], new), block, noise, data.y[start:stop])


class OneRidge(LowRankAnswers):
    """Answers of an exact posterior with data, from its factor, which has grown to all rows."""

    def __init__(self, state: Posterior, factor: Factor) -> None:
        super().__init__(state, factor.ridge)
        self.factor = factor
        self.data: Observations = factor.data
        self.k: DenseKernel = factor.k

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        self.state.check(X)
        size = max(1, block_of(_BLOCK, X.device) // self.data.rows)
        if X.ndim == 2:
            return in_chunks(self._moments, X, size)
        mean, variance = in_chunks(self._moments, X.reshape(-1, X.shape[-1]), size)
        return mean.reshape(X.shape[:-1]), variance.reshape(X.shape[:-1])

    def _moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        prior = self.k.diagonal(X)
        if X.requires_grad:
            mean, explained = _Moments.apply(X, self.factor)  # pyright: ignore[reportGeneralTypeIssues]
        else:
            W = self.factor.cholesky.solve(self.k(self.data.X, X))
            mean, explained = self.factor.z @ W, (W * W).sum(0)
        return mean, clamped(prior - explained, prior, self.ridge, self.data.trace)

    def factored(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the mean [... q] and W, W [... n q]: ``covariance(x, z) = k(x, z) - W(x)'W(z)``."""
        self.state.check(X)
        W = self.factor.cholesky.solve(self.k(self.data.X, X.reshape(-1, X.shape[-1])))
        mean = (self.factor.z @ W).reshape(X.shape[:-1])
        W = W.reshape(len(W), *X.shape[:-1]).movedim(0, -2)
        return mean, W, W

    def log_det(self) -> Tensor:
        return self.data.within.new_full((), self.factor.cholesky.log_det)

    def quad(self) -> Tensor:
        return self.data.within + self.ridge * self.factor.z.dot(self.factor.z)

    @torch.no_grad()
    def rss(self) -> Tensor:
        """In O(n^2): the residuals of the rows are ``ridge C^-1 A^-1 y``."""
        solved = self.factor.cholesky.solve_transposed(self.factor.z)
        return self.data.within + self.ridge**2 * (solved.square() / self.data.counts).sum()

    @torch.no_grad()
    def effective_dimension(self) -> Tensor:
        """``sum_r 1 - (ridge / c_r) [A^-1]_rr``, in O(n^3): the sum of leverages over observations."""
        identity = torch.eye(self.data.rows, dtype=self.data.X.dtype, device=self.data.X.device)
        inverse_diagonal = self.factor.cholesky.solve(identity).square().sum(0)
        return (1 - self.ridge / self.data.counts * inverse_diagonal).sum()

    @torch.no_grad()
    def draw_function(self, like: Tensor, generator: torch.Generator | None = None) -> SamplePath:
        """Matheron's rule: ``h(x) - k(x, X) A^-1 (h(X) + eps)``, h from the prior."""
        self.state.check(like)
        prior, X, k, cholesky = self.state.draw_prior(like, generator), self.data.X, self.k, self.factor.cholesky
        noise = torch.randn(len(X), generator=generator, dtype=X.dtype).to(X.device)
        noise = noise * (self.ridge / self.data.counts).sqrt()
        weights = -cholesky.solve_transposed(cholesky.solve(prior(X) + noise))
        return SamplePath(prior, lambda points: k(X, points), weights)


class _Moments(torch.autograd.Function):
    """``z'W`` and ``|W|^2`` of each of the points [q d]; the gradient of both takes one solve more."""

    @staticmethod
    def forward(ctx, X: Tensor, factor: Factor) -> tuple[Tensor, Tensor]:
        k, ctx.gradient = factor.k.with_gradient(factor.data.X, X)
        W, z, ctx.cholesky = factor.cholesky.solve(k), factor.z, factor.cholesky
        ctx.W, ctx.z = W, z  # not saved tensors: z is a part of a buffer that grows behind it
        return z @ W, (W * W).sum(0)

    @staticmethod
    @differentiable_once
    def backward(ctx, mean: Tensor, explained: Tensor):
        W, z = ctx.W, ctx.z
        return ctx.gradient(ctx.cholesky.solve_transposed(torch.outer(z, mean) + 2 * W * explained)), None
