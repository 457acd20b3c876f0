"""Dictionaries of random points, drawn with probabilities near their ridge leverages.

* ``OnlineRowSampling`` (KORS; Calandriello et al. 2017, in EK-UCB): a point enters with probability
  about its leverage, and stays.
* ``LeverageResampling`` (BKB; Calandriello et al. 2019): all points are drawn again after every
  observation, O(n m^2).
* ``BatchedResampling`` (BBKB; Calandriello et al. 2020): all points are drawn again once the
  leverages have changed enough.

All draws are seeded.
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
from kbo.regression.sketch.inverse_root import dtc_variance

_ACCURACY = 0.5
"""Relative accuracy of the leverages of KORS; eps in the papers."""

_BLOCK = 256
"""Number of random numbers that are generated at once."""


class Uniforms(Stateful):
    """Uniform random numbers in [0, 1), a function of the seed and of the number of draws."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.drawn: int = 0
        self.blocks: int = 0

    def next(self) -> float:
        """Return one number."""
        block, position = divmod(self.drawn, _BLOCK)
        self.drawn += 1
        return float(self._generate(block, _BLOCK)[position])

    def many(self, n: int) -> Tensor:
        """Return n numbers, [n]."""
        self.blocks += 1
        return self._generate(-self.blocks, n)

    def _generate(self, block: int, n: int) -> Tensor:
        """Return the first n numbers [n] of a block; each block has its own generator."""
        # Odd multipliers spread seeds and blocks over 63 bits, far from small seeds of problems.
        mixed = (self.seed + 1) * 0x9E3779B97F4A7C15 + (block + 1) * 0xD1B54A32D192ED03
        generator = torch.Generator().manual_seed(mixed % 2**63)
        return torch.rand(n, generator=generator, dtype=torch.float64, device="cpu")


class OnlineRowSampling(Dictionary):
    """Inducing points that are drawn once, when they are observed, by their leverages: KORS.

    A new point enters with probability ``min(1, gamma tau)`` and then stays. Here tau is ``(1 +
    eps) g / (g + mu)`` with eps = 1/2, and g is the variance at the point given the dictionary. A
    point that entered with probability p counts as an observation with noise ``mu p``. For a point
    of weight w, mu is replaced by ``mu / w``. Calandriello et al. (2017), Alg. 1; Zenati et al.
    (2022), eq. 41, in a form without cancellation.

    Args:
        mu: The ridge of the leverages, in units of the kernel.
        gamma: Oversampling; about 10 in practice, ``12 ln(T / delta)`` in theory.
        most: Largest number of points.
        seed: Seed of the draws.
    """

    _weights: list[float]
    """Sum of ``1 / p`` over the samples at each inducing point. Together they count as one sample
    with noise ``mu / weight``."""

    _factor: GrowingFactor
    """The Cholesky factor of ``k(Z, Z) + mu diag(1 / weights)``."""

    _draws: Uniforms

    def __init__(
        self,
        mu: float,
        gamma: float = 10.0,
        most: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(most)
        self.mu: float = checks.positive("mu", mu)
        self.gamma: float = checks.positive("gamma", gamma)
        self.seed: int = checks.seed(seed)

    def begin(self, like: Tensor) -> Self:
        begun = super().begin(like)
        begun._weights = []
        begun._factor = GrowingFactor(like.new_empty(0, 0))
        begun._draws = Uniforms(self.seed)
        return begun

    def accepts(self, point: Candidate, sketch: Observed) -> bool:
        probability = self.probability(point)
        if not self._draws.next() < probability:
            return False
        if point.anchor is not None:
            self._sample_again(point.anchor, point, probability)
            return False
        if point.negligible or not self.has_capacity(sketch.m):
            return False
        image = self._image(point)
        noise = self.mu * probability / point.weight
        pivot = math.sqrt(self._variance(point) + noise)
        self._weights.append(point.weight / probability)
        self._factor.append(image, self._factor.coefficients(image), pivot)
        return True

    def probability(self, point: Candidate) -> float:
        """Return the probability with which the point would enter now."""
        g = self._variance(point)
        return min(1.0, self.gamma * (1 + _ACCURACY) * g / (g + self.mu / point.weight))

    def _variance(self, point: Candidate) -> float:
        """Return g, the variance at the point given the samples."""
        image = self._image(point)
        return max(point.prior - float(image @ image), 0.0)

    def _image(self, point: Candidate) -> Tensor:
        """Return the coordinates of the point in the samples, [m]: ``g = k(x, x) - |image|^2``."""
        return self._factor.solve(point.column)[:, 0]

    def _sample_again(self, anchor: int, point: Candidate, probability: float) -> None:
        """Add a sample at an inducing point, O(m^3); about ``gamma ln n`` times for each."""
        self._weights[anchor] += point.weight / probability
        self._factor = self._weighted_factor(point.basis.L)

    def replaced(self, before: Features, sketch: Observed) -> None:
        """Keep the weights of inducing points that stay; new ones have probability 1.

        The samples at removed points are forgotten, which makes later probabilities larger.
        """
        counts = sketch.rows.counts.tolist()
        weights = []
        for point in sketch.features.anchors.tolist():
            location = tuple(point)
            anchor = before.at(location)
            if anchor is not None:
                weights.append(self._weights[anchor])
                continue
            row = sketch.rows.find(location)
            assert row is not None  # it was chosen among the rows
            weights.append(counts[row])
        self._weights = weights
        self._factor = self._weighted_factor(sketch.features.L)

    def _weighted_factor(self, L: Tensor) -> GrowingFactor:
        """Return the factor of ``k(Z, Z) + mu diag(1 / weights)``, from that of ``k(Z, Z)``."""
        noise = self.mu / L.new_tensor(self._weights)
        return GrowingFactor(cholesky(L @ L.mT + noise.diag()))


class LeverageResampling(Dictionary):
    """Inducing points that are drawn again after every observation, by their leverages: BKB.

    Every observed point is drawn with probability ``min(1, q leverage)``, with the leverages of the
    present sketch. A location that was observed c times may be drawn c times. If nothing is drawn,
    the newest point is taken (Calandriello et al. 2019, Alg. 1).

    Args:
        oversampling: q; 2 to 10 in practice, ``6 alpha ln(4T / delta) / eps^2`` in theory
            (``for_horizon``).
        most: Largest number of points. If more are drawn, those with the smallest ratio of random
            number to probability are taken.
        seed: Seed of the draws.
    """

    _draws: Uniforms

    def __init__(self, oversampling: float = 5.0, most: int | None = None, seed: int = 0) -> None:
        super().__init__(most)
        self.oversampling: float = checks.positive("oversampling", oversampling)
        self.seed: int = checks.seed(seed)

    @classmethod
    def for_horizon(cls, horizon: int, delta: float, eps: float = 0.5) -> Self:
        """Return a dictionary with the oversampling of the theory.

        Its leverages are right within a factor ``(1 + eps) / (1 - eps)``. It takes nearly all
        points unless the ridge is large. No bound relies on this theory: bounds use the computed
        error of the dictionary (``error.norm``).
        """
        delta = checks.probability("delta", delta)
        eps = checks.probability("eps", eps)
        alpha = (1 + eps) / (1 - eps)
        log = math.log(4 * checks.at_least("horizon", horizon, 1) / delta)
        return cls(6 * alpha * log / eps**2)

    def begin(self, like: Tensor) -> Self:
        begun = super().begin(like)
        begun._draws = Uniforms(self.seed)
        return begun

    def redraws(self, sketch: Observed) -> list[int] | None:
        probabilities = self.probabilities(sketch).cpu()
        uniforms = self._draws.many(sketch.rows.n)
        drawn = (uniforms < probabilities).nonzero().flatten()
        if self.most is not None and len(drawn) > self.most:
            self.capped = True
            ratio = uniforms[drawn] / probabilities[drawn]
            drawn = drawn[ratio.topk(self.most, largest=False).indices].sort().values
        if len(drawn) == 0:
            return [sketch.rows.latest_row]
        return drawn.tolist()

    def probabilities(self, sketch: Observed) -> Tensor:
        """Return the probabilities of the rows, ``1 - (1 - min(1, q leverage))^count``."""
        once = (self.oversampling * sketch.row_leverages()).clamp_max(1)
        return 1 - (1 - once) ** sketch.rows.counts


class BatchedResampling(LeverageResampling):
    """Inducing points that are drawn again once the leverages have changed enough: BBKB.

    They are drawn as by ``LeverageResampling`` once ``1 + sum of leverages > growth``. The sum is
    over the batch, with leverages from its beginning. In between only means and variances are
    updated (Calandriello et al. 2020, Alg. 1).

    Args:
        oversampling, most, seed: As in ``LeverageResampling``.
        growth: C, the factor by which leverages may be outdated; 1 gives BKB.
    """

    def __init__(
        self, oversampling: float = 5.0, growth: float = 3.0, most: int | None = None, seed: int = 0
    ) -> None:
        super().__init__(oversampling, most, seed)
        self.growth: float = checks.at_least("growth", growth, 1)
        self._spent: float = 0.0  # sum of the leverages of the batch
        self._root: Tensor | None = None  # S at the beginning of the batch
        self._is_frozen: bool = False

    def begin(self, like: Tensor) -> Self:
        begun = super().begin(like)
        begun._spent = 0.0
        begun._root = None
        begun._is_frozen = False
        return begun

    @property
    def needs_refresh(self) -> bool:
        return 1 + self._spent > self.growth

    def frozen(self) -> BatchedResampling:
        """Return a fork that is not drawn again; ``needs_refresh`` says when it would be."""
        frozen = self.fork()
        frozen._is_frozen = True
        return frozen

    def accepts(self, point: Candidate, sketch: Observed) -> bool:
        """Return False, and count the leverage of the point at the beginning of the batch."""
        if self._root is None:
            self._root = sketch.root.S.clone()
        whitened = point.features @ self._root  # S'z, [m]
        variance = dtc_variance(point.residual, float(whitened @ whitened), sketch.ridge)
        self._spent += point.weight * variance / sketch.ridge
        return False

    def redraws(self, sketch: Observed) -> list[int] | None:
        """Return the rows of the next dictionary if the batch is over, or m = 0."""
        if self._is_frozen or not (self.needs_refresh or sketch.m == 0):
            return None
        self._spent = 0.0
        self._root = None
        return super().redraws(sketch)
