"""A posterior with a few more observations, as a differentiable, batched view of another.

With P the hypothetical points, w their weights, S = cov(P, P) + ridge diag(1 / w) and c(x) = cov(x, P), all under the
posterior of the observed data, block elimination gives the posterior of observed and hypothetical data together:

    mean'(x) = mean(x) + c(x)'S^-1 (y_P - mean(P)),      cov'(x, z) = cov(x, z) - c(x)'S^-1 c(z).

One view serves pending points, joint batches and fantasies. Without targets the mean stays and only the variance
shrinks (hallucination: GP-BUCB, Desautels, Krause & Burdick 2014).

Batches are broadcast in one place, the constructor of the view: a view of batches takes over the points of a batched
view below it, so that the posterior below is never batched and there is one set P for each entry of the batch.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial

import torch
from torch import Tensor

from kbo._base import checks
from kbo._base.linalg import cholesky
from kbo._base.stateful import passed_on
from kbo.errors import InvalidInput
from kbo.regression.all_ridges import AllRidges, Moments
from kbo.regression.numerics import clamped
from kbo.regression.posterior import Posterior, PosteriorAt
from kbo.regression.provenance import Provenance
from kbo.regression.sampling import SamplePath
from kbo.regression.views.view import View, ViewAt

_MOST_FACTORED = 8
"""Ridges at each of which the underlying posterior is asked for a factor of its own."""


class Hypothetical(View):
    """``state`` with hypothetical observations at P, differentiable in P, targets and points.

    ``n``, ``log_det`` and ``quad`` remain those of the observed data: a bound on this view keeps the width that the
    observed data justify, with a variance that includes P. It is a rule for choosing batches; no theorem covers
    the bound itself.

    Args:
        state: The posterior of the observed data, perhaps with hypothetical ones.
        P: Hypothetical points [... p d].
        targets: Their targets [... p], or None to hallucinate the mean.
        weights: Their weights [... p], as in ``update``; ones if omitted. The batch shapes of these three and of the
            state broadcast.

    Raises:
        InvalidInput: Wrong shapes, dtypes or values; or targets for points after batches of hallucinated ones.

    Attributes:
        P: All hypothetical points [... p d], with those of a batched state first.
        targets: Targets [... t] of the first t points; None if all are hallucinated.
        weights: Weights [... p].
    """

    def __init__(
        self,
        state: Posterior,
        P: Tensor,
        targets: Tensor | None = None,
        weights: Tensor | None = None,
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
            raise InvalidInput(
                "weights must be above 0: leave out a point that is to count nothing."
            )
        shapes = {
            "P": P.shape[:-2],
            "its weights": weights.shape[:-1],
            "the posterior": state.batch_shape,
        }
        if targets is not None:
            shapes["its targets"] = targets.shape[:-1]
        self._batch_shape: torch.Size = checks.batch_shape(**shapes)
        self.P = P.clone()
        self.targets: Tensor | None = None if targets is None else targets.clone()
        self.weights: Tensor = weights.detach().clone()
        if state.batch_shape:
            self._take_over(state)

    def _take_over(self, state: Posterior) -> None:
        """Put the hypothetical data of a batched view before those of this one, which is then about the view's state.

        Args:
            state: The batched view.

        Raises:
            InvalidInput: It is of another class, or has hallucinated points, and this one has targets.
        """
        if not isinstance(state, Hypothetical):
            raise InvalidInput(
                f"state is a {type(state).__name__} of batches of hypothetical data, of shape "
                f"{tuple(state.batch_shape)}: make the views in the other order, Hypothetical(Hypothetical(...))."
            )
        if self.targets is None:
            self.targets = state.targets
        elif state.targets is None or state.targets.shape[-1] < state.P.shape[-2]:
            raise InvalidInput(
                "targets cannot follow batches of hallucinated points: condition on the points with targets first."
            )
        else:
            self.targets = _joined(state.targets, self.targets)
        self.weights = _joined(state.weights, self.weights)
        self.P = _joined(state.P, self.P, -2)
        self.state = state.state

    batch_shape: torch.Size = passed_on("_batch_shape")

    @property
    def provenance(self) -> Provenance:
        return replace(self.state.provenance, hypothetical=True)

    kept: tuple[tuple[int, float], tuple[Tensor, Tensor]] | None = (
        None  # version and ridge of a factor, and it
    )

    def fork_frozen(self) -> Posterior:
        fork = copy.copy(self)
        fork.state = self.state.fork_frozen()
        fork.changed()
        return fork

    def at(self, ridge: float | None = None) -> PosteriorAt:
        return _ConditionedAt(self, self.state.at(ridge))

    def across(self, X: Tensor | None = None) -> AllRidges:
        """Return the answers at any ridges, for groups X [... q g d].

        The batch shape before q broadcasts with that of the view; groups are numbered in order of the result.
        """
        if X is None:
            return self.state.across()
        batch = checks.batch_shape(
            X=X.shape[:-2], **{"the hypothetical data": torch.Size([*self.batch_shape, 1])}
        )
        P = self.P.unsqueeze(-3).expand(*batch, *self.P.shape[-2:]).flatten(0, -3)
        X = X.expand(*batch, *X.shape[-2:]).flatten(0, -3)
        weights = self.weights.unsqueeze(-2).expand(*batch, -1).flatten(0, -2)
        targets = self.targets
        if targets is not None:
            targets = targets.unsqueeze(-2).expand(*batch, -1).flatten(0, -2)
        return _ConditionedRidges(self, X, P, weights, targets)


class _ConditionedAt(ViewAt):
    """Answers of the observed data, conditioned on P."""

    state: Hypothetical

    def __init__(self, view: Hypothetical, inner: PosteriorAt) -> None:
        super().__init__(view, inner)
        self.P, self.targets, self.weights = view.P, view.targets, view.weights

    @cached_property
    def _factor(self) -> tuple[Tensor, Tensor]:
        """The factor L [... p p] of S, and the trace of cov(P, P) with weights [...]; kept if it is constant."""
        key = self.state.version, self.ridge
        if self.state.kept is None or self.state.kept[0] != key:
            factor = _factor_of(self.inner.covariance(self.P, self.P), self.ridge, self.weights)
            if (
                factor[0].requires_grad or not torch.is_grad_enabled()
            ):  # without gradients it is not known
                return factor
            self.state.kept = key, factor
        return self.state.kept[1]

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """At X [... q d], whose batch shape broadcasts with that of the view."""
        mean, variance = self.inner.predict(X)
        A = self._whitened(X)
        reduced = clamped(
            variance - A.square().sum(-2), variance, self.ridge, self._factor[1].unsqueeze(-1)
        )
        mean, reduced = torch.broadcast_tensors(self._shifted(mean, A), reduced)
        return mean, reduced

    def covariance(self, X: Tensor, Z: Tensor) -> Tensor:
        return self.inner.covariance(X, Z) - self._whitened(X).mT @ self._whitened(Z)

    def factored(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, U, V = self.inner.factored(X)
        A = self._whitened(X)
        U, V = (side.expand(*A.shape[:-2], *side.shape[-2:]) for side in (U, V))
        return self._shifted(mean, A), torch.cat([U, A], -2), torch.cat([V, A], -2)

    def _shifted(self, mean: Tensor, A: Tensor) -> Tensor:
        """``mean + c(x)'S^-1 (y_P - mean(P))`` of the points with targets, given ``A = L^-1 c(X)``.

        They are the first t points, so their factor is the leading block of L, and their part of A the first t rows.
        """
        if self.targets is None:
            return mean.expand(*A.shape[:-2], -1)
        t = self.targets.shape[-1]
        misfit = (self.targets - self.inner.predict(self.P[..., :t, :])[0]).unsqueeze(-1)
        solved = torch.linalg.solve_triangular(self._factor[0][..., :t, :t], misfit, upper=False)
        return mean + (A[..., :t, :].mT @ solved).squeeze(-1)

    def _whitened(self, X: Tensor) -> Tensor:
        """``L^-1 cov(P, X)`` [... p q], for points that the answers of the observed data have checked."""
        if self.P.ndim == 2:  # one P for the whole batch: solve for it once
            columns = self.inner.covariance(self.P, X.reshape(-1, X.shape[-1]))
            cross = columns.reshape(len(self.P), *X.shape[:-1]).movedim(0, -2)
        else:
            batch = checks.batch_shape(
                X=X.shape[:-2], **{"the hypothetical data": self.P.shape[:-2]}
            )
            P, Z = self.P.expand(*batch, *self.P.shape[-2:]), X.expand(*batch, *X.shape[-2:])
            cross = self.inner.covariance(P, Z)
        return torch.linalg.solve_triangular(self._factor[0], cross, upper=False)

    def _draw(self, X: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
        self._refuse_batches()
        return PosteriorAt._draw(self, X, count, generator)

    @torch.no_grad()
    def _draw_function(self, like: Tensor, generator: torch.Generator | None) -> SamplePath:
        """Matheron's rule once more, for hypothetical observations at points [p d]."""
        self._refuse_batches()
        inner, P = (
            self.state.state.fork().at(self.ridge),
            self.P,
        )  # of a fork: the draw stays when the state learns
        path = inner.draw_function(like, generator)
        normal = torch.randn(len(P), generator=generator, dtype=P.dtype, device="cpu").to(P.device)
        noise = math.sqrt(self.ridge) * normal * self.weights.rsqrt()
        weights = -torch.cholesky_solve((path(P) + noise).unsqueeze(-1), self._factor[0]).squeeze(
            -1
        )
        return SamplePath(path, partial(inner.covariance, P), weights)

    def _refuse_batches(self) -> None:
        if self.state.batch_shape:
            raise InvalidInput(
                "nothing is drawn from batches of hypothetical data (fantasies): pass one model."
            )


class _ConditionedRidges(AllRidges):
    """Groups X [B g d] at any ridges, conditioned on P [B p d] with weights [B p], and targets [B t] or None."""

    def __init__(
        self, view: Hypothetical, X: Tensor, P: Tensor, weights: Tensor, targets: Tensor | None
    ) -> None:
        super().__init__(view, X)
        self.P, self.weights, self.targets, self._with_graph = (
            P,
            weights,
            targets,
            torch.is_grad_enabled(),
        )
        numbers = view.across()
        self.log_det, self.quad, self.rss = numbers.log_det, numbers.quad, numbers.rss

    @cached_property
    def joint(self) -> AllRidges:
        """The groups behind their hypothetical points, under the posterior of the observed data."""
        with torch.set_grad_enabled(
            self._with_graph
        ):  # the first to need it may be a search without gradients
            return self.state.state.across(torch.cat([self.P, self._groups], -2))

    def at(self, ridges: Tensor) -> Moments:
        return self._conditioned(self.joint.at(ridges), ridges)

    def grid(self, ridges: Sequence[float]) -> Moments:
        X = self._groups
        if self.state.batch_shape or X.shape[-2] > 1 or len(ridges) > _MOST_FACTORED:
            return self._conditioned(self.joint.grid(ridges), X.new_tensor(ridges).unsqueeze(-1))
        # One P for all points is eliminated once at each ridge, where the groups have a copy of it each.
        mean, variance = zip(
            *(self.state.at(ridge).predict(X.squeeze(-2)) for ridge in ridges), strict=True
        )
        quad = self.quad(ridges).unsqueeze(-1)
        return Moments(
            torch.stack(mean).unsqueeze(-1), torch.stack(variance)[..., None, None], quad
        )

    def select(self, groups: Tensor) -> AllRidges:
        targets = None if self.targets is None else self.targets[groups]
        some = _ConditionedRidges(
            self.state, self._groups[groups], self.P[groups], self.weights[groups], targets
        )
        if "joint" in vars(self):
            some.joint = self.joint.select(groups)
        return some

    def _conditioned(self, joint: Moments, ridges: Tensor) -> Moments:
        p, mean, covariance = self.weights.shape[-1], joint.mean, joint.covariance
        ridges = ridges.to(covariance).unsqueeze(-1).unsqueeze(-1)
        known, cross, rest = (
            covariance[..., :p, :p],
            covariance[..., :p, p:],
            covariance[..., p:, p:],
        )
        L, trace = _factor_of(known, ridges, self.weights)
        A = torch.linalg.solve_triangular(L, cross, upper=False)
        reduced = rest - A.mT @ A
        if reduced.shape[-1] == 1:
            reduced = clamped(reduced, rest, ridges, trace.unsqueeze(-1).unsqueeze(-1))
        shifted = mean[..., p:]
        if self.targets is not None:  # of the first t points
            t = self.targets.shape[-1]
            misfit = (self.targets - mean[..., :t]).unsqueeze(-1)
            solved = torch.linalg.solve_triangular(L[..., :t, :t], misfit, upper=False)
            shifted = shifted + (A[..., :t, :].mT @ solved).squeeze(-1)
        return Moments(shifted, reduced, joint.quad)


def _joined(first: Tensor, second: Tensor, dim: int = -1) -> Tensor:
    """Return two tensors as one along an axis, with the axes before it broadcast."""
    batch = torch.broadcast_shapes(first.shape[:dim], second.shape[:dim])
    return torch.cat([part.expand(*batch, *part.shape[dim:]) for part in (first, second)], dim)


def _factor_of(covariance: Tensor, ridge: float | Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return the factor of ``covariance + ridge diag(1 / weights)`` [... p p], and ``sum_i weights_i cov_ii`` [...]."""
    trace = (weights * covariance.diagonal(dim1=-2, dim2=-1)).sum(-1).detach()
    return cholesky(covariance + ridge * (1 / weights).diag_embed()), trace
