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


class _Marking(ABCMeta):
    """Metaclass that marks objects whose constructor has ended."""

    @property
    def __signature__(cls) -> inspect.Signature:
        """The arguments of the constructor, for ``help`` and editors; else they would be those of ``__call__``."""
        parameters = list(inspect.signature(cls.__init__).parameters.values())
        return inspect.Signature(parameters[1:])

    def __call__(cls: type[T], *args: Any, **kwargs: Any) -> T:
        made = type.__call__(cls, *args, **kwargs)
        vars(made)["_constructed"] = True
        return made


class ReadOnly(metaclass=_Marking):
    """An object with read-only attributes: the names in ``_fixed``, or all public ones if None."""

    _fixed: Sequence[str] | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        self._refuse(name)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        self._refuse(name)
        super().__delattr__(name)

    def _refuse(self, name: str) -> None:
        if self._fixed is None:
            is_fixed = not name.startswith("_")
        else:
            is_fixed = name in self._fixed
        if is_fixed and "_constructed" in vars(self):
            kind = type(self).__name__
            raise InvalidInput(
                f"{name} of a {kind} is read-only: its statement names what was fixed before the "
                f"data. Construct another {kind} instead."
            )
