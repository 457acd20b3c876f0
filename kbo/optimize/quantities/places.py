"""The points of trials in the unit cube, and their features."""

from __future__ import annotations

import torch
from torch import Tensor

from kbo._base.linalg import GrowingTensor
from kbo.optimize.run.trials import Trial, Trials
from kbo.space import Space


class Places:
    """The points and the features of the trials of a run, each computed once, on the CPU.

    After a change of the space, a trial outside of the new ranges has features, but no point. A trial without a place
    in the space has neither.

    Args:
        trials: The trials of a run; more may begin later.
        space: Their space.
    """

    def __init__(self, trials: Trials, space: Space) -> None:
        self._trials = trials
        self._space = space.on(torch.device("cpu"))
        # NaN where there is none.
        self._units = GrowingTensor(torch.empty(0, space.dimension, dtype=torch.float64))
        self._features = GrowingTensor(torch.empty(0, space.columns, dtype=torch.float64))

    def units(self, trials: list[Trial]) -> Tensor:
        """Return the points [n P] of the unit cube of the trials that have one."""
        self._add_new()
        units = self._units.value[[trial.number for trial in trials]]
        if self._space.changed:
            return units[~units.isnan().any(-1)]
        return units

    def features(self, trials: list[Trial]) -> Tensor:
        """Return the features [n D] of trials; they are NaN for trials without a place in the space."""
        self._add_new()
        return self._features.value[[trial.number for trial in trials]]

    def _add_new(self) -> None:
        """Compute points and features of the trials that began after the last call."""
        new = self._trials.all[self._units.n :]
        if not new:
            return
        space = self._space
        if not space.changed:
            units = space.units([trial.params for trial in new])
            self._units.append(units)
            self._features.append(space.features(units))
            return
        for trial in new:
            unit = torch.full((1, space.dimension), torch.nan, dtype=torch.float64)
            features = torch.full((1, space.columns), torch.nan, dtype=torch.float64)
            if space.contains(trial.params):
                unit = space.units([trial.params])
                features = space.features(unit)
            else:
                place = space.place(trial.params)
                if place is not None:
                    features = place.unsqueeze(0)
            self._units.append(unit)
            self._features.append(features)
