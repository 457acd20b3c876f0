"""Calls as tasks of Ray, on this machine or on a cluster.

The value of a task travels back to the process that waits for it, so the nodes of a cluster need kbo and whatever else
the function imports, but no file system in common.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import logging
import math
import os
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import cloudpickle

from kbo._base import checks
from kbo._base.extras import require
from kbo._base.settings import Settings
from kbo._base.surroundings import callers_settings
from kbo.errors import InvalidInput, KboError
from kbo.workers.call import Outcome, RunningTrial, call, pipe
from kbo.workers.engine import Engine, OnReport, Session
from kbo.workers.preserved import preserved
from kbo.workers.processes import LOADING, copied

require("kbo.workers.ray", "ray", "ray")

import ray
from ray.exceptions import (
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayError,
    WorkerCrashedError,
)

_CRASHES = WorkerCrashedError, OutOfMemoryError, NodeDiedError, ObjectLostError


@dataclass(frozen=True)
class Ray(Engine):
    """Tasks of Ray.

    If ``ray.init`` was called before, that session is used, whatever the address, and left open. Otherwise one is
    opened for the time of the work: on the cluster at the address, or with Ray started on this machine.

    Attributes:
        address: HOST:PORT of the head of a cluster that this machine is a node of, "auto" to find it, or "local". By
            default RAY_ADDRESS of the environment, or else "local".
        workers: The largest number of tasks at a time; by default as many as the resources allow.
        resources: Those of each task, for example ``{"cpu": 2, "gpu": 0.5}``; other names are resources of the cluster
            of your own. By default one CPU.

    Raises:
        InvalidInput: An impossible address or number; when work begins: there is no such cluster, or it refuses.
        KboError: When work begins: Ray does not start, or its workers cannot do the work, for instance without kbo.
    """

    address: str | None = None
    workers: int | None = None
    resources: Mapping[str, float] = field(default_factory=lambda: {"cpu": 1})

    def __post_init__(self) -> None:
        checks.maybe(checks.whole, "workers", self.workers, 1)
        if not isinstance(self.resources, Mapping) or not self.resources:
            raise InvalidInput(
                f"resources must be a dict such as {{'cpu': 2}}, got {checks.shown(self.resources)}."
            )
        for name, amount in self.resources.items():
            checks.non_negative(f"resources[{name!r}]", amount)
        _head(self.cluster())

    def cluster(self) -> str:
        """Return the address, or where it is left open, the one of the environment."""
        if self.address not in (None, "auto"):
            return self.address
        return os.environ.get("RAY_ADDRESS") or self.address or "local"

    @contextmanager
    def session(
        self, function: Callable[..., Any], timeout: float | None, on_report: OnReport
    ) -> Iterator[Session]:
        with connected(self.cluster(), self.workers) as stays:
            session = _Tasks(self, function, timeout, on_report)
            try:
                yield session
            except RayError as error:
                raise KboError(
                    f"the workers of Ray cannot do this work: {_reason(error)}. Every node needs kbo "
                    f"{_version()} and what the work imports, installed or sent along (runtime_env of Ray)."
                ) from error
            finally:
                if stays:
                    session.close()

    def capacity(self) -> int:
        """Return how many tasks can run on the nodes that there are, at least 1."""
        there = {name.lower(): amount for name, amount in ray.cluster_resources().items()}
        fit = (
            there.get(name.lower(), 0.0) // need for name, need in self.resources.items() if need
        )
        return self.workers or max(1, int(min(fit, default=1.0)))


class _Tasks(Session):
    """Tasks by the numbers of their trials, and a mailbox for what they report while they run.

    A trial whose worker died is a new task, with a number of its own in the mailbox.
    """

    def __init__(
        self, engine: Ray, function: Callable[..., Any], timeout: float | None, on_report: OnReport
    ) -> None:
        self._engine, self._timeout, self._on_report = engine, timeout, on_report
        self._function = ray.put((copied(function), callers_settings().of_process()))
        needs = dict(engine.resources)
        # Ray would retry a task that takes all the memory of its node for ever, so the caller decides.
        options: dict[str, Any] = {
            "num_cpus": needs.pop("cpu", 0),
            "num_gpus": needs.pop("gpu", 0),
            "max_retries": 0,
        }
        self._task = ray.remote(**options, resources=needs)(_do)
        self._mailbox: Any = ray.remote(num_cpus=0)(_Mailbox).remote()
        self._inbox: ray.ObjectRef = self._mailbox.take.remote()
        self._tasks: dict[int, ray.ObjectRef] = {}
        self._began: dict[int, float] = {}
        self._loading = set[int]()
        self._boxes, self._calls = itertools.count(), dict[int, int]()

    @property
    def capacity(self) -> int:
        return self._engine.capacity()

    @property
    def running(self) -> Collection[int]:
        return self._tasks.keys()

    def start(self, number: int, params: Any) -> None:
        self._calls[number] = box = next(self._boxes)
        self._tasks[number] = self._task.remote(
            self._function, number, params, self._mailbox, box, _version()
        )

    def wait(self, seconds: float | None = None) -> list[Outcome]:
        end = math.inf if seconds is None else time.monotonic() + seconds
        while True:
            deadlines = self._deadlines()
            left = min([end, *deadlines.values()]) - time.monotonic()
            ready, _ = ray.wait(
                [*self._tasks.values(), self._inbox],
                timeout=max(left, 0.0) if left < math.inf else None,
            )
            if self._inbox in ready:
                self._read(*ray.get(self._inbox))
                self._inbox = self._mailbox.take.remote()
            outcomes = [
                self._outcome(number) for number, task in list(self._tasks.items()) if task in ready
            ]
            now, deadlines = time.monotonic(), self._deadlines()
            late = [
                number
                for number, moment in deadlines.items()
                if moment <= now and number in self._tasks
            ]
            if late:  # a value may have come in time while this process was busy or stopped
                tasks = [self._tasks[number] for number in late]
                ready, _ = ray.wait(tasks, num_returns=len(tasks), timeout=0.0)
                outcomes += [
                    self._outcome(n) if self._tasks[n] in ready else self._overdue(n) for n in late
                ]
            if outcomes or now >= end:
                return outcomes

    def _deadlines(self) -> dict[int, float]:
        if self._timeout is None:
            return {}
        return {number: began + self._limit(number) for number, began in self._began.items()}

    def _limit(self, number: int) -> float:
        """Return the seconds that a trial, or before it the objective to load, may take."""
        return max(self._timeout or 0.0, LOADING if number in self._loading else 0.0)

    def _read(self, number: int, box: int, content: tuple[float, int] | bool) -> None:
        """Take a message: a task loads the objective (False), the trial has begun (True), or reports value and step."""
        if number not in self._tasks or self._calls[number] != box:  # ended meanwhile
            return
        if isinstance(content, bool):
            self._began[number] = time.monotonic()
            (self._loading.discard if content else self._loading.add)(number)
        else:
            self._mailbox.answer.remote(box, self._on_report(number, *content))

    def _outcome(self, number: int) -> Outcome:
        task = self._tasks.pop(number)
        self._began.pop(number, None)
        try:
            return ray.get(task)
        except _CRASHES as error:
            return Outcome(number, failure=f"its worker of Ray died ({_reason(error)})", died=True)

    def _overdue(self, number: int) -> Outcome:
        ray.cancel(self._tasks.pop(number), force=True)
        seconds = round(time.monotonic() - self._began.pop(number), 4)
        missing = "the objective was not loaded" if number in self._loading else "no value"
        reason = f"TimeoutError: {missing} after {self._limit(number):g} s; its task was ended"
        return Outcome(number, failure=reason, seconds=seconds)

    def close(self) -> None:
        """End what still runs, in a session of Ray that goes on.

        Where the session ends too, its end does that. Ray ends the whole process if a task completes while it is being
        cancelled ("Tried to complete task that was not pending").
        """
        for task in self._tasks.values():
            ray.cancel(task, force=True)
        ray.kill(self._mailbox)


class _Mailbox:
    """An actor that keeps messages of tasks until they are taken, and the answers."""

    def __init__(self) -> None:
        self._messages: asyncio.Queue[Any] = asyncio.Queue()
        self._answers: defaultdict[int, asyncio.Queue[bool]] = defaultdict(asyncio.Queue)

    async def put(self, number: int, box: int, content: tuple[float, int] | bool) -> None:
        await self._messages.put((number, box, content))

    async def take(self) -> Any:
        return await self._messages.get()

    async def answer(self, box: int, stop: bool) -> None:
        await self._answers[box].put(stop)

    async def decision(self, box: int) -> bool:
        return await self._answers[box].get()


def _do(
    work: tuple[bytes, Settings], number: int, params: Any, mailbox: Any, box: int, version: str
) -> Outcome:
    """Do the work of a task: call a function, pickled, with the settings of the program that has sent it."""
    function, settings = work
    if (here := _version()) != version:
        raise RuntimeError(f"this worker has kbo {here}, but the work is that of kbo {version}")
    mailbox.put.remote(number, box, False)
    loaded = cloudpickle.loads(function)  # what it imports does not count in the time of the trial
    ray.get(mailbox.put.remote(number, box, True))
    report, decide = pipe(
        lambda value, step: ray.get(mailbox.put.remote(number, box, (value, step))),
        lambda: ray.get(mailbox.decision.remote(box)),
    )
    if obstacle := settings.obstacle():
        return Outcome(number, failure=obstacle)
    with preserved(), settings.applied():
        outcome = call(loaded, RunningTrial(number, params, report, decide), (BaseException,))
    decide()  # takes the answers that nobody asked for
    return outcome


def _version() -> str:
    return importlib.import_module("kbo").__version__


@contextmanager
def connected(address: str, workers: int | None = None) -> Iterator[bool]:
    """A connection to Ray inside the block: the one there is, or else one that ends with the block.

    Yields:
        Whether the connection stays.
    """
    if ray.is_initialized():
        yield True
        return
    try:
        _connect(address, workers)
        yield False
    finally:
        ray.shutdown()


def _connect(address: str, workers: int | None) -> None:
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address == "local":
        try:
            ray.init("local", num_cpus=workers, include_dashboard=False, **quiet)
        except Exception as error:  # a bare one if Ray's processes take too long
            raise KboError(
                f"Ray does not start on this machine: {_reason(error)}. Is it very busy? Try again, or do without Ray."
            ) from error
        return
    if head := _head(address):
        try:
            socket.create_connection(head, timeout=5.0).close()  # Ray itself would try for minutes
        except OSError as error:
            raise InvalidInput(
                f"no answer from {address} ({error.strerror or error}): it must be the address of a running head of "
                "Ray (ray start --head) that this machine can reach."
            ) from error
    patience = (
        "RAY_gcs_server_port_wait_time_s"  # else Ray tries twenty times, each with a line on stderr
    )
    before = os.environ.get(patience)
    os.environ.setdefault(patience, "1")
    try:
        ray.init(address, **quiet)
    except (RayError, RuntimeError, ValueError, OSError) as error:
        reason = _reason(error)
        advice = f"this machine must be one of its nodes (ray start --address=HOST:PORT --num-cpus=0); got {address!r}."
        if "auth" in reason.lower():
            advice = (
                "set RAY_AUTH_MODE=token, and have the token of the cluster in ~/.ray/auth_token, RAY_AUTH_TOKEN or "
                "the file RAY_AUTH_TOKEN_PATH."
            )
        raise InvalidInput(f"the cluster cannot be joined ({reason}): {advice}") from error
    finally:
        if before is None:
            del os.environ[patience]


def _head(address: str) -> tuple[str, int] | None:
    """Return host and port of an address; None for "auto" and "local"."""
    if address in ("auto", "local"):
        return None
    try:
        parts = urlsplit(f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if "://" in address or not host or not port:
        raise InvalidInput(
            f"the address of a Ray cluster must be HOST:PORT, 'auto' or 'local', got {address!r}; a machine "
            "becomes a node of a cluster by: ray start --address=HOST:PORT --num-cpus=0."
        )
    return host, port


def _reason(error: BaseException) -> str:
    """Return the first sentence in the last line of the cause of an error."""
    lines = str(error.__cause__ or error).strip().splitlines() or [type(error).__name__]
    return lines[-1].removeprefix("ray.exceptions.").split(". ")[0].strip().rstrip(".")
