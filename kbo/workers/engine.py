"""The interface of engines: an engine calls a function with several parameters at the same time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from typing import Any

from kbo.workers.call import CallOutcome

YEAR = 365 * 86_400.0
"""The longest time limit, in seconds."""

OnReport = Callable[[int, float, int], bool]
"""A function of the number, value and step of a running trial's report; it returns whether the trial should stop."""


class Session(ABC):
    """The workers for one function, from opening to closing.

    Attributes:
        capacity: The number of calls that may run at the same time, at least 1; it may change.
        running: The numbers of the calls whose outcome was not returned yet.
    """

    capacity: int
    running: Collection[int]

    @abstractmethod
    def start(self, number: int, params: Any) -> None:
        """Start a call. Fewer than ``capacity`` calls must be running."""

    @abstractmethod
    def wait(self, seconds: float | None = None) -> list[CallOutcome]:
        """Wait until a call ends, or for ``seconds``, and return the outcomes of the calls that have ended."""


class Engine(ABC):
    """A place where a function is called: this process, threads, other processes or a cluster."""

    @abstractmethod
    def session(
        self, function: Callable[..., Any], timeout: float | None, on_report: OnReport
    ) -> AbstractContextManager[Session]:
        """Open the engine for a function. Leaving the block ends the running calls, as far as the engine can.

        Args:
            function: A function of params, or of params and the trial (``kbo.workers.call.call``).
            timeout: Time limit of a call, in seconds, after which it has failed; None for no limit.
            on_report: Called with each report of a running call.

        Raises:
            InvalidInput: The engine cannot call this function, or cannot limit its time.
        """
