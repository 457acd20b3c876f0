"""Conditional parameters: those that an objective gets only where another parameter has certain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kbo._base import checks
from kbo.errors import InvalidInput


@dataclass(frozen=True)
class When:
    """Parameters that are active only where another one, the parent, is active and has one of certain values.

    The parent may be any parameter with finitely many values, and conditional itself.

    Args:
        parent: Name of the parent.
        values: One of its values, or a list of some.
        parameters: A dict from name to parameter, as in ``Space``.

    Raises:
        InvalidInput: A name that is no text, no value, or parameters that are no dict.

    Example:
        >>> space = [{"optimizer": ["sgd", "adam"]}, kbo.When("optimizer", "sgd", {"momentum": kbo.Float(0, 1)})]
    """

    parent: str
    values: tuple[Any, ...]
    parameters: Mapping[str, Any]

    def __init__(self, parent: str, values: Any, parameters: Mapping[str, Any]) -> None:
        object.__setattr__(self, "parent", checks.text("parent", parent))
        object.__setattr__(
            self, "values", tuple(values) if isinstance(values, (list, tuple)) else (values,)
        )
        object.__setattr__(self, "parameters", parameters)
        if not self.values:
            raise InvalidInput(
                f"values of {parent!r} are empty: give one at which the parameters are active."
            )
        if not isinstance(parameters, Mapping) or not parameters:
            raise InvalidInput(
                f"parameters must be a dict of at least one, got {checks.shown(parameters)}."
            )


class Condition(NamedTuple):
    """The parent of a parameter, and its values at which the parameter is active."""

    parent: str
    values: tuple[Any, ...]
