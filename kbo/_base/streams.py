"""Wrappers of standard output and standard error.

One never fails to write. The other prints above a progress bar.
"""

from __future__ import annotations

import contextlib
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any


class Wrapped(ABC):
    """A text stream that passes everything on to another stream.

    Args:
        stream: The other stream.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # also of a copy that has no stream yet
            raise AttributeError(name)
        return getattr(self._stream, name)

    def __enter__(self) -> Wrapped:
        return self

    def __exit__(self, *error: object) -> None:
        """Flush the stream, and leave it open for others."""
        self.flush()

    def __iter__(self) -> Iterator[str]:
        return iter(self._stream)

    @abstractmethod
    def write(self, text: str) -> int:
        """Write a text, and return its length."""

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for text in lines:
            self.write(text)

    def flush(self) -> None:
        """Write the text that is still in the buffer."""
        self._stream.flush()


class LastingStream(Wrapped):
    """A stream to which writing never fails: after the first error, all text is dropped.

    So a run goes on if the reader of its output has ended, the disk is full or the terminal was closed. After an error
    the descriptor of the stream leads to the null device, also for processes that are started later. A message goes to
    standard error, unless the reader has ended: a reader such as `head` may do so.

    Args:
        stream: The stream.
        name: The name of the stream in the message.

    Attributes:
        lost: Whether text was lost for another reason than that the reader has ended.
    """

    def __init__(self, stream: Any, name: str) -> None:
        super().__init__(stream)
        self._name = name
        self._is_open = True
        self.lost: bool = False

    def write(self, text: str) -> int:
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._try(lambda: self._stream.flush())

    def _try(self, action: Callable[[], object]) -> None:
        """Do a step of writing, unless an earlier one failed; if this one fails, drop all text from now on."""
        if not self._is_open:
            return
        try:
            action()
        except (OSError, ValueError) as error:  # ValueError of a stream that was closed
            self._drop(error)

    def _drop(self, error: OSError | ValueError) -> None:
        """Write to the null device from now on, and print the reason on standard error, unless the reader has ended."""
        self._is_open = False
        # A stream may have no descriptor.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            descriptor = self._stream.fileno()
            with open(os.devnull, "wb") as null:
                os.dup2(null.fileno(), descriptor)
        if isinstance(error, BrokenPipeError):
            return
        self.lost = True
        if sys.stderr is not None and sys.stderr is not self:
            reason = getattr(error, "strerror", None) or str(error)
            sys.stderr.write(
                f"error: cannot write to {self._name} ({reason}): what follows is not shown. What a"
                " command writes to files, such as a journal, is complete.\n"
            )


def lasting(stream: Any, name: str) -> Any:
    """Return a stream as a ``LastingStream``; None if the process has no such stream, for example in a service."""
    return None if stream is None else LastingStream(stream, name)


@contextlib.contextmanager
def lasting_output() -> Iterator[LastingStream | None]:
    """Make standard output and error lasting streams in a block; yield standard output, which may be None."""
    before = sys.stdout, sys.stderr
    sys.stdout = lasting(sys.stdout, "standard output")
    sys.stderr = lasting(sys.stderr, "standard error")
    try:
        yield sys.stdout
    finally:
        sys.stdout, sys.stderr = before


_CLEAR_LINE = "\r\x1b[K"


class AboveBar(Wrapped):
    """A stream to a terminal that prints above a progress bar: text replaces the bar, which is then drawn again.

    Args:
        stream: The stream to the terminal.
        draw: A function that draws the bar, called after whole lines.
    """

    def __init__(self, stream: Any, draw: Callable[[], object] = lambda: None) -> None:
        super().__init__(stream)
        self._draw = draw
        self._is_line_begin = True

    def write(self, text: str) -> int:
        for line in text.splitlines(keepends=True):
            if self._is_line_begin:
                self._stream.write(_CLEAR_LINE)
            self._stream.write(line)
            self._is_line_begin = line.endswith("\n")
        if text and self._is_line_begin:
            self._stream.flush()
            self._draw()
        return len(text)
