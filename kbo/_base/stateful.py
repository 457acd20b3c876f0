"""Forks and state dicts, written once for every object that remembers data."""

from __future__ import annotations

import copy
import secrets
from operator import attrgetter
from typing import Any, Self

from torch import Tensor

from kbo.errors import InvalidInput


def fresh_version() -> int:
    """Return a random number that nothing else has, in any process: equal versions mean equal contents."""
    return secrets.randbits(64)


def passed_on(path: str) -> Any:
    """Return the attribute or method of a class that is read from a part of its objects, by ``part.name``."""
    return property(attrgetter(path))


class Stateful:
    """An object whose memory is its attributes.

    A fork copies what may change: stateful parts (once, also where two attributes refer to the same
    part), lists, sets and dicts. Everything else is shared, tensors too: they are never written in
    place, except in the growing buffers of ``kbo._base.linalg``, which copy them.
    """

    saved: tuple[str, ...] = ()
    """The attributes that a state dict holds.

    The others are constants of construction, or derived from these.
    """

    def fork(self) -> Self:
        """Return an independent copy."""
        return _forked(self, {})

    def _fork_with(self, memo: dict[int, Any]) -> Self:
        """Return a copy, with parts that were copied already taken from ``memo`` (by the identity of the original)."""
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        for name, value in vars(self).items():
            vars(twin)[name] = _forked(value, memo)
        return twin

    def state_dict(self) -> dict[str, Any]:
        """Return plain values and tensors, from which ``load_state_dict`` continues exactly."""
        return {
            "class": type(self).__name__,
            **{name: _plain(getattr(self, name)) for name in self.saved},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replace the memory by that of ``state_dict``, for an equally constructed object.

        Raises:
            InvalidInput: The state is of another class, or of an object that was constructed
                otherwise.
        """
        self._check_state(state)
        self._load(state)
        self._restored()

    def _load(self, state: dict[str, Any]) -> None:
        """Replace the saved attributes."""
        for name in self.saved:
            part = getattr(self, name)
            if isinstance(part, Stateful):
                part.load_state_dict(state[name])
            elif _parts(part):
                loaded = [one.fork() for one in part]  # all or none of them
                for one, its in zip(loaded, state[name], strict=True):
                    one.load_state_dict(its)
                setattr(self, name, loaded)
            else:
                setattr(self, name, _plain(state[name]))

    def _restored(self) -> None:
        """Derive what is not saved from what is; called at the end of ``load_state_dict``."""

    def _check_state(self, state: dict[str, Any], *more: str) -> None:
        """Raise InvalidInput unless the state is of this class, with these entries more."""
        own = type(self).__name__
        if (
            not isinstance(state, dict)
            or state.get("class") != own
            or set(state) != {"class", *self.saved, *more}
        ):
            found = (
                state.get("class", "an unknown class")
                if isinstance(state, dict)
                else f"a {type(state).__name__}"
            )
            raise InvalidInput(
                f"a {own} loads the state dict of a {own} of this version of kbo, got that of {found!s:.80}. States "
                "of another class or of kbo 0.16 and earlier cannot be loaded: build the object from its data again."
            )


def _forked(value: Any, memo: dict[int, Any]) -> Any:
    if isinstance(value, Stateful):
        return memo[id(value)] if id(value) in memo else value._fork_with(memo)
    if isinstance(value, dict):
        first = next(iter(value.values()), None)
        return (
            {key: _forked(part, memo) for key, part in value.items()}
            if isinstance(first, Stateful)
            else dict(value)
        )
    if _parts(value):
        return [_forked(part, memo) for part in value]
    return copy.copy(value) if isinstance(value, list | set) else value


def _parts(value: Any) -> bool:
    """Return whether a value is a list of stateful parts."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], Stateful)


def _plain(value: Any) -> Any:
    if isinstance(value, Stateful):
        return value.state_dict()
    if _parts(value):
        return [part.state_dict() for part in value]
    return value.clone() if isinstance(value, Tensor) else copy.copy(value)
