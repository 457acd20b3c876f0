"""Inflated Thompson sampling: the argmax of a draw with the spread of a confidence sequence.

Kernel TS of Durand, Maillard & Pineau (2018, Sec. 6.4) draws from ``N(mean, width^2 covariance)`` with the width of its
confidence sequence. For any other confidence with centre c and half width r at x, g a joint draw of the posterior less
its mean, and s its standard deviation,

    draw(x) = c(x) + r(x) g(x) / s(x),

which for bounds ``mean +- width s`` is the same. Plain Thompson sampling is ``FixedWidth(1.0)`` at a ridge that is the
variance of the noise; at ridge ``noise_std^2 / c`` it is ``FixedWidth(sqrt(c))``, the prior variance being c times the
kernel.
"""

from __future__ import annotations

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.generation.sampling import SamplingStrategy
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from kbo._base import checks
from kbo.acquisition.base import ConfidenceAcquisition
from kbo.confidence import Confidence
from kbo.models import PosteriorModel
from kbo.regression import Function, Posterior


def inflated_draws(
    confidence: Confidence,
    state: Posterior,
    X: Tensor,
    count: int,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Return independent draws [count N] over the points X [N d], as wide as the bounds; see ``PosteriorAt.draw``."""
    checks.instance("confidence", confidence, Confidence)
    checks.instance("state", state, Posterior)
    g = state.at(confidence.ridge(state)).draw(X, count, generator)
    return confidence.inflated(state, X, g)


class InflatedThompsonSampling(ConfidenceAcquisition):
    """A function drawn with the spread of a confidence, to be maximised; one for every point of a batch.

    The value of a batch of q > 1 points is the mean of their values, each under a function of its own. Functions are
    drawn when they are first needed, from the posterior as it is then and from the seed: the same seed gives the same
    values. Draws are independent, so pending points need no hallucination: they only take the first functions, so that
    sequential and joint optimisation of a batch agree. Draws are in the units of the model's (transformed) targets.

    Args:
        model: A model of kbo, with an RBF or Matern kernel, a multiple of one or a sum of them.
        confidence: The bound whose width the draws have; ``FixedWidth(1.0)`` is plain Thompson sampling if the
            model's ridge is the variance of the noise.
        seed: Of the draws. Change it from one round to the next.
        posterior_transform, X_pending: As in ``KernelUCB``.

    Raises:
        InvalidInput: The model, seed or posterior transform is of another kind; when evaluated, the kernel has no
            random features.
    """

    def __init__(
        self,
        model: PosteriorModel,
        confidence: Confidence,
        seed: int = 0,
        posterior_transform: PosteriorTransform | None = None,
        X_pending: Tensor | None = None,
    ) -> None:
        super().__init__(model, confidence, posterior_transform, X_pending)
        self.generator: torch.Generator = torch.Generator().manual_seed(checks.seed(seed))
        self._paths: list[Function] = []

    @t_batch_mode_transform(assert_output_shape=False)  # pyright: ignore[reportArgumentType]
    def forward(self, X: Tensor) -> Tensor:
        """Return the values [b] of the batches X [b q d]."""
        first = 0 if self.X_pending is None else len(self.X_pending)
        state, P = self.model.state_and_points(X)
        g = torch.stack(
            [self._path(first + j, state, P)(P[..., j, :]) for j in range(P.shape[-2])], -1
        )
        return (self.weight * self.confidence.inflated(state, P, g) + self.offset).mean(-1)

    def _path(self, number: int, state: Posterior, like: Tensor) -> Function:
        while len(self._paths) <= number:
            self._paths.append(
                state.at(self.confidence.ridge(state)).draw_function(like.detach(), self.generator)
            )
        return self._paths[number]


class InflatedPosteriorSampling(SamplingStrategy):
    """The same over a finite set, with any kernel: the points at which draws of the function are largest.

    Like BoTorch's ``MaxPosteriorSampling``; a point may be returned more than once, and every call has new draws. For
    many candidates take a confidence that is cheap to evaluate: "cmm" searches over the ridge for each of them, "dmm"
    does not.

    Args:
        model: A model of kbo.
        confidence, posterior_transform: As in ``InflatedThompsonSampling``.
        seed: Of the draws: two strategies with the same seed return the same points, call by call.

    Raises:
        InvalidInput: The model, seed or posterior transform is of another kind.

    Example:
        >>> sampling = InflatedPosteriorSampling(model, SelfNormalized(noise_std=0.1, norm_bound=2.0, delta=0.1))
        >>> batch = sampling(candidates, num_samples=4)
    """

    def __init__(
        self,
        model: PosteriorModel,
        confidence: Confidence,
        seed: int = 0,
        posterior_transform: PosteriorTransform | None = None,
    ) -> None:
        super().__init__()
        self.rule: InflatedThompsonSampling = InflatedThompsonSampling(
            model, confidence, seed, posterior_transform
        )

    @property
    def guarantee(self) -> str | None:
        """The guarantee of the bounds from which the draws have their width; None for plain Thompson sampling."""
        return self.rule.guarantee

    @torch.no_grad()
    def forward(self, X: Tensor, num_samples: int = 1) -> Tensor:
        """Return points [num_samples d], chosen independently among the rows of X [N d].

        Raises:
            InvalidInput: X is not one set of points, or has too many of them (see ``PosteriorAt.draw``).
        """
        rule = self.rule
        draws = inflated_draws(
            rule.confidence, *rule.model.state_and_points(X), num_samples, rule.generator
        )
        return X[(rule.weight * draws).argmax(-1)]
