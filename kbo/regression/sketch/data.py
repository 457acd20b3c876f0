"""The data of a sketched posterior: its observations, as features of a dictionary.

Notation: inducing points Z, L = chol k(Z, Z), z(x) = L^-1 k(Z, x), B = [z(x_1) .. z(x_n)] and
M = B B' + ridge I.

What happens to an observation (``Sketch._observe``):

    1. its features z(x) are computed                         ``_candidate``, ``features.py``
    2. the dictionary says whether it becomes inducing        ``Dictionary.accepts``
    3. it is added to its row, ``B B'``, ``B y`` and ``y'y``  ``_count``, ``rows.py``
    4. ``M^-1`` is updated by the new column of B             ``_update_root``, ``inverse_root.py``
    5. the dictionary may change                              ``_admit``, ``_choose``, ``_redraw``

An observation costs O(m^2) while the dictionary stays, O(n m + m^2) if it becomes an inducing
point, and O(n m^2 + m^3) for a new dictionary, where n is the number of distinct locations.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo._base.checks import Location
from kbo._base.devices import read
from kbo._base.linalg import GrowingTensor
from kbo._base.stateful import Stateful, fresh_version
from kbo.kernels import DenseKernel, freeze
from kbo.regression.sketch.dictionary import Candidate, Dictionary
from kbo.regression.sketch.error import BLOCK, SMALL_BLOCK, ErrorNorm, ResidualSums
from kbo.regression.sketch.features import Features
from kbo.regression.sketch.inverse_root import REFRESH, InverseRoot, dtc_variance
from kbo.regression.sketch.rows import Rows

_FEW = 8
"""Up to m / _FEW new columns of B, ``M^-1`` is updated one column at a time, which is cheaper."""

_MOST_REPEATS = 8
"""Repeats are merged once ``Rows.order`` exceeds this many times the rows plus a block of E."""


class Batch(NamedTuple):
    """Observations, as tensors and as plain numbers.

    Attributes:
        X: Locations [r d]; read, not kept.
        y: Targets [r].
        weights: Weights [r].
        places: The locations on the host.
        targets: The targets on the host.
        host_weights: The weights on the host.
    """

    X: Tensor
    y: Tensor
    weights: Tensor
    places: list[Location]
    targets: list[float]
    host_weights: list[float]

    def one(self, i: int) -> Batch:
        """Return the observation i alone."""
        return Batch._make(field[i : i + 1] for field in self)


class Sketch(Stateful):
    """The observations of a sketched posterior, as features of a dictionary, in float64.

    Args:
        kernel: The kernel.
        ridge: The ridge.
        dictionary: The dictionary without memory; ``Dictionary.begin`` copies it.
        like: A tensor [0 d] on the device of the observations.

    Attributes:
        k: The kernel.
        dictionary: The dictionary in use, with its memory.
        features: ``z(x)``.
        rows: The distinct observed locations, with their features and counts.
        root: ``M^-1`` as a square root.
        error_norm: The bound of ``|K - B'B|``.
        residual_sums: Sums over the diagonal of ``K - B'B``.
        n: Number of observations, repeats included.
        weighted: Whether an observation has another weight than 1. With weights W, B has columns
            ``sqrt(w) z(x)``, K stands for ``W^1/2 K W^1/2``, E for ``W^1/2 E W^1/2`` and y for
            ``W^1/2 y``.
        yy: ``y'y``.
        repeats: The repeated observations, as in ``Provenance``.
        kernel_error: Error of the kernel at locations and inducing points (``DenseKernel.error``).
        trace: ``Tr K``.
        kappa: Largest ``w k(x, x)`` of an observation.
        layout: A version that changes whenever the dictionary is replaced.
    """

    def __init__(self, kernel: Kernel, ridge: float, dictionary: Dictionary, like: Tensor) -> None:
        self.ridge: float = ridge
        self.k: DenseKernel = freeze(kernel, like)
        self.dictionary: Dictionary = dictionary.begin(like)
        points = like
        self.kernel_error: float = 0.0
        if self.dictionary.points is not None:
            points = self.dictionary.points
            self.kernel_error = self.k.error(points)
        self.features: Features = Features(self.k, points)
        self.rows: Rows = Rows(like, self.features, keeps_features=not dictionary.stays)
        self.error_norm: ErrorNorm = ErrorNorm()
        self.n: int = 0
        self.weighted: bool = False
        self.repeats: tuple[int, int] = (0, 0)
        self.trace: float = 0.0
        self.kappa: float = 0.0
        self.yy: float = 0.0
        self.residual_sums: ResidualSums = ResidualSums()
        self._project()

    @property
    def m(self) -> int:
        """Number of inducing points."""
        return self.features.m

    @property
    def G(self) -> Tensor:
        """``B B'``, [m m]."""
        return self._G.value

    @property
    def By(self) -> Tensor:
        """``B y``, [m]."""
        return self._By.value

    @torch.no_grad()
    def update(self, new: Batch) -> None:
        """Add observations, one after the other or, if the dictionary takes blocks, at once."""
        n_new = len(new.X)
        if self.dictionary.stays or (self.dictionary.in_blocks and n_new > 1):
            self._observe_block(new)
        elif n_new == 1:
            self._observe(new)
        else:
            for i in range(n_new):
                self._observe(new.one(i))

    def _observe(self, new: Batch) -> None:
        """Add one observation, which may become an inducing point."""
        point = self._candidate(new.X, new.places[0], new.host_weights[0])
        is_accepted = self.dictionary.accepts(point, self) and not point.dependent
        B = self._count(new, point.features.unsqueeze(-1), [point.prior])
        self._update_root(B)
        if is_accepted and point.well_conditioned:
            self._admit(new.X, point)
        elif is_accepted:
            self._choose()
        self._redraw()

    def _candidate(self, x: Tensor, location: Location, weight: float = 1.0) -> Candidate:
        """Return x [1 d] as a point that may become an inducing point."""
        row = self.rows.find(location)
        if row is None:
            column = self.features.columns(x)  # [m 1]
            z = self.features.solve(column)
            residual, prior = read(*self.features.residual(x, z))
        else:
            z = self.rows.features[row].unsqueeze(-1).clone()
            column = self.features.L @ z
            residual, prior = self.rows.numbers[row, :2].tolist()
        return Candidate(prior, residual, column, z[:, 0], location, self.features, weight)

    def _observe_block(self, new: Batch) -> None:
        """Add observations together; then the dictionary may take some of their locations."""
        rows_before = self.rows.n
        z = self.features.solve(self.features.columns(new.X))
        B = self._count(new, z, self.k.diagonal(new.X).tolist())
        self._update_root(B)
        is_redrawn = self._redraw()
        if self.dictionary.in_blocks and not is_redrawn:
            self._complete(rows_before)

    def _count(self, new: Batch, z: Tensor, prior: list[float]) -> Tensor:
        """Count observations with features z [m r] and ``k(x, x)`` [r].

        Returns:
            The new columns of B, ``sqrt(w) z``, [m r].
        """
        n_repeats, n_equal = self.rows.extend(
            new.X, z.mT, new.places, new.targets, new.host_weights
        )
        self.repeats = (self.repeats[0] + n_repeats, self.repeats[1] + n_equal)
        if len(self.rows.order) > _MOST_REPEATS * (self.rows.n + BLOCK):
            self.rows.merge()  # otherwise the memory of the order would grow with the repeats
            self.error_norm.restart()
            self.residual_sums.restart()
        self.kernel_error = max(self.kernel_error, self.k.error(new.X))
        self.n += len(new.X)
        for weight, variance, target in zip(new.host_weights, prior, new.targets, strict=True):
            self.weighted |= weight != 1
            self.trace += weight * variance
            self.kappa = max(self.kappa, weight * variance)
            self.yy += weight * target * target
        B = z * new.weights.sqrt()
        self.By.addmv_(z, new.weights * new.y)
        self.G.addmm_(B, B.mT)
        return B

    def _update_root(self, B: Tensor) -> None:
        """Update ``M^-1`` by new columns of B, [m r]."""
        columns = B.shape[1]
        if columns <= max(1, self.m // _FEW) and self.root.columns + columns < REFRESH:
            for column in B.unbind(1):
                whitened = column @ self.root.S
                self.root.add(whitened, float(whitened @ whitened))
            return
        if self.rows.n <= REFRESH:
            self._sum_rows()  # otherwise errors of thousands of repeats of a few rows would add up
        self.root.refresh(self.G)

    def _admit(self, x: Tensor, point: Candidate) -> None:
        """Make x [1 d], which was observed, an inducing point: all features gain a coordinate."""
        X = self.rows.X
        features = self.rows.features  # [rows m]
        pivot = point.residual**0.5
        self.features.append(x, point.features, point.coefficients, pivot, point.place)
        coordinate = self.features.next_coordinate(self.m - 1, X, features.mT)  # [rows]
        self.rows.add_feature(coordinate, self.features.row_norms[-1])
        self.residual_sums.restart()
        border = (self.rows.counts * coordinate) @ self.rows.features
        self._G.grow(1, 1)
        self.G[-1] = border
        self.G[:, -1] = border
        self._By.append((coordinate @ self.rows.sums).reshape(1))
        self.root.border(self.G)

    def _complete(self, rows_before: int) -> None:
        """Make rows inducing points until no residual exceeds what the dictionary allows."""
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
            x = self.rows.X[worst : worst + 1].clone()
            point = self._candidate(x, tuple(x[0].tolist()))
            if not point.well_conditioned:
                self._choose()
                return
            self._admit(x, point)

    def _choose(self) -> None:
        """Replace the inducing points by those that the dictionary chooses among all rows."""
        before = self.features
        self._replace(self.dictionary.chosen(self), BLOCK)
        self.dictionary.replaced(before, self)

    def _redraw(self) -> bool:
        """Replace the inducing points if the dictionary redraws them; return whether it did."""
        drawn_rows = self.dictionary.redraws(self)
        if drawn_rows is None:
            return False
        self._replace(drawn_rows, SMALL_BLOCK)
        return True

    def _replace(self, chosen_rows: list[int], block: int) -> None:
        """Replace the inducing points by rows.

        Args:
            chosen_rows: The numbers of the rows.
            block: The block size of the error norm from then on.
        """
        points = self.rows.X[chosen_rows]
        anchors = self.features.anchors
        if points.shape == anchors.shape and torch.equal(points, anchors):
            return
        self.features = Features(self.k, points)
        self.rows.set_features(self.features)
        self.error_norm = ErrorNorm(block)
        self._project()

    def _project(self) -> None:
        """Compute ``B B'``, ``B y`` and ``M^-1`` under new inducing points."""
        self._sum_rows()
        self.root: InverseRoot = InverseRoot(self.G, self.ridge)
        self.residual_sums.restart()
        self.layout: int = fresh_version()

    def _sum_rows(self) -> None:
        """Compute ``B B'`` and ``B y`` from rows and counts."""
        B = self.rows.features.mT
        self._G = GrowingTensor((B * self.rows.counts) @ B.mT)
        self._By = GrowingTensor(B @ self.rows.sums)

    def move_ridge(self, ridge: float) -> None:
        """Replace the regulariser, O(m^3)."""
        self.root = InverseRoot(self.G, ridge)
        self.ridge = ridge

    def row_leverages(self) -> Tensor:
        """Return the leverages ``variance / ridge`` of all rows at the state's ridge, [rows]."""
        form = (self.rows.features @ self.root.S).square().sum(1)
        return dtc_variance(self.rows.residual, form, self.ridge) / self.ridge
