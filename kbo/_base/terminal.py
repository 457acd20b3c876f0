"""Numbers as text, and progress bars, for terminals and notebooks."""

from __future__ import annotations

import contextlib
import math
import sys
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from typing import Any, Self

from tqdm.auto import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from kbo._base.streams import AboveBar

_MOST_WIDTHS = 1e15
"""All digits of a number are shown if it is larger than this number of widths of its interval."""

_LEAST_WIDTH = 1e-9
"""A number counts as exact if the width of its interval is below this share of the number."""


def printable(text: str) -> str:
    """Return a text with escape sequences for its control characters, which a terminal would execute.

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
    """Return a number with ``digits`` significant digits; below a million it has no exponent.

    Args:
        number: The number.
        digits: The number of digits, at most 6.
        rounding: A rounding mode of ``decimal``; ends of intervals are rounded outwards.
    """
    decimal = Context(prec=digits, rounding=rounding).create_decimal(repr(float(number)))
    return f"{float(decimal):.6g}"


def rounded(number: float, width: float, rounding: str = ROUND_HALF_EVEN) -> str:
    """Return a number with two digits of the width of its interval, or with four if the width is infinite.

    ``rounding`` is as for ``significant``.
    """
    if math.isinf(width):
        return significant(number, 4, rounding)
    if not width > 0 or abs(number) > _MOST_WIDTHS * width:
        return f"{number}"
    last_digit = math.floor(math.log10(width)) - 1
    shown = Decimal(repr(float(number))).quantize(Decimal(1).scaleb(last_digit), rounding)
    if abs(last_digit) > 6:
        return f"{shown:g}"
    return f"{shown:f}"


def bounded(lower: float, number: float, upper: float) -> str:
    """Return a number with its interval, rounded to the second digit of the width; without width only the number."""
    width = upper - lower
    if not has_width(lower, number, upper):
        return f"{number:.4g}"
    low = rounded(lower, width, ROUND_FLOOR)
    high = rounded(upper, width, ROUND_CEILING)
    return f"{rounded(number, width)} [{low}, {high}]"


def has_width(lower: float, number: float, upper: float) -> bool:
    """Return whether the interval of a number is wider than rounding errors."""
    return upper - lower > _LEAST_WIDTH * abs(number)


def beside(number: float, limit: float) -> str:
    """Return a number with four digits, or with more if these are needed to show its side of a limit."""
    text = f"{number:.4g}"
    for digits in range(5, 18):
        shown = float(text)
        if (shown < limit) == (number < limit) and (shown > limit) == (number > limit):
            break
        text = f"{number:.{digits}g}"
    return text


def percent(probability: float) -> str:
    """Return an estimated probability in percent, but never 0% or 100%."""
    if probability > 0.99:
        return "more than 99%"
    if probability < 0.01:
        return "less than 1%"
    return f"{probability:.0%}"


def confidence_level(delta: float) -> str:
    """Return the probability ``1 - delta`` in percent, rounded down, with three digits of delta: never 100%."""
    failing = Context(prec=3, rounding=ROUND_CEILING).create_decimal(repr(float(delta)))
    level = Context(prec=12, rounding=ROUND_DOWN).subtract(Decimal(100), failing.scaleb(2))
    return f"{level.normalize():f}%"


def rounded_up(value: float, digits: int) -> str:
    """Return a number of at least 0 with so many digits, not smaller than it is."""
    return significant(value, digits, ROUND_CEILING)


def counted(n: int, noun: str) -> str:
    """Return a number with its noun, in the plural where it is not 1."""
    if n == 1:
        return f"1 {noun}"
    return f"{n} {noun}s"


def on_terminal() -> bool:
    """Return whether standard output and standard error are both a terminal, which can show bars."""
    return all(hasattr(stream, "isatty") and stream.isatty() for stream in (sys.stdout, sys.stderr))


def announce(line: str) -> None:
    """Print a line on standard error, if the process has one: a service may have none."""
    if _has_standard_error():
        print(line, file=sys.stderr)


def _has_standard_error() -> bool:
    """Return whether this process has a standard error that is open."""
    return sys.stderr is not None and not getattr(sys.stderr, "closed", False)


class Bar(tqdm):
    """A progress bar, in notebooks a widget. Lines of the log and the output appear above it.

    tqdm would start a thread for slow bars, even for hidden bars; this class switches it off.
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
