"""BoTorch models with the posterior and the confidence of a method, which Ax constructs from the data alone."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import torch
from ax.core.search_space import SearchSpaceDigest
from ax.generators.torch.botorch_modular.surrogate import submodel_input_constructor
from ax.generators.torch.botorch_modular.utils import ModelConfig, fit_botorch_model
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import Standardize
from botorch.utils.datasets import SupervisedDataset
from torch import Tensor

from kbo.confidence import Confidence
from kbo.errors import InvalidInput
from kbo.integrations.ax.features import features_of, space_of
from kbo.models import StreamingGP
from kbo.optimize import Certified, Practical
from kbo.optimize.belief import Belief
from kbo.optimize.certified import CertifiedBelief
from kbo.optimize.fitting import fit, unit_kernel
from kbo.optimize.practical import Fitted, PracticalBelief
from kbo.space import Space

_LEAST_NOISE = 0.01
"""The least noise level of a fit, in standard deviations of the targets."""


class MethodGP(StreamingGP):
    """A model with the posterior of a method of kbo; its ``belief`` has the confidence too."""

    _belief: Any = None

    @abstractmethod
    def _new_belief(self) -> Any:
        """The belief before the data."""

    def _new_state(self) -> Any:
        self._belief = self._new_belief()
        return self._belief.posterior

    @property
    def belief(self) -> Belief:
        """Posterior, confidence and assumptions after the training data."""
        _ = self.state  # which makes it
        return self._belief

    def confidence(self) -> Confidence:
        """The bound of the method after the training data."""
        confidence = self.belief.confidence()
        assert confidence is not None  # the strategy refuses methods without a bound
        return confidence


class CertifiedGP(MethodGP):
    """The posterior of a method in the certified setting: raw targets, nothing fitted.

    Args:
        train_X: Points [n d].
        train_Y: Targets [n 1], in their own units.
        sem: The largest standard error of the targets, None if no target has one.
        method: A name of ``kbo.recipes.names()``.
        setting: The assumptions.
        space: The search space.
        n_trials: The planned number of trials, for methods that need it.
        input_transform: Makes the features.

    Raises:
        InvalidInput: The kernel does not fit the features, or a standard error contradicts the noise level.
    """

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        sem: float | None,
        method: str,
        setting: Certified,
        space: Space,
        n_trials: int | None = None,
        input_transform: InputTransform | None = None,
    ) -> None:
        most = setting.noise_std if setting.noise_std is not None else setting.noise_upper
        if sem is not None and most is not None and sem > most * (1 + 1e-9):
            raise InvalidInput(
                f"an observation has a standard error of {sem:g}, but the noise level is given as at most {most:g}: no "
                "bound would hold. Give a noise level that is at least the largest standard error."
            )
        self._setting, self._given = setting, (method, n_trials, space)
        super().__init__(train_X, train_Y, setting.kernel, self._new_belief().posterior.ridge, input_transform)

    def _new_belief(self) -> CertifiedBelief:
        return self._setting.begin(*self._given)


class PracticalGP(MethodGP):
    """The posterior of a method in the practical setting: kernel, noise level and constant are fitted.

    A new model has the means of the priors until ``estimate``, which depends on the data alone. Targets are
    standardised; the posterior is in raw units.

    Args:
        train_X: Points [n d].
        train_Y: Targets [n 1], in their own units.
        sem: The largest standard error, if all targets have one: it is then the noise level (but not below a
            hundredth of their standard deviation). None if the noise level is to be fitted.
        method: A name of ``kbo.recipes.names()``.
        setting: The numbers of the practical setting.
        n_trials: The planned number of trials, for methods that need it.
        input_transform: Makes the features.
    """

    outcome_transform: Any
    noise_std: Tensor

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        sem: float | None,
        method: str,
        setting: Practical,
        n_trials: int | None = None,
        input_transform: InputTransform | None = None,
    ) -> None:
        columns = getattr(input_transform, "columns", train_X.shape[-1])
        self.sem, self._given = sem, (setting, method, n_trials)
        super().__init__(train_X, train_Y, unit_kernel(columns), 1.0, input_transform, Standardize(m=1))
        self.register_buffer("noise_std", torch.tensor(1.0, dtype=torch.float64))

    def estimate(self) -> None:
        """Fit kernel, noise level and constant to the data."""
        X, y, scale = self.train_inputs[0], self.train_targets, self.outcome_transform
        known = None if self.sem is None else max(self.sem / float(scale.stdvs), _LEAST_NOISE)
        fitted = fit(X, y, known)
        self.covar_module.load_state_dict(fitted.kernel.state_dict())
        self.noise_std.fill_(fitted.noise_std)
        scale.means += scale.stdvs * fitted.constant
        self.set_train_data(targets=y - fitted.constant)
        self.ridge.fill_(self._new_state().ridge)

    def _new_belief(self) -> PracticalBelief:
        scale, n = self.outcome_transform, len(self.train_targets)
        units = {"location": float(scale.means), "unit": float(scale.stdvs), "floor": -math.inf}
        fitted = Fitted(self.covar_module, float(self.noise_std), **units, n=n, largest_sem=self.sem)
        return PracticalBelief(*self._given, fitted)


@fit_botorch_model.register(StreamingGP)
def _fit_nothing(model: StreamingGP, *args: Any, **kwargs: Any) -> None:
    """Leave the given kernel and ridge as they are."""


@fit_botorch_model.register(PracticalGP)
def _fit_practical(model: PracticalGP, *args: Any, **kwargs: Any) -> None:
    model.estimate()


@submodel_input_constructor.register(MethodGP)
def _method_inputs(
    botorch_model_class: type[MethodGP],
    model_config: ModelConfig,
    dataset: SupervisedDataset,
    search_space_digest: SearchSpaceDigest,
    surrogate: Any,
) -> dict[str, Any]:
    inputs = {
        "train_X": dataset.X,
        "train_Y": dataset.Y,
        "input_transform": features_of(search_space_digest),
        **model_config.model_options,
    }
    if issubclass(botorch_model_class, CertifiedGP):
        return {**inputs, "sem": _largest(dataset.Yvar), "space": space_of(search_space_digest)}
    known = dataset.Yvar is not None and not bool(dataset.Yvar.isnan().any())
    return {**inputs, "sem": _largest(dataset.Yvar) if known else None}


def _largest(variances: Tensor | None) -> float | None:
    """The largest standard error; None if there are none."""
    if variances is None or bool(variances.isnan().all()):
        return None
    return float(torch.nan_to_num(variances, nan=0.0).max().sqrt())
