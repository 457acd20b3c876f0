"""A posterior outside kbo, which docs/extending.md shows and explains: Bayesian linear regression on given features."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from kbo import checks
from kbo.regression import Answers, Posterior

Features = Callable[[Tensor], Tensor]


class LinearAnswers(Answers):
    """Answers at one ridge, from the Cholesky factor of ``F'F + ridge I`` [p p]."""

    state: BayesianLinear

    def __init__(self, state: BayesianLinear, ridge: float) -> None:
        super().__init__(state, ridge)
        identity = torch.eye(len(state.gram), dtype=state.dtype, device=state.device)
        self.factor = torch.linalg.cholesky(state.gram + ridge * identity)
        self.weights = torch.cholesky_solve(state.moment.unsqueeze(-1), self.factor).squeeze(-1)

    def _whitened(self, X: Tensor) -> Tensor:
        """``sqrt(ridge) L^-1 phi(x)`` [... d p], whose inner products are posterior covariances."""
        self.state.check(X)
        solved = torch.linalg.solve_triangular(self.factor, self.state.features(X).mT, upper=False)
        return self.ridge**0.5 * solved.mT

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance [...] at X [... d]."""
        whitened = self._whitened(X.reshape(-1, X.shape[-1]))
        mean = self.state.features(X) @ self.weights
        return mean, whitened.square().sum(-1).reshape(mean.shape)

    def covariance(self, X: Tensor, Z: Tensor) -> Tensor:
        """Return the posterior covariance [... a b] of X [... a d] and Z [... b d]."""
        return self._whitened(X) @ self._whitened(Z).mT

    def log_det(self) -> Tensor:
        """Return ``ln det(I + F'F / ridge)``, which equals ``ln det(I + K / ridge)``."""
        return 2 * (self.factor.diagonal() / self.ridge**0.5).log().sum()

    def quad(self) -> Tensor:
        """Return ``y'(I + K / ridge)^-1 y = |y - F w|^2 + ridge |w|^2``."""
        return self.rss() + self.ridge * self.weights.square().sum()

    def rss(self) -> Tensor:
        """Return ``|y - F w|^2``."""
        fitted = self.state.gram @ self.weights
        return (self.state.energy - 2 * self.weights @ self.state.moment + self.weights @ fitted).clamp_min(0)

    def effective_dimension(self) -> Tensor:
        """Return ``Tr F'F (F'F + ridge I)^-1``."""
        return torch.cholesky_solve(self.state.gram, self.factor).trace()


class BayesianLinear(Posterior):
    """Bayesian linear regression on p features: the posterior of the kernel ``phi(x)'phi(z)``, O(p^2) a row.

    Args:
        features: phi, from points [... d] to features [... p].
        ridge: The regulariser, which is the noise variance for weights of prior variance 1.
        like: Any points [1 d] of the dtype, device and columns of those to come.
    """

    saved = ("ridge", "ridge_moved", "count", "gram", "moment", "energy")

    def __init__(self, features: Features, ridge: float, like: Tensor) -> None:
        p = features(like).shape[-1]
        self.features, self.like, self.count = features, like[:0], 0
        self.gram, self.moment, self.energy = like.new_zeros(p, p), like.new_zeros(p), like.new_zeros(())
        super().__init__(ridge)

    n = property(lambda self: self.count)
    dimension = property(lambda self: self.like.shape[-1])
    dtype = property(lambda self: self.like.dtype)
    device = property(lambda self: self.like.device)
    trace = property(lambda self: self.gram.trace())
    least_ridge = property(lambda self: 1e-12 * (float(self.trace) or 1.0))

    def prior(self, X: Tensor, Z: Tensor) -> Tensor:
        """Return ``phi(x)'phi(z)`` [... a b]."""
        return self.features(X) @ self.features(Z).mT

    def prior_variance(self, X: Tensor) -> Tensor:
        """Return ``|phi(x)|^2`` [...]."""
        return self.features(X).square().sum(-1)

    def update(self, X: Tensor, y: Tensor) -> None:
        """Add observations X [r d], y [r] in place."""
        checks.observations(X, y, self.like, self.dimension)
        F = self.features(X.detach())
        self.gram, self.moment = self.gram + F.mT @ F, self.moment + F.mT @ y.detach()
        self.energy, self.count = self.energy + y.detach().square().sum(), self.count + len(y)
        self.changed()

    def at(self, ridge: float | None = None) -> Answers:
        """Return the answers at one ridge."""
        return LinearAnswers(self, self.ridge if ridge is None else ridge)
