"""Tensors that grow in amortised constant time per entry."""

from __future__ import annotations

from typing import Any

from torch import Tensor


class GrowingTensor:
    """A tensor that grows along its first axis in amortised constant time per row."""

    def __init__(self, like: Tensor) -> None:
        self._buffer = like.clone()
        self.n = like.shape[0]

    @property
    def value(self) -> Tensor:
        """The rows so far, [n ...]; a view that later growth never changes."""
        return self._buffer[: self.n]

    def append(self, rows: Tensor) -> None:
        """Add rows [r ...] at the end."""
        stop = self.n + rows.shape[0]
        if stop > self._buffer.shape[0]:
            grown = self._buffer.new_empty(max(stop, 2 * self.n, 16), *self._buffer.shape[1:])
            grown[: self.n] = self.value
            self._buffer = grown
        self._buffer[self.n : stop] = rows
        self.n = stop

    def fork(self) -> GrowingTensor:
        """An independent copy."""
        return GrowingTensor(self.value)


class GrowingMatrix:
    """A matrix that grows along both axes in amortised constant time per entry.

    Attributes:
        value: The matrix so far, [a b], to read and to write: a view of a larger buffer.
    """

    def __init__(self, like: Tensor) -> None:
        self._buffer = like.clone()
        self.value = self._buffer

    def grow(self, rows: int, columns: int) -> None:
        """Enlarge by that many rows and columns of zeros."""
        a, b = self.value.shape
        wanted = (a + rows, b + columns)
        if any(w > had for w, had in zip(wanted, self._buffer.shape, strict=True)):
            room = (2 * w if w > had else had for w, had in zip(wanted, self._buffer.shape, strict=True))
            larger = self._buffer.new_zeros(*room)
            larger[:a, :b] = self.value
            self._buffer = larger
        self.value = self._buffer[: wanted[0], : wanted[1]]

    def state_dict(self) -> dict[str, Any]:
        """The matrix and the layout of its buffer, on which the last bits of products depend."""
        layout = {"shape": list(self._buffer.shape), "stride": list(self._buffer.stride())}
        return {"value": self.value.clone(), **layout}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of ``state_dict``."""
        (a, b), value = state["value"].shape, state["value"]
        self._buffer = value.new_empty_strided(state["shape"], state["stride"]).zero_()
        self.value = self._buffer[:a, :b]
        self.value.copy_(value)

    def fork(self) -> GrowingMatrix:
        """An independent copy, with the same layout."""
        copy = GrowingMatrix(self._buffer)
        copy.value = copy._buffer[: self.value.shape[0], : self.value.shape[1]]
        return copy
