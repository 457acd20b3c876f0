"""What the cells of test sweeps do; a module of its own, so that worker processes start fast."""

import os
import signal
import time
from pathlib import Path

from experiments.sweep.cells import Cell
from experiments.sweep.runner import sweep


def square(x, shift=0.0):
    if x >= int(os.environ.get("CHORES_THAT_END", "99")):
        sleep(6000)
    return [{"part": part, "square": x**2 + shift} for part in range(2)]


def fail(x):
    raise ValueError(f"cannot do {x}")


def interrupt():
    raise KeyboardInterrupt


def sleep(seconds):
    time.sleep(seconds)


def kill_the_worker(once):
    """Every time, or only if the file ``once`` does not exist yet."""
    if once and os.path.exists(once):
        return [{"square": 0}]
    if once:
        Path(once).touch()
    os.kill(os.getpid(), signal.SIGKILL)


def squares(n, **more):
    return [Cell(f"{__name__}:square", {"x": x, **more}, f"square of {x}") for x in range(n)]


def slow_sweep(folder):
    """What the process that gets killed does."""
    sweep(squares(4), folder, workers=2, progress=False)
