"""Faults on purpose, and what must be true after them: ``make test-faults``, with ``N=100`` a hundred times as many."""

import os
import sys
from collections.abc import Callable
from typing import Any

import kbo

REPEATS = int(os.environ.get("FAULTS", "1"))
PACKAGE = os.path.join(os.path.dirname(kbo.__file__), "")

# Python looks for interrupts at calls and at backward jumps only, never between the end of a call and the assignment
# that begins the ``finally`` there. A line tracer would interrupt at it, and settings would stay aside for the thread.
NEVER_INTERRUPTED = os.path.join(PACKAGE, "_base", "isolation.py")


def interrupted(lines: int, call: Callable[[], Any]) -> Any:
    """Return what a call returns, or raise KeyboardInterrupt before its line of kbo's code with that number."""
    left = lines

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal left
        file = frame.f_code.co_filename
        if not file.startswith(PACKAGE) or file == NEVER_INTERRUPTED:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    tracer = sys.gettrace()  # that of a coverage tool, for example
    sys.settrace(trace)
    try:
        return call()
    finally:
        sys.settrace(tracer)
