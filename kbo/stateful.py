"""Forks and state dicts, written once for every object that remembers data."""

from __future__ import annotations

import copy
import functools
import itertools
import math
import os
import zlib
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, Self, TypeVar

from torch import Tensor

from kbo.errors import InvalidInput, KboError
from kbo.locking import Lock, after_fork_in_child

C = TypeVar("C", bound=type)

_versions = itertools.count()


def _restart_versions() -> None:
    """Begin at a random number: versions that were pickled in another process are never met again."""
    global _versions
    _versions = itertools.count(int.from_bytes(os.urandom(7), "big"))


_restart_versions()
after_fork_in_child(_restart_versions)


def fresh_version() -> int:
    """Return a number larger than all before in this process: equal versions mean equal contents."""
    return next(_versions)


def passed_on(path: str) -> Any:
    """Return the attribute or method of a class that is read from a part of its objects, by ``part.name``."""
    return property(attrgetter(path))


def passes_on(part: str, *names: str) -> Callable[[C], C]:
    """Return a class decorator: these inherited attributes and methods are those of a part of the object."""

    def decorated(cls: C) -> C:
        for name in names:
            setattr(cls, name, passed_on(f"{part}.{name}"))
        return cls

    return decorated


class Stateful:
    """An object whose memory is its attributes.

    A fork copies what may change: stateful parts (once, also where two attributes refer to the same part), lists, sets
    and dicts; it has a lock of its own. Everything else is shared, tensors too: they are never written in place, except
    in the growing buffers of ``kbo.linalg``, which copy them.
    """

    saved: tuple[str, ...] = ()
    """The attributes that a state dict holds; the others are constants of construction, or derived from these."""

    def fork(self) -> Self:
        """Return an independent copy."""
        return _forked(self, {})

    def fork_with(self, memo: dict[int, Any]) -> Self:
        """Return a copy, with parts that were copied already taken from ``memo`` (by the identity of the original)."""
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        for name, value in vars(self).items():
            vars(twin)[name] = _forked(value, memo)
        return twin

    def state_dict(self) -> dict[str, Any]:
        """Return plain values and tensors with a checksum, from which ``load_state_dict`` continues exactly."""
        state = _plain(self)
        return {**state, "checksum": checksum(state)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replace the memory by that of ``state_dict``, for an equally constructed object.

        Raises:
            InvalidInput: The state is of another class, of an object that was constructed otherwise or of another
                version of kbo, or was changed or damaged since it was made; then the memory stays as it is.
        """
        name = type(self).__name__
        plain = {key: state[key] for key in state if key != "checksum"} if isinstance(state, dict) else state
        self.check_state_dict(plain)
        if state.get("checksum") != checksum(plain):
            raise InvalidInput(
                f"the state dict of a {name} does not have the checksum that was made with it: it was changed or "
                "damaged. Load another copy, or build the object from its data."
            )
        try:
            self.fork().restore(plain)  # a rehearsal: a failure changes a copy only
        except KboError:
            raise
        except Exception as error:
            raise InvalidInput(
                f"the state dict does not fit this {name} ({error!s:.200}): load it into an equally constructed object."
            ) from error
        self.restore(plain)

    def restore(self, state: dict[str, Any]) -> None:
        """Replace the memory by a part of a state dict whose checksum is right; what differs from it may raise."""
        self.check_state_dict(state)
        for name in self.saved:
            part = getattr(self, name)
            if isinstance(part, Stateful):
                part.restore(state[name])
            else:
                setattr(self, name, _plain(state[name]))
        self.restored()

    def restored(self) -> None:
        """Derive what is not saved from what is; called at the end of ``restore``."""

    def check_state_dict(self, state: dict[str, Any]) -> None:
        """Raise InvalidInput unless the state is of this class."""
        own = type(self).__name__
        if not isinstance(state, dict) or state.get("class") != own or set(state) != {"class", *self.saved}:
            found = state.get("class", "an unknown class") if isinstance(state, dict) else f"a {type(state).__name__}"
            raise InvalidInput(
                f"a {own} loads the state dict of a {own} of this version of kbo, got that of {found!s:.80}. States "
                "of another class or of kbo 0.8 and earlier cannot be loaded: build the object from its data again."
            )


def _forked(value: Any, memo: dict[int, Any]) -> Any:
    if isinstance(value, Stateful):
        return memo[id(value)] if id(value) in memo else value.fork_with(memo)
    if isinstance(value, dict):
        first = next(iter(value.values()), None)
        return {key: _forked(part, memo) for key, part in value.items()} if isinstance(first, Stateful) else dict(value)
    return copy.copy(value) if isinstance(value, list | set | Lock) else value


def _plain(value: Any) -> Any:
    if isinstance(value, Stateful):
        return {"class": type(value).__name__, **{name: _plain(getattr(value, name)) for name in value.saved}}
    return value.clone() if isinstance(value, Tensor) else copy.copy(value)


def checksum(value: Any) -> float:
    """Return the CRC-32 of tensors and plain values, nested in dicts and lists; NaN, equal to none, if it has none."""
    try:
        return functools.reduce(lambda crc, part: zlib.crc32(part, crc), _bytes_of(value), 0)
    except (TypeError, ValueError, RuntimeError):  # of sparse tensors, of those without data, and the like
        return math.nan


def _bytes_of(value: Any) -> Iterator[bytes]:
    if isinstance(value, Tensor):
        yield f"{value.dtype} {tuple(value.shape)}".encode()
        yield value.detach().cpu().contiguous().numpy().tobytes()
    elif isinstance(value, dict):
        for key, part in value.items():
            yield repr(key).encode()
            yield from _bytes_of(part)
    elif isinstance(value, list | tuple) and any(isinstance(part, Tensor | dict | list | tuple) for part in value):
        yield f"{type(value).__name__} {len(value)}".encode()
        for part in value:
            yield from _bytes_of(part)
    else:
        yield repr(value).encode()
