"""Streams around standard output and error.

Writing to one of them never fails, the other shares its line with a progress bar.
"""

from __future__ import annotations

import contextlib
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any


class Wrapped(ABC):
    """A stream of text that passes everything on to another one.

    Args:
        stream: The other one.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # of a copy that is not made yet
            raise AttributeError(name)
        return getattr(self._stream, name)

    def __enter__(self) -> Wrapped:
        return self

    def __exit__(self, *error: object) -> None:
        """Flush, and leave the stream open: others write to it."""
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
        """Write the rest of the text that the stream has taken."""
        self._stream.flush()


class LastingStream(Wrapped):
    """A stream to which writing does not fail: texts are dropped once the system refuses one.

    So a run goes on when the program that reads its output has ended, a disk is full or a terminal
    was closed. From then on the descriptor of the stream is that of the null device, also for
    processes that are started later. That a program does not read to the end, as `head`, is no fault, and nothing
    is said about it.

    Args:
        stream: The stream.
        name: Its name in the message, which is written to standard error at once.

    Attributes:
        lost: Whether a text was refused for another reason.
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
        """Write, unless an earlier text was refused; drop the text if this one is."""
        if not self._is_open:
            return
        try:
            action()
        except (OSError, ValueError) as error:  # ValueError of a stream that was closed
            self._drop(error)

    def _drop(self, error: OSError | ValueError) -> None:
        """Write to the null device from now on, and say why on standard error, unless the reader has ended."""
        self._is_open = False
        # A stream may be without a descriptor.
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
    """Return a stream of this process as a lasting one; None if there is none, as in a service."""
    return None if stream is None else LastingStream(stream, name)


@contextlib.contextmanager
def lasting_output() -> Iterator[LastingStream | None]:
    """Make standard output and error lasting streams in a block; yield the former, None without."""
    before = sys.stdout, sys.stderr
    sys.stdout = lasting(sys.stdout, "standard output")
    sys.stderr = lasting(sys.stderr, "standard error")
    try:
        yield sys.stdout
    finally:
        sys.stdout, sys.stderr = before


_CLEAR_LINE = "\r\x1b[K"


class AboveBar(Wrapped):
    """A stream to the terminal whose lines take the place of a progress bar, which is drawn again.

    Args:
        stream: The stream.
        draw: Draws the bar; called after whole lines.
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
