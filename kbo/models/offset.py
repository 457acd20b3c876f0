"""A constant prior mean, as an outcome transform."""

from __future__ import annotations

from typing import Any

from botorch.models.transforms.outcome import OutcomeTransform
from botorch.posteriors.gpytorch import GPyTorchPosterior, scalarize_posterior
from torch import Tensor


class Offset(OutcomeTransform):
    """Subtract a constant from the targets, and add it to the posterior.

    Args:
        offset: The constant [], in units of the targets that it is subtracted from.
    """

    def __init__(self, offset: Tensor) -> None:
        super().__init__()
        self.offset: Tensor
        self.register_buffer("offset", offset)

    def forward(
        self, Y: Tensor, Yvar: Tensor | None = None, X: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return targets [... 1] less the constant, and their variances as they are."""
        return Y - self.offset, Yvar

    def untransform(
        self, Y: Tensor, Yvar: Tensor | None = None, X: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the inverse of ``forward``."""
        return Y + self.offset, Yvar

    def untransform_posterior(self, posterior: Any, X: Tensor | None = None) -> GPyTorchPosterior:
        """Return the posterior of the function plus the constant."""
        return scalarize_posterior(posterior, self.offset.new_ones(1), self.offset)  # pyright: ignore
