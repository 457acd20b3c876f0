"""Objects whose attributes are read-only after construction, because a guarantee states them.

A guarantee holds for numbers that were fixed before the data, so nobody may change them later.
"""

from __future__ import annotations

import inspect
from abc import ABCMeta
from collections.abc import Sequence
from typing import Any, TypeVar

from kbo.errors import InvalidInput

T = TypeVar("T")


class _MarksConstructed(ABCMeta):
    """A metaclass that marks an object when its constructor has ended."""

    @property
    def __signature__(cls) -> inspect.Signature:
        """The arguments of the constructor, for ``help`` and editors; otherwise they would see ``__call__``."""
        parameters = list(inspect.signature(cls.__init__).parameters.values())
        return inspect.Signature(parameters[1:])

    def __call__(cls: type[T], *args: Any, **kwargs: Any) -> T:
        instance: Any = type.__call__(cls, *args, **kwargs)
        instance._check_constructed()
        vars(instance)["_constructed"] = True
        return instance


class ReadOnly(metaclass=_MarksConstructed):
    """An object whose attributes are read-only after construction.

    A subclass may list the names of these attributes in ``_read_only``. By default they are all public attributes.
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
