"""What is asked of the optimiser: which parameters are given this time, and which settings there are to choose from."""

from __future__ import annotations

import copy
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from kbo.errors import InvalidInput
from kbo.space import Params, Space

Context = Mapping[Any, Any]
"""Values of some parameters: by name, or by index where the bounds are a list."""


class Question:
    """A part of a space: the settings that agree with a context and, if there are choices, are among them.

    Args:
        space: The whole space.
        context: Parameters whose values are given.
        choices: The settings there are, complete or without the parameters of the context.

    Attributes:
        fixed: The context as a point [P] of the unit cube, NaN where a parameter is free.
        choices: The choices as points [A P] of the unit cube; None if all settings are allowed.

    Raises:
        InvalidInput: A parameter that does not exist, a value outside its bounds, no parameter left to choose, or
            choices that are none.
    """

    def __init__(self, space: Space, context: Context | None = None, choices: Sequence[Any] | None = None) -> None:
        self._space = space
        self._context = {} if context is None else _canonical(space, "context", context)
        if len(self._context) == space.dimension:
            raise InvalidInput(
                f"the context fixes all parameters {list(space.parameters)}: there is nothing to choose. Leave out at "
                "least one, or report the value with tell(params, value)."
            )
        self.fixed = torch.full((space.dimension,), torch.nan, dtype=torch.float64)
        for i, (key, parameter) in enumerate(zip(_keys(space), space.parameters.values(), strict=True)):
            if key in self._context:
                self.fixed[i] = parameter.unit(self._context[key])
        self._settings = None if choices is None else self._complete(choices)
        self.choices = None if self._settings is None else torch.stack([space.unit(s) for s in self._settings])

    def accepts(self, params: Params) -> bool:
        """Whether parameters agree with the context and are among the choices."""
        if self._settings is not None and params not in self._settings:
            return False
        return all(_entries(params)[key] == value for key, value in self._context.items())

    def place(self, unit: Tensor) -> Tensor:
        """Points [n P] of the unit cube with the context in place."""
        return torch.where(self.fixed.isnan(), unit, self.fixed)

    def params(self, unit: Tensor) -> Params:
        """The parameters at a point [P] of this part of the unit cube; the values of the context exactly as given."""
        if self.choices is not None and self._settings is not None:
            return copy.copy(self._settings[int((self.choices == unit).all(-1).long().argmax())])
        params: Any = self._space.params(unit)
        for key, value in self._context.items():
            params[key] = value
        return params

    def at_random(self, generator: torch.Generator) -> Tensor:
        """A point [P] of the unit cube: one of the choices, or any that agrees with the context."""
        if self.choices is not None:
            return self.choices[int(torch.randint(len(self.choices), (), generator=generator))]
        return self.place(torch.rand(self._space.dimension, generator=generator, dtype=torch.float64))

    def _complete(self, choices: Any) -> list[Params]:
        """The choices as whole settings with plain values."""
        if isinstance(choices, (str, Mapping)) or not isinstance(choices, Sequence) or not choices:
            raise InvalidInput(f"choices must be a list of at least one setting, got {choices!r}.")
        return [self._with_context(choice) for choice in choices]

    def _with_context(self, choice: Any) -> Params:
        listed = isinstance(choice, (list, tuple)) and not self._space.named and len(choice) == self._space.dimension
        if not listed and not isinstance(choice, Mapping):
            raise InvalidInput(
                f"choices must be settings of {list(self._space.parameters)}, one of them is {choice!r}."
            )
        entries = self._context | _canonical(self._space, "choices", _entries(choice))
        changed = [key for key, value in self._context.items() if entries[key] != value]
        if changed:
            raise InvalidInput(f"the choice {choice!r} contradicts the context at {changed}.")
        missing = [key for key in _keys(self._space) if key not in entries]
        if missing:
            raise InvalidInput(f"the choice {choice!r} lacks {missing}: give them in the choice or in the context.")
        values = {key: entries[key] for key in _keys(self._space)}
        return values if self._space.named else list(values.values())


def _keys(space: Space) -> list[Any]:
    """What parameters are called in a context: their names, or their indices in a list."""
    return list(space.parameters) if space.named else list(range(space.dimension))


def _entries(params: Any) -> Mapping[Any, Any]:
    return params if isinstance(params, Mapping) else dict(enumerate(params))


def _canonical(space: Space, what: str, values: Any) -> dict[Any, Any]:
    """Some parameters by name (or index) with plain values, checked."""
    if not isinstance(values, Mapping):
        hint = "from name to value" if space.named else "from index to value"
        raise InvalidInput(f"{what} must be a dict {hint}, got {values!r}.")
    keys, found = _keys(space), {}
    parameters = dict(zip(keys, space.parameters.values(), strict=True))
    for given, value in values.items():
        key = given if space.named else _index(given)
        if key not in parameters:
            raise InvalidInput(f"{what}: there is no parameter {given!r}; the parameters are {keys}.")
        try:
            parameters[key].unit(value)
            found[key] = parameters[key].plain(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidInput(f"{what}: parameter {given!r}: {error}") from error
    return found


def _index(key: Any) -> Any:
    try:
        return operator.index(key)
    except TypeError:
        return key
