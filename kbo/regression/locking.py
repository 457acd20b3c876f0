"""Posteriors in several threads: who reads or changes one has it alone."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from kbo import checks
from kbo.errors import InvalidInput


def own(state: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the lock of the object whose method is called."""
    return state.lock


def of_state(confidence: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the lock of the posterior that is the first argument of a method.

    Raises:
        InvalidInput: The argument is something else.
    """
    lock = getattr(state, "lock", None)
    if lock is None or isinstance(state, type):
        raise InvalidInput(
            f"state must be a posterior of kbo.regression, got {checks.shown(state)}; that of a model is model.state."
        )
    return lock


def lock_methods(cls: type, names: Iterable[str], lock: Callable[..., Any], inherited: bool = False) -> None:
    """Make these methods and properties of a class hold a lock while they run.

    Args:
        cls: The class.
        names: The methods and properties; those that it does not define are left out.
        lock: The lock as a function of the arguments of the method: ``own`` or ``of_state``.
        inherited: Whether those that it inherits are taken too.
    """
    for name in names:
        found = getattr(cls, name, None) if inherited else vars(cls).get(name)
        if isinstance(found, property):
            setattr(cls, name, property(_alone(found.fget, lock), doc=found.__doc__))
        elif found is not None:
            setattr(cls, name, _alone(found, lock))


def _alone(method: Any, lock: Callable[..., Any]) -> Callable:
    @functools.wraps(method)
    def alone(*args: Any, **kwargs: Any) -> Any:
        with lock(*args, **kwargs):
            return method(*args, **kwargs)

    return alone
