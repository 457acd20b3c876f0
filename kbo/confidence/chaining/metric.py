"""The distance of points under a posterior, computed in blocks, without an N x N matrix of floats.

The distance of two points is the standard deviation of the difference of their values (Contal et
al. 2015, Sec. 2),

    d(x, z)^2 = var(f(x) - f(z)) = cov(x, x) - 2 cov(x, z) + cov(z, z),
    cov(x, z) = k(x, z) - U(x)'V(z).

It never grows when observations are added at the same ridge.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from kbo._base import checks
from kbo.errors import InvalidInput
from kbo.kernels import freeze
from kbo.regression import Posterior

BLOCK = {"cpu": 2**17, "cuda": 2**26}
"""Number of distances that are computed at once; on the CPU as many as fit into the cache."""

SQUARED_ROUNDING = 64
"""Rounding error of a squared distance, in units in the last place of the largest prior variance."""


class PosteriorMetric:
    """Points with the distance of a posterior; it keeps the factors U and V of the covariance.

    Args:
        state: The posterior; later changes of it have no effect.
        points: The points [N d].

    Raises:
        InvalidInput: Another kind of posterior, or points that do not fit it.

    Attributes:
        device: Device of the points.
        slack: Largest error of a squared distance by rounding.
        std: Posterior standard deviations [N]: ``d(x, z) <= std(x) + std(z)``.
    """

    def __init__(self, state: Posterior, points: Tensor) -> None:
        checks.instance("state", state, Posterior, "; that of a model is model.state")
        state.check(points, "points")
        if points.ndim != 2 or not len(points):
            raise InvalidInput(
                f"points must have shape [N d] with N > 0, got {tuple(points.shape)}."
            )
        with torch.no_grad():
            points = points.clone()  # the caller may change theirs
            prior_variance = state.prior_variance(points)
            _, U, V = state.at().factored(points)  # [r N] each
            left = U.mT.contiguous()
            right = left if V is U else V.mT.contiguous()
            variance = (prior_variance - (left * right).sum(1)).clamp_min(0)
        unit = torch.finfo(points.dtype).eps * float(prior_variance.max())
        self.state = state
        self.points = points
        self.device: torch.device = points.device
        self.slack: float = SQUARED_ROUNDING * unit
        self.std: Tensor = variance.sqrt()
        self._variance = variance
        self._left = left
        self._right = right

    def __len__(self) -> int:
        """Return the number of points."""
        return len(self.points)

    def __getitem__(self, points: Tensor | slice) -> PosteriorMetric:
        """Return the subset of the points with these numbers, with the same distance."""
        subset = copy.copy(self)
        subset.points = self.points[points]
        subset.std = self.std[points]
        subset._variance = self._variance[points]
        subset._left = self._left[points]
        subset._right = subset._left
        if self._right is not self._left:
            subset._right = self._right[points]
        return subset

    def radial(self) -> tuple[Tensor, Callable[[Tensor], Tensor]] | None:
        """Return coordinates c [N k] and the prior kernel g, a function of their distance, or None.

        The prior distance bounds this one, ``d(x, z)^2 <= 2 g(0) - 2 g(|c(x) - c(z)|)``, with g
        decreasing.
        """
        kernel = self.state.kernel
        if kernel is None:
            return None
        # Data never increase distances, so the prior distance bounds the posterior distance.
        return freeze(kernel, self.points).radial(self.points)

    @torch.no_grad()
    def squared(self, other: PosteriorMetric) -> Tensor:
        """Return squared distances [a b] to another subset of the same set.

        Between equal points rounding may leave a small value of either sign.
        """
        prior = self.state.prior(self.points, other.points)
        covariance = torch.addmm(prior, self._left, other._right.mT, alpha=-1)
        return covariance.mul_(-2).add_(self._variance.unsqueeze(-1)).add_(other._variance)

    def limit(self, radius: float) -> float:
        """Return the largest squared distance that is within ``radius``, rounding included."""
        return radius * radius + self.slack

    def within(self, other: PosteriorMetric, radius: float) -> Tensor:
        """Return a mask [a b] of the pairs whose distance is at most ``radius``."""
        return self.squared(other) <= self.limit(radius)

    def ranks(self, radii: Sequence[float]) -> Tensor:
        """Return for each distance the number of radii that are at least as large, as bytes [N N].

        On the diagonal it is the number of all radii, at most 255.
        """
        assert len(radii) < 256
        ranks = torch.empty(len(self), len(self), dtype=torch.uint8, device=self.device)
        blocks = list(self.blocks(int(self._distances_at_once() ** 0.5)))
        for i, (rows, row_points) in enumerate(blocks):
            for columns, column_points in blocks[i:]:
                squared = row_points.squared(column_points)
                rank = torch.zeros_like(squared, dtype=torch.uint8)
                for radius in radii:
                    rank += squared <= self.limit(radius)
                ranks[rows, columns] = rank
                ranks[columns, rows] = rank.mT
        return ranks.fill_diagonal_(len(radii))

    def blocks(self, columns: int) -> Iterator[tuple[slice, PosteriorMetric]]:
        """Yield slices of point numbers, and the subset of each.

        The length of a slice is such that its distances to ``columns`` points fit into one block.
        """
        size = max(16, self._distances_at_once() // max(1, columns))
        for start in range(0, len(self), size):
            rows = slice(start, min(start + size, len(self)))
            yield rows, self[rows]

    def _distances_at_once(self) -> int:
        return BLOCK.get(self.device.type, BLOCK["cpu"])
