"""Calls in this process, one at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kbo._base.settings import preserved
from kbo._base.surroundings import callers
from kbo.workers.call import Outcome, call, trial_of_this_process
from kbo.workers.engine import Engine, OnReport, Session
from kbo.workers.time_limit import call_with_limit, check_time_limit


@dataclass(frozen=True)
class InProcess(Engine):
    """This process: the function shares its memory, and compiled code cannot be interrupted."""

    @contextmanager
    def session(
        self, function: Callable[..., Any], timeout: float | None, on_report: OnReport
    ) -> Iterator[Session]:
        if timeout is not None:
            check_time_limit("timeout", timeout)
        yield _InProcess(function, timeout, on_report)


class _InProcess(Session):
    """One call, which runs while it is waited for."""

    def __init__(
        self, function: Callable[..., Any], timeout: float | None, on_report: OnReport
    ) -> None:
        self._function = function
        self._timeout = timeout
        self._on_report = on_report
        self._params: dict[int, Any] = {}

    @property
    def capacity(self) -> int:
        return 1

    @property
    def running(self) -> Collection[int]:
        return self._params.keys()

    def start(self, number: int, params: Any) -> None:
        self._params[number] = params

    def wait(self, seconds: float | None = None) -> list[Outcome]:
        ((number, params),) = self._params.items()
        limits = [limit for limit in (self._timeout, seconds) if limit is not None]
        limit = min(limits, default=None)
        start = time.perf_counter()
        trial = trial_of_this_process(number, params, self._on_report)
        try:
            with callers(), preserved():
                outcome = call_with_limit(lambda: call(self._function, trial), limit)
        except TimeoutError as error:
            trial.end()
            if limit != self._timeout:
                return []
            duration = round(time.perf_counter() - start, 4)
            outcome = Outcome(number, failure=f"TimeoutError: {error}", seconds=duration)
        del self._params[number]
        return [outcome]
