"""A posterior with a few more observations, as a differentiable, batched view of another.

With P the hypothetical points, S = cov(P, P) + ridge I and c(x) = cov(x, P), all under the posterior of the
real data, block elimination gives the posterior of the real and the hypothetical data together:

    mean'(x) = mean(x) + c(x)'S^-1 (y_P - mean(P)),      cov'(x, z) = cov(x, z) - c(x)'S^-1 c(z).

One view serves pending points, joint batches and fantasies. Without targets it hallucinates: the
mean stays, only the variance shrinks (GP-BUCB, Desautels, Krause & Burdick 2014).
"""

from __future__ import annotations

import torch
from torch import Tensor

from kbo.errors import InvalidInput
from kbo.linalg import cholesky
from kbo.regression.posterior import Posterior, Ridge, View, as_ridges, floored
from kbo.regression.ridge_path import Moments, RidgePath


class Hypothetical(View):
    """``state`` with hypothetical observations at P, differentiable in P, targets and points.

    ``n``, ``log_det`` and ``quad`` remain those of the real data: a bound on this view keeps the width that
    the real data justify, with a variance that also knows of P. It is a rule for choosing batches;
    no theorem covers the bound itself.

    Args:
        state: The posterior of the real data.
        P: Hypothetical points [... p d].
        targets: Their targets [... p], or None to hallucinate the mean.
    """

    def __init__(self, state: Posterior, P: Tensor, targets: Tensor | None = None) -> None:
        super().__init__(state)
        self.imagined = True
        self.P, self.targets = P, targets

    def refuse_batches(self) -> None:
        """Raise InvalidInput unless P is one set of points [p d] with one set of targets [p]."""
        if self.P.ndim != 2 or (self.targets is not None and self.targets.ndim != 1):
            raise InvalidInput("nothing is drawn from batches of hypothetical data (fantasies): pass one model.")

    def predict(self, X: Tensor, ridge: Ridge = None) -> tuple[Tensor, Tensor]:
        """Mean and variance [... q] at X [... q d], whose batch shape broadcasts with that of P."""
        ridges, single = as_ridges(self.ridge if ridge is None else ridge)
        means, variances = zip(*(self._predict(X, r) for r in ridges), strict=True)
        if single:
            return means[0], variances[0]
        return torch.stack(means), torch.stack(variances)

    def _predict(self, X: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
        mean, variance = self.state.predict(X, ridge)
        L, trace = self._schur_factor(ridge)
        A = self._whitened(X, ridge, L)
        reduced = floored(variance - A.square().sum(-2), variance, ridge, trace.unsqueeze(-1))
        if self.targets is not None:
            residual = (self.targets - self.state.predict(self.P, ridge)[0]).unsqueeze(-1)
            shift = (A.mT @ torch.linalg.solve_triangular(L, residual, upper=False)).squeeze(-1)
            mean = mean + shift
        return mean.expand(torch.broadcast_shapes(mean.shape, reduced.shape)), reduced

    def ridge_path(self, X: Tensor) -> RidgePath:
        """The path of groups X [... q g d], the batch shape before q broadcasting with that of P."""
        P = self.P.unsqueeze(-3)
        batch = torch.broadcast_shapes(X.shape[:-2], P.shape[:-2])
        P, X = P.expand(*batch, *P.shape[-2:]), X.expand(*batch, *X.shape[-2:])
        targets = None if self.targets is None else self.targets.unsqueeze(-2).expand(*batch, -1).flatten(0, -2)
        return _ConditionedPath(self.state.ridge_path(torch.cat([P, X], -2)), P.shape[-2], targets)

    def covariance(self, X: Tensor, Z: Tensor, ridge: Ridge = None) -> Tensor:  # noqa: D102
        ridges, single = as_ridges(self.ridge if ridge is None else ridge)
        out = torch.stack([self._covariance(X, Z, r) for r in ridges])
        return out[0] if single else out

    def _covariance(self, X: Tensor, Z: Tensor, ridge: float) -> Tensor:
        L, _ = self._schur_factor(ridge)
        A, B = self._whitened(X, ridge, L), self._whitened(Z, ridge, L)
        return self.state.covariance(X, Z, ridge) - A.mT @ B

    def _schur_factor(self, ridge: float) -> tuple[Tensor, Tensor]:
        """The factor of S, and the trace of cov(P, P)."""
        S = self.state.covariance(self.P, self.P, ridge)
        trace = S.diagonal(dim1=-2, dim2=-1).sum(-1).detach()
        return cholesky(S + ridge * torch.eye(S.shape[-1], dtype=S.dtype, device=S.device)), trace

    def _whitened(self, X: Tensor, ridge: float, L: Tensor) -> Tensor:
        """``L^-1 cov(P, X)`` [... p q]."""
        if self.P.ndim == 2:  # one P for the whole batch: solve for it once
            columns = self.state.covariance(self.P, X.reshape(-1, X.shape[-1]), ridge)
            cross = columns.reshape(len(self.P), *X.shape[:-1]).movedim(0, -2)
        else:
            batch = torch.broadcast_shapes(X.shape[:-2], self.P.shape[:-2])
            P, Z = self.P.expand(*batch, *self.P.shape[-2:]), X.expand(*batch, *X.shape[-2:])
            cross = self.state.covariance(P, Z, ridge)
        return torch.linalg.solve_triangular(L, cross, upper=False)


class _ConditionedPath(RidgePath):
    """The path of groups whose first p points were observed hypothetically.

    Args:
        joint: The path of the groups with those points.
        p: Their number.
        targets: Their targets [B p], or None to hallucinate the mean.
    """

    def __init__(self, joint: RidgePath, p: int, targets: Tensor | None) -> None:
        self.joint, self.p, self.targets = joint, p, targets

    def at(self, ridges: Tensor) -> Moments:
        return self._conditioned(self.joint.at(ridges), ridges)

    def grid(self, ridges: Tensor) -> Moments:
        return self._conditioned(self.joint.grid(ridges), ridges.unsqueeze(-1))

    def select(self, groups: Tensor) -> _ConditionedPath:
        return _ConditionedPath(
            self.joint.select(groups), self.p, None if self.targets is None else self.targets[groups]
        )

    def _conditioned(self, joint: Moments, ridges: Tensor) -> Moments:
        p, mean, covariance = self.p, joint.mean, joint.covariance
        noise = ridges.unsqueeze(-1).unsqueeze(-1) * torch.eye(p, dtype=mean.dtype, device=mean.device)
        known = covariance[..., :p, :p]
        L = cholesky(known + noise)
        A = torch.linalg.solve_triangular(L, covariance[..., :p, p:], upper=False)
        rest = covariance[..., p:, p:]
        reduced = rest - A.mT @ A
        if reduced.shape[-1] == 1:
            trace = known.diagonal(dim1=-2, dim2=-1).sum(-1).detach().unsqueeze(-1).unsqueeze(-1)
            reduced = floored(reduced, rest, ridges.unsqueeze(-1).unsqueeze(-1), trace)
        shifted = mean[..., p:]
        if self.targets is not None:
            residual = torch.linalg.solve_triangular(L, (self.targets - mean[..., :p]).unsqueeze(-1), upper=False)
            shifted = shifted + (A.mT @ residual).squeeze(-1)
        return Moments(shifted, reduced, joint.quad)
