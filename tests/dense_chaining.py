"""Covers, bonuses and bounds by chaining, dense and as written on paper. Nothing here comes from kbo.

Contal, Malherbe & Vayatis (2015), Algorithms 1 and 2 with the constants of the specification, and the bound that is
proved: the least of m + 1 straight lines in the standard deviation.
"""

from __future__ import annotations

import copy
import math

import numpy as np
import torch
from scipy.stats import norm
from torch import Tensor

from tests.dense import Bounds, Dense

FINEST = 1e-5
"""Levels finer than this part of kappa would be made of rounding errors in float64."""


def distances(covariance: np.ndarray) -> np.ndarray:
    """``sqrt(cov(x, x) - 2 cov(x, z) + cov(z, z))``, clipped at 0."""
    variance = np.diagonal(covariance)
    return np.sqrt(np.maximum(variance[:, None] - 2 * covariance + variance[None, :], 0))


def greedy(D: np.ndarray, eps: float, alive: np.ndarray | None = None) -> list[int]:
    """Algorithm 2: again and again the alive point that covers most of those alive, the first of several.

    Args:
        D: Distances [N N].
        eps: The radius; a point at exactly that distance is covered.
        alive: Which points [N] are to be covered, by points of their own; all if omitted.
    """
    near = (eps >= D).astype(np.float32)
    alive = np.ones(len(D), bool) if alive is None else alive.copy()
    cover = []
    while alive.any():
        counts = np.where(alive, near @ alive.astype(np.float32), -1)
        cover.append(int(np.argmax(counts)))
        alive &= near[cover[-1]] == 0
    return cover


def hierarchy(D: np.ndarray, radii: list[float]) -> tuple[list[int], list[int]]:
    """The covers of Algorithm 1: points in the order in which they are added, and how many there are at each radius."""
    order, sizes = [], []
    for eps in radii:
        order += greedy(D, eps, np.min(D[:, order], axis=1, initial=np.inf) > eps)
        sizes.append(len(order))
    return order, sizes


def is_covered(D: np.ndarray, eps: float, centres: list[int], slack: float = 0.0) -> bool:
    """Whether every point is within eps of a centre, squared distances up to ``slack`` more."""
    return len(D) == 0 or bool(
        (np.min(D[:, centres], axis=1, initial=np.inf) ** 2 <= eps**2 + slack).all()
    )


def is_separated(D: np.ndarray, eps: float, centres: list[int]) -> bool:
    """Whether no centre is within eps of another."""
    part = D[np.ix_(centres, centres)] + np.where(np.eye(len(centres), dtype=bool), np.inf, 0)
    return bool((part > eps).all())


def term(size: float, level: int, t: int, delta: float) -> float:
    """``sqrt(2 ln(size i^2 t^2 pi^4 / (36 delta)))``."""
    return math.sqrt(2 * math.log(size * level**2 * t**2 * math.pi**4 / (36 * delta)))


def quantile(width: float) -> float:
    """The normal quantile whose two tails have together the mass ``exp(-width^2 / 2)``."""
    return norm.isf(math.exp(-(width**2) / 2) / 2)


class Covers:
    """The hierarchical covers of points Z under a dense posterior.

    Attributes:
        D: Distances [N N].
        radii: ``eps_i`` of levels 1, 2, ..
        order: Points in the order in which they were added.
        sizes: ``|T_i|`` of the levels.
    """

    def __init__(self, dense: Dense, Z: Tensor, ridge: float) -> None:
        covariance = dense.covariance(Z, Z, ridge).cpu().numpy()
        self.std, self.n = np.sqrt(np.maximum(np.diagonal(covariance), 0)), dense.n
        with torch.no_grad():
            prior = copy.deepcopy(dense.kernel).to(Z)(Z, diag=True)
        self.kappa = math.sqrt(float(prior.max()))
        self.D, self.least = distances(covariance), max(float(self.std.min()), FINEST * self.kappa)
        depth = max(1, math.floor(1 + math.log2(self.kappa / self.least) + 1e-12))
        self.radii = [self.kappa * 2.0 ** (1 - i) for i in range(1, depth + 1)]
        self.order, self.sizes = hierarchy(self.D, self.radii)

    def heights(self, delta: float) -> list[float]:
        """``H_i``."""
        levels = enumerate(zip(self.radii, self.sizes, strict=True), start=1)
        return [eps * term(size + 1, i, self.n + 1, delta) for i, (eps, size) in levels]

    def steps(self, std: np.ndarray, delta: float) -> np.ndarray:
        """The sum of H_i over i with ``least <= eps_i < std``."""
        total = np.zeros_like(std)
        for eps, height in zip(self.radii, self.heights(delta), strict=True):
            if eps >= self.least * (1 - 1e-12):
                total += np.where(eps < std, height, 0)
        return total

    def smooth(self, std: np.ndarray, delta: float) -> np.ndarray:
        """Straight lines through 0 and the upper corners of the steps, the last one going on."""
        corners = [0.0, *reversed(self.radii)]
        values = [0.0, *np.cumsum(list(reversed(self.heights(delta))))]
        slope = (values[-1] - values[-2]) / (corners[-1] - corners[-2])
        return np.interp(std, corners, values) + slope * np.maximum(std - corners[-1], 0)

    def rigorous(self, std: np.ndarray, delta: float) -> np.ndarray:
        """The least over the cuts c = 1 .. m + 1: T_c itself by a union bound, what is further by differences."""
        m, t, sizes = len(self.radii), self.n + 1, [*self.sizes, len(self.std)]
        lines = []
        for c in range(1, m + 1):
            slope = quantile(
                math.sqrt(2 * math.log(sizes[c - 1] * m * t**2 * math.pi**4 / (36 * 0.1 * delta)))
            )
            away = sum(self.radii[c - 1 :])
            terms = {
                i: quantile(term(sizes[i - 1] + 1, i, t, 0.1 * delta)) for i in range(c + 1, m + 2)
            }
            chained = sum(self.radii[i - 2] * terms[i] for i in terms)
            lines.append(slope * (std + away) + chained)
        union = math.sqrt(2 * math.log(len(self.std) * t**2 * math.pi**2 / (6 * 0.9 * delta)))
        lines.append(quantile(union) * std)
        return np.min(lines, axis=0)


def chaining(
    dense: Dense, Z: Tensor, ridge: float, points: Tensor, delta: float, kind: str
) -> Bounds:
    """Bounds at Z over the finite set ``points``; ``kind`` is steps, smooth or rigorous.

    Where points were hallucinated the bonus is that of the data, the standard deviation knows of them.
    """
    covers = Covers(getattr(dense, "dense", dense), points.to(Z), ridge)
    mean, variance = dense.predict(Z, ridge)
    margin = variance.new_tensor(getattr(covers, kind)(variance.sqrt().cpu().numpy(), delta))
    return mean - margin, mean + margin
