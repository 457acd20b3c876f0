"""Numbers that a statement names are read-only once an object is constructed.

A later change would alter the bounds, but not what was fixed before the data.
"""

from __future__ import annotations

from abc import ABCMeta
from typing import Any, TypeVar

from kbo.errors import InvalidInput

T = TypeVar("T")


class ReadOnly(ABCMeta):
    """Metaclass that marks objects whose constructor has ended, for ``refuse_change``."""

    def __call__(cls: type[T], *args: Any, **kwargs: Any) -> T:
        """Construct an object and mark it."""
        made = type.__call__(cls, *args, **kwargs)
        vars(made)["_constructed"] = True
        return made


def refuse_change(made: object, name: str, names: tuple[str, ...] | None = None) -> None:
    """Raise InvalidInput if ``made`` is constructed and the attribute is one of ``names``; None for all public ones."""
    fixed = not name.startswith("_") if names is None else name in names
    if fixed and "_constructed" in vars(made):
        kind = type(made).__name__
        raise InvalidInput(
            f"{name} of a {kind} is read-only: its statement names what was fixed before the data. Construct another "
            f"{kind} instead."
        )
