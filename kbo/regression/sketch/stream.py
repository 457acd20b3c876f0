"""The data of a sketched posterior, following the observations and the dictionary.

Notation: dictionary Z of m points, L = chol k(Z, Z), z(x) = L^-1 k(Z, x), B = [z(x_1) .. z(x_n)], M = B B' + ridge I.

A step costs O(m^2) while the dictionary stays, O(n m + m^2) for a new point of the dictionary and O(n m^2 + m^3) for a
new dictionary, n counting distinct locations.
"""

from __future__ import annotations

from math import log1p

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo._base.checks import OnHost
from kbo._base.devices import read
from kbo._base.linalg import REFRESH, GrowingTensor, InverseRoot
from kbo._base.stateful import Stateful, fresh_version, passed_on
from kbo.kernels import DenseKernel, freeze
from kbo.regression.sketch.dictionary import Candidate, Dictionary
from kbo.regression.sketch.error import BLOCK, ErrorNorm, rounding, stretching
from kbo.regression.sketch.features import DEPENDENT, Features
from kbo.regression.sketch.rows import LeanRows, Rows

_FEW = 8
"""A fraction 1 / _FEW of m columns is still cheaper to add one by one than all at once."""

_REPEATS = 8
"""Observations for each row, and for each of a block of ``error.py``, whose order is remembered."""

_ROUNDING = 1e-13
"""Relative error of ``y'y``, with room to spare."""

_MOST_GAINS = 16
"""Ridges at which ``residual_log_det`` is remembered."""

_SMALL_BLOCK = 64
"""Observations of a block of ``error.py`` where all norms are void whenever the dictionary is drawn again."""

_RESIDUALS = ("_followed", "_residual_trace", "_feature_rounding", "_residual_gains")
_NUMBERS = (
    "n",
    "weighted",
    "repeats",
    "kernel_error",
    "trace",
    "kappa",
    "yy",
    "_G",
    "_By",
    *_RESIDUALS,
)
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
        repeats: As in ``Provenance``.
        kernel_error: Error of the kernel at locations and anchors; see ``DenseKernel.error``.
        trace: ``Tr K``.
        kappa: Largest ``w k(x, x)`` of an observation.
        yy: ``y'y``.
        layout: A version that changes whenever the dictionary is replaced: what was derived from its features is void.
    """

    saved: tuple[str, ...] = (*_NUMBERS, "dictionary", "rows", "features", "root", "_error")

    def __init__(self, kernel: Kernel, ridge: float, dictionary: Dictionary, like: Tensor) -> None:
        self.ridge: float = ridge
        self.k: DenseKernel = freeze(kernel, like)
        self.dictionary: Dictionary = dictionary.begin(like)
        points = self.dictionary.points
        self.features: Features = Features(self.k, like if points is None else points)
        self.rows: Rows = (LeanRows if dictionary.stays else Rows)(like, self.features)
        self._error = ErrorNorm()
        self.n: int = 0
        self.weighted: bool = False
        self.repeats: tuple[int, int] = (0, 0)
        self.kernel_error: float = 0.0 if points is None else self.k.error(points)
        self.trace: float = 0.0
        self.kappa: float = 0.0
        self.yy: float = 0.0
        self._project()

    m: int = passed_on("features.m")
    G: Tensor = passed_on("_G.value")
    By: Tensor = passed_on("_By.value")

    def _project(self) -> None:
        """Everything that follows from features and rows."""
        self.rows.set_features(self.features)
        self._sum()
        self.root: InverseRoot = InverseRoot(self.G, self.ridge)
        self._forget_residuals()
        self.layout: int = fresh_version()

    @torch.no_grad()
    def update(self, X: Tensor, y: Tensor, weights: Tensor | None, host: OnHost) -> None:
        """Take in observations X [r d], y [r], one after the other unless the dictionary takes blocks.

        ``host`` has them, and their weights [r], as plain numbers. The tensors are read, not kept.
        """
        if self.dictionary.stays or (self.dictionary.in_blocks and len(X) > 1):
            self._extend(X, y, weights, host)
            return
        for i in range(len(X)):
            one = slice(i, i + 1)
            own = None if host.weights is None else host.weights[one]
            alone = OnHost(host.places[one], host.targets[one], own)
            self._observe(X[one], y[one], None if weights is None else weights[one], alone)

    def _extend(self, X: Tensor, y: Tensor, weights: Tensor | None, host: OnHost) -> None:
        """Observations that the dictionary decides nothing by, or only when all are known."""
        constant = self.k.constant
        prior = self.k.diagonal(X).tolist() if constant is None else [constant] * len(X)
        rows_before = self.rows.n
        B = self._count(X, self.features.solve(X), y, weights, host, prior)
        if len(X) <= max(1, self.m // _FEW) and self.root.columns + len(X) < REFRESH:
            for b in B.unbind(1):
                v = b @ self.root.S
                self.root.add(v, float(v @ v))
        else:
            self._refresh()
        drawn = self._redraw()
        if self.dictionary.in_blocks and not drawn:
            self._complete(rows_before)

    def _observe(self, x: Tensor, y: Tensor, weights: Tensor | None, host: OnHost) -> None:
        """One observation x [1 d], y [1], which the dictionary may take; the host reads once."""
        place, weight = host.places[0], 1.0 if host.weights is None else host.weights[0]
        row = self.rows.find(place)
        if row is None:
            column = self.features.columns(x)
            z = self.features.solve_columns(column)
            numbers = self.features.residual(x, z)
        else:
            z, numbers = (
                self.rows.features[row].unsqueeze(-1).clone(),
                self.rows.numbers[row, :2].unbind(),
            )
            column = self.features.L @ z
        features = z[:, 0]
        whitened, image = features @ self.root.S, self.dictionary.image(column, features, self)
        squares = [v @ v for v in (whitened, image) if v is not None]
        residual, prior, square, *image_square = read(*numbers, *squares)
        point = Candidate(
            prior, residual, column, features, place, self.features, weight, image, *image_square
        )
        accepted = self.dictionary.accepts(point, self) and not point.dependent
        self._count(x, z, y, weights, host, [prior])
        if self.root.columns + 1 < REFRESH:
            self.root.add(whitened if weight == 1 else weight**0.5 * whitened, weight * square)
        else:
            self._refresh()
        if accepted and point.well_conditioned:
            self._admit(x, point)
        elif accepted:
            self._choose()
        self._redraw()

    def _count(
        self,
        X: Tensor,
        z: Tensor,
        y: Tensor,
        weights: Tensor | None,
        host: OnHost,
        prior: list[float],
    ) -> Tensor:
        """Count observations X [r d], y [r] with features z [m r] and ``k(x, x)``; return the columns ``sqrt(w) z``."""
        each = host.weights or [1.0] * len(X)
        variances = [weight * variance for weight, variance in zip(each, prior, strict=True)]
        repeats, equal = self.rows.extend(X, z.mT, host.places, host.targets, each)
        self.repeats = self.repeats[0] + repeats, self.repeats[1] + equal
        if len(self.rows.order) > _REPEATS * (self.rows.n + BLOCK):
            self._merge()
        self.kernel_error = max(self.kernel_error, self.k.error(X))
        self.n += len(X)
        self.weighted |= set(each) != {1.0}
        self.trace += sum(variances)
        self.kappa = max(self.kappa, *variances)
        self.yy += sum(
            weight * target * target for weight, target in zip(each, host.targets, strict=True)
        )
        self.By.addmv_(z, y if weights is None else weights * y)
        B = z if weights is None else z * weights.sqrt()
        self._G.value.addmm_(B, B.mT)
        return B

    def _merge(self) -> None:
        """Forget in which order repeats came, so that memory does not grow with them."""
        self._follow()
        self.rows.merge()
        self._followed = len(self.rows.order)
        self._error.restart(merged=self._followed)

    def _refresh(self) -> None:
        """``M^-1`` from few additions: thousands of repeats of a few rows would drift."""
        if self.rows.n <= REFRESH:
            self._sum()
        self.root.refresh(self.G)

    def _sum(self) -> None:
        """``B B'`` and ``B y`` from rows and counts."""
        B = self.rows.features_of(slice(None)).mT
        self._G, self._By = (
            GrowingTensor((B * self.rows.counts) @ B.mT),
            GrowingTensor(B @ self.rows.sums),
        )

    def _admit(self, x: Tensor, point: Candidate) -> None:
        """Make x [1 d], which was observed, an anchor: all features gain a coordinate."""
        pivot, gram, rows = point.residual**0.5, self._G, self.rows
        X, features = (
            rows.X,
            rows.features,
        )  # before the anchors are others than those of the features
        self.features.append(x, point.features, point.coefficients, pivot, point.place)
        self._forget_residuals()
        coordinate = self.features.next_coordinate(self.m - 1, X, features.mT)
        rows.add_feature(coordinate, self.features.row_norms[-1])
        g = (rows.counts * coordinate) @ rows.features
        gram.grow(1, 1)
        gram.value[-1], gram.value[:, -1] = g, g
        self._By.append((coordinate @ rows.sums).reshape(1))
        self.root.border(self.G)

    def _complete(self, rows_before: int) -> None:
        """Make anchors of rows that are left with more than the dictionary allows, after several came together."""
        if not bool((self.rows.residual > self.dictionary.allowed(self)).any()):
            return
        mostly_new = self.rows.n >= 2 * rows_before
        if self.m == 0 or (mostly_new and self.dictionary.points is None):
            self._choose()
            return
        while True:
            excess = self.rows.residual - self.dictionary.allowed(self)
            worst = int(excess.argmax())
            if not float(excess[worst]) > 0 or not self.dictionary.has_capacity(self.m):
                return
            point = self._candidate(worst)
            if not point.well_conditioned:
                self._choose()
                return
            self._admit(self.rows.X[worst : worst + 1].clone(), point)

    def _candidate(self, row: int) -> Candidate:
        """Return a row as a point that may become an anchor."""
        rows = self.rows
        residual, prior = rows.numbers[row, :2].tolist()
        features = rows.features[row].clone()
        column = self.features.L @ features.unsqueeze(-1)
        place = tuple(rows.X[row].tolist())
        return Candidate(prior, residual, column, features, place, self.features)

    def _choose(self) -> None:
        """Let the dictionary choose among all rows, in place of the anchors that there are."""
        before = self.features
        self._replace(self.dictionary.chosen(self), BLOCK)
        self.dictionary.replaced(before, self)

    def _redraw(self) -> bool:
        """Take a new dictionary, if it asks for one, and return whether it did."""
        drawn = self.dictionary.redraws(self)
        if drawn is None:
            return False
        self._replace(drawn, _SMALL_BLOCK)
        return True

    def _replace(self, drawn: list[int], block: int) -> None:
        """Let rows be the anchors, with error norms of so many observations."""
        points = self.rows.X[drawn]
        if points.shape == self.features.anchors.shape and torch.equal(
            points, self.features.anchors
        ):
            return
        self.features = Features(self.k, points)
        self._error = ErrorNorm(block)
        self._project()

    def shortfall(self) -> float | None:
        """The largest part of a prior variance that an observation is left with; None if no more than it may be.

        It may be what the dictionary promises, and without a promise a tenth of the ridge.
        """
        rows = self.rows
        if not self.n:
            return None
        residual = rows.residual
        allowed = self.ridge / 10
        if self.dictionary.threshold is not None:
            rounding_error = rounding(self.m, rows.prior, rows.spread)
            allowed = self.dictionary.threshold + (DEPENDENT * rows.prior).maximum(rounding_error)
        largest_weight = self.kappa / rows.prior if self.weighted else 1.0
        if not bool((largest_weight * residual > allowed).any()):
            return None
        return float((residual / rows.prior).nan_to_num().max())

    def move_ridge(self, ridge: float) -> None:
        """Replace the regulariser, O(m^3)."""
        root = InverseRoot(self.G, ridge)
        self.ridge, self.root = ridge, root

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
        self._follow()
        return self._residual_trace

    def feature_rounding(self) -> float:
        """Return the norm of the error of ``B'B`` by rounding in the dictionary."""
        self._follow()
        return self._feature_rounding

    def stretched(self) -> float:
        """Return the factor, less one, by which rounding stretches norms of functions; see ``error.stretching``."""
        if self._stretched is None:
            self._stretched = stretching(self.features, self.k)
        return self._stretched

    def residual_log_det(self, ridge: float) -> float:
        """An upper bound of ``ln det(I + E / ridge)``: Hadamard's inequality, repeats merged."""
        self._follow()
        if ridge not in self._residual_gains:
            if len(self._residual_gains) == _MOST_GAINS:
                del self._residual_gains[next(iter(self._residual_gains))]
            self._residual_gains[ridge] = float((self.residuals() / ridge).log1p().sum())
        return self._residual_gains[ridge]

    def _forget_residuals(self) -> None:
        self._stretched: float | None = None
        self._followed = 0
        self._residual_trace = 0.0
        self._feature_rounding = 0.0
        self._residual_gains: dict[float, float] = {}

    def _follow(self) -> None:
        """Add what came since they were last read to the sums over the diagonal of E."""
        rows, new = self.rows, slice(self._followed, None)
        if self._followed == len(rows.order):
            return
        added: dict[int, float] = {}
        if self._followed:
            for row, one in zip(rows.order[new], rows.weights[new], strict=True):
                added[row] = added.get(row, 0.0) + one
        numbers = rows.numbers[list(added) or slice(None)].tolist()  # of few rows, as a rule
        weights = added.values() or [count for *_, count, _ in numbers]
        rounded, trace, gains = (
            self._feature_rounding,
            self._residual_trace,
            dict(self._residual_gains),
        )
        for (residual, prior, spread, count, _), weight in zip(numbers, weights, strict=True):
            lost = rounding(self.m, prior, spread)
            residual += lost
            rounded += lost * weight
            trace += residual * weight
            for ridge in gains:
                gains[ridge] += log1p(count * residual / ridge) - log1p(
                    (count - weight) * residual / ridge
                )
        self._feature_rounding, self._residual_trace, self._residual_gains = rounded, trace, gains
        self._followed = len(rows.order)

    def residual_norm(self) -> float:
        """An upper bound of the operator norm of E; see ``error.py``."""
        return min(self._error.bound(self.k, self.rows), self.residual_trace()) if self.n else 0.0

    def _restored(self) -> None:
        self.layout = fresh_version()
