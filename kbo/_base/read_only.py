"""Numbers that a statement names are read-only once an object is constructed.

A later change would alter the bounds, but not the numbers that were fixed before the data.
"""

from __future__ import annotations

import inspect
from abc import ABCMeta
from collections.abc import Sequence
from typing import Any, TypeVar

from kbo.errors import InvalidInput

T = TypeVar("T")


class _MarksConstructed(ABCMeta):
    """Metaclass that marks objects whose constructor has ended."""

    @property
    def __signature__(cls) -> inspect.Signature:
        """The arguments of the constructor, for ``help`` and editors, in place of those of ``__call__``."""
        parameters = list(inspect.signature(cls.__init__).parameters.values())
        return inspect.Signature(parameters[1:])

    def __call__(cls: type[T], *args: Any, **kwargs: Any) -> T:
        instance: Any = type.__call__(cls, *args, **kwargs)
        instance._check_constructed()
        vars(instance)["_constructed"] = True
        return instance


class ReadOnly(metaclass=_MarksConstructed):
    """An object with attributes that are read-only once it is constructed.

    A subclass may list their names in ``_read_only``; by default they are all public ones.
    """

    _read_only: Sequence[str] | None = None

    def _check_constructed(self) -> None:
        """Raise InvalidInput if an attribute cannot be used; called once, after the constructor."""

    def __setattr__(self, name: str, value: Any) -> None:
        self._check_writable(name)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        self._check_writable(name)
        super().__delattr__(name)

    def _check_writable(self, name: str) -> None:
        """Raise InvalidInput if an attribute is read-only."""
        if self._read_only is None:
            is_read_only = not name.startswith("_")
        else:
            is_read_only = name in self._read_only
        if is_read_only and "_constructed" in vars(self):
            kind = type(self).__name__
            raise InvalidInput(
                f"{name} of a {kind} is read-only: its statement names what was fixed before the "
                f"data. Construct another {kind} instead."
            )
