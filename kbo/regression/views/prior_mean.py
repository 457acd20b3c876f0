"""The posterior of a function with a known prior mean.

The underlying posterior is about the function less its prior mean m: it learns the targets ``y -
m(x)``, and m is added to its mean. ``quad``, ``rss`` and norm bounds are about the function less m
too. Variances do not change (Rasmussen & Williams 2006, Sec. 2.7).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from kbo._base import checks
from kbo.errors import InvalidInput
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
        """Return the prior mean [...] at X [... d].

        Raises:
            InvalidInput: The function ``mean`` returned something else.
        """
        mean = self.mean(X)
        if not isinstance(mean, Tensor) or mean.shape != X.shape[:-1]:
            raise InvalidInput(
                f"mean must return a tensor of shape {list(X.shape[:-1])} for points of shape "
                f"{list(X.shape)}, got {_described(mean)}."
            )
        return mean

    @torch.no_grad()
    def update(self, X: Tensor, y: Tensor, weights: Tensor | None = None) -> None:
        """Add observations X [r d], y [r]."""
        self.check_data(X, y, weights)
        self.state.update(X, y - self.mean_at(X), weights)

    def at(self, ridge: float | None = None) -> PosteriorAt:
        return _PriorMeanAt(self, self.state.at(ridge))


class _PriorMeanAt(ViewAt):
    """The posterior at one ridge, with the prior mean added to its mean."""

    state: PriorMean

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        mean, variance = self.inner.predict(X)
        return mean + self.state.mean_at(X), variance

    def factored(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, U, V = self.inner.factored(X)
        return mean + self.state.mean_at(X), U, V


def _described(value: object) -> str:
    """Return words for a value in a message: class and shape of an array, or the value itself."""
    shape = getattr(value, "shape", None)
    if shape is None:
        return checks.shown(value)
    return f"a {type(value).__name__} of shape {list(shape)}"
