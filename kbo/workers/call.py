"""The interface of engines, by which a run reaches its workers, and one call of the objective.

Worker processes import this module first, so it does not import PyTorch.
"""

from __future__ import annotations

import copy
import inspect
import math
import operator
import os
import pickle
import sysconfig
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from kbo._base.program_state import Settings, preserved
from kbo.errors import InvalidInput

_LARGEST_STEP = 2**53

_LIBRARIES = (
    os.path.join(sysconfig.get_path("stdlib"), ""),
    os.path.join(sysconfig.get_path("purelib"), ""),
    os.path.join(sysconfig.get_path("platlib"), ""),
    os.path.join(os.path.dirname(os.path.dirname(__file__)), ""),
    "<frozen ",
)
"""Prefixes of file names of libraries and of this package: errors there are not shown as the caller's line."""

YEAR = 365 * 86_400.0
"""The longest time limit, in seconds."""

OnReport = Callable[[int, float, int], bool]
"""A function of the number, value and step of a running trial's report; it returns whether the trial should stop."""


class RunningTrial:
    """The running trial as the objective sees it: it takes reports, and says whether to stop.

    Attributes:
        number: The number of the trial.
        params: The parameters.
        stopped: Whether ``should_stop`` has returned True.

    Example:
        >>> def objective(params, trial):
        ...     for epoch in range(30):
        ...         error = train_one_epoch(params)
        ...         trial.report(error, step=epoch)
        ...         if trial.should_stop():
        ...             break
        ...     return error
    """

    def __init__(
        self,
        number: int,
        params: Any,
        send: Callable[[float, int], None],
        answer: Callable[[], bool],
    ) -> None:
        self.number: int = number
        self.params: Any = params
        self.stopped: bool = False
        self._send = send  # sends value and step to the process that runs the optimisation
        self._answer = answer  # returns its next answer, one for each report: whether to stop
        self._unanswered = 0
        self._stop = False
        self._ended = False
        self._lock = threading.RLock()

    def report(self, value: float, *, step: int) -> None:
        """Report an intermediate value of the objective, for example the validation error after an epoch.

        Args:
            value: The value, a finite number.
            step: The step, a whole number from 0 to 2**53, given by name.

        Raises:
            InvalidInput: The step or the value is no such number, or the objective has returned.
        """
        try:
            whole = operator.index(step)
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            whole = -1
            number = math.nan
        if not 0 <= whole <= _LARGEST_STEP or not math.isfinite(number):
            raise InvalidInput(
                f"trial.report takes a finite number and a step (0, 1, ... 2**53), got value {value!r:.80} and step "
                f"{step!r:.80}."
            )
        with self._lock:
            if self._ended:
                raise InvalidInput(
                    f"trial {self.number} has ended: report before the objective returns, got step {whole}."
                )
            self._send(number, whole)  # without waiting for the answer
            self._unanswered += 1

    def should_stop(self) -> bool:
        """Return whether the trial should stop, given its reports.

        Once this is True, the trial counts as stopped early. The objective may then return anything or raise an
        exception: its value does not count, but its other measurements do.
        """
        with self._lock:
            self.read_answers()
            self.stopped = self.stopped or self._stop
        return self.stopped

    def read_answers(self) -> None:
        """Wait for the answers to all reports."""
        with self._lock:
            while self._unanswered:
                self._stop = self._answer()
                self._unanswered -= 1

    def end(self) -> None:
        """End the trial: later reports, by threads that the objective has left, are refused."""
        with self._lock:
            self._ended = True


@dataclass(frozen=True)
class CallOutcome:
    """The outcome of a call: the value of the function, or the reason why there is no value.

    Attributes:
        number: The number of the trial.
        value: The value that the function returned.
        failure: The reason why there is no value, as text; None if there is a value.
        stopped: Whether ``should_stop`` of the trial has returned True.
        died: Whether the worker died. Another attempt may then succeed.
        seconds: The duration in seconds; None if unknown.
        trace: The traceback of an exception, as text.
    """

    number: int
    value: Any = None
    failure: str | None = None
    stopped: bool = False
    died: bool = False
    seconds: float | None = None
    trace: str = ""


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


def call(
    function: Callable[..., Any],
    trial: RunningTrial,
    failures: tuple[type[BaseException], ...] = (Exception, SystemExit),
) -> CallOutcome:
    """Call ``function(params)``, or ``function(params, trial)`` if it takes two arguments, and return the outcome.

    Args:
        function: The function.
        trial: The trial.
        failures: Classes of exceptions that become an outcome; other exceptions are raised.
    """
    start = time.perf_counter()
    process = os.getpid()
    arguments = [copy.copy(trial.params)]  # the function may change them
    if takes_trial(function):
        arguments.append(trial)
    value = None
    failure = None
    trace = ""
    try:
        value = function(*arguments)
    except failures as error:
        failure = error_text(error) + place(error)
        trace = _trace()
    finally:
        if os.getpid() != process:
            os._exit(0)  # this is a fork that the function made: its parent has the outcome
        trial.end()
    seconds = round(time.perf_counter() - start, 4)
    return CallOutcome(trial.number, value, failure, trial.stopped, seconds=seconds, trace=trace)


@dataclass(frozen=True)
class Work:
    """A function for other processes, with the settings of PyTorch and NumPy in the program that sends it.

    Attributes:
        function: The pickled function.
        settings: The settings.
    """

    function: bytes
    settings: Settings

    def load(self) -> Callable[..., Any]:
        """Return the function; this imports the modules that it needs."""
        return pickle.loads(self.function)

    def call(self, function: Callable[..., Any], trial: RunningTrial) -> CallOutcome:
        """Call the loaded function with the settings; every exception becomes an outcome."""
        obstacle = self.settings.obstacle()
        if obstacle:
            return CallOutcome(trial.number, failure=obstacle)
        with preserved(), self.settings.applied():
            return call(function, trial, failures=(BaseException,))


def takes_trial(function: Callable[..., Any]) -> bool:
    """Return whether a function has a second positional argument without a default, or one named ``trial``."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # functions of compiled code
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(positional) < 2:
        return False
    second = positional[1]
    return second.name == "trial" or second.default is second.empty


def error_text(error: BaseException) -> str:
    """Return type and text of an exception; only the type if making the text raises an exception."""
    try:
        return _encodable(f"{type(error).__name__}: {error}")
    except BaseException:  # it would end the worker without an outcome
        return f"{type(error).__name__} (its text cannot be shown)"


def _trace() -> str:
    """Return the traceback of the exception that is being handled; empty if it cannot be formatted."""
    try:
        return traceback.format_exc()
    except BaseException:
        return ""


def place(error: BaseException) -> str:
    """Return the file and line that raised an exception: the last ones outside of libraries, if there are any.

    Empty for a syntax error that no line of the caller raised, such as one in a script.
    """
    frame = ""
    own_frame = ""
    for stack_frame, line in traceback.walk_tb(error.__traceback__):
        path = stack_frame.f_code.co_filename
        frame = f" ({os.path.basename(path)}, line {line})"
        if not path.startswith(_LIBRARIES):
            own_frame = frame
    if isinstance(error, SyntaxError) and not own_frame:
        return ""  # its message has the file and line
    return _encodable(own_frame or frame)


def _encodable(text: str) -> str:
    """Return a text that UTF-8 can encode: characters that it cannot encode become escape sequences."""
    return text.encode(errors="backslashreplace").decode()
