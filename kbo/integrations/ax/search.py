"""The search of ``kbo.minimize`` for Ax, in spaces with discrete parameters under constraints.

BoTorch's own repeats a search, which begins with a walk of 18 000 steps, for the values of the discrete parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from ax.core.search_space import SearchSpaceDigest
from botorch.acquisition.acquisition import AcquisitionFunction
from torch import Tensor

from kbo.optimize.search.region import Region
from kbo.optimize.search.search import Search
from kbo.space import Choice, Fixed, Float, Int, Linear, Ordinal, Parameter, Space

Limit = tuple[Tensor, Tensor, float]
"""Indices, weights and the least sum."""


def best_points(
    acqf: AcquisitionFunction,
    n: int,
    digest: SearchSpaceDigest,
    limits: Sequence[Limit],
    fixed: Mapping[int, float] | None,
    pending: Tensor | None,
    device: torch.device,
) -> Tensor:
    """The points [n d] that nearly maximise an acquisition function, one after the other.

    Args:
        acqf: The acquisition function.
        n: Their number; each is pending for the next ones.
        digest: The search space.
        limits: The constraints.
        fixed: Values of fixed parameters by their indices.
        pending: Points [p d] that are being evaluated.
        device: Where points and acquisition function are.
    """
    names = digest.feature_names
    linear = [
        Linear({names[i]: w for i, w in zip(indices.tolist(), weights.tolist(), strict=True) if w}, lower=float(least))
        for indices, weights, least in limits
    ]
    space = _Numbers({name: _parameter(digest, i) for i, name in enumerate(names)}, linear).on(device)
    region = Region(space, {names[i]: value for i, value in (fixed or {}).items()})
    starts = torch.empty(0, len(names), dtype=torch.float64)
    found = starts.to(device)
    for i in range(n):
        acqf.set_X_pending(torch.cat([*([] if pending is None else [pending]), found]) if i else pending)
        generator = torch.Generator().manual_seed(int(torch.randint(2**31, ())))
        point = Search(space, region, starts, i, generator).argmax(lambda X: acqf(X.unsqueeze(-2)))
        found = torch.cat([found, space.features(point.unsqueeze(0))])
    acqf.set_X_pending(pending)
    return found


class _Numbers(Space):
    """A search space whose features are the numbers that Ax gives to a model."""

    def features(self, unit: Tensor) -> Tensor:
        """The values [n P] at points [n P] of the unit cube."""
        return torch.stack([p.numbers(unit[:, i]) for i, p in enumerate(self.parameters.values())], -1).to(self.device)


def _parameter(digest: SearchSpaceDigest, i: int) -> Parameter:
    values, (low, high) = digest.discrete_choices.get(i), digest.bounds[i]
    if values is None:
        return Float(float(low), float(high))
    if len(values) == 1:
        return Fixed(values[0])
    if list(values) == list(range(int(low), int(high) + 1)):
        return Int(int(low), int(high))
    return (Choice if i in digest.categorical_features else Ordinal)(values)
