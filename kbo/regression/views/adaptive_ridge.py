"""A posterior whose ridge follows the data, for noise of unknown level.

The ridge depends only on the observations and their order. Each move costs one factorisation, so a
schedule should move it seldom, for example over a grid.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from kbo._base import checks
from kbo._base.stateful import delegated_to
from kbo.errors import InvalidInput
from kbo.regression.posterior import Posterior, Provenance, RidgeSchedule
from kbo.regression.views.view import View


class AdaptiveRidge(View):
    """A posterior whose ridge follows the data, for noise of unknown level.

    It is the posterior ``state`` at the ridge that a schedule, such as ``NoiseBounds``, chooses
    after every observation.

    Args:
        state: The posterior without data. The schedule replaces its ridge. Add data through this
            view only.
        schedule: The rule that moves the ridge, for example ``kbo.confidence.NoiseBounds``; it is
            copied.

    Raises:
        InvalidInput: The state or the schedule has data already, or is of another kind.

    Example:
        >>> bounds = NoiseBounds(norm_bound=5.0, delta=0.1, upper=1.0)
        >>> state = AdaptiveRidge(KernelRidge(kernel, bounds.ridge), bounds)
        >>> state.update(X, y)
        >>> state.schedule.upper, state.ridge
    """

    def __init__(self, state: Posterior, schedule: RidgeSchedule) -> None:
        super().__init__(state)
        checks.instance("schedule", schedule, RidgeSchedule, ": take for example NoiseBounds(...)")
        if schedule.n:
            raise InvalidInput(
                f"schedule has seen {schedule.n} observations already: pass a new one."
            )
        if state.n:
            raise InvalidInput(
                f"state has {state.n} observations already: begin with an empty one and update it "
                "here."
            )
        self._schedule = schedule.fork()
        state.move_ridge(self._schedule.ridge)

    def __repr__(self) -> str:
        return f"AdaptiveRidge({self.state!r}, {self._schedule!r})"

    version: int = delegated_to("state.version")  # which moves with the ridge
    columns: Any = delegated_to("state.columns")
    fork_frozen: Any = delegated_to("state.fork_frozen")  # whose ridge stays
    across: Any = delegated_to("state.across")

    @property
    def schedule(self) -> RidgeSchedule:
        """The rule that moves the ridge, after the data so far."""
        return self._schedule

    @property
    def provenance(self) -> Provenance:
        """The provenance of the state; its ridge may move at any time."""
        return replace(self.state.provenance, ridge_moved=True)

    def update(self, X: Tensor, y: Tensor, weights: Tensor | None = None) -> None:
        """Add observations X [r d], y [r] in place, one after the other; the ridge follows each."""
        if len(checks.shaped("X", X)) == 1:
            self._update_one(X, y, weights)
            return
        # Check all rows before the first is added. The prior variance fails for points that the
        # kernel cannot evaluate.
        self.state.check(X)
        self.state.check_data(X, y, weights)
        if len(X):
            self.state.prior_variance(X)
        for i in range(len(X)):
            row = slice(i, i + 1)
            self._update_one(X[row], y[row], None if weights is None else weights[row])

    def _update_one(self, x: Tensor, y: Tensor, weights: Tensor | None) -> None:
        """Add one observation, and move the ridge if the schedule does."""
        self.state.update(x, y, weights)
        self._schedule.update(self.state)
        name = f"the ridge of the {type(self._schedule).__name__}"
        ridge = checks.positive(name, self._schedule.ridge)
        if ridge != self.state.ridge:
            self.state.move_ridge(ridge)

    def move_ridge(self, ridge: float) -> None:
        """Raise InvalidInput: only the schedule moves the ridge, as bounds assume."""
        raise InvalidInput(
            "the ridge of an AdaptiveRidge is moved by its schedule alone: use the posterior "
            "itself."
        )
