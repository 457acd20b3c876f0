"""Gaussian likelihoods of kbo's models: the ridge as a noise variance, and known variances."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.constraints import GreaterThan, Interval
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.likelihoods.noise_models import FixedGaussianNoise, HomoskedasticNoise
from torch import Tensor

from kbo._base import checks
from kbo.errors import InvalidInput

_LEAST_NOISE = 1e-8  # of a fit, in units of the (transformed) targets


class _RidgeNoise(HomoskedasticNoise):
    """Equal variances, given by a parameter [], in the dtype of the data; ``fixed`` says why they cannot be set."""

    def __init__(self, ridge: torch.nn.Parameter, like: Tensor, fixed: str | None) -> None:
        super().__init__(noise_constraint=GreaterThan(_LEAST_NOISE))
        self.raw_noise = ridge
        self._like: Tensor
        self.register_buffer("_like", like.new_empty(0), persistent=False)
        self._fixed = fixed

    def register_constraint(
        self, param_name: str, constraint: Interval, replace: bool = True
    ) -> None:
        """Register the limits of a constraint without its transform, since the parameter is the variance itself."""
        first = constraint.initial_value
        given: Any = {
            "transform": None,
            "initial_value": first if first is None else constraint.transform(first),
        }
        lower, upper = constraint.lower_bound.clamp_min(_LEAST_NOISE), constraint.upper_bound
        limits = (
            GreaterThan(lower, **given) if upper.isinf().all() else Interval(lower, upper, **given)
        )
        super().register_constraint(param_name, limits, replace)

    @property
    def noise(self) -> Tensor:
        """The variance [1]."""
        return self.raw_noise.view(1).to(self._like)

    @noise.setter
    def noise(self, value: float | Tensor) -> None:
        self._set_noise(value)

    def _set_noise(self, value: float | Tensor) -> None:
        if self._fixed is not None:
            raise InvalidInput(f"the noise of this likelihood cannot be set: {self._fixed}.")
        self.initialize(raw_noise=checks.positive("noise", value))


class RidgeLikelihood(GaussianLikelihood):
    """Gaussian noise whose variance is the ridge: the GP reading of kernel ridge regression.

    Args:
        ridge: The ridge []. It is the parameter of the model itself: a new value, also one from a fit, is the model's.
        like: Any tensor in the dtype of the data.
        fixed: Reason why the noise cannot be set, in words, or None.
    """

    def __init__(self, ridge: torch.nn.Parameter, like: Tensor, fixed: str | None = None) -> None:
        super().__init__()
        self.noise_covar: _RidgeNoise = _RidgeNoise(ridge, like, fixed)
        self.eval()


class _KnownNoise(FixedGaussianNoise):
    """Known variances [n], which ``initialize`` does not replace."""

    def initialize(self, **values: Any) -> Any:
        """Raise InvalidInput."""
        raise InvalidInput(
            "the noise of this likelihood is known: make a new model with another train_Yvar."
        )


class KnownLikelihood(FixedNoiseGaussianLikelihood):
    """Gaussian noise of known variances [n], one for each observation."""

    def __init__(self, noise: Tensor) -> None:
        super().__init__(noise)
        self.noise_covar: _KnownNoise = _KnownNoise(self.noise_covar.noise)

    @property
    def noise(self) -> Any:
        """The variances [n], in squared units of the (transformed) targets."""
        return super().noise

    @noise.setter
    def noise(self, value: float | Tensor) -> None:
        self.noise_covar.initialize(noise=value)
