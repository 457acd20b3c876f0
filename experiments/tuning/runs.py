"""Parts of runs of tuners: their CPU time, and a hash of the code of kbo."""

from __future__ import annotations

import functools
import hashlib
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import kbo

_AROUND = ("cli", "report", "integrations")
"""Packages that the tuner does not use."""


@contextmanager
def timed(spent: list[float]) -> Iterator[None]:
    """Append the CPU seconds of a block to ``spent``; warnings of tuners are hidden in the block."""
    start = time.process_time()
    with warnings.catch_warnings(action="ignore"):
        yield
    spent.append(time.process_time() - start)


@functools.cache
def code() -> str:
    """Return a hash of the code of kbo's tuner."""
    root = Path(kbo.__file__).parent
    code = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        if path.relative_to(root).parts[0] not in _AROUND:
            code.update(path.read_bytes())
    return code.hexdigest()[:10]
