"""Finite sets of points with a distance, in blocks: no |X| x |X| matrix of floats is formed.

The distance under a Gaussian-process posterior is the standard deviation of a difference,

    d(x, z)^2 = var(f(x) - f(z)) = cov(x, x) - 2 cov(x, z) + cov(z, z),      cov(x, z) = k(x, z) - U(x)'V(z).

It never grows when observations are added at the same ridge.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from kbo._base import checks
from kbo.errors import InvalidInput
from kbo.kernels import freeze
from kbo.regression import Posterior

_BLOCK = {"cpu": 2**17, "cuda": 2**26}
"""Distances that are formed at once; on the CPU as many as stay in the cache."""

_SELF = 1e-6
"""Largest distance of a point to itself that passes as rounding, as a fraction of the largest finite distance."""

_ROUNDING = 64
"""Squared distances are trusted to this many units in the last place of the largest variance."""


class Metric(ABC):
    """A finite set of points with a distance.

    Attributes:
        device: Device of the points.
        slack: Largest error of a squared distance by rounding.
        std: Numbers [N] with ``d(x, z) <= std(x) + std(z)``, where there is ``radial``.
    """

    device: torch.device
    std: Tensor
    slack: float = 0.0

    @abstractmethod
    def __len__(self) -> int:
        """Number of points."""

    @abstractmethod
    def __getitem__(self, points: Tensor | slice) -> Metric:
        """Return the same distance on some of the points, given by their numbers."""

    @abstractmethod
    def squared(self, other: Any) -> Tensor:
        """Return squared distances [a b] to other points of the same space."""

    def limit(self, radius: float) -> float:
        """Return the largest squared distance that counts as within ``radius``: a point at exactly that distance is."""
        return radius * radius + self.slack

    def within(self, other: Any, radius: float) -> Tensor:
        """Whether the distances [a b] are at most ``radius``."""
        return self.squared(other) <= self.limit(radius)

    def ranks(self, radii: Sequence[float]) -> Tensor:
        """Return the number of radii, at most 255, that each distance is within, [N N] bytes; on the diagonal all."""
        assert len(radii) < 256
        ranks = torch.empty(len(self), len(self), dtype=torch.uint8, device=self.device)
        parts = list(self.blocks(int(_BLOCK.get(self.device.type, 2**17) ** 0.5)))
        for i, (rows, some) in enumerate(parts):
            for columns, others in parts[i:]:
                squared = some.squared(others)
                rank = torch.zeros_like(squared, dtype=torch.uint8)
                for radius in radii:
                    rank += squared <= self.limit(radius)
                ranks[rows, columns], ranks[columns, rows] = rank, rank.mT
        return ranks.fill_diagonal_(len(radii))

    def radial(self) -> tuple[Tensor, Callable[[Tensor], Tensor]] | None:
        """Return coordinates of the points and a kernel as for ``Posterior.radial``, whose metric bounds this one."""
        return None

    def blocks(self, columns: int) -> Iterator[tuple[slice, Any]]:
        """Yield the points in blocks whose distances to that many others are formed at once."""
        size = max(16, _BLOCK.get(self.device.type, 2**17) // max(1, columns))
        for start in range(0, len(self), size):
            rows = slice(start, min(start + size, len(self)))
            yield rows, self[rows]


class DistanceMatrix(Metric):
    """A space given by all its distances.

    Args:
        distances: Symmetric, not negative, zero on the diagonal, up to rounding, [N N].

    Raises:
        InvalidInput: Anything else.
    """

    def __init__(self, distances: Tensor) -> None:
        shape = checks.tensor("distances", distances).shape
        if len(shape) != 2 or shape[0] != shape[1] or distances.is_complex():
            raise InvalidInput(
                f"distances must be a symmetric tensor [N N] of numbers, got {tuple(shape)}."
            )
        D = distances if distances.is_floating_point() else distances.double()
        finite = D[D.isfinite()]
        rounding = _SELF * float(finite.max()) if len(finite) else 0.0
        if not torch.allclose(D, D.mT, rtol=0, atol=rounding):
            raise InvalidInput("distances must be a symmetric tensor [N N] without NaN.")
        if bool((D < 0).any()) or bool((D.diagonal() > rounding).any()):
            raise InvalidInput(
                "distances must not be negative, and zero from every point to itself; here they are down to "
                f"{float(D.min()):.3g} and up to {float(D.diagonal().max()):.3g}. If that is rounding (torch.cdist in "
                "float32, for example) use double, or distances.fill_diagonal_(0)."
            )
        self.distances: Tensor = torch.maximum(D, D.mT).fill_diagonal_(0)
        self.device: torch.device = D.device
        self._points = torch.arange(len(D), device=D.device)

    def __len__(self) -> int:
        return len(self._points)

    def __repr__(self) -> str:
        return f"DistanceMatrix({len(self)} points)"

    def __getitem__(self, points: Tensor | slice) -> DistanceMatrix:
        part = copy.copy(self)
        part._points = self._points[points]
        return part

    def squared(self, other: DistanceMatrix) -> Tensor:
        return self.distances[self._points.unsqueeze(-1), other._points].square()


class PosteriorMetric(Metric):
    """Points with the distance of a posterior; the factors of the distances are kept, r numbers a point.

    Args:
        state: The posterior, taken as it is now.
        points: The points [N d].

    Raises:
        InvalidInput: Another kind of posterior, or points that do not fit it.

    Attributes:
        std: Posterior standard deviations [N].
    """

    def __init__(self, state: Posterior, points: Tensor) -> None:
        checks.instance("state", state, Posterior, "; that of a model is model.state").check(
            points, "points"
        )
        if points.ndim != 2 or not len(points):
            raise InvalidInput(
                f"points must have shape [N d] with N > 0, got {tuple(points.shape)}."
            )
        with torch.no_grad():
            points = points.clone()  # the caller may change theirs
            self.state = state
            self.points = points
            self.device: torch.device = points.device
            prior = state.prior_variance(points)
            _, left, right = state.at().factored(points)
            self._left = left.mT.contiguous()
            self._right = self._left if right is left else right.mT.contiguous()
            self._variance = (prior - (self._left * self._right).sum(1)).clamp_min(0)
            self.std: Tensor = self._variance.sqrt()
            self.slack: float = _ROUNDING * torch.finfo(points.dtype).eps * float(prior.max())

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, points: Tensor | slice) -> PosteriorMetric:
        part = copy.copy(self)
        part.points, part.std, part._variance = (
            self.points[points],
            self.std[points],
            self._variance[points],
        )
        part._left = self._left[points]
        part._right = part._left if self._right is self._left else self._right[points]
        return part

    def radial(self) -> tuple[Tensor, Callable[[Tensor], Tensor]] | None:
        kernel = self.state.kernel
        return None if kernel is None else freeze(kernel, self.points).radial(self.points)

    @torch.no_grad()
    def squared(self, other: PosteriorMetric) -> Tensor:
        """Return squared distances [a b]; rounding may leave those of equal points a little below or above zero."""
        prior = self.state.prior(self.points, other.points)
        covariance = torch.addmm(prior, self._left, other._right.mT, alpha=-1)
        return covariance.mul_(-2).add_(self._variance.unsqueeze(-1)).add_(other._variance)
