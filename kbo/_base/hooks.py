"""A check for subclasses of users that define a method under its former name."""

from __future__ import annotations

from kbo.errors import InvalidInput


def refuse_old_hooks(kind: type, **new_names: str) -> None:
    """Check that a class defines no method under a name that kbo no longer calls.

    Without the check, the class could be used, but kbo would never call its method.

    Args:
        kind: The class.
        **new_names: The new name of each method, by its old name.

    Raises:
        InvalidInput: The class defines an old name.
    """
    for old, new in new_names.items():
        if old in vars(kind):
            raise InvalidInput(
                f"{kind.__name__} defines {old}, which kbo does not call: rename it to {new}."
            )
