"""Other processes: code that runs in one, and waits for what it does. A wait ends by an event, not by a clock."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
PATIENCE = float(os.environ.get("KBO_TEST_PATIENCE", "600"))
"""Seconds after which a wait has failed: far more than a busy machine needs."""


def wait_until(
    event: Callable[[], T], reason: Callable[[], object] = lambda: "it did not happen"
) -> T:
    """Return the first true answer of ``event``; fail with ``reason()`` if there is none within ``PATIENCE``."""
    end = time.monotonic() + PATIENCE
    while not (answer := event()):
        assert time.monotonic() < end, reason()
        time.sleep(0.02)
    return answer


def python(*arguments: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run ``python *arguments`` to its end, with its output as text; it must not fail, unless ``check=False``."""
    options = {"capture_output": True, "text": True, "timeout": PATIENCE, **options}
    check = options.pop("check", True)
    done = subprocess.run([sys.executable, *map(str, arguments)], **options)
    assert done.returncode == 0 or not check, f"{done.stdout}\n{done.stderr}"
    return done


@contextmanager
def started(*arguments: Any, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """``python *arguments`` as a process whose output is a pipe; it is killed and waited for at the end."""
    options = {"stdout": subprocess.PIPE, "text": True, **options}
    with subprocess.Popen([sys.executable, *map(str, arguments)], **options) as process:
        try:
            yield process
        finally:
            process.kill()


def runs(number: int) -> bool:
    """Return whether the process of this number runs; one that has ended and was not waited for does not."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{number}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


def environment(**changed: str) -> dict[str, str]:
    """Return this process's environment with changes."""
    return {**os.environ, **changed}
