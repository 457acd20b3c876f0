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

from kbo.checks import OnHost
from kbo.kernels import DenseKernel, freeze
from kbo.linalg import REFRESH, GrowingTensor, InverseRoot
from kbo.regression.sketch.dictionary import Candidate, Dictionary
from kbo.regression.sketch.error import ErrorNorm, rounding, stretching
from kbo.regression.sketch.features import Features
from kbo.regression.sketch.rows import Place, Rows
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
        self._one = like.new_ones(())
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
    def update(self, X: Tensor, y: Tensor, weights: Tensor | None, host: OnHost) -> None:
        """Take in observations X [r d], y [r], one after the other unless the dictionary takes blocks.

        ``host`` has them, and their weights [r], as plain numbers. The tensors are read, not kept.
        """
        each = host.weights or [1.0] * len(X)
        self.weighted |= host.weights is not None and set(each) != {1.0}
        if self.dictionary.in_blocks and len(X) > 1:
            self._extend(X, y, torch.ones_like(y) if weights is None else weights, host.places, each)
            return
        counts, totals = ([self._one] * len(X), y) if weights is None else (weights.unbind(), weights * y)
        rows = X.unsqueeze(1).unbind(), counts, totals.unbind(), host.places, host.targets, each
        for x, count, total, place, target, weight in zip(*rows, strict=True):
            self._observe(x, (count, total), place, target, weight)

    def _extend(self, X: Tensor, y: Tensor, weights: Tensor, places: list[Place], each: list[float]) -> None:
        """Many observations under the dictionary before them."""
        features, prior, G = self.features.solve(X), self.k.diagonal(X), self.G
        residual = (prior - features.square().sum(0)).clamp_min(0)
        spread = self.features.row_norms @ features.abs()
        self.rows.extend(X, features.mT, torch.stack([residual, prior, spread], -1), y, weights, places, each)
        features, prior, y = features * weights.sqrt(), prior * weights, y * weights.sqrt()
        self._count(len(X), *torch.stack([prior.sum(), prior.max(), y @ y]).tolist())
        G.add_(features @ features.mT)
        self._summed = len(self.rows.order)
        self.By.add_(features @ y)
        self._forget_residuals()
        if len(X) > self.m // _FEW or self.root.columns + len(X) >= REFRESH:
            self.root.refresh(G)
        else:
            for z in features.mT:
                v = z @ self.root.S
                self.root.add(v, float(v @ v))
        self._redraw()

    def _observe(self, x: Tensor, counted: tuple[Tensor, Tensor], place: Place, y: float, weight: float) -> None:
        """One observation at x [1 d], counted by its weight [] and its weighted target []; the host reads once."""
        rows, row = self.rows, self.rows.find(place)
        if row is None:
            prior, column = self.k.diagonal(x)[0], self.features.columns(x)
            z = self.features.solve_columns(column)[:, 0]
            numbers = (prior - z @ z).clamp_min(0), prior, z.abs() @ self.features.row_norms, *counted
        else:
            z, numbers = rows.features[row].clone(), rows.numbers[row].unbind()
            column = (self.features.L @ z).unsqueeze(-1)
        whitened, image = z @ self.root.S, self.dictionary.image(column, z, self)
        numbers = torch.stack([*numbers, whitened @ whitened, *([] if image is None else [image @ image])])
        residual, prior, spread, _, _, square, *image_square = numbers.tolist()
        point = Candidate(prior, residual, spread, column, z, place, self.features, weight, image, *image_square)
        accepted = self.dictionary.accepts(point, self) and not point.dependent
        if row is None:
            row = rows.append(x, z, numbers[:5], place, weight)
        else:
            rows.repeat(row, y, weight)
        self._count_residual(row, residual, rounding(self.m, prior, spread), weight)
        self._count(1, weight * prior, weight * prior, weight * y * y)
        refresh = self.root.needs_refresh
        if refresh and rows.n <= REFRESH:
            self._sum()  # as few additions as possible: thousands of repeats of a few rows would drift
        else:
            self.By.add_(z, alpha=weight * y)
        if refresh:
            self.root.refresh(self.G)
        else:
            self.root.add(whitened if weight == 1 else weight**0.5 * whitened, weight * square)
        if accepted:
            self._admit(x, point)
        self._redraw()

    def _sum(self) -> None:
        """``B B'`` and ``B y`` from rows and counts."""
        B = self.rows.features.mT
        self._gram, self._By = GrowingTensor((B * self.rows.counts) @ B.mT), GrowingTensor(B @ self.rows.sums)
        self._summed: int = len(self.rows.order)

    @property
    def _G(self) -> GrowingTensor:
        """``B B'`` of all observations: those that came since it was last read are one product."""
        new = slice(self._summed, None)
        if which := self.rows.order[new]:
            B, weights = self.rows.features[which].mT, self.rows.weights[new]
            self._gram.value.add_((B * B.new_tensor(weights) if self.weighted else B) @ B.mT)
            self._summed = len(self.rows.order)
        return self._gram

    def _count(self, n: int, trace: float, kappa: float, yy: float) -> None:
        self.n += n
        self.trace += trace
        self.kappa = max(self.kappa, kappa)
        self.yy += yy

    def _admit(self, x: Tensor, point: Candidate) -> None:
        """Make x [1 d], which was observed, an anchor: all features gain a coordinate."""
        pivot, gram = point.residual**0.5, self._G
        self.features.append(x, point.features, point.coefficients, pivot, point.place)
        self._forget_residuals()
        coordinate = self.features.next_coordinate(self.m - 1, self.rows.X, self.rows.features.mT)
        self.rows.add_feature(coordinate, self.features.row_norms[-1])
        g = (self.rows.counts * coordinate) @ self.rows.features
        gram.grow(1, 1)
        gram.value[-1], gram.value[:, -1] = g, g
        self._By.append((coordinate @ self.rows.sums).reshape(1))
        self.root.border(self.G)

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
        trace = self._residual_trace
        if trace is None:
            rows = self.rows
            lost = rounding(self.m, rows.prior, rows.spread)
            self._feature_rounding, residual = (torch.stack([lost, rows.residual]) @ rows.counts).tolist()
            trace = self._residual_trace = residual + self._feature_rounding
        return trace

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

    def _count_residual(self, row: int, residual: float, lost: float, weight: float) -> None:
        """Add one observation of a row, whose part of the diagonal of E and its rounding are given, to the sums."""
        residual = residual + lost
        if self._residual_trace is not None:
            self._feature_rounding += weight * lost
            self._residual_trace += weight * residual
        count = float(self.rows.counts[row]) if self._residual_gains else 0.0
        for ridge in self._residual_gains:
            more = math.log1p(count * residual / ridge) - math.log1p((count - weight) * residual / ridge)
            self._residual_gains[ridge] += more

    def residual_norm(self) -> float:
        """An upper bound of the operator norm of E; see ``error.py``."""
        return min(self._error.bound(self.k, self.rows), self.residual_trace()) if self.n else 0.0

    def restored(self) -> None:  # noqa: D102
        self._summed = len(self.rows.order)
        self.layout = fresh_version()
