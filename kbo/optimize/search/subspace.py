"""The part of a space that a search may use: by a context, a list of choices, a box, and constraints."""

from __future__ import annotations

import copy
import operator
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from kbo._base import checks
from kbo.errors import InvalidInput
from kbo.space import Params, Space
from kbo.space.feasible import Feasible
from kbo.space.parameters import Float, Int

Context = Mapping[Any, Any]
"""Values of some parameters: by name, or by index where the bounds are a list."""


class Subspace:
    """The part of a space that agrees with a context and, if there are choices, is one of them.

    Args:
        space: The whole space.
        context: Values of parameters that are given, where these are active.
        choices: A list of parameters to choose from, each complete or without those of the context.
        within: Narrower ranges: the least and the largest value of some numbers, by name. Only for spaces without
            constraints and tables.

    Attributes:
        fixed: The unit coordinates [P] of parameters in the context, and of those with a single value; NaN for the
            others.
        low, high: The corners [P] of the box in the unit cube that ``within`` describes.
        boxed: Whether ``within`` is given.
        choices: The choices, or the rows of a table, as points [A P] of the unit cube; None without them.
        partial: Whether there is a context or a list of choices.
        constrained: Whether the space has constraints.

    Raises:
        InvalidInput: An unknown parameter, a value outside its bounds, no parameter left to choose, choices that cannot
            be used, no choice that satisfies the constraints of the space, or ``within`` for a space with constraints.
    """

    def __init__(
        self,
        space: Space,
        context: Context | None = None,
        choices: Sequence[Any] | None = None,
        within: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        self._space = space
        self._known_points = torch.empty(0, space.dimension, dtype=torch.float64)
        self._keys: list[Any] = list(space.parameters)
        if not space.named:
            self._keys = list(range(space.dimension))
        self._context: dict[Any, Any] = {}
        if context is not None:
            self._context = self._plain("context", context)
        self.constrained: bool = bool(space.constraints)
        self.partial: bool = bool(self._context) or choices is not None
        self._set_fixed()
        self._set_box(within or {})
        self._set_choices(choices)

    def _set_fixed(self) -> None:
        """Set the coordinates that the context fixes, and those of parameters with a single value."""
        space = self._space
        self.fixed: Tensor = torch.full((space.dimension,), torch.nan, dtype=torch.float64)
        for i, parameter in enumerate(space.parameters.values()):
            key = self._keys[i]
            if key in self._context:
                self.fixed[i] = parameter.unit(self._context[key])
            elif len(parameter.options) == 1:
                self.fixed[i] = 0.5
        if not bool(self.fixed.isnan().any()):
            raise InvalidInput(
                f"the context fixes all parameters {list(space.parameters)}: there is nothing to choose. Leave out at "
                "least one, or report the value with tell(params, value)."
            )

    def _set_choices(self, choices: Sequence[Any] | None) -> None:
        """Set the points to choose from: the choices, or the rows of a table that agree with the context."""
        table = self._space.table
        self._listed: list[Params] | None = None
        self.choices: Tensor | None = None
        if choices is not None:
            self._listed = self._allowed(choices)
            self.choices = self._space.units(self._listed)
        elif table is not None:
            agrees = self.fixed.isnan() | (table == self.fixed)
            self.choices = table[agrees.all(-1)]
            if not len(self.choices):
                raise InvalidInput(
                    f"no row of the table of candidates has the context {checks.shown(self._context)}."
                )

    def _set_box(self, within: Mapping[str, tuple[float, float]]) -> None:
        """Set the corners of the box that the ranges of ``within`` describe."""
        self.boxed: bool = bool(within)
        self.low: Tensor = torch.zeros(self._space.dimension, dtype=torch.float64)
        self.high: Tensor = torch.ones(self._space.dimension, dtype=torch.float64)
        if not within:
            return
        if self._space.constraints or self._space.table is not None:
            raise InvalidInput(
                "within is for spaces without constraints and tables: add a kbo.Linear to the space."
            )
        positions = {name: i for i, name in enumerate(self._space.parameters)}
        for name, (lowest, highest) in within.items():
            parameter = self._space.parameters[checks.one_of("within", name, positions)]
            with checks.inside(f"within: parameter {name!r}"):
                if not isinstance(parameter, (Float, Int)):
                    raise InvalidInput(
                        "only a Float or an Int has values between two; leave it out."
                    )
                low = parameter.unit(lowest)
                high = parameter.unit(highest)
                if low > high:
                    raise InvalidInput(
                        f"expected (least, largest), got {checks.shown((lowest, highest))}."
                    )
                self.low[positions[name]] = low
                self.high[positions[name]] = high

    def knowing(self, points: Tensor) -> Subspace:
        """Return the same subspace with known points [n P]: it draws from them if no others satisfy the constraints."""
        subspace = copy.copy(self)
        subspace._known_points = points
        vars(subspace).pop("_feasible", None)
        return subspace

    @cached_property
    def _feasible(self) -> Feasible:
        """The points of the subspace that satisfy the constraints of the space."""
        return Feasible(self._space, self.fixed, self._known_points)

    def among(self, points: Tensor, partial: bool = False) -> Subspace:
        """Return the same subspace with the points [A P] as the only choices.

        Args:
            points: The choices.
            partial: Whether the result counts as a part of the space even if this subspace does not.
        """
        subspace = copy.copy(self)
        subspace.choices = points
        subspace.partial = self.partial or partial
        return subspace

    def accepts(self, params: Params) -> bool:
        """Return whether parameters agree with the context, and are among the choices and in the box."""
        if self._space.changed and not self._space.contains(params):
            return False
        if self._listed is not None and params not in self._listed:
            return False
        if self.boxed and not bool(self.in_box(self._space.unit(params))):
            return False
        entries = _entries(params)
        return all(value == self._context.get(key, value) for key, value in entries.items())

    def in_box(self, units: Tensor) -> Tensor:
        """Return whether the free coordinates of points [n P] of the unit cube are in the box, [n]."""
        inside = (self.low <= units) & (units <= self.high)
        return (inside | ~self.fixed.isnan()).all(-1)

    def moved_inside(self, unit: Tensor) -> Tensor:
        """Return points [n P] moved into the box, with the fixed coordinates of the subspace."""
        return torch.where(self.fixed.isnan(), unit.clamp(self.low, self.high), self.fixed)

    def spread(self, unit: Tensor) -> Tensor:
        """Return points [n P] of the unit cube mapped onto the box, with the fixed coordinates of the subspace."""
        return self.moved_inside(self.low + (self.high - self.low) * unit)

    def params(self, unit: Tensor) -> Params:
        """Return the parameters at a point [P] of the subspace; values of the context are exactly as given."""
        if self.choices is not None and self._listed is not None:
            is_chosen = (self.choices == unit).all(-1)
            return copy.copy(self._listed[int(is_chosen.long().argmax())])
        params: Any = self._space.params(unit)
        for key in self._context.keys() & _entries(params).keys():
            params[key] = self._context[key]
        return params

    def sample(self, generator: torch.Generator) -> Tensor:
        """Draw a point [P] of the subspace uniformly: one of the choices, or any point that agrees with the context."""
        if self.choices is not None:
            row = torch.randint(len(self.choices), (), generator=generator)
            return self.choices[int(row)]
        return self.draw(1, generator)[0]

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw points [n P] of the subspace uniformly; for subspaces without choices.

        Raises:
            InvalidInput: No point that satisfies the constraints of the space was found.
        """
        if self.constrained:
            return self._feasible.draw(n, generator)
        free = self.fixed.isnan()
        uniform = torch.rand(n, int(free.sum()), generator=generator, dtype=torch.float64)
        width = self.high - self.low
        in_box = self.low[free] + width[free] * uniform
        return self.fixed.expand(n, -1).masked_scatter(free, in_box)

    def projected(self, points: Tensor, others: Tensor) -> Tensor:
        """Return ``others`` [n P]; those that violate a constraint are moved towards ``points`` [n P], which do not."""
        if not self.constrained:
            return others
        return self._feasible.projected(points, others)

    def _allowed(self, choices: Any) -> list[Params]:
        """Return the choices that satisfy the constraints of the space, completed by the context, with plain values."""
        if isinstance(choices, (str, Mapping)) or not isinstance(choices, Sequence) or not choices:
            raise InvalidInput(
                f"choices must be a list of at least one dict of parameters, got {checks.shown(choices)}."
            )
        allowed = []
        broken: set[str] = set()
        for params in [self._complete(choice) for choice in choices]:
            violated = self._space.violated(params)
            broken.update(violated)
            if not violated:
                allowed.append(params)
        if allowed:
            return allowed
        subject = "each of the choices violates one of"
        if len(choices) == 1:
            subject = f"{checks.shown(self._complete(choices[0]))} violates"
        raise InvalidInput(f"{subject} the constraints {', '.join(map(repr, sorted(broken)))}.")

    def _complete(self, choice: Any) -> Params:
        """Return a choice completed by the context, with plain values."""
        is_list = isinstance(choice, (list, tuple)) and not self._space.named
        is_complete_list = is_list and len(choice) == len(self._keys)
        if not is_complete_list and not isinstance(choice, Mapping):
            raise InvalidInput(
                f"choices must be values of {list(self._space.parameters)}, one of them is {checks.shown(choice)}."
            )
        chosen = self._plain("choices", _entries(choice))
        entries = self._context | chosen
        changed = [key for key, value in self._context.items() if entries[key] != value]
        if changed:
            raise InvalidInput(f"the choice {choice!r} contradicts the context at {changed}.")
        constants = self._space.constants
        needed: Collection[Any] = self._keys
        if self._space.named:
            needed = self._space.active_names(constants | entries)
        missing = [key for key in needed if key not in entries and key not in constants]
        if missing:
            raise InvalidInput(
                f"the choice {choice!r} lacks {missing}: give them in the choice or in the context."
            )
        used = [key for key in self._keys if key in chosen or (key in entries and key in needed)]
        if self._space.named:
            return self._space.canonical({key: entries[key] for key in used})
        return self._space.canonical([entries[key] for key in used])

    def _plain(self, argument: str, values: Any) -> dict[Any, Any]:
        """Check some parameters by name (or index), and return them with plain values."""
        if not isinstance(values, Mapping):
            expected = "from name to value" if self._space.named else "from index to value"
            raise InvalidInput(f"{argument} must be a dict {expected}, got {checks.shown(values)}.")
        names = dict(zip(self._keys, self._space.parameters, strict=True))
        plain = {}
        for label, value in values.items():
            key = label
            if not self._space.named:
                key = _index(label)
            if key not in names:
                raise InvalidInput(
                    f"{argument}: there is no parameter {checks.shown(label)}; the parameters are {self._keys}."
                )
            with checks.inside(f"{argument}: parameter {label!r}"):
                plain[key] = self._space.plain(names[key], value)
        return plain


def _entries(params: Any) -> Mapping[Any, Any]:
    """Return parameters by name, or by index where they are a list."""
    if isinstance(params, Mapping):
        return params
    return dict(enumerate(params))


def _index(key: Any) -> Any:
    """Return a key as a whole number, if it is one."""
    try:
        return operator.index(key)
    except TypeError:
        return key
