"""The base of all views: another posterior with a few answers changed."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo._base import checks
from kbo._base.stateful import Stateful, fresh_version, passed_on
from kbo.regression.posterior import Posterior, PosteriorAt, RidgeSchedule
from kbo.regression.provenance import Error, Provenance
from kbo.regression.sampling import Function


class View(Posterior):
    """Another posterior with a few answers changed; all the others are passed on.

    Args:
        state: The underlying posterior.

    Raises:
        InvalidInput: The state is of another kind.
    """

    saved: tuple[str, ...] = ("state",)

    def __init__(self, state: Posterior) -> None:
        self.state: Posterior = checks.instance("state", state, Posterior)
        self.changed()

    def changed(self) -> None:
        """Give the view a new version, beside that of the underlying posterior."""
        self._own_version, self._answers = fresh_version(), {}

    @property
    def version(self) -> int:
        """The versions of the underlying posterior and of the view, as one number."""
        return (self.state.version << 64) + self._own_version

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
    draw_prior: Any = passed_on("state.draw_prior")
    move_ridge: Any = passed_on("state.move_ridge")
    fork_frozen: Any = passed_on("state.fork_frozen")
    across: Any = passed_on("state.across")

    def state_dict(self) -> dict[str, Any]:
        return Stateful.state_dict(self)  # the underlying posterior has the assumptions

    def load_state_dict(self, state: dict[str, Any]) -> None:
        Stateful.load_state_dict(self, state)

    def prior(self, X: Tensor, Z: Tensor) -> Tensor:
        return self.state.prior(X, Z)

    def prior_variance(self, X: Tensor) -> Tensor:
        return self.state.prior_variance(X)

    def at(self, ridge: float | None = None) -> PosteriorAt:
        return self.state.at(ridge)

    def _at(self, ridge: float) -> PosteriorAt:
        return self.at(ridge)

    def update(self, X: Tensor, y: Tensor, weights: Tensor | None = None) -> None:
        """Add observations X [r d], y [r] to the underlying posterior."""
        self.state.update(X, y, **given(weights))

    @property
    def observed(self) -> Posterior:
        """The posterior of the observed data alone."""
        return self.state.observed if self.provenance.hypothetical else self


def given(weights: Tensor | None) -> dict[str, Tensor]:
    """Return the argument ``weights`` of ``update``, left out if None: posteriors of before 0.8 have none."""
    return {} if weights is None else {"weights": weights}


class ViewAt(PosteriorAt):
    """Answers of a view; all that are not overridden are those of the underlying posterior.

    Args:
        view: The view.
        inner: The answers of the underlying posterior at the same ridge.
    """

    def __init__(self, view: Posterior, inner: PosteriorAt) -> None:
        super().__init__(view, inner.ridge)
        self.inner = inner

    factored: Any = passed_on("inner.factored")

    def _draw(self, X: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
        return self.inner.draw(X, count, generator)

    def _draw_function(self, like: Tensor, generator: torch.Generator | None) -> Function:
        return self.inner.draw_function(like, generator)

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        return self.inner.predict(X)

    def covariance(self, X: Tensor, Z: Tensor) -> Tensor:
        return self.inner.covariance(X, Z)

    def log_det(self) -> Tensor:
        return self.inner.log_det()

    def quad(self) -> Tensor:
        return self.inner.quad()

    def rss(self) -> Tensor:
        return self.inner.rss()

    def effective_dimension(self) -> Tensor:
        return self.inner.effective_dimension()
