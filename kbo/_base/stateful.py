"""Forks: cheap independent copies of objects that keep data."""

from __future__ import annotations

import copy
import secrets
from operator import attrgetter
from typing import Any, Self


def fresh_version() -> int:
    """Return a random whole number of 64 bits, in practice unique in all processes."""
    return secrets.randbits(64)


def delegated_to(path: str) -> Any:
    """Return a property that reads an attribute or a method of a component.

    Args:
        path: The attributes from the object to the result, such as ``state.n``.
    """
    return property(attrgetter(path))


class Stateful:
    """An object that can be forked: its attributes are its whole state.

    A fork has its own stateful components, lists, sets and dicts. It shares everything else with the original, also
    tensors: no tensor is written in place, except the growing buffers of ``kbo._base.linalg``, which a fork copies. If
    several attributes share a component, those of the fork share its copy. For files and other processes use
    ``pickle``.
    """

    def fork(self) -> Self:
        """Return an independent copy."""
        return _forked(self, {})

    def _fork_with(self, forks: dict[int, Any]) -> Self:
        """Return a copy.

        Args:
            forks: The components copied so far, by the ``id`` of the original.
        """
        fork = object.__new__(type(self))
        forks[id(self)] = fork
        for name, value in vars(self).items():
            vars(fork)[name] = _forked(value, forks)
        return fork


def _forked(value: Any, forks: dict[int, Any]) -> Any:
    """Return the value of an attribute for a fork: a copy if it may change in place, else the value itself."""
    if isinstance(value, Stateful):
        if id(value) not in forks:
            forks[id(value)] = value._fork_with(forks)
        return forks[id(value)]
    if isinstance(value, list) and value and isinstance(value[0], Stateful):
        return [_forked(component, forks) for component in value]
    if isinstance(value, dict) and isinstance(next(iter(value.values()), None), Stateful):
        return {key: _forked(component, forks) for key, component in value.items()}
    if isinstance(value, list | dict | set):
        return copy.copy(value)
    return value
