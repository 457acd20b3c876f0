"""``AdaptiveRidgeGP``: a BoTorch model whose ridge follows online bounds of the noise level."""

from __future__ import annotations

from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo.confidence import NoiseBounds
from kbo.errors import InvalidInput
from kbo.models.streaming import StreamingGP
from kbo.regression import AdaptiveRidge, Dictionary, KernelRidge, NystromRidge


class AdaptiveRidgeGP(StreamingGP):
    """A Gaussian process with fixed kernel and a noise level that is bounded online.

    ``model.state.schedule`` has the bounds. The data enter in the order of train_X, and ridge and bounds are a function
    of data and order alone: a model that is conditioned on new data equals one that is built from all of them.
    Building costs what n updates cost, conditioning one.

    Args:
        train_X, train_Y, kernel, input_transform, outcome_transform: As for ``KernelRidgeGP``.
        noise_bounds: Bounds of the noise level before the data, in (transformed) units; a copy follows the data.
        dictionary: Chooses the points of a sketched posterior, as in ``NystromGP``; None for the exact one.

    Raises:
        InvalidInput: As ``KernelRidgeGP``; or the noise bounds have seen data.

    Example:
        >>> model = AdaptiveRidgeGP(train_X, train_Y, MaternKernel(nu=2.5), NoiseBounds(5.0, delta=0.1, upper=1.0))
        >>> acqf = KernelUCB(model, AdaptiveSelfNormalized())
        >>> x, value = optimize_acqf(acqf, bounds, q=1, num_restarts=4, raw_samples=64)
    """

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        kernel: Kernel,
        noise_bounds: NoiseBounds,
        dictionary: Dictionary | None = None,
        input_transform: InputTransform | None = None,
        outcome_transform: OutcomeTransform | None = None,
    ) -> None:
        if not isinstance(noise_bounds, NoiseBounds):
            raise InvalidInput(f"noise_bounds must be a kbo.confidence.NoiseBounds, got {type(noise_bounds).__name__}.")
        if noise_bounds.n:
            raise InvalidInput(f"noise_bounds have seen {noise_bounds.n} observations: pass new ones.")
        super().__init__(train_X, train_Y, kernel, noise_bounds.ridge, input_transform, outcome_transform)
        self.noise_bounds, self.dictionary = noise_bounds.fork(), dictionary
        self._new_state()  # a dictionary that cannot be used is an error now, not later

    def _new_state(self) -> AdaptiveRidge:
        kernel, ridge, dictionary = self.covar_module, self.noise_bounds.ridge, self.dictionary
        exact = dictionary is None
        state = KernelRidge(kernel, ridge) if exact else NystromRidge(kernel, ridge, self.transformed(dictionary))
        return AdaptiveRidge(state, self.noise_bounds)
