"""One call of a function by a worker: the handle that the function gets, and the outcome.

Worker processes import this module before anything else, so it imports no PyTorch.
"""

from __future__ import annotations

import copy
import inspect
import math
import operator
import os
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any, Never

from kbo.errors import InvalidInput

Report = Callable[[float, int], None]
"""Takes a value and its step, in this order everywhere."""

Decision = Callable[[], bool]


def check_step_by_name(caller: str, positional: tuple[Any, ...], step: int | None) -> None:
    """Check that a report names its step, so that nobody exchanges step and value without an error."""
    if positional or step is None:
        raise InvalidInput(
            f"write {caller}, with the step by name: the value is the first argument, as in Optuna; in earlier "
            "versions of kbo it was the step."
        )


class RunningTrial:
    """The trial that an objective evaluates: where it reports, and whether it should stop.

    Attributes:
        number: The number of the trial.
        params: The parameters.

    Example:
        >>> def objective(params, trial):
        ...     for epoch in range(30):
        ...         error = train_one_epoch(params)
        ...         trial.report(error, step=epoch)
        ...         if trial.should_stop():
        ...             break
        ...     return error
    """

    def __init__(self, number: int, params: Any, report: Report, decide: Decision) -> None:
        self.number: int = number
        self.params: Any = params
        self._report, self._decide = report, decide
        self._lock = threading.Lock()
        self.stopped: bool = False

    def report(self, value: float, *others: Never, step: int | None = None) -> None:
        """Report the value of the objective as it is after a step, for example the validation error after an epoch.

        Args:
            value: The value, a finite number.
            others: None: the step is given by name only.
            step: The step, a whole number from 0 to 2**53; needed.

        Raises:
            InvalidInput: The step is not given by name or no such number, the value is no finite number, or the
                objective has returned.
        """
        check_step_by_name("trial.report(value, step=step)", others, step)
        try:
            number, found = operator.index(step), float(value)  # pyright: ignore[reportArgumentType]  (of any kind)
        except (TypeError, ValueError, OverflowError):
            number, found = -1, math.nan
        if not 0 <= number <= 2**53 or not math.isfinite(found):
            raise InvalidInput(
                f"trial.report takes a finite number and a step (0, 1, ... 2**53), got value {value!r:.80} and step "
                f"{step!r:.80}."
            )
        with self._lock:
            self._report(found, number)

    def end(self) -> None:
        """Refuse what threads of the objective report from now on: it has returned."""
        with self._lock:
            self._report = self._late

    def _late(self, value: float, step: int) -> None:
        raise InvalidInput(
            f"trial {self.number} has ended: report before the objective returns, got step {step}."
        )

    def should_stop(self) -> bool:
        """Return whether the trial should stop, given what was reported; once True, the trial counts as stopped early.

        The objective then returns anything, or raises: its value does not count, but other measurements do.
        """
        with self._lock:
            self.stopped = self.stopped or self._decide()
        return self.stopped


def pipe(send: Report, answer: Decision) -> tuple[Report, Decision]:
    """Return how a trial reports and learns decisions over a connection that has one answer to each report.

    Reports do not wait for their answers, so a training run goes on; ``should_stop`` waits for all of them.
    """
    unanswered, stop = 0, False

    def report(value: float, step: int) -> None:
        nonlocal unanswered
        send(value, step)
        unanswered += 1

    def decide() -> bool:
        nonlocal unanswered, stop
        while unanswered:
            stop = answer()
            unanswered -= 1
        return stop

    return report, decide


@dataclass(frozen=True)
class Outcome:
    """The end of a call.

    Attributes:
        number: The number of the trial.
        value: What the function returned.
        failure: Why it returned nothing, in words; None if it did.
        stopped: Whether the function learned that it should stop.
        died: Whether the worker died, so that another attempt may succeed.
        seconds: The duration.
        trace: The traceback of an exception, as text.
    """

    number: int
    value: Any = None
    failure: str | None = None
    stopped: bool = False
    died: bool = False
    seconds: float | None = None
    trace: str = ""


def call(
    function: Callable[..., Any],
    trial: RunningTrial,
    failures: tuple[type[BaseException], ...] = (Exception, SystemExit),
) -> Outcome:
    """Call ``function(params)``, or ``function(params, trial)`` if it takes two arguments.

    Args:
        function: The function.
        trial: The trial.
        failures: Exceptions that are an outcome; others are raised.
    """
    start, process = time.perf_counter(), os.getpid()
    params = copy.copy(trial.params)  # which the function may change
    value, failure, trace = None, None, ""
    try:
        value = function(params, trial) if takes_trial(function) else function(params)
    except failures as error:
        failure, trace = f"{described(error)}{place(error)}", _trace()
    finally:
        if (
            os.getpid() != process
        ):  # a copy that the function forked: the first process has its outcome and goes on
            os._exit(0)
        trial.end()
    seconds = round(time.perf_counter() - start, 4)
    return Outcome(trial.number, value, failure, trial.stopped, seconds=seconds, trace=trace)


def takes_trial(function: Callable[..., Any]) -> bool:
    """Return whether a function has a second positional argument without a default, or one named ``trial``."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # functions of compiled code
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    second = positional[1:2]
    return bool(second) and (second[0].name == "trial" or second[0].default is second[0].empty)


_LIBRARIES = (
    *(os.path.join(sysconfig.get_path(kind), "") for kind in ("stdlib", "purelib", "platlib")),
    os.path.join(os.path.dirname(os.path.dirname(__file__)), ""),
    "<frozen ",
)
"""Beginnings of the names of files that are not the caller's: installed ones, and those of this package."""


def described(error: BaseException) -> str:
    """Return type and text of an exception, whatever that text is and does."""
    try:
        return _encodable(f"{type(error).__name__}: {error}")
    except BaseException:  # which would end the worker without an outcome
        return f"{type(error).__name__} (its text cannot be shown)"


def _trace() -> str:
    """Return the traceback of the exception that is handled, unless its class refuses to be shown."""
    try:
        return traceback.format_exc()
    except BaseException:
        return ""


def place(error: BaseException) -> str:
    """Return the file and line in which an exception was raised: the last ones that are not of a library, if any."""
    frames = [
        (frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    own = [frame for frame in frames if not frame[0].startswith(_LIBRARIES)]
    if not frames:
        return ""
    name, line = (own or frames)[-1]
    return _encodable(f" ({os.path.basename(name)}, line {line})")


def of_file(code: CodeType, name: str) -> CodeType:
    """Return code as if it had been read from a file of this name."""
    return code.replace(co_filename=name)


def _encodable(text: str) -> str:
    """Return a text that UTF-8 can write, with escapes for the bytes of names and messages that were not in it."""
    return text.encode(errors="backslashreplace").decode()
