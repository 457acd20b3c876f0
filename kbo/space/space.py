"""Search spaces: named parameters, and their encoding as points that a kernel can compare.

Values of the parameters have three forms. ``params`` is the argument of the objective: a dict, or a list of floats if
the bounds were a list. ``unit`` is a point of the cube [0, 1]^P, one coordinate per parameter, in which the search
takes place. ``features`` [D] is the input of the kernel: numbers scaled to [0, 1] after rounding those with finitely
many values, choices as one-hot columns of length 1/sqrt(2), so that two choices are at distance 1. Equal params have
equal features.

A parameter that is not active is not among the params. Its coordinate has no effect, and its features are zeros. A
conditional number is a point of a quarter of a circle around zero, two columns (as in the arc kernel of Swersky et al.
2014), of radius 1/sqrt(2), so that the ends of its range are at distance 1. So two points without a parameter are
compared by the others alone, and a point with it and one without it are at distance 1/sqrt(2) in it, whatever its
value. Parameters outside of conditions are shared by all branches. Any kernel that is positive definite on features is
so on params, since features are a function of params.
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

from kbo._base import checks
from kbo._base.surroundings import on_host
from kbo.errors import InvalidInput
from kbo.space import program
from kbo.space.conditions import Condition, When
from kbo.space.constraints import Limits, Linear, Rule, checked, in_words, permits
from kbo.space.files import part_of, read
from kbo.space.parameters import Choice, Fixed, Float, Int, Parameter
from kbo.space.table import Frame, columns_of, nearest_of, parameter_of, positions

Params = dict[str, Any] | list[float]
Bounds = (
    Mapping[str, Any] | Sequence[tuple[float, float]] | Sequence[Mapping[str, Any] | When] | Frame
)

_MOST_COLUMNS = 3000
"""Columns of the kernel's input up to which a proposal takes seconds."""

_MIDDLE = 0.5
"""The coordinate of parameters that are not active."""


class Space:
    """Named parameters, all or some of which an objective gets.

    A dict gives every name a parameter:

    * ``Float``, ``Int``, ``Choice``, ``Ordinal`` or ``Fixed``;
    * a pair ``(low, high)``: whole numbers if both are Python integers, otherwise real ones;
    * a list of options: a ``Choice``; ``bool``: the choice of False and True;
    * a single number, text, boolean or None: ``Fixed``.

    A list of pairs, always of real numbers, is for objectives of a vector. A list of dicts and ``When`` has conditional
    parameters. Of a ``pandas.DataFrame`` the rows are the only points: columns of numbers are compared as numbers, any
    others as choices.

    Args:
        bounds: Parameters in one of these forms, or a space.
        constraints: Those that all parameters that kbo chooses satisfy: ``Linear``, and functions of params, defined
            with ``def``, that return whether these may be used. Functions are called for params that satisfy the
            ``Linear`` ones.

    Attributes:
        named: Whether params are dicts.
        parameters: The parameters by name.
        constants: The values of those that are ``Fixed``, by name.
        conditions: The conditions by the names of the parameters that have one.
        constraints: The constraints, also those of a space that is given.
        linear: Those of them that are ``Linear``.
        device: That of the features.
        table: The rows of a table that satisfy the constraints, as points [N P] of the unit cube; None if there is
            none.

    Raises:
        InvalidInput: Bounds that are empty, reversed or not finite, each named; a condition on a parameter that does
            not exist or cannot have its value; a table with missing values or a row twice; constraints that no params
            satisfy, or that cannot be used.
    """

    @on_host
    def __init__(self, bounds: Bounds | Space, constraints: Sequence[Linear | Rule] = ()) -> None:
        given = checked(constraints)
        if isinstance(bounds, Space):
            vars(self).update(vars(bounds))
        else:
            self._define(bounds)
        if given or not isinstance(bounds, Space):
            self._constrain(checked([*self.constraints, *given]))

    def _define(self, bounds: Any) -> None:
        """Make the parameters of bounds."""
        columns = None
        if isinstance(bounds, Frame):
            columns = columns_of(bounds)
            bounds = {name: parameter_of(name, values) for name, values in columns.items()}
        if not isinstance(bounds, (Mapping, Sequence)) or isinstance(bounds, (str, bytes)):
            raise InvalidInput(
                "bounds must be a dict of parameters, a list of pairs (low, high), a list of dicts and kbo.When, or a "
                f"DataFrame of candidates, got {checks.shown(bounds)}."
            )
        conditional = not isinstance(bounds, Mapping) and any(
            isinstance(part, (Mapping, When)) for part in bounds
        )
        self.named: bool = conditional or isinstance(bounds, Mapping)
        self.table: Tensor | None = None
        self.device: torch.device = torch.device("cpu")
        self.parameters: dict[str, Parameter] = {}
        self.constants: dict[str, Any] = {}
        self.conditions: dict[str, Condition] = {}
        self.constraints: tuple[Linear | Rule, ...] = ()
        parts: Any = bounds if conditional else [bounds]
        for name, spec, condition in _entries(parts):
            with checks.inside(f"bounds: parameter {checks.shown(name)}"):
                if checks.text("the name", name) in self.parameters:
                    raise InvalidInput(
                        "there are two of this name; one may be active for several values of its parent."
                    )
                self.parameters[name] = _parameter(spec) if self.named else _real(spec)
            if isinstance(fixed := self.parameters[name], Fixed):
                self.constants[name] = fixed.constant
            if condition is not None:
                self.conditions[name] = condition
        if all(p.columns == 0 for p in self.parameters.values()):
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
        self._check_conditions()
        self._positions: dict[tuple[Any, ...], int] | None = None
        self._levels: dict[str, list[float]] = {}  # the numbers of the rows of a table, ascending
        if columns is not None:
            self._restrict(columns)

    def _restrict(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """Make the rows of a table with these columns the only points."""
        if len({len(columns.get(name, ())) for name in self.parameters}) > 1:
            raise InvalidInput(
                "a table needs as many rows of each parameter: give rows in all entries, or in none."
            )
        values = [map(p.plain, columns[name]) for name, p in self.parameters.items()]
        rows = [dict(zip(self.parameters, row, strict=True)) for row in zip(*values, strict=True)]
        self._rows: Tensor = self.units(rows)
        self.table = self._rows
        self._positions = positions(rows)
        for name, p in self.parameters.items():
            if isinstance(p, Float):
                self._levels[name] = sorted({row[name] for row in rows})

    def _constrain(self, constraints: Sequence[Linear | Rule]) -> None:
        """Set the constraints, after checking that some params satisfy the linear ones."""
        with checks.inside("constraints"):
            names = list(self.parameters)
            found = [
                c.named(names, not self.named) if isinstance(c, Linear) else c for c in constraints
            ]
            self.constraints = tuple(found)
            self.linear: list[Linear] = [c for c in found if isinstance(c, Linear)]
            self._rules: list[Rule] = [c for c in found if not isinstance(c, Linear)]
            self._enumerated: dict[int, Tensor | None] = {}
            for limit in self.linear:
                limit.check(self.parameters)
            self._limits = Limits(self.linear, self.parameters)
            if self.table is not None:
                self.table = self.table[self._satisfied(self.table, given=True)]
                if not len(self.table):
                    raise InvalidInput(
                        f"no row of the table of candidates satisfies {in_words(constraints)}."
                    )
            elif self.linear:
                program.check(self.parameters, self.conditions, self.linear)

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> Space:
        """The space of plain data, such as ``to_dict`` returns.

        Args:
            entries: For each name a single value (fixed), a list of options (a choice), or a dict of the ``kind``
                ("Float", "Int", "Choice", "Ordinal" or "Fixed") and the arguments of that class. ``when``, for a
                conditional parameter, is a dict of the parent and its values; ``rows``, for a table of candidates, are
                the values of the parameter in its rows. An entry of the kind "Linear" is a constraint of any name.

        Raises:
            InvalidInput: An entry that cannot be used.

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
        parts, constraints = [], []
        for name, entry in entries.items():
            with checks.inside(f"parameter {checks.shown(name)}"):
                part = part_of(name, entry)
                (constraints if isinstance(part, Linear) else parts).append(part)
        space = cls(parts)
        columns = {
            name: entry["rows"]
            for name, entry in entries.items()
            if isinstance(entry, Mapping) and "rows" in entry
        }
        if columns:
            space._restrict(columns)
        return cls(space, constraints)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Space:
        """The space of a JSON file (.json) or a YAML file (any other suffix), which has the data of ``from_dict``.

        Raises:
            InvalidInput: The file cannot be read, or an entry cannot be used.
            MissingExtra: PyYAML, which YAML needs, is not installed.
        """
        found = checks.path("path", path)
        entries = read(found)
        with checks.inside(str(found)):
            return cls.from_dict(entries)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """The parameters by name as plain JSON values, then the constraints; of functions the names alone."""
        entries = {name: p.describe() for name, p in self.parameters.items()}
        for name, (parent, values) in self.conditions.items():
            entries[name]["when"] = {parent: list(values)}
        for name, column in zip(entries, zip(*(self._positions or ()), strict=True), strict=False):
            entries[name]["rows"] = list(column)
        rules = {checks.name_of(rule): {"kind": "function"} for rule in self._rules}
        return entries | {str(limit): limit.describe() for limit in self.linear} | rules

    def describe(self) -> list[dict[str, Any]]:
        """Parameters and constraints, as in the header of a journal; equal descriptions are equal spaces."""
        return [{"name": name, **entry} for name, entry in self.to_dict().items()]

    def _check_conditions(self) -> None:
        """Check the conditions, give them plain values, and put the parameters in an order with parents first."""
        names = list(self.parameters)
        for name, (parent, values) in self.conditions.items():
            with checks.inside(f"bounds: the condition of parameter {name!r}"):
                p = self.parameters[checks.one_of("the parent", parent, names)]
                if not p.options:
                    raise InvalidInput(
                        f"the parent {parent!r} must have finitely many values: give it a step."
                    )
                self.conditions[name] = Condition(parent, tuple(p.plain(value) for value in values))
        self._order: list[str] = [name for name in names if name not in self.conditions]
        while left := [name for name in names if name not in self._order]:
            ready = [name for name in left if self.conditions[name].parent in self._order]
            if not ready:
                raise InvalidInput(
                    f"bounds: the conditions of the parameters {left} depend on each other."
                )
            self._order += ready

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
        found: list[str] = []
        for name, p in self.parameters.items():
            if isinstance(p, Choice):
                found += [f"{name} = {option}" for option in p.options]
            else:
                arc = name in self.conditions and p.columns == 1
                found += [f"{name} (sine)", f"{name} (cosine)"] if arc else [name] * p.columns
        return found

    @property
    def continuous(self) -> bool:
        """Whether some parameter is a real number, so that there are infinitely many params."""
        return self.table is None and not all(p.options for p in self.parameters.values())

    @on_host
    def points(self, most: int) -> Tensor | None:
        """One point [N P] of the unit cube for each of the possible params; None if there are more than ``most``.

        With constraints, if there are more before those that violate them are left out.
        """
        if not self.constraints or self.table is not None:
            return self._all_points(most)
        if most not in self._enumerated:
            points = self._all_points(most)
            self._enumerated[most] = None if points is None else points[self.satisfies(points)]
        return self._enumerated[most]

    def _all_points(self, most: int) -> Tensor | None:
        """The points of the space without its constraints."""
        if self.table is not None:
            return self.table if len(self.table) <= most else None
        if self.continuous:
            return None
        points = torch.full((1, self.dimension), _MIDDLE, dtype=torch.float64)
        for name in self._order:
            p, i = self.parameters[name], list(self.parameters).index(name)
            active = self.active(points)[:, i]
            times = torch.where(active, len(p.options), 1)
            if int(times.sum()) > most:
                return None
            units = p.middles(torch.arange(len(p.options)))
            points = points.repeat_interleave(times, 0)
            points[active.repeat_interleave(times), i] = units.repeat(int(active.sum()))
        return points

    @on_host
    def satisfies(self, unit: Tensor) -> Tensor:
        """Whether points [n P] of the unit cube satisfy all constraints, [n].

        Raises:
            InvalidInput: A function raises an exception, or returns no bool.
        """
        return self._satisfied(unit)

    def _satisfied(self, unit: Tensor, given: bool = False) -> Tensor:
        """Whether points [n P] satisfy all constraints, [n]; those that are ``given`` may do so after rounding."""
        found = self._hold(unit, given).all(-1)
        for rule in self._rules:
            verdicts = [permits(rule, params) for params in self._all_params(unit[found])]
            found[found.clone()] = torch.tensor(verdicts, dtype=torch.bool)
        return found

    @on_host
    def violated(self, params: Any) -> list[str]:
        """The constraints that given parameters violate, as text; functions only if the linear ones hold.

        A sum that exceeds its limit by no more than rounding to float32 does not violate it.
        """
        if not self.constraints:
            return []
        values = self._values(params)
        plain = self._named(values)
        numbers = torch.zeros(
            1, self.dimension, dtype=torch.float64
        )  # a parameter that is not active adds nothing
        for i, name in enumerate(self.parameters):
            if i in self._limits.columns and name in values:
                numbers[0, i] = float(values[name])
        held = self._limits.hold(numbers, given=True)[0].tolist()
        found = [str(limit) for limit, holds in zip(self.linear, held, strict=True) if not holds]
        return found or [
            checks.name_of(rule) for rule in self._rules if not permits(rule, copy.copy(plain))
        ]

    @on_host
    def may_satisfy(self, low: Tensor, high: Tensor) -> Tensor:
        """Whether boxes between two corners [n P] of the unit cube may have points that satisfy the linear constraints.

        [n], without conditions. Functions are not asked.
        """
        ends = [self._numbers(low), self._numbers(high)]
        for (
            i,
            extremes,
        ) in (
            self._limits.unordered.items()
        ):  # between the numbers at two ends are not those in between
            within = low[:, i] < high[:, i]
            for end, number in zip(ends, extremes, strict=True):
                end[within, i] = number
        return self._limits.may_hold(*ends)

    def _numbers(self, unit: Tensor) -> Tensor:
        """The numbers [n P] of parameters in a linear constraint, at points [n P] of the unit cube; 0 for others."""
        numbers = torch.zeros_like(unit)
        for i, p in self._limits.columns.items():
            numbers[:, i] = p.numbers(unit[:, i])
        return numbers

    def _hold(self, unit: Tensor, given: bool = False) -> Tensor:
        """Whether each of the linear constraints holds, [n L], at points [n P] of the unit cube."""
        numbers = self._numbers(unit)
        if self.conditions:
            numbers = torch.where(self.active(unit), numbers, 0.0)
        return self._limits.hold(numbers, given)

    @on_host
    def active(self, unit: Tensor) -> Tensor:
        """Whether each parameter is active, [n P], at points [n P] of the unit cube."""
        active, names = torch.ones_like(unit, dtype=torch.bool), list(self.parameters)
        for name in self._order[len(names) - len(self.conditions) :]:
            parent, values = self.conditions[name]
            p, j = self.parameters[parent], names.index(parent)
            positions = torch.tensor([p.options.index(value) for value in values])
            active[:, names.index(name)] = active[:, j] & torch.isin(p.index(unit[:, j]), positions)
        return active

    @on_host
    def active_names(self, params: Mapping[str, Any]) -> list[str]:
        """The names of the parameters that are active where the parents have the plain values of ``params``."""
        active: set[str] = set()
        for name in self._order:
            condition = self.conditions.get(name)
            if not condition or (
                condition.parent in active and params.get(condition.parent) in condition.values
            ):
                active.add(name)
        return [name for name in self.parameters if name in active]

    @on_host
    def pairs(self) -> list[tuple[float, float]]:
        """The bounds of a list space."""
        return [(p.low, p.high) for p in self.parameters.values() if isinstance(p, Float)]

    @on_host
    def params(self, unit: Tensor) -> Params:
        """The argument of the objective at a point [P] of the unit cube; of a table, the nearest row."""
        return self._all_params(unit.unsqueeze(0))[0]

    def _all_params(self, units: Tensor) -> list[Params]:
        """The arguments of the objective at points [n P] of the unit cube."""
        if self.table is not None:
            rows, nearest = (
                list(self._positions or ()),
                torch.cdist(units, self._rows, 1).argmin(-1).tolist(),
            )
            return [dict(zip(self.parameters, rows[i], strict=True)) for i in nearest]
        entries, active = list(self.parameters.items()), self.active(units).tolist()
        return [
            self._named(
                {
                    name: p.value(u)
                    for (name, p), u, here in zip(entries, point, needed, strict=True)
                    if here
                }
            )
            for point, needed in zip(units.tolist(), active, strict=True)
        ]

    @on_host
    def unit(self, params: Any) -> Tensor:
        """The point [P] of the unit cube of given parameters.

        Raises:
            InvalidInput: A parameter is missing, unknown, not active or outside its bounds.
        """
        return self.units([params])[0]

    @on_host
    def units(self, many: Sequence[Any]) -> Tensor:
        """The points [n P] of the unit cube of a list of parameters; see ``unit``."""
        rows = [self._values(params) for params in many]
        units = torch.full((len(rows), self.dimension), _MIDDLE, dtype=torch.float64)
        for i, (name, p) in enumerate(self.parameters.items()):
            active = [row for row, values in enumerate(rows) if name in values]
            if active:
                units[active, i] = p.units([rows[row][name] for row in active])
        return units

    @on_host
    def canonical(self, params: Any) -> Params:
        """A new dict or list of given parameters, with plain Python values, and those of ``Fixed`` ones added.

        Raises:
            InvalidInput: A parameter is missing, unknown, not active or outside its bounds.
        """
        return self._named(self._values(params))

    def plain(self, name: str, value: Any) -> Any:
        """The value of a parameter as a plain Python value.

        A value that is off a bound, a step, an option or the entry of a table only by rounding is set onto it.

        Raises:
            InvalidInput: The parameter does not have the value.
        """
        plain = self.parameters[name].plain(value)
        if name in self._levels:
            return nearest_of(self._levels[name], plain)
        return plain

    def _values(self, params: Any) -> dict[str, Any]:
        """The plain values of given parameters by name, in order."""
        given: dict[str, Any] = {}
        names = list(self.parameters)
        try:
            text = isinstance(params, (str, bytes, bytearray))
            if isinstance(params, Mapping) == self.named and not text:
                given = dict(params) if self.named else dict(zip(names, params, strict=True))
        except Exception:  # of whatever is no dict or list
            pass
        plain = {}
        for name in [name for name in names if name in given]:
            with checks.inside(f"parameter {name!r}"):
                plain[name] = self.plain(name, given[name])
        complete = self.constants | plain
        names = self.active_names(complete)
        plain = {name: complete[name] for name in names if name in complete}
        if not given or len(plain) < len(names) or not given.keys() <= plain.keys():
            lists = {
                "missing": [n for n in names if n not in plain],
                "unknown": [n for n in given if n not in plain],
            }
            differ = "; ".join(
                f"{what} are {checks.shown(found, 400)}" for what, found in lists.items() if found
            )
            raise InvalidInput(
                f"params must have the parameters {checks.shown(names)}, got {checks.shown(params)}: {differ}."
            )
        if self._positions is not None and tuple(plain.values()) not in self._positions:
            raise InvalidInput(
                f"params must be a row of the table of candidates, got {checks.shown(params)}."
            )
        return plain

    def on(self, device: torch.device) -> Space:
        """The same space with features on a device."""
        found = copy.copy(self)
        found.device = device
        return found

    @on_host
    def features(self, unit: Tensor) -> Tensor:
        """The input of the kernel, [n D], at points [n P] of the unit cube."""
        parts, active = [], self.active(unit).unsqueeze(-1)
        for i, (name, p) in enumerate(self.parameters.items()):
            part = p.features(unit[:, i])
            if name in self.conditions:
                arc = torch.cat(
                    [(math.pi / 2 * part).sin(), (math.pi / 2 * part).cos()], -1
                ) / math.sqrt(2)
                part = torch.where(active[:, i], arc if p.columns == 1 else part, 0.0)
            parts.append(part)
        return torch.cat(parts, -1).to(self.device)

    def _named(self, values: dict[str, Any]) -> Params:
        return values if self.named else list(values.values())


def _entries(parts: Sequence[Any]) -> Iterator[tuple[Any, Any, Condition | None]]:
    """Names, parameters as given, and conditions, of the parts of a space."""
    for part in parts:
        if isinstance(part, When):
            yield from (
                (n, spec, Condition(part.parent, part.values))
                for n, spec in part.parameters.items()
            )
        elif isinstance(part, Mapping):
            yield from ((name, spec, None) for name, spec in part.items())
        else:
            yield from ((f"x{i}", pair, None) for i, pair in enumerate(part))


def _real(pair: Any) -> Parameter:
    """The parameter of a pair in a list of bounds."""
    found = Float(*pair) if isinstance(pair, tuple) and len(pair) == 2 else pair
    if not isinstance(found, Float) or found.options:
        raise InvalidInput(
            f"bounds given as a list must be pairs (low, high), got {checks.shown(pair)}: use a dict for other "
            "parameters."
        )
    return found


def _parameter(spec: Any) -> Parameter:
    """The parameter that is meant by an entry of a dict."""
    pair = isinstance(spec, (list, tuple)) and len(spec) == 2 and all(_is(v, Real) for v in spec)
    whole = pair and all(_is(v, Integral) for v in spec)
    if pair and (isinstance(spec, list) or (whole and spec[1] - spec[0] == 1)):
        low, high = spec
        integers = f", kbo.Int({low}, {high}) for whole ones" * whole
        raise InvalidInput(
            f"{spec} could be a range or a choice: write ({float(low)}, {float(high)}) for real numbers "
            f"between{integers}, or kbo.Choice({[low, high]}) for one of the two."
        )
    if isinstance(spec, Parameter):
        return spec
    if isinstance(spec, list):
        return Choice(spec)
    if isinstance(spec, tuple) and len(spec) == 2:
        return Int(*spec) if whole else Float(*spec)
    if spec is bool:
        return Choice([False, True])
    if isinstance(spec, When):
        raise InvalidInput(
            "kbo.When stands beside a dict, not in it: [{...}, kbo.When(parent, value, {...})]."
        )
    if spec is None or isinstance(checks.plain(spec), (str, bool, Real)):
        return Fixed(spec)
    raise InvalidInput(
        "expected kbo.Float, kbo.Int, kbo.Choice, kbo.Ordinal, (low, high), a list of options, bool or a single "
        f"value, got {checks.shown(spec)}."
    )


def _is(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)
