"""Reading a journal without locking, repairing or executing it."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kbo._base import checks
from kbo.errors import InvalidInput, JournalError, KboError
from kbo.optimize.run.events import FORMAT, Contents, Event, Header, parse
from kbo.optimize.run.trials import Trials
from kbo.space import Space


class JournalFile(NamedTuple):
    """The contents of a journal.

    Attributes:
        path: The file.
        header: The description of the problem, in the first line.
        events: The events before any damage, oldest first.
        trials: The trials that the events describe, in the space after the events.
        damage: The first line that is damaged or does not fit the lines before it, and the reason; empty if there is
            none.
        unfinished: Whether the last line is incomplete, because the run was killed or is writing it.
    """

    path: Path
    header: Header
    events: list[Event]
    trials: Trials
    damage: str
    unfinished: bool

    def whole(self) -> JournalFile:
        """Return the contents after a check that there is no damage.

        Raises:
            JournalError: A line is damaged or does not fit.
        """
        _check_undamaged(self.damage, self.path)
        return self


def read_whole(path: str | os.PathLike[str]) -> JournalFile:
    """Return the contents of a journal without damage, and warn of an unfinished last line.

    Raises:
        JournalError: As for ``read_journal``, or a line is damaged or does not fit.
    """
    contents = read_journal(path).whole()
    if contents.unfinished:
        warnings.warn(
            f"left out an unfinished last line of {path}, of a run that was killed or is writing it now."
        )
    return contents


def read_journal(path: str | os.PathLike[str]) -> JournalFile:
    """Return the contents of a journal up to the first line that is damaged or does not fit the lines before it.

    Raises:
        JournalError: The file cannot be read, is no journal of kbo, or is a journal of kbo 0.8 or before.
    """
    place = checks.path("path", path)
    try:
        if place.exists() and not (place.is_file() or place.is_dir()):
            raise JournalError(
                f"the journal {path} is a pipe or a device, not a file: choose another path."
            )
        text = place.read_bytes()
    except FileNotFoundError as error:
        raise JournalError(
            f"there is no journal {path}: check the path. `kbo tune` and `kbo ask` begin one, and so does journal=... "
            "in Python."
        ) from error
    except OSError as error:
        raise JournalError(f"cannot read the journal {path}: {error.strerror}.") from error
    contents = parse(text)
    _check_header(contents, place)
    with naming_file(place):
        trials = Trials(space_of(contents.header))
    damage = contents.damage
    misfit = trials.add_all(contents.events)
    if misfit:
        damage = f"{misfit}, which does not fit the lines before"
    events = contents.events[: trials.n_events]
    return JournalFile(place, contents.header, events, trials, damage, contents.unfinished)


def check_whole(contents: Contents, path: Path) -> None:
    """Check that all lines of a journal are valid.

    Raises:
        JournalError: The file is no journal that this version of kbo can read, or a line is not valid.
    """
    _check_header(contents, path)
    _check_undamaged(contents.damage, path)


def _check_undamaged(damage: str, path: Path) -> None:
    """Raise JournalError if there is damage."""
    if damage:
        raise JournalError(
            f"the journal {path} was changed or damaged: {damage}. Restore it, or save what comes before that line "
            f"with `kbo journal repair {path} NEW`."
        )


def _check_header(contents: Contents, path: str | os.PathLike[str]) -> None:
    """Raise JournalError unless the first line is that of a journal which this version of kbo can read."""
    if contents.other_format == "kbo-journal-1":
        raise JournalError(
            f"{path} is a journal of kbo 0.8 or before, which kbo 0.22 is the last version to read: its command "
            f"`kbo journal repair {path} NEW` writes a journal that this version continues."
        )
    if contents.other_format:
        raise JournalError(
            f"{path} has the format {contents.other_format} of a later version of kbo, and this version reads "
            f"{FORMAT}: upgrade kbo (pip install --upgrade kbo)."
        )
    if not contents.header:
        reason = contents.damage or "no line"
        raise JournalError(f"{path} is not a kbo journal ({reason}): choose another path.")


# Headers


def space_of(header: Mapping[str, Any]) -> Space:
    """Return the space that a header describes; its constraint functions permit all params."""
    with reading_header():
        return Space.from_description(header["space"], header["named"])


@contextlib.contextmanager
def naming_file(path: Path) -> Iterator[None]:
    """Put the path of a journal before the messages of errors in a block, unless they contain its name."""
    try:
        yield
    except (InvalidInput, JournalError) as error:
        if path.name in str(error):
            raise
        raise type(error)(f"{path}: {error}") from error


@contextlib.contextmanager
def reading_header() -> Iterator[None]:
    """Turn errors of a block that reads the entries of a header into JournalError: kbo did not write the header."""
    try:
        yield
    except KboError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise JournalError(
            f"the header of the journal cannot be used ({type(error).__name__}: {error})."
        ) from error
