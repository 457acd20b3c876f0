"""The outcome transform of the practical model: values are cut, standardised and made less skewed.

    t = (w(z) - location) / unit,   z = (max(y, floor) - centre) / spread

    w(z) = ((1 + z)^p - 1) / p  for z >= 0,   w(z) = -((1 - z)^(2 - p) - 1) / (2 - p)  for z < 0

For reports bad values are not cut: those below the floor become ``floor - c log(1 + (floor - y) / c)``, with the
interquartile range c.

w is the transformation of Yeo & Johnson (2000), "A new family of power transformations to improve normality or
symmetry", with log(1 + z) at p = 0 and -log(1 - z) at p = 2. It is linear at p = 1. For p > 1 it spreads large values
and draws small ones together; for p < 1 the reverse. Between p = 0 and 2 it is a bijection of the line.

For a quantity with a limit, the values near the limit matter. Then the limit is the centre, and both sides have the
same power. With power 0 this is w(z) = sign(z) log(1 + |z|), the bilog transformation (Eriksson & Poloczek 2021,
"Scalable constrained Bayesian optimization").
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

OUTLYING = 1.5
"""Interquartile ranges below the lower quartile at which bad values are cut: a diverged training run should count as
bad and not stretch the scale so far that all good ones look alike."""

_POWERS = tuple(i / 8 for i in range(17))


@dataclass(frozen=True)
class OutcomeTransform:
    """A monotone map from values (larger ones better) to targets of the posterior, and its inverse.

    Attributes:
        centre, spread: Mean and standard deviation of the values, after the cut.
        floor: Smaller values count as this one, or are compressed.
        power: The power p of the transformation.
        below: The power below the centre; None for ``2 - p``.
        location, unit: Mean and standard deviation of the transformed values.
        compression: The scale c of values below the floor, ``floor - c log(1 + (floor - y) / c)``; 0 if they are cut.
        least, largest: The least and the largest value that the inverse returns.
    """

    centre: float = 0.0
    spread: float = 1.0
    floor: float = -math.inf
    power: float = 1.0
    below: float | None = None
    location: float = 0.0
    unit: float = 1.0
    compression: float = 0.0
    least: float = -math.inf
    largest: float = math.inf

    def __call__(self, y: Tensor) -> Tensor:
        """Return the targets of values of any shape."""
        z = (self._above_floor(y) - self.centre) / self.spread
        return (_power(z, *self._powers) - self.location) / self.unit

    def target(self, y: float) -> float:
        """Return the target of one value."""
        return float(self(torch.tensor(y, dtype=torch.float64)))

    def errors(self, y: Tensor, errors: Tensor) -> Tensor:
        """Return the standard errors of the targets of values y with standard errors ``errors``, all of the same shape.

        Each is the larger of the changes of the target by one standard error up and down.
        """
        above = self(y + errors) - self(y)
        below = self(y) - self(y - errors)
        return torch.maximum(above, below)

    def inverse(self, targets: Tensor) -> Tensor:
        """Return the values of targets of any shape, moved into the declared range.

        All numbers in reports go through this map: intervals, draws, forecasts and importance.
        """
        w = self.location + self.unit * targets
        y = self.centre + self.spread * _inverse(w, *self._powers)
        if self.compression:
            excess = (self.floor - y).clamp_min(0) / self.compression
            y = torch.where(y < self.floor, self.floor - self.compression * torch.expm1(excess), y)
        return y.clamp(self.least, self.largest)

    def cuts(self, y: float) -> bool:
        """Return whether a value is cut, so that its target hides how bad it is."""
        return not self.compression and y < self.floor

    def _above_floor(self, y: Tensor) -> Tensor:
        """Return the values, with those below the floor cut or compressed."""
        cut = y.clamp_min(self.floor)
        if not self.compression:
            return cut
        excess = (self.floor - y).clamp_min(0) / self.compression
        return cut - self.compression * torch.log1p(excess)

    @property
    def scale(self) -> float:
        """The change of the value per unit of the target, at the target 0, where values are not compressed."""
        z = float(_inverse(torch.tensor(self.location, dtype=torch.float64), *self._powers))
        return self._scale(z)

    def scale_at(self, y: float) -> float:
        """Return the change of the value per unit of the target, at a value; at one that is cut, that at the floor."""
        excess = 0.0
        if self.compression:
            excess = max(self.floor - y, 0.0) / self.compression
        value = torch.tensor(y, dtype=torch.float64)
        z = float((self._above_floor(value) - self.centre) / self.spread)
        return self._scale(z) * (1 + excess)

    def _scale(self, z: float) -> float:
        """Return the change of the value per unit of the target, at a standardised value above the floor."""
        above, below = self._powers
        power = above if z >= 0 else below
        return self.spread * self.unit * (1 + abs(z)) ** (1 - power)

    def log_slope(self, y: Tensor) -> float:
        """Return the mean of ``log dt/dy`` over values, up to a term that does not depend on power and unit.

        If n times this is added, log-densities of the targets of n values are comparable between transforms.
        """
        z = (self._above_floor(y) - self.centre) / self.spread
        above, below = self._powers
        powers = torch.where(z >= 0, z.new_tensor(above - 1), z.new_tensor(below - 1))
        return float((powers * z.abs().log1p()).mean()) - math.log(self.unit)

    @property
    def _powers(self) -> tuple[float, float]:
        """The powers above and below the centre."""
        if self.below is None:
            return self.power, 2 - self.power
        return self.power, self.below

    def above(self, constant: float) -> OutcomeTransform:
        """Return the map whose targets are less by a constant."""
        return replace(self, location=self.location + self.unit * constant)


def linear(y: Tensor, cut: bool = True) -> OutcomeTransform:
    """Return the map that cuts (or compresses) and standardises values [n]; if all are equal, the spread is 1."""
    low = float(y.quantile(0.25))
    high = float(y.quantile(0.75))
    floor = -math.inf
    if high > low:
        floor = low - OUTLYING * (high - low)
    floored = OutcomeTransform(floor=floor)
    if not cut:
        floored = replace(floored, compression=high - low)
    y = floored._above_floor(y)
    peak = float(y.abs().max()) or 1.0  # squares of very large values would overflow
    spread = float((y / peak).std()) * peak
    centre = float((y / peak).mean()) * peak
    if not spread > 0:
        spread = 1.0
    return replace(floored, centre=centre, spread=spread)


def least_skewed(y: Tensor, cut: bool = True) -> OutcomeTransform:
    """Return the map with the power under which values [n] are most likely normal."""
    plain = linear(y, cut)
    candidates = [_standardised(plain, y, power) for power in _POWERS]
    return max(candidates, key=lambda transform: transform.log_slope(y))


def around(limit: float, y: Tensor, power: float) -> OutcomeTransform:
    """Return the map with one power on both sides of a limit, standardised for values y [n]; power 0 is bilog."""
    distance = (y - limit).abs()
    spread = float(distance.median()) or float(distance.amax()) or 1.0
    plain = OutcomeTransform(limit, spread, power=power, below=power)
    transformed = plain(y)
    return replace(plain, location=float(transformed.mean()), unit=float(transformed.std()) or 1.0)


def _standardised(plain: OutcomeTransform, y: Tensor, power: float) -> OutcomeTransform:
    """Return the map with a power under which the targets of values [n] have mean 0 and standard deviation 1."""
    transform = replace(plain, power=power)
    transformed = transform(y)
    unit = float(transformed.std())
    if power == 1.0 or not unit > 0:
        return plain
    return replace(transform, location=float(transformed.mean()), unit=unit)


def _power(z: Tensor, p: float, below: float) -> Tensor:
    """Return w(z) of standardised values z."""
    return torch.where(z >= 0, _branch(z.clamp_min(0), p), -_branch(-z.clamp_max(0), below))


def _inverse(w: Tensor, p: float, below: float) -> Tensor:
    """Return the standardised values z with w(z) = w."""
    above_centre = _branch_inverse(w.clamp_min(0), p)
    below_centre = -_branch_inverse(-w.clamp_max(0), below)
    return torch.where(w >= 0, above_centre, below_centre)


def _branch(z: Tensor, p: float) -> Tensor:
    """Return ((1 + z)^p - 1) / p for z >= 0."""
    if p == 0:
        return z.log1p()
    return torch.expm1(p * z.log1p()) / p


def _branch_inverse(w: Tensor, p: float) -> Tensor:
    """Return the inverse of ``_branch``."""
    if p == 0:
        return torch.expm1(w)
    return torch.expm1((p * w).log1p() / p)
