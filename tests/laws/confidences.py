"""Every bound that must obey the laws of ``test_confidences.py``: a new one is added by one entry."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor

from kbo.confidence import (
    BKB,
    EKUCB,
    Chaining,
    Confidence,
    FiniteSet,
    FixedWidth,
    ImprovedGPUCB,
    MartingaleMixture,
    SelfNormalized,
)
from kbo.regression import Posterior
from tests import dense
from tests.dense import Dense
from tests.dense_chaining import chaining
from tests.laws.states import unit_square
from tests.third_party_confidence import PlannedDesign


class SmoothChaining(Chaining):
    """The continuous majorant of Algorithm 1."""

    def interval(self, state: Posterior, X: Tensor) -> tuple[Tensor, Tensor]:
        return self.quick_interval(state, X)


@dataclass(frozen=True)
class Setting:
    """The numbers a bound is made of. ``factor`` multiplies the targets, ``kernel`` the kernel."""

    noise_std: float = 0.3
    norm_bound: float = 8.0
    ridge: float = 0.05
    scale: float = 1.5
    delta: float = 0.1
    factor: float = 1.0
    kernel: float = 1.0

    @property
    def a0(self) -> float:
        return self.noise_std**2 / self.scale

    @property
    def numbers(self) -> tuple[float, float, float]:
        return self.noise_std, self.norm_bound, self.delta

    def other_targets(self, s: float) -> Setting:
        """Targets in other units, kernel as before: a0 and the ridge stay."""
        return replace(
            self,
            factor=s,
            noise_std=s * self.noise_std,
            norm_bound=s * self.norm_bound,
            scale=s**2 * self.scale,
        )

    def other_kernel(self, s: float) -> Setting:
        """The kernel in other units, targets as before: the same functions have another norm."""
        return replace(
            self,
            kernel=s,
            ridge=s * self.ridge,
            norm_bound=self.norm_bound / s**0.5,
            scale=self.scale / s,
        )

    def other_prior(self, s: float) -> Setting:
        """Functions and targets in other units, as a Gaussian process sees it: norm and scale stay."""
        return replace(
            self, factor=s, kernel=s**2, noise_std=s * self.noise_std, ridge=s**2 * self.ridge
        )


LAWS = {
    "targets": Setting.other_targets,
    "kernel": Setting.other_kernel,
    "prior": Setting.other_prior,
}


@dataclass(frozen=True)
class Bound:
    """One confidence, its textbook formula, the changes of units that it follows, and its precision.

    ``other_numbers``: the computation of another entry with other numbers, for which only the formulas are compared.
    """

    name: str
    make: Callable[[Setting], Confidence]
    formula: Callable[[Dense, Tensor, Setting], tuple[Tensor, Tensor]]
    units: frozenset[str] = frozenset(LAWS)
    tol: float = 1e-12
    other_numbers: bool = False


SCALES = (0.25, 1.0, 16.0)
"""Multiples of the scale that are averaged, and so of a0 the inverse."""


def mixture(kind: str, scales=None) -> Callable[[Setting], Confidence]:
    return lambda u: MartingaleMixture(
        *u.numbers, kind, [c * u.scale for c in scales] if scales else u.scale
    )


def mixture_formula(grid=None, scales=None) -> Callable:
    """AMM or DMM at these multiples of a0, or CMM."""

    def formula(d: Dense, Z: Tensor, u: Setting) -> tuple[Tensor, Tensor]:
        numbers = *u.numbers, [c * u.scale for c in scales] if scales else u.scale, d.error
        return (
            dense.mixture(d, Z, [g * u.a0 for g in grid], *numbers)
            if grid
            else dense.exact_mixture(d, Z, *numbers)
        )

    return formula


def planned_formula(d: Dense, Z: Tensor, u: Setting) -> tuple[Tensor, Tensor]:
    noise = u.noise_std * math.sqrt(
        2 * math.log(math.pi**2 * max(d.n, 1) ** 2 * 50 / (3 * u.delta))
    )
    error = u.norm_bound * math.sqrt(d.error)
    return dense.symmetric(d, Z, u.ridge, u.norm_bound + (noise + error) / math.sqrt(u.ridge))


BOUNDS = [
    Bound(
        "self-normalised",
        lambda u: SelfNormalized(*u.numbers),
        lambda d, Z, u: dense.ay(d, Z, u.ridge, *u.numbers),
    ),
    # The ridge 1 + eta is a pure number, so it does not follow the kernel.
    Bound(
        "improved-gp-ucb",
        lambda u: ImprovedGPUCB(*u.numbers, 0.01),
        lambda d, Z, u: dense.igp(d, Z, 0.01, *u.numbers),
        frozenset({"targets"}),
    ),
    Bound(
        "bkb", lambda u: BKB(*u.numbers), lambda d, Z, u: dense.bkb(d, Z, u.ridge, *u.numbers, 0.5)
    ),
    Bound(
        "k-ucb",
        lambda u: EKUCB(*u.numbers, 0.0),
        lambda d, Z, u: dense.ekucb(d, Z, u.ridge, *u.numbers),
    ),
    Bound(
        "ek-ucb",
        lambda u: EKUCB(*u.numbers, 0.4 * u.ridge),
        lambda d, Z, u: dense.ekucb(d, Z, u.ridge, *u.numbers, 0.4 * u.ridge),
    ),
    # The prior gives the size of the function, so targets, noise and kernel only change together.
    *(
        Bound(
            f"finite-set, {variant}",
            lambda u, variant=variant: FiniteSet(50, u.delta, variant),
            lambda d, Z, u, variant=variant: dense.finite_set(d, Z, u.ridge, 50, u.delta, variant),
            frozenset({"prior"}),
            other_numbers=variant == "paper",
        )
        for variant in ("mixture", "quantile", "paper")
    ),
    # The steps of Algorithm 1 itself jump, and are zero where a point is known best: see tests/test_chaining.py.
    Bound(
        "chaining-smooth",
        lambda u: SmoothChaining(u.delta, points=unit_square(45, 6)),
        lambda d, Z, u: chaining(d, Z, u.ridge, unit_square(45, 6), u.delta, "smooth"),
        frozenset({"prior"}),
    ),
    Bound(
        "chaining-rigorous",
        lambda u: Chaining(u.delta, rigorous=True, points=unit_square(45, 6)),
        lambda d, Z, u: chaining(d, Z, u.ridge, unit_square(45, 6), u.delta, "rigorous"),
        frozenset({"prior"}),
    ),
    Bound(
        "fixed-width",
        lambda u: FixedWidth(2.0),
        lambda d, Z, u: dense.symmetric(d, Z, u.ridge, 2.0),
        frozenset({"prior"}),
    ),
    Bound("amm", mixture("amm"), mixture_formula((1.0,))),
    Bound("dmm", mixture("dmm"), mixture_formula((0.1, 0.3, 1.0, 3.0, 10.0))),
    Bound(
        "cmm", mixture("cmm"), mixture_formula(), tol=1e-6
    ),  # searched for, and at tiny ridges widened by rounding
    Bound(
        "dmm-of-scales",
        mixture("dmm", SCALES),
        mixture_formula([1 / c for c in SCALES], SCALES),
        other_numbers=True,
    ),
    Bound(
        "cmm-of-scales",
        mixture("cmm", SCALES),
        mixture_formula(None, SCALES),
        tol=1e-5,
        other_numbers=True,
    ),
    Bound("third-party", lambda u: PlannedDesign(*u.numbers, 50), planned_formula),
]
