"""Every test starts from the same seeds and leaves the process as it found it; one that does not fails by name."""

import contextlib
import gc
import os
import random
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

SECONDS_TO_END = float(os.environ.get("KBO_TEST_SECONDS_TO_END", "600"))
"""How long threads, child processes and files that a test has told to end may take."""


def seed() -> None:
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(0)


def settings() -> dict[str, Any]:
    """Return settings of the process, without the filter that BoTorch adds for good with a limit of time."""
    botorch = "Method .* cannot handle"
    return {
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "gradient mode": torch.is_grad_enabled(),
        "errors of numpy": np.geterr(),
        "signal handlers": [
            signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGALRM)
        ],
        "blocked signals": signal.pthread_sigmask(signal.SIG_BLOCK, []),
        "warning filters": [f for f in warnings.filters if getattr(f[1], "pattern", "") != botorch],
    }


def running() -> set[str]:
    """Return the threads, child processes and open files; the last two where the system tells."""
    found = {f"thread {thread.name} ({thread.ident})" for thread in threading.enumerate()}
    for path in Path("/proc/self").glob("fd/*"):
        with contextlib.suppress(OSError):  # the file of the listing itself
            found.add(f"file {path.name} -> {os.readlink(path)}")
    for path in Path("/proc/self").glob("task/*/children"):
        with contextlib.suppress(OSError):
            found |= {f"process {number}" for number in path.read_text().split()}
    return found


def left_running(before: set[str], kept: str) -> list[str]:
    """Return what runs that did not before, when it has been given the time to end.

    Matplotlib keeps its fonts open, and Python a process that cleans up after shared memory.
    """
    end = time.monotonic() + SECONDS_TO_END
    while True:
        tracker = getattr(resource_tracker._resource_tracker, "_pid", None)
        expected = re.compile(f"{kept}|.*site-packages|process {tracker}$")
        left = [name for name in running() - before if not expected.match(name)]
        if not left or time.monotonic() > end:
            return left
        gc.collect()
        time.sleep(0.02)


@pytest.fixture(autouse=True)
def _independent(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compare the process before and after a test, which ``keeps(what, reason)`` what has such a name.

    What runs after a test that failed is not waited for: its traceback holds what it had open. The first import of a
    library may set filters of warnings and open files.
    """
    mark = request.node.get_closest_marker("keeps")
    # Ctrl-C raises, in the background of a shell too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    seed()
    before, before_running = settings(), running()
    modules, failures = set(sys.modules), request.session.testsfailed
    yield
    seed()
    new = {name.partition(".")[0] for name in set(sys.modules) - modules} - {"kbo", "tests"}
    after = settings()
    if new:
        after["warning filters"] = before["warning filters"]
    wrong = [f"{name} is {after[name]}" for name in before if before[name] != after[name]]
    if not new and request.session.testsfailed == failures:
        wrong += left_running(before_running, mark.args[0] if mark else "(?!)")
    if wrong:
        words = "this test has changed what other tests share: "
        pytest.fail(words + "; ".join(wrong), pytrace=False)
