"""The engine for the argument ``workers``: a number, an engine or None."""

from __future__ import annotations

from kbo._base import checks
from kbo.errors import InvalidInput
from kbo.workers.engine import Engine
from kbo.workers.in_process import InProcess
from kbo.workers.processes import Processes

Workers = int | Engine | None
"""Number of worker processes, 1 for this process alone, an engine, or None for the default."""


def engine_of(workers: Workers, timeout: float | None = None) -> Engine:
    """Return the engine. The default is this process; with a time limit it is one worker process, which can be killed.

    Raises:
        InvalidInput: ``workers`` is neither a whole number of at least 1 nor an engine.
    """
    if isinstance(workers, Engine):
        return workers
    if isinstance(workers, type):
        raise InvalidInput(f"workers must be a number or an engine: write {workers.__name__}(...).")
    if workers is None and timeout is not None:
        return Processes(1)
    if workers is None or checks.whole("workers", workers, 1) == 1:
        return InProcess()
    return Processes(int(workers))
