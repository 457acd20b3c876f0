"""A crash-safe journal: one JSON object per line, on disk before the run goes on.

The first line identifies the problem; then ``ask``, ``tell`` and ``fail`` events follow. A
process that is killed while writing leaves at most a last line without its newline, which opening the
journal removes. Nothing in a journal is ever executed.
"""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kbo.errors import JournalError

FORMAT = "kbo-journal-1"


class Journal:
    """An append-only event log, locked against a second process.

    Args:
        path: The file; created, with its folders, if it does not exist.
        header: Identifies the problem; a journal with another header is refused.

    Attributes:
        events: The events on disk, oldest first.

    Raises:
        JournalError: The file cannot be written, is damaged, is in use, or belongs to another problem.
    """

    def __init__(self, path: str | os.PathLike, header: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self._header = {"format": FORMAT, **header}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Unbuffered: a write that failed must not come back with the next one.
            self._file = open(self.path, "a+b", buffering=0)  # noqa: SIM115  (lives as long as the journal)
        except OSError as error:
            raise JournalError(
                f"cannot write the journal {self.path}: {error.strerror}. Choose a writable place with journal=... "
                "(or --journal)."
            ) from error
        try:
            self._lock()
            self.events = self._recover()
        except BaseException:
            self._file.close()
            raise

    def append(self, event: Mapping[str, Any]) -> None:
        """Write an event; when this returns it survives a crash of the machine."""
        self._write(event)
        self.events.append(dict(event))

    def close(self) -> None:
        """Release the file."""
        self._file.close()

    def _lock(self) -> None:
        try:
            import fcntl
        except ImportError:  # no advisory locks on this platform
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise JournalError(
                f"the journal {self.path} is in use by another process: wait for it, or choose another path."
            ) from error

    def _recover(self) -> list[dict[str, Any]]:
        """Return the events on disk, after removing an unfinished last line; a foreign file is left as it is."""
        self._file.seek(0)
        text = self._file.read()
        self._size = whole = text.rfind(b"\n") + 1
        if not whole:
            if not _line(self._header).startswith(text):
                raise _not_a_journal(self.path)
            self._file.truncate(0)
            self._write(self._header)
            _sync_folder(self.path)
            return []
        header, events = _parse(text[:whole], self.path)
        different = differences(header, self._header)
        if different:
            raise JournalError(
                f"the journal {self.path} belongs to another problem ({different}). Continue it with the same "
                "arguments, or start a new one with another path."
            )
        if whole < len(text):
            warnings.warn(f"dropped an unfinished last line of {self.path}: the run was killed while writing it.")
            self._file.truncate(whole)
        return events

    def _write(self, event: Mapping[str, Any]) -> None:
        rest = _line(event)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.truncate(self._size)
            raise JournalError(f"cannot write to the journal {self.path}: {error.strerror}.") from error
        self._size = os.fstat(self._file.fileno()).st_size


def read(path: str | os.PathLike) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return header and events of a journal, without locking or repairing it.

    Raises:
        JournalError: There is no such file, or it is not a journal.
    """
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise JournalError(f"cannot read the journal {path}: {error.strerror}.") from error
    return _parse(text[: text.rfind(b"\n") + 1], path)


def write(path: str | os.PathLike, header: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> None:
    """Write a whole journal, replacing ``path`` in one step.

    Raises:
        JournalError: The place cannot be written.
    """
    target = Path(path)
    temporary = target.with_name(target.name + ".part")
    try:
        with open(temporary, "wb") as file:
            file.write(b"".join(map(_line, [{"format": FORMAT, **header}, *events])))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
        _sync_folder(target)
    except OSError as error:
        raise JournalError(f"cannot write {target}: {error.strerror}. Choose a writable place.") from error


def differences(found: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Return in words where the header of a journal differs from the expected one; empty if it does not."""
    expected = {"format": FORMAT, **json.loads(json.dumps(expected))}
    return "; ".join(_differences("", found, expected))


def _differences(name: str, found: Any, expected: Any) -> list[str]:
    """Return one text for each entry that differs, with the parameters of a space compared by their names."""
    if found == expected:
        return []
    here, there = _by_name(found), _by_name(expected)
    if here is None or there is None:
        return [f"{name}: {found!r} in the journal, {expected!r} in this run"]
    if here == there:
        return [f"{name}: in the order {list(here)} in the journal, {list(there)} in this run"]
    texts = []
    for key in dict.fromkeys([*here, *there]):
        label = f"{name} {key}".strip()
        if key in here and key in there:
            texts += _differences(label, here[key], there[key])
        else:
            only = f"the journal: {here[key]!r}" if key in here else f"this run: {there[key]!r}"
            texts.append(f"{label}: only in {only}")
    return texts


def _by_name(value: Any) -> Mapping[str, Any] | None:
    """Return the entries of a header or a parameter, or the parameters of a space, by name; None for other values."""
    if isinstance(value, Mapping):
        return value
    if not isinstance(value, list) or not all(isinstance(entry, Mapping) and "name" in entry for entry in value):
        return None
    return {str(entry["name"]): entry for entry in value}


def _line(event: Mapping[str, Any]) -> bytes:
    return json.dumps(event, allow_nan=False).encode() + b"\n"


def _sync_folder(path: Path) -> None:
    """Make a new name in a folder survive a crash of the machine, where the platform can."""
    with contextlib.suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _not_a_journal(path: str | os.PathLike) -> JournalError:
    return JournalError(f"{path} is not a kbo journal (its first line has no format {FORMAT!r}); choose another path.")


def _parse(text: bytes, path: str | os.PathLike) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return header and events of whole lines."""
    lines = text.splitlines()
    try:
        header = json.loads(lines[0]) if lines else None
    except ValueError as error:
        raise _not_a_journal(path) from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise _not_a_journal(path)
    return header, [_event(line, number, path) for number, line in enumerate(lines[1:], 2)]


def _event(line: bytes, number: int, path: str | os.PathLike) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise JournalError(
            f"line {number} of {path} is damaged ({error}). Only a last line can be left unfinished by a crash, so the "
            "file was changed otherwise: restore it, or cut it before that line to continue from there."
        ) from error
    if not isinstance(value, dict):
        raise JournalError(f"line {number} of {path} is not a JSON object; the file is not a kbo journal.")
    return value
