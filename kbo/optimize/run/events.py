"""Events of a run, and the lines of a journal that hold them.

A line is a JSON object whose last entry, ``sum``, is the CRC-32 of all objects up to this one, without these entries.
So changed, removed, repeated and exchanged lines are noticed. The first line describes the problem. Journals of
kbo 0.8 and before (``UNCHECKED``) have no checksums.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from kbo.errors import InvalidInput

FORMAT, UNCHECKED = "kbo-journal-2", "kbo-journal-1"

LONGEST_LINE = 1_000_000
"""Bytes of a line at most."""

LONGEST_REASON = 2000
"""Characters of the reason of a failure that are kept."""

_SHOWN = 80

Scalar = str | int | float | bool | None
Whole = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0)]
Time = Annotated[float, Meta(ge=0, le=253_402_300_799)]
"""Seconds from 1970 up to the year 9999."""


class _Event(
    Struct,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    gc=False,
    tag_field="event",
):
    """The number of the trial and the time, which all events have."""

    number: Whole
    time: Time | None = None


class Ask(_Event, tag="ask"):
    """A trial begins; ``asked`` is False if its value was known before, ``proposal`` says why it was chosen."""

    params: dict[str, Scalar] | list[float]
    asked: bool = True
    proposal: dict[str, str | float] = {}


class Again(_Event, tag="again"):
    """A trial without a value is started again."""


class Release(_Event, tag="release"):
    """The run ended while the trial was running: it is pending, and was not lost."""


class Report(_Event, tag="report"):
    """A running trial reports the value of a step."""

    step: Whole
    value: float


class Tell(_Event, tag="tell"):
    """A trial has a value, and other measurements by name, after so many seconds."""

    value: float
    measured: dict[str, float] = {}
    seconds: Seconds | None = None


class Fail(_Event, tag="fail"):
    """A trial failed, after so many seconds; what was measured before counts."""

    reason: str
    measured: dict[str, float] = {}
    seconds: Seconds | None = None


class Prune(_Event, tag="prune"):
    """A trial was stopped early because of what it reported, after so many seconds; what it measured counts."""

    measured: dict[str, float] = {}
    seconds: Seconds | None = None


class Session(
    Struct,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    gc=False,
    tag="session",
    tag_field="event",
):
    """A call of ``minimize`` or ``maximize`` begins, with these limits."""

    time: Time
    n_trials: Whole | None = None
    time_budget: Seconds | None = None
    timeout: Seconds | None = None
    workers: str | None = None


TrialEvent = Ask | Again | Release | Report | Tell | Fail | Prune
Event = TrialEvent | Session
Entry = dict[str, Scalar | list[Scalar | dict[str, Scalar]] | dict[str, Scalar | list[Scalar]]]
Header = dict[str, Scalar | list[float | Entry]]


def _plain(value: Any) -> float:
    """Return a number of numpy as one of Python."""
    if isinstance(value, Real):
        return int(value) if isinstance(value, Integral) else float(value)
    raise InvalidInput(
        f"a journal holds numbers, strings, booleans and None, got {shortened(repr(value))}."
    )


_encode = msgspec.json.Encoder(enc_hook=_plain).encode
_event = msgspec.json.Decoder(Event).decode
_header = msgspec.json.Decoder(Header).decode


def header_of(description: Mapping[str, Any]) -> Header:
    """Return the description of a problem with the values that it has after it was read from a journal."""
    return _header(_encode(description))


def shortened(text: str, most: int = _SHOWN) -> str:
    """Return at most so many characters of a text, and of characters that are not text their codes."""
    shown = text[:most] + "…" * (len(text) > most)
    return shown.encode("utf-8", "backslashreplace").decode()


def line(entry: Mapping[str, Any] | Event, before: int | None) -> tuple[bytes, int | None]:
    """Return the line of a header or an event, and its checksum; ``before`` is that of the line before it.

    The checksum before the first line is 0, and None in journals without checksums.

    Raises:
        InvalidInput: It is longer than a line may be, or holds what is no text.
    """
    try:
        text, checksum = _sealed(_encode(entry), before)
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"a journal cannot hold the text {shortened(error.object)!r}: {error.reason}."
        ) from error
    if len(text) > LONGEST_LINE:
        raise InvalidInput(
            f"a line of a journal has at most {LONGEST_LINE} bytes, this one has {len(text)}."
        )
    return text, checksum


def unfit(measured: Mapping[str, float]) -> str:
    """Return why the end of a trial with these measurements is no line of a journal; empty if it is one."""
    try:
        text, _ = line(Tell(number=0, value=0.0, measured=dict(measured)), 0)
    except InvalidInput as error:
        return str(error)
    most = LONGEST_LINE // 2  # beside them are a reason and numbers
    return (
        f"they take {len(text)} bytes, of which a journal holds at most {most}."
        if len(text) > most
        else ""
    )


def _sealed(text: bytes, before: int | None) -> tuple[bytes, int | None]:
    if before is None:
        return text + b"\n", None
    checksum = zlib.crc32(text, before)
    return b'%b,"sum":"%08x"}\n' % (text[:-1], checksum), checksum


_SUM = len(',"sum":"01234567"}\n')


@dataclass
class Contents:
    """The valid lines at the beginning of a journal.

    Attributes:
        header: The first line; empty if not even that is valid.
        events: The events, in the lines from the second on.
        size: Bytes of these lines.
        checksum: That of the last of them; None in a journal without checksums.
        damage: Number of the line that is not valid and why, in words; empty if all are.
        unfinished: Whether a last line follows that was not completely written.
    """

    header: Header = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    size: int = 0
    checksum: int | None = 0
    damage: str = ""
    unfinished: bool = False


def parse(text: bytes) -> Contents:
    """Return what the bytes of a journal hold, as far as they are valid."""
    found, start, number = Contents(), 0, 1
    while start < len(text) and not found.damage:
        end = text.find(b"\n", start) + 1
        if end == 0 and len(text) - start <= LONGEST_LINE:
            found.unfinished = True
            break
        try:
            if not 0 < end - start <= LONGEST_LINE:
                raise ValueError(f"it has more than {LONGEST_LINE} bytes")
            _take(found, text[start:end])
            found.size = start = end
        except (ValueError, RecursionError) as error:  # those of msgspec are ValueErrors
            shown = shortened(repr(bytes(text[start : start + _SHOWN]))[1:])
            found.damage = f"line {number} is damaged ({error}): {shown}"
        number += 1
    return found


def _take(found: Contents, text: bytes) -> None:
    """Add a whole line."""
    header = {} if found.header else _header(text)
    if not found.header:
        if (form := header.get("format")) not in (FORMAT, UNCHECKED):
            raise ValueError(f"no format {FORMAT!r}")
        found.checksum = None if form == UNCHECKED else 0
    if found.checksum is not None:
        body = text[:-_SUM] + b"}"
        sealed, checksum = _sealed(body, found.checksum)
        if sealed != text:
            raise ValueError("its checksum does not fit")
        text, found.checksum = body, checksum
    if found.header:
        found.events.append(_event(text))
    else:
        found.header = {name: value for name, value in header.items() if name != "sum"}
