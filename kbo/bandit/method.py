"""A method: a posterior, a confidence and a rule that chooses the next points from them.

    posterior = partial(KernelRidge, kernel, ridge)
    method = Method(posterior, SelfNormalized(0.1, 2.0, 0.05), UpperBound())
    state = method.state(points)            an empty posterior, cheap at these points
    row = method.choose(state, points)      the rule, given posterior and confidence
    state.update(points[[row]], reward)

In a loop of BoTorch the same parts are ``KernelUCB(PosteriorGP(X, Y, posterior()), method.bound)``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Generator, Tensor

from kbo._base import checks
from kbo.confidence import Confidence, FixedWidth
from kbo.errors import InvalidInput
from kbo.regression import BatchView, FixedPoints, Posterior

RNG = Generator | None
"""Source of random choices; None for torch's global one."""


class Rule(ABC):
    """The rule that chooses the next points, from a posterior and a confidence.

    Attributes:
        draws: Whether the choice maximises a random draw of the function.
        needs_confidence: Whether the choice depends on a confidence. If not, it may be None.
    """

    draws: ClassVar[bool] = False
    needs_confidence: ClassVar[bool] = True

    def state(self, posterior: Callable[[], Posterior], points: Tensor | None) -> Posterior:
        """Return an empty posterior to choose from.

        Args:
            posterior: Makes an empty posterior.
            points: The points [A d] of every choice, if they stay the same.
        """
        if points is None:
            return posterior()
        return FixedPoints(posterior(), points)

    @abstractmethod
    def choose(
        self, confidence: Confidence | None, state: Posterior, points: Tensor, size: int, rng: RNG
    ) -> list[int]:
        """Return up to ``size`` indices of the next points among ``points`` [A d]; ties go to the first."""


@dataclass(frozen=True)
class UpperBound(Rule):
    """The point with the largest upper confidence bound.

    Within a batch, means stay until the observations arrive, and variances are updated with each
    choice (Desautels et al. 2014; BBKB). The batch ends early if ``BatchedResampling`` needs a new
    dictionary.
    """

    def choose(
        self, confidence: Confidence, state: Posterior, points: Tensor, size: int, rng: RNG
    ) -> list[int]:
        row, _ = confidence.argmax_upper(state, points)
        chosen = [row]
        if size == 1:
            return chosen
        batch = BatchView(state, points)
        batch.observe(row)
        while len(chosen) < size and not batch.needs_refresh:
            row, _ = confidence.argmax_upper(batch, points)
            chosen.append(row)
            batch.observe(row)
        return chosen


@dataclass(frozen=True)
class ThompsonSampling(Rule):
    """The point at which a draw of the function, as wide as the confidence, is largest.

    With ``FixedWidth(1.0)`` it is plain Thompson sampling. The points of a batch are drawn
    independently; some may be equal.
    """

    draws = True

    @torch.no_grad()
    def choose(
        self, confidence: Confidence, state: Posterior, points: Tensor, size: int, rng: RNG
    ) -> list[int]:
        draws = confidence.draw(state, points, size, rng)  # [size A]
        return draws.argmax(-1).tolist()


@dataclass(frozen=True)
class UniformChoice(Rule):
    """Points chosen uniformly at random."""

    needs_confidence = False

    def choose(
        self, confidence: Confidence | None, state: Posterior, points: Tensor, size: int, rng: RNG
    ) -> list[int]:
        return torch.randint(len(points), (size,), generator=rng, device="cpu").tolist()


@dataclass(frozen=True)
class Method:
    """A posterior, a confidence and a rule.

    Attributes:
        posterior: Makes an empty posterior, for example ``partial(KernelRidge, kernel, ridge)``.
        confidence: The bound that the rule uses; None if the rule needs none.
        rule: The choice of the next point.
        name: The name of the method in messages.

    Raises:
        InvalidInput: A part is of another kind, or the rule needs a confidence and there is none.
    """

    posterior: Callable[[], Posterior]
    confidence: Confidence | None
    rule: Rule = UpperBound()
    name: str = "method"

    def __post_init__(self) -> None:
        checks.function(
            "posterior, which makes one as partial(KernelRidge, kernel, ridge) does,",
            self.posterior,
        )
        checks.maybe(checks.instance, "confidence", self.confidence, Confidence)
        if checks.instance("rule", self.rule, Rule).needs_confidence:
            _ = self.bound  # an error if there is none

    @property
    def bound(self) -> Confidence:
        """The confidence.

        Raises:
            InvalidInput: There is none.
        """
        if self.confidence is None:
            raise InvalidInput(
                f"method {self.name!r} has no confidence, which {type(self.rule).__name__} needs: "
                "pass one, for example FixedWidth(1.0), or rule=UniformChoice()."
            )
        return self.confidence

    def with_multiplier(self, multiplier: float) -> Method:
        """Return the method with the bound ``mean + multiplier sqrt(leverage)``, without guarantee.

        The leverage is the variance over the ridge.
        """
        state = self._empty()
        multiplier = checks.non_negative("multiplier", multiplier)
        if self.confidence is None:
            raise InvalidInput(
                f"method {self.name!r} chooses at random: a multiplier of the leverage has no meaning."
            )
        if state.schedule is not None:
            raise InvalidInput(
                f"method {self.name!r} has a ridge that moves: a multiplier of the leverage has no "
                "meaning."
            )
        return replace(self, confidence=FixedWidth(multiplier / math.sqrt(state.ridge)))

    def state(self, points: Tensor | None = None) -> Posterior:
        """Return an empty posterior for ``choose``, cheap at fixed ``points`` [A d] if given."""
        return self.rule.state(self._empty, checks.maybe(checks.rows, "points", points))

    def _empty(self) -> Posterior:
        return checks.instance("the value of posterior", self.posterior(), Posterior)

    def choose(self, state: Posterior, points: Tensor, generator: Generator | None = None) -> int:
        """Return the index of the next point among ``points`` [A d]; ties go to the first."""
        return self.choose_batch(state, points, 1, generator)[0]

    def choose_batch(
        self, state: Posterior, points: Tensor, size: int, generator: Generator | None = None
    ) -> list[int]:
        """Return up to ``size`` indices of points among ``points`` [A d], to be observed together.

        Raises:
            InvalidInput: ``size`` is not a positive whole number, or the rule chooses one point at
                a time.
        """
        checks.instance("state", state, Posterior).check(points, "points")
        if points.ndim != 2:
            raise InvalidInput(f"points must have shape [A d], got {tuple(points.shape)}.")
        size = checks.whole("size", size, 1)
        generator = checks.generator(generator)
        rows = self.rule.choose(self.confidence, state, points, size, generator)
        name = f"choose of {type(self.rule).__name__}"
        if not isinstance(rows, list) or not 0 < len(rows) <= size:
            raise InvalidInput(
                f"{name} must return a list of 1 to {size} rows of points, got {checks.shown(rows)}."
            )
        returned = f"a row that {name} returned"
        return [checks.whole(returned, row, 0, len(points) - 1) for row in rows]
