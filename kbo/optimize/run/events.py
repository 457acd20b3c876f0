"""The events of a run, and the lines of a journal that hold them.

A line is a JSON object. Its last entry, ``sum``, is the CRC-32 of all objects up to this one, without their ``sum``. So
changed, removed, repeated and exchanged lines are noticed. The first line, the header, describes the problem and names
the format. Each version of kbo reads all journals since ``FORMAT`` 2 (kbo 0.9). Journals of kbo 0.8 and before, which
have no checksums, are refused, and so are those of a later format.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from kbo.errors import InvalidInput

FORMAT = "kbo-journal-2"

LONGEST_LINE = 1_000_000
"""Largest number of bytes of a line."""

LONGEST_REASON = 2000
"""Largest number of characters of a reason."""

_SHOWN = 80

Scalar = str | int | float | bool | None
Whole = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0)]
Time = Annotated[float, Meta(ge=0, le=253_402_300_799)]
"""Seconds from 1970 up to the year 9999."""


Entry = dict[str, Scalar | list[Scalar | dict[str, Scalar]] | dict[str, Scalar | list[Scalar]]]


class _Line(
    Struct,
    omit_defaults=True,
    forbid_unknown_fields=True,
    gc=False,
    tag_field="event",
):
    """A line of a journal after the first one."""


class _Event(_Line, kw_only=True):
    """An event of a trial: the number of the trial, and the time in seconds since 1970."""

    number: Whole
    time: Time | None = None


class Ask(_Event, tag="ask"):
    """A trial begins. ``asked`` is False if its value was known before; ``proposal`` says why it was chosen."""

    params: dict[str, Scalar] | list[float]
    asked: bool = True
    proposal: dict[str, str | float] = {}


class Again(_Event, tag="again"):
    """A trial without a value is started again."""


class Release(_Event, tag="release"):
    """The run ended while the trial was running: the trial is pending, and this start does not count as lost."""


class Report(_Event, tag="report"):
    """A running trial reports the value of a step."""

    step: Whole
    value: float


class Tell(_Event, tag="tell"):
    """A trial ends with a value and other measurements by name, after some seconds."""

    value: float
    measured: dict[str, float] = {}
    seconds: Seconds | None = None


class Fail(_Event, tag="fail"):
    """A trial failed; measurements that it made before are kept."""

    reason: str
    measured: dict[str, float] = {}
    seconds: Seconds | None = None


class Prune(_Event, tag="prune"):
    """A trial was stopped early because of its reports; measurements that it made are kept."""

    measured: dict[str, float] = {}
    seconds: Seconds | None = None


class Correct(_Event, tag="correct"):
    """A trial that has ended gets another value and other measurements than were reported."""

    value: float
    measured: dict[str, float] = {}


class Remove(_Event, tag="remove"):
    """A trial is left out from here on: nothing is learned from it."""

    reason: str


class Change(_Line, tag="space", kw_only=True):
    """The space changes; ``was`` has the values of new parameters for earlier trials, by name.

    If ``same_scale``, numbers keep the scale on which the kernel compared them before.
    """

    space: list[Entry]
    was: dict[str, Scalar] = {}
    same_scale: bool = False
    time: Time | None = None


class SessionStart(_Line, tag="session", kw_only=True):
    """A call of ``minimize`` or ``maximize`` begins, with these limits."""

    time: Time
    n_trials: Whole | None = None
    time_budget: Seconds | None = None
    timeout: Seconds | None = None
    workers: str | None = None


TrialEvent = Ask | Again | Release | Report | Tell | Fail | Prune | Correct | Remove
Event = TrialEvent | SessionStart | Change
Header = dict[str, Scalar | Entry | list[float | Entry | list[Scalar]]]


def _plain(value: Any) -> float:
    """Return a number of NumPy as one of Python."""
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    raise InvalidInput(
        f"a journal holds numbers, strings, booleans and None, got {shortened(repr(value))}."
    )


_encode = msgspec.json.Encoder(enc_hook=_plain).encode


class _Format(Struct):
    """The format of a journal, as its first line names it."""

    format: str = ""


_decode_format = msgspec.json.Decoder(_Format).decode
_decode_event = msgspec.json.Decoder(Event).decode
_decode_header = msgspec.json.Decoder(Header).decode


def header_of(description: Mapping[str, Any]) -> Header:
    """Return the description of a problem in the form in which a journal returns it."""
    return _decode_header(_encode(description))


def shortened(text: str, most: int = _SHOWN) -> str:
    """Return a text of at most ``most`` characters, with codes for characters that UTF-8 cannot encode."""
    if len(text) > most:
        text = text[:most] + "…"
    return text.encode("utf-8", "backslashreplace").decode()


def line(entry: Mapping[str, Any] | Event, before: int) -> tuple[bytes, int]:
    """Return the line of a header or an event, and its checksum.

    Args:
        entry: The header or the event.
        before: The checksum of the line before it, 0 for the first line.

    Raises:
        InvalidInput: The line is longer than ``LONGEST_LINE``, or has characters that UTF-8 cannot encode.
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
    """Return the reason why measurements do not fit into a line of a journal; an empty text if they do."""
    try:
        text, _ = line(Tell(number=0, value=0.0, measured=dict(measured)), 0)
    except InvalidInput as error:
        return str(error)
    most = LONGEST_LINE // 2  # the line has a reason and numbers, too
    if len(text) > most:
        return f"they take {len(text)} bytes, of which a journal holds at most {most}."
    return ""


def _sealed(text: bytes, before: int) -> tuple[bytes, int]:
    """Return the line of an encoded object, and its checksum, given the checksum of the line before it."""
    checksum = zlib.crc32(text, before)
    return b'%b,"sum":"%08x"}\n' % (text[:-1], checksum), checksum


_SEAL = len(',"sum":"01234567"}\n')


@dataclass
class Contents:
    """The valid lines at the beginning of a journal.

    Attributes:
        header: The first line; empty if it is not valid.
        events: The events, one for each line from the second on.
        size: Number of bytes of these lines.
        checksum: The checksum of the last one.
        damage: The number of the first line that is not valid, with the reason; empty if all lines are valid.
        unfinished: Whether an incomplete last line follows.
        other_format: The format that the first line names, if it is another format of kbo; empty otherwise.
    """

    header: Header = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    size: int = 0
    checksum: int = 0
    damage: str = ""
    unfinished: bool = False
    other_format: str = ""


def parse(text: bytes) -> Contents:
    """Return the contents of a journal up to the first line that is not valid."""
    contents = Contents()
    number = 1
    while contents.size < len(text) and not contents.damage:
        start = contents.size
        end = text.find(b"\n", start) + 1
        if end == 0 and len(text) - start <= LONGEST_LINE:
            contents.unfinished = True
            break
        try:
            if not 0 < end - start <= LONGEST_LINE:
                raise ValueError(f"it has more than {LONGEST_LINE} bytes")
            _append(contents, text[start:end])
        except (ValueError, RecursionError) as error:  # errors of msgspec are ValueErrors
            shown = shortened(repr(bytes(text[start : start + _SHOWN]))[1:])
            contents.damage = f"line {number} is damaged ({error}): {shown}"
        number += 1
    return contents


def _other_format(text: bytes) -> str:
    """Return the format of kbo that a first line names, if it is not FORMAT; an empty text otherwise.

    The rest of the line is not read, since a later format may have other entries.

    Raises:
        ValueError: The line is no JSON object with a text as format.
    """
    name = _decode_format(text).format
    if name == FORMAT or re.fullmatch(r"kbo-journal-[0-9]{1,9}", name) is None:
        return ""
    return name


def _append(contents: Contents, text: bytes) -> None:
    """Add a line with its end.

    Raises:
        ValueError: The line is not valid.
    """
    is_first = not contents.header
    header: Header = {}
    if is_first:
        contents.other_format = _other_format(text)
        if contents.other_format:
            raise ValueError(f"no format {FORMAT!r}")
        header = _decode_header(text)
        if header.get("format") != FORMAT:
            raise ValueError(f"no format {FORMAT!r}")
    body = text[:-_SEAL] + b"}"
    sealed, checksum = _sealed(body, contents.checksum)
    if sealed != text:
        raise ValueError("its checksum does not fit")
    if is_first:
        del header["sum"]
        contents.header = header
    else:
        contents.events.append(_decode_event(body))
    contents.checksum = checksum
    contents.size += len(text)
