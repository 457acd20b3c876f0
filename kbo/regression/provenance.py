"""Assumptions of theorems that the data of a posterior do not meet."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Provenance:
    """What the data of a posterior do not satisfy of the assumptions of theorems.

    A confidence compares it with what its own theorem covers (``Confidence.objections``).

    Attributes:
        hypothetical: Whether some observations are hypothetical: then no bound is a theorem.
        weighted: Whether an observation has another weight than 1.
        ridge_moved: Whether the ridge was, or may have been, moved after data had come.
        unit_variance: The noise variance of an observation of weight 1, if variances were given;
            else None.
        repeats: Number of observations that repeated a location, and of those that repeated exactly
            its last value too; zero if not counted.
        caveats: Other reasons, in words, why no theorem covers bounds on these data.
    """

    hypothetical: bool = False
    weighted: bool = False
    ridge_moved: bool = False
    unit_variance: float | None = None
    repeats: tuple[int, int] = (0, 0)
    caveats: tuple[str, ...] = ()
