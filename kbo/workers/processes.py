"""Calls in worker processes of this machine, which can be killed at any moment, and the engine for a number of workers.

Each worker leads a process group, so processes that the function starts are killed with it. Libraries do not offer
this: pools (concurrent.futures, loky, joblib) cannot end a single call, send no messages during a call, and leave busy
workers behind if this process is killed; processes of ``multiprocessing`` import the main script again.
"""

from __future__ import annotations

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
from multiprocessing.connection import Pipe, wait
from pathlib import Path
from typing import Any

import torch

from kbo._base import checks
from kbo._base.locks import after_fork_in_child
from kbo.errors import InvalidInput
from kbo.workers.call import CallOutcome, Engine, OnReport, Session, error_text
from kbo.workers.in_process import InProcess
from kbo.workers.remote import Message, RemoteSession, Worker, work_of

_PATIENCE = 1.0
"""Seconds between checks whether silent workers have died."""

_LEAVING = 5.0
"""Seconds that workers get to end normally, to run functions of ``atexit`` and close files."""

_START = """
import sys
sys.path[:] = {path!r}
from kbo.workers.child import serve
serve({connection}, {parent_pipe})
"""


@dataclass(frozen=True)
class Processes(Engine):
    """Worker processes on this machine. They end with this process, even if it is killed.

    A worker imports the objective if it belongs to a module. If it is defined in a script or a notebook, cloudpickle
    copies it, so no ``if __name__ == "__main__"`` is needed. The workers share the GPUs (those of
    ``CUDA_VISIBLE_DEVICES``, or all) and the CPUs: unless ``OMP_NUM_THREADS`` is set, the number of threads of a worker
    is its share of the CPUs.

    Attributes:
        count: The number of workers; by default one for each CPU.
        trials_each: The number of trials after which a new process replaces a worker. 1 releases all memory after each
            trial. None means never, so the objective is imported only once per worker.

    Raises:
        InvalidInput: A number is no whole number of at least 1, or this is not a Unix system.
    """

    count: int | None = None
    trials_each: int | None = None

    def __post_init__(self) -> None:
        checks.keep(
            self,
            count=checks.maybe(checks.whole, "count", self.count, 1),
            trials_each=checks.maybe(checks.whole, "trials_each", self.trials_each, 1),
        )
        if os.name != "posix":
            raise InvalidInput(
                "worker processes need a Unix system: pass kbo.Threads(...) or kbo.workers.ray.Ray(...) as workers."
            )

    @contextmanager
    def session(
        self, function: Callable[..., Any], timeout: float | None, on_report: OnReport
    ) -> Iterator[Session]:
        session = _Processes(self, _first_message(function), timeout, on_report)
        try:
            yield session
        finally:
            session.close()


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


def _first_message(function: Callable[..., Any]) -> bytes:
    """Return the first message to a worker: its function, and ``sys.path`` and ``sys.argv`` of this process.

    Raises:
        InvalidInput: The function cannot be pickled.
    """
    try:
        return pickle.dumps((work_of(function), sys.path, sys.argv))
    except Exception as error:
        raise InvalidInput(
            f"the objective cannot be sent to worker processes ({type(error).__name__}: {error}). Create what cannot "
            "be copied inside of it, or keep it in this process: workers=1 or workers=kbo.Threads(...)."
        ) from error


class _Processes(RemoteSession["_Process"]):
    """A session of worker processes. They are started when they are needed, and used again."""

    def __init__(
        self, engine: Processes, first_message: bytes, timeout: float | None, on_report: OnReport
    ) -> None:
        super().__init__(timeout, on_report)
        self._first_message = first_message
        self._trials_each = engine.trials_each
        self.capacity = engine.count or cpus()
        self._free_slots = list(reversed(range(self.capacity)))
        self._idle: list[_Process] = []

    def start(self, number: int, params: Any) -> None:
        if not self._idle:
            slot = self._free_slots.pop()
            environment = _environment(slot, self.capacity)
            self._idle.append(_Process(slot, self._first_message, environment))
        worker = self._idle.pop()
        self.running[number] = worker
        worker.begin(number, params)
        self._limit_loading(worker)

    def _outcome(self, number: int, worker: _Process) -> CallOutcome | None:
        """Take one message. If an idle worker died before it began the call, another worker makes the call."""
        outcome = super()._outcome(number, worker)
        if outcome is None or not outcome.died or not worker.was_idle:
            return outcome
        # The worker was killed while it was idle, so this trial is not the reason.
        self._release(worker)
        worker.deadline = math.inf
        self.start(number, worker.params)
        return None

    def _wait_for_message(self, seconds: float) -> None:
        connections = [worker.connection for worker in self.running.values()]
        wait(connections, min(seconds, _PATIENCE))

    def _release(self, worker: _Process) -> None:
        if worker.is_dead or worker.n_trials == self._trials_each:
            _close([worker])
            self._free_slots.append(worker.slot)
        else:
            self._idle.append(worker)

    def close(self) -> None:
        for worker in self.running.values():
            worker.close()
        _close(self._idle)


def _close(idle: Collection[_Process]) -> None:
    """Ask idle workers to end, and kill those that have not ended after ``_LEAVING`` seconds."""
    try:
        for worker in idle:
            worker.send(None)
        deadline = time.monotonic() + _LEAVING
        while not all(worker.is_dead for worker in idle) and time.monotonic() < deadline:
            time.sleep(1e-3)
    finally:
        for worker in idle:
            worker.close()


class _Process(Worker):
    """A worker process and the connection to it.

    Attributes:
        slot: The number of the worker, from 0, which decides its share of the GPUs.
        n_trials: The number of trials that it was given.
        params: The parameters of its last trial.
    """

    kind = "process"

    def __init__(self, slot: int, first_message: bytes, environment: dict[str, str]) -> None:
        super().__init__()
        self.slot: int = slot
        self.n_trials: int = 0
        self.params: Any = None
        self._number = -1
        self.connection, connection = Pipe()
        # Nothing is written to this pipe. The worker notices when it closes, as this process ends.
        pipe, self._parent_pipe = Pipe(duplex=False)
        path = [folder for folder in sys.path if isinstance(folder, str)]
        path.append(str(Path(__file__).parents[2]))  # kbo may have been imported from elsewhere
        with connection, pipe:
            descriptors = [connection.fileno(), pipe.fileno()]
            start = _START.format(
                path=path, connection=connection.fileno(), parent_pipe=pipe.fileno()
            )
            self._process = subprocess.Popen(
                # -P: a file in the current folder must not replace a module of the standard library
                [sys.executable, "-P", "-c", start],
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,  # Ctrl-C is for this process alone
            )
        _processes.add(self)
        self._send_bytes(first_message)

    @property
    def is_dead(self) -> bool:
        """Whether the process has ended. Its connection can still be open: processes that it forked share it."""
        return self._process.poll() is not None

    @property
    def was_idle(self) -> bool:
        """Whether the worker has ended a trial, and has not begun the next one."""
        return self.n_trials > 1 and not self.has_begun

    def begin(self, number: int, params: Any) -> None:
        self._number = number
        self.n_trials += 1
        self.params = params
        self.has_begun = False
        self.send((number, params))

    def receive(self) -> Message | None:
        is_dead = (
            self.is_dead
        )  # checked before the connection, so that the last message of a dead worker is read
        message = b""
        try:
            if self.connection.poll():
                message = self.connection.recv_bytes()
        except (EOFError, OSError):
            is_dead = True
        if is_dead and not message:
            self.end()
            return "died", _cause(self._process.returncode)
        if not message:
            return None
        try:
            return pickle.loads(message)
        except Exception as error:  # of a class of the caller's own
            failure = f"the value cannot be read: {error_text(error)}"
            return "ended", CallOutcome(self._number, failure=failure)

    def answer(self, stop: bool) -> None:
        self.send(stop)

    def send(self, message: Any) -> None:
        """Send a message: parameters of a trial, an answer to a report, or None for a normal end."""
        self._send_bytes(pickle.dumps(message))

    def _send_bytes(self, message: bytes) -> None:
        with suppress(OSError):  # the worker has died: ``receive`` reports it
            self.connection.send_bytes(message)

    def end(self) -> None:
        """Kill the process and its children."""
        if self.connection.closed:  # also in a fork, to which the worker does not belong
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        self.end()
        self.forget()

    def forget(self) -> None:
        """Close the connections."""
        self.connection.close()
        self._parent_pipe.close()


_processes: weakref.WeakSet[_Process] = weakref.WeakSet()


def _forget_all() -> None:
    """Close the connections in a fork of this process: open ones would keep workers alive after this process ends."""
    for process in _processes:
        process.forget()


after_fork_in_child(_forget_all)


def _cause(code: int) -> str:
    """Return the reason why a worker process ended, from its exit code."""
    if code >= 0:
        return f"its worker process ended itself with exit code {code}"
    name = signal.Signals(-code).name
    if name == "SIGKILL":
        return f"its worker process was ended by {name}, perhaps because memory ran out"
    return f"its worker process was ended by {name}"


def cpus() -> int:
    """Return the number of CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _environment(slot: int, count: int) -> dict[str, str]:
    """Return the environment variables of one of ``count`` workers, with its share of the CPUs and GPUs."""
    environment = dict(os.environ)
    environment.setdefault("OMP_NUM_THREADS", str(max(cpus() // count, 1)))
    gpus = _gpus()
    if gpus:
        share = gpus[slot::count] or [gpus[slot % len(gpus)]]
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(share)
    return environment


def _gpus() -> list[str]:
    """Return the GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` names them."""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return [name for name in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if name]
    return [str(i) for i in range(torch.cuda.device_count())]
