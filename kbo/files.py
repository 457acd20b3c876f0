"""Files that are replaced in one step."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

TEMPORARY = ".tmp"
"""End of the name, which begins with a dot, of a file that is not complete."""


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
