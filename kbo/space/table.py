"""Tables of candidates: each column is a parameter, and the rows are the only points of the space."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from kbo._base import checks
from kbo.errors import InvalidInput
from kbo.space.parameters import Choice, Fixed, Float, Int, Parameter, nearest


@runtime_checkable
class Frame(Protocol):
    """A DataFrame of pandas."""

    @property
    def columns(self) -> Any:
        """The names of the columns."""

    def itertuples(self) -> Any:
        """Iterate over the rows."""


def columns_of(table: Any) -> dict[str, list[Any]]:
    """Return the values of a DataFrame by column.

    Raises:
        InvalidInput: Two columns have the same name, the table is empty, or a value is missing.
    """
    names = list(table.columns)
    if len(set(names)) < len(names):
        raise InvalidInput(f"the table has several columns of one name: {checks.shown(names)}.")
    if not len(table) or not names:
        raise InvalidInput("the table of candidates is empty.")
    missing = table.isna()
    for name in names:
        if missing[name].any():
            row = missing.index[missing[name]][0]
            raise InvalidInput(
                f"the table has no value in row {row!r}, column {name!r}: drop the row, or fill it."
            )
    return table.to_dict("list")


def parameter_of(name: str, values: Sequence[Any]) -> Parameter:
    """Return the parameter of a column: a range for numbers, a choice for other values, ``Fixed`` for one value."""
    with checks.inside(f"the table: column {checks.shown(name)}"):
        distinct = list(dict.fromkeys(values))
        if len(distinct) == 1:
            return Fixed(distinct[0])
        kinds = {type(value) for value in distinct}
        if bool in kinds or not all(issubclass(kind, (int, float)) for kind in kinds):
            return Choice(distinct)
        if all(issubclass(kind, int) for kind in kinds):
            return Int(min(distinct), max(distinct))
        return Float(min(distinct), max(distinct))


class Table:
    """The rows of a table of candidates.

    Args:
        columns: The values of each parameter in the rows, by name.
        parameters: The parameters of the space by name.

    Attributes:
        columns: The plain values of each parameter in the rows, by name.
        rows: The position of each row, by its plain values.
        units: The rows as points [N P] of the unit cube.

    Raises:
        InvalidInput: The columns differ in length, a parameter does not have a value, or two rows are equal.
    """

    def __init__(
        self, columns: Mapping[str, Sequence[Any]], parameters: Mapping[str, Parameter]
    ) -> None:
        if len({len(columns.get(name, ())) for name in parameters}) > 1:
            raise InvalidInput(
                "a table needs as many rows of each parameter: give rows in all entries, or in none."
            )
        self.columns: dict[str, list[Any]] = {}
        units = []
        # The different values of real parameters, in order.
        self._levels: dict[str, list[float]] = {}
        for name, p in parameters.items():
            column = [p.plain(value) for value in columns[name]]
            self.columns[name] = column
            units.append(p.units(column))
            if not p.options:
                self._levels[name] = sorted(set(column))
        self.units: Tensor = torch.stack(units, -1)
        self.rows: dict[tuple[Any, ...], int] = {}
        for position, row in enumerate(zip(*self.columns.values(), strict=True)):
            first_position = self.rows.setdefault(row, position)
            if first_position != position:
                raise InvalidInput(
                    f"the table has row {first_position} again as row {position}, counted from 0: drop duplicates."
                )

    def nearest(self, units: Tensor) -> list[dict[str, Any]]:
        """Return the params of the rows nearest to points [n P] of the unit cube, by the L1 distance."""
        rows = list(self.rows)
        positions = torch.cdist(units, self.units, 1).argmin(-1).tolist()
        return [dict(zip(self.columns, rows[position], strict=True)) for position in positions]

    def plain(self, name: str, value: Any) -> Any:
        """Return a plain value of a parameter; a real number that rounding has moved off an entry becomes the entry."""
        if name not in self._levels:
            return value
        levels = self._levels[name]
        rank = bisect.bisect_left(levels, value)
        neighbours = levels[max(rank - 2, 0) : rank + 2]
        position = nearest(neighbours, value)
        if position is None:
            return value
        return neighbours[position]
