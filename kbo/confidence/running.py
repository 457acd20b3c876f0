"""Intervals over a finite set, intersected over the rounds."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from kbo import checks
from kbo.confidence.base import Confidence, decided
from kbo.covers.reuse import contains
from kbo.errors import InvalidInput, RefutedAssumptions
from kbo.regression import Posterior

_ROUNDING = 1e-6
"""Part of the bounds by which intervals may cross by rounding."""


class RunningIntersection(Confidence):
    """The intersection of all intervals so far of another confidence, over a finite set: never wider than the last one.

    Where all intervals hold at once, so does their intersection: the same event, the same delta
    (docs/theory/running.md). Only observed data and rounds in which the theorem of the confidence holds enter, those
    without ``objections``; its statement must be about all of these rounds at once, as is that of every confidence of
    kbo. On hypothetical observations the bounds are those of the confidence alone.

    One object follows one state (or its views), as it learns, and remembers 2 N numbers; ``interval`` calls ``update``.
    Bounds have no gradients.

    Args:
        confidence: The confidence.
        points: The finite set [N d].

    Raises:
        InvalidInput: Points of another shape, or not finite.

    Example:
        >>> bounds = RunningIntersection(MartingaleMixture(0.1, 5.0, 0.1), arms)
        >>> lower, upper = bounds.interval(state, arms)
    """

    covers_sketches = covers_weights = True

    def __init__(self, confidence: Confidence, points: Tensor) -> None:
        self.confidence: Confidence = checks.instance("confidence", confidence, Confidence)
        self.points: Tensor = checks.rows("points", points).detach().clone()
        unknown = torch.full_like(self.points[:, 0], math.inf)
        self.bounds: tuple[Tensor, Tensor] = -unknown, unknown
        self._statement: str | None = None  # in the last round that entered
        self._version: int | None = None
        self._prior_version: int | None = None
        self._prior: Tensor | None = None  # at a few points, to know the kernel again in another process
        self._n, self._locations = 0, ()

    def __repr__(self) -> str:
        return f"RunningIntersection({self.confidence!r}, {len(self.points)} points, n={self._n})"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_version": None, "_prior_version": None}  # versions are numbers of one process

    def statement_on(self, state: Posterior) -> str | None:
        """Return the statement of the confidence in the last round that entered."""
        return f"{self._statement}; intervals are intersected over the rounds"

    def delta_on(self, state: Posterior) -> float:
        """Return that of the confidence."""
        return self.confidence.delta_on(state)

    def objections(self, state: Posterior) -> list[str]:
        """Return the reasons against any theorem on this posterior; those of the confidence while no round entered."""
        if not state.hypothetical:
            self.update(state)
        return state.objections() if self._statement else self.confidence.objections(state)

    def finite_on(self, state: Posterior) -> bool:
        """Return whether the bounds are finite yet."""
        if state.hypothetical:
            return self.confidence.finite_on(state)
        self.update(state)
        return bool(torch.isfinite(torch.stack(self.bounds)).all())

    def interval(self, state: Posterior, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return lower and upper bound [...] at X [... d], rows of the finite set.

        Raises:
            InvalidInput: X has a row that is not in the set, or errors as for ``update``.
            RefutedAssumptions: The intervals of some point do not intersect.
        """
        if state.hypothetical:
            return self.confidence.interval(state, X)
        self.update(state)
        rows, (lower, upper) = self._rows(X), self.bounds
        return lower[rows].to(X), upper[rows].to(X)

    @torch.no_grad()
    def update(self, state: Posterior) -> None:
        """Intersect with the intervals on ``state``, if it has changed and the theorem holds on it.

        Raises:
            InvalidInput: The state is hypothetical, has forgotten data that the intervals rest on, or is another one.
            RefutedAssumptions: The intervals of some point do not intersect.
        """
        if state.version != self._version:
            self._follow(state)
            if not self.confidence.objections(state):
                interval = self.confidence.interval(state, self.points.to(state.device))
                lower, upper = (decided(side, "bound") for side in interval)
                least, most = self.bounds
                vars(self)["bounds"] = torch.maximum(lower, least.to(lower)), torch.minimum(upper, most.to(upper))
                self._statement = self.confidence.statement_on(state)
            self._version = state.version
        lower, upper = self.bounds
        crossing = lower - upper - _ROUNDING * (lower.abs() + upper.abs()).nan_to_num(0.0, posinf=0.0)
        if bool((crossing > 0).any()):
            worst = int(crossing.argmax())
            raise RefutedAssumptions(
                f"The data refute the assumptions: intervals of different rounds at row {worst} of the points do not "
                f"intersect. Where these hold, that does not occur: {self._statement}",
                n=state.n,
                lower=float(lower[worst]),
                upper=float(upper[worst]),
            )

    def _follow(self, state: Posterior) -> None:
        """Check that ``state`` is the one that was followed so far, with more data at most, and remember its data."""
        if state.hypothetical:
            raise InvalidInput("hypothetical observations do not enter an intersection: pass state.observed.")
        known, few = state.locations or (), self.points[:8].to(state.device)
        prior = state.prior(few, few) if self._prior is None or self._prior_version is None else self._prior
        if (
            state.n < self._n
            or (self._prior is not None and not torch.allclose(prior, self._prior.to(prior), rtol=1e-9, atol=0.0))
            or self._prior_version not in (None, state.prior_version)
            or (self._locations and not contains(known, self._locations))
        ):
            raise InvalidInput(
                f"these intervals rest on {self._n} observations that this state, of {state.n} observations, lacks, or "
                "on another kernel: one RunningIntersection follows one state as it learns. Construct another one."
            )
        self._n, self._prior_version, self._prior = state.n, state.prior_version, prior
        self._locations = tuple(part.detach().clone() for part in known)

    def _rows(self, X: Tensor) -> Tensor:
        """Return the numbers [...] of the rows of X [... d] in the finite set."""
        points, flat = self.points.to(X), checks.points("X", X).detach().reshape(-1, X.shape[-1])
        if points.shape == flat.shape and torch.equal(points, flat):
            return torch.arange(len(points), device=X.device).reshape(X.shape[:-1])
        checks.points("X", X, points, points.shape[-1])
        distinct, places = torch.cat([points, flat]).unique(dim=0, return_inverse=True)
        number = places.new_full((len(distinct),), -1)
        number[places[: len(points)]] = torch.arange(len(points), device=X.device)
        rows = number[places[len(points) :]]
        if bool((rows < 0).any()):
            raise InvalidInput("X has rows that are not among the points of the intersection: pass rows of points.")
        return rows.reshape(X.shape[:-1])
