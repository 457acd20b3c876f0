"""Text and progress bars for terminals and notebooks."""

from __future__ import annotations

import contextlib
import sys
from typing import Any, Self

from tqdm.auto import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm


def printable(text: str) -> str:
    """Return a text with its control characters, but line ends and tabs, as escape sequences: they would be obeyed."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


class Bar(tqdm):
    """A progress bar, in notebooks a widget, without the thread that tqdm starts for slow bars, also hidden ones.

    Lines of the log are written above it, not into it.
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
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        self._above.close()
        super().__exit__(*error)
