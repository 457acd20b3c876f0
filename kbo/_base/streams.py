"""Standard output and error that may be lost: a reader that left, a full disk, a terminal that was closed."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any


class LastingStream:
    """A stream of text to which writing does not fail: once the system refuses a text, it and later ones are dropped.

    So a run goes on when the program that reads its output has ended. From then on the descriptor of the stream is that
    of the null device, also for processes that are started later.

    Args:
        stream: The stream.
        name: Its name in the message, which is written to standard error at once.

    Attributes:
        lost: Whether a text was refused.
    """

    def __init__(self, stream: Any, name: str) -> None:
        self._stream = stream
        self._name = name
        self.lost: bool = False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # of a copy that is not made yet
            raise AttributeError(name)
        return getattr(self._stream, name)

    def __enter__(self) -> LastingStream:
        return self

    def __exit__(self, *error: object) -> None:
        """Flush, and leave the stream open: others write to it."""
        self.flush()

    def __iter__(self) -> Iterator[str]:
        return iter(self._stream)

    def write(self, text: str) -> int:
        """Write a text, and return its length."""
        if self.lost:
            return len(text)
        try:
            return self._stream.write(text)
        except (OSError, ValueError) as error:  # ValueError of a stream that was closed
            self._drop(error)
            return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for text in lines:
            self.write(text)

    def flush(self) -> None:
        """Write what the stream has not yet written."""
        if self.lost:
            return
        try:
            self._stream.flush()
        except (OSError, ValueError) as error:
            self._drop(error)

    def _drop(self, error: OSError | ValueError) -> None:
        self.lost = True
        with contextlib.suppress(
            OSError, ValueError, AttributeError
        ):  # of a stream without a descriptor
            descriptor = self._stream.fileno()
            with open(os.devnull, "wb") as null:
                os.dup2(null.fileno(), descriptor)
        if sys.stderr is not None and sys.stderr is not self:
            reason = getattr(error, "strerror", None) or str(error)
            sys.stderr.write(
                f"error: cannot write to {self._name} ({reason}): what follows is not shown. What a command writes to "
                "files, such as a journal, is complete.\n"
            )


def lasting(stream: Any, name: str) -> Any:
    """Return a stream of this process as a lasting one; None if there is none, as in a service."""
    return None if stream is None else LastingStream(stream, name)


@contextlib.contextmanager
def lasting_output() -> Iterator[LastingStream | None]:
    """Put lasting streams in the place of standard output and error in a block; yield the former, None without one."""
    before = sys.stdout, sys.stderr
    sys.stdout = lasting(sys.stdout, "standard output")
    sys.stderr = lasting(sys.stderr, "standard error")
    try:
        yield sys.stdout
    finally:
        sys.stdout, sys.stderr = before
