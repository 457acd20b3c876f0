"""``PosteriorGP``: any posterior as a BoTorch model."""

from __future__ import annotations

from typing import Any

from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo.errors import InvalidInput
from kbo.models.streaming import StreamingGP
from kbo.regression import Posterior


class PriorKernel(Kernel):
    """The prior of a posterior, which is never updated, as a GPyTorch kernel."""

    def __init__(self, posterior: Posterior) -> None:
        super().__init__()
        self.posterior = posterior

    def __deepcopy__(self, memo: dict[int, Any]) -> PriorKernel:
        return self

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Prior covariance [... a b] of x1 [... a d] and x2 [... b d]."""
        return self.posterior.prior_variance(x1) if diag else self.posterior.prior(x1, x2)


class PosteriorGP(StreamingGP):
    """A BoTorch model of any posterior, ready for ``optimize_acqf``.

    Args:
        train_X, train_Y, input_transform, outcome_transform: As for ``KernelRidgeGP``.
        posterior: The posterior without data, in (transformed) units; a copy follows the data.

    Raises:
        InvalidInput: As ``KernelRidgeGP``; or the posterior has data.

    Example:
        >>> model = PosteriorGP(train_X, train_Y, KernelRidge(MaternKernel(nu=2.5), ridge=0.01))
    """

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        posterior: Posterior,
        input_transform: InputTransform | None = None,
        outcome_transform: OutcomeTransform | None = None,
    ) -> None:
        if posterior.n:
            raise InvalidInput(f"posterior has {posterior.n} observations already: pass an empty one, and the data.")
        self._empty = posterior.fork()
        super().__init__(
            train_X, train_Y, PriorKernel(self._empty), posterior.ridge, input_transform, outcome_transform
        )

    def _new_state(self) -> Posterior:
        state = self._empty.fork()
        if float(self.ridge) != state.ridge:  # it was changed by hand
            state.move_ridge(float(self.ridge))
        return state
