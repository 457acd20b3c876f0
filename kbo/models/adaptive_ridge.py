"""The BoTorch model of a posterior whose ridge follows online bounds of the noise level."""

from __future__ import annotations

from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo._base import checks
from kbo.confidence import NoiseLevel
from kbo.errors import InvalidInput
from kbo.models.base import PosteriorModel
from kbo.models.streaming import StreamingGP
from kbo.regression import AdaptiveRidge, Dictionary, KernelRidge, NystromRidge


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
