"""Reading files that may be wrong, and replacing files in one step."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from kbo.errors import InvalidInput, KboError

TEMPORARY = ".tmp"
"""Suffix of an incomplete file; its name begins with a dot."""

_MOST_SHOWN = 300
"""Largest number of characters of another library's message that a message of kbo repeats."""


@contextlib.contextmanager
def reading(path: str | os.PathLike[str], expected: str, advice: str) -> Iterator[None]:
    """Turn any error in a block that reads a file into ``InvalidInput``; its message names the file.

    Args:
        path: The file, or the address of a storage.
        expected: The expected content, such as "a table (CSV)".
        advice: What to do, as a sentence.

    Raises:
        InvalidInput: The file cannot be read, or has other content.
    """
    try:
        yield
    except KboError:
        raise
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror or error}. {advice}") from error
    except Exception as error:  # for a wrong file, libraries raise exceptions of any class
        text = " ".join(str(error).split())
        if len(text) > _MOST_SHOWN:
            text = f"{text[:_MOST_SHOWN]}..."
        raise InvalidInput(
            f"{path} is not {expected} ({type(error).__name__}: {text}). {advice}"
        ) from error


def check_file(path: Path, advice: str) -> None:
    """Check that a path is a file, and no folder or pipe: reading a pipe might never return.

    Raises:
        InvalidInput: There is no such file, or it is something else.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError as error:
        raise InvalidInput(f"there is no file {path}. {advice}") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(f"cannot read {path}: {reason}. {advice}") from error
    if stat.S_ISDIR(mode):
        raise InvalidInput(f"{path} is a folder, not a file. {advice}")
    if not stat.S_ISREG(mode):
        raise InvalidInput(f"{path} is a pipe or a device, not a file. {advice}")


def sync_folder(path: Path) -> None:
    """Sync the folder of a new file, so that its name survives a crash, if the platform supports it."""
    with contextlib.suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a new file that replaces ``path`` at the end of the block.

    After an error or a kill, ``path`` is unchanged.
    """
    writer = f"{os.getpid()}-{threading.get_ident()}"
    temporary = path.with_name(f".{path.name}.{writer}{TEMPORARY}")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
