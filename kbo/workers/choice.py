"""The engine that a number of workers stands for."""

from __future__ import annotations

from kbo._base import checks
from kbo.errors import InvalidInput
from kbo.workers.engine import Engine
from kbo.workers.in_process import InProcess
from kbo.workers.processes import Processes

Workers = int | Engine | None
"""Number of worker processes, 1 for this process alone, an engine, or None for the default."""


def engine_of(workers: Workers, timeout: float | None = None) -> Engine:
    """Return the engine; by default this process, or one worker process if there is a time limit, which can be ended.

    Raises:
        InvalidInput: Neither a whole number of at least 1 nor an engine.
    """
    if workers is None:
        return InProcess() if timeout is None else Processes(1)
    if isinstance(workers, Engine):
        return workers
    if isinstance(workers, type):
        raise InvalidInput(f"workers must be a number or an engine: write {workers.__name__}(...).")
    return InProcess() if checks.whole("workers", workers, 1) == 1 else Processes(int(workers))
