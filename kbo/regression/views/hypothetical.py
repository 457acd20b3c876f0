"""A posterior with a few more observations, as a differentiable, batched view of another.

P are the hypothetical points and w their weights. Under the posterior of the observed data, S =
cov(P, P) + ridge diag(1 / w) = L L' and c(x) = cov(x, P). Block elimination gives the posterior of
observed and hypothetical data together (Rasmussen & Williams 2006, eq. 2.23, applied to a
posterior):

On paper                                                | in code, with A = L^-1 c(x)
``mean'(x) = mean(x) + c(x)'S^-1 (y_P - mean(P))``      | ``Elimination.new_mean``
``cov'(x, z) = cov(x, z) - c(x)'S^-1 c(z)``             | ``Elimination.new_variance``

This view serves pending points, joint batches and fantasies. Without targets the mean stays and
only the variance shrinks (hallucination: GP-BUCB, Desautels, Krause & Burdick 2014).

Only the constructor of the view broadcasts batches. If the underlying posterior is a batched view,
this view takes over its points. So the underlying posterior is never batched, and there is one set
P for each entry of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial

import torch
from torch import Tensor

from kbo._base import checks
from kbo._base.linalg import cholesky
from kbo.errors import InvalidInput
from kbo.regression.all_ridges import AllRidges, Moments
from kbo.regression.numerics import clamped
from kbo.regression.posterior import Posterior, PosteriorAt, Provenance
from kbo.regression.sampling import SamplePath
from kbo.regression.views.view import View, ViewAt


class Hypothetical(View):
    """A posterior with hypothetical observations added: pending points, fantasies, joint batches.

    It is differentiable in the points P, in their targets and in the points of a prediction.

    ``n``, ``log_det`` and ``quad`` remain those of the observed data. So a bound on this view has
    the width for the observed data, and a variance that includes P. This is a rule for choosing
    batches; no theorem covers the bound.

    Args:
        state: The posterior of the observed data; it may have hypothetical data too.
        P: Hypothetical points [... p d].
        targets: Their targets [... p], or None to hallucinate the mean.
        weights: Their weights [... p], as in ``update``; ones if omitted. The batch shapes of P,
            targets, weights and state broadcast.

    Raises:
        InvalidInput: A shape, dtype or value is wrong, or there are targets although a batched
            state has points without targets.

    Attributes:
        P: All hypothetical points [... p d], those of a batched state first.
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
        _check_points(P, state)
        batch_shapes = {"P": P.shape[:-2], "the posterior": state.batch_shape}
        if targets is not None:
            _check_rows("targets", targets, P)
            batch_shapes["its targets"] = targets.shape[:-1]
            targets = targets.clone()
        if weights is None:
            weights = P.new_ones(P.shape[-2])
        else:
            _check_weights(weights, P)
            batch_shapes["its weights"] = weights.shape[:-1]
        self._batch_shape: torch.Size = checks.batch_shape(**batch_shapes)
        self.P: Tensor = P.clone()
        self.targets: Tensor | None = targets
        self.weights: Tensor = weights.detach().clone()
        if state.batch_shape:
            self._take_over(state)

    def _take_over(self, state: Posterior) -> None:
        """Put the hypothetical data of a batched view, ``state``, before those of this one.

        The underlying posterior of the batched view becomes that of this view.

        Raises:
            InvalidInput: ``state`` is of another class, or it has points without targets and this
                view has targets.
        """
        if not isinstance(state, Hypothetical):
            raise InvalidInput(
                f"state is a {type(state).__name__} of batches of hypothetical data, of shape "
                f"{tuple(state.batch_shape)}: make the views in the other order, "
                "Hypothetical(Hypothetical(...))."
            )
        if self.targets is None:
            self.targets = state.targets
        elif state.targets is None or state.targets.shape[-1] < state.P.shape[-2]:
            raise InvalidInput(
                "targets cannot follow batches of hallucinated points: condition on the points "
                "with targets first."
            )
        else:
            self.targets = _joined(state.targets, self.targets)
        self.weights = _joined(state.weights, self.weights)
        self.P = _joined(state.P, self.P, -2)
        self.state = state.state

    @property
    def batch_shape(self) -> torch.Size:
        """The batch shape of the hypothetical data."""
        return self._batch_shape

    @property
    def provenance(self) -> Provenance:
        return replace(self.state.provenance, hypothetical=True)

    @property
    def observed(self) -> Posterior:
        """The posterior of the observed data alone, from the underlying posterior."""
        return self.state.observed

    def at(self, ridge: float | None = None) -> PosteriorAt:
        return _HypotheticalAt(self, self.state.at(ridge))

    def across(self, X: Tensor | None = None) -> AllRidges:
        """Return the posterior at any ridges, with the moments of groups X [... q g d].

        The batch shape before q broadcasts with the batch shape of the view. Groups are numbered in
        the order of the broadcast shape.
        """
        if X is None:
            return self.state.across()
        batch_and_group = torch.Size([*self.batch_shape, 1])
        batch = checks.batch_shape(X=X.shape[:-2], **{"the hypothetical data": batch_and_group})
        groups = X.expand(*batch, *X.shape[-2:]).flatten(0, -3)
        P = self.P.unsqueeze(-3).expand(*batch, *self.P.shape[-2:]).flatten(0, -3)
        weights = self.weights.unsqueeze(-2).expand(*batch, -1).flatten(0, -2)
        targets = self.targets
        if targets is not None:
            targets = targets.unsqueeze(-2).expand(*batch, -1).flatten(0, -2)
        return _HypotheticalRidges(self, groups, P, weights, targets)


class Elimination:
    """Block elimination of hypothetical observations: ``L L' = S = cov(P, P) + ridge diag(1 / w)``.

    Args:
        mean: Mean of the observed data at P, [... p]; only used with targets.
        covariance: ``cov(P, P)`` under the posterior of the observed data, [... p p].
        ridge: The ridge, a number or [... 1].
        weights: w [... p].
        targets: Targets [... t] of the first t points; None if there are none.

    Attributes:
        L: [... p p].
        trace: ``sum_i w_i cov(P_i, P_i)``, [...].
        residual: ``L^-1 (y_P - mean(P))`` of the points with targets, [... t 1]; None if there are
            none.
    """

    def __init__(
        self,
        mean: Tensor | None,
        covariance: Tensor,
        ridge: float | Tensor,
        weights: Tensor,
        targets: Tensor | None,
    ) -> None:
        self.ridge: float | Tensor = ridge
        self.L: Tensor = cholesky(covariance + (ridge * (1 / weights)).diag_embed())
        variances = covariance.diagonal(dim1=-2, dim2=-1)
        self.trace: Tensor = (weights * variances).sum(-1).detach()
        self.residual: Tensor | None = None
        if targets is not None and mean is not None:
            # The factor of the first t points is the leading block of L.
            t = targets.shape[-1]
            misfit = (targets - mean[..., :t]).unsqueeze(-1)
            L_t = self.L[..., :t, :t]
            self.residual = torch.linalg.solve_triangular(L_t, misfit, upper=False)

    def whitened(self, cross: Tensor) -> Tensor:
        """Return ``A = L^-1 cov(P, X)`` [... p q], given cov(P, X)."""
        return torch.linalg.solve_triangular(self.L, cross, upper=False)

    def new_mean(self, mean: Tensor, A: Tensor) -> Tensor:
        """Return the mean after elimination [... q]: ``mean(x) + c(x)'S^-1 (y_P - mean(P))``.

        Args:
            mean: Mean of the observed data at X, [... q].
            A: ``L^-1 cov(P, X)``, [... p q].
        """
        if self.residual is None:
            return mean.expand(*A.shape[:-2], -1)
        t = self.residual.shape[-2]
        return mean + (A[..., :t, :].mT @ self.residual).squeeze(-1)

    def new_variance(self, variance: Tensor, A: Tensor) -> Tensor:
        """Return the variance after elimination [... q]: ``cov(x, x) - c(x)'S^-1 c(x)``.

        Args:
            variance: Variance of the observed data at X, [... q].
            A: ``L^-1 cov(P, X)``, [... p q].
        """
        reduced = variance - A.square().sum(-2)
        return clamped(reduced, variance, self.ridge, self.trace.unsqueeze(-1))


class _HypotheticalAt(ViewAt):
    """The posterior of the observed data at one ridge, conditioned on P."""

    state: Hypothetical

    @cached_property
    def elimination(self) -> Elimination:
        """The elimination of P under the posterior of the observed data."""
        P = self.state.P
        targets = self.state.targets
        mean = None if targets is None else self.inner.predict(P)[0]
        covariance = self.inner.covariance(P, P)
        return Elimination(mean, covariance, self.ridge, self.state.weights, targets)

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance [... q] at X [... q d]; batch shapes broadcast with the view's."""
        mean, variance = self.inner.predict(X)
        A = self._whitened(X)
        mean = self.elimination.new_mean(mean, A)
        variance = self.elimination.new_variance(variance, A)
        mean, variance = torch.broadcast_tensors(mean, variance)
        return mean, variance

    def covariance(self, X: Tensor, Z: Tensor) -> Tensor:
        return self.inner.covariance(X, Z) - self._whitened(X).mT @ self._whitened(Z)

    def factored(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, U, V = self.inner.factored(X)
        A = self._whitened(X)
        batch = A.shape[:-2]
        U = U.expand(*batch, *U.shape[-2:])
        V = V.expand(*batch, *V.shape[-2:])
        return self.elimination.new_mean(mean, A), torch.cat([U, A], -2), torch.cat([V, A], -2)

    def _whitened(self, X: Tensor) -> Tensor:
        """Return ``A = L^-1 cov(P, X)`` [... p q] of points X [... q d]."""
        P = self.state.P
        if P.ndim == 2:  # one P for the whole batch: solve for it once
            columns = self.inner.covariance(P, X.reshape(-1, X.shape[-1]))
            cross = columns.reshape(len(P), *X.shape[:-1]).movedim(0, -2)
        else:
            batch_of_data = {"the hypothetical data": P.shape[:-2]}
            batch = checks.batch_shape(X=X.shape[:-2], **batch_of_data)
            P = P.expand(*batch, *P.shape[-2:])
            cross = self.inner.covariance(P, X.expand(*batch, *X.shape[-2:]))
        return self.elimination.whitened(cross)

    def compute_draws(self, X: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
        self._refuse_batches()
        return PosteriorAt.compute_draws(self, X, count, generator)

    @torch.no_grad()
    def compute_drawn_function(self, like: Tensor, generator: torch.Generator | None) -> SamplePath:
        """Return a drawn function less its mean, by Matheron's rule for the hypothetical observations."""
        self._refuse_batches()
        inner = self.state.state.fork().at(self.ridge)  # the draw stays when the state learns
        P = self.state.P
        path = inner.draw_function(like, generator)
        normal = torch.randn(len(P), generator=generator, dtype=P.dtype, device="cpu").to(P.device)
        noise = math.sqrt(self.ridge) * normal * self.state.weights.rsqrt()
        values = (path(P) + noise).unsqueeze(-1)
        weights = -torch.cholesky_solve(values, self.elimination.L).squeeze(-1)
        return SamplePath(path, partial(inner.covariance, P), weights)

    def _refuse_batches(self) -> None:
        """Raise InvalidInput if there are batches of hypothetical data."""
        if self.state.batch_shape:
            raise InvalidInput(
                "nothing is drawn from batches of hypothetical data (fantasies): pass one model."
            )


class _HypotheticalRidges(AllRidges):
    """Groups X [B g d] at any ridges, conditioned on P [B p d] with weights and targets."""

    def __init__(
        self, view: Hypothetical, X: Tensor, P: Tensor, weights: Tensor, targets: Tensor | None
    ) -> None:
        super().__init__(view, X)
        self.P = P
        self.weights = weights
        self.targets = targets
        self._with_gradient = torch.is_grad_enabled()
        observed = view.across()  # without points
        self.log_det = observed.log_det
        self.quad = observed.quad
        self.rss = observed.rss

    @cached_property
    def joint(self) -> AllRidges:
        """Hypothetical points and groups together, [B p+g d], given the observed data."""
        # The first call may come from a search without gradients; later ones may need them.
        with torch.set_grad_enabled(self._with_gradient):
            points = torch.cat([self.P, self._groups], -2)
            return self.state.state.across(points)

    def at(self, ridges: Tensor) -> Moments:
        return self._conditioned(self.joint.at(ridges), ridges)

    def grid(self, ridges: Sequence[float]) -> Moments:
        at_each = self.P.new_tensor(ridges).unsqueeze(-1)
        return self._conditioned(self.joint.grid(ridges), at_each)

    def select(self, groups: Tensor) -> AllRidges:
        targets = None if self.targets is None else self.targets[groups]
        X = self._groups[groups]
        selected = _HypotheticalRidges(self.state, X, self.P[groups], self.weights[groups], targets)
        if "joint" in vars(self):
            selected.joint = self.joint.select(groups)
        return selected

    def _conditioned(self, joint: Moments, ridges: Tensor) -> Moments:
        """Return the moments of the groups, given the joint ones, at ridges [...]."""
        p = self.weights.shape[-1]
        mean_P = joint.mean[..., :p]
        mean_X = joint.mean[..., p:]
        cov_P = joint.covariance[..., :p, :p]
        cross = joint.covariance[..., :p, p:]
        cov_X = joint.covariance[..., p:, p:]
        ridges = ridges.to(cov_P).unsqueeze(-1)
        elimination = Elimination(mean_P, cov_P, ridges, self.weights, self.targets)
        A = elimination.whitened(cross)
        if cov_X.shape[-1] == 1:
            variance = elimination.new_variance(cov_X.squeeze(-1), A)
            covariance = variance.unsqueeze(-1)
        else:
            covariance = cov_X - A.mT @ A
        return Moments(elimination.new_mean(mean_X, A), covariance, joint.quad)


def _check_points(P: Tensor, state: Posterior) -> None:
    """Raise InvalidInput unless P [... p d] are finite points that fit the data of a posterior."""
    state.check(P, "P")
    checks.points("P", P)
    if P.ndim < 2:
        raise InvalidInput(f"P must have shape [... p d], got {tuple(P.shape)}.")


def _check_weights(weights: Tensor, P: Tensor) -> None:
    """Raise InvalidInput unless weights [... p] are finite, above zero and fit P [... p d]."""
    _check_rows("weights", weights, P)
    if (weights <= 0).any():
        raise InvalidInput("weights must be above 0: leave out a point that is to count nothing.")


def _check_rows(name: str, values: Tensor, P: Tensor) -> None:
    """Raise InvalidInput unless values [... p] are finite and fit P [... p d]."""
    shape = checks.tensor(name, values).shape
    if shape[-1:] != P.shape[-2:-1]:
        raise InvalidInput(
            f"{name} must have shape [... {P.shape[-2]}], one for each row of P, "
            f"got {tuple(shape)}."
        )
    checks.points(name, values.unsqueeze(-1), P)


def _joined(first: Tensor, second: Tensor, dim: int = -1) -> Tensor:
    """Return two tensors as one along an axis, with the axes before it broadcast."""
    batch = torch.broadcast_shapes(first.shape[:dim], second.shape[:dim])
    first = first.expand(*batch, *first.shape[dim:])
    second = second.expand(*batch, *second.shape[dim:])
    return torch.cat([first, second], dim)
