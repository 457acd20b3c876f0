"""Assumptions of theorems that the data of a posterior do not meet."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Provenance:
    """The assumptions of theorems that the data of a posterior violate.

    A confidence compares it with what its own theorem covers (``Confidence.objections``).

    Attributes:
        hypothetical: Whether some observations are hypothetical: then no bound is proved.
        weighted: Whether an observation has another weight than 1.
        ridge_moved: Whether the ridge was, or may have been, moved after data had come.
        unit_variance: The noise variance of an observation of weight 1, if variances were given;
            else None.
        repeats: Number of observations at an earlier location, and how many of these have exactly
            its last value too; zeros if not counted.
        caveats: Other reasons, in words, why no theorem covers bounds on these data.
    """

    hypothetical: bool = False
    weighted: bool = False
    ridge_moved: bool = False
    unit_variance: float | None = None
    repeats: tuple[int, int] = (0, 0)
    caveats: tuple[str, ...] = ()
