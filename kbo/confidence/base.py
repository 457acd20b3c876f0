"""Confidence bounds of an unknown function, computed from the numbers of a posterior.

A new bound ``mean +- width * sqrt(variance)`` subclasses ``WidthConfidence`` and defines ``width``
(see ``self_normalized.py``). Any other bound subclasses ``Confidence`` and defines ``interval``.
docs/extending.md has a complete example.

| quantity | member |
|---|---|
| lower and upper bound at X | ``interval(state, X)``, ``lower``, ``upper``, ``quick_interval`` |
| point with the largest bound among X | ``argmax_upper(state, X)``, ``argmax_lower`` |
| guarantee, or the reasons why there is none | ``guarantee_on(state)``, ``objections`` |
| Thompson draws as wide as the bounds | ``draw(state, X, count)``, ``inflated`` |
"""

from __future__ import annotations

import difflib
import math
from abc import abstractmethod
from collections.abc import Set
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
from kbo.regression.error import no_kernel
from kbo.regression.posterior import Provenance

_DEVIATIONS = ("sketch", "weights", "moved ridge")
"""The words of ``Confidence.covers``."""


class Confidence(ReadOnly):
    """Lower and upper bounds of an unknown function, computed from its posterior.

    It is a sequence of bounds, one after every observation; its guarantee is about all of them at
    once.

    A subclass defines ``interval`` and sets ``guarantee``, ``delta`` and ``covers``. It reads
    posteriors only through the interface ``kbo.regression.Posterior``. A cache of their numbers is
    valid for one ``state.version``. Exceptions are queries that a guarantee counts (``FiniteSet``)
    and covers that stay valid (``Chaining``). The bounds at a point do not depend on the other rows
    of X, are differentiable in X, and have the dtype and device of X. Public attributes are
    read-only after construction, so that the guarantee stays true.

    All other methods have defaults. Override

    * ``objections`` if the theorem has further conditions;
    * ``statement_on`` and ``delta_on`` if what is proved depends on the posterior;
    * ``ridge``, ``least_ridge_on`` and ``finite_on`` if the defaults are wrong;
    * ``underlying_bounds`` if the bound is computed from others that are not its attributes;
    * ``upper``, ``lower``, ``quick_interval``, ``argmax_upper``, ``argmax_lower`` and ``inflated``
      if there is a faster way.

    Attributes:
        guarantee: Statement that holds with probability ``1 - delta`` on exact posteriors, in words
            that name every assumption; None if nothing is proved.
        delta: Probability that the statement may fail; 1 unless a subclass sets it.
        covers: What the theorem allows beyond exact posteriors, a fixed ridge and one noise level;
            empty by default. ``"sketch"``: the bounds account for the error of an approximate
            posterior, rounded up by an estimate (docs/theory/rounding.md). ``"weights"``:
            observations ``sqrt(w) k(x, .)`` and ``sqrt(w) y`` of different noise levels, with w
            chosen before the noise (docs/theory/observations.md). ``"moved ridge"``: a ridge that
            was chosen from the data. The constructor refuses other words.
        noise_std: The assumed noise level of an observation of weight 1; None if the ridge gives
            it, or if it is unknown.
        norm_bound: The assumed bound of the RKHS norm of the function; None if there is none, or if
            it follows the data.
    """

    guarantee: str | None = None
    delta: float = 1.0
    covers: frozenset[str] = frozenset()
    noise_std: float | None = None
    norm_bound: float | None = None

    def _check_constructed(self) -> None:
        owner = f"covers of {type(self).__name__}"
        for word in checks.instance(owner, self.covers, Set):
            if word not in _DEVIATIONS:
                nearest = difflib.get_close_matches(str(word), _DEVIATIONS, n=1, cutoff=0.0)
                raise InvalidInput(
                    f"{owner} has the word {word!r}: did you mean {nearest[0]!r}? The words are "
                    f"{', '.join(map(repr, _DEVIATIONS))}."
                )

    # The bounds

    @abstractmethod
    def interval(self, state: Posterior, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return lower and upper bound [...] at X [... d], in units of the targets.

        On a posterior with a batch shape (fantasies), X is [... q d] and the batch shapes broadcast.

        Raises:
            RefutedAssumptions: No function satisfies the assumptions and fits the data.
        """

    def upper(self, state: Posterior, X: Tensor) -> Tensor:
        """Return the upper bound [...] at X [... d]; see ``interval``."""
        return self._checked_interval(state, X)[1]

    def lower(self, state: Posterior, X: Tensor) -> Tensor:
        """Return the lower bound [...] at X [... d]; see ``interval``."""
        return self._checked_interval(state, X)[0]

    def _checked_interval(self, state: Posterior, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``interval``, after a check of its type and shape.

        Raises:
            InvalidInput: A subclass returned no pair of tensors with an entry for each row of X.
        """
        bounds: Any = self.interval(state, X)
        is_pair = isinstance(bounds, tuple) and len(bounds) == 2
        if not is_pair or any(bound.shape[-1:] != X.shape[-2:-1] for bound in bounds):
            raise InvalidInput(
                f"interval of {type(self).__name__} must return lower and upper bound, a pair of "
                f"tensors [...] for points X [... d], got {checks.shown(bounds)}."
            )
        return bounds

    def quick_interval(self, state: Posterior, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return valid bounds [...] at X [... d] that take less time and may be wider."""
        return self.interval(state, X)

    def argmax_upper(self, state: Posterior, X: Tensor) -> tuple[int, float]:
        """Return the first row of X [A d] with the largest upper bound, and that bound.

        While the bounds are infinite, it is the first row with the largest variance.
        """
        upper = self.upper(state, checked_candidates(state, X))
        if self.finite_on(state):
            return first_argmax(upper, upper)
        variance = state.at(self.ridge(state)).predict(X)[1]
        return first_argmax(variance, upper)

    def argmax_lower(self, state: Posterior, X: Tensor) -> tuple[int, float]:
        """Return the first row of X [A d] with the largest lower bound, and that bound.

        A subclass may return a row whose bound is nearly the largest; the bound belongs to the row.
        """
        lower = self.lower(state, checked_candidates(state, X))
        return first_argmax(lower, lower)

    def inflated(self, state: Posterior, X: Tensor, g: Tensor) -> Tensor:
        """Return draws [... N] at X [N d] with the spread of the bounds, from posterior draws g.

        The draw is ``centre + half_width * g / deviation``, where the interval is ``centre +-
        half_width``; it is g itself while the bounds are infinite.

        Args:
            state: The posterior.
            X: Points [N d].
            g: Draws [... N] of the posterior at ``ridge(state)``, less its mean.
        """
        if not self.finite_on(state):
            return g
        lower, upper = self.interval(state, X)
        centre = (lower + upper) / 2
        half_width = (upper - lower) / 2
        deviation = safe_sqrt(state.at(self.ridge(state)).predict(X)[1])
        deviation = deviation.masked_fill(deviation == 0, 1.0)  # g is zero there
        return centre + half_width * (g / deviation)

    def draw(
        self, state: Posterior, X: Tensor, count: int, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return independent draws [count N] of the function over the points X, as wide as the bounds.

        Durand, Maillard & Pineau (2018), Sec. 6.4: ``inflated`` draws of the posterior. Draws of
        the posterior itself are those of ``FixedWidth(1.0)`` if the ridge is the noise variance,
        and of ``FixedWidth(sqrt(c))`` at ridge ``noise_std^2 / c``.

        Args:
            state: The posterior.
            X: Points [N d].
            count: Number of draws.
            generator: Source of randomness, as for ``PosteriorAt.draw``.
        """
        posterior = checked_state(state).at(self.ridge(state))
        return self.inflated(state, X, posterior.draw(X, count, generator))

    def ridge(self, state: Posterior) -> float:
        """Return the ridge of mean, variance and draws, by default the posterior's own ridge."""
        return checked_state(state).ridge

    def finite_on(self, state: Posterior) -> bool:
        """Return True if the bounds are finite; if not, the standard deviation ranks points."""
        return True

    def for_trial(self, number: int) -> Confidence:
        """Return the bound that trial ``number`` maximises, by default this one for all trials."""
        return self

    def reported(self) -> Confidence | None:
        """Return the bound that is shown to users: this one, or None if it only ranks points."""
        return self

    # The guarantee

    def guarantee_on(self, state: Posterior) -> str | None:
        """Return the statement that holds on this posterior; None if there are ``objections``."""
        if self.objections(state):
            return None
        statement = self.statement_on(state)
        if state.provenance.weighted:
            statement = (
                f"{statement}; for an observation of weight w that is said of sqrt(w) times its "
                "noise, and w was known before it"
            )
        return statement

    def delta_on(self, state: Posterior) -> float:
        """Return the largest probability that the statement on this posterior fails."""
        return self.delta

    def objections(self, state: Posterior) -> list[str]:
        """Return the reasons why the theorem does not cover this posterior, in words.

        ``provenance`` and ``error`` of the posterior are compared with ``covers``. A bound that is
        computed from others has their objections too.
        """
        reasons = _objections_to_data(checked_state(state).provenance)
        for bound in self.underlying_bounds():
            reasons += bound.objections(state)
        if state.like.dtype != torch.float64:
            reasons.append(
                "in float32 rounding may move the bounds by more than their width: use float64"
            )
        if self.statement_on(state) is None:
            reasons.append(f"no theorem covers {type(self).__name__}")
        else:
            eigenvalue = state.error.negative_eigenvalue()
            if eigenvalue < 0:
                reasons.append(no_kernel(eigenvalue))
        reasons += rounding.objections(state, self.least_ridge_on(state))
        reasons += self._uncovered(state)
        return list(dict.fromkeys(reasons))

    def underlying_bounds(self) -> list[Confidence]:
        """Return the bounds from which this one is computed, by default those among its attributes.

        This bound has a guarantee only if they all have one. A subclass that keeps them in a list
        returns the list. A subclass whose statement does not need theirs returns an empty list.
        """
        return [value for value in vars(self).values() if isinstance(value, Confidence)]

    def _uncovered(self, state: Posterior) -> list[str]:
        """Return the objections to error, weights and ridge that ``covers`` does not list."""
        provenance = state.provenance
        reasons = []
        if "sketch" not in self.covers and not state.error.trace <= 0:
            reasons.append(
                "the theorem does not cover the error of the dictionary: use MartingaleMixture or "
                "SelfNormalized"
            )
        variance = provenance.unit_variance
        level = self.noise_std
        if variance is not None and level is not None and level**2 < variance * (1 - 1e-9):
            reasons.append(
                f"the noise variances that were given mean noise_std = {variance**0.5:.3g}, the "
                f"root of the ridge, and the bound assumes {level:.3g}: let the ridge be "
                "noise_std ** 2"
            )
        if "weights" not in self.covers and provenance.weighted:
            reasons.append(
                "the theorem is about one noise level, and the observations have weights"
            )
        reads_moved_ridge = provenance.ridge_moved and self.ridge(state) == state.ridge
        if "moved ridge" not in self.covers and reads_moved_ridge:
            reasons.append(
                "the ridge was chosen after the first observation, and the theorem needs one "
                "chosen before"
            )
        return reasons

    def statement_on(self, state: Posterior) -> str | None:
        """Return the statement that is proved on this posterior unless there are ``objections``.

        By default it is ``guarantee``; None if nothing is proved.
        """
        return self.guarantee

    def least_ridge_on(self, state: Posterior) -> float:
        """Return the least ridge at which the bounds read the posterior, by default ``ridge``.

        ``objections`` checks that rounding errors are small there.
        """
        return self.ridge(state)

    def __repr__(self) -> str:
        shown = []
        for name, value in vars(self).items():
            if name[0] != "_" and name != "guarantee" and not isinstance(value, Tensor):
                shown.append(f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


class WidthConfidence(Confidence):
    """Bounds ``mean +- width * sqrt(variance)`` at one ridge.

    A subclass defines ``width``. Bounds with a guarantee are widened to account for rounding.
    """

    @abstractmethod
    def width(self, state: Posterior) -> Tensor | float:
        """Return the multiplier of the standard deviation, at least 0: a number or a tensor []."""

    def interval(self, state: Posterior, X: Tensor) -> tuple[Tensor, Tensor]:
        ridge = self.ridge(state)
        posterior = state.at(ridge)
        width = self._checked_width(state)
        mean, variance = posterior.predict(X)
        if self.statement_on(state) is not None:
            width = rounding.widened(state, width, posterior.quad(), ridge)
        margin = width.to(mean) * safe_sqrt(variance)
        return mean - margin, mean + margin

    def inflated(self, state: Posterior, X: Tensor, g: Tensor) -> Tensor:
        """Return ``mean + width * g``, [... N]."""
        if not self.finite_on(state):
            return g
        mean = state.at(self.ridge(state)).predict(X)[0]
        return mean + self._checked_width(state).to(g) * g

    def _checked_width(self, state: Posterior) -> Tensor:
        """Return ``width`` as a tensor [].

        Raises:
            InvalidInput: It is neither a tensor of one entry nor a number of at least 0.
        """
        width = self.width(state)
        if isinstance(width, Tensor) and width.numel() == 1:
            return width.reshape(()) if width.ndim else width
        try:
            number = checks.real(width)
        except Exception:  # a subclass may return anything
            number = math.nan
        if not number >= 0:
            raise InvalidInput(
                f"width of {type(self).__name__} must return one number of at least 0, or a "
                f"tensor of shape [], got {checks.shown(width)}."
            )
        return torch.tensor(number, dtype=torch.float64)


def checked_state(state: Any) -> Posterior:
    """Return ``state`` if it is a posterior; the error for a model names ``model.state``."""
    return checks.instance("state", state, Posterior, "; that of a model is model.state")


def checked_candidates(state: Posterior, X: Tensor) -> Tensor:
    """Return the points X [A d] among which one is chosen, after a check of both arguments.

    Raises:
        InvalidInput: X has another shape, or the posterior has batches, whose best points differ.
    """
    if checks.shaped("X", X).ndim != 2 or not X.shape[0]:
        raise InvalidInput(f"X must have shape [A d] with at least one row, got {tuple(X.shape)}.")
    if checked_state(state).batch_shape:
        raise InvalidInput(
            "state has batches of hypothetical data (fantasies), of shape "
            f"{tuple(state.batch_shape)}, and one point is chosen for one posterior: pass that of "
            "one fantasy."
        )
    return X


def first_argmax(scores: Tensor, bounds: Tensor) -> tuple[int, float]:
    """Return the number of the first row with the largest score, and the bound of that row.

    Args:
        scores: The numbers [A] that are compared.
        bounds: The bounds [A] of the same rows, in units of the targets.

    Raises:
        InvalidInput: The score or the bound of that row is NaN.
    """
    argmax = scores.argmax()  # a row of NaN, if there is one
    row, score, bound = read(argmax, scores.take(argmax), bounds.take(argmax))
    if math.isnan(score) or math.isnan(bound):
        raise _nan_error("bound", int(row))
    return int(row), bound


def not_nan(values: Tensor, quantity: str) -> Tensor:
    """Return values [...], after a check for NaN, which comparisons would hide.

    Args:
        values: The values, a row for each point.
        quantity: What they are, in words for the message.

    Raises:
        InvalidInput: A value is NaN.
    """
    is_nan = values.isnan()
    if bool(is_nan.any()):
        raise _nan_error(quantity, int(is_nan.nonzero()[0, 0]))
    return values


def _nan_error(quantity: str, row: int) -> InvalidInput:
    """Return the error for a quantity that is NaN at the point of a row."""
    return InvalidInput(
        f"the {quantity} is NaN at point {row}, so nothing can be concluded: every kernel value and "
        "every observation must be a finite number. Check the kernel's values at these points "
        "and its parameters."
    )


def _objections_to_data(provenance: Provenance) -> list[str]:
    """Return the reasons why no theorem, of any bound, covers data of this provenance."""
    n_repeats, n_equal_repeats = provenance.repeats
    reasons = list(provenance.caveats)
    if provenance.hypothetical:
        reasons.append(
            "some observations are hypothetical (fantasies, points chosen for a batch): use the "
            "observed data alone"
        )
    if n_repeats > 0 and n_equal_repeats == n_repeats:
        reasons.append(
            f"each of the {n_repeats} repeated observations has exactly the value before, so "
            "noise is not independent: does the objective fix a random seed?"
        )
    return reasons
