"""Where to go next: points that fill the space, and points whose bounds are the largest there."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from kbo.acquisition.thompson import drawn_at, inflated
from kbo.confidence import Confidence
from kbo.optimize.context import Question
from kbo.optimize.search import argmax
from kbo.regression import Hypothetical, Posterior, draw_path
from kbo.space import Space

_MOST_POINTS = 10_000
"""Points of a finite space that are all looked at."""


class SpaceGap(NamedTuple):
    """The optimality gap over a space.

    Attributes:
        value: The optimum is at most this much better than the recommendation, if the bounds hold.
        exact: Whether every point of the space was looked at, or many starts were searched from.
    """

    value: float
    exact: bool


class Search(NamedTuple):
    """Where to look.

    Attributes:
        space: Makes features of points.
        question: The part of the space that is searched.
        starts: Promising points [s P].
        generator: Source of randomness.
    """

    space: Space
    question: Question
    starts: Tensor
    generator: torch.Generator


def filling(question: Question, number: int, seed: int, generator: torch.Generator) -> Tensor:
    """Point [P] ``number`` of a design that fills the space, with the context in place; one of the choices if any."""
    if question.choices is not None:
        return question.at_random(generator)
    sobol = SobolEngine(len(question.fixed), scramble=True, seed=seed)
    return question.place(sobol.fast_forward(number).draw(1, dtype=torch.float64)[0])


def most_promising(confidence: Confidence, view: Posterior, search: Search) -> Tensor:
    """A point [P] of the unit cube whose upper bound is nearly the largest; exactly so among choices.

    Args:
        confidence: The bound.
        view: The posterior.
        search: Where to look.
    """
    space, question, starts, generator = search

    def score(U: Tensor) -> Tensor:
        return confidence.quick_upper(view, space.features(U))

    def argmax_upper(U: Tensor) -> int:
        return confidence.argmax_upper(view, space.features(U))[0]

    if question.choices is not None:
        return question.choices[argmax_upper(question.choices)]
    return argmax(score, starts, generator, argmax_upper, question.fixed)


@torch.no_grad()
def drawn(confidence: Confidence, view: Posterior, search: Search) -> Tensor:
    """A point [P] of the unit cube at which one draw of the function, as wide as the confidence, is nearly the largest.

    Arguments as ``most_promising``.
    """
    space, question, starts, generator = search
    path = draw_path(view, space.features(starts), generator, drawn_at(confidence, view))

    def score(U: Tensor) -> Tensor:
        features = space.features(U)
        return inflated(confidence, view, features, path(features))

    if question.choices is not None:
        return question.choices[int(score(question.choices).argmax())]
    return argmax(score, starts, generator, fixed=question.fixed)


def argmax_lower(confidence: Confidence, view: Posterior, search: Search) -> Tensor:
    """As ``most_promising``, for the lower bound."""
    space, question, starts, generator = search

    def score(U: Tensor) -> Tensor:
        return confidence.lower(view, space.features(U))

    if question.choices is not None:
        return question.choices[confidence.argmax_lower(view, space.features(question.choices))[0]]
    return argmax(score, starts, generator, fixed=question.fixed)


def largest_upper(
    confidence: Confidence, state: Posterior, space: Space, starts: Tensor, generator: torch.Generator
) -> tuple[Tensor, bool]:
    """The largest upper bound [] of a space, and whether every point was looked at, not only a search made."""
    points = space.points(_MOST_POINTS)
    if points is not None:
        return torch.tensor(confidence.argmax_upper(state, space.features(points))[1], dtype=torch.float64), True
    point = most_promising(confidence, state, Search(space, Question(space), starts, generator))
    return confidence.upper(state, space.features(point.unsqueeze(0)))[0], False


def imagined(state: Posterior, failed: Tensor | None, worst: float, pending: Tensor | None) -> Posterior:
    """The posterior in whose light the next point is chosen; what is reported never rests on it.

    Pending points are hallucinated at the mean. Failed ones are imagined as bad as the worst value seen, or the
    search would return to them: the data say nothing against them.

    Args:
        state: The posterior of the values seen.
        failed: Features [f D] of failed points.
        worst: The worst value seen, as the posterior holds it.
        pending: Features [p D] of pending points.
    """
    view = state
    if failed is not None:
        view = Hypothetical(view, failed, failed.new_full((len(failed),), worst))
    return view if pending is None else Hypothetical(view, pending)
