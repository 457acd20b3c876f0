"""The safe setting: a trial begins only at parameters that are certain to keep all limits."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from kbo._base import checks
from kbo._base.arguments import naming_arguments
from kbo.bandit import methods
from kbo.errors import InvalidInput
from kbo.optimize.settings.certified import Certified
from kbo.space import Space


@dataclass(frozen=True, eq=False)
class Safe(Certified):
    """Certified bounds, and safe exploration: while the bounds hold, no trial breaks a limit of ``constraints``.

    The first trials are at ``start``. Every later trial is at safe parameters: there, the bounds by the earlier values
    are within all limits. So with probability ``1 - delta`` no trial of a run breaks a limit, if the starts keep the
    limits and the given numbers are right. If the data refute one of these, the run ends with ``RefutedAssumptions``.
    After a failed trial, or a value at parameters that ``ask`` did not return, the safe set grows no more, unless
    ``completion_independent_of_noise``.

    In a space of up to 100 000 points all points are examined, and the gap is about those in the safe set. In a larger
    space, or with real parameters, random points near the safe set are examined. Trials are as safe there, but the safe
    set may be incomplete and the gap is not proved (docs/theory/constraints.md), unless every point of the space is
    proved to be safe (docs/theory/gaps.md).

    Args:
        kernel, noise_std, norm_bound, delta, scale: As for ``Certified``; a constraint has its own ``noise_std`` and
            ``norm_bound``.
        start: Parameters that are known to keep all limits, at least one.
        noise_upper, completion_independent_of_noise, strict_noise: As for ``Certified``.

    Raises:
        InvalidInput: No start, or as for ``Certified``.

    Example:
        >>> setting = kbo.Safe(kernel, noise_std=0.1, norm_bound=2.0, start=[{"gain": 0.1}])
        >>> limit = kbo.Constraint("overshoot", upper=0.3, noise_std=0.02, norm_bound=1.0)
        >>> kbo.minimize(error, {"gain": (0.0, 1.0)}, 40, setting=setting, constraints=[limit])
    """

    start: Sequence[Any] = ()

    default_method: ClassVar[str] = "cmm-ucb"
    about_limits: ClassVar[str] = (
        "only points that are certain to keep them are evaluated, apart from start"
    )
    promise: ClassVar[str] = (
        "; apart from start, every trial began at parameters that were certain to keep all limits, by bounds on trials "
        "before any that failed, was stopped early, lost or not returned by ask, unless that is declared harmless"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        is_list = isinstance(self.start, Sequence) and not isinstance(self.start, (str, Mapping))
        if not is_list or not self.start:
            raise InvalidInput(
                "start must be a list of parameters that are known to keep all limits, at least one, got "
                f"{checks.shown(self.start)}."
            )
        object.__setattr__(self, "start", tuple(map(copy.copy, self.start)))

    def check(self, method: str, n_trials: int | None) -> None:
        named_method = methods.get(method)
        missing = ""
        if not named_method.has_bounds:
            missing = "bounds"
        elif named_method.norm == "estimated":
            missing = "bounds that are proved: nothing is ever certain"
        if missing:
            raise InvalidInput(
                f"method {method!r} has no {missing}, so it cannot explore safely: choose 'cmm-ucb'."
            )
        super().check(method, n_trials)

    def safe_starts(self) -> Sequence[Any]:
        return self.start

    def describe(self, space: Space) -> dict[str, Any]:
        """Return the setting as plain JSON values."""
        start = [space.canonical(params) for params in self.start]
        return {**super().describe(space), "start": start}


Safe.__init__ = naming_arguments(Safe.__init__)
