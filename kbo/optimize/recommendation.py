"""Rules by which completed trials are compared for the recommendation in the practical setting."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from kbo.regression import Posterior

Recommend = Callable[[Posterior, Tensor, Tensor], Tensor]
"""Returns the merit [n], larger is better, of completed trials with features [n D] and values [n]."""


def best_observed(posterior: Posterior, features: Tensor, values: Tensor) -> Tensor:
    """Return the values, which are the merit if they have no noise."""
    return values


def cautious_mean(posterior: Posterior, features: Tensor, values: Tensor) -> Tensor:
    """Return the means less one standard deviation.

    The reported bound is wider, because its width covers all points at once, and would prefer trials that were
    repeated to better ones that were not.
    """
    mean, variance = posterior.predict(features)
    return mean - variance.sqrt()
