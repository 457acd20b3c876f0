"""Tensors that grow in amortised constant time per entry."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Self

from torch import Tensor

from kbo._base.stateful import Stateful

_EXTRA = 14
"""Extra length of a grown axis, because columns a power of two apart would share cache lines."""


class GrowingTensor(Stateful):
    """A tensor that grows along its leading axes.

    Args:
        like: The tensor to begin with; copied.

    Attributes:
        value: The tensor so far, to read and to write: a view of a larger buffer. Rows that are
            appended later never change an earlier view.
    """

    def __init__(self, like: Tensor) -> None:
        self._buffer = like.clone()
        self.value: Tensor = self._buffer

    @property
    def n(self) -> int:
        """Length of the first axis."""
        return self.value.shape[0]

    def append(self, rows: Tensor) -> None:
        """Add rows [r ...] at the end of the first axis."""
        start = self.n
        self._resize(start + len(rows), *self.value.shape[1:])
        self.value[start:] = rows

    def grow(self, *by: int) -> None:
        """Enlarge the leading axes by these numbers of zeros."""
        old = self.value.shape
        new = list(old)
        for axis, length in enumerate(by):
            new[axis] += length
        self._resize(*new)
        for axis, length in enumerate(by):
            self.value.narrow(axis, old[axis], length).zero_()

    def _resize(self, *shape: int) -> None:
        """Enlarge the value, in a larger buffer if there is no room; new entries are not set."""
        old = self.value.shape
        capacity = self._buffer.shape
        if any(map(operator.gt, shape, capacity)):
            larger_capacity = list(capacity)
            for axis, length in enumerate(shape):
                if length > capacity[axis]:
                    larger_capacity[axis] = max(length, 2 * old[axis] + _EXTRA)
            larger = self._buffer.new_empty(larger_capacity)
            larger[_corner(old)] = self.value
            self._buffer = larger
        self.value = self._buffer[_corner(shape)]

    def _fork_with(self, forks: dict[int, Any]) -> Self:
        """Return a copy with the same memory layout, which determines the last bits of products."""
        fork = object.__new__(type(self))
        fork._buffer = self._buffer.new_empty_strided(self._buffer.shape, self._buffer.stride())
        fork.value = fork._buffer[_corner(self.value.shape)]
        fork.value.copy_(self.value)
        return fork

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make the value a view of the buffer again, after ``pickle`` has copied both."""
        vars(self).update(state)
        self.value = self._buffer[_corner(self.value.shape)]


def _corner(shape: Sequence[int]) -> tuple[slice, ...]:
    """Return the index of the leading block of a tensor with this shape."""
    return tuple(map(slice, shape))
