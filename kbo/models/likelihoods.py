"""Gaussian likelihoods of the models, with the ridge or with known noise variances."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from gpytorch.constraints import GreaterThan, Interval
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.likelihoods.noise_models import FixedGaussianNoise, HomoskedasticNoise
from torch import Tensor

from kbo._base import checks
from kbo.errors import InvalidInput

_LEAST_NOISE = 1e-8
"""Smallest noise variance in a fit, in squared units of the (transformed) targets."""


class RidgeNoise(HomoskedasticNoise):
    """Equal noise variances for all observations, given by a parameter [].

    Args:
        ridge: The parameter, the noise variance itself.
        like: Any tensor of the dtype and device of the data.
        fixed: Reason why the noise cannot be set, or None.
    """

    def __init__(self, ridge: torch.nn.Parameter, like: Tensor, fixed: str | None) -> None:
        super().__init__(noise_constraint=GreaterThan(_LEAST_NOISE))
        self.raw_noise = ridge
        self._like: Tensor
        self.register_buffer("_like", like.new_empty(0), persistent=False)
        self._fixed = fixed

    def register_constraint(
        self, param_name: str, constraint: Interval, replace: bool = True
    ) -> None:
        """Register the limits of a constraint without its transform, as the parameter is the variance."""
        initial_value = constraint.initial_value
        if initial_value is not None:
            initial_value = constraint.transform(initial_value)
        lower = constraint.lower_bound.clamp_min(_LEAST_NOISE)
        upper = constraint.upper_bound
        kind: Any = GreaterThan if upper.isinf().all() else partial(Interval, upper_bound=upper)
        limits = kind(lower, transform=None, initial_value=initial_value)
        super().register_constraint(param_name, limits, replace)

    @property
    def noise(self) -> Tensor:
        """The variance [1], in the dtype of the data."""
        return self.raw_noise.view(1).to(self._like)

    @noise.setter
    def noise(self, value: float | Tensor) -> None:
        self._set_noise(value)

    def _set_noise(self, value: float | Tensor) -> None:
        if self._fixed is not None:
            raise InvalidInput(f"the noise of this likelihood cannot be set: {self._fixed}.")
        self.initialize(raw_noise=checks.positive("noise", value))


class RidgeLikelihood(GaussianLikelihood):
    """Gaussian noise whose variance is the ridge.

    Args:
        ridge: The ridge [], a parameter that the model shares, so a fit changes the model.
        like: Any tensor of the dtype and device of the data.
        fixed: Reason why the noise cannot be set, or None.
    """

    def __init__(self, ridge: torch.nn.Parameter, like: Tensor, fixed: str | None = None) -> None:
        super().__init__()
        self.noise_covar: RidgeNoise = RidgeNoise(ridge, like, fixed)
        self.eval()


class KnownNoise(FixedGaussianNoise):
    """Known noise variances [n], which cannot be replaced."""

    def initialize(self, **values: Any) -> Any:
        """Raise InvalidInput: known variances cannot be replaced."""
        raise InvalidInput(
            "the noise of this likelihood is known: make a new model with another train_Yvar."
        )


class KnownLikelihood(FixedNoiseGaussianLikelihood):
    """Gaussian noise of known variances [n], one for each observation."""

    def __init__(self, noise: Tensor) -> None:
        super().__init__(noise)
        self.noise_covar: KnownNoise = KnownNoise(self.noise_covar.noise)

    @property
    def noise(self) -> Any:
        """The variances [n], in squared units of the (transformed) targets."""
        return super().noise

    @noise.setter
    def noise(self, value: float | Tensor) -> None:
        self.noise_covar.initialize(noise=value)
