"""Search spaces: named parameters, and their encoding as points that a kernel can compare.

Values of the parameters have three forms:

* ``params`` is the argument of the objective: a dict, or a list of floats if the bounds were a list.
* ``unit`` is a point of the cube [0, 1]^P with one coordinate per parameter. The search takes place there.
* ``features`` [D] is the input of the kernel. Numbers are scaled to [0, 1]; if they have finitely many values, they are
  rounded first. A choice is a one-hot vector of length 1/sqrt(2), so two options are at distance 1.

Equal params have equal features. So a kernel that is positive definite on features is positive definite on params.

A parameter that is not active is missing in the params. Its coordinate has no effect, and its features are zeros. A
conditional number has two columns: a point on a quarter circle around zero (as in the arc kernel of Swersky et al.
2014). The radius is 1/sqrt(2), so the ends of the range are at distance 1. Values outside of a range that has changed
lie on the half circle around it. Consequently two points without the parameter are compared by the other parameters,
and a point with it is at distance 1/sqrt(2) from a point without it, whatever its value. Parameters without a condition
are shared by all branches.
"""

from __future__ import annotations

import contextlib
import copy
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from kbo._base import checks
from kbo._base.isolation import tensors_on_cpu
from kbo.errors import InvalidInput
from kbo.space import program
from kbo.space.bounds import Bounds, Condition, parents_first, parsed_bounds
from kbo.space.constraints import Limits, Linear, Rule, checked, in_words, permits
from kbo.space.files import definition_of, read
from kbo.space.parameters import Parameter
from kbo.space.table import Frame, Table, columns_of, parameter_of

Params = dict[str, Any] | list[float]

_MOST_COLUMNS = 3000
"""Largest number of feature columns: with more, a proposal takes longer than seconds."""

_MIDDLE = 0.5
"""The unit coordinate of a parameter that is not active."""


class Space:
    """The search space: named parameters, conditions and constraints.

    A dict gives every name a parameter:

    * ``Float``, ``Int``, ``Choice``, ``Ordinal`` or ``Fixed``;
    * a pair ``(low, high)``: an ``Int`` if both are Python integers, otherwise a ``Float``;
    * a list of options: a ``Choice``; ``bool``: the choice of False and True;
    * a single number, text, boolean or None: ``Fixed``.

    A list of pairs is for objectives that take a vector: each pair is a ``Float``. A list of dicts and ``When`` has
    conditional parameters. The rows of a ``pandas.DataFrame`` are the only points: columns of numbers are compared as
    numbers, other columns as choices.

    Args:
        bounds: Parameters in one of these forms, or a space.
        constraints: Constraints that all parameters chosen by kbo satisfy. Each is a ``Linear`` or a function of
            params, defined with ``def``, that returns whether the params may be used. A function is called only if
            the params satisfy all ``Linear`` constraints.

    Attributes:
        named: Whether params are dicts; otherwise they are lists.
        parameters: The parameters by name.
        constants: The values of ``Fixed`` parameters by name.
        conditions: The condition of each conditional parameter, by its name.
        constraints: All constraints; if ``bounds`` is a space, its constraints come first.
        linear: The ``Linear`` constraints.
        device: The device of the features.
        table: The rows of a table that satisfy the constraints, as points [N P] of the unit cube; None without a table.
        compared: The parameter, by name, whose columns the kernel uses: the parameter itself, or one that also has a
            place for values of an earlier space.
        changed: Whether the space has replaced another one. Earlier params may then be outside of it.
        added: The names of parameters that vary here, and that an earlier space of the run lacked or had fixed.

    Raises:
        InvalidInput: The message names the parameter or constraint. Bounds are empty, reversed or not finite. The
            parent of a condition does not exist or lacks the value. A table has missing values or equal rows. No
            params satisfy the constraints, or a constraint cannot be used.
    """

    @tensors_on_cpu
    def __init__(self, bounds: Bounds | Space, constraints: Sequence[Linear | Rule] = ()) -> None:
        new_constraints = checked(constraints)
        if isinstance(bounds, Space):
            vars(self).update(vars(bounds))
            if not new_constraints:
                return
        else:
            self._define(bounds)
        self._constrain(checked([*self.constraints, *new_constraints]))

    def _define(self, bounds: Any) -> None:
        """Set the parameters and conditions from bounds."""
        rows = None
        if isinstance(bounds, Frame):
            rows = columns_of(bounds)
            bounds = {name: parameter_of(name, values) for name, values in rows.items()}
        parsed = parsed_bounds(bounds)
        self.named: bool = parsed.named
        self.parameters: dict[str, Parameter] = parsed.parameters
        self.conditions: dict[str, Condition] = parsed.conditions
        self.compared: dict[str, Parameter] = dict(parsed.parameters)
        self.changed: bool = False
        self.added: frozenset[str] = frozenset()
        self.constraints: tuple[Linear | Rule, ...] = ()
        self.table: Tensor | None = None
        self.device: torch.device = torch.device("cpu")
        self.constants: dict[str, Any] = {
            name: p.options[0] for name, p in self.parameters.items() if not p.columns
        }
        self._check_size()
        self._positions: dict[str, int] = {name: i for i, name in enumerate(self.parameters)}
        self._parents_first: list[str] = parents_first(list(self._positions), self.conditions)
        self._table: Table | None = None
        if rows is not None:
            self._restrict(rows)

    def _check_size(self) -> None:
        """Check that at least one parameter varies, and that there are not too many feature columns."""
        if len(self.constants) == len(self.parameters):
            raise InvalidInput(
                "bounds are empty: give at least one parameter that is not fixed, for example "
                "{'lr': kbo.Float(1e-4, 1e-1, log=True)}."
            )
        if self.columns > _MOST_COLUMNS:
            widest = max(self.parameters, key=lambda name: self.parameters[name].columns)
            raise InvalidInput(
                f"bounds: parameter {widest!r}: the space has {self.columns} columns, one for a number and one for "
                f"each option of a choice, and can have {_MOST_COLUMNS}. Give fewer options, or number them: "
                "kbo.Int(0, n - 1)."
            )

    @tensors_on_cpu
    def _restrict(self, rows: Mapping[str, Sequence[Any]]) -> None:
        """Make the rows of a table the only points, given the values of each parameter in the rows."""
        if self.conditions:
            raise InvalidInput(
                "a table of candidates has no conditional parameters: leave out when."
            )
        self._table = Table(rows, self.parameters)
        self.table = self._table.units

    def _constrain(self, constraints: Sequence[Linear | Rule]) -> None:
        """Set the constraints, after checking that some params satisfy the linear ones."""
        self.constraints = ()
        self._points: dict[int, Tensor | None] = {}
        self.linear: list[Linear] = []
        self._rules: list[Rule] = []
        with checks.inside("constraints"):
            for constraint in constraints:
                if isinstance(constraint, Linear):
                    limit = constraint.named(list(self.parameters), not self.named)
                    limit.check(self.parameters)
                    self.linear.append(limit)
                    self.constraints += (limit,)
                else:
                    self._rules.append(constraint)
                    self.constraints += (constraint,)
            self._limits: Limits = Limits(self.linear, self.parameters)
            if self.table is not None:
                self.table = self.table[self.satisfies(self.table)]
                if not len(self.table):
                    raise InvalidInput(
                        f"no row of the table of candidates satisfies {in_words(constraints)}."
                    )
            elif self.linear:
                program.check(self.parameters, self.conditions, self.linear)

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> Space:
        """Return the space that plain data define, in the form that ``to_dict`` returns.

        Args:
            entries: By name, a single value (fixed), a list of options (a choice), or a dict with the ``kind``
                ("Float", "Int", "Choice", "Ordinal" or "Fixed") and the arguments of that class. A conditional
                parameter also has ``when``, a dict from its parent to the values. A parameter of a table of candidates
                also has ``rows``, its values in the rows. An entry of the kind "Linear" is a constraint; its name is
                free.

        Raises:
            InvalidInput: An entry cannot be used.

        Example:
            >>> Space.from_dict({
            ...     "optimizer": ["sgd", "adam"],
            ...     "lr": {"kind": "Float", "low": 1e-4, "high": 0.1, "log": True},
            ...     "momentum": {"kind": "Float", "low": 0, "high": 1, "when": {"optimizer": "sgd"}},
            ... })
        """
        if not isinstance(entries, Mapping):
            raise InvalidInput(
                f"a space must be a dict of parameters by name, got {checks.shown(entries)}."
            )
        definition = definition_of(entries)
        space = cls(definition.bounds)
        if definition.rows:
            space._restrict(definition.rows)
        return cls(space, definition.constraints)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Space:
        """Return the space in a JSON file (.json) or a YAML file (any other suffix), with the data of ``from_dict``.

        Raises:
            InvalidInput: The file cannot be read, or an entry cannot be used.
            MissingExtra: The file is YAML, and PyYAML is not installed.
        """
        file = checks.path("path", path)
        entries = read(file)
        with checks.inside(str(file)):
            return cls.from_dict(entries)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return parameters and then constraints by name, as plain JSON values; functions only by their names."""
        entries = {name: p.describe() for name, p in self.parameters.items()}
        for name, (parent, values) in self.conditions.items():
            entries[name]["when"] = {parent: list(values)}
        if self._table is not None:
            for name, column in self._table.columns.items():
                entries[name]["rows"] = list(column)
        for limit in self.linear:
            entries[str(limit)] = limit.describe()
        for rule in self._rules:
            entries[checks.name_of(rule)] = {"kind": "function"}
        return entries

    def describe(self) -> list[dict[str, Any]]:
        """Return parameters and constraints as in the header of a journal. Equal descriptions mean equal spaces."""
        return [{"name": name, **entry} for name, entry in self.to_dict().items()]

    @classmethod
    def from_description(cls, entries: Sequence[Mapping[str, Any]], named: bool) -> Space:
        """Return the space of a description; in place of each constraint function is one that permits all params.

        Args:
            entries: The description, as ``describe`` returns it.
            named: Whether params are dicts; otherwise they are lists.
        """
        parameters = {}
        rules = []
        for entry in entries:
            if entry.get("kind") == "function":
                rules.append(_stand_in(entry["name"]))
                continue
            parameters[entry["name"]] = {k: v for k, v in entry.items() if k != "name"}
        space = cls.from_dict(parameters)
        if not named:
            space = cls(space.pairs(), space.linear)
        return cls(space, rules)

    def replacing(self, former: Space, same_scale: bool = False) -> Space:
        """Return a copy of this space whose features also have a place for the params of a former space.

        Args:
            former: The former space.
            same_scale: Whether the features of numbers keep their former scale; otherwise they get the scale of the
                ranges of this space.

        Raises:
            InvalidInput: Params are dicts in one space and lists in the other, or lists of different lengths.
        """
        if self.named != former.named or (not self.named and self.dimension != former.dimension):
            raise InvalidInput(
                "bounds: a list of pairs can only be replaced by a list of as many pairs, and a dict by a dict."
            )
        space = copy.copy(self)
        space.changed = True
        added = self.parameters.keys() - self.constants.keys()
        space.added = former.added | (added - (former.parameters.keys() - former.constants.keys()))
        space.compared = dict(self.parameters)
        for name, parameter in self.parameters.items():
            if name in former.compared:
                space.compared[name] = parameter.comparable(former.compared[name], same_scale)
        return space

    def compares_as(self, other: Space) -> Space:
        """Return a copy of this space with the features of an equal space, which may have replaced others."""
        space = copy.copy(self)
        space.changed = other.changed
        space.added = other.added
        space.compared = other.compared
        return space

    @property
    def dimension(self) -> int:
        """Number of parameters P."""
        return len(self.parameters)

    @property
    def columns(self) -> int:
        """Number of feature columns D."""
        return len(self.labels)

    @property
    def labels(self) -> list[str]:
        """The names of the feature columns."""
        labels: list[str] = []
        for name in self.parameters:
            compared = self.compared[name]
            if name in self.conditions and compared.columns == 1:
                labels += [f"{name} (sine)", f"{name} (cosine)"]
            else:
                labels += compared.labels(name)
        return labels

    @property
    def continuous(self) -> bool:
        """Whether there are infinitely many params: some parameter is a real number, and there is no table."""
        return self.table is None and not all(p.options for p in self.parameters.values())

    @tensors_on_cpu
    def points(self, most: int) -> Tensor | None:
        """Return all possible params as points [N P] of the unit cube; None if there are more than ``most``.

        Points that violate a constraint count too, and are left out afterwards.
        """
        if self.table is not None:
            if len(self.table) > most:
                return None
            return self.table
        if most not in self._points:
            points = self._grid(most)
            if points is not None and self.constraints:
                points = points[self.satisfies(points)]
            self._points[most] = points
        return self._points[most]

    def _grid(self, most: int) -> Tensor | None:
        """Return all points [N P], also those that violate constraints; None if there are more than ``most``."""
        if self.continuous:
            return None
        points = torch.full((1, self.dimension), _MIDDLE, dtype=torch.float64)
        for name in self._parents_first:
            options = self.parameters[name].options
            i = self._positions[name]
            is_active = self.is_active(name, points)
            repeats = torch.where(is_active, len(options), 1)
            if int(repeats.sum()) > most:
                return None
            units = self.parameters[name].middles(torch.arange(len(options)))
            points = points.repeat_interleave(repeats, 0)
            points[is_active.repeat_interleave(repeats), i] = units.repeat(int(is_active.sum()))
        return points

    @tensors_on_cpu
    def satisfies(self, unit: Tensor) -> Tensor:
        """Return whether points [n P] of the unit cube satisfy all constraints, [n].

        Rows of a table may violate them by rounding to float32.

        Raises:
            InvalidInput: A constraint function raises an exception, or returns no bool.
        """
        holds = self._limits.hold(self._numbers(unit), is_rounded=self.table is not None)
        satisfied = holds.all(-1)
        for rule in self._rules:
            verdicts = [permits(rule, params) for params in self._all_params(unit[satisfied])]
            satisfied[satisfied.clone()] = torch.tensor(verdicts, dtype=torch.bool)
        return satisfied

    def _numbers(self, unit: Tensor) -> Tensor:
        """Return the values [n P] of parameters in linear constraints at points [n P]; 0 for all others.

        A parameter that is not active adds nothing to a sum.
        """
        numbers = self._limits.numbers(unit)
        for name in self.conditions:
            numbers[~self.is_active(name, unit), self._positions[name]] = 0.0
        return numbers

    @tensors_on_cpu
    def violated(self, params: Any) -> list[str]:
        """Return the constraints that params violate, as text.

        A sum may exceed its limit by rounding to float32. Functions are called only if all linear constraints hold.
        """
        try:
            canonical = self.canonical(params)
        except InvalidInput:
            if not self.changed:
                raise
            return ["the bounds, which have changed since"]
        if not self.constraints:
            return []
        numbers = self._numbers(self.units([canonical]))
        holds = self._limits.hold(numbers, is_rounded=True)[0].tolist()
        violated = [str(limit) for i, limit in enumerate(self.linear) if not holds[i]]
        if violated:
            return violated
        return [
            checks.name_of(rule) for rule in self._rules if not permits(rule, copy.copy(canonical))
        ]

    @tensors_on_cpu
    def may_satisfy(self, low: Tensor, high: Tensor) -> Tensor:
        """Return whether each of n boxes may have points that satisfy the linear constraints, [n].

        Conditions and constraint functions are ignored.

        Args:
            low: The lower corners of the boxes, [n P] in the unit cube.
            high: The upper corners, [n P].
        """
        return self._limits.may_hold(low, high)

    def is_active(self, name: str, unit: Tensor) -> Tensor:
        """Return whether a parameter is active, [n], at points [n P] of the unit cube."""
        if name not in self.conditions:
            return torch.ones(len(unit), dtype=torch.bool)
        parent, values = self.conditions[name]
        p = self.parameters[parent]
        positions = torch.tensor([p.options.index(value) for value in values])
        has_value = torch.isin(p.index(unit[:, self._positions[parent]]), positions)
        return has_value & self.is_active(parent, unit)

    def active_names(self, params: Mapping[str, Any]) -> list[str]:
        """Return the names of the active parameters, given the plain values of the parents in ``params``."""
        active: set[str] = set()
        for name in self._parents_first:
            if name in self.conditions:
                parent, values = self.conditions[name]
                if parent not in active or params.get(parent) not in values:
                    continue
            active.add(name)
        return [name for name in self.parameters if name in active]

    def pairs(self) -> list[tuple[float, float]]:
        """Return the bounds (low, high) of a space whose params are lists."""
        return [(p.ends[0], p.ends[1]) for p in self.parameters.values()]

    @tensors_on_cpu
    def params(self, unit: Tensor) -> Params:
        """Return the argument of the objective at a point [P] of the unit cube; with a table, the nearest row."""
        return self._all_params(unit.unsqueeze(0))[0]

    def _all_params(self, units: Tensor) -> list[Params]:
        """Return the arguments of the objective at points [n P] of the unit cube; with a table, the nearest rows."""
        if self._table is not None:
            return list(self._table.nearest(units))
        by_name: list[dict[str, Any]] = [{} for _ in range(len(units))]
        for i, (name, p) in enumerate(self.parameters.items()):
            values = p.values(units[:, i])
            for row, is_active in enumerate(self.is_active(name, units).tolist()):
                if is_active:
                    by_name[row][name] = values[row]
        return [self._params_of(values) for values in by_name]

    def unit(self, params: Any) -> Tensor:
        """Return params as a point [P] of the unit cube.

        Raises:
            InvalidInput: A parameter is missing, unknown, not active or outside its bounds.
        """
        return self.units([params])[0]

    @tensors_on_cpu
    def units(self, many: Sequence[Any]) -> Tensor:
        """Return several params as points [n P] of the unit cube; see ``unit``."""
        by_name = [self._values(params) for params in many]
        units = torch.full((len(by_name), self.dimension), _MIDDLE, dtype=torch.float64)
        for i, (name, p) in enumerate(self.parameters.items()):
            active_rows = [row for row, values in enumerate(by_name) if name in values]
            if active_rows:
                units[active_rows, i] = p.units([by_name[row][name] for row in active_rows])
        return units

    def canonical(self, params: Any) -> Params:
        """Return params as a new dict or list of plain Python values, with the values of ``Fixed`` parameters added.

        Raises:
            InvalidInput: A parameter is missing, unknown, not active or outside its bounds.
        """
        return self._params_of(self._values(params))

    def plain(self, name: str, value: Any) -> Any:
        """Return the value of a parameter as a plain Python value.

        A value that rounding has moved off a bound, a step, an option or an entry of a table is moved back.

        Raises:
            InvalidInput: The parameter does not have the value.
        """
        plain = self.parameters[name].plain(value)
        if self._table is not None:
            return self._table.plain(name, plain)
        return plain

    def _values(self, params: Any) -> dict[str, Any]:
        """Return the plain values of the active parameters by name, in the order of the space, with ``Fixed`` ones.

        Raises:
            InvalidInput: A parameter is missing, unknown, not active or outside its bounds.
        """
        by_name = self.by_name(params)
        plain = dict(self.constants)
        for name in self.parameters:
            if name in by_name:
                with checks.inside(f"parameter {name!r}"):
                    plain[name] = self.plain(name, by_name[name])
        names = self.active_names(plain)
        missing = [name for name in names if name not in plain]
        unknown = [name for name in by_name if name not in names]
        if missing or unknown or not by_name:
            reasons = []
            if missing:
                reasons.append(f"missing are {checks.shown(missing, 400)}")
            if unknown:
                reasons.append(f"unknown are {checks.shown(unknown, 400)}")
            raise InvalidInput(
                f"params must have the parameters {checks.shown(names)}, got {checks.shown(params)}: "
                f"{'; '.join(reasons)}."
            )
        values = {name: plain[name] for name in names}
        if self._table is not None and tuple(values.values()) not in self._table.rows:
            raise InvalidInput(
                f"params must be a row of the table of candidates, got {checks.shown(params)}."
            )
        return values

    def by_name(self, params: Any) -> dict[Any, Any]:
        """Return the values of params by name; empty if params have the wrong form: no dict, or no list of length P."""
        is_text = isinstance(params, (str, bytes, bytearray))
        if is_text or isinstance(params, Mapping) != self.named:
            return {}
        try:
            if self.named:
                return dict(params)
            return dict(zip(self.parameters, params, strict=True))
        except Exception:  # params are no list
            return {}

    def on(self, device: torch.device) -> Space:
        """Return the same space with features on a device."""
        space = copy.copy(self)
        space.device = device
        return space

    @tensors_on_cpu
    def features(self, unit: Tensor) -> Tensor:
        """Return the features [n D], the input of the kernel, at points [n P] of the unit cube."""
        blocks = []
        for i, (name, p) in enumerate(self.parameters.items()):
            compared = self.compared[name]
            if compared == p:
                block = p.features(unit[:, i])
            else:
                values = p.values(unit[:, i])
                columns = {value: compared.columns_of(value) for value in set(values)}
                block = unit.new_tensor([columns[value] for value in values])
                block = block.reshape(len(unit), compared.columns)  # also of no rows
            blocks.append(self._where_active(name, block, self.is_active(name, unit)))
        return torch.cat(blocks, -1).to(self.device)

    def _where_active(self, name: str, block: Tensor, is_active: Tensor) -> Tensor:
        """Return the feature columns of a parameter with its condition: zeros at points where it is not active.

        A conditional number becomes a point on a quarter circle, with two columns.

        Args:
            name: The parameter.
            block: Its feature columns [n k] without the condition.
            is_active: Whether it is active at each point, [n].
        """
        if name not in self.conditions:
            return block
        if self.compared[name].columns == 1:
            angle = math.pi / 2 * _within_half_circle(block)
            block = torch.cat([angle.sin(), angle.cos()], -1) / math.sqrt(2)
        return torch.where(is_active.unsqueeze(-1), block, 0.0)

    def contains(self, params: Any) -> bool:
        """Return whether params are in the space; constraints are not checked."""
        with contextlib.suppress(InvalidInput):
            self.canonical(params)
            return True
        return False

    def carried(self, params: Params) -> Params | None:
        """Return params of an earlier space as params of this one; None if they have no place here.

        The result may be outside of the ranges. Parameters that this space lacks are left out. Each active parameter of
        this space must have a value in ``params``, unless it is ``Fixed``.
        """
        with contextlib.suppress(InvalidInput):
            return self.canonical(params)
        by_name = self.by_name(params)
        values = dict(self.constants)
        values |= {name: by_name[name] for name in self.parameters if name in by_name}
        values = {name: values[name] for name in self.active_names(values) if name in values}
        carried = self._params_of(values)
        if self.place(carried) is None:
            return None
        with contextlib.suppress(InvalidInput):
            return self.canonical(carried)
        return carried

    @tensors_on_cpu
    def place(self, params: Params) -> Tensor | None:
        """Return the features [D] of params, which may be outside of the ranges; None if they have no place."""
        values = self.by_name(params)
        active = self.active_names(values)
        blocks = []
        try:
            for name in self.parameters:
                columns = [0.0] * self.compared[name].columns
                if name in active:
                    columns = self.compared[name].columns_of(values[name])
                block = torch.tensor([columns], dtype=torch.float64)
                blocks.append(self._where_active(name, block, torch.tensor([name in active])))
        except (KeyError, InvalidInput):
            return None
        return torch.cat(blocks, -1)[0]

    def _params_of(self, values: dict[str, Any]) -> Params:
        """Return values by name as the argument of the objective: a dict, or a list if the bounds were a list."""
        if self.named:
            return values
        return list(values.values())


def _within_half_circle(numbers: Tensor) -> Tensor:
    """Return numbers [n 1] mapped monotonically into (-1/2, 3/2); numbers in [0, 1] stay as they are.

    The results are used as angles, in units of a quarter circle. All angles then lie on a half circle, on which the
    distance grows with the difference. Otherwise a number far outside could have the angle of a number inside.
    """
    inside = numbers.clamp(0, 1)
    excess = numbers - inside
    return inside + excess / (1 + 2 * excess.abs())


def _stand_in(name: str) -> Rule:
    """Return a function that permits all params, with the name of a constraint function in a journal."""

    def permits(params: Any) -> bool:
        return True

    permits.__module__, _, permits.__qualname__ = name.rpartition(".")
    return permits
