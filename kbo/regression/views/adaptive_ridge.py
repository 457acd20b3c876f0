"""A posterior whose ridge follows the data.

A ridge that moves seldom, over a grid, has a growing factor: each move costs one factorisation. One that may move at
every observation is answered from an eigenbasis, which serves all ridges (``eigenbasis.py``). Both are functions of the
observations in their order alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kbo import checks
from kbo.errors import InvalidInput
from kbo.regression.exact.state import KernelRidge
from kbo.regression.posterior import Posterior, Ridge, RidgeSchedule, View
from kbo.regression.sketch.state import NystromRidge


class AdaptiveRidge(View):
    """The same posterior as ``state``, at the ridge that a schedule finds after every observation.

    Args:
        state: The posterior without data, a ``KernelRidge`` or a ``NystromRidge``, at any ridge: the schedule replaces
            it. Keep updating it here.
        schedule: What moves the ridge, for example ``kbo.confidence.NoiseBounds``; a copy of it is made.

    Raises:
        InvalidInput: The state has data already, or is of another kind.

    Example:
        >>> bounds = NoiseBounds(norm_bound=5.0, delta=0.1, upper=1.0)
        >>> state = AdaptiveRidge(KernelRidge(kernel, bounds.ridge), bounds)
        >>> state.update(X, y)
        >>> state.schedule.upper, state.ridge

    Attributes:
        base: The posterior; change it through this object only.
    """

    def __init__(self, state: KernelRidge | NystromRidge, schedule: RidgeSchedule) -> None:
        if not isinstance(state, (KernelRidge, NystromRidge)):
            raise InvalidInput(f"state must be a KernelRidge or a NystromRidge, got {type(state).__name__}.")
        if not isinstance(schedule, RidgeSchedule):
            raise InvalidInput(f"schedule must be, for example, a NoiseBounds, got {type(schedule).__name__}.")
        if schedule.n:
            raise InvalidInput(f"schedule has seen {schedule.n} observations already: pass a new one.")
        if state.n:
            raise InvalidInput(f"state has {state.n} observations already: begin with an empty one and update it here.")
        super().__init__(state)
        self.base = state
        self._schedule = schedule.fork()
        self.base.move_ridge(self._schedule.ridge)

    def __repr__(self) -> str:
        return f"AdaptiveRidge({self.base!r}, {self._schedule!r})"

    @property
    def schedule(self) -> Any:
        """What moves the ridge."""
        return self._schedule

    def over(self, view: Posterior) -> AdaptiveRidge:
        """The same posterior, asked through another view of its base; both learn together."""
        other = object.__new__(AdaptiveRidge)
        vars(other).update(vars(self))
        other.state = view
        return other

    def update(self, X: Tensor, y: Tensor) -> None:
        """Add observations X [r d], y [r] in place, one after the other; the ridge follows each.

        Raises:
            InvalidInput: Wrong shape, dtype or device, or values that are not finite; nothing is added.
        """
        checks.observations(X, y)
        self.base.check(X)
        if len(X) == 0:
            return
        self.base.prior_variance(X)  # a kernel that does not know a point is an error before any is added
        for x, target in zip(X.split(1), y.split(1), strict=True):
            self.state.update(x, target)
            self._schedule.update(self.state)
            if self._schedule.ridge != self.ridge:
                self.base.move_ridge(self._schedule.ridge)

    def move_ridge(self, ridge: float) -> None:
        """Raise InvalidInput: the schedule moves the ridge, and bounds on this posterior rest on that."""
        raise InvalidInput("the ridge of an AdaptiveRidge is moved by its schedule alone: use the posterior itself.")

    def _own(self, ridge: Ridge) -> Ridge:
        """A ridge of its own as one of many, if it moves all the time."""
        return [self.ridge] if ridge is None and self._schedule.continuous else ridge

    def predict(self, X: Tensor | None = None, ridge: Ridge = None) -> tuple[Tensor, Tensor]:
        """As the posterior behind, at the ridge of now; X may be omitted if points are tracked."""
        if X is None and self.state is self.base:
            raise InvalidInput("predict needs points X [... d]; only track(state, points) remembers points.")
        asked = self._own(ridge)
        mean, variance = self.state.predict(X, asked)  # pyright: ignore[reportArgumentType]
        return (mean, variance) if asked is ridge else (mean[0], variance[0])

    def covariance(self, X: Tensor, Z: Tensor, ridge: Ridge = None) -> Tensor:  # noqa: D102
        return self._number(self.state.covariance(X, Z, self._own(ridge)), ridge)

    def log_det(self, ridge: Ridge = None) -> Tensor:  # noqa: D102
        return self._number(self.state.log_det(self._own(ridge)), ridge)

    def quad(self, ridge: Ridge = None) -> Tensor:  # noqa: D102
        return self._number(self.state.quad(self._own(ridge)), ridge)

    def rss(self, ridge: Ridge = None) -> Tensor:  # noqa: D102
        return self._number(self.state.rss(self._own(ridge)), ridge)

    def effective_dimension(self, ridge: Ridge = None) -> Tensor:  # noqa: D102
        return self._number(self.state.effective_dimension(self._own(ridge)), ridge)

    def _number(self, value: Tensor, ridge: Ridge) -> Tensor:
        return value if self._own(ridge) is ridge else value[0]

    # Plumbing

    def check(self, X: Tensor) -> None:
        """Raise InvalidInput unless X [... d] is finite and fits the data in dtype, device and columns."""
        self.base.check(X)

    def prior(self, X: Tensor, Z: Tensor) -> Tensor:
        """The kernel ``k(X, Z)`` [... a b] itself."""
        return self.base.prior(X, Z)

    def prior_variance(self, X: Tensor) -> Tensor:
        """``k(x, x)`` [...] for X [... d]."""
        return self.base.prior_variance(X)

    @torch.no_grad()
    def fork(self) -> AdaptiveRidge:
        """A copy to update hypothetically; it tracks no points."""
        fork = self.over(self.base.fork())
        fork.base = fork.state
        fork._schedule = self._schedule.fork()
        return fork

    def state_dict(self) -> dict[str, Any]:
        """Data and schedule, to continue exactly."""
        return {"state": self.base.state_dict(), "schedule": self._schedule.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of ``state_dict``, for an equally constructed state."""
        self._schedule.load_state_dict(state["schedule"])
        self.base.move_ridge(self._schedule.ridge)
        self.base.load_state_dict(state["state"])
