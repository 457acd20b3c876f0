"""A crash-safe journal: one JSON object per line, on disk before the run goes on.

The first line says which problem the journal belongs to; then ``ask``, ``tell`` and ``fail`` events follow. A
process that is killed while writing leaves at most a last line without its newline, which opening the
journal removes. Nothing in a journal is ever executed.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kbo.errors import JournalError

FORMAT = "kbo-journal-1"


class Journal:
    """An append-only event log, locked against a second process.

    Args:
        path: The file; created, with its folders, if it does not exist.
        header: What identifies the problem; a journal with another header is refused.

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
            self._file = open(self.path, "a+b")  # noqa: SIM115  (lives as long as the journal)
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
        except OSError as error:
            raise JournalError(f"the journal {self.path} is in use by another process.") from error

    def _recover(self) -> list[dict[str, Any]]:
        self._file.seek(0)
        text = self._file.read()
        whole = text.rfind(b"\n") + 1
        if whole < len(text):
            warnings.warn(f"dropped an unfinished last line of {self.path}: the run was killed while writing it.")
            self._file.truncate(whole)
        lines = [_parse(line, number, self.path) for number, line in enumerate(text[:whole].splitlines(), 1)]
        if not lines:
            self._write(self._header)
            return []
        self._check_header(lines[0])
        return lines[1:]

    def _check_header(self, found: dict[str, Any]) -> None:
        if found.get("format") != FORMAT:
            raise JournalError(f"{self.path} is not a kbo journal (expected format {FORMAT!r} in its first line).")
        expected = json.loads(json.dumps(self._header))
        different = [key for key in sorted({*expected, *found}) if expected.get(key) != found.get(key)]
        if different:
            details = "; ".join(f"{k}: journal {found.get(k)!r}, this run {expected.get(k)!r}" for k in different)
            raise JournalError(
                f"the journal {self.path} belongs to another problem ({details}). Continue it with the same settings, "
                "or start a new one with another path."
            )

    def _write(self, event: Mapping[str, Any]) -> None:
        try:
            self._file.write(json.dumps(event, allow_nan=False).encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise JournalError(f"cannot write to the journal {self.path}: {error.strerror}.") from error


def read(path: str | os.PathLike) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Header and events of a journal, without locking or repairing it.

    Raises:
        JournalError: There is no such file, or it is not a journal.
    """
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise JournalError(f"cannot read the journal {path}: {error.strerror}.") from error
    whole = text.rfind(b"\n") + 1
    lines = [_parse(line, number, path) for number, line in enumerate(text[:whole].splitlines(), 1)]
    if not lines or lines[0].get("format") != FORMAT:
        raise JournalError(f"{path} is not a kbo journal (expected format {FORMAT!r} in its first line).")
    return lines[0], lines[1:]


def _parse(line: bytes, number: int, path: str | os.PathLike) -> dict[str, Any]:
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
