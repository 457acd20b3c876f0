"""Conditional parameters: the objective gets them only if another parameter, the parent, has certain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kbo._base import checks
from kbo.errors import InvalidInput
from kbo.space.parameters import Parameter


@dataclass(frozen=True)
class When:
    """Parameters that are active only if their parent is active and has one of certain values.

    The parent may be any parameter with finitely many values. It may be conditional itself.

    Args:
        parent: Name of the parent.
        values: One value of the parent, or a list of values.
        parameters: A dict from name to parameter, as in ``Space``.

    Raises:
        InvalidInput: The name of the parent is no text, there is no value, or the parameters are no dict.

    Example:
        >>> space = [{"optimizer": ["sgd", "adam"]}, kbo.When("optimizer", "sgd", {"momentum": kbo.Float(0, 1)})]
    """

    parent: str
    values: Any
    parameters: Mapping[str, Any]

    def __post_init__(self) -> None:
        checks.text("parent", self.parent)
        values = (self.values,)
        if isinstance(self.values, (list, tuple)):
            values = tuple(self.values)
        if not values:
            raise InvalidInput(
                f"values of {self.parent!r} are empty: give one at which the parameters are active."
            )
        if not isinstance(self.parameters, Mapping) or not self.parameters:
            raise InvalidInput(
                f"parameters must be a dict of at least one, got {checks.shown(self.parameters)}."
            )
        object.__setattr__(self, "values", values)


class Condition(NamedTuple):
    """The parent of a conditional parameter, and the values of the parent at which the parameter is active."""

    parent: str
    values: tuple[Any, ...]


def plain_conditions(
    conditions: Mapping[str, Condition], parameters: Mapping[str, Parameter]
) -> dict[str, Condition]:
    """Return conditions by name, with their values in the form that the parents have in params.

    Raises:
        InvalidInput: A parent does not exist, is a real number, or lacks a value of its condition.
    """
    plain = {}
    for name, (parent, values) in conditions.items():
        with checks.inside(f"bounds: the condition of parameter {name!r}"):
            parameter = parameters[checks.one_of("the parent", parent, parameters)]
            if not parameter.options:
                raise InvalidInput(
                    f"the parent {parent!r} must have finitely many values: give it a step."
                )
            plain[name] = Condition(parent, tuple(map(parameter.plain, values)))
    return plain


def parents_first(names: list[str], conditions: Mapping[str, Condition]) -> list[str]:
    """Return the names of parameters in an order in which each comes after its parent.

    Raises:
        InvalidInput: Conditions depend on each other.
    """
    ordered = [name for name in names if name not in conditions]
    left = [name for name in names if name in conditions]
    while left:
        ready = [name for name in left if conditions[name].parent in ordered]
        if not ready:
            raise InvalidInput(
                f"bounds: the conditions of the parameters {left} depend on each other."
            )
        ordered += ready
        left = [name for name in left if name not in ready]
    return ordered
