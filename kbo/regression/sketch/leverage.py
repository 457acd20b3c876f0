"""Dictionaries: which points span a sketched posterior, chosen in advance or while the observations come.

* ``FixedDictionary``: the points are given.
* ``GreedyDictionary``: a point enters when those before it explain too little of it, and stays.
* ``OnlineRowSampling`` (KORS; Calandriello et al. 2017, in EK-UCB): it enters with probability about its leverage, and
  stays.
* ``LeverageResampling`` (BKB; Calandriello et al. 2019): all are drawn anew after every observation, O(n m^2).
* ``BatchedResampling`` (BBKB; Calandriello et al. 2020): the same, when much has been learned.

All draws are functions of a seed. What a dictionary is, and how to write your own, says ``dictionary.py``.
"""

from __future__ import annotations

import copy
import math
from typing import Self

from gpytorch.kernels import Kernel
from torch import Tensor

from kbo import checks
from kbo.errors import InvalidInput
from kbo.kernels import freeze
from kbo.linalg import GrowingFactor, cholesky
from kbo.regression.sketch.dictionary import Candidate, Dictionary, Observed, Uniforms


class FixedDictionary(Dictionary):
    """Points given in advance, whatever is observed.

    Args:
        points: Z [m d]. Points that add nothing to those before them are left out by the posterior.

    Raises:
        InvalidInput: Not a finite floating-point matrix.
    """

    fixed = True

    def __init__(self, points: Tensor) -> None:
        super().__init__()
        checks.points("points", points)
        if points.ndim != 2:
            raise InvalidInput(f"points must have shape [m d], got {tuple(points.shape)}.")
        self.points: Tensor = points.detach().clone()

    def __repr__(self) -> str:
        return f"FixedDictionary({len(self.points)} points)"

    @classmethod
    def pivoted(cls, kernel: Kernel, X: Tensor, m: int, tolerance: float = 1e-9) -> FixedDictionary:
        """At most m rows of X [n d], each the one that those before it explain least, O(n m^2).

        Pivoted Cholesky (Harbrecht, Peters & Schneider 2012, Alg. 1).

        Args:
            kernel: The kernel of the posterior.
            X: Candidates, for example a sample of where observations are expected.
            m: Largest number of points.
            tolerance: Fraction of the largest prior variance at which everything counts as explained.
        """
        if checks.points("X", X).ndim != 2 or len(X) == 0 or m < 1:
            raise InvalidInput(f"pivoted needs X [n d] with at least one row and m >= 1, got {tuple(X.shape)} and {m}.")
        k = freeze(kernel, X)
        rest = k.diagonal(X).clone()
        least = tolerance * float(rest.max())
        rows, chosen = X.new_zeros(m, len(X)), []
        while len(chosen) < m and float(rest.max()) > least:
            j, i = len(chosen), int(rest.argmax())
            rows[j] = (k(X[i : i + 1], X)[0] - rows[:j, i] @ rows[:j]) / rest[i].sqrt()
            rest = (rest - rows[j].square()).clamp_min(0)
            chosen.append(i)
        return cls(X[chosen])

    def begin(self, like: Tensor) -> FixedDictionary:  # noqa: D102
        return FixedDictionary(self.points.to(like))


class GreedyDictionary(Dictionary):
    """Takes every observed point that the dictionary explains too little of.

    Then no observation leaves more than ``threshold`` unexplained, so the residual of a sketch, and with it the price
    of mixture bounds on it, is known in advance; except for points that depend on the others up to rounding, which
    never enter and may leave a little more. The approximate linear dependence test of Engel, Mannor & Meir (2004).

    Args:
        threshold: Largest ``k(x, x) - |z(x)|^2`` that may stay, in units of the kernel.
        most: Largest number of points; then observations may leave more.
    """

    def __init__(self, threshold: float = 0.01, most: int | None = None) -> None:
        super().__init__(most)
        self.threshold = checks.positive("threshold", threshold)

    def accepts(self, point: Candidate, sketch: Observed) -> bool:  # noqa: D102
        return point.residual > self.threshold and self._has_capacity(sketch.m)


class OnlineRowSampling(Dictionary):
    """KORS: a new point enters with probability about its ridge leverage, and stays for ever.

    With probability ``min(1, gamma tau)``, ``tau = (1 + eps) g / (g + mu)``, where g is the variance at the point given
    the dictionary, a point that entered with probability p counting as an observation with noise ``mu p``: Calandriello
    et al. (2017), Alg. 1; Zenati et al. (2022), eq. 41, in a form without cancellation.

    Args:
        mu: The ridge of the leverages, in units of the kernel.
        gamma: Oversampling; about 10 in practice, ``12 ln(T / delta)`` in theory (``for_horizon``).
        eps: Accuracy of the leverages.
        most: Largest number of points.
        seed: Seed of the draws.
    """

    def __init__(
        self, mu: float, gamma: float = 10.0, eps: float = 0.5, most: int | None = None, seed: int = 0
    ) -> None:
        super().__init__(most)
        self.mu, self.gamma = checks.positive("mu", mu), checks.positive("gamma", gamma)
        self.eps, self.seed = checks.probability("eps", eps), seed

    saved = ("capped", "_weights", "_factor", "_draws")

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
        return cls(mu, 12 * math.log(checks.positive("horizon", horizon) / delta), most=most, seed=seed)

    def begin(self, like: Tensor) -> OnlineRowSampling:  # noqa: D102
        begun = copy.copy(self)
        begun._weights = []
        begun._factor = GrowingFactor(like.new_empty(0, 0))
        begun._draws = Uniforms(self.seed)
        return begun

    def accepts(self, point: Candidate, sketch: Observed) -> bool:  # noqa: D102
        whitened, g, p = self._entrance(point)
        if not self._draws.next() < p:
            return False
        if point.anchor is not None:
            self._repeat(point, p)
            return False
        if point.dependent or not self._has_capacity(sketch.m):
            return False
        self._weights.append(1 / p)
        self._factor.append(whitened, self._factor.coefficients(whitened), math.sqrt(g + self.mu * p))
        return True

    def _repeat(self, point: Candidate, p: float) -> None:
        """One more sample at an anchor, O(m^3); that happens about ``gamma ln n`` times an anchor."""
        assert point.anchor is not None
        self._weights[point.anchor] += 1 / p
        L = point.basis.L
        noise = self.mu / L.new_tensor(self._weights)
        self._factor = GrowingFactor(cholesky(L @ L.mT + noise.diag()))

    def probability(self, point: Candidate) -> float:
        """The probability with which the point would enter now."""
        return self._entrance(point)[2]

    def _entrance(self, point: Candidate) -> tuple[Tensor, float, float]:
        """The point seen through the samples [m], g, and the probability."""
        whitened = self._factor.solve(point.column.unsqueeze(-1)).squeeze(-1)
        g = max(point.prior - float(whitened @ whitened), 0.0)
        return whitened, g, min(1.0, self.gamma * (1 + self.eps) * g / (g + self.mu))


class LeverageResampling(Dictionary):
    """BKB: after every observation each one is drawn into the dictionary with probability ``min(1, q leverage)``.

    Leverages are those of the present sketch; an observation that was made c times has c chances. The newest point
    stays if the draw is empty (Calandriello et al. 2019, Alg. 1).

    Args:
        oversampling: q; 2 to 10 in practice, ``6 alpha ln(4T / delta) / eps^2`` in theory (``for_horizon``).
        most: Largest number of points: among those drawn, the ones with the largest chances relative to their luck.
        seed: Seed of the draws.
    """

    def __init__(self, oversampling: float = 5.0, most: int | None = None, seed: int = 0) -> None:
        super().__init__(most)
        self.oversampling, self.seed = checks.positive("oversampling", oversampling), seed

    saved = ("capped", "_draws")

    _draws: Uniforms

    @classmethod
    def for_horizon(cls, horizon: int, delta: float, eps: float = 0.5, most: int | None = None, seed: int = 0) -> Self:
        """With the oversampling of the theory, for leverages within ``(1 + eps) / (1 - eps)``.

        It takes nearly all points unless the ridge is large. No bound relies on it: what a dictionary misses is
        computed (``residual_norm``).
        """
        checks.probability("delta", delta)
        alpha = (1 + checks.probability("eps", eps)) / (1 - eps)
        q = 6 * alpha * math.log(4 * checks.positive("horizon", horizon) / delta) / eps**2
        return cls(q, most=most, seed=seed)

    def begin(self, like: Tensor) -> Self:  # noqa: D102
        begun = copy.copy(self)
        begun._draws = Uniforms(self.seed)
        return begun

    def redraws(self, sketch: Observed) -> list[int] | None:  # noqa: D102
        p, u = self.probabilities(sketch), self._draws.many(sketch.rows.n).to(sketch.rows.counts)
        drawn = (u < p).nonzero().flatten()
        if self.most is not None and len(drawn) > self.most:
            self.capped = True
            drawn = drawn[(u[drawn] / p[drawn]).topk(self.most, largest=False).indices].sort().values
        return drawn.tolist() or [sketch.rows.newest]

    def probabilities(self, sketch: Observed) -> Tensor:
        """The probability of each row of the sketch to be drawn now: ``1 - (1 - min(1, q leverage))^count``."""
        once = (self.oversampling * sketch.row_leverages()).clamp_max(1)
        return 1 - (1 - once) ** sketch.rows.counts


class BatchedResampling(LeverageResampling):
    """BBKB: draws the dictionary of BKB anew only when the observations since then have changed the leverages.

    That is when ``1 + sum of leverages > growth``, with the leverages that the points had when the batch began;
    in between only means and variances follow (Calandriello et al. 2020, Alg. 1).

    Args:
        oversampling: As in ``LeverageResampling``.
        growth: Factor by which leverages may be out of date, C; 1 is BKB.
        most: Largest number of points.
        seed: Seed of the draws.
    """

    def __init__(self, oversampling: float = 5.0, growth: float = 3.0, most: int | None = None, seed: int = 0) -> None:
        super().__init__(oversampling, most, seed)
        self.growth = checks.at_least("growth", growth, 1)
        self._spent, self._root, self._waits = 0.0, None, False

    saved = ("capped", "_draws", "_spent", "_root")

    @property
    def needs_refresh(self) -> bool:
        """Whether the batch is over."""
        return 1 + self._spent > self.growth

    def frozen(self) -> BatchedResampling:
        """The same, but it only says when it would be drawn again."""
        frozen = self.fork()
        frozen._waits = True
        return frozen

    def accepts(self, point: Candidate, sketch: Observed) -> bool:
        """No; but the leverage that the point had at the beginning of the batch counts."""
        if self._root is None:
            self._root = sketch.root.S.clone()
        whitened = point.features @ self._root
        self._spent += point.residual / sketch.ridge + float(whitened @ whitened)
        return False

    def redraws(self, sketch: Observed) -> list[int] | None:
        """As in ``LeverageResampling``, if the batch is over; a sketch without any points does not wait."""
        if self._waits or not (self.needs_refresh or sketch.m == 0):
            return None
        self._spent, self._root = 0.0, None
        return super().redraws(sketch)
