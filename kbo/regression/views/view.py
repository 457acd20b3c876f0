"""The base of all views: another posterior with a few answers changed."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from kbo.errors import InvalidInput
from kbo.regression.posterior import AllRidges, Answers, Followed, Posterior
from kbo.stateful import fresh_version


def _passed_on(name: str) -> Any:
    """Return the property that reads the same attribute of the underlying posterior."""
    return property(attrgetter(f"state.{name}"))


class View(Posterior):
    """Another posterior with a few answers changed; all the others are passed on.

    Args:
        state: The underlying posterior.

    Raises:
        InvalidInput: The state is of another kind.
    """

    saved = ("state",)

    def __init__(self, state: Posterior) -> None:
        if not isinstance(state, Posterior):
            raise InvalidInput(
                f"state of {type(self).__name__} must be a posterior of kbo.regression, got {type(state).__name__}; "
                "that of a model is model.state."
            )
        self.state = state
        self.changed()

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.changed()

    def changed(self) -> None:
        """Give the view a new version, beside that of the underlying posterior."""
        self._own_version = fresh_version()

    @property
    def version(self) -> int:
        """The versions of the underlying posterior and of the view, as one number."""
        return (self.state.version << 64) + self._own_version

    # All that is read from the underlying posterior

    ridge = _passed_on("ridge")
    like = _passed_on("like")
    hypothetical = _passed_on("hypothetical")
    ridge_moved = _passed_on("ridge_moved")
    caveats = _passed_on("caveats")
    anchors = _passed_on("anchors")
    prior_version = _passed_on("prior_version")
    n = _passed_on("n")
    schedule = _passed_on("schedule")
    trace = _passed_on("trace")
    least_ridge = _passed_on("least_ridge")
    residual_trace = _passed_on("residual_trace")
    rounding = _passed_on("rounding")
    needs_refresh = _passed_on("needs_refresh")
    locations = _passed_on("locations")
    hyperparameters = _passed_on("hyperparameters")

    def residual_norm(self) -> Tensor:  # noqa: D102
        return self.state.residual_norm()

    def check(self, X: Tensor) -> None:  # noqa: D102
        self.state.check(X)

    def prior(self, X: Tensor, Z: Tensor) -> Tensor:  # noqa: D102
        return self.state.prior(X, Z)

    def prior_variance(self, X: Tensor) -> Tensor:  # noqa: D102
        return self.state.prior_variance(X)

    def radial(self, X: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]] | None:  # noqa: D102
        return self.state.radial(X)

    def draw_prior(self, like: Tensor, generator: torch.Generator | None = None) -> Callable[[Tensor], Tensor]:  # noqa: D102
        return self.state.draw_prior(like, generator)

    def add_caveat(self, reason: str) -> None:  # noqa: D102
        self.state.add_caveat(reason)

    def move_ridge(self, ridge: float) -> None:  # noqa: D102
        self.state.move_ridge(ridge)

    def update(self, X: Tensor, y: Tensor) -> None:
        """Add observations X [r d], y [r] to the underlying posterior."""
        self.state.update(X, y)

    def at(self, ridge: float | None = None) -> Answers:  # noqa: D102
        return self.state.at(ridge)

    def all_ridges(self) -> AllRidges:  # noqa: D102
        return self.state.all_ridges()

    def follow(self, points: Tensor) -> Followed:  # noqa: D102
        return self.state.follow(points)

    @property
    def observed(self) -> Posterior:
        """The posterior of the observed data alone."""
        return self.state.observed if self.hypothetical else self

    def fork_frozen(self) -> Posterior:  # noqa: D102
        return self.state.fork_frozen()


class ViewAnswers(Answers):
    """Answers of a view; all that are not overridden are those of the underlying posterior.

    Args:
        view: The view.
        inner: The answers of the underlying posterior at the same ridge.
    """

    def __init__(self, view: Posterior, inner: Answers) -> None:
        super().__init__(view, inner.ridge)
        self.inner = inner

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102
        return self.inner.predict(X)

    def covariance(self, X: Tensor, Z: Tensor) -> Tensor:  # noqa: D102
        return self.inner.covariance(X, Z)

    def log_det(self) -> Tensor:  # noqa: D102
        return self.inner.log_det()

    def quad(self) -> Tensor:  # noqa: D102
        return self.inner.quad()

    def rss(self) -> Tensor:  # noqa: D102
        return self.inner.rss()

    def effective_dimension(self) -> Tensor:  # noqa: D102
        return self.inner.effective_dimension()


class ViewRidges(AllRidges):
    """Any ridges of a view; all that is not overridden is that of the underlying posterior.

    Args:
        view: The view.
        inner: Any ridges of the underlying posterior.
    """

    def __init__(self, view: Posterior, inner: AllRidges) -> None:
        super().__init__(view)
        self.inner = inner

    def log_det(self, ridges: Tensor) -> Tensor:  # noqa: D102
        return self.inner.log_det(ridges)

    def quad(self, ridges: Tensor) -> Tensor:  # noqa: D102
        return self.inner.quad(ridges)

    def rss(self, ridges: Tensor) -> Tensor:  # noqa: D102
        return self.inner.rss(ridges)

    def effective_dimension(self, ridges: Tensor) -> Tensor:  # noqa: D102
        return self.inner.effective_dimension(ridges)
