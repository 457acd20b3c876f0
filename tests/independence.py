"""Every test leaves the process as it found it: what it has changed is put back, and fails that test by name.

Random numbers are the exception that needs no failure: each test starts from the same seeds, and the states of the
generators from before it are put back.
"""

import gc
import logging
import os
import random
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

SIGNALS = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
TIMERS = {
    "ITIMER_REAL": signal.ITIMER_REAL,
    "ITIMER_VIRTUAL": signal.ITIMER_VIRTUAL,
    "ITIMER_PROF": signal.ITIMER_PROF,
}
SECONDS_TO_END = float(os.environ.get("KBO_TEST_SECONDS_TO_END", "600"))
"""How long threads, child processes and files that a test has told to end may take."""


ENTERED: list[torch.inference_mode] = []


class Kind(NamedTuple):
    """One thing that tests share: how to read it, by name, and how to put it back."""

    read: Callable[[], dict[str, Any]]
    put_back: Callable[[dict[str, Any]], object]


def _one(read: Callable[[], Any], put_back: Callable[[Any], object]) -> Kind:
    """Return the kind of a single value."""
    return Kind(lambda: {"value": read()}, lambda before: put_back(before["value"]))


def _set_inference_mode(before: bool) -> None:
    """Enter the mode of before and never leave it: only who entered a mode can leave it."""
    ENTERED.append(torch.inference_mode(before))
    ENTERED[-1].__enter__()


def _set_levels(levels: dict[str, Any]) -> None:
    for name in {**_levels(), **levels}:
        logging.getLogger(name).setLevel(levels.get(name, logging.NOTSET))


def _levels() -> dict[str, Any]:
    """Levels of all loggers that have one, except those of Ax, which sets them with every client that it makes."""
    loggers = {"root": logging.root, **logging.root.manager.loggerDict}
    return {
        name: logger.level
        for name, logger in loggers.items()
        if getattr(logger, "level", 0) and name[:3] != "ax."
    }


def _set_handlers(handlers: dict[str, Any]) -> None:
    for name, handler in handlers.items():
        if handler is not None:  # a handler outside Python
            signal.signal(signal.Signals[name], handler)


def _set_timers(timers: dict[str, Any]) -> None:
    for name, left in timers.items():
        signal.setitimer(TIMERS[name], *left)


def _environment() -> dict[str, Any]:
    return {name: value for name, value in os.environ.items() if name not in SET_BY_OTHERS}


def _set_environment(environment: dict[str, Any]) -> None:
    for name in set(_environment()) - set(environment):
        del os.environ[name]
    os.environ.update(environment)


def _filters() -> dict[str, Any]:
    """Filters, except the one that BoTorch adds for good when an optimiser has a limit of time."""
    found = [
        one
        for one in warnings.filters
        if getattr(one[1], "pattern", "") != "Method .* cannot handle"
    ]
    return {"warning filters": found, "showwarning": warnings.showwarning}


def _set_filters(filters: dict[str, Any]) -> None:
    warnings.filters[:] = filters["warning filters"]  # type: ignore[index]
    warnings.showwarning = filters["showwarning"]


KINDS = {
    "inference mode": _one(torch.is_inference_mode_enabled, _set_inference_mode),
    "gradient mode": _one(torch.is_grad_enabled, torch.set_grad_enabled),
    "default dtype": _one(torch.get_default_dtype, torch.set_default_dtype),
    "default device": _one(torch.get_default_device, torch.set_default_device),
    "errors of numpy": Kind(np.geterr, lambda before: np.seterr(**before)),
    "threads of torch": _one(torch.get_num_threads, torch.set_num_threads),
    "warning filters": Kind(_filters, _set_filters),
    "log levels": Kind(_levels, _set_levels),
    "signal handlers": Kind(
        lambda: {name.name: signal.getsignal(name) for name in NAMED}, _set_handlers
    ),
    "timers": Kind(
        lambda: {name: signal.getitimer(timer) for name, timer in TIMERS.items()}, _set_timers
    ),
    "blocked signals": _one(
        lambda: signal.pthread_sigmask(signal.SIG_BLOCK, []),
        lambda before: signal.pthread_sigmask(signal.SIG_SETMASK, before),
    ),
    "environment": Kind(_environment, _set_environment),
    "working directory": _one(os.getcwd, os.chdir),
}
NAMED = [signal.Signals(number) for number in SIGNALS if number in set(signal.Signals)]
SET_BY_IMPORTS = {"warning filters", "log levels", "environment"}
SET_BY_OTHERS = {
    "PYTEST_CURRENT_TEST",
    "KMP_INIT_AT_FORK",
    "KMP_DUPLICATE_LIB_OK",
    "CRC32C_SW_MODE",
    "TORCHINDUCTOR_CACHE_DIR",
}
"""Variables that pytest, PyTorch, scikit-learn and TensorBoard set for themselves."""


def changes(before: dict[str, Any], after: dict[str, Any]) -> str:
    """What of a kind has changed, in words; what is new counts as changed from nothing."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return ", ".join(f"{name} from {before.get(name)!r} to {after.get(name)!r}" for name in names)


def others() -> set[str]:
    """Modules of other libraries, whose first import may set filters, levels of logs and variables, or open files."""
    return {
        name
        for name in list(sys.modules)
        if name.partition(".")[0] not in {"kbo", "tests", "__main__"}
    }


def open_files() -> set[str]:
    """Descriptors with what they lead to; empty where the system does not tell.

    Files of installed libraries are left out: Matplotlib keeps its fonts open.
    """
    found = set()
    for path in Path("/proc/self/fd").glob("*"):
        try:
            found.add(f"file {path.name} -> {os.readlink(path)}")
        except OSError:  # that of the listing itself
            continue
    return {file for file in found if "site-packages" not in file}


def children() -> set[str]:
    """Child processes, except the one that Python keeps to clean up after shared memory."""
    found = set()
    for path in Path("/proc/self/task").glob("*/children"):
        try:
            numbers = path.read_text().split()
        except OSError:
            continue
        for number in numbers:
            try:
                command = Path(f"/proc/{number}/cmdline").read_text().replace("\0", " ")[:200]
            except OSError:
                continue
            found.add(f"process {number}: {command or 'ended, but nobody has waited for it'}")
    tracker = getattr(resource_tracker._resource_tracker, "_pid", None)
    return {child for child in found if not child.startswith(f"process {tracker}:")}


def running() -> set[str]:
    """Whatever of a test may still be at work: threads, child processes and open files."""
    threads = {f"thread {thread.name} ({thread.ident})" for thread in threading.enumerate()}
    return threads | children() | open_files()


def left_running(before: set[str], kept: str) -> set[str]:
    """What runs that did not before and that the test does not keep, when it has been given the time to end."""
    end = time.monotonic() + SECONDS_TO_END
    while left := {name for name in running() - before if not re.match(kept, name)}:
        if time.monotonic() > end:
            break
        gc.collect()
        time.sleep(0.02)
    return left


@pytest.fixture(autouse=True)
def _independent(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compare the process before and after a test.

    A test with the mark ``keeps(what, reason)`` may leave things that run and whose name matches the expression. What
    runs after a test that failed is not waited for: its traceback holds what it had open.
    """
    mark = request.node.get_closest_marker("keeps")
    kept = mark.args[0] if mark else "(?!)"  # nothing
    # Ctrl-C raises, in the background of a shell too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    numbers = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(0)
    before = {name: kind.read() for name, kind in KINDS.items()}
    before_running, modules, failures = running(), others(), request.session.testsfailed
    yield
    imported = bool(others() - modules)
    wrong = []
    for name, kind in KINDS.items():
        if (found := changes(before[name], kind.read())) and not (
            imported and name in SET_BY_IMPORTS
        ):
            kind.put_back(before[name])
            wrong.append(f"{name}: {found}")
    failed = request.session.testsfailed > failures
    wrong += [] if imported or failed else sorted(left_running(before_running, kept))
    random.setstate(numbers[0])
    np.random.set_state(numbers[1])  # noqa: NPY002
    torch.set_rng_state(numbers[2])
    if wrong:
        pytest.fail(
            "this test has changed what other tests share: " + "; ".join(wrong), pytrace=False
        )
