"""The base of all views: posteriors that change a few numbers of an underlying one."""

from __future__ import annotations

from typing import Any, Self

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo._base import checks
from kbo._base.stateful import delegated_to
from kbo.regression.error import Error
from kbo.regression.posterior import Posterior, PosteriorAt, Provenance, RidgeSchedule
from kbo.regression.sampling import Function


class View(Posterior):
    """The base of posteriors that change a few numbers of another one, such as ``PriorMean``.

    A subclass overrides ``at``; ``across`` then uses it. All other numbers are those of the
    underlying posterior. ``fork_frozen`` and ``observed`` are the same view of its fork, and of the
    posterior of its observed data.

    Args:
        state: The underlying posterior.

    Raises:
        InvalidInput: The state is of another kind.
    """

    def __init__(self, state: Posterior) -> None:
        self.state: Posterior = checks.instance("state", state, Posterior)
        self.changed()

    @property
    def version(self) -> int:
        """The versions of the underlying posterior and of the view, as one number."""
        return (self.state.version << 64) + self._version

    _ridge: float = delegated_to("state.ridge")
    n: int = delegated_to("state.n")
    trace: float = delegated_to("state.trace")
    batch_shape: torch.Size = delegated_to("state.batch_shape")
    like: Tensor = delegated_to("state.like")
    kernel: Kernel | None = delegated_to("state.kernel")
    provenance: Provenance = delegated_to("state.provenance")
    error: Error = delegated_to("state.error")
    anchors: Tensor | None = delegated_to("state.anchors")
    needs_refresh: bool = delegated_to("state.needs_refresh")
    schedule: RidgeSchedule | None = delegated_to("state.schedule")
    locations: tuple[Tensor, Tensor] | None = delegated_to("state.locations")
    # Methods
    check: Any = delegated_to("state.check")
    note: Any = delegated_to("state.note")
    prior: Any = delegated_to("state.prior")
    prior_variance: Any = delegated_to("state.prior_variance")
    draw_prior: Any = delegated_to("state.draw_prior")
    update: Any = delegated_to("state.update")
    move_ridge: Any = delegated_to("state.move_ridge")

    @property
    def observed(self) -> Posterior:
        """The view of the posterior of the observed data alone."""
        if not self.provenance.hypothetical:
            return self
        return self._of(self.state.observed)

    def fork_frozen(self) -> Posterior:
        """Return the view of a frozen fork of the underlying posterior."""
        return self._of(self.state.fork_frozen())

    def _of(self, state: Posterior) -> Self:
        """Return a fork of the view, with ``state`` itself as the underlying posterior."""
        return self._fork_with({id(self.state): state})

    def at(self, ridge: float | None = None) -> PosteriorAt:
        return self.state.at(ridge)

    def compute_at(self, ridge: float) -> PosteriorAt:
        return self.at(ridge)


class ViewAt(PosteriorAt):
    """A view at one ridge. Members that it does not override are those of the underlying posterior.

    Args:
        view: The view.
        inner: The underlying posterior at the same ridge.
    """

    def __init__(self, view: Posterior, inner: PosteriorAt) -> None:
        super().__init__(view, inner.ridge)
        self.inner = inner

    predict: Any = delegated_to("inner.predict")
    covariance: Any = delegated_to("inner.covariance")
    factored: Any = delegated_to("inner.factored")
    log_det: Any = delegated_to("inner.log_det")
    quad: Any = delegated_to("inner.quad")
    rss: Any = delegated_to("inner.rss")
    effective_dimension: Any = delegated_to("inner.effective_dimension")

    def compute_draws(self, X: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
        return self.inner.draw(X, count, generator)

    def compute_drawn_function(self, like: Tensor, generator: torch.Generator | None) -> Function:
        return self.inner.draw_function(like, generator)
