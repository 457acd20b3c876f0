"""Tables of candidates: a parameter for each column, and the rows as the only points."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

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
    """The values of a DataFrame by column.

    Raises:
        InvalidInput: Columns of the same name, no rows, or a missing value.
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
    """The parameter of the values of a column: a range of numbers, a choice of anything else, or a fixed value."""
    with checks.inside(f"the table: column {checks.shown(name)}"):
        if len(distinct := list(dict.fromkeys(values))) == 1:
            return Fixed(distinct[0])
        if not all(
            isinstance(value, (int, float)) and not isinstance(value, bool) for value in distinct
        ):
            return Choice(distinct)
        numbers = min(distinct), max(distinct)
        return (
            Int(*numbers) if all(isinstance(value, int) for value in distinct) else Float(*numbers)
        )


def nearest_of(levels: Sequence[float], number: float) -> float:
    """The entry of a column that a number is except for rounding; the number itself if it is none of them.

    Args:
        levels: The entries of the column, ascending.
        number: The number.
    """
    place = bisect.bisect_left(levels, number)
    if place < len(levels) and levels[place] == number:
        return number
    neighbours = levels[max(place - 2, 0) : place + 2]
    position = nearest(neighbours, number)
    return number if position is None else neighbours[position]


def positions(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[Any, ...], int]:
    """The positions of rows by their values.

    Raises:
        InvalidInput: Two rows are equal.
    """
    found: dict[tuple[Any, ...], int] = {}
    for i, row in enumerate(rows):
        if (first := found.setdefault(tuple(row.values()), i)) != i:
            raise InvalidInput(
                f"the table has row {first} again as row {i}, counted from 0: drop duplicates."
            )
    return found
