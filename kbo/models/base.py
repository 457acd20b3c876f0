"""The base of all BoTorch models of kbo, and their fantasies."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from typing import Any

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions import InputDataWarning
from botorch.models.gpytorch import GPyTorchModel
from botorch.models.model import FantasizeMixin
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.posteriors import Posterior as BotorchPosterior
from botorch.posteriors.gpytorch import GPyTorchPosterior
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.models import GP
from linear_operator import to_linear_operator
from linear_operator.operators import MatmulLinearOperator
from torch import Tensor

from kbo._base import checks
from kbo.errors import InvalidInput
from kbo.models.likelihoods import KnownLikelihood, RidgeLikelihood
from kbo.regression import Hypothetical, Posterior

_MOST_DENSE = 64  # points whose joint covariance is formed densely; above, only its factors are


class PosteriorModel(GPyTorchModel, GP, FantasizeMixin):
    """The part of a single-output BoTorch model that only needs a ``Posterior``.

    Bounds read ``state`` directly: BoTorch's posterior clamps the variance at 1e-10 from below.
    """

    _num_outputs = 1
    train_inputs: tuple[Tensor, ...]
    train_targets: Tensor
    covar_module: Kernel
    input_transform: InputTransform
    outcome_transform: OutcomeTransform
    _variances: Tensor | None = None

    @property
    @abstractmethod
    def state(self) -> Posterior:
        """The ``Posterior`` in the units of the (transformed) inputs and targets."""

    @property
    def variances(self) -> Tensor | None:
        """Known noise variances [... n] of the observations, in units of the (transformed) targets; or None."""
        return self._variances

    @property
    def likelihood(self) -> RidgeLikelihood | KnownLikelihood:
        """Gaussian noise of the known variances, or whose variance is the ridge of the state."""
        if self.variances is not None:
            return KnownLikelihood(self.variances)
        ridge = torch.nn.Parameter(
            self.train_targets.new_tensor(self.state.ridge), requires_grad=False
        )
        return RidgeLikelihood(
            ridge, ridge, f"the ridge of a {type(self).__name__} follows from its data"
        )

    def forward(self, X: Tensor) -> MultivariateNormal:
        """Return the prior at X [... q d], which fits and leave-one-out formulas need; only some models have it.

        Raises:
            InvalidInput: The posterior is not that of this prior and of the likelihood.
        """
        raise InvalidInput(
            f"{type(self).__name__} cannot be fitted and has no leave-one-out formula: take a KernelRidgeGP, for which "
            "both are possible; a kernel that was fitted elsewhere can be passed on."
        )

    def __call__(self, X: Tensor) -> MultivariateNormal:
        """Return the prior in training mode, the posterior otherwise; then X [... q d] is transformed already."""
        if not self.training:
            return self._distribution(self.state, self.cast("X", X))
        if not X.shape[-2]:
            raise InvalidInput(
                f"{type(self).__name__} has no data, which a fit needs: fit it when it has some."
            )
        prior: Any = super().__call__(X)
        return prior

    def cast(self, name: str, value: Tensor) -> Tensor:
        """Return a float tensor on the device and in the dtype of the data; BoTorch warns of another dtype."""
        own = self.train_targets.dtype
        checks.device(name, checks.tensor(name, value), self.train_targets)
        if value.dtype == own or value.dtype not in (torch.float32, torch.float64):
            return value
        warnings.warn(
            f"{name} is {value.dtype} and is converted to {own}, the type of the model's data: use {name}.to({own}).",
            InputDataWarning,
            stacklevel=4,
        )
        return value.to(own)

    def transform_inputs(self, X: Tensor, input_transform: InputTransform | None = None) -> Tensor:
        """Return points in the dtype of the data, after the input transform."""
        return super().transform_inputs(self.cast("X", X), input_transform)

    def state_and_points(self, X: Tensor) -> tuple[Posterior, Tensor]:
        """Return ``state``, and the points X [... d] in its inputs."""
        if self.training:
            self.eval()
        return self.state, self.transform_inputs(X)

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> BotorchPosterior:
        """Return the joint posterior at X [b q d], of shape ``broadcast(b, batch_shape) x q x 1``.

        Args:
            X: Points, [... q d].
            output_indices: None or [0]; there is one output.
            observation_noise: True adds the ridge to the variance, or the mean of known variances; a tensor [... q 1]
                adds itself.
            posterior_transform: Applied last.

        Raises:
            InvalidInput: X has another shape or device than the data.
        """
        if len(shape := tuple(checks.tensor("X", X).shape)) < 2:
            raise InvalidInput(
                f"X must be a tensor of shape [... q d], got {shape}: use X.unsqueeze(0) for one point."
            )
        if output_indices is not None and (
            not isinstance(output_indices, list) or output_indices != [0]
        ):
            raise InvalidInput(
                f"output_indices must be [0], of one output, got {checks.shown(output_indices)}."
            )
        if not isinstance(observation_noise, bool | Tensor):
            raise InvalidInput(
                "observation_noise must be True, False or a tensor of variances [... q 1], got "
                f"{checks.shown(observation_noise)}: use torch.full((q, 1), variance)."
            )
        checks.batch_shape(X=X.shape[:-2], **{"the model": self.batch_shape})
        checks.maybe(
            checks.instance, "posterior_transform", posterior_transform, PosteriorTransform
        )
        distribution = self._distribution(*self.state_and_points(X))
        if observation_noise is not False:
            noise = observation_noise
            if noise is True:
                noise = self.likelihood.noise.detach().mean(-1, keepdim=True)
            else:
                noise = checks.points("observation_noise", noise).squeeze(-1)
            mean = distribution.mean
            diagonal, shape = (
                torch.as_tensor(noise, dtype=mean.dtype, device=mean.device),
                mean.shape,
            )
            if diagonal.ndim and diagonal.shape[-1] not in (1, shape[-1]):
                raise InvalidInput(
                    f"observation_noise must have shape [... {shape[-1]} 1], got {[*diagonal.shape, 1]}."
                )
            diagonal = diagonal.expand(shape)
            distribution = MultivariateNormal(
                distribution.mean, distribution.lazy_covariance_matrix.add_diagonal(diagonal)
            )
        posterior: BotorchPosterior = GPyTorchPosterior(distribution)
        if (transform := getattr(self, "outcome_transform", None)) is not None:
            posterior = transform.untransform_posterior(posterior, X=X)
        return (
            posterior
            if posterior_transform is None
            else posterior_transform(posterior=posterior, X=X)
        )

    def _distribution(self, state: Posterior, X: Tensor) -> MultivariateNormal:
        if X.shape[-2] == 1:
            mean, variance = state.predict(X)
            covariance = to_linear_operator(variance.unsqueeze(-1))
        else:
            mean, U, V = state.at().factored(X)
            if X.shape[-2] > _MOST_DENSE:
                covariance = self.covar_module(X) + MatmulLinearOperator(-U.mT, V)
            else:
                covariance = to_linear_operator(state.prior(X, X) - U.mT @ V)
        return MultivariateNormal(mean, covariance.expand(*mean.shape, mean.shape[-1]))

    def observed_at(self, X: Tensor) -> Tensor:
        """Return points of observations, transformed as training points are: none becomes several."""
        X, transform = self.cast("X", X), getattr(self, "input_transform", None)
        return X if transform is None else transform.preprocess_transform(X)

    def condition_on_observations(
        self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any
    ) -> PosteriorModel:
        """Return a model that has also observed Y [... q 1] at X [... q d], differentiable in both.

        The batch shapes of X, Y and this model broadcast: points without a batch are shared by all fantasies.

        Args:
            X: Points.
            Y: Targets.
            noise: Known noise variances [... q 1], in units of the transformed targets; by default the ridge.
            **kwargs: Ignored.

        Raises:
            InvalidInput: Shapes or devices do not fit, or values are not finite, or variances not positive.
        """
        P = checks.points("X", self.observed_at(X), self.train_targets)
        Y = checks.points("Y", self.cast("Y", Y), self.train_targets)
        if Y.ndim < 2 or Y.shape[-1] != 1 or Y.shape[-2] != X.shape[-2]:
            raise InvalidInput(
                f"Y must have shape [... {X.shape[-2]} 1], one value for each row of X, got {tuple(Y.shape)}."
            )
        checks.batch_shape(X=X.shape[:-2], Y=Y.shape[:-2], **{"the model": self.batch_shape})
        if hasattr(self, "outcome_transform"):
            Y, _ = self.outcome_transform(Y=Y, X=X)
        weights = None
        if noise is not None:  # which has the axes of Y, but for those of fantasies
            noise = self.cast("noise", noise)
            weights = self.state.ridge / checks.variances(
                "noise", noise, Y[(0,) * (Y.ndim - noise.ndim)]
            ).squeeze(-1)
        return FantasyGP(self, P, Y.squeeze(-1), weights)

    def get_fantasy_model(
        self, inputs: Tensor, targets: Tensor, noise: Tensor | None = None, **kwargs: Any
    ) -> PosteriorModel:
        """As ``condition_on_observations``, of targets [... q]: BoTorch's ``ModelListGP`` calls it.

        Raises:
            InvalidInput: The model has transforms, which ``ModelListGP`` does not apply to the points.
        """
        if hasattr(self, "input_transform") or hasattr(self, "outcome_transform"):
            raise InvalidInput(
                "ModelListGP.condition_on_observations does not transform its data as models with transforms need: "
                "condition each of its models, and make a new ModelListGP of them."
            )
        noise = None if noise is None else noise.unsqueeze(-1)
        return self.condition_on_observations(inputs, targets.unsqueeze(-1), noise, **kwargs)

    def subset_output(self, idcs: list[int]) -> PosteriorModel:
        """Return this model, which has one output."""
        if not isinstance(idcs, list) or idcs != [0]:
            raise InvalidInput(
                f"idcs must be [0], since the model has one output, got {checks.shown(idcs)}."
            )
        return self


class FantasyGP(PosteriorModel):
    """``model`` after hypothetical observations; batched and differentiable in them.

    Args:
        model: The model of the observed data.
        P: Hypothetical points in the model's transformed inputs, [... p d].
        targets: Their targets in the model's transformed units, [... p], with any leading fantasy axes.
        weights: Their weights [... p], the ridge over their noise variances; ones by default. The batch shapes of
            these three and of the model broadcast.
    """

    def __init__(
        self, model: PosteriorModel, P: Tensor, targets: Tensor, weights: Tensor | None = None
    ) -> None:
        super().__init__()
        state = checks.instance("model", model, PosteriorModel).state
        self._hypothetical: Posterior = Hypothetical(state, P, targets, weights)
        checks.tensor("targets", targets)
        if (old := model.variances) is not None:
            new = state.ridge / (P.new_ones(P.shape[:-1]) if weights is None else weights)
            batch = torch.broadcast_shapes(old.shape[:-1], new.shape[:-1])
            self._variances = torch.cat([part.expand(*batch, -1) for part in (old, new)], -1)
        self.train_inputs: tuple[Tensor, ...] = (P.clone(),)
        self.train_targets: Tensor = targets.clone()
        self.covar_module: Kernel = model.covar_module
        if hasattr(model, "input_transform"):
            self.input_transform: InputTransform = model.input_transform
            self._has_transformed_inputs = True
        if hasattr(model, "outcome_transform"):
            self.outcome_transform: OutcomeTransform = model.outcome_transform
        self.eval()

    @property
    def state(self) -> Posterior:
        """The posterior of the observed and the hypothetical data."""
        return self._hypothetical

    @property
    def batch_shape(self) -> torch.Size:
        """Fantasies times batches, to which the batch shapes of all hypothetical data broadcast."""
        return self._hypothetical.batch_shape
