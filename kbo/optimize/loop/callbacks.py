"""Functions of the user that are called after each trial."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from kbo._base import checks
from kbo._base.isolation import as_caller
from kbo.errors import Stop
from kbo.optimize.result import Result
from kbo.optimize.run.trials import Trial

OnTrial = Callable[[Trial, Result], Any]
"""A function of an ended trial and the result so far; it ends the run by returning True or raising ``kbo.Stop``."""


class Callbacks:
    """The functions ``on_trial`` of a run.

    A function that is also a context manager is entered before the first trial. It is left after the last one, with the
    error if one ended the run.

    Args:
        on_trial: A function, a list of them, or None.

    Raises:
        InvalidInput: An argument of another kind.
    """

    def __init__(self, on_trial: OnTrial | Sequence[OnTrial] | None) -> None:
        functions: list[Any] = []
        if isinstance(on_trial, (list, tuple)):
            functions = list(on_trial)
        elif on_trial is not None:
            functions = [on_trial]
        self._functions: list[Any] = [
            checks.function("on_trial", function) for function in functions
        ]

    def __bool__(self) -> bool:
        return bool(self._functions)

    def opened(self) -> contextlib.ExitStack:
        """Enter the functions that are context managers, and return the stack that will leave them."""
        with contextlib.ExitStack() as stack:
            for function in self._functions:
                if hasattr(function, "__enter__"):
                    with as_caller():
                        function.__enter__()
                    stack.push(_left(function))
            return stack.pop_all()

    def __call__(self, trial: Trial, result: Result) -> str:
        """Call all functions, and return the first reason to stop, or an empty text."""
        first_reason = ""
        for function in self._functions:
            reason = _reason_of(function, trial, result)
            first_reason = first_reason or reason
        return first_reason


def _left(manager: Any) -> Callable[..., Any]:
    """Return a function that leaves a context manager of the user, with the user's settings of PyTorch."""

    def leave(*error: Any) -> Any:
        with as_caller():
            return manager.__exit__(*error)

    return leave


def _reason_of(function: OnTrial, trial: Trial, result: Result) -> str:
    """Call a function of the user, and return its reason to stop, or an empty text."""
    try:
        with as_caller():
            answer = function(trial, result)
    except Stop as error:
        if str(error):
            return f"stopped by on_trial: {error}"
        return "stopped by on_trial"
    if answer is True:
        return "stopped by on_trial"
    return ""
