"""A method: posterior + confidence + rule, for finite sets of points, batches of them, and boxes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo import checks
from kbo.acquisition import KernelUCB
from kbo.confidence import Confidence, FixedWidth, NoiseBounds
from kbo.errors import InvalidInput
from kbo.models import AdaptiveRidgeGP, KernelRidgeGP, NystromGP, StreamingGP
from kbo.regression import AdaptiveRidge, BatchView, Dictionary, KernelRidge, NystromRidge, Posterior, track


@dataclass(frozen=True)
class Method:
    """A posterior, a confidence and a rule.

    Attributes:
        name: Its name in the registry.
        kernel: The kernel of the posterior.
        ridge: The ridge of the posterior.
        confidence: The bound whose upper end is maximised; None chooses uniformly at random.
        dictionary: Chooses the points of a sketched posterior; None for the exact one.
        noise: Bounds of the noise level, which the ridge then follows; None if it stays.
    """

    name: str
    kernel: Kernel
    ridge: float
    confidence: Confidence | None
    dictionary: Dictionary | None = None
    noise: NoiseBounds | None = None

    def state(self, points: Tensor | None = None) -> Posterior:
        """An empty posterior; one that is cheap to ask for the fixed ``points`` [A d], if there are any."""
        if self.dictionary is None:
            state = KernelRidge(self.kernel, self.ridge)
        else:
            state = NystromRidge(self.kernel, self.ridge, self.dictionary)
        if self.noise is not None:
            state = AdaptiveRidge(state, self.noise)
        return state if points is None else track(state, points)

    def with_multiplier(self, multiplier: float) -> Method:
        """The same with the upper bound ``mean + multiplier sqrt(leverage)``, which guarantees nothing."""
        if self.confidence is None:
            raise InvalidInput(f"{self.name!r} chooses at random: it has no bound to replace.")
        if self.noise is not None:
            raise InvalidInput(f"the ridge of {self.name!r} moves: a multiplier of the leverage has no meaning.")
        return replace(self, confidence=FixedWidth(multiplier / math.sqrt(self.ridge)))

    def choose(self, state: Posterior, points: Tensor, generator: torch.Generator | None = None) -> int:
        """The index of the next point among ``points`` [A d]; ties go to the first."""
        if self.confidence is None:
            return int(torch.randint(len(points), (), generator=generator))
        return self.confidence.argmax_upper(state, points)[0]

    def choose_batch(
        self, state: Posterior, points: Tensor, size: int, generator: torch.Generator | None = None
    ) -> list[int]:
        """The indices of up to ``size`` next points among ``points`` [A d], to be observed together.

        Means are frozen until the observations are there, variances follow the choices (Desautels et al. 2014; BBKB).
        The batch ends early when ``BatchedResampling`` finds that too much has changed.
        """
        if checks.at_least("size", size, 1) % 1:
            raise InvalidInput(f"size must be a whole number, got {size}.")
        batch, chosen = BatchView(state, points), []
        while len(chosen) < size and not (chosen and batch.due):
            chosen.append(self.choose(batch, points, generator))
            batch.imagine(chosen[-1])
        return chosen

    def model(self, train_X: Tensor, train_Y: Tensor) -> StreamingGP:
        """The posterior as a BoTorch model of train_X [n d], train_Y [n 1]."""
        if self.noise is not None:
            return AdaptiveRidgeGP(train_X, train_Y, self.kernel, self.noise, self.dictionary)
        if self.dictionary is None:
            return KernelRidgeGP(train_X, train_Y, self.kernel, self.ridge)
        return NystromGP(train_X, train_Y, self.kernel, self.ridge, self.dictionary)

    def acquisition(self, model: StreamingGP) -> KernelUCB:
        """The rule as a BoTorch acquisition function."""
        if self.confidence is None:
            raise InvalidInput(f"{self.name!r} chooses at random: it has no acquisition function.")
        return KernelUCB(model, self.confidence)
