"""OutcomeTransform of the practical model: values of the objective that are cut, standardised and made less skewed.

    t = (w(z) - location) / unit,   z = (max(y, floor) - centre) / spread

    w(z) = ((1 + z)^p - 1) / p  for z >= 0,   w(z) = -((1 - z)^(2 - p) - 1) / (2 - p)  for z < 0

Where bad values are described and not cut, those below the floor become ``floor - c log(1 + (floor - y) / c)`` instead,
with the interquartile range c.

w is the transformation of Yeo & Johnson (2000), "A new family of power transformations to improve normality or
symmetry", with log(1 + z) at p = 0 and -log(1 - z) at p = 2. It is linear at p = 1, spreads the large values and draws
the small ones together for p > 1, and the reverse for p < 1. Between 0 and 2 it is a bijection of the line.

Of a quantity with a limit the values near it matter. Then the limit is the centre, and both sides have the same power:
at 0 that is w(z) = sign(z) log(1 + |z|), the bilog transformation (Eriksson & Poloczek 2021, "Scalable constrained
Bayesian optimization").
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
    """A monotone map from values of the objective, of which larger ones are better, to targets, and its inverse.

    Attributes:
        centre, spread: Mean and standard deviation of the values, after the cut.
        floor: Smaller values count as this one, or are compressed.
        compression: The scale c of those below the floor, ``floor - c log(1 + (floor - y) / c)``; 0 if they are cut.
        power: p of the transformation.
        below: The power for values below the centre in place of 2 - p.
        location, unit: Mean and standard deviation of the transformed values.
    """

    centre: float = 0.0
    spread: float = 1.0
    floor: float = -math.inf
    power: float = 1.0
    below: float | None = None
    location: float = 0.0
    unit: float = 1.0
    compression: float = 0.0

    def __call__(self, y: Tensor) -> Tensor:
        """Return the targets of values of any shape."""
        z = (self._above_floor(y) - self.centre) / self.spread
        return (_power(z, *self._powers) - self.location) / self.unit

    def errors(self, y: Tensor, errors: Tensor) -> Tensor:
        """Return the standard errors of the targets of values with standard errors, of one shape."""
        return torch.maximum(self(y + errors) - self(y), self(y) - self(y - errors))

    def values(self, targets: Tensor) -> Tensor:
        """Return the values with these targets."""
        y = self.centre + self.spread * _inverse(self.location + self.unit * targets, *self._powers)
        if not self.compression:
            return y
        below = self.compression * torch.expm1((self.floor - y).clamp_min(0) / self.compression)
        return torch.where(y < self.floor, self.floor - below, y)

    def _above_floor(self, y: Tensor) -> Tensor:
        """Return the values with those below the floor cut or compressed."""
        if not self.compression:
            return y.clamp_min(self.floor)
        return y.clamp_min(self.floor) - self.compression * torch.log1p(
            (self.floor - y).clamp_min(0) / self.compression
        )

    @property
    def scale(self) -> float:
        """The change of the value per unit of the target, at the target 0."""
        z = float(_inverse(torch.tensor(self.location, dtype=torch.float64), *self._powers))
        return self.spread * self.unit / _slope(z, *self._powers)

    def log_slope(self, y: Tensor) -> float:
        """Return the mean of ``log dt/dy`` over values, up to a term that depends on neither power nor unit.

        The logarithm of a density of n targets is comparable with that of other targets of the same values after n
        times this is added.
        """
        z = (self._above_floor(y) - self.centre) / self.spread
        above, below = self._powers
        powers = torch.where(z >= 0, z.new_tensor(above - 1), z.new_tensor(below - 1))
        return float((powers * z.abs().log1p()).mean()) - math.log(self.unit)

    @property
    def _powers(self) -> tuple[float, float]:
        return self.power, 2 - self.power if self.below is None else self.below

    def above(self, constant: float) -> OutcomeTransform:
        """Return the map to targets less a constant."""
        return replace(self, location=self.location + self.unit * constant)


def linear(y: Tensor, cut: bool = True) -> OutcomeTransform:
    """Return the cut, or compression, and standardisation of values [n]; where all are equal, the unit is 1."""
    low, high = y.quantile(0.25), y.quantile(0.75)
    floor = float(low - OUTLYING * (high - low)) if high > low else -math.inf
    floored = OutcomeTransform(floor=floor, compression=0.0 if cut else float(high - low))
    y = floored._above_floor(y)
    peak = float(y.abs().max()) or 1.0  # squares of very large values would overflow
    spread = float((y / peak).std()) * peak
    centre = float((y / peak).mean()) * peak
    return replace(floored, centre=centre, spread=spread if spread > 0 else 1.0)


def least_skewed(y: Tensor, cut: bool = True) -> OutcomeTransform:
    """Return the map with the power under which values [n] are most likely as draws of a normal distribution."""
    plain = linear(y, cut)
    return max(
        [_standardised(plain, y, power) for power in _POWERS],
        key=lambda targets: targets.log_slope(y),
    )


def around(limit: float, y: Tensor, power: float) -> OutcomeTransform:
    """Return the map of values [n] with this power on both sides of a limit: at 0 it is most accurate there."""
    distance = (y - limit).abs()
    spread = float(distance.median()) or float(distance.amax()) or 1.0
    plain = OutcomeTransform(limit, spread, power=power, below=power)
    transformed = plain(y)
    return replace(plain, location=float(transformed.mean()), unit=float(transformed.std()) or 1.0)


def _standardised(plain: OutcomeTransform, y: Tensor, power: float) -> OutcomeTransform:
    transformed = replace(plain, power=power)(y)
    if power == 1.0 or not float(transformed.std()) > 0:
        return plain
    return replace(
        plain, power=power, location=float(transformed.mean()), unit=float(transformed.std())
    )


def _power(z: Tensor, p: float, below: float) -> Tensor:
    """Return w(z)."""
    return torch.where(z >= 0, _branch(z.clamp_min(0), p), -_branch(-z.clamp_max(0), below))


def _inverse(w: Tensor, p: float, below: float) -> Tensor:
    """Return z with w(z) = w."""
    return torch.where(
        w >= 0, _branch_inverse(w.clamp_min(0), p), -_branch_inverse(-w.clamp_max(0), below)
    )


def _slope(z: float, p: float, below: float) -> float:
    """Return dw/dz."""
    return (1 + abs(z)) ** ((p if z >= 0 else below) - 1)


def _branch(z: Tensor, p: float) -> Tensor:
    return z.log1p() if p == 0 else torch.expm1(p * z.log1p()) / p


def _branch_inverse(w: Tensor, p: float) -> Tensor:
    return torch.expm1(w) if p == 0 else torch.expm1((p * w).log1p() / p)
