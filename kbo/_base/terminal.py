"""Text and progress bars for terminals and notebooks."""

from __future__ import annotations

import contextlib
import math
import sys
from typing import Any, Self

from tqdm.auto import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from kbo._base.streams import AboveBar


def printable(text: str) -> str:
    """Return a text with its control characters, which a terminal would obey, as escape sequences.

    Line ends and tabs stay.
    """
    if text.isprintable():
        return text
    shown: list[str] = []
    for character in text:
        if not character.isprintable() and character not in "\n\t":
            character = character.encode("unicode_escape").decode()
        shown.append(character)
    return "".join(shown)


def significant(number: float, digits: int) -> str:
    """Return a number with so many significant digits, up to a million without an exponent."""
    return f"{float(f'{number:.{digits}g}'):.6g}"


def rounded_up(value: float, digits: int) -> str:
    """Return a number of at least 0 with so many digits, not smaller than it is."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    unit = 10.0 ** (math.floor(math.log10(value)) + 1 - digits)
    return f"{math.ceil(value / unit * (1 - 1e-12)) * unit:.{digits}g}"


def on_terminal() -> bool:
    """Return whether output and errors of this process are shown in a terminal, with bars."""
    return all(hasattr(stream, "isatty") and stream.isatty() for stream in (sys.stdout, sys.stderr))


class Bar(tqdm):
    """A progress bar, in notebooks a widget. Lines of the log and the output appear above it.

    It has no thread, which tqdm starts for slow bars, also for hidden ones.
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
                above = AboveBar(sys.stdout, self.refresh)
                self._above.enter_context(contextlib.redirect_stdout(above))
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        self._above.close()
        super().__exit__(*error)
