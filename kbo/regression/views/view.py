"""The base of all views: another posterior with a few answers changed."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from kbo import checks
from kbo.regression.posterior import AllRidges, Answers, Posterior
from kbo.stateful import fresh_version, passed_on


class View(Posterior):
    """Another posterior with a few answers changed; all the others are passed on.

    Args:
        state: The underlying posterior.

    Raises:
        InvalidInput: The state is of another kind.
    """

    saved = ("state",)

    def __init__(self, state: Posterior) -> None:
        self.state = checks.instance("state", state, Posterior)
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

    lock = passed_on("state.lock")
    ridge = passed_on("state.ridge")
    like = passed_on("state.like")
    hypothetical = passed_on("state.hypothetical")
    weighted = passed_on("state.weighted")
    clipping = passed_on("state.clipping")
    ridge_moved = passed_on("state.ridge_moved")
    caveats = passed_on("state.caveats")
    anchors = passed_on("state.anchors")
    prior_version = passed_on("state.prior_version")
    n = passed_on("state.n")
    schedule = passed_on("state.schedule")
    trace = passed_on("state.trace")
    least_ridge = passed_on("state.least_ridge")
    residuals = passed_on("state.residuals")
    residual_trace = passed_on("state.residual_trace")
    residual_log_det = passed_on("state.residual_log_det")
    residual_norm = passed_on("state.residual_norm")
    rounding = passed_on("state.rounding")
    rounding_error = passed_on("state.rounding_error")
    terms = passed_on("state.terms")
    needs_refresh = passed_on("state.needs_refresh")
    locations = passed_on("state.locations")
    hyperparameters = passed_on("state.hyperparameters")
    check = passed_on("state.check")
    prior = passed_on("state.prior")
    prior_variance = passed_on("state.prior_variance")
    radial = passed_on("state.radial")
    draw_prior = passed_on("state.draw_prior")
    add_caveat = passed_on("state.add_caveat")
    move_ridge = passed_on("state.move_ridge")
    fork_frozen = passed_on("state.fork_frozen")
    all_ridges = passed_on("state.all_ridges")

    def at(self, ridge: float | None = None) -> Answers:  # noqa: D102
        return self.state.at(ridge)

    def update(self, X: Tensor, y: Tensor, weights: Tensor | None = None) -> None:
        """Add observations X [r d], y [r] to the underlying posterior."""
        self.state.update(X, y, **given(weights))

    @property
    def observed(self) -> Posterior:
        """The posterior of the observed data alone."""
        return self.state.observed if self.hypothetical else self


def given(weights: Tensor | None) -> dict[str, Tensor]:
    """Return the argument ``weights`` of ``update``, left out if None: posteriors of before 0.8 have none."""
    return {} if weights is None else {"weights": weights}


class ViewAnswers(Answers):
    """Answers of a view; all that are not overridden are those of the underlying posterior.

    Args:
        view: The view.
        inner: The answers of the underlying posterior at the same ridge.
    """

    def __init__(self, view: Posterior, inner: Answers) -> None:
        super().__init__(view, inner.ridge)
        self.inner = inner

    predict = passed_on("inner.predict")
    covariance = passed_on("inner.covariance")
    factored = passed_on("inner.factored")
    deviations = passed_on("inner.deviations")
    draw_function = passed_on("inner.draw_function")
    log_det = passed_on("inner.log_det")
    quad = passed_on("inner.quad")
    rss = passed_on("inner.rss")
    effective_dimension = passed_on("inner.effective_dimension")


class ViewRidges(AllRidges):
    """Any ridges of a view; all that is not overridden is that of the underlying posterior.

    Args:
        view: The view.
        inner: Any ridges of the underlying posterior.
    """

    def __init__(self, view: Posterior, inner: AllRidges) -> None:
        super().__init__(view)
        self.inner = inner

    number = passed_on("inner.number")
    path = passed_on("inner.path")
    at = passed_on("inner.at")
