"""The learner of the practical setting: when a model is fitted, and whether the values have noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import Tensor

from kbo.optimize.belief import Belief, Learner
from kbo.optimize.model import Fitted, Model
from kbo.optimize.region import Region
from kbo.optimize.targets import Targets, linear

REFIT_GROWTH = 1.3
"""The data grow by this factor between fits, so fits stay rare; waiting for a doubling found clearly worse optima."""

_LARGEST, _OUTSIDE = 1e300, 1e50
"""Size at which values are cut, so that their differences stay finite; and standard deviations from the mean at which a
value asks for a fit at once, since powers of it would overflow."""

_ROUNDING = 1e-9
"""Differences of values at one point, in ranges of all values, that are rounding and no noise."""

B = TypeVar("B", bound=Belief)


class PracticalLearner(Learner, Generic[B]):
    """Observations in the practical setting, stored until a belief is needed: replaying a run costs one fit.

    Args:
        model: Fits the model.
        believe: Returns the belief before the data for what was fitted, and the number of values to which it was.
        noise_std: The noise level in units of the objective; None if it is estimated.
        n_initial: Observations before the first fit; infinite for methods without a bound.
        region: The region of the local search, which follows the observations.
        device: That of the posterior; the model is fitted on the CPU.
    """

    def __init__(
        self,
        model: Model,
        believe: Callable[[Fitted, int], B],
        noise_std: float | None,
        n_initial: float,
        region: Region,
        device: torch.device,
    ) -> None:
        self._model, self._believe, self._noise_std, self._region = model, believe, noise_std, region
        self._device = device
        self._features: list[Tensor] = []
        self._y: list[float] = []
        self._first: dict[tuple[float, ...], tuple[int, float]] = {}  # numbers and values, by features
        self._repetition: tuple[int, int] | None = None
        self._exact: bool | None = None if noise_std is None else noise_std == 0
        # Of the first observations, as many as are needed: a fit depends on no others.
        self._next_fit, self._needed = n_initial, 0
        self._plain, self._fit_exactly = Targets(), False
        self._fitted: tuple[int, Fitted] | None = None  # to so many
        self._belief: B | None = None

    def observe(self, number: int, features: Tensor, y: float) -> None:
        y = min(max(y, -_LARGEST), _LARGEST)
        outside = abs(float(self._plain(torch.tensor(y, dtype=torch.float64)))) > _OUTSIDE
        point = tuple(features.flatten().tolist())
        first, value = self._first.setdefault(point, (number, y))
        if first != number and self._noise_std is None and self._exact is not False:
            exact = abs(y - value) <= _ROUNDING * (max(self._y) - min(self._y))
            if exact is not self._exact:
                self._exact, self._repetition = exact, (first, number)
        self._region.observe(features, y)
        self._features.append(features)
        self._y.append(y)
        if len(self._y) >= self._next_fit or (outside and self._needed):
            self._needed = len(self._y)
            self._next_fit = math.ceil(REFIT_GROWTH * self._needed)
            self._fit_exactly = bool(self._exact)
            self._plain = linear(torch.tensor(self._y, dtype=torch.float64))

    def belief(self) -> B | None:
        """Fit if the data have grown enough, update the posterior, and return the belief.

        An interrupted fit or update is done again from the start.
        """
        n = self._needed
        if n == 0:
            return None
        if self._fitted is None or self._fitted[0] != n:
            X, y = torch.cat(self._features[:n]), torch.tensor(self._y[:n], dtype=torch.float64)
            noise_std = 0.0 if self._fit_exactly else self._noise_std
            self._fitted, self._belief = (n, self._model(X, y, noise_std)), None
        belief, self._belief = self._belief, None  # stored again when it is complete
        if belief is None:
            belief = self._believe(self._fitted[1], n)
            self._add(belief, 0, n)
        while belief.posterior.n < len(self._y):
            self._add(belief, belief.posterior.n, belief.posterior.n + 1)
        belief.exact, belief.repetition, self._belief = self._exact, self._repetition, belief
        return belief

    def _add(self, belief: B, start: int, stop: int) -> None:
        """Add some observations."""
        X = torch.cat(self._features[start:stop])
        targets = belief.targets(torch.tensor(self._y[start:stop], dtype=torch.float64))
        belief.posterior.update(X.to(self._device), targets.to(self._device))
