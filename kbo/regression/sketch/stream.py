"""The data of a sketched posterior, following the observations and the dictionary.

Notation: dictionary Z of m points, L = chol k(Z, Z), z(x) = L^-1 k(Z, x), B = [z(x_1) .. z(x_n)], M = B B' + ridge I.

A step costs O(m^2) while the dictionary stays, O(n m + m^2) for a new point of the dictionary and O(n m^2 + m^3) for a
new dictionary, n counting distinct locations.
"""

from __future__ import annotations

import math

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo.kernels import DenseKernel, freeze
from kbo.linalg import REFRESH, GrowingTensor, InverseRoot
from kbo.regression.sketch.dictionary import Candidate, Dictionary
from kbo.regression.sketch.error import ErrorNorm, rounding, stretching
from kbo.regression.sketch.features import Features
from kbo.regression.sketch.rows import Rows
from kbo.stateful import Stateful, fresh_version, passed_on

_FEW = 8
"""A fraction 1 / _FEW of m columns is still cheaper to add one by one than all at once."""

_ROUNDING = 1e-13
"""Relative error of ``y'y``, with room to spare."""

_MOST_GAINS = 16
"""Ridges at which ``residual_log_det`` is remembered."""

_SMALL_BLOCK = 64
"""Observations of a block of ``error.py`` where all norms are void whenever the dictionary is drawn again."""

_RESIDUALS = ("_residual_trace", "_feature_rounding", "_residual_gains")
_NUMBERS = ("n", "weighted", "trace", "kappa", "yy", "_G", "_By", *_RESIDUALS)
"""Sums over the observations."""


class Sketch(Stateful):
    """Observations seen through a dictionary, in float64, on the device of ``like`` [0 d].

    Attributes:
        dictionary: The dictionary at work, with what it remembers.
        features: ``z(x)``.
        rows: The distinct locations that were observed, with their features.
        root: ``M^-1`` as a square root.
        n: Number of observations, repeats included.
        weighted: Whether one of them has another weight than 1; with weights, B has columns ``sqrt(w) z(x)``, K and E
            are ``W^1/2 K W^1/2`` and ``W^1/2 E W^1/2``, and y is ``W^1/2 y``.
        m: Number of anchors.
        G: ``B B'``, [m m].
        By: ``B y``, [m].
        trace: ``Tr K``.
        kappa: Largest ``w k(x, x)`` of an observation.
        yy: ``y'y``.
        layout: A version that changes whenever the dictionary is replaced: what was derived from its features is void.
    """

    saved: tuple[str, ...] = (*_NUMBERS, "rows", "features", "root", "dictionary", "_error")

    def __init__(self, kernel: Kernel, ridge: float, dictionary: Dictionary, like: Tensor) -> None:
        self.ridge: float = ridge
        self.k: DenseKernel = freeze(kernel, like)
        self.dictionary: Dictionary = dictionary.begin(like)
        points = self.dictionary.points
        self.features: Features = Features(self.k, like if points is None else points)
        self.rows: Rows = Rows(like)
        self._error = ErrorNorm()
        self.n: int = 0
        self.weighted: bool = False
        self.trace: float = 0.0
        self.kappa: float = 0.0
        self.yy: float = 0.0
        self._project()

    m: int = passed_on("features.m")
    G: Tensor = passed_on("_G.value")
    By: Tensor = passed_on("_By.value")

    def _project(self) -> None:
        """Everything that follows from features and rows."""
        self.rows.set_features(self.features.solve(self.rows.X).mT.contiguous(), self.features.row_norms)
        self._sum()
        self.root: InverseRoot = InverseRoot(self.G, self.ridge)
        self._forget_residuals()
        self.layout: int = fresh_version()

    @torch.no_grad()
    def update(self, X: Tensor, y: Tensor, weights: Tensor | None = None) -> None:
        """Take in observations X [r d], y [r], one after the other unless the dictionary takes blocks."""
        self.weighted |= weights is not None and bool((weights != 1).any())
        if self.dictionary.in_blocks and len(X) > 1:
            self._extend(X, y, torch.ones_like(y) if weights is None else weights)
            return
        each = [1.0] * len(X) if weights is None else weights.tolist()
        for x, target, weight in zip(X.split(1), y.tolist(), each, strict=True):
            self._observe(x, target, weight)

    def _extend(self, X: Tensor, y: Tensor, weights: Tensor) -> None:
        """Many observations under the dictionary before them."""
        features, prior = self.features.solve(X), self.k.diagonal(X)
        residual = (prior - features.square().sum(0)).clamp_min(0)
        spread = self.features.row_norms @ features.abs()
        self.rows.extend(X, features.mT, residual, prior, spread, y, weights)
        features, prior, y = features * weights.sqrt(), prior * weights, y * weights.sqrt()
        self._count(len(X), float(prior.sum()), float(prior.max()), float(y @ y))
        self.G.add_(features @ features.mT)
        self.By.add_(features @ y)
        self._forget_residuals()
        if len(X) > self.m // _FEW or self.root.columns + len(X) >= REFRESH:
            self.root.refresh(self.G)
        else:
            for z in features.mT:
                self.root.add(z)
        self._redraw()

    def _observe(self, x: Tensor, y: float, weight: float) -> None:
        """One observation at x [1 d]."""
        row = self.rows.find(x)
        if row is None:
            prior, column = float(self.k.diagonal(x)), self.features.columns(x)[:, 0]
            z = self.features.solve_columns(column)
            residual = max(prior - float(z @ z), 0.0)
        else:
            z = self.rows.features[row].clone()
            column = self.features.L @ z
            residual, prior = float(self.rows.residual[row]), float(self.rows.prior[row])
        anchor = None if row is None else self.features.at(x)
        point = Candidate(prior, residual, column, z, anchor, self.features, weight)
        if self.dictionary.accepts(point, self) and not point.dependent:
            z, residual = self._admit(x, point), 0.0
        if row is None:
            spread = float(z.abs() @ self.features.row_norms)
            self.rows.append(x, z, residual, prior, spread, y, weight)
        else:
            spread = float(self.rows.spread[row])
            self.rows.repeat(row, y, weight)
        self._count_residual(self.rows.find(x), residual, rounding(self.m, prior, spread), weight)
        self._count(1, weight * prior, weight * prior, weight * y * y)
        if weight != 1:
            z, y = weight**0.5 * z, weight**0.5 * y
        refresh = self.root.needs_refresh
        if refresh and self.rows.n <= REFRESH:
            self._sum()  # as few additions as possible: thousands of repeats of a few rows would drift
        else:
            self.G.addr_(z, z)
            self.By.add_(z, alpha=y)
        if refresh:
            self.root.refresh(self.G)
        else:
            self.root.add(z)
        self._redraw()

    def _sum(self) -> None:
        """``B B'`` and ``B y`` from rows and counts."""
        B = self.rows.features.mT
        self._G, self._By = GrowingTensor((B * self.rows.counts) @ B.mT), GrowingTensor(B @ self.rows.sums)

    def _count(self, n: int, trace: float, kappa: float, yy: float) -> None:
        self.n += n
        self.trace += trace
        self.kappa = max(self.kappa, kappa)
        self.yy += yy

    def _admit(self, x: Tensor, point: Candidate) -> Tensor:
        """Make x [1 d] an anchor; its features, which gain a coordinate, [m + 1]."""
        pivot = point.residual**0.5
        self.features.append(x, point.features, point.coefficients, pivot)
        self._forget_residuals()
        coordinate = self.features.next_coordinate(self.m - 1, self.rows.X, self.rows.features.mT)
        self.rows.add_feature(coordinate, float(self.features.row_norms[-1]))
        g = (self.rows.counts * coordinate) @ self.rows.features
        self._G.grow(1, 1)
        self.G[-1], self.G[:, -1] = g, g
        self._By.append((coordinate @ self.rows.sums).reshape(1))
        self.root.border(g[:-1], float(g[-1]) + self.ridge, self.G)
        return torch.cat([point.features, g.new_tensor([pivot])])

    def _redraw(self) -> None:
        """A new dictionary, if it asks for one."""
        drawn = self.dictionary.redraws(self)
        if drawn is None:
            return
        points = self.rows.X[drawn]
        if points.shape == self.features.anchors.shape and torch.equal(points, self.features.anchors):
            return
        self.features = Features(self.k, points)
        self._error = ErrorNorm(_SMALL_BLOCK)
        self._project()

    def move_ridge(self, ridge: float) -> None:
        """Replace the regulariser, O(m^3)."""
        self.ridge = ridge
        self.root = InverseRoot(self.G, ridge)

    def row_leverages(self) -> Tensor:
        """The leverages of all rows at the state's ridge, [rows]."""
        form = (self.rows.features @ self.root.S).square().sum(1)
        return self.rows.residual / self.ridge + form

    @property
    def rounding(self) -> float:
        """Bound of the rounding error of ``quad`` and ``rss``, small differences of numbers as large as ``y'y``."""
        return _ROUNDING * self.yy

    def residuals(self) -> Tensor:
        """The diagonal of E over the rows, times their counts, rounded up by its rounding error, [rows]."""
        rows = self.rows
        return rows.counts * (rows.residual + rounding(self.m, rows.prior, rows.spread))

    def residual_trace(self) -> float:
        """``Tr E``, rounded up by its rounding error."""
        if self._residual_trace is None:
            rows = self.rows
            self._feature_rounding = float(rows.counts @ rounding(self.m, rows.prior, rows.spread))
            self._residual_trace = float(rows.counts @ rows.residual) + self._feature_rounding
        return self._residual_trace

    def feature_rounding(self) -> float:
        """Return the norm of the error of ``B'B`` by rounding in the dictionary."""
        self.residual_trace()
        return self._feature_rounding

    def stretched(self) -> float:
        """Return the factor, less one, by which rounding stretches norms of functions; see ``error.stretching``."""
        if self._stretched is None:
            self._stretched = stretching(self.features, self.k)
        return self._stretched

    def residual_log_det(self, ridge: float) -> float:
        """An upper bound of ``ln det(I + E / ridge)``: Hadamard's inequality, repeats merged."""
        if ridge not in self._residual_gains:
            if len(self._residual_gains) == _MOST_GAINS:
                del self._residual_gains[next(iter(self._residual_gains))]
            self._residual_gains[ridge] = float((self.residuals() / ridge).log1p().sum())
        return self._residual_gains[ridge]

    def _forget_residuals(self) -> None:
        self._stretched: float | None = None
        self._residual_trace: float | None = None
        self._feature_rounding = 0.0
        self._residual_gains: dict[float, float] = {}

    def _count_residual(self, row: int | None, residual: float, lost: float, weight: float) -> None:
        """Add one observation of a row, whose part of the diagonal of E and its rounding are given, to the sums."""
        assert row is not None
        residual = residual + lost
        if self._residual_trace is not None:
            self._feature_rounding += weight * lost
            self._residual_trace += weight * residual
        count = float(self.rows.counts[row])
        for ridge in self._residual_gains:
            more = math.log1p(count * residual / ridge) - math.log1p((count - weight) * residual / ridge)
            self._residual_gains[ridge] += more

    def residual_norm(self) -> float:
        """An upper bound of the operator norm of E; see ``error.py``."""
        return min(self._error.bound(self.k, self.rows), self.residual_trace()) if self.n else 0.0

    def restored(self) -> None:  # noqa: D102
        self.layout = fresh_version()
