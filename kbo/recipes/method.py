"""A method, that is a posterior, a confidence and a rule; its inputs, and the simplest rules."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import torch
from botorch.acquisition import AcquisitionFunction
from gpytorch.kernels import Kernel
from torch import Generator, Tensor

from kbo import checks
from kbo.acquisition.thompson import InflatedThompsonSampling, inflated_draws
from kbo.acquisition.ucb import KernelUCB
from kbo.confidence import Confidence, FixedWidth, NoiseLevel
from kbo.confidence.mixture.radius import Scale
from kbo.errors import InvalidInput
from kbo.models import PosteriorGP, StreamingGP
from kbo.regression import AdaptiveRidge, BatchView, Dictionary, KernelRidge, NystromRidge, Posterior, Tracked


@dataclass
class Inputs:
    """The values from which a recipe makes a method.

    Attributes:
        kernel: An unbatched GPyTorch kernel.
        noise_std: Sub-Gaussian constant of the noise, in units of the targets; used if ``Recipe.noise`` is "given".
        norm_bound: Bound of the RKHS norm of the function; used if ``Recipe.norm`` is "given".
        delta: Probability that the bounds may fail; Thompson sampling takes its radius at a smaller one.
        scale: Covariance scale c of the mixtures, or several that are averaged; the ridge is ``noise_std^2 / c``, with
            the middle one, unless the recipe fixes it.
        horizon: Number of rounds T.
        n_points: Size of the finite set for "gp-ucb", number of arms of a round for "supk-ucb".
        points: The finite set [N d], instead of its size; for "chaining-ucb...", None means the arms that are offered
            together.
        seed: Seed of a recipe's own random dictionary.
        noise_upper: Upper bound of the noise level: "...-fixed" use it, "...-adaptive" begin with it, if given.
        noise_lower: Lower bound of the noise level, for "...-adaptive".
        ridge: The ridge, instead of ``noise_std^2 / c``; also the mu of "ek-ucb".
        ridges: The grid of "dmm-ucb", instead of the paper's.
        dictionary: The dictionary of a sketched posterior, instead of the recipe's own.
        strict_noise: Whether "dmm-ucb-adaptive" and "cmm-ucb-adaptive" assume only strictly sub-Gaussian noise.
        multiplier: Replace the bound by ``mean + multiplier sqrt(leverage)``, as experiments do; this removes the
            guarantee.
    """

    kernel: Kernel
    noise_std: float
    norm_bound: float
    delta: float
    scale: Scale = 1.0
    horizon: int = 0
    n_points: int = 0
    points: Tensor | None = None
    seed: int = 0
    noise_upper: float | None = None
    noise_lower: float = 0.0
    ridge: float = 0.0
    ridges: list[float] | None = None
    dictionary: Dictionary | None = None
    strict_noise: bool = False
    multiplier: float | None = None


class Rule(ABC):
    """The choice of the next points, from a posterior and a confidence.

    Attributes:
        draws: Whether the choice maximises a random draw of the function.
        needs_confidence: Whether the choice depends on a confidence.
        finite_sets_only: Whether there is neither a model nor an acquisition function for boxes.
    """

    draws: ClassVar[bool] = False
    needs_confidence: ClassVar[bool] = True
    finite_sets_only: ClassVar[bool] = False

    @classmethod
    def from_inputs(cls, inputs: Inputs) -> Self:
        """Return the rule for the inputs of a recipe."""
        return cls()

    def state(self, posterior: Callable[[], Posterior], points: Tensor | None) -> Posterior:
        """Return an empty state to choose from.

        Args:
            posterior: Makes an empty posterior.
            points: The points [A d] of every choice, if they stay the same.
        """
        return posterior() if points is None else Tracked(posterior(), points)

    @abstractmethod
    def choose(self, method: Method, state: Posterior, points: Tensor, size: int, rng: Generator | None) -> list[int]:
        """Return the indices of up to ``size`` next points among ``points`` [A d]; ties go to the first."""

    def acquisition(self, method: Method, model: StreamingGP, rng: Generator | None) -> AcquisitionFunction:
        """Return the rule as a BoTorch acquisition function; by default there is none."""
        raise InvalidInput(f"method {method.name!r} has no acquisition function: its rule is {type(self).__name__}.")


@dataclass(frozen=True)
class UpperBound(Rule):
    """The point with the largest upper confidence bound.

    In a batch, means stay the same until the observations arrive, and variances follow the choices (Desautels et al.
    2014; BBKB). The batch ends early when ``BatchedResampling`` finds that too much has changed.
    """

    def choose(self, method: Method, state: Posterior, points: Tensor, size: int, rng: Generator | None) -> list[int]:
        chosen = [method.bound.argmax_upper(state, points)[0]]
        if size == 1:
            return chosen
        batch = BatchView(state, points)
        batch.observe(chosen[0])
        while len(chosen) < size and not batch.needs_refresh:
            chosen.append(method.bound.argmax_upper(batch, points)[0])
            batch.observe(chosen[-1])
        return chosen

    def acquisition(self, method: Method, model: StreamingGP, rng: Generator | None) -> KernelUCB:
        return KernelUCB(model, method.bound)


@dataclass(frozen=True)
class UniformChoice(Rule):
    """Points chosen uniformly at random."""

    needs_confidence = False

    def choose(self, method: Method, state: Posterior, points: Tensor, size: int, rng: Generator | None) -> list[int]:
        return torch.randint(len(points), (size,), generator=rng).tolist()


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
        posterior: Makes the posterior of a kernel and a ridge, where there is no dictionary.

    Raises:
        InvalidInput: The rule needs a confidence, and there is none.
    """

    name: str
    kernel: Kernel
    ridge: float
    confidence: Confidence | None
    dictionary: Dictionary | None = None
    noise: NoiseLevel | None = None
    rule: Rule = field(default_factory=UpperBound)
    posterior: Callable[[Kernel, float], Posterior] = KernelRidge

    def __post_init__(self) -> None:
        checks.maybe(checks.instance, "confidence", self.confidence, Confidence)
        checks.positive("ridge", self.ridge)
        if self.rule.needs_confidence:
            _ = self.bound

    @property
    def has_bounds(self) -> bool:
        """Whether there is a confidence."""
        return self.confidence is not None

    @property
    def bound(self) -> Confidence:
        """The confidence.

        Raises:
            InvalidInput: There is none.
        """
        if self.confidence is None:
            raise InvalidInput(
                f"method {self.name!r} has no confidence, which {type(self.rule).__name__} needs: pass one, for "
                "example FixedWidth(1.0), or rule=UniformChoice()."
            )
        return self.confidence

    def state(self, points: Tensor | None = None) -> Posterior:
        """Return an empty state for ``choose``; answers at the fixed ``points`` [A d], if given, are cheap."""
        return self.rule.state(self._new_posterior, checks.maybe(checks.rows, "points", points))

    def _new_posterior(self) -> Posterior:
        if self.dictionary is None:
            posterior = self.posterior(self.kernel, self.ridge)
        else:
            posterior = NystromRidge(self.kernel, self.ridge, self.dictionary)
        return posterior if self.noise is None else AdaptiveRidge(posterior, self.noise)  # pyright: ignore[reportArgumentType]

    def with_multiplier(self, multiplier: float) -> Method:
        """Return the method with the upper bound ``mean + multiplier sqrt(leverage)``, which has no guarantee."""
        if self.confidence is None or self.noise is not None:
            reason = "chooses at random" if self.confidence is None else "has a ridge that moves"
            raise InvalidInput(f"method {self.name!r} {reason}: a multiplier of the leverage has no meaning.")
        return replace(
            self, confidence=FixedWidth(checks.non_negative("multiplier", multiplier) / math.sqrt(self.ridge))
        )

    def choose(self, state: Posterior, points: Tensor, generator: Generator | None = None) -> int:
        """Return the index of the next point among ``points`` [A d]; ties go to the first."""
        return self.choose_batch(state, points, 1, generator)[0]

    def choose_batch(
        self, state: Posterior, points: Tensor, size: int, generator: Generator | None = None
    ) -> list[int]:
        """Return the indices of up to ``size`` next points among ``points`` [A d], to be observed together.

        Raises:
            InvalidInput: ``size`` is not a positive whole number, or the rule chooses one point at a time.
        """
        checks.instance("state", state, Posterior).check(points, "points")
        if points.ndim != 2:
            raise InvalidInput(f"points must have shape [A d], got {tuple(points.shape)}.")
        size, generator = checks.whole("size", size, 1), checks.generator(generator)
        return self.rule.choose(self, state, points, size, generator)

    def model(self, train_X: Tensor, train_Y: Tensor) -> PosteriorGP:
        """Return the posterior as a BoTorch model of train_X [n d], train_Y [n 1].

        Raises:
            InvalidInput: The method has none.
        """
        if self.rule.finite_sets_only:
            raise InvalidInput(f"method {self.name!r} has no model of its own: use it on finite sets of points.")
        return PosteriorGP(train_X, train_Y, self._new_posterior())

    def acquisition(self, model: StreamingGP, generator: Generator | None = None) -> AcquisitionFunction:
        """Return the rule as a BoTorch acquisition function; draws use the generator.

        Raises:
            InvalidInput: The rule has none.
        """
        return self.rule.acquisition(self, model, generator)


@dataclass(frozen=True)
class ThompsonSampling(Rule):
    """The point at which a draw of the function, as wide as the confidence, is largest.

    ``FixedWidth(1.0)`` makes it plain Thompson sampling. The points of a batch are independent; some may be equal.
    """

    draws = True

    @torch.no_grad()
    def choose(self, method: Method, state: Posterior, points: Tensor, size: int, rng: Generator | None) -> list[int]:
        return inflated_draws(method.bound, state, points, size, rng).argmax(-1).tolist()

    def acquisition(self, method: Method, model: StreamingGP, rng: Generator | None) -> InflatedThompsonSampling:
        return InflatedThompsonSampling(model, method.bound, int(torch.randint(2**62, (), generator=rng)))
