"""The BoTorch model of a posterior, its fantasies, and its drawn functions as BoTorch's paths."""

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
from botorch.sampling.pathwise.paths import SamplePath
from botorch.sampling.pathwise.posterior_samplers import DrawMatheronPaths
from botorch.sampling.pathwise.prior_samplers import draw_kernel_feature_paths
from botorch.sampling.pathwise.update_strategies import gaussian_update
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

_MOST_DENSE = 64
"""Largest number of points whose joint covariance is a dense matrix; for more it is kept as factors."""


class PosteriorModel(GPyTorchModel, GP, FantasizeMixin):
    """The base of the BoTorch models of kbo, with one output, whose posterior is ``state``.

    Bounds read ``state`` directly, because BoTorch's posterior raises variances to 1e-10.
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
        """The posterior in the units of the (transformed) inputs and targets."""

    @property
    def train_Yvar(self) -> Tensor | None:
        """Known noise variances [... n], in squared units of the (transformed) targets; or None."""
        return self._variances

    @train_Yvar.setter
    def train_Yvar(self, value: Any) -> None:
        raise InvalidInput(
            "the noise variances of a model stay as they are: make a new model with another "
            "train_Yvar."
        )

    @property
    def likelihood(self) -> RidgeLikelihood | KnownLikelihood:
        """Gaussian noise, with the known variances or the ridge of the state as variance."""
        if self.train_Yvar is not None:
            return KnownLikelihood(self.train_Yvar)
        reason = f"the ridge of a {type(self).__name__} follows from its data"
        value = self.train_targets.new_tensor(self.state.ridge)
        ridge = torch.nn.Parameter(value, requires_grad=False)
        return RidgeLikelihood(ridge, self.train_targets, reason)

    def forward(self, X: Tensor) -> MultivariateNormal:
        """Return the prior at X [... q d], for fits and leave-one-out formulas.

        Raises:
            InvalidInput: Prior and likelihood do not give the posterior of the model.
        """
        raise InvalidInput(
            f"{type(self).__name__} cannot be fitted and has no leave-one-out formula: take a "
            "KernelRidgeGP, for which both are possible; a kernel that was fitted elsewhere can be "
            "passed on."
        )

    def __call__(self, X: Tensor) -> MultivariateNormal:
        """Return the prior in training mode, else the posterior at transformed X [... q d]."""
        if not self.training:
            return self._distribution(self.state, self.cast("X", X))
        if not X.shape[-2]:
            raise InvalidInput(
                f"{type(self).__name__} has no data, which a fit needs: fit it when it has some."
            )
        prior: Any = super().__call__(X)
        return prior

    # Points

    def cast(self, name: str, value: Tensor) -> Tensor:
        """Return a float tensor in the dtype of the data; warn as BoTorch does if it had another."""
        dtype = self.train_targets.dtype
        checks.device(name, checks.tensor(name, value), self.train_targets)
        if value.dtype == dtype or value.dtype not in (torch.float32, torch.float64):
            return value
        warnings.warn(
            f"{name} is {value.dtype} and is converted to {dtype}, the type of the model's data: "
            f"use {name}.to({dtype}).",
            InputDataWarning,
            stacklevel=4,
        )
        return value.to(dtype)

    def transform_inputs(self, X: Tensor, input_transform: InputTransform | None = None) -> Tensor:
        """Return points in the dtype of the data, after the input transform."""
        return super().transform_inputs(self.cast("X", X), input_transform)

    def state_and_points(self, X: Tensor) -> tuple[Posterior, Tensor]:
        """Return ``state``, and the points X [... d] after the input transform."""
        if self.training:
            self.eval()
        return self.state, self.transform_inputs(X)

    def observed_at(self, X: Tensor) -> Tensor:
        """Return points of observations [... d], transformed like training points: one stays one."""
        X = self.cast("X", X)
        if not hasattr(self, "input_transform"):
            return X
        return self.input_transform.preprocess_transform(X)

    # Posteriors

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> BotorchPosterior:
        """Return the joint posterior at X, of shape ``broadcast(b, batch_shape) x q x 1``.

        Args:
            X: Points [b q d].
            output_indices: None or [0]; there is one output.
            observation_noise: True adds the ridge, or the mean of known noise variances, to the
                variance. A tensor [... q 1] is added itself.
            posterior_transform: Applied last.

        Raises:
            InvalidInput: X has another shape or device than the data.
        """
        self._check_query(X, output_indices, observation_noise, posterior_transform)
        distribution = self._distribution(*self.state_and_points(X))
        if observation_noise is not False:
            distribution = self._with_noise(distribution, observation_noise)
        posterior: BotorchPosterior = GPyTorchPosterior(distribution)
        if hasattr(self, "outcome_transform"):
            posterior = self.outcome_transform.untransform_posterior(posterior, X=X)
        if posterior_transform is not None:
            posterior = posterior_transform(posterior=posterior, X=X)
        return posterior

    def _check_query(
        self, X: Tensor, output_indices: Any, observation_noise: Any, posterior_transform: Any
    ) -> None:
        """Raise InvalidInput unless the arguments fit ``posterior``."""
        shape = tuple(checks.tensor("X", X).shape)
        if len(shape) < 2:
            raise InvalidInput(
                f"X must be a tensor of shape [... q d], got {shape}: use X.unsqueeze(0) for one "
                "point."
            )
        is_the_output = isinstance(output_indices, list) and output_indices == [0]
        if output_indices is not None and not is_the_output:
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

    def _distribution(self, state: Posterior, X: Tensor) -> MultivariateNormal:
        """Return the joint distribution of the function at transformed points X [... q d]."""
        if X.shape[-2] == 1:
            mean, variance = state.predict(X)
            covariance = to_linear_operator(variance.unsqueeze(-1))
        else:
            mean, U, V = state.at().factored(X)  # covariance = prior - U'V
            if X.shape[-2] > _MOST_DENSE:
                covariance = self.covar_module(X) + MatmulLinearOperator(-U.mT, V)
            else:
                covariance = to_linear_operator(state.prior(X, X) - U.mT @ V)
        return MultivariateNormal(mean, covariance.expand(*mean.shape, mean.shape[-1]))

    def _with_noise(
        self, distribution: MultivariateNormal, noise: bool | Tensor
    ) -> MultivariateNormal:
        """Return the distribution of observations: noise variances [... q 1], or True for the model's."""
        mean = distribution.mean
        if isinstance(noise, Tensor):
            variances = checks.points("observation_noise", noise).squeeze(-1)
        else:
            variances = self.likelihood.noise.detach().mean(-1, keepdim=True)
        variances = variances.to(mean)
        if variances.ndim and variances.shape[-1] not in (1, mean.shape[-1]):
            raise InvalidInput(
                f"observation_noise must have shape [... {mean.shape[-1]} 1], got "
                f"{[*variances.shape, 1]}."
            )
        covariance = distribution.lazy_covariance_matrix
        return MultivariateNormal(mean, covariance.add_diagonal(variances.expand(mean.shape)))

    # More data

    def condition_on_observations(
        self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any
    ) -> PosteriorModel:
        """Return a model that has also observed Y at X, differentiable in both.

        The batch shapes of X, Y and this model broadcast, so all fantasies share points without a
        batch.

        Args:
            X: Points [... q d].
            Y: Targets [... q 1].
            noise: Known noise variances [... q 1], in squared units of the transformed targets; by
                default the ridge.
            **kwargs: Ignored.

        Raises:
            InvalidInput: Shapes or devices do not fit, a value is not finite, or a variance is not
                positive.
        """
        P, targets, variances = self._transformed_observations(X, Y, noise)
        weights = None
        if variances is not None:
            weights = self.state.ridge / variances
        return FantasyGP(self, P, targets, weights)

    def _transformed_observations(
        self, X: Tensor, Y: Tensor, noise: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return points [... q d], targets [... q] and noise variances [... q] after the transforms.

        Arguments and errors are those of ``condition_on_observations``; the variances may be None.
        """
        P = checks.points("X", self.observed_at(X), self.train_targets)
        Y = checks.points("Y", self.cast("Y", Y), self.train_targets)
        if Y.ndim < 2 or Y.shape[-1] != 1 or Y.shape[-2] != X.shape[-2]:
            raise InvalidInput(
                f"Y must have shape [... {X.shape[-2]} 1], one value for each row of X, got "
                f"{tuple(Y.shape)}: for values y [... {X.shape[-2]}] use y.unsqueeze(-1)."
            )
        checks.batch_shape(X=X.shape[:-2], Y=Y.shape[:-2], **{"the model": self.batch_shape})
        if hasattr(self, "outcome_transform"):
            Y, _ = self.outcome_transform(Y=Y, X=X)
        variances = None
        if noise is not None:
            noise = self.cast("noise", noise)
            one_fantasy = Y[(0,) * (Y.ndim - noise.ndim)]  # the noise has no axes of fantasies
            variances = checks.variances("noise", noise, one_fantasy).detach().squeeze(-1)
        return P, Y.squeeze(-1), variances

    def get_fantasy_model(
        self, inputs: Tensor, targets: Tensor, noise: Tensor | None = None, **kwargs: Any
    ) -> PosteriorModel:
        """Return ``condition_on_observations`` for targets [... q]; BoTorch's ``ModelListGP`` calls it.

        Raises:
            InvalidInput: The model has transforms, which ``ModelListGP`` does not apply to points.
        """
        if hasattr(self, "input_transform") or hasattr(self, "outcome_transform"):
            raise InvalidInput(
                "ModelListGP.condition_on_observations does not transform its data as models with "
                "transforms need: condition each of its models, and make a new ModelListGP of them."
            )
        if noise is not None:
            noise = noise.unsqueeze(-1)
        return self.condition_on_observations(inputs, targets.unsqueeze(-1), noise, **kwargs)

    def subset_output(self, idcs: list[int]) -> PosteriorModel:
        """Return this model, which has one output."""
        if not isinstance(idcs, list) or idcs != [0]:
            raise InvalidInput(
                f"idcs must be [0], since the model has one output, got {checks.shown(idcs)}."
            )
        return self


class FantasyGP(PosteriorModel):
    """A model after hypothetical observations, as ``condition_on_observations`` returns it.

    It is differentiable in them. The batch shapes of the model, P, targets and weights broadcast.

    Args:
        model: The model of the observed data.
        P: Hypothetical points after the input transform, [... p d].
        targets: Their targets after the outcome transform, [... p]; there may be fantasy axes in
            front.
        weights: Their weights [... p], the ridge divided by their noise variances; ones by default.
    """

    def __init__(
        self, model: PosteriorModel, P: Tensor, targets: Tensor, weights: Tensor | None = None
    ) -> None:
        super().__init__()
        observed = checks.instance("model", model, PosteriorModel).state
        self._hypothetical: Posterior = Hypothetical(observed, P, targets, weights)
        checks.tensor("targets", targets)
        variances = model.train_Yvar
        if variances is not None:
            ones = P.new_ones(P.shape[:-1])
            new = observed.ridge / (ones if weights is None else weights)
            batch = torch.broadcast_shapes(variances.shape[:-1], new.shape[:-1])
            self._variances = torch.cat([variances.expand(*batch, -1), new.expand(*batch, -1)], -1)
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
        """The broadcast batch shape of all hypothetical data: fantasies x batches."""
        return self._hypothetical.batch_shape


class FunctionPaths(SamplePath):
    """Functions drawn from the posterior of a model as it is now, with torch's global generator.

    Args:
        model: The model.
        sample_shape: The number of functions, as a shape s.
    """

    def __init__(self, model: PosteriorModel, sample_shape: torch.Size) -> None:
        super().__init__()
        model.eval()
        self._model = [model]  # in a list, so that PyTorch does not register it as a submodule
        self._state = model.state.fork()
        self._shape = torch.Size(sample_shape)
        like = model.train_inputs[0]
        self._paths = [self._state.at().draw_function(like) for _ in range(self._shape.numel())]

    def forward(self, X: Tensor, **kwargs: Any) -> Tensor:
        """Return the values [b n] at X [... n d], in units of train_Y; b is ... broadcast with s."""
        model = self._model[0]
        X = model.transform_inputs(X)
        batch = torch.broadcast_shapes(X.shape[:-2], self._shape)
        P = X.expand(*batch, *X.shape[-2:]).reshape(-1, len(self._paths), *X.shape[-2:])
        mean, _ = self._state.predict(P)
        deviations = [path(P[:, i]) for i, path in enumerate(self._paths)]
        values = (mean + torch.stack(deviations, 1)).reshape(*batch, X.shape[-2])
        if not hasattr(model, "outcome_transform"):
            return values
        return model.outcome_transform.untransform(values.unsqueeze(-1))[0].squeeze(-1)

    def set_ensemble_as_batch(self, ensemble_as_batch: bool) -> None:
        """Do nothing: there is no ensemble."""


@DrawMatheronPaths.register(PosteriorModel)
def _draw_paths(
    model: PosteriorModel, *, sample_shape: torch.Size, prior_sampler: Any, update_strategy: Any
) -> FunctionPaths:
    """Return paths for BoTorch's ``draw_matheron_paths``, ``PathwiseThompsonSampling`` and others."""
    if prior_sampler is not draw_kernel_feature_paths or update_strategy is not gaussian_update:
        raise InvalidInput(
            "models of kbo draw functions in their own way: leave out prior_sampler and "
            "update_strategy."
        )
    return FunctionPaths(model, sample_shape)
