"""A crash-safe journal: one event per line, on disk before the run goes on.

A process that is killed while writing leaves at most an incomplete last line, which is removed when the journal is
opened. Nothing in a journal is ever executed.
"""

from __future__ import annotations

import os
import stat
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kbo._base import checks
from kbo._base.files import replacing, sync_folder
from kbo._base.locks import after_fork_in_child
from kbo.errors import JournalError
from kbo.optimize.run.events import FORMAT, Event, Header, header_of, line, parse
from kbo.optimize.run.journal_file import check_whole

try:
    import fcntl
except ImportError:  # a platform without advisory locks
    fcntl = None

Check = Callable[[Header, list[Event]], None]

_open: weakref.WeakSet[Journal] = weakref.WeakSet()


def _close_in_child() -> None:
    """Close the journals in a forked process: they belong to the process that forked it."""
    for journal in list(_open):
        journal.close(
            "this process was forked from the one that writes it. Report values to that one"
        )


after_fork_in_child(_close_in_child)


class Journal:
    """An append-only event log, locked against other writers.

    Args:
        path: The file; created, with its folders, if it does not exist.
        description: The problem, for the first line of a new file.

    Attributes:
        header: The description in the file.

    Raises:
        JournalError: The file cannot be written, or is in use.
    """

    def __init__(self, path: Path, description: Mapping[str, Any]) -> None:
        self.path = path
        self._place = path.absolute()
        self.header: Header = {"format": FORMAT, **header_of(description)}
        self._closed = ""
        try:
            self._place.parent.mkdir(parents=True, exist_ok=True)
            # Unbuffered: a write that failed must not come back with the next one.
            self._file = open(self._place, "a+b", buffering=0)  # noqa: SIM115  (lives as long as the journal)
        except OSError as error:
            raise JournalError(
                f"cannot write the journal {self.path}: {error.strerror}. Choose a writable place with journal=... "
                "(or --journal)."
            ) from error
        _open.add(self)
        try:
            self._lock()
        except BaseException:
            self._file.close()
            raise

    def recover(self, check: Check | None = None) -> list[Event]:
        """Remove an unfinished last line and return the events on disk; a foreign file is left as it is.

        Args:
            check: Raises an error if header and events, its arguments, belong to another problem.

        Raises:
            JournalError: The file is damaged, or not a journal.
        """
        self._check_open()
        self._file.seek(0)
        text = self._file.read()
        first, checksum = line(self.header, 0)
        if first.startswith(text) and first != text:  # empty, or a part of the first line
            self._file.truncate(0)
            self._size = 0
            self._checksum = checksum
            self._write(first)
            sync_folder(self._place)
            return []
        contents = parse(text)
        check_whole(contents, self.path)
        self._size = contents.size
        self._checksum = contents.checksum
        self.header = contents.header
        if check is not None:
            check(contents.header, contents.events)
        if contents.unfinished:
            warnings.warn(
                f"dropped an unfinished last line of {self.path}: the run was killed while writing it."
            )
            self._file.truncate(self._size)
        return contents.events

    def continued(self, events: list[Event]) -> list[Event]:
        """Return the events on disk after a write that may have been interrupted.

        If they do not begin with the given events, the file was changed by others. Then the given events are returned,
        and later writes are refused.
        """
        if self._closed:
            return events
        try:
            on_disk = self.recover()
        except JournalError as error:
            self.close(f"{error} {_SAVE}")
            return events
        if on_disk[: len(events)] != events:
            self.close(f"it was changed by another program. {_SAVE}")
            return events
        return on_disk

    def append(self, event: Event) -> None:
        """Write an event to disk: after the return it survives a crash of the machine.

        Raises:
            InvalidInput: The event is too long; nothing was written.
            JournalError: The event cannot be written, or the file was replaced or changed.
        """
        self._check_open()
        self._check_place()
        text, checksum = line(event, self._checksum)
        self._write(text)
        self._checksum = checksum

    def close(self, reason: str = "open it again with Optimizer(..., journal=...)") -> None:
        """Release the file; the error of later writes names the reason."""
        if not self._closed:
            self._closed = reason
        self._file.close()

    def _lock(self) -> None:
        """Lock the file against other writers.

        Raises:
            JournalError: The journal is no file, is in use, or cannot be locked.
        """
        if not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
            raise JournalError(f"the journal {self.path} is not a file: choose another path.")
        if fcntl is None:
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise JournalError(
                f"the journal {self.path} is in use, by another process or by an optimiser that is open here: wait for "
                "it, close it, or choose another path. Several "
                'processes share a study of Optuna: docs/howto.md, "Many machines, many writers".'
            ) from error
        except OSError as error:
            raise JournalError(
                f"cannot lock the journal {self.path}: {error.strerror}. Choose another place."
            ) from error

    def _check_open(self) -> None:
        """Raise JournalError if the journal was closed."""
        if self._closed:
            raise JournalError(f"the journal {self.path} is closed: {self._closed}.")

    def _check_place(self) -> None:
        """Raise JournalError if the path leads to another file now, or if another program has written to the file."""
        opened = os.fstat(self._file.fileno())
        try:
            at_path = os.stat(self._place)
        except OSError:
            at_path = None
        if at_path is None or not os.path.samestat(opened, at_path):
            raise JournalError(
                f"the journal {self.path} was deleted or replaced while it was open, so nothing was written. Save what "
                "is known with optimizer.save(path), and open that with Optimizer(..., journal=path)."
            )
        if opened.st_size != self._size:
            raise JournalError(
                f"the journal {self.path} was changed by another program, so nothing was written. See `kbo journal "
                "check`, or save what is known with optimizer.save(path)."
            )

    def _write(self, text: bytes) -> None:
        """Write a text to the disk, completely or not at all.

        Raises:
            JournalError: The text cannot be written.
        """
        rest = text
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            try:
                self._file.truncate(self._size)
            except OSError:
                self.close("a line was left half written. Open it again, which removes that line")
            raise JournalError(
                f"cannot write to the journal {self.path}: {error.strerror}."
            ) from error
        self._size += len(text)


_SAVE = "Save what is known with optimizer.save(path)"

_DECLARED = "completion_independent_of_noise"
"""The entry of a header that may differ when a run continues: it is no part of the problem."""


def write(
    path: str | os.PathLike[str], description: Mapping[str, Any], events: Sequence[Event]
) -> None:
    """Write a whole journal; ``path`` is replaced in one step.

    Raises:
        JournalError: The path cannot be written; nothing was changed.
    """
    target = Path(path)
    try:
        with replacing(target) as file:
            checksum = 0
            for entry in ({**description, "format": FORMAT}, *events):
                text, checksum = line(entry, checksum)
                file.write(text)
    except OSError as error:
        raise JournalError(
            f"cannot write {target}: {error.strerror}. Choose a writable place."
        ) from error


def differences(
    recorded: Mapping[str, Any],
    expected: Mapping[str, Any],
    places: tuple[str, str] = ("in the journal", "in this run"),
) -> list[str]:
    """Return the differences between two headers, one text for each.

    Args:
        recorded: The header of a journal.
        expected: The header of this run.
        places: The words for the two headers.
    """
    same = {"format": FORMAT, _DECLARED: False}
    return _differences("", {**recorded, **same}, {**expected, **same}, places)


def _differences(name: str, recorded: Any, expected: Any, places: tuple[str, str]) -> list[str]:
    """Return one text for each entry that differs; the parameters of a space are compared by name."""
    if recorded == expected:
        return []
    # Fingerprints of kernels begin with all that kbo 0.14 and before wrote of them.
    if name.endswith("kernel") and str(expected).startswith(f"{recorded} "):
        return []
    before, after = places
    in_journal = _by_name(recorded)
    in_run = _by_name(expected)
    if in_journal is None or in_run is None:
        return [f"{name}: {checks.shown(recorded)} {before}, {checks.shown(expected)} {after}"]
    if in_journal == in_run:
        return [f"{name}: in the order {list(in_journal)} {before}, {list(in_run)} {after}"]
    texts = []
    for key in dict.fromkeys([*in_journal, *in_run]):
        label = f"{name} {key}".strip()
        if key not in in_run and _is_norm_bound(name, key):
            continue  # journals of version 1.0 hold those of methods that use none
        if key not in in_run:
            texts.append(f"{label}: only {before}: {in_journal[key]!r}")
        elif key not in in_journal:
            texts.append(f"{label}: only {after}: {in_run[key]!r}")
        else:
            texts += _differences(label, in_journal[key], in_run[key], places)
    return texts


def _is_norm_bound(name: str, key: str) -> bool:
    """Return whether the entry ``key`` of the entry ``name`` of a header is the norm bound of a quantity."""
    is_quantity = not name or name.startswith(("constraints ", "objectives "))
    return is_quantity and key == "norm_bound"


def _by_name(value: Any) -> Mapping[str, Any] | None:
    """Return the entries of a dict, or the parameters in the list of a space, by name; None for other values."""
    if isinstance(value, Mapping):
        return value
    if not isinstance(value, list):
        return None
    if not all(isinstance(entry, Mapping) and "name" in entry for entry in value):
        return None
    return {str(entry["name"]): entry for entry in value}
