"""The BoTorch model of exact kernel ridge regression."""

from __future__ import annotations

import copy
from typing import Any, Self

import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms.outcome import ChainedOutcomeTransform, OutcomeTransform
from botorch.posteriors.gpytorch import GPyTorchPosterior, scalarize_posterior
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.means import ConstantMean, ZeroMean
from torch import Tensor

from kbo._base import checks
from kbo.errors import InvalidInput
from kbo.models.streaming import StreamingGP
from kbo.regression import KernelRidge


class KernelRidgeGP(StreamingGP):
    """A Gaussian process with fixed kernel and noise variance, ready for ``optimize_acqf``.

    Nothing is fitted. Targets are rescaled only by an outcome transform that you pass; bounds are
    in the (transformed) units. ``condition_on_observations`` with plain data costs O(n^2) per row
    and keeps no autograd graph. With batches, or with data that require gradients, it returns a
    differentiable fantasy.

    Args:
        train_X: Points [n d].
        train_Y: Targets [n 1].
        kernel: An unbatched GPyTorch kernel. It is copied; ``covar_module`` is the copy.
        ridge: The regulariser, equal to the noise variance, in (transformed) units.
        input_transform: Applied to training and test points.
        outcome_transform: Applied to targets, undone in ``posterior``.
        train_Yvar: Known noise variances [n 1] of the targets, in squared units of train_Y; by
            default the ridge. The weight of an observation is ``ridge`` divided by its (transformed)
            variance. So the ``noise_std`` of a confidence is the noise level of an observation of
            variance ``ridge``.

    Raises:
        InvalidInput: A shape is wrong, a value is not finite, or a ridge or variance is not
            positive.

    Example:
        >>> model = KernelRidgeGP(train_X, train_Y, MaternKernel(nu=2.5), ridge=0.01)
        >>> bound = SelfNormalized(noise_std=0.1, norm_bound=2.0, delta=0.1)
        >>> acqf = KernelUCB(model, bound)
        >>> x, value = optimize_acqf(acqf, bounds, q=1, num_restarts=4, raw_samples=64)
    """

    @classmethod
    @torch.no_grad()
    def from_gp(cls, gp: SingleTaskGP) -> Self:
        """Return a model with the data, kernel, mean, noise and transforms of another GP.

        It has the posterior of that GP. Nothing is proved about it, because the hyperparameters
        were fitted to the data. Known noise variances are kept; the ridge is then their mean.

        Args:
            gp: A fitted ``SingleTaskGP`` of one output, with constant mean and Gaussian noise.

        Raises:
            InvalidInput: The model is of another kind, or its transforms have learned from other
                data than its own.
        """
        if not _has_one_output_and_gaussian_noise(gp):
            raise InvalidInput(
                "gp must be a botorch SingleTaskGP with one output, a constant mean and Gaussian "
                f"noise, got {checks.shown(gp)}: take from other models what fits, as kernel, ridge "
                "and transforms."
            )
        fitted: Any = copy.deepcopy(gp).eval()
        P = fitted.train_inputs[0]
        constant = fitted.mean_module(P[:1]).squeeze()
        targets = fitted.train_targets - constant
        Y, Yvar = _data(fitted)
        model = cls(
            fitted.train().train_inputs[0],  # in training mode they are not transformed
            Y,
            fitted.covar_module,
            float(fitted.likelihood.noise.mean()),
            getattr(fitted, "input_transform", None),
            _outcome_transform(fitted, constant),
            Yvar,
        )
        same_inputs = torch.allclose(model.train_inputs[0], P)
        if not (same_inputs and torch.allclose(model.train_targets, targets)):
            raise InvalidInput(
                "the transforms of gp have learned from other data than it has: build it from all "
                "data."
            )
        model.add_caveat("kernel, ridge and transforms come from a model that was fitted to data")
        return model

    def forward(self, X: Tensor) -> MultivariateNormal:
        """Return the prior at X [... q d]; in training mode X is not transformed yet."""
        if self.training:
            X = self.transform_inputs(X)
        return MultivariateNormal(X.new_zeros(X.shape[:-1]), self.covar_module(X))

    def empty_state(self) -> KernelRidge:
        return KernelRidge(self.covar_module, self.ridge.item())


def _has_one_output_and_gaussian_noise(gp: object) -> bool:
    """Return whether a model has one output and Gaussian noise, as ``from_gp`` needs."""
    if not isinstance(gp, SingleTaskGP) or gp.train_targets.ndim > 1:
        return False
    has_known_noise = isinstance(gp.likelihood, FixedNoiseGaussianLikelihood)
    has_unknown_noise = type(gp.likelihood) is GaussianLikelihood
    has_constant_mean = isinstance(gp.mean_module, (ConstantMean, ZeroMean))
    return (has_known_noise or has_unknown_noise) and has_constant_mean


def _data(gp: Any) -> tuple[Tensor, Tensor | None]:
    """Return targets [n 1] and known noise variances [n 1] (or None) in units before transforms."""
    Y = gp.train_targets.unsqueeze(-1)
    Yvar = None
    if isinstance(gp.likelihood, FixedNoiseGaussianLikelihood):
        Yvar = gp.likelihood.noise.unsqueeze(-1)
    if hasattr(gp, "outcome_transform"):
        Y, Yvar = gp.outcome_transform.untransform(Y, Yvar)
    return Y, Yvar


def _outcome_transform(gp: Any, constant: Tensor) -> OutcomeTransform:
    """Return the outcome transform of a model, if any, followed by that of its constant mean."""
    offset = Offset(constant)
    if not hasattr(gp, "outcome_transform"):
        return ChainedOutcomeTransform(offset=offset)
    return ChainedOutcomeTransform(outcome=gp.outcome_transform, offset=offset)


class Offset(OutcomeTransform):
    """A constant prior mean: it is subtracted from the targets, and added to the posterior.

    Args:
        offset: The constant [], in units of the targets.
    """

    def __init__(self, offset: Tensor) -> None:
        super().__init__()
        self.offset: Tensor
        self.register_buffer("offset", offset)

    def forward(
        self, Y: Tensor, Yvar: Tensor | None = None, X: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return targets [... 1] less the constant, and their variances unchanged."""
        return Y - self.offset, Yvar

    def untransform(
        self, Y: Tensor, Yvar: Tensor | None = None, X: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return targets [... 1] plus the constant, and their variances unchanged."""
        return Y + self.offset, Yvar

    def untransform_posterior(self, posterior: Any, X: Tensor | None = None) -> GPyTorchPosterior:
        """Return the posterior of the function plus the constant."""
        offset: Any = self.offset
        return scalarize_posterior(posterior, offset.new_ones(1), offset)  # pyright: ignore
