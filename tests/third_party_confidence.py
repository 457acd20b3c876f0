"""A confidence outside kbo, which docs/extending.md shows and explains."""

from __future__ import annotations

import math

from torch import Tensor

from kbo._base import checks
from kbo.confidence import WidthConfidence
from kbo.regression import Posterior


class PlannedDesign(WidthConfidence):
    """The bound of Vakili et al. (2021) for observations that were planned before any value was known.

    Args:
        noise_std: Sub-Gaussian constant of the noise, in units of the targets.
        norm_bound: Bound of the RKHS norm of the function, in units of the targets over sqrt(kernel).
        delta: Probability that the bounds may fail.
        n_points: Number of points at which the bounds hold together.

    Raises:
        InvalidInput: A number out of its range.
    """

    covers = frozenset({"sketch"})

    def __init__(self, noise_std: float, norm_bound: float, delta: float, n_points: int) -> None:
        self.noise_std = checks.positive("noise_std", noise_std)
        self.norm_bound = checks.positive("norm_bound", norm_bound)
        self.delta = checks.probability("delta", delta)
        self.n_points = int(checks.positive("n_points", n_points))
        self.guarantee = (
            f"holds for all rounds and {n_points} points at once with probability at least "
            f"1 - {delta:g}, if points are planned without looking at values, the noise is "
            f"{noise_std:g}-sub-Gaussian and the function has norm at most {norm_bound:g}"
        )

    def width(self, state: Posterior) -> Tensor:
        """Return the multiplier of the standard deviation, []."""
        n = max(state.n, 1)
        share = 6 * self.delta / (math.pi**2 * n**2 * self.n_points)  # of one point after n rounds
        noise = self.noise_std * math.sqrt(2 * math.log(2 / share) / state.ridge)
        error = self.norm_bound * math.sqrt(state.error.norm() / state.ridge)
        return self.norm_bound + noise + error
