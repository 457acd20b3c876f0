"""Methods of users' subclasses that kbo calls under another name than before."""

from __future__ import annotations

from kbo.errors import InvalidInput


def refuse_old_hooks(kind: type, **new_names: str) -> None:
    """Check that a class defines no method under a name that kbo no longer calls.

    The class would otherwise be constructed, and its method never be used.

    Args:
        kind: The class.
        **new_names: The name that kbo calls, by the old one.

    Raises:
        InvalidInput: The class defines an old name.
    """
    for old, new in new_names.items():
        if old in vars(kind):
            raise InvalidInput(
                f"{kind.__name__} defines {old}, which kbo does not call: rename it to {new}."
            )
