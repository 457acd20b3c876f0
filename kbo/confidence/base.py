"""Upper and lower confidence bounds from the numbers of a posterior."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from kbo._base import checks
from kbo._base.devices import read
from kbo._base.linalg import safe_sqrt
from kbo._base.read_only import ReadOnly
from kbo.confidence import rounding
from kbo.errors import InvalidInput
from kbo.regression import Posterior


class Confidence(ReadOnly):
    """A sequence of confidence bounds, one for every moment of a growing posterior.

    A subclass defines ``interval``, or ``width`` of ``WidthConfidence``, and sets ``guarantee``. It reads posteriors
    through the interface of ``kbo.regression.Posterior`` only, so it works on all of them, and remembers nothing of
    them except by ``state.version``. The bounds at a point do not depend on the other rows of X, are differentiable in
    X, and have its dtype and device. The other methods may be overridden where something faster is known. Attributes
    without a leading underscore are read-only once it is constructed, so that the statement stays true.

    Attributes:
        guarantee: Statement that holds with probability ``1 - delta`` on exact posteriors, in words that name every
            assumption; None if nothing is proved.
        covers: What the theorem covers of an ``error`` and a ``provenance``, some of ``"sketch"``: the bounds account
            for the error of an approximate posterior; ``"weights"``: observations of different noise levels, seen
            through ``sqrt(w) k(x, .)`` and ``sqrt(w) y``, with w chosen before the noise (docs/theory/weights.md);
            ``"moved ridge"``: a ridge that was chosen from the data. Bounds at the ridge of the posterior alone, as
            those of ``WidthConfidence``, cover none of them by default.
        delta: Probability that the statement may fail; 1 unless a subclass sets it.
        noise_std: The noise level that is assumed of an observation of weight 1; None if it is that of the ridge, or
            unknown.
    """

    guarantee: str | None = None
    covers: frozenset[str] = frozenset({"moved ridge"})
    delta: float = 1.0
    noise_std: float | None = None

    def delta_on(self, state: Posterior) -> float:
        """Return the probability that the statement on this posterior may fail, at most; 1 if it is not known."""
        return self.delta

    def guarantee_on(self, state: Posterior) -> str | None:
        """Return the statement that holds on this posterior; None if there are ``objections``."""
        if self.objections(state):
            return None
        weights = "; for an observation of weight w that is said of sqrt(w) times its noise, and w was known before it"
        return f"{self._statement_on(state)}{weights * state.provenance.weighted}"

    def _statement_on(self, state: Posterior) -> str | None:
        """Return ``guarantee`` in the words that fit this posterior, objections aside; None if nothing is proved."""
        return self.guarantee

    def objections(self, state: Posterior) -> list[str]:
        """Return the reasons why the theorem does not cover this posterior, in words; none if it does.

        What its ``provenance`` and ``error`` give up is compared with what the theorem ``covers``. Objections of the
        bounds on which this one rests count too. A subclass whose theorem has further conditions extends it.
        """
        given, assumed = checked_state(state).provenance, self.noise_std
        reasons = [
            *given.caveats,
            *(reason for part in self._parts() for reason in part.objections(state)),
        ]
        if given.hypothetical:
            reasons.append(
                "some observations are hypothetical (fantasies, points chosen for a batch): use the observed data alone"
            )
        if 0 < given.repeats[0] == given.repeats[1]:
            reasons.append(
                f"each of the {given.repeats[0]} repeated observations has exactly the value before, so noise is not "
                "independent: does the objective fix a random seed?"
            )
        if state.like.dtype != torch.float64:
            reasons.append(
                "in float32 rounding may move the bounds by more than their width: use float64"
            )
        if self._statement_on(state) is None:
            reasons.append(f"no theorem covers {type(self).__name__}")
        reasons += rounding.objections(state, self._least_ridge(state))
        if "sketch" not in self.covers and not state.error.trace <= 0:
            reasons.append(
                "the theorem does not cover the error of the dictionary: use MartingaleMixture or SelfNormalized"
            )
        known = given.unit_variance
        if known is not None and assumed is not None and assumed**2 < known * (1 - 1e-9):
            reasons.append(
                f"the noise variances that were given mean noise_std = {known**0.5:.3g}, the root of the ridge, and "
                f"the bound assumes {assumed:.3g}: let the ridge be noise_std ** 2"
            )
        if "weights" not in self.covers and given.weighted:
            reasons.append(
                "the theorem is about one noise level, and the observations have weights"
            )
        if (
            "moved ridge" not in self.covers
            and given.ridge_moved
            and self.ridge(state) == state.ridge
        ):
            reasons.append(
                "the ridge was chosen after the first observation, and the theorem needs one chosen before"
            )
        return list(dict.fromkeys(reasons))

    def _parts(self) -> list[Confidence]:
        """Return the bounds on which these rest, and whose ``objections`` are theirs: those among its attributes.

        A subclass with such attributes that are no premise of its statement overrides it.
        """
        found: list[Any] = []
        for value in vars(self).values():
            found += (
                value.values()
                if isinstance(value, dict)
                else value
                if isinstance(value, list | tuple)
                else [value]
            )
        return [one for one in found if isinstance(one, Confidence)]

    def __repr__(self) -> str:
        public = {
            name: value
            for name, value in vars(self).items()
            if name != "guarantee" and name[0] != "_"
        }
        shown = (
            f"{name}={value!r}" for name, value in public.items() if not isinstance(value, Tensor)
        )
        return f"{type(self).__name__}({', '.join(shown)})"

    @abstractmethod
    def interval(self, state: Posterior, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return lower and upper bound [...] at X [... d], in units of the targets that ``state`` has seen.

        On a posterior of fantasies, which has a batch shape, X is [... q d], and the batch shapes broadcast.

        Raises:
            RefutedAssumptions: No function satisfies the assumptions and fits the data.
        """

    def upper(self, state: Posterior, X: Tensor) -> Tensor:
        """Return the upper bound [...] at X [... d]; see ``interval``."""
        return self.interval(state, X)[1]

    def lower(self, state: Posterior, X: Tensor) -> Tensor:
        """Return the lower bound [...] at X [... d]; see ``interval``."""
        return self.interval(state, X)[0]

    def finite_on(self, state: Posterior) -> bool:
        """Return whether the bounds are finite yet.

        If not, points are ranked by their standard deviation, the limit of ever wider bounds.
        """
        return True

    def reported(self) -> Confidence | None:
        """Return the bound to show to users: itself, unless it only ranks points; None if there is nothing to show."""
        return self

    def for_trial(self, number: int) -> Confidence:
        """Return the bound for the trial of that number: itself, unless several take turns."""
        return self

    def quick_interval(self, state: Posterior, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return bounds [...] at X [... d] that are valid as well and take less time; by default ``interval``."""
        return self.interval(state, X)

    def argmax_upper(self, state: Posterior, X: Tensor) -> tuple[int, float]:
        """Return the row of X [A d] with the largest upper bound, the first of several, and that bound."""
        upper = self.upper(state, one_set(state, X))
        return first_largest(upper if self.finite_on(state) else state.predict(X)[1], upper)

    def argmax_lower(self, state: Posterior, X: Tensor) -> tuple[int, float]:
        """Return the row of X [A d] with the largest lower bound, the first of several, and that bound."""
        return first_largest(lower := self.lower(state, one_set(state, X)), lower)

    def ridge(self, state: Posterior) -> float:
        """Return the ridge of mean, variance and draws; the state's own unless a bound fixes it."""
        return checked_state(state).ridge

    def _least_ridge(self, state: Posterior) -> float:
        """Return the least ridge at which the bounds read the posterior: there rounding does most."""
        return self.ridge(state)

    def inflated(self, state: Posterior, X: Tensor, g: Tensor) -> Tensor:
        """Return draws [... N] as wide as the bounds at X [N d], from draws g [... N] less the posterior mean.

        With centre c and half width r of the interval, and standard deviation s, that is ``c + r g / s``. As long as
        the bounds are infinite it is g itself, which ranks points as the limit of ever wider bounds does.

        Args:
            state: The posterior.
            X: Points [N d]; or [... d], for one draw.
            g: Draws from the posterior at ``ridge(state)``.
        """
        if not self.finite_on(state):
            return g
        lower, upper = self.interval(state, X)
        deviation = safe_sqrt(state.predict(X)[1])
        known = deviation == 0  # and g with it
        return (lower + upper) / 2 + (upper - lower) / 2 * (g / deviation.masked_fill(known, 1.0))


def checked_state(state: Any) -> Posterior:
    """Return ``state`` if it is a posterior: a model has one, and is none."""
    return checks.instance("state", state, Posterior, "; that of a model is model.state")


class OverPoints(Confidence):
    """Bounds for the points of a finite set: asked at others, they object from then on.

    Attributes:
        points: The finite set [N d]; None if only its size is known, or nothing.
        n_points: The size N; None if there is no fixed set.
    """

    covers: frozenset[str] = frozenset()
    points: Tensor | None = None
    n_points: int | None = None
    _outside: bool = False

    def _note_queries(self, X: Tensor) -> None:
        """Note whether points X [... d], at which bounds are computed, are all in the set, or too many for it."""
        if self._outside or self.n_points is None:
            return
        if self.points is None:
            rows = X.numel() // max(1, X.shape[-1])
            self._outside = rows > self.n_points and len(_rows(X)) > self.n_points
        else:
            points = self.points.to(X)
            self._outside = not (X.shape == points.shape and torch.equal(X, points)) and not _rows(
                X
            ) <= _rows(points)

    def objections(self, state: Posterior) -> list[str]:
        """Return the reasons as for any confidence; one more if bounds were computed elsewhere."""
        asked = f"bounds were computed at points other than the {self.n_points} that the theorem is about"
        return super().objections(state) + [asked] * self._outside


def _rows(X: Tensor) -> set[tuple[float, ...]]:
    """Return the distinct rows of X [... d]."""
    return set(map(tuple, X.detach().reshape(-1, X.shape[-1]).tolist()))


def finite_set(points: Tensor) -> Tensor:
    """Return points [N d] of a finite set, if that is their shape and there is one."""
    checks.points("points", points)
    if points.ndim != 2 or not len(points):
        raise InvalidInput(f"points must have shape [N d] with N > 0, got {tuple(points.shape)}.")
    return points


def one_set(state: Posterior, X: Tensor) -> Tensor:
    """Return points X [A d] among which one is chosen, if that is their shape and there is one.

    Raises:
        InvalidInput: They have another shape, or the posterior has batches, each of which has a best point of its own.
    """
    if checks.shaped("X", X).ndim != 2 or not X.shape[0]:
        raise InvalidInput(f"X must have shape [A d] with at least one row, got {tuple(X.shape)}.")
    if checked_state(state).batch_shape:
        raise InvalidInput(
            f"state has batches of hypothetical data (fantasies), of shape {tuple(state.batch_shape)}, and one point "
            "is chosen for one posterior: pass that of one fantasy."
        )
    return X


def in_batches(state: Posterior, X: Tensor) -> Tensor:
    """Return points X [... q d] expanded to the batch shape of the posterior; X itself if that has none."""
    if not checked_state(state).batch_shape:
        return X
    shapes = {"X": checks.shaped("X", X).shape[:-2], "the posterior": state.batch_shape}
    return X.expand(*checks.batch_shape(**shapes), *X.shape[-2:])


def first_largest(scores: Tensor, values: Tensor) -> tuple[int, float]:
    """Return the first row of the largest score [A] and its value [A].

    Raises:
        InvalidInput: The value or a score is NaN.
    """
    first = scores.argmax()  # a row of NaN, if there is one
    row, value, *score = read(
        first, *(part.take(first) for part in ((values,) if scores is values else (values, scores)))
    )
    if any(map(math.isnan, (value, *score))):
        raise _not_a_number("bound", int(row))
    return int(row), value


def decided(values: Tensor, what: str) -> Tensor:
    """Return values [...] that decide a certificate: NaN would lose every comparison, and win an argmax.

    Raises:
        InvalidInput: One of them is NaN.
    """
    if bool((nan := values.isnan()).any()):
        raise _not_a_number(what, int(nan.nonzero()[0, 0]))
    return values


def _not_a_number(what: str, row: int) -> InvalidInput:
    return InvalidInput(
        f"the {what} is NaN at point {row}, so nothing can be concluded: every kernel value and every observation must "
        "be a finite number. Check the kernel's values at these points and its parameters."
    )


class WidthConfidence(Confidence):
    """Bounds of the form ``mean +- width * sqrt(variance)`` at one ridge.

    Where something is proved of them, they are widened by what rounding may do to them.
    """

    covers: frozenset[str] = frozenset()

    @abstractmethod
    def width(self, state: Posterior) -> Tensor | float:
        """Return the multiplier of the standard deviation, a number of at least 0 or a tensor []."""

    def interval(self, state: Posterior, X: Tensor) -> tuple[Tensor, Tensor]:
        ridge = self.ridge(state)
        answers = state.at(ridge)
        width = self._checked_width(state)
        mean, variance = answers.predict(X)
        if self._statement_on(state) is not None:
            width = rounding.widened(state, width, answers.quad(), ridge)
        margin = width.to(mean) * safe_sqrt(variance)
        return mean - margin, mean + margin

    def inflated(self, state: Posterior, X: Tensor, g: Tensor) -> Tensor:
        """Return ``mean + width g``."""
        if not self.finite_on(state):
            return g
        mean = state.at(self.ridge(state)).predict(X)[0]
        return mean + self._checked_width(state).to(g) * g

    def _checked_width(self, state: Posterior) -> Tensor:
        """Return ``width`` as a tensor [].

        Raises:
            InvalidInput: It is something else than a tensor of one entry or a number of at least 0.
        """
        width = self.width(state)
        if isinstance(width, Tensor) and width.numel() == 1:
            return width.reshape(()) if width.ndim else width
        try:
            number = checks.real(width)
        except Exception:  # of whatever a subclass returned
            number = math.nan
        if not number >= 0:
            raise InvalidInput(
                f"width of {type(self).__name__} must return one number of at least 0, or a tensor of shape [], got "
                f"{checks.shown(width)}."
            )
        return torch.tensor(number, dtype=torch.float64)


class SubGaussian(Confidence):
    """Bounds for a function of bounded RKHS norm, observed with sub-Gaussian noise.

    Args:
        noise_std: Sub-Gaussian constant of the noise, in units of the targets.
        norm_bound: Bound of the RKHS norm of the function, in units of the targets over sqrt(kernel).
        delta: Probability that the bounds may fail, ever and anywhere.

    Raises:
        InvalidInput: A number out of its range.
    """

    def __init__(self, noise_std: float, norm_bound: float, delta: float) -> None:
        self.noise_std: float = checks.positive("noise_std", noise_std)
        self.norm_bound: float = checks.positive("norm_bound", norm_bound)
        self.delta: float = checks.probability("delta", delta)
        self.guarantee: str | None = self.statement("all rounds and points at once")

    def statement(self, scope: str) -> str:
        """Return the guarantee for these rounds and points, in words."""
        return (
            f"holds for {scope} with probability at least 1 - {self.delta:g}, if the function has norm at most "
            f"{self.norm_bound:g}, the noise is {self.noise_std:g}-sub-Gaussian given the past, and kernel and numbers "
            "were fixed beforehand"
        )


class Delegated(Confidence):
    """Bounds of another confidence, chosen by the data of the moment, once after every change."""

    _chosen: tuple[int, Confidence] | None = None

    def _parts(self) -> list[Confidence]:
        """Return none: the chosen confidence has no statement of its own."""
        return []

    @abstractmethod
    def choose(self, state: Posterior) -> Confidence:
        """Return the confidence with these bounds on ``state``."""

    def current(self, state: Posterior) -> Any:
        """Return the confidence with these bounds on ``state``, the same one until that changes."""
        chosen, state = self._chosen, checked_state(state)
        if chosen is None or chosen[0] != state.version:
            self._chosen = chosen = state.version, self.choose(state)
        return chosen[1]

    def interval(self, state: Posterior, X: Tensor) -> tuple[Tensor, Tensor]:
        return self.current(state).interval(state, X)

    def upper(self, state: Posterior, X: Tensor) -> Tensor:
        return self.current(state).upper(state, X)

    def lower(self, state: Posterior, X: Tensor) -> Tensor:
        return self.current(state).lower(state, X)

    def quick_interval(self, state: Posterior, X: Tensor) -> tuple[Tensor, Tensor]:
        return self.current(state).quick_interval(state, X)

    def argmax_upper(self, state: Posterior, X: Tensor) -> tuple[int, float]:
        return self.current(state).argmax_upper(state, X)

    def argmax_lower(self, state: Posterior, X: Tensor) -> tuple[int, float]:
        return self.current(state).argmax_lower(state, X)
