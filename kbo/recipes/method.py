"""A method, that is a posterior, a confidence and a rule; and the rules that need no file of their own."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import torch
from botorch.acquisition import AcquisitionFunction
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo import checks
from kbo.acquisition import KernelUCB
from kbo.confidence import Confidence, FixedWidth, NoiseBounds
from kbo.errors import InvalidInput
from kbo.models import AdaptiveRidgeGP, KernelRidgeGP, NystromGP, StreamingGP
from kbo.recipes.inputs import Inputs
from kbo.regression import AdaptiveRidge, BatchView, Dictionary, KernelRidge, NystromRidge, Posterior, track


class Rule(ABC):
    """The choice of the next point among a finite set of points, from a posterior and a confidence.

    Attributes:
        draws: Whether the choice maximises a random draw of the function.
        needs_confidence: Whether the choice depends on a confidence.
        finite_sets_only: Whether there is no acquisition function for boxes.
    """

    draws: ClassVar[bool] = False
    needs_confidence: ClassVar[bool] = True
    finite_sets_only: ClassVar[bool] = False

    @classmethod
    def from_inputs(cls, inputs: Inputs) -> Self:
        """The rule for the inputs of a recipe."""
        return cls()

    def state(self, posterior: Callable[[], Posterior], points: Tensor | None) -> Posterior:
        """An empty state that the rule can choose from.

        Args:
            posterior: Makes an empty posterior.
            points: Points [A d] among which every choice will be, if they are fixed.
        """
        return posterior() if points is None else track(posterior(), points)

    @abstractmethod
    def choose(
        self, confidence: Confidence | None, state: Posterior, points: Tensor, generator: torch.Generator | None = None
    ) -> int:
        """Return the index of the next point among ``points`` [A d]; ties go to the first."""

    def choose_batch(
        self,
        confidence: Confidence | None,
        state: Posterior,
        points: Tensor,
        size: int,
        generator: torch.Generator | None = None,
    ) -> list[int]:
        """Return the indices of up to ``size`` next points among ``points`` [A d], to be observed together.

        Means stay frozen until the observations arrive, variances follow the choices (Desautels et al. 2014; BBKB).
        The batch ends early when ``BatchedResampling`` finds that too much has changed.
        """
        batch, chosen = BatchView(state, points), []
        while len(chosen) < size and not (chosen and batch.due):
            chosen.append(self.choose(confidence, batch, points, generator))
            batch.imagine(chosen[-1])
        return chosen

    def acquisition(
        self, confidence: Confidence | None, model: StreamingGP, generator: torch.Generator | None = None
    ) -> AcquisitionFunction:
        """Return the rule as a BoTorch acquisition function.

        Raises:
            InvalidInput: There is none.
        """
        raise InvalidInput(f"the rule {type(self).__name__} has no acquisition function: use it on a finite set.")


@dataclass(frozen=True)
class UpperBound(Rule):
    """The point with the largest upper confidence bound."""

    def choose(  # noqa: D102
        self, confidence: Confidence | None, state: Posterior, points: Tensor, generator: torch.Generator | None = None
    ) -> int:
        assert confidence is not None
        return confidence.argmax_upper(state, points)[0]

    def acquisition(  # noqa: D102
        self, confidence: Confidence | None, model: StreamingGP, generator: torch.Generator | None = None
    ) -> KernelUCB:
        assert confidence is not None
        return KernelUCB(model, confidence)


@dataclass(frozen=True)
class UniformChoice(Rule):
    """A point chosen uniformly at random."""

    needs_confidence = False

    def choose(  # noqa: D102
        self, confidence: Confidence | None, state: Posterior, points: Tensor, generator: torch.Generator | None = None
    ) -> int:
        return int(torch.randint(len(points), (), generator=generator))


@dataclass(frozen=True)
class Method:
    """A posterior, a confidence and a rule.

    Attributes:
        name: Its name in messages and tables.
        kernel: The kernel of the posterior.
        ridge: The ridge of the posterior.
        confidence: The bound that the rule uses; None if the rule needs none.
        dictionary: Chooses the points of a sketched posterior; None for the exact one.
        noise: Bounds of the noise level, which the ridge then follows; None if the ridge stays.
        rule: The choice of the next point.

    Raises:
        InvalidInput: The rule needs a confidence, and there is none.
    """

    name: str
    kernel: Kernel
    ridge: float
    confidence: Confidence | None
    dictionary: Dictionary | None = None
    noise: NoiseBounds | None = None
    rule: Rule = field(default_factory=UpperBound)

    def __post_init__(self) -> None:
        if self.rule.needs_confidence and self.confidence is None:
            raise InvalidInput(
                f"the rule {type(self.rule).__name__} of method {self.name!r} needs a confidence: pass one, for "
                "example FixedWidth(1.0), or use UniformChoice()."
            )

    @property
    def has_bounds(self) -> bool:
        """Whether there is a confidence."""
        return self.confidence is not None

    def posterior(self) -> Posterior:
        """Return an empty posterior."""
        if self.dictionary is None:
            posterior = KernelRidge(self.kernel, self.ridge)
        else:
            posterior = NystromRidge(self.kernel, self.ridge, self.dictionary)
        return posterior if self.noise is None else AdaptiveRidge(posterior, self.noise)

    def state(self, points: Tensor | None = None) -> Posterior:
        """Return an empty state for ``choose``; answers at the fixed ``points`` [A d], if given, are cheap."""
        return self.rule.state(self.posterior, points)

    def with_multiplier(self, multiplier: float) -> Method:
        """Return the method with the upper bound ``mean + multiplier sqrt(leverage)``, which has no guarantee."""
        if self.confidence is None:
            raise InvalidInput(f"{self.name!r} chooses at random: it has no bound to replace.")
        if self.noise is not None:
            raise InvalidInput(f"the ridge of {self.name!r} moves: a multiplier of the leverage has no meaning.")
        return replace(self, confidence=FixedWidth(multiplier / math.sqrt(self.ridge)))

    def choose(self, state: Posterior, points: Tensor, generator: torch.Generator | None = None) -> int:
        """Return the index of the next point among ``points`` [A d]; ties go to the first."""
        return self.rule.choose(self.confidence, state, points, generator)

    def choose_batch(
        self, state: Posterior, points: Tensor, size: int, generator: torch.Generator | None = None
    ) -> list[int]:
        """Return the indices of up to ``size`` next points among ``points`` [A d], to be observed together.

        Raises:
            InvalidInput: ``size`` is not a positive whole number, or the rule chooses one point at a time.
        """
        if checks.at_least("size", size, 1) % 1:
            raise InvalidInput(f"size must be a whole number, got {size}.")
        return self.rule.choose_batch(self.confidence, state, points, size, generator)

    def model(self, train_X: Tensor, train_Y: Tensor) -> StreamingGP:
        """Return the posterior as a BoTorch model of train_X [n d], train_Y [n 1]."""
        if self.rule.finite_sets_only:
            raise InvalidInput(
                f"{self.name!r} is for finite sets of points: it has no model and no acquisition function."
            )
        if self.noise is not None:
            return AdaptiveRidgeGP(train_X, train_Y, self.kernel, self.noise, self.dictionary)
        if self.dictionary is None:
            return KernelRidgeGP(train_X, train_Y, self.kernel, self.ridge)
        return NystromGP(train_X, train_Y, self.kernel, self.ridge, self.dictionary)

    def acquisition(self, model: StreamingGP, generator: torch.Generator | None = None) -> AcquisitionFunction:
        """Return the rule as a BoTorch acquisition function; random ones draw from the generator.

        Raises:
            InvalidInput: The rule has none.
        """
        return self.rule.acquisition(self.confidence, model, generator)
