"""Functions of the caller in place of parts of the practical setting: checks of their answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kbo import checks
from kbo.confidence import Confidence
from kbo.errors import InvalidInput
from kbo.kernels import freeze
from kbo.optimize.model import Fitted, Model
from kbo.optimize.proposal import Find, Search
from kbo.optimize.recommendation import Recommend
from kbo.regression import Posterior

PARTS = ("model", "search", "recommend")


def _unusable(part: str, function: Callable[..., Any], found: Any, expected: str) -> InvalidInput:
    return InvalidInput(f"{part} ({checks.name_of(function)}) must return {expected}, got {checks.shown(found)}.")


def fitted_by(model: Model, X: Tensor, y: Tensor, noise_std: float | None) -> Fitted:
    """Return what a model fits to values y [n] at features X [n D]."""
    found = model(X, y, noise_std)
    if not isinstance(found, Fitted):
        raise _unusable("model", model, found, "a kbo.optimize.Fitted, for example that of kbo.optimize.fit_values")
    try:
        freeze(found.kernel, X)(X[:1], X[:1])
    except (RuntimeError, IndexError, InvalidInput) as error:
        expected = f"a kernel on the {X.shape[-1]} features of the space ({checks.shown(str(error))})"
        raise _unusable("model", model, found.kernel, expected) from error
    return found


def found_by(find: Find, confidence: Confidence, posterior: Posterior, search: Search) -> Tensor:
    """Return the point [P] that a search finds, with the context in place."""
    found, restriction = find(confidence, posterior, search), search.restriction
    point: Any = found.detach().to(restriction.fixed) if isinstance(found, Tensor) else found
    P, listed = len(restriction.fixed), restriction.choices
    usable = isinstance(point, Tensor) and point.shape == (P,) and bool(((point >= 0) & (point <= 1)).all())
    if not usable or (listed is not None and not bool((listed == point).all(-1).any())):
        of = (
            f"a point [{P}] of the unit cube"
            if listed is None
            else f"one of the points search.restriction.choices [{P}]"
        )
        raise _unusable("search", find, point, f"{of}, for example search.argmax(score)")
    placed = restriction.place(point)
    if not bool(restriction.satisfies(placed.unsqueeze(0))):
        raise _unusable("search", find, point, "a point that satisfies the constraints, as search.argmax(score) does")
    return placed


def merits_by(recommend: Recommend, posterior: Posterior, features: Tensor, values: Tensor) -> Tensor:
    """Return the merits [n] of completed trials with features [n D] and values [n]."""
    merit: Any = recommend(posterior, features, values)
    if not isinstance(merit, Tensor) or merit.shape != values.shape or not bool(torch.isfinite(merit).all()):
        raise _unusable("recommend", recommend, merit, f"a finite number for each trial, a tensor [{len(values)}]")
    return merit.to(values)
