"""Numbers that a statement names are read-only once an object is constructed.

A later change would alter the bounds, but not what was fixed before the data.
"""

from __future__ import annotations

from abc import ABCMeta
from typing import Any

from kbo.errors import InvalidInput


class ReadOnly(ABCMeta):
    """Metaclass that marks objects whose constructor has ended, for ``refuse_change``."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Construct an object and mark it."""
        made = super().__call__(*args, **kwargs)
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
