"""The advice for arguments that a function does not have, but other libraries do."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_ELSEWHERE = {
    "budget": "n_trials",
    "iterations": "n_trials",
    "max_evals": "n_trials",
    "n_calls": "n_trials",
    "n_iter": "n_trials",
    "total_trials": "n_trials",
    "direction": "maximize",
    "maximize": "maximize",
    "mode": "maximize",
    "sense": "maximize",
    "directions": "objectives",
    "dimensions": "bounds",
    "parameters": "bounds",
    "search_space": "bounds",
    "space": "bounds",
    "fn": "objective",
    "func": "objective",
    "callback": "on_trial",
    "callbacks": "on_trial",
    "n_jobs": "workers",
    "random_state": "seed",
    "storage": "journal",
    "x0": "try_first",
    "noise": "noise_std",
}
"""Arguments of ``minimize``, ``Optimizer`` and settings for those of other libraries."""


def naming_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that says, of an argument that it does not have, what it is called in kbo."""
    names = [name for name in inspect.signature(function).parameters if name != "self"]
    caller = function.__qualname__.removesuffix(".__init__")

    @functools.wraps(function)
    def checked(*arguments: P.args, **options: P.kwargs) -> R:
        for option in options:
            if option in names:
                continue
            name = _ELSEWHERE.get(option) or _similar(option, names)
            advice = f"the arguments are {', '.join(names)}."
            if name in names:
                advice = f"did you mean {name}?"
            elif (
                name == "maximize"
            ):  # the direction of ``minimize`` and ``maximize``, which is in their names
                advice = "kbo.maximize is for values of which larger ones are better, kbo.minimize for smaller ones."
            raise TypeError(f"{caller} has no argument {option!r}: {advice}")
        return function(*arguments, **options)

    return checked


def _similar(option: str, names: Sequence[str]) -> str:
    """Return the name that a wrong one probably means; empty if none is similar.

    Names that begin with the wrong one, or with which it begins, come first.
    """
    beginnings = [name for name in names if name.startswith(option) or option.startswith(name)]
    for candidates in (beginnings, names):
        similar = difflib.get_close_matches(option, candidates, n=1)
        if similar:
            return similar[0]
    return ""
