"""The interface of engines: places where a function is called, several times at once, with other parameters each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from typing import Any

from kbo.workers.call import CallOutcome

YEAR = 365 * 86_400.0
"""The longest limit of time, in seconds."""

OnReport = Callable[[int, float, int], bool]
"""Take number, value and step of a report by a running trial, and return whether the trial should stop."""


class Session(ABC):
    """Workers for one function.

    Attributes:
        capacity: The number of calls that may run at present, at least 1.
        running: The numbers of the calls that have not ended.
    """

    capacity: int
    running: Collection[int]

    @abstractmethod
    def start(self, number: int, params: Any) -> None:
        """Begin a call; fewer than ``capacity`` are running."""

    @abstractmethod
    def wait(self, seconds: float | None = None) -> list[CallOutcome]:
        """Wait until a call ends, at most for so many seconds, and return the outcomes of the calls that have ended."""


class Engine(ABC):
    """A place where a function is called."""

    @abstractmethod
    def session(
        self, function: Callable[..., Any], timeout: float | None, on_report: OnReport
    ) -> AbstractContextManager[Session]:
        """Open the engine for a function; leaving the block ends the calls that are running.

        Args:
            function: As for ``kbo.workers.call.call``.
            timeout: Seconds after which a call has failed.
            on_report: Called with each report of a running call.

        Raises:
            InvalidInput: The engine cannot call this function, or not limit its time.
        """
