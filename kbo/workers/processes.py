"""Calls in worker processes of this machine, which can be ended at any moment.

Each worker leads a process group, so that what the function starts ends with it. They are no processes of
``multiprocessing``, which import the main script again, nor of a pool: what a call reports is answered while it runs.
"""

from __future__ import annotations

import io
import math
import os
import pickle
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Pipe, wait
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any

import cloudpickle

from kbo._base import checks
from kbo._base.lazy import Lazy
from kbo._base.surroundings import callers_settings
from kbo.errors import InvalidInput
from kbo.workers.call import Outcome, described, of_file
from kbo.workers.engine import Engine, OnReport, Session

if TYPE_CHECKING:
    import torch
else:
    torch = Lazy("torch")

_PATIENCE = 1.0
"""Seconds after which workers that say nothing are looked after."""

LOADING = 60.0
"""Seconds that a worker may take to start and to load the objective, if the limit of a trial is not longer."""

_LEAVING = 5.0
"""Seconds that workers may take to end normally, with what ``atexit`` and open files do then."""

_UNREAD = 1000
"""More messages than a connection holds."""

_START = (
    "import sys; sys.path[:] = {path!r}; from kbo.workers.child import serve; serve({fd}, {pipe})"
)


@dataclass(frozen=True)
class Processes(Engine):
    """Worker processes on this machine; they end with this process, even if that is killed.

    The objective is imported there if it belongs to a module, and copied by cloudpickle if it is defined in a script
    or a notebook, so no ``if __name__ == "__main__"`` is needed. GPUs (those of ``CUDA_VISIBLE_DEVICES``, or all) are
    dealt out to the workers in turn, and the CPUs are shared: unless ``OMP_NUM_THREADS`` is set, each worker has its
    part of them as threads.

    Attributes:
        count: Their number; by default one for each CPU.
        trials_each: Trials after which a worker is replaced by a new process; 1 releases all memory after each. None
            for never, which saves the imports of the objective.

    Raises:
        InvalidInput: A number is no whole number of at least 1, or this is not a Unix system.
    """

    count: int | None = None
    trials_each: int | None = None

    def __post_init__(self) -> None:
        checks.maybe(checks.whole, "count", self.count, 1)
        checks.maybe(checks.whole, "trials_each", self.trials_each, 1)
        if os.name != "posix":
            raise InvalidInput(
                "worker processes need a Unix system: pass kbo.Threads(...) or kbo.workers.ray.Ray(...) as workers."
            )

    @contextmanager
    def session(
        self, function: Callable[..., Any], timeout: float | None, on_report: OnReport
    ) -> Iterator[Session]:
        session = _Processes(self, _pickled(function), timeout, on_report)
        try:
            yield session
        finally:
            session.close()


def _pickled(function: Callable[..., Any]) -> bytes:
    try:
        return pickle.dumps((copied(function), callers_settings().of_process(), sys.path, sys.argv))
    except Exception as error:
        raise InvalidInput(
            f"the objective cannot be sent to worker processes ({type(error).__name__}: {error}). Create what cannot "
            "be copied inside of it, or keep it in this process: workers=1 or workers=kbo.Threads(...)."
        ) from error


def copied(function: Callable[..., Any]) -> bytes:
    """Return what cloudpickle writes, and the names of files, which failures show and cloudpickle 3.1.3 leaves out."""
    written: dict[int, CodeType] = {}

    class Pickler(cloudpickle.Pickler):
        def reducer_override(self, obj: Any) -> Any:
            if not isinstance(obj, CodeType) or id(obj) in written:
                return super().reducer_override(obj)
            code = obj.replace()
            written[id(code)] = code
            return of_file, (code, obj.co_filename)

    with io.BytesIO() as file:
        Pickler(file).dump(function)
        return file.getvalue()


class _Processes(Session):
    """Workers by the numbers of their trials; they are started when they are needed."""

    def __init__(
        self, engine: Processes, payload: bytes, timeout: float | None, on_report: OnReport
    ) -> None:
        self._engine, self._payload, self._timeout, self._on_report = (
            engine,
            payload,
            timeout,
            on_report,
        )
        self._count = engine.count or cpus()
        self._idle: list[_Worker] = []
        self._busy: dict[int, _Worker] = {}
        self._places = list(reversed(range(self._count)))

    @property
    def capacity(self) -> int:
        return self._count

    @property
    def running(self) -> Collection[int]:
        return self._busy.keys()

    def start(self, number: int, params: Any) -> None:
        while self._idle and self._idle[-1].dead:  # it was killed while it had nothing to do
            self._free(self._idle.pop())
        if not self._idle:
            place = self._places.pop()
            self._idle.append(_Worker(place, self._payload, _environment(place, self._count)))
        self._busy[number] = worker = self._idle.pop()
        worker.begin(number, params, self._timeout)

    def wait(self, seconds: float | None = None) -> list[Outcome]:
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            outcomes = self._arrived(end)
            if outcomes or (end is not None and time.monotonic() >= end):
                return outcomes

    def _arrived(self, end: float | None) -> list[Outcome]:
        """Wait for a message, the end of a worker or of a time limit; return the outcomes."""
        moments = [
            moment
            for moment in (end, *(w.deadline for w in self._busy.values()))
            if moment is not None
        ]
        left = max(min(moments, default=math.inf) - time.monotonic(), 0.0)
        ready = wait([worker.connection for worker in self._busy.values()], min(left, _PATIENCE))
        outcomes = []
        for number, worker in list(self._busy.items()):
            outcome = None
            if worker.connection in ready or worker.dead:
                outcome = worker.receive(self._timeout, partial(self._on_report, number))
            for _ in range(
                _UNREAD
            ):  # a value may have come in time while this process was busy or stopped
                if outcome is not None or not worker.overdue or not worker.connection.poll():
                    break
                outcome = worker.receive(self._timeout, partial(self._on_report, number))
            if outcome is None and worker.overdue:
                outcome = worker.failed(f"TimeoutError: {worker.limit}; its process was ended")
            if outcome is not None:
                self._free(self._busy.pop(number))
                if outcome.died and worker.was_idle:
                    self.start(number, worker.params)
                else:
                    outcomes.append(outcome)
        return outcomes

    def _free(self, worker: _Worker) -> None:
        if worker.dead or worker.trials == self._engine.trials_each:
            _end([worker])
            self._places.append(worker.place)
        else:
            self._idle.append(worker)

    def close(self) -> None:
        for worker in self._busy.values():
            worker.end()
        _end(self._idle)


def _end(idle: Collection[_Worker]) -> None:
    """Let workers that have nothing to do end normally, for a while."""
    try:
        for worker in idle:
            worker.leave()
        last = time.monotonic() + _LEAVING
        while any(not worker.dead for worker in idle) and time.monotonic() < last:
            time.sleep(1e-3)
    finally:
        for worker in idle:
            worker.end()


class _Worker:
    """A process and the connection to it.

    Attributes:
        place: Its number among the workers.
        trials: The number of its trials.
        deadline: The moment at which its trial, or before it the objective to load, has taken too long.
    """

    def __init__(self, place: int, payload: bytes, environment: dict[str, str]) -> None:
        self.place, self.trials = place, 0
        self.deadline: float | None = None
        self.limit: str = ""
        self.params: Any = None
        self.was_idle: bool = (
            False  # until its trial has begun: then its end is not the trial's doing
        )
        self._number, self._began = -1, 0.0
        self.connection, theirs = Pipe()
        end, self._parent_pipe = Pipe(
            duplex=False
        )  # which nobody writes to: it is closed when this process ends
        with theirs, end:
            path = [
                *(p for p in sys.path if isinstance(p, str)),
                str(Path(__file__).parents[2]),
            ]  # kbo may have been found in another way
            start = _START.format(path=path, fd=theirs.fileno(), pipe=end.fileno())
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-c",
                    start,
                ],  # -P: without the current folder before the standard library
                pass_fds=[theirs.fileno(), end.fileno()],
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,  # Ctrl-C is for this process alone
            )
        _workers.add(self)
        self._send(payload)

    @property
    def ended(self) -> bool:
        return self.connection.closed

    @property
    def dead(self) -> bool:
        """Whether the process has ended; the connection does not say so while a process that it forked lives."""
        return self._process.poll() is not None

    @property
    def overdue(self) -> bool:
        return self.deadline is not None and time.monotonic() >= self.deadline

    def begin(self, number: int, params: Any, timeout: float | None) -> None:
        self._number, self.params, self.trials = number, params, self.trials + 1
        self.was_idle = self.trials > 1
        self._send(pickle.dumps((number, params)))
        self._limit(timeout and max(timeout, LOADING), "the objective was not loaded")

    def _limit(self, seconds: float | None, reason: str) -> None:
        """Let a limit of time begin."""
        self._began = time.monotonic()
        self.deadline = None if seconds is None else self._began + seconds
        self.limit = "" if seconds is None else f"{reason} after {seconds:g} s"

    def leave(self) -> None:
        """Ask the process for its end."""
        self._send(pickle.dumps(None))

    def receive(
        self, timeout: float | None, on_report: Callable[[float, int], bool]
    ) -> Outcome | None:
        """Take one message; return the outcome if the trial has ended."""
        try:
            if self.dead and not self.connection.poll():
                raise EOFError
            message = self.connection.recv_bytes()
        except (EOFError, OSError):
            self.end()
            return self.failed(_cause(self._process.returncode), died=True)
        try:
            kind, content = pickle.loads(message)
        except Exception as error:  # whatever a class of the caller's own raises
            return self.failed(f"the value cannot be read: {described(error)}")
        match kind:
            case "begun":
                self.was_idle = False
                self._limit(timeout, "no value")
            case "report":
                self._send(pickle.dumps(on_report(*content)))
            case "ended":
                return content
        return None

    def failed(self, reason: str, died: bool = False) -> Outcome:
        """End the process, and return the outcome of its trial."""
        self.end()
        return Outcome(
            self._number,
            failure=reason,
            died=died,
            seconds=round(time.monotonic() - self._began, 4),
        )

    def end(self) -> None:
        """End the process and those that it started."""
        if not self.ended:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self.forget()

    def forget(self) -> None:
        """Close the connections to a process that is another one's to end."""
        self.connection.close()
        self._parent_pipe.close()

    def _send(self, message: bytes) -> None:
        with suppress(OSError):  # it has died, as the next ``receive`` finds
            self.connection.send_bytes(message)


_workers: weakref.WeakSet[_Worker] = weakref.WeakSet()


def _forget_all() -> None:
    """Close the connections in a fork of this process: they would keep workers alive when this process is gone."""
    for worker in _workers:
        worker.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def _cause(code: int) -> str:
    if code < 0:
        name = signal.Signals(-code).name
        memory = ", perhaps because memory ran out" if name == "SIGKILL" else ""
        return f"its worker process was ended by {name}{memory}"
    return f"its worker process ended itself with exit code {code}"


def cpus() -> int:
    """Return the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _environment(place: int, count: int) -> dict[str, str]:
    """Return the environment of a worker: its share of the CPUs and GPUs."""
    given = dict(os.environ)
    given.setdefault("OMP_NUM_THREADS", str(max(cpus() // count, 1)))
    if gpus := _gpus():
        given["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[place::count] or [gpus[place % len(gpus)]])
    return given


def _gpus() -> list[str]:
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return [name for name in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if name]
    return [str(i) for i in range(torch.cuda.device_count())]
