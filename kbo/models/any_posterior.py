"""The BoTorch model of any posterior."""

from __future__ import annotations

from typing import Any

from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo._base import checks
from kbo.errors import InvalidInput
from kbo.models.streaming import StreamingGP
from kbo.regression import Posterior


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
