"""Posteriors in several threads: who reads or changes one has it alone."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from kbo import checks
from kbo.errors import InvalidInput


def lock_methods(cls: type, names: Iterable[str], inherited: bool = False) -> None:
    """Make these methods and properties of a class hold ``lock``, that of the object itself, while they run.

    Args:
        cls: The class.
        names: The methods and properties; those that it does not define are left out.
        inherited: Whether those that it inherits are taken too.
    """
    _replace(cls, names, _alone, inherited)


def lock_first_argument(cls: type, names: Iterable[str], inherited: bool = False) -> None:
    """Make these methods hold the ``lock`` of their first argument, a posterior; arguments as ``lock_methods``.

    They raise InvalidInput for anything else in its place.
    """
    _replace(cls, names, _alone_with, inherited)


def _replace(cls: type, names: Iterable[str], locked: Callable, inherited: bool) -> None:
    for name in names:
        found = getattr(cls, name) if inherited else vars(cls).get(name)
        if isinstance(found, property):
            setattr(cls, name, property(locked(found.fget), doc=found.__doc__))
        elif found is not None:
            setattr(cls, name, locked(found))


def _alone(method: Callable) -> Callable:
    @functools.wraps(method)
    def alone(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self.lock:
            return method(self, *args, **kwargs)

    return alone


def _alone_with(method: Callable) -> Callable:
    @functools.wraps(method)
    def alone(self: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        if not hasattr(state, "lock") or isinstance(state, type):
            raise InvalidInput(
                f"state must be a posterior of kbo.regression, got {checks.shown(state)}; that of a model is "
                "model.state."
            )
        with state.lock:
            return method(self, state, *args, **kwargs)

    return alone
