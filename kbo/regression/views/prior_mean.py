"""The posterior of a function with a known prior mean.

The underlying posterior is about the function less its prior mean m: it learns the targets ``y -
m(x)``, and m is added to its mean. ``quad``, ``rss`` and norm bounds are about the function less m
too. Variances do not change (Rasmussen & Williams 2006, Sec. 2.7).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from kbo._base import checks
from kbo.errors import InvalidInput
from kbo.regression.all_ridges import AllRidges, Moments
from kbo.regression.posterior import Posterior, PosteriorAt
from kbo.regression.views.view import View, ViewAt


class PriorMean(View):
    """The posterior of a function with a known prior mean that is not zero.

    Args:
        state: The posterior of the function less its prior mean. Update this view, not the state.
        mean: The prior mean, a fixed differentiable function of points [... d] with values [...].

    Raises:
        InvalidInput: The state is no posterior, or the mean no function.
    """

    def __init__(self, state: Posterior, mean: Callable[[Tensor], Tensor]) -> None:
        super().__init__(state)
        self.mean: Callable[[Tensor], Tensor] = checks.function("mean", mean)

    def mean_at(self, X: Tensor) -> Tensor:
        """Return the prior mean [...] at X [... d]; a number stands for a constant mean.

        Raises:
            InvalidInput: The function ``mean`` returned something else.
        """
        mean = self.mean(X)
        if isinstance(mean, Tensor) and mean.shape in (X.shape[:-1], ()):
            return mean
        try:
            return X.new_tensor(checks.number("mean", mean))
        except InvalidInput as error:
            raise InvalidInput(
                f"mean must return a tensor of shape {list(X.shape[:-1])} for points of shape "
                f"{list(X.shape)}, or a number, got {_described(mean)}."
            ) from error

    @torch.no_grad()
    def update(self, X: Tensor, y: Tensor, weights: Tensor | None = None) -> None:
        """Add observations X [r d], y [r]."""
        self.check_data(X, y, weights)
        self.state.update(X, y - self.mean_at(X), weights)

    def at(self, ridge: float | None = None) -> PosteriorAt:
        return _PriorMeanAt(self, self.state.at(ridge))

    def across(self, X: Tensor | None = None) -> AllRidges:
        if X is None:
            return self.state.across()
        return _PriorMeanRidges(self, X, self.state.across(X))


class _PriorMeanAt(ViewAt):
    """The posterior at one ridge, with the prior mean added to its mean."""

    state: PriorMean

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        mean, variance = self.inner.predict(X)
        return mean + self.state.mean_at(X), variance

    def factored(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, U, V = self.inner.factored(X)
        return mean + self.state.mean_at(X), U, V


class _PriorMeanRidges(AllRidges):
    """The posterior at any ridges, with the prior mean added to its mean."""

    def __init__(self, view: PriorMean, X: Tensor, inner: AllRidges) -> None:
        super().__init__(view, X)
        self._inner = inner
        self.log_det = inner.log_det
        self.quad = inner.quad
        self.rss = inner.rss

    def at(self, ridges: Tensor) -> Moments:
        return self._with_mean(self._inner.at(ridges))

    def grid(self, ridges: Sequence[float]) -> Moments:
        return self._with_mean(self._inner.grid(ridges))

    def select(self, groups: Tensor) -> AllRidges:
        return _PriorMeanRidges(self.state, self._groups[groups], self._inner.select(groups))

    def _with_mean(self, moments: Moments) -> Moments:
        return moments._replace(mean=moments.mean + self.state.mean_at(self._groups))


def _described(value: object) -> str:
    """Return words for a value in a message: class and shape of an array, or the value itself."""
    shape = getattr(value, "shape", None)
    if shape is None:
        return checks.shown(value)
    return f"a {type(value).__name__} of shape {list(shape)}"
