"""Online bounds of the noise level, one class for each of two proofs.

Notation: sigma is the noise level, xi the t noises, C = norm_bound, ``lam`` the ridge, E the error of a sketch (zero if
exact), ``rss = |y - f_lam(x_1..t)|^2``, and D is at least ``|Phi xi|^2 / sigma^2`` in the norm of ``(G + lam)^-1``.

On paper                                                             | in code
``D = 2 ln(1/delta) + ln det(I + K / lam)``                          | ``NoiseBounds.deviation``
``sqrt(rss) <= |xi| + C sqrt(max(lam / 2, |E|))``                    | ``at_least``, for ``NoiseBounds``
``|xi|^2 - 2 sigma^2 D - 2 sigma X <= rss``                          | ``at_most``, the same (Durand et al. 2018, Thm 3)
``X = C sqrt(lam D)``, more on a sketch                              | ``Fit.cross``
``|xi|^2 <= R^2``, averaged over ridges                              | ``MixtureNoiseBounds``, upper bound
``quad(a) - a C^2 <= |xi|^2``                                        | ``MixtureNoiseBounds``, lower bound
energy ``|xi|^2`` against ``t sigma^2``                              | ``energy.py``

All hold for all t at once; docs/papers.md and docs/theory/noise.md have the proofs.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kbo._base import checks
from kbo._base.read_only import ReadOnly
from kbo.confidence import rounding
from kbo.confidence.energy import averaged, crossing, stitched
from kbo.errors import InvalidInput, RefutedAssumptions
from kbo.regression import Posterior, RidgeSchedule

_EVENTS = 3
"""Each with a third of delta: the energy of the noise is not too small, not too large, its fit not too good."""

_MIXTURE_RIDGES, _MIXTURE_RATIO = 12, 4.0
"""Ridges of the mixture and their ratio: seven decades."""


class NoiseLevel(ReadOnly, RidgeSchedule):
    """Upper and lower bound of the noise level after every observation, and the ridge that follows them.

    With probability ``1 - delta``, at all times at once, the noise level lies between ``lower`` and ``upper``, if the
    function has norm at most ``norm_bound`` and the noise, given the past, is strictly sub-Gaussian: the level is its
    standard deviation and its sub-Gaussian constant (see ``energy.py``). With heavier tails the bounds are off
    (docs/validity.md). The same probability covers the confidence bounds built on them, ``AdaptiveSelfNormalized`` and
    ``AdaptiveMixture``. ``AdaptiveRidge(state, bounds)`` works on a copy, its ``schedule``; ``update`` may also be
    called by hand.

    Args:
        norm_bound: Bound C of the RKHS norm of the function, in units of the targets over sqrt(kernel).
        delta: Probability that anything may fail, ever.
        upper: An upper bound of the noise level that is known beforehand; None if there is none.
        lower: A lower bound that is known beforehand.
        largest_ridge: Where the grid of ridges begins, any number chosen beforehand; by default as the class says.

    Raises:
        InvalidInput: A number out of its range.

    Attributes:
        upper, lower: The present bounds; ``upper`` is inf as long as nothing is known.
        ridge: The present ridge.
        n: Observations seen.
        description: The arguments of the constructor.
    """

    _fixed: Sequence[str] | None = (
        "norm_bound",
        "delta",
        "upper",
        "lower",
        "largest_ridge",
        "event_delta",
        "strict",
    )
    saved: tuple[str, ...] = ("description", "_upper", "_lower", "ridge", "n", "_floor")

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
        self._upper: float = math.inf if upper is None else checks.positive("upper", upper)
        self._lower: float = checks.non_negative("lower", lower)
        if self.lower > self.upper:
            raise InvalidInput(f"lower = {self.lower:g} must not be above upper = {self.upper:g}.")
        self._given = self.lower, self.upper
        self.n: int = 0
        given = checks.maybe(checks.positive, "largest_ridge", largest_ridge)
        self.largest_ridge: float = self._first_ridge() if given is None else given
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

    def _first_ridge(self) -> float:
        """Return where the grid begins by default: 1, the prior variance of an unscaled kernel."""
        return 1.0

    def _ridge(self) -> float:
        """Return the ridge before the first observation."""
        return self.largest_ridge

    @property
    def upper(self) -> float:
        """The present upper bound, inf as long as nothing is known.

        :meta private:
        """
        return self._upper

    @property
    def lower(self) -> float:
        """The present lower bound.

        :meta private:
        """
        return self._lower

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(lower={self.lower:.4g}, upper={self.upper:.4g}, ridge={self.ridge:.4g}, "
            f"n={self.n}, norm_bound={self.norm_bound:g}, delta={self.delta:g})"
        )

    small_ball: str = ""
    """A further assumption on the noise, in words of the guarantee."""

    @property
    def guarantee(self) -> str:
        """The statement that holds with probability ``1 - delta``, in words."""
        least, most = self._given
        known = [f"at least {least:g}"] * (least > 0) + [f"at most {most:g}"] * math.isfinite(most)
        level = f"a level of {' and '.join(known)}" if known else "an unknown level"
        return (
            f"holds for all rounds and points at once with probability at least 1 - {self.delta:g}, if the function "
            f"has norm at most {self.norm_bound:g}, the noise, given the past, is sub-Gaussian with {level}, which is "
            f"also its standard deviation{self.small_ball}, and kernel and numbers were fixed beforehand"
        )

    @property
    def refuted(self) -> bool:
        """Whether the bounds contradict each other: then an assumption is false, but for probability delta."""
        return self.lower > self.upper

    def refuse_if_refuted(self) -> None:
        """Raise RefutedAssumptions if the bounds contradict each other."""
        if self.refuted:
            raise RefutedAssumptions(
                f"The data refute the assumptions: the lower bound of the noise level is above its upper bound. Either "
                f"{self._suspects()}the noise is not strictly sub-Gaussian (rare spikes, a level that varies; "
                "docs/validity.md), or norm_bound is too small, or the kernel is wrong",
                noise_at_least=self.lower,
                noise_at_most=self.upper,
                norm_bound=self.norm_bound,
                n=self.n,
            )

    def _suspects(self) -> str:
        """Return the given bound of the noise level that is wrong if the one from the data is right, in words."""
        least, most = self._given
        if self.upper == most:
            return f"the upper bound of the noise level that was given, {most:g}, is too small, or "
        return (
            f"the lower bound that was given, {least:g}, is too large, or "
            if self.lower == least > 0
            else ""
        )

    def update(self, state: Posterior) -> None:
        """Take in what ``state`` has learned since the last update; after every observation, or more rarely.

        Raises:
            InvalidInput: The state has fewer observations than were seen already.
        """
        if checks.instance("state", state, Posterior).n < self.n:
            raise InvalidInput(
                f"these noise bounds have seen {self.n} observations, the state has {state.n}: they follow one state."
            )
        if state.n > self.n:
            self._raise_floor(state)
            self.n = state.n
            self._learn(state)

    def _raise_floor(self, state: Posterior) -> None:
        self._floor = max(
            self._floor, state.error.least_ridge, rounding.least_ridge(state.error.rounding)
        )

    @abstractmethod
    def _learn(self, state: Posterior) -> None:
        """Update both bounds and the ridge."""

    @property
    @abstractmethod
    def least_ridge_used(self) -> float:
        """The least ridge at which the bounds read the posterior: there rounding does most."""

    def _check_state(self, state: dict[str, Any], *more: str) -> None:
        """Raise InvalidInput unless the state is of bounds with the same arguments."""
        super()._check_state(state, *more)
        if state["description"] != self.description:
            raise InvalidInput(
                f"these noise bounds are {self.description}, the saved ones {state['description']}: construct them "
                "equally."
            )


class Fit(NamedTuple):
    """The numbers of a fit.

    Attributes:
        t: Observations.
        rss: Residual sum of squares.
        ridge: Of the fit.
        norm_bound: Bound of the norm of the function.
        error: Operator norm of the error of a sketch; 0 if the posterior is exact.
        most: Upper bound of ``|xi|^2 / sigma^2`` from ``energy.py``.
    """

    t: int
    rss: float
    ridge: float
    norm_bound: float
    error: float
    most: float

    def cross(self, D: float) -> float:
        """Return X, the cross term of noise and function in the residuals, in units of sigma."""
        missed = 0.0
        if self.error > 0:
            seen = math.sqrt(self.ridge + self.error) + math.sqrt(32 / 27 * self.error)
            missed = min(D * seen**2, self.most * self.error)
        return self.norm_bound * math.sqrt(self.ridge * D + missed)


def at_least(fit: Fit) -> float:
    """Return a lower bound of the noise level (Theorem 3); negative where the norm bound explains all residuals."""
    explained = fit.norm_bound * math.sqrt(max(fit.ridge / 2, fit.error) / fit.t)
    return (math.sqrt(fit.rss / fit.t) - explained) / math.sqrt(fit.most / fit.t)


def at_most(fit: Fit, D: float, least: float) -> float:
    """Return the root sigma of ``least sigma^2 - 2 sigma^2 D - 2 sigma X = rss`` (Theorem 3); inf if there is none.

    Args:
        fit: The fit.
        D: The deviation.
        least: Lower bound of ``|xi|^2 / sigma^2``.
    """
    a, b = (least - 2 * D) / fit.t, 2 * fit.cross(D) / fit.t
    return (b + math.sqrt(b * b + 4 * a * fit.rss / fit.t)) / (2 * a) if a > 0 else math.inf


class NoiseBounds(NoiseLevel):
    """``NoiseLevel`` from the residuals of one fit: Durand et al. (2018), Theorem 3 and Corollary 1, without slack.

    The ridge is the least ``largest_ridge / 2^j`` above ``upper^2 / C^2``; by default ``largest_ridge`` is that of the
    given upper bound, or 1. It needs no bounds to begin with. Its first finite upper bound needs some 150 observations
    of a smooth function on a line, and many hundreds in two dimensions, since it pays twice the information gain;
    ``MixtureNoiseBounds`` pays it once. The printed form, which is wider, is in the experiment of the paper.

    Args:
        norm_bound, delta, upper, lower, largest_ridge: As for ``NoiseLevel``.

    Raises:
        InvalidInput: A number out of its range.
    """

    def _first_ridge(self) -> float:
        return self.upper**2 / self.norm_bound**2 if math.isfinite(self.upper) else 1.0

    def deviation(self, state: Posterior) -> float:
        """Return ``D``, at least ``|Phi xi|^2 / sigma^2`` in the norm of ``(G + lam)^-1``, at the present ridge.

        Durand et al. (2018), Theorem 2, at a ridge of the grid, each with a share of the probability.
        """
        ridge, delta = self._reference()
        # ln det(I + K / ridge) is at most that of the sketch plus what the sketch leaves out.
        gain = (
            float(self._read("log_det", state, ridge)) + state.error.log_det(ridge)
            if state.n
            else 0.0
        )
        return 2 * math.log(1 / delta) + gain

    def _read(self, name: str, state: Posterior, ridge: float) -> Tensor:
        """Return a number [] of the answers of a posterior at a ridge."""
        return getattr(state.at(ridge), name)()

    def _learn(self, state: Posterior) -> None:
        """Update lower bound, upper bound and ridge, in this order (Durand et al. 2018, Sec. 6.3)."""
        least, most = stitched(state.n, self.event_delta)
        self._lower, fit = self._from_below(state, most)
        self._upper = min(self.upper, at_most(fit, self.deviation(state), least))
        self.ridge: float = self._ridge()

    def _from_below(self, state: Posterior, most: float) -> tuple[float, Fit]:
        """Return the lower bound for at most this much energy, and the fit with its residuals rounded up."""
        rss, rounded = float(self._read("rss", state, self.ridge)), state.error.of_quad
        fit = Fit(
            state.n, max(rss - rounded, 0), self.ridge, self.norm_bound, state.error.norm(), most
        )
        return max(self.lower, at_least(fit)), fit._replace(rss=rss + rounded)

    def _ridge(self) -> float:
        """Return the ridge of the upper bound, clamped from below at the precision: a larger one stays valid."""
        return self._grid_ridge(self._step(max((self.upper / self.norm_bound) ** 2, self._floor)))

    def _step(self, wanted: float) -> int:
        """Return the largest j with ``largest_ridge / 2^j >= wanted``, at least 0."""
        if wanted >= self.largest_ridge:
            return 0
        j = math.floor(math.log2(self.largest_ridge / wanted))
        return j - (self._grid_ridge(j) < wanted) + (self._grid_ridge(j + 1) >= wanted)  # rounding

    def _grid_ridge(self, j: int) -> float:
        return math.ldexp(self.largest_ridge, -j)

    def _reference(self) -> tuple[float, float]:
        """Return the ridge at which D is taken and the probability that D may fail there."""
        j = round(math.log2(self.largest_ridge / self.ridge))
        return self.ridge, 6 * self.event_delta / (math.pi * (j + 1)) ** 2

    @property
    def least_ridge_used(self) -> float:
        return self._reference()[0]


class MixtureNoiseBounds(NoiseLevel):
    """``NoiseLevel`` from a martingale mixture (Flynn & Reeb 2024), averaged over the ridges ``largest_ridge / 4^j``.

    The best of these is the ridge; ``largest_ridge`` is 1 by default. The tightest bounds, by far where there are many
    effective dimensions: a finite upper bound, which needs no norm bound, comes after some 50 observations of a smooth
    function on a line and some 100 in two dimensions. They are also the first to be wrong where the noise is not as
    assumed, and evaluate twelve ridges after every observation, which on a sketch of m points takes O(m^3): choose a
    dictionary that stays small, ``GreedyDictionary`` for example.

    Args:
        norm_bound, delta, upper, lower, largest_ridge: As for ``NoiseLevel``.
        strict: Whether the noise is only assumed to be strictly sub-Gaussian. By default it is also assumed to have no
            more mass near zero than Gaussian noise, as Gaussian, Rademacher and uniform noise have; that is tighter for
            the first few hundred observations.

    Raises:
        InvalidInput: A number out of its range.
    """

    def __init__(
        self,
        norm_bound: float,
        delta: float,
        upper: float | None = None,
        lower: float = 0.0,
        largest_ridge: float | None = None,
        *,
        strict: bool = False,
    ) -> None:
        self.strict: bool = checks.flag("strict", strict)
        super().__init__(norm_bound, delta, upper, lower, largest_ridge)
        self.description["strict"] = self.strict

    @property
    def small_ball(self) -> str:
        ball = "(E exp(-g noise^2 / level^2) <= (1 + 2 g)^(-1/2) for g <= 2)"
        return "" if self.strict else f", and has no more mass near zero than Gaussian noise {ball}"

    @property
    def mixture_ridges(self) -> list[float]:
        """Ridges over which the mixture is averaged, decreasing: the largest, and all above the kernel's precision."""
        ridges = [self.largest_ridge / _MIXTURE_RATIO**j for j in range(_MIXTURE_RIDGES)]
        return ridges[:1] + [ridge for ridge in ridges[1:] if ridge >= self._floor]

    @property
    def least_ridge_used(self) -> float:
        return self.mixture_ridges[-1]

    @property
    def mixture_delta(self) -> float:
        """Probability that the mixture over these ridges may fail; those that are left out keep their share."""
        return self.event_delta * len(self.mixture_ridges) / _MIXTURE_RIDGES

    def _learn(self, state: Posterior) -> None:
        """Update both bounds and the ridge on the event of the confidence set, which bounds the energy of the noise."""
        ridges = self.mixture_ridges
        if ridges[0] < self._floor:
            return
        answers, error = state.across(), state.error.norm()
        quads, gains = torch.stack([answers.quad(ridges), answers.log_det(ridges)]).tolist()
        gains = [
            gain + state.error.log_det(ridge) for gain, ridge in zip(gains, ridges, strict=True)
        ]
        least, most = averaged(state.n, self.event_delta, self.strict)
        # The radius R^2 falls short of least sigma^2 exactly where 1 / (2 sigma^2) is below this.
        halves = (
            [max(quad + state.error.of_quad, 1e-300) for quad in quads],
            [-gain / 2 for gain in gains],
        )
        precision = crossing(*halves, math.log(1 / self.mixture_delta) - least / 2)
        if precision > 0:
            self._upper = min(self.upper, math.sqrt(0.5 / precision))
        for ridge, quad in zip(ridges, quads, strict=True):
            unexplained = max(quad - state.error.of_quad - ridge * self.norm_bound**2, 0)
            energy = math.sqrt(unexplained) - self.norm_bound * math.sqrt(error)
            self._lower = max(self.lower, energy / math.sqrt(most))
        if math.isfinite(self.upper):
            radii = [quad + self.upper**2 * gain for quad, gain in zip(quads, gains, strict=True)]
            self.ridge: float = ridges[radii.index(min(radii))]
