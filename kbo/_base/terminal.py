"""Text and progress bars for terminals and notebooks."""

from __future__ import annotations

import contextlib
import math
import sys
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from typing import Any, Self

from tqdm.auto import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from kbo._base.streams import AboveBar

_MOST_WIDTHS = 1e15
"""Size of a number, in widths of its interval, beyond which all of its digits are shown."""

_LEAST_WIDTH = 1e-9
"""Width of an interval, as a share of the number, below which the number is exact."""


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


def significant(number: float, digits: int, rounding: str = ROUND_HALF_EVEN) -> str:
    """Return a number with so many significant digits, up to a million without an exponent.

    Args:
        number: The number.
        digits: The number of digits, at most 6.
        rounding: A rounding mode of ``decimal``: ends of intervals are rounded outwards.
    """
    decimal = Context(prec=digits, rounding=rounding).create_decimal(repr(float(number)))
    return f"{float(decimal):.6g}"


def rounded(number: float, width: float, rounding: str = ROUND_HALF_EVEN) -> str:
    """Return a number with two digits of the width of its interval; ``rounding`` as for ``significant``."""
    if not 0 < width < math.inf or abs(number) > _MOST_WIDTHS * width:
        return f"{number}"
    last_digit = math.floor(math.log10(width)) - 1
    shown = Decimal(repr(float(number))).quantize(Decimal(1).scaleb(last_digit), rounding)
    if abs(last_digit) > 6:
        return f"{shown:g}"
    return f"{shown:f}"


def bounded(lower: float, number: float, upper: float) -> str:
    """Return a number with its interval, in two digits of its width; of an interval without width the number alone."""
    width = upper - lower
    if width <= _LEAST_WIDTH * abs(number):
        return f"{number:.4g}"
    low = rounded(lower, width, ROUND_FLOOR)
    high = rounded(upper, width, ROUND_CEILING)
    return f"{rounded(number, width)} [{low}, {high}]"


def beside(number: float, limit: float) -> str:
    """Return a number with four digits, or with as many as show on which side of a limit it is."""
    text = f"{number:.4g}"
    for digits in range(5, 18):
        shown = float(text)
        if (shown < limit) == (number < limit) and (shown > limit) == (number > limit):
            break
        text = f"{number:.{digits}g}"
    return text


def percent(probability: float) -> str:
    """Return an estimated probability in percent, which is never said to be 0 or 100."""
    if probability > 0.99:
        return "more than 99%"
    if probability < 0.01:
        return "less than 1%"
    return f"{probability:.0%}"


def rounded_up(value: float, digits: int) -> str:
    """Return a number of at least 0 with so many digits, not smaller than it is."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    unit = 10.0 ** (math.floor(math.log10(value)) + 1 - digits)
    return f"{math.ceil(value / unit * (1 - 1e-12)) * unit:.{digits}g}"


def counted(n: int, noun: str) -> str:
    """Return a number with its noun, in the plural where it is not 1."""
    if n == 1:
        return f"1 {noun}"
    return f"{n} {noun}s"


def on_terminal() -> bool:
    """Return whether output and errors of this process are shown in a terminal, with bars."""
    return all(hasattr(stream, "isatty") and stream.isatty() for stream in (sys.stdout, sys.stderr))


def announce(line: str) -> None:
    """Print a line on standard error; nothing where a process has none, as a service."""
    if _has_standard_error():
        print(line, file=sys.stderr)


def _has_standard_error() -> bool:
    """Return whether this process has a standard error that is open."""
    return sys.stderr is not None and not getattr(sys.stderr, "closed", False)


class Bar(tqdm):
    """A progress bar, in notebooks a widget. Lines of the log and the output appear above it.

    It has no thread, which tqdm starts for slow bars, also for hidden ones.
    """

    monitor_interval = 0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        if not _has_standard_error():
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
