"""The BoTorch models of any posterior, and of one whose ridge follows bounds of the noise level."""

from __future__ import annotations

from typing import Any

from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo._base import checks
from kbo.confidence import NoiseLevel
from kbo.errors import InvalidInput
from kbo.models.base import PosteriorModel
from kbo.models.streaming import StreamingGP
from kbo.regression import AdaptiveRidge, Dictionary, KernelRidge, NystromRidge, Posterior


class PriorKernel(Kernel):
    """The prior of an empty posterior as a GPyTorch kernel."""

    def __init__(self, posterior: Posterior) -> None:
        super().__init__()
        self.posterior = posterior

    def __deepcopy__(self, memo: dict[int, Any]) -> PriorKernel:
        return self

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return the prior covariance [... a b] of x1 [... a d] and x2 [... b d]."""
        if diag:
            return self.posterior.prior_variance(x1)
        return self.posterior.prior(x1, x2)


class PosteriorGP(StreamingGP):
    """A BoTorch model of any posterior, ready for ``optimize_acqf``.

    Args:
        train_X, train_Y, input_transform, outcome_transform, train_Yvar: As for ``KernelRidgeGP``.
        posterior: The posterior without data, in (transformed) units; it is copied.

    Raises:
        InvalidInput: As ``KernelRidgeGP``; or the posterior has data.

    Example:
        >>> posterior = KernelRidge(MaternKernel(nu=2.5), ridge=0.01)
        >>> model = PosteriorGP(train_X, train_Y, posterior)
    """

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        posterior: Posterior,
        input_transform: InputTransform | None = None,
        outcome_transform: OutcomeTransform | None = None,
        train_Yvar: Tensor | None = None,
    ) -> None:
        if checks.instance("posterior", posterior, Posterior).n:
            raise InvalidInput(
                f"posterior has {posterior.n} observations already: pass an empty one, and the data."
            )
        if train_Yvar is not None and posterior.schedule is not None:
            raise InvalidInput(
                "train_Yvar are known noise variances, but the posterior's schedule follows unknown "
                "ones."
            )
        self._empty = posterior.fork()
        super().__init__(
            train_X,
            train_Y,
            PriorKernel(self._empty),
            posterior.ridge,
            input_transform,
            outcome_transform,
            train_Yvar,
        )

    def empty_state(self) -> Posterior:
        state = self._empty.fork()
        if self.ridge.item() != state.ridge:  # the parameter ``ridge`` was changed
            state.move_ridge(self.ridge.item())
        return state


class AdaptiveRidgeGP(StreamingGP):
    """A Gaussian process for noise of unknown level, which is bounded from the data.

    The kernel is fixed, and ``model.state.schedule`` has the noise bounds. The data enter in the
    order of train_X. Ridge and bounds depend only on the data and their order, so a model that is
    conditioned on new data equals one that is built from all data. Building a model costs n
    updates, conditioning one update.

    Args:
        train_X, train_Y, kernel, input_transform, outcome_transform: As for ``KernelRidgeGP``.
        noise_bounds: Bounds of the noise level before the data, in (transformed) units; they are
            copied.
        dictionary: Chooses the inducing points of a sketched posterior, as in ``NystromGP``; None
            for the exact posterior.

    Raises:
        InvalidInput: As ``KernelRidgeGP``; or the noise bounds have seen data.

    Example:
        >>> noise_bounds = NoiseBounds(5.0, delta=0.1, upper=1.0)
        >>> model = AdaptiveRidgeGP(train_X, train_Y, MaternKernel(nu=2.5), noise_bounds)
        >>> acqf = KernelUCB(model, AdaptiveSelfNormalized())
        >>> x, value = optimize_acqf(acqf, bounds, q=1, num_restarts=4, raw_samples=64)
    """

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        kernel: Kernel,
        noise_bounds: NoiseLevel,
        dictionary: Dictionary | None = None,
        input_transform: InputTransform | None = None,
        outcome_transform: OutcomeTransform | None = None,
    ) -> None:
        checks.instance(
            "noise_bounds", noise_bounds, NoiseLevel, ": take for example NoiseBounds(...)"
        )
        if noise_bounds.n:
            raise InvalidInput(
                f"noise_bounds have seen {noise_bounds.n} observations: pass new ones."
            )
        super().__init__(
            train_X, train_Y, kernel, noise_bounds.ridge, input_transform, outcome_transform
        )
        self.noise_bounds: NoiseLevel = noise_bounds.fork()
        self.dictionary = dictionary
        self.empty_state()  # raises an error now, not later, if the dictionary cannot be used

    likelihood = PosteriorModel.likelihood  # its variance is the ridge, which follows the data

    def empty_state(self) -> AdaptiveRidge:
        ridge = self.noise_bounds.ridge
        if self.dictionary is None:
            state = KernelRidge(self.covar_module, ridge)
        else:
            state = NystromRidge(self.covar_module, ridge, self.transformed(self.dictionary))
        return AdaptiveRidge(state, self.noise_bounds)
