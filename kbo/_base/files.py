"""Files that others have made, and files that are replaced in one step."""

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
"""End of the name, which begins with a dot, of a file that is not complete."""


_SHOWN = 300
"""Characters of another library's message that a message of kbo repeats."""


@contextlib.contextmanager
def reading(path: str | os.PathLike[str], expected: str, advice: str) -> Iterator[None]:
    """Turn what can go wrong while a file is read into one error, which names the file.

    Args:
        path: The file, or the address of a storage.
        expected: What it should hold, such as "a table (CSV)".
        advice: What to do, as a sentence.

    Raises:
        InvalidInput: The file cannot be read, or holds something else.
    """
    try:
        yield
    except KboError:
        raise
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror or error}. {advice}") from error
    except Exception as error:  # libraries raise all kinds for files that are not theirs
        text = " ".join(str(error).split())
        if len(text) > _SHOWN:
            text = f"{text[:_SHOWN]}..."
        raise InvalidInput(
            f"{path} is not {expected} ({type(error).__name__}: {text}). {advice}"
        ) from error


def check_file(path: Path, advice: str) -> None:
    """Check that there is a file, which is no folder and no pipe, from which reading might never return.

    Raises:
        InvalidInput: There is none.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError as error:
        raise InvalidInput(f"there is no file {path}. {advice}") from error
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"cannot read {path}: {getattr(error, 'strerror', None) or error}. {advice}"
        ) from error
    if stat.S_ISDIR(mode):
        raise InvalidInput(f"{path} is a folder, not a file. {advice}")
    if not stat.S_ISREG(mode):
        raise InvalidInput(f"{path} is a pipe or a device, not a file. {advice}")


def sync_folder(path: Path) -> None:
    """Make a new name in a folder survive a crash of the machine, where the platform can."""
    with contextlib.suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a new file that takes the place of ``path`` at the end; after an error, or a kill, ``path`` is as before."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}{TEMPORARY}")
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
