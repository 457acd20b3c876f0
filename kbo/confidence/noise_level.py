"""The base class of bounds of an unknown noise level, and of the ridge that follows them."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from kbo._base import checks
from kbo._base.read_only import ReadOnly
from kbo.confidence import rounding
from kbo.errors import InvalidInput, RefutedAssumptions
from kbo.regression import Posterior, RidgeSchedule

_EVENTS = 3
"""Number of events, each of which fails with a third of delta.

The energy of the noise is not too small, it is not too large, and the fit of the noise is not too
good.
"""


class NoiseLevel(ReadOnly, RidgeSchedule):
    """The base of bounds of an unknown noise level, and of the ridge that follows them.

    With probability ``1 - delta``, at all times at once, the noise level lies between ``lower`` and
    ``upper``. Assumptions: the function has norm at most ``norm_bound``, and the noise, given the
    past, is strictly sub-Gaussian, so that the level is both its standard deviation and its
    sub-Gaussian constant (``energy.py``). With heavier tails the bounds are wrong
    (docs/reliability.md). ``AdaptiveSelfNormalized`` and ``AdaptiveMixture`` hold on the same event,
    with no further probability of failure. ``AdaptiveRidge(state, bounds)`` updates a copy, its
    ``schedule``; you may also call ``update`` yourself.

    Args:
        norm_bound: Bound C of the RKHS norm of the function, in units of the targets over
            sqrt(kernel).
        delta: Probability that any of these bounds fails at any time.
        upper: An upper bound of the noise level that is known beforehand; None if there is none.
        lower: A lower bound that is known beforehand.
        largest_ridge: The largest ridge of the grid, any number chosen beforehand; the default
            depends on the class.

    Raises:
        InvalidInput: A number out of its range.

    Attributes:
        upper, lower: The present bounds; ``upper`` is inf as long as nothing is known.
        ridge: The present ridge.
        n: Observations seen.
        description: The arguments of the constructor.
    """

    _read_only: Sequence[str] | None = (
        "norm_bound",
        "delta",
        "upper",
        "lower",
        "largest_ridge",
        "event_delta",
        "strict",
    )

    small_ball: str = ""
    """A further assumption on the noise, in words for the guarantee."""

    def __init__(
        self,
        norm_bound: float,
        delta: float,
        upper: float | None = None,
        lower: float = 0.0,
        largest_ridge: float | None = None,
    ) -> None:
        self.norm_bound: float = checks.positive("norm_bound", norm_bound)
        self.delta: float = checks.probability("delta", delta)
        upper = checks.maybe(checks.positive, "upper", upper)
        self._upper: float = math.inf if upper is None else upper
        self._lower: float = checks.non_negative("lower", lower)
        if self.lower > self.upper:
            raise InvalidInput(f"lower = {self.lower:g} must not be above upper = {self.upper:g}.")
        self._given_lower = self.lower
        self._given_upper = self.upper
        self.n: int = 0
        largest_ridge = checks.maybe(checks.positive, "largest_ridge", largest_ridge)
        if largest_ridge is None:
            largest_ridge = self._default_largest_ridge()
        self.largest_ridge: float = largest_ridge
        self.description: dict[str, Any] = {
            "norm_bound": self.norm_bound,
            "delta": self.delta,
            "upper": self.upper if math.isfinite(self.upper) else None,
            "lower": self.lower,
            "largest_ridge": self.largest_ridge,
        }
        self.event_delta: float = self.delta / _EVENTS
        self._floor = 0.0  # the least ridge at which rounding is small
        self.ridge: float = self._ridge()

    def _default_largest_ridge(self) -> float:
        """Return the default of ``largest_ridge``, in units of the kernel."""
        return 1.0  # the prior variance of an unscaled kernel

    def _ridge(self) -> float:
        """Return the ridge before the first observation."""
        return self.largest_ridge

    @property
    def upper(self) -> float:
        """The present upper bound of the noise level, inf as long as nothing is known.

        :meta private:
        """
        return self._upper

    @property
    def lower(self) -> float:
        """The present lower bound of the noise level.

        :meta private:
        """
        return self._lower

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(lower={self.lower:.4g}, upper={self.upper:.4g}, "
            f"ridge={self.ridge:.4g}, n={self.n}, norm_bound={self.norm_bound:g}, "
            f"delta={self.delta:g})"
        )

    @property
    def guarantee(self) -> str:
        """The statement that holds with probability ``1 - delta``, in words."""
        return (
            "holds for all rounds and points at once with probability at least "
            f"1 - {self.delta:g}, if the function has norm at most {self.norm_bound:g}, the noise, "
            f"given the past, is sub-Gaussian with {self._given_level()}, which is also its "
            f"standard deviation{self.small_ball}, and kernel and all given numbers were chosen "
            "without these data"
        )

    def _given_level(self) -> str:
        """Return the limits of the noise level that were given to the constructor, in words."""
        limits: list[str] = []
        if self._given_lower > 0:
            limits.append(f"at least {self._given_lower:g}")
        if math.isfinite(self._given_upper):
            limits.append(f"at most {self._given_upper:g}")
        if not limits:
            return "an unknown level"
        return f"a level of {' and '.join(limits)}"

    @property
    def refuted(self) -> bool:
        """Whether ``lower`` is above ``upper``.

        Then an assumption is false, or the event of probability delta has occurred.
        """
        return self.lower > self.upper

    def refuse_if_refuted(self) -> None:
        """Raise RefutedAssumptions if the bounds contradict each other."""
        if not self.refuted:
            return
        suspect = ""
        if self.upper == self._given_upper:
            suspect = (
                "the upper bound of the noise level that was given, "
                f"{self._given_upper:g}, is too small, or "
            )
        elif self.lower == self._given_lower > 0:
            suspect = f"the lower bound that was given, {self._given_lower:g}, is too large, or "
        raise RefutedAssumptions(
            "The data refute the assumptions: the lower bound of the noise level is above its upper"
            f" bound. Either {suspect}the noise is not strictly sub-Gaussian (rare spikes, a level "
            "that varies; docs/reliability.md), or norm_bound is too small, or the kernel is wrong",
            noise_at_least=self.lower,
            noise_at_most=self.upper,
            norm_bound=self.norm_bound,
            n=self.n,
        )

    def update(self, state: Posterior) -> None:
        """Learn from the data of ``state`` since the last update, one or more observations.

        Raises:
            InvalidInput: The state has fewer observations than at the last update.
        """
        checks.instance("state", state, Posterior)
        if state.n < self.n:
            raise InvalidInput(
                f"these noise bounds have seen {self.n} observations, the state has {state.n}: "
                "they follow one state."
            )
        if state.n > self.n:
            self._raise_floor(state)
            self.n = state.n
            self._learn(state)

    def _raise_floor(self, state: Posterior) -> None:
        """Raise the floor to the least ridge at which rounding is small for the present data."""
        floors = state.error.least_ridge, rounding.least_ridge(state.error.rounding)
        self._floor = max(self._floor, *floors)

    @abstractmethod
    def _learn(self, state: Posterior) -> None:
        """Update both bounds and the ridge."""

    @property
    @abstractmethod
    def least_ridge_used(self) -> float:
        """The least ridge at which the bounds read the posterior, where rounding is largest."""
