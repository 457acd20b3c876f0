"""The base of all views: another posterior with a few numbers changed."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo._base import checks
from kbo._base.stateful import passed_on
from kbo.regression.error import Error
from kbo.regression.posterior import Posterior, PosteriorAt, RidgeSchedule
from kbo.regression.provenance import Provenance
from kbo.regression.sampling import Function


class View(Posterior):
    """Another posterior with a few numbers changed; all the others are passed on.

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

    _ridge: float = passed_on("state.ridge")
    n: int = passed_on("state.n")
    trace: float = passed_on("state.trace")
    batch_shape: torch.Size = passed_on("state.batch_shape")
    like: Tensor = passed_on("state.like")
    kernel: Kernel | None = passed_on("state.kernel")
    provenance: Provenance = passed_on("state.provenance")
    error: Error = passed_on("state.error")
    anchors: Tensor | None = passed_on("state.anchors")
    needs_refresh: bool = passed_on("state.needs_refresh")
    schedule: RidgeSchedule | None = passed_on("state.schedule")
    locations: tuple[Tensor, Tensor] | None = passed_on("state.locations")
    # Methods
    check: Any = passed_on("state.check")
    note: Any = passed_on("state.note")
    prior: Any = passed_on("state.prior")
    prior_variance: Any = passed_on("state.prior_variance")
    draw_prior: Any = passed_on("state.draw_prior")
    update: Any = passed_on("state.update")
    move_ridge: Any = passed_on("state.move_ridge")
    fork_frozen: Any = passed_on("state.fork_frozen")
    across: Any = passed_on("state.across")

    @property
    def observed(self) -> Posterior:
        """The posterior of the observed data alone."""
        return self.state.observed if self.provenance.hypothetical else self

    def at(self, ridge: float | None = None) -> PosteriorAt:
        return self.state.at(ridge)

    def _at(self, ridge: float) -> PosteriorAt:
        return self.at(ridge)


class ViewAt(PosteriorAt):
    """A view at one ridge; members that it does not override are those of the posterior below.

    Args:
        view: The view.
        inner: The underlying posterior at the same ridge.
    """

    def __init__(self, view: Posterior, inner: PosteriorAt) -> None:
        super().__init__(view, inner.ridge)
        self.inner = inner

    predict: Any = passed_on("inner.predict")
    covariance: Any = passed_on("inner.covariance")
    factored: Any = passed_on("inner.factored")
    log_det: Any = passed_on("inner.log_det")
    quad: Any = passed_on("inner.quad")
    rss: Any = passed_on("inner.rss")
    effective_dimension: Any = passed_on("inner.effective_dimension")

    def _draw(self, X: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
        return self.inner.draw(X, count, generator)

    def _draw_function(self, like: Tensor, generator: torch.Generator | None) -> Function:
        return self.inner.draw_function(like, generator)
