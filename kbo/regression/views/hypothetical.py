"""A posterior with a few more observations, as a differentiable, batched view of another.

With P the hypothetical points, w their weights, S = cov(P, P) + ridge diag(1 / w) and c(x) = cov(x, P), all under the
posterior of the observed data, block elimination gives the posterior of observed and hypothetical data together:

    mean'(x) = mean(x) + c(x)'S^-1 (y_P - mean(P)),      cov'(x, z) = cov(x, z) - c(x)'S^-1 c(z).

One view serves pending points, joint batches and fantasies. Without targets the mean stays and only the variance
shrinks (hallucination: GP-BUCB, Desautels, Krause & Burdick 2014).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from kbo import checks
from kbo.errors import InvalidInput
from kbo.linalg import cholesky
from kbo.regression.all_ridges import AllRidges, Moments
from kbo.regression.numerics import clamped
from kbo.regression.posterior import Answers, Posterior
from kbo.regression.provenance import Provenance
from kbo.regression.sampling import SamplePath
from kbo.regression.views.view import View, ViewAnswers

_MOST_FACTORED = 8
"""Ridges at each of which the underlying posterior is asked for a factor of its own."""


class Hypothetical(View):
    """``state`` with hypothetical observations at P, differentiable in P, targets and points.

    ``n``, ``log_det`` and ``quad`` remain those of the observed data: a bound on this view keeps the width that the
    observed data justify, with a variance that includes P. It is a rule for choosing batches; no theorem covers
    the bound itself.

    Args:
        state: The posterior of the observed data.
        P: Hypothetical points [... p d].
        targets: Their targets [... p], or None to hallucinate the mean.
        weights: Their weights [... p], as in ``update``; ones if omitted.
    """

    def __init__(
        self, state: Posterior, P: Tensor, targets: Tensor | None = None, weights: Tensor | None = None
    ) -> None:
        super().__init__(state)
        state.check(P, "P")
        checks.points("P", P)
        if P.ndim < 2:
            raise InvalidInput(f"P must have shape [... p d], got {tuple(P.shape)}.")
        for name, values in (("targets", targets), ("weights", weights)):
            if values is None:
                continue
            if (shape := checks.tensor(name, values).shape)[-1:] != P.shape[-2:-1]:
                raise InvalidInput(
                    f"{name} must have shape [... {P.shape[-2]}], one for each row of P, got {tuple(shape)}."
                )
            checks.points(name, values.unsqueeze(-1), P)
        if weights is None:
            weights = P.new_ones(P.shape[-2])
        elif (weights <= 0).any():
            raise InvalidInput("weights must be above 0: leave out a point that is to count nothing.")
        self.P = P.clone()
        self.targets: Tensor | None = None if targets is None else targets.clone()
        self.weights: Tensor = weights.detach().clone()

    @property
    def provenance(self) -> Provenance:
        return replace(self.state.provenance, hypothetical=True)

    kept: tuple[tuple[int, float], tuple[Tensor, Tensor]] | None = None  # version and ridge of a factor, and it

    def fork_frozen(self) -> Posterior:
        return Hypothetical(self.state.fork_frozen(), self.P, self.targets, self.weights)

    def at(self, ridge: float | None = None) -> Answers:
        return _ConditionedAnswers(self, self.state.at(ridge))

    def all_ridges(self, X: Tensor | None = None) -> AllRidges:
        """Return the answers at any ridges, for groups X [... q g d]; the batch shape before q broadcasts with P's."""
        if X is None:
            return self.state.all_ridges()
        P, targets, weights = self.P.unsqueeze(-3), self.targets, self.weights.unsqueeze(-2)
        batch = torch.broadcast_shapes(X.shape[:-2], P.shape[:-2])
        P, X = (part.expand(*batch, *part.shape[-2:]).flatten(0, -3) for part in (P, X))
        if targets is not None:
            targets = targets.unsqueeze(-2).expand(*batch, -1).flatten(0, -2)
        return _ConditionedRidges(self, X, P, weights.expand(*batch, -1).flatten(0, -2), targets)

    @property
    def batched(self) -> bool:
        """Whether there is more than one set of hypothetical data."""
        return self.P.ndim != 2 or self.weights.ndim != 1 or (self.targets is not None and self.targets.ndim != 1)


class _ConditionedAnswers(ViewAnswers):
    """Answers of the observed data, conditioned on P."""

    state: Hypothetical

    def __init__(self, view: Hypothetical, inner: Answers) -> None:
        super().__init__(view, inner)
        self.P, self.targets, self.weights = view.P, view.targets, view.weights

    @cached_property
    def _factor(self) -> tuple[Tensor, Tensor]:
        """The factor L [... p p] of S, and the trace of cov(P, P) with weights [...]; kept if it is constant."""
        key = self.state.version, self.ridge
        if self.state.kept is None or self.state.kept[0] != key:
            factor = _factor_of(self.inner.covariance(self.P, self.P), self.ridge, self.weights)
            if factor[0].requires_grad or not torch.is_grad_enabled():  # without gradients it is not known
                return factor
            self.state.kept = key, factor
        return self.state.kept[1]

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """At X [... q d], whose batch shape broadcasts with that of P."""
        mean, variance = self.inner.predict(X)
        A = self._whitened(X)
        reduced = clamped(variance - A.square().sum(-2), variance, self.ridge, self._factor[1].unsqueeze(-1))
        mean = self._shifted(mean, A)
        return mean.expand(torch.broadcast_shapes(mean.shape, reduced.shape)), reduced

    def covariance(self, X: Tensor, Z: Tensor) -> Tensor:
        return self.inner.covariance(X, Z) - self._whitened(X).mT @ self._whitened(Z)

    def factored(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, U, V = self.inner.factored(X)
        A = self._whitened(X)
        U, V = (side.expand(*A.shape[:-2], *side.shape[-2:]) for side in (U, V))
        return self._shifted(mean, A), torch.cat([U, A], -2), torch.cat([V, A], -2)

    def _shifted(self, mean: Tensor, A: Tensor) -> Tensor:
        """``mean + c(x)'S^-1 (y_P - mean(P))``, given ``A = L^-1 c(X)``."""
        if self.targets is None:
            return mean
        misfit = (self.targets - self.inner.predict(self.P)[0]).unsqueeze(-1)
        return mean + (A.mT @ torch.linalg.solve_triangular(self._factor[0], misfit, upper=False)).squeeze(-1)

    def _whitened(self, X: Tensor) -> Tensor:
        """``L^-1 cov(P, X)`` [... p q], for points that the answers of the observed data have checked."""
        if self.P.ndim == 2:  # one P for the whole batch: solve for it once
            columns = self.inner.covariance(self.P, X.reshape(-1, X.shape[-1]))
            cross = columns.reshape(len(self.P), *X.shape[:-1]).movedim(0, -2)
        else:
            batch = torch.broadcast_shapes(X.shape[:-2], self.P.shape[:-2])
            P, Z = self.P.expand(*batch, *self.P.shape[-2:]), X.expand(*batch, *X.shape[-2:])
            cross = self.inner.covariance(P, Z)
        return torch.linalg.solve_triangular(self._factor[0], cross, upper=False)

    def _draw(self, X: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
        self._refuse_batches()
        return Answers._draw(self, X, count, generator)

    @torch.no_grad()
    def _draw_function(self, like: Tensor, generator: torch.Generator | None) -> SamplePath:
        """Matheron's rule once more, for hypothetical observations at points [p d]."""
        self._refuse_batches()
        inner, P = self.state.state.fork().at(self.ridge), self.P  # of a fork: the draw stays when the state learns
        path = inner.draw_function(like, generator)
        normal = torch.randn(len(P), generator=generator, dtype=P.dtype, device="cpu").to(P.device)
        noise = math.sqrt(self.ridge) * normal * self.weights.rsqrt()
        weights = -torch.cholesky_solve((path(P) + noise).unsqueeze(-1), self._factor[0]).squeeze(-1)
        return SamplePath(path, lambda X: inner.covariance(P, X), weights)

    def _refuse_batches(self) -> None:
        if self.state.batched:
            raise InvalidInput("nothing is drawn from batches of hypothetical data (fantasies): pass one model.")


class _ConditionedRidges(AllRidges):
    """Groups X [B g d] at any ridges, conditioned on P [B p d] with weights [B p], and targets [B p] or None."""

    def __init__(self, view: Hypothetical, X: Tensor, P: Tensor, weights: Tensor, targets: Tensor | None) -> None:
        super().__init__(view, X)
        self.P, self.weights, self.targets, self._with_graph = P, weights, targets, torch.is_grad_enabled()
        numbers = view.all_ridges()
        self.log_det, self.quad, self.rss = numbers.log_det, numbers.quad, numbers.rss

    @cached_property
    def joint(self) -> AllRidges:
        """The groups behind their hypothetical points, under the posterior of the observed data."""
        with torch.set_grad_enabled(self._with_graph):  # the first to need it may be a search without gradients
            return self.state.state.all_ridges(torch.cat([self.P, self._groups], -2))

    def at(self, ridges: Tensor) -> Moments:
        return self._conditioned(self.joint.at(ridges), ridges)

    def grid(self, ridges: Sequence[float]) -> Moments:
        X = self._groups
        if self.state.batched or X.shape[-2] > 1 or len(ridges) > _MOST_FACTORED:
            return self._conditioned(self.joint.grid(ridges), X.new_tensor(ridges).unsqueeze(-1))
        # One P for all points is eliminated once at each ridge, where the groups have a copy of it each.
        mean, variance = zip(*(self.state.at(ridge).predict(X.squeeze(-2)) for ridge in ridges), strict=True)
        quad = self.quad(ridges).unsqueeze(-1)
        return Moments(torch.stack(mean).unsqueeze(-1), torch.stack(variance)[..., None, None], quad)

    def select(self, groups: Tensor) -> AllRidges:
        targets = None if self.targets is None else self.targets[groups]
        some = _ConditionedRidges(self.state, self._groups[groups], self.P[groups], self.weights[groups], targets)
        if "joint" in vars(self):
            some.joint = self.joint.select(groups)
        return some

    def _conditioned(self, joint: Moments, ridges: Tensor) -> Moments:
        p, mean, covariance = self.weights.shape[-1], joint.mean, joint.covariance
        ridges = ridges.to(covariance).unsqueeze(-1).unsqueeze(-1)
        known, cross, rest = covariance[..., :p, :p], covariance[..., :p, p:], covariance[..., p:, p:]
        L, trace = _factor_of(known, ridges, self.weights)
        A = torch.linalg.solve_triangular(L, cross, upper=False)
        reduced = rest - A.mT @ A
        if reduced.shape[-1] == 1:
            reduced = clamped(reduced, rest, ridges, trace.unsqueeze(-1).unsqueeze(-1))
        shifted = mean[..., p:]
        if self.targets is not None:
            misfit = torch.linalg.solve_triangular(L, (self.targets - mean[..., :p]).unsqueeze(-1), upper=False)
            shifted = shifted + (A.mT @ misfit).squeeze(-1)
        return Moments(shifted, reduced, joint.quad)


def _factor_of(covariance: Tensor, ridge: float | Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return the factor of ``covariance + ridge diag(1 / weights)`` [... p p], and ``sum_i weights_i cov_ii`` [...]."""
    trace = (weights * covariance.diagonal(dim1=-2, dim2=-1)).sum(-1).detach()
    return cholesky(covariance + ridge * (1 / weights).diag_embed()), trace
