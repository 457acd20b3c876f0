"""Tensors that grow in amortised constant time per entry."""

from __future__ import annotations

from typing import Any, Self

from torch import Tensor

from kbo._base.stateful import Stateful

_EXTRA = 14
"""Added to twice the length of an axis that grows: columns that are powers of two apart would share cache lines."""


class GrowingTensor(Stateful):
    """A tensor that grows along its leading axes.

    Args:
        like: The tensor to begin with; copied.

    Attributes:
        value: The tensor so far, to read and to write: a view of a larger buffer. Rows that are appended later never
            change an earlier view.
    """

    saved: tuple[str, ...] = ("value", "capacity", "stride")

    def __init__(self, like: Tensor) -> None:
        self._buffer = like.clone()
        self.value: Tensor = self._buffer

    @property
    def n(self) -> int:
        """Length of the first axis."""
        return self.value.shape[0]

    @property
    def capacity(self) -> list[int]:
        """Shape of the buffer."""
        return list(self._buffer.shape)

    @property
    def stride(self) -> list[int]:
        """Layout of the buffer, on which the last bits of products depend."""
        return list(self._buffer.stride())

    def append(self, rows: Tensor) -> None:
        """Add rows [r ...] at the end of the first axis."""
        start = self.n
        self.grow(rows.shape[0])
        self.value[start:] = rows

    def grow(self, *by: int) -> None:
        """Enlarge the leading axes by these numbers of zeros."""
        before, rows = self.value.shape, self.value.shape[0] + by[0]
        if len(by) == 1 and rows <= self._buffer.shape[0] and before[1:] == self._buffer.shape[1:]:
            self.value = self._buffer[:rows]
            self.value[before[0] :] = 0
            return
        wanted = [
            had + more
            for had, more in zip(before, (*by, *[0] * (len(before) - len(by))), strict=True)
        ]
        capacity = self._buffer.shape
        if any(w > c for w, c in zip(wanted, capacity, strict=True)):
            room = (
                max(w, 2 * had + _EXTRA) if w > c else c
                for w, had, c in zip(wanted, before, capacity, strict=True)
            )
            larger = self._buffer.new_empty(*room)
            larger[tuple(map(slice, before))] = self.value
            self._buffer = larger
        self.value = self._buffer[tuple(map(slice, wanted))]
        for axis, had in enumerate(
            before
        ):  # of the buffer, what is not a part of the value is not set
            self.value.narrow(axis, had, wanted[axis] - had).zero_()

    def _fork_with(self, memo: dict[int, Any]) -> Self:
        """Return a copy of the same layout; only what was written is copied."""
        twin = object.__new__(type(self))
        twin._allocate(self.value, self.capacity, self.stride)
        return twin

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make the value a view of the buffer again: ``pickle`` copies the two."""
        vars(self).update(state)
        self.value = self._buffer[tuple(map(slice, self.value.shape))]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._check_state(state)
        self._allocate(state["value"], state["capacity"], state["stride"])

    def _allocate(self, value: Tensor, capacity: list[int], stride: list[int]) -> None:
        self._buffer = value.new_zeros(()).new_empty_strided(capacity, stride)
        self.value = self._buffer[tuple(map(slice, value.shape))]
        self.value.copy_(value)
