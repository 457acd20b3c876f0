"""A posterior outside kbo: Bayesian linear regression on explicit features."""

from collections.abc import Callable

import torch
from torch import Tensor

from kbo.regression import Posterior, PosteriorAt, clamped

Function = Callable[[Tensor], Tensor]


class LinearRegression(Posterior):
    """``f(x) = features(x)'w`` with w ~ N(0, I): the posterior of the kernel ``k(x, z) = features(x)'features(z)``.

    The observations are kept as the triangular factor R of ``[F y]``, where F has the features of the points as rows.

    Args:
        features: Maps points [... d] to features [... p].
        ridge: The regulariser = the variance of the noise.
    """

    n = 0
    trace = 0.0

    def __init__(self, features: Function, ridge: float) -> None:
        super().__init__(ridge)
        self.features = features
        self.R = self.like

    def prior(self, X: Tensor, Z: Tensor) -> Tensor:
        return self.features(X) @ self.features(Z).mT

    def prior_variance(self, X: Tensor) -> Tensor:
        return self.features(X).square().sum(-1)

    @torch.no_grad()
    def update(self, X: Tensor, y: Tensor, weights: Tensor | None = None) -> None:
        self.check_data(X, y, weights)
        if len(X) == 0:
            return
        w = torch.ones_like(y) if weights is None else weights
        new_rows = w.sqrt().unsqueeze(-1) * torch.cat([self.features(X), y.unsqueeze(-1)], -1)
        rows = torch.cat([self.R, new_rows]) if self.n else new_rows
        self.R = torch.linalg.qr(rows, mode="r").R
        self.like = X[:0].clone()
        self.n += len(X)
        self.trace += float(w @ self.prior_variance(X))
        if weights is not None:
            self.note(weighted=True)
        self.changed()

    def compute_at(self, ridge: float) -> PosteriorAt:
        return LinearAt(self, ridge)

    def draw_prior(self, like: Tensor, generator: torch.Generator | None = None) -> Function:
        p = self.features(like).shape[-1]
        w = torch.randn(p, generator=generator, dtype=like.dtype).to(like.device)
        return lambda X: self.features(X) @ w


class LinearAt(PosteriorAt):
    """With ``F = Q diag(s) V`` and ``z = Q'y``, every number is a sum of squares with weights ``1 / (s^2 + ridge)``."""

    state: LinearRegression

    def __init__(self, state: LinearRegression, ridge: float) -> None:
        super().__init__(state, ridge)
        F = state.R[:, :-1]
        y = state.R[:, -1]
        Q, self.s, self.V = torch.linalg.svd(F, full_matrices=False)
        self.z = Q.mT @ y
        self.unexplained = (y - Q @ self.z).square().sum()
        self.weights = 1 / (self.s.square() + ridge)

    def shrunk(self, features: Tensor) -> Tensor:
        """Features [... p] times ``ridge^1/2 (F'F + ridge I)^-1/2``."""
        shrink = (self.ridge * self.weights).sqrt()
        return features + ((shrink - 1) * (features @ self.V.mT)) @ self.V

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        self.state.check(X)
        features = self.state.features(X)
        mean = features @ (self.V.mT @ (self.weights * self.s * self.z))
        variance = self.shrunk(features).square().sum(-1)
        prior = features.square().sum(-1)
        return mean, clamped(variance, prior, self.ridge, self.state.trace)

    def covariance(self, X: Tensor, Z: Tensor) -> Tensor:
        self.state.check(X)
        self.state.check(Z)
        return self.shrunk(self.state.features(X)) @ self.shrunk(self.state.features(Z)).mT

    def log_det(self) -> Tensor:
        return torch.log1p(self.s.square() / self.ridge).sum()

    def quad(self) -> Tensor:
        return self.unexplained + self.ridge * (self.weights * self.z.square()).sum()

    def rss(self) -> Tensor:
        return self.unexplained + self.ridge**2 * (self.weights * self.z).square().sum()

    def effective_dimension(self) -> Tensor:
        return (self.weights * self.s.square()).sum()

    def compute_drawn_function(self, like: Tensor, generator: torch.Generator | None) -> Function:
        p = self.V.shape[-1]
        normal = torch.randn(p, generator=generator, dtype=self.V.dtype).to(self.V.device)
        w = self.shrunk(normal)
        return lambda X: self.state.features(X) @ w
