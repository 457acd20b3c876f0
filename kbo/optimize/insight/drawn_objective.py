"""Draws of the objective over a space, and where the constraints are probably kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from kbo.optimize.constraints.feasibility import ConstraintSurrogate, probably_feasible
from kbo.optimize.surrogates.functions import Functions
from kbo.space import Space


@dataclass(frozen=True)
class DrawnObjective:
    """Draws of the objective from the model, larger values better, and the constraints.

    Attributes:
        space: The search space.
        functions: The s draws, as functions of features.
        constraints: The constraints with their surrogates.
    """

    space: Space
    functions: Functions
    constraints: Sequence[ConstraintSurrogate]

    def values(self, units: Tensor) -> Tensor:
        """Return the values [s n] of the draws at points [n P] of the unit cube, on the CPU."""
        return self.functions(self.space.features(units)).cpu()

    def targets(self, units: Tensor) -> Tensor:
        """Return the targets [s n] of the draws at points [n P], which have the same order as the values."""
        return self.functions.targets(self.space.features(units)).cpu()

    def targets_of_each(self, units: Tensor) -> Tensor:
        """Return the targets [s n] of each draw at its own points [s n P]."""
        s, n, P = units.shape
        features = self.space.features(units.reshape(s * n, P)).reshape(s, n, -1)
        return self.functions.targets(features).cpu()

    def is_feasible(self, units: Tensor) -> Tensor:
        """Return whether points [n P] keep each constraint with a probability of at least 1/2, [n]."""
        return probably_feasible(self.space, self.constraints, units)
