"""Dictionaries whose points are drawn with probabilities about their ridge leverages; all draws are seeded.

* ``OnlineRowSampling`` (KORS; Calandriello et al. 2017, in EK-UCB): a point enters with probability about its leverage,
  and stays.
* ``LeverageResampling`` (BKB; Calandriello et al. 2019): all points are drawn again after every observation, O(n m^2).
* ``BatchedResampling`` (BBKB; Calandriello et al. 2020): the same, once enough has been learned.
"""

from __future__ import annotations

import math
from typing import Self

import torch
from torch import Tensor

from kbo._base import checks
from kbo._base.linalg import GrowingFactor, cholesky
from kbo._base.stateful import Stateful
from kbo.regression.sketch.dictionary import Candidate, Dictionary, Observed
from kbo.regression.sketch.features import Features


class Uniforms(Stateful):
    """Uniform random numbers, the same for the same seed: all that must be remembered is how many were drawn."""

    saved: tuple[str, ...] = ("drawn", "blocks")

    _BLOCK = 256

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.drawn: int = 0
        self.blocks: int = 0
        self._numbers: list[float] = []

    def next(self) -> float:
        """One number in [0, 1)."""
        block, position = divmod(self.drawn, self._BLOCK)
        if position == 0 or not self._numbers:
            self._numbers = self._generate(block, self._BLOCK).tolist()
        self.drawn += 1
        return self._numbers[position]

    def many(self, n: int) -> Tensor:
        """Several numbers at once, [n]."""
        self.blocks += 1
        return self._generate(-self.blocks, n)

    def _restored(self) -> None:
        self._numbers = []

    def _generate(self, block: int, n: int) -> Tensor:
        # Odd multipliers spread seeds and blocks over all 63 bits: far from the small seeds that problems use.
        mixed = (self.seed + 1) * 0x9E3779B97F4A7C15 + (block + 1) * 0xD1B54A32D192ED03
        generator = torch.Generator().manual_seed(mixed % 2**63)
        return torch.rand(n, generator=generator, dtype=torch.float64, device="cpu")


class OnlineRowSampling(Dictionary):
    """KORS: a new point enters with probability about its ridge leverage, and stays for ever.

    With probability ``min(1, gamma tau)``, ``tau = (1 + eps) g / (g + mu)``, where g is the variance at the point given
    the dictionary, a point that entered with probability p counting as an observation with noise ``mu p``; for a point
    of weight w, mu / w takes the place of mu: Calandriello
    et al. (2017), Alg. 1; Zenati et al. (2022), eq. 41, in a form without cancellation.

    Args:
        mu: The ridge of the leverages, in units of the kernel.
        gamma: Oversampling; about 10 in practice, ``12 ln(T / delta)`` in theory (``for_horizon``).
        eps: Accuracy of the leverages.
        most: Largest number of points.
        seed: Seed of the draws.
    """

    def __init__(
        self,
        mu: float,
        gamma: float = 10.0,
        eps: float = 0.5,
        most: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(most)
        self.mu: float = checks.positive("mu", mu)
        self.gamma: float = checks.positive("gamma", gamma)
        self.eps: float = checks.probability("eps", eps)
        self.seed: int = checks.seed(seed)

    advice = "its points are drawn at random: more of them enter with a larger gamma"

    saved: tuple[str, ...] = ("capped", "_weights", "_factor", "_draws")

    _weights: list[float]
    """Sum of ``1 / p`` over the samples at each anchor: together they are one with noise ``mu / weight``."""

    _factor: GrowingFactor
    """The factor of ``k(Z, Z) + mu diag(1 / weights)``."""

    _draws: Uniforms

    @classmethod
    def for_horizon(
        cls, mu: float, horizon: int, delta: float, most: int | None = None, seed: int = 0
    ) -> OnlineRowSampling:
        """With the gamma of the theory for ``horizon`` rounds, at ``eps = 1/2``."""
        checks.probability("delta", delta)
        return cls(
            mu, 12 * math.log(checks.at_least("horizon", horizon, 1) / delta), most=most, seed=seed
        )

    def begin(self, like: Tensor) -> Self:
        begun = super().begin(like)
        begun._weights = []
        begun._factor = GrowingFactor(like.new_empty(0, 0))
        begun._draws = Uniforms(self.seed)
        return begun

    def accepts(self, point: Candidate, sketch: Observed) -> bool:
        g, p = self._probability(point)
        if not self._draws.next() < p:
            return False
        if point.anchor is not None:
            self._repeat(point, p)
            return False
        if point.negligible or not self.has_capacity(sketch.m):
            return False
        assert point.image is not None
        self._weights.append(point.weight / p)
        self._factor.append(
            point.image,
            self._factor.coefficients(point.image),
            math.sqrt(g + self.mu * p / point.weight),
        )
        return True

    def _repeat(self, point: Candidate, p: float) -> None:
        """One more sample at an anchor, O(m^3); that happens about ``gamma ln n`` times an anchor."""
        assert point.anchor is not None
        self._weights[point.anchor] += point.weight / p
        self._factor = self._weighted_factor(point.basis.L)

    def replaced(self, before: Features, sketch: Observed) -> None:
        """Samples at anchors that stay keep their weights; rows that became anchors count as drawn for certain.

        What is known of anchors that left is forgotten, so later probabilities are larger than they would be.
        """
        counts = sketch.rows.counts.tolist()
        weights = []
        for place in map(tuple, sketch.features.anchors.tolist()):
            anchor = before.at(place)
            row = sketch.rows.find(place)
            if anchor is None:
                assert row is not None  # it was chosen among the rows
                weights.append(counts[row])
            else:
                weights.append(self._weights[anchor])
        self._weights = weights
        self._factor = self._weighted_factor(sketch.features.L)

    def _weighted_factor(self, L: Tensor) -> GrowingFactor:
        """The factor of ``k(Z, Z) + mu diag(1 / weights)``, from that of ``k(Z, Z)``."""
        noise = self.mu / L.new_tensor(self._weights)
        return GrowingFactor(cholesky(L @ L.mT + noise.diag()))

    def probability(self, point: Candidate) -> float:
        """The probability with which the point would enter now."""
        return self._probability(point)[1]

    def image(self, column: Tensor, features: Tensor, sketch: Observed) -> Tensor:
        """The point seen through the samples, [m]."""
        return self._factor.solve(column)[:, 0]

    def _probability(self, point: Candidate) -> tuple[float, float]:
        """The variance g given the samples, and the probability."""
        g = max(point.prior - point.image_square, 0.0)
        return g, min(1.0, self.gamma * (1 + self.eps) * g / (g + self.mu / point.weight))


class LeverageResampling(Dictionary):
    """BKB: after every observation each one is drawn into the dictionary with probability ``min(1, q leverage)``.

    Leverages are those of the present sketch; an observation that was made c times may be drawn c times. The newest
    point stays if the draw is empty (Calandriello et al. 2019, Alg. 1).

    Args:
        oversampling: q; 2 to 10 in practice, ``6 alpha ln(4T / delta) / eps^2`` in theory (``for_horizon``).
        most: Largest number of points: of those drawn, the ones with the least random number over probability.
        seed: Seed of the draws.
    """

    def __init__(self, oversampling: float = 5.0, most: int | None = None, seed: int = 0) -> None:
        super().__init__(most)
        self.oversampling: float = checks.positive("oversampling", oversampling)
        self.seed: int = checks.seed(seed)

    advice = "its points are drawn at random: more of them are drawn with a larger oversampling"

    saved: tuple[str, ...] = ("capped", "_draws")

    _draws: Uniforms

    @classmethod
    def for_horizon(
        cls, horizon: int, delta: float, eps: float = 0.5, most: int | None = None, seed: int = 0
    ) -> Self:
        """With the oversampling of the theory, for leverages within ``(1 + eps) / (1 - eps)``.

        It takes nearly all points unless the ridge is large. No bound relies on it: what a dictionary misses is
        computed (``residual_norm``).
        """
        checks.probability("delta", delta)
        alpha = (1 + checks.probability("eps", eps)) / (1 - eps)
        q = 6 * alpha * math.log(4 * checks.at_least("horizon", horizon, 1) / delta) / eps**2
        return cls(q, most=most, seed=seed)

    def begin(self, like: Tensor) -> Self:
        begun = super().begin(like)
        begun._draws = Uniforms(self.seed)
        return begun

    def redraws(self, sketch: Observed) -> list[int] | None:
        p, u = self.probabilities(sketch).cpu(), self._draws.many(sketch.rows.n)
        drawn = (u < p).nonzero().flatten()
        if self.most is not None and len(drawn) > self.most:
            self.capped = True
            drawn = (
                drawn[(u[drawn] / p[drawn]).topk(self.most, largest=False).indices].sort().values
            )
        return drawn.tolist() or [sketch.rows.latest_row]

    def probabilities(self, sketch: Observed) -> Tensor:
        """The probability of each row of the sketch to be drawn now: ``1 - (1 - min(1, q leverage))^count``."""
        once = (self.oversampling * sketch.row_leverages()).clamp_max(1)
        return 1 - (1 - once) ** sketch.rows.counts


class BatchedResampling(LeverageResampling):
    """BBKB: draws the dictionary of BKB again only when the observations since then have changed the leverages.

    That is when ``1 + sum of leverages > growth``, with the leverages that the points had when the batch began;
    in between only means and variances follow (Calandriello et al. 2020, Alg. 1).

    Args:
        oversampling, most, seed: As in ``LeverageResampling``.
        growth: Factor by which leverages may be out of date, C; 1 is BKB.
    """

    def __init__(
        self, oversampling: float = 5.0, growth: float = 3.0, most: int | None = None, seed: int = 0
    ) -> None:
        super().__init__(oversampling, most, seed)
        self.growth: float = checks.at_least("growth", growth, 1)
        self._spent: float = 0.0
        self._root: Tensor | None = None
        self._waits: bool = False

    saved: tuple[str, ...] = ("capped", "_draws", "_spent", "_root")

    def begin(self, like: Tensor) -> Self:
        begun = super().begin(like)
        begun._spent = 0.0
        begun._root = None
        begun._waits = False
        return begun

    @property
    def needs_refresh(self) -> bool:
        return 1 + self._spent > self.growth

    def frozen(self) -> BatchedResampling:
        """A fork that only says when it would be drawn again."""
        frozen = self.fork()
        frozen._waits = True
        return frozen

    def image(self, column: Tensor, features: Tensor, sketch: Observed) -> Tensor:
        """The point under the sketch of the beginning of the batch, [m]."""
        if self._root is None:
            self._root = sketch.root.S.clone()
        return features @ self._root

    def accepts(self, point: Candidate, sketch: Observed) -> bool:
        """No; but the leverage that the point had at the beginning of the batch counts."""
        self._spent += point.weight * (point.residual / sketch.ridge + point.image_square)
        return False

    def redraws(self, sketch: Observed) -> list[int] | None:
        """If the batch is over; a sketch without any points does not wait."""
        if self._waits or not (self.needs_refresh or sketch.m == 0):
            return None
        self._spent = 0.0
        self._root = None
        return super().redraws(sketch)
