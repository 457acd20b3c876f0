"""Text and progress bars for terminals and notebooks."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterable
from typing import Any, Self

from tqdm.auto import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm


def printable(text: str) -> str:
    """Return a text with its control characters, but line ends and tabs, as escape sequences: they would be obeyed."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text
    )


def rounded_up(value: float, digits: int) -> str:
    """Return a number of at least 0 with so many digits, not smaller than it is."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    unit = 10.0 ** (math.floor(math.log10(value)) + 1 - digits)
    return f"{math.ceil(value / unit * (1 - 1e-12)) * unit:.{digits}g}"


class AboveBar:
    """A stream of text to the terminal, of which each line begins where a progress bar may be, and takes its place.

    Args:
        stream: The stream.
        after: Called after whole lines, to draw the bar again.
    """

    def __init__(self, stream: Any, after: Callable[[], object] = lambda: None) -> None:
        self._stream, self._after, self._begins = stream, after, True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # of a copy that is not made yet
            raise AttributeError(name)
        return getattr(self._stream, name)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for text in lines:
            self.write(text)

    def flush(self) -> None:
        """Write what the stream has not yet written."""
        self._stream.flush()

    def write(self, text: str) -> int:
        """Write a text."""
        for line in text.splitlines(keepends=True):
            self._stream.write(f"{_CLEAR * self._begins}{line}")
            self._begins = line.endswith("\n")
        if text and self._begins:
            self._stream.flush()
            self._after()
        return len(text)


_CLEAR = "\r\x1b[K"
"""Go to the beginning of the line and clear it."""


def on_terminal() -> bool:
    """Return whether text and errors of this process are shown in a terminal, where bars are drawn."""
    return all(hasattr(stream, "isatty") and stream.isatty() for stream in (sys.stdout, sys.stderr))


class Bar(tqdm):
    """A progress bar, in notebooks a widget, without the thread that tqdm starts for slow bars, also hidden ones.

    Lines of the log and of the output are written above it, not into it.
    """

    monitor_interval = 0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        if sys.stderr is None or getattr(sys.stderr, "closed", False):  # as in a service
            options["disable"] = True
        super().__init__(*arguments, **options)

    def __enter__(self) -> Self:
        self._above = contextlib.ExitStack()
        if not self.disable:
            self._above.enter_context(logging_redirect_tqdm())
            if on_terminal():
                self._above.enter_context(
                    contextlib.redirect_stdout(AboveBar(sys.stdout, self.refresh))
                )
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        self._above.close()
        super().__exit__(*error)
