"""Inflated Thompson sampling: maximise a drawn function as wide as a confidence sequence."""

from __future__ import annotations

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.generation.sampling import SamplingStrategy
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from kbo._base import checks
from kbo.acquisition.base import ConfidenceAcquisition
from kbo.acquisition.input_constructors import register
from kbo.confidence import Confidence
from kbo.models.base import PosteriorModel
from kbo.regression import Function, Posterior


@register
class InflatedThompsonSampling(ConfidenceAcquisition):
    """Thompson sampling as an acquisition function: a drawn function, as wide as a confidence.

    Each point of a batch has its own drawn function, and the value of a batch of q > 1 points is
    the mean of their values. Functions are drawn when they are first needed, from the posterior at
    that time; the same seed gives the same values. Draws are independent, so pending points need no
    hallucination. They take the first functions, so that sequential and joint optimisation of a
    batch agree. Draws are in the units of the model's (transformed) targets.

    Args:
        model: A model of kbo, with an RBF or Matern kernel, a multiple of one or a sum of them.
        confidence: The bound that gives the draws their width; ``FixedWidth(1.0)`` is plain
            Thompson sampling if the model's ridge is the noise variance.
        seed: Seed of the draws. None takes a seed from torch's global generator, so that every
            round of a loop has new draws.
        posterior_transform, X_pending: As in ``KernelUCB``.

    Raises:
        InvalidInput: The model, seed or posterior transform is of another kind. In an evaluation:
            the kernel has no random features.
    """

    def __init__(
        self,
        model: PosteriorModel,
        confidence: Confidence,
        seed: int | None = None,
        posterior_transform: PosteriorTransform | None = None,
        X_pending: Tensor | None = None,
    ) -> None:
        super().__init__(model, confidence, posterior_transform, X_pending)
        if seed is None:
            seed = int(torch.randint(2**31, (), device="cpu"))
        self.generator: torch.Generator = torch.Generator().manual_seed(checks.seed(seed))
        self._functions: list[Function] = []

    @t_batch_mode_transform(assert_output_shape=False)  # pyright: ignore[reportArgumentType]
    def forward(self, X: Tensor) -> Tensor:
        """Return the values [b] of the batches X [b q d]."""
        n_pending = 0
        if self.X_pending is not None:
            n_pending = len(self.X_pending)
        state, P = self.model.state_and_points(X)
        deviations = []
        for j in range(P.shape[-2]):
            function = self._function(n_pending + j, state, P)
            deviations.append(function(P[..., j, :]))
        draws = self.confidence.inflated(state, P, torch.stack(deviations, -1))  # [b q]
        return (self.weight * draws + self.offset).mean(-1)

    def _function(self, number: int, state: Posterior, like: Tensor) -> Function:
        """Return the drawn function with this number, less the mean."""
        while len(self._functions) <= number:
            posterior = state.at(self.confidence.ridge(state))
            self._functions.append(posterior.draw_function(like.detach(), self.generator))
        return self._functions[number]


class InflatedPosteriorSampling(SamplingStrategy):
    """Thompson sampling over a finite set, with any kernel; draws are as wide as a confidence.

    It is used like BoTorch's ``MaxPosteriorSampling``. A point may be returned more than once, and
    every call has new draws. For many candidates choose a confidence that is cheap to evaluate:
    "dmm", for example, not "cmm", which searches over the ridge for each candidate.

    Args:
        model: A model of kbo.
        confidence, seed, posterior_transform: As in ``InflatedThompsonSampling``. Two strategies with
            the same seed return the same points, call by call.

    Raises:
        InvalidInput: The model, seed or posterior transform is of another kind.

    Example:
        >>> bound = SelfNormalized(noise_std=0.1, norm_bound=2.0, delta=0.1)
        >>> sampling = InflatedPosteriorSampling(model, bound)
        >>> batch = sampling(candidates, num_samples=4)
    """

    def __init__(
        self,
        model: PosteriorModel,
        confidence: Confidence,
        seed: int | None = None,
        posterior_transform: PosteriorTransform | None = None,
    ) -> None:
        super().__init__()
        self.rule: InflatedThompsonSampling = InflatedThompsonSampling(
            model, confidence, seed, posterior_transform
        )

    @property
    def guarantee(self) -> str | None:
        """The guarantee of the bounds that give the draws their width; None for plain sampling."""
        return self.rule.guarantee

    @torch.no_grad()
    def forward(self, X: Tensor, num_samples: int = 1) -> Tensor:
        """Return points [num_samples d], drawn independently among the rows of X [N d].

        Raises:
            InvalidInput: X is not one set of points, or has too many (see ``PosteriorAt.draw``).
        """
        rule = self.rule
        state, P = rule.model.state_and_points(X)
        draws = rule.confidence.draw(state, P, num_samples, rule.generator)
        return X[(rule.weight * draws).argmax(-1)]
