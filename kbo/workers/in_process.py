"""Calls in this process, one at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kbo._base.surroundings import callers
from kbo.workers.call import Outcome, RunningTrial, call
from kbo.workers.engine import Engine, OnReport, Session
from kbo.workers.preserved import preserved
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
        self._function, self._timeout, self._on_report = function, timeout, on_report
        self._waiting: dict[int, Any] = {}

    @property
    def capacity(self) -> int:
        return 1

    @property
    def running(self) -> Collection[int]:
        return self._waiting.keys()

    def start(self, number: int, params: Any) -> None:
        self._waiting[number] = params

    def wait(self, seconds: float | None = None) -> list[Outcome]:
        ((number, params),) = self._waiting.items()
        stop = False

        def report(value: float, step: int) -> None:
            nonlocal stop
            stop = self._on_report(number, value, step)

        limit = min((s for s in (self._timeout, seconds) if s is not None), default=None)
        start = time.perf_counter()
        trial = RunningTrial(number, params, report, lambda: stop)
        try:
            with callers(), preserved():
                outcome = call_with_limit(lambda: call(self._function, trial), limit)
        except TimeoutError as error:
            trial.end()
            if limit is not self._timeout:
                return []
            outcome = Outcome(
                number,
                failure=f"TimeoutError: {error}",
                seconds=round(time.perf_counter() - start, 4),
            )
        del self._waiting[number]
        return [outcome]
