"""Calls as tasks of Ray, on this machine or on a cluster.

Ray sends the value of a task back to the process that waits for it. So the nodes of a cluster need kbo and the other
imports of the function, but no shared file system.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import kbo
from kbo._base import checks
from kbo._base.extras import require
from kbo.errors import InvalidInput, KboError
from kbo.workers.call import CallOutcome, Engine, OnReport, RunningTrial, Session, Work
from kbo.workers.remote import Message, RemoteSession, Worker, work_of

require("kbo.workers.ray", "ray", "ray")

import ray
from ray.exceptions import (
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayError,
    WorkerCrashedError,
)


@dataclass(frozen=True)
class Ray(Engine):
    """Tasks of Ray, on this machine or on a cluster.

    If ``ray.init`` was called before, its connection is used and left open; ``address`` is then ignored. Otherwise a
    connection is opened for the time of the work: to the cluster at ``address``, or to Ray started on this machine.

    Attributes:
        address: HOST:PORT of the head of a cluster, of which this machine must be a node; "auto" to find the cluster;
            or "local". By default the environment variable RAY_ADDRESS, or else "local".
        workers: The largest number of tasks at the same time; by default as many as the resources allow.
        resources: The resources of each task, for example ``{"cpu": 2, "gpu": 0.5}``; other names are custom resources
            of the cluster. By default one CPU.

    Raises:
        InvalidInput: The address or a number is impossible. When work begins: the cluster cannot be joined.
        KboError: When work begins: Ray does not start, or its workers cannot do the work, for example without kbo.
    """

    address: str | None = None
    workers: int | None = None
    resources: Mapping[str, float] = field(default_factory=lambda: {"cpu": 1})

    def __post_init__(self) -> None:
        workers = checks.maybe(checks.whole, "workers", self.workers, 1)
        if not isinstance(self.resources, Mapping) or not self.resources:
            raise InvalidInput(
                f"resources must be a dict such as {{'cpu': 2}}, got {checks.shown(self.resources)}."
            )
        resources = {}
        for name, amount in self.resources.items():
            checks.non_negative(f"resources[{name!r}]", amount)
            resources[name] = checks.plain(amount)
        checks.keep(self, workers=workers, resources=resources)
        _head(self.cluster())

    def cluster(self) -> str:
        """Return the address: the given one, or else RAY_ADDRESS, or else "local"."""
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
                    f"{kbo.__version__} and what the work imports, installed or sent along (runtime_env of Ray)."
                ) from error
            finally:
                # A connection that closes ends its tasks. Cancelling them here as well could end this process: Ray
                # aborts if a task completes during its cancellation ("Tried to complete task that was not pending").
                if stays:
                    session.close()


class _Tasks(RemoteSession["_Task"]):
    """A session of tasks of Ray, with a mailbox for the messages that they send while they run."""

    def __init__(
        self, engine: Ray, function: Callable[..., Any], timeout: float | None, on_report: OnReport
    ) -> None:
        super().__init__(timeout, on_report)
        self._engine = engine
        self._work = ray.put(work_of(function))
        resources = dict(engine.resources)
        # By itself, Ray would retry for ever a task that exhausts the memory of its node. The caller decides instead.
        self._remote_call = ray.remote(
            num_cpus=resources.pop("cpu", 0),
            num_gpus=resources.pop("gpu", 0),
            resources=resources,
            max_retries=0,
        )(_call)
        self._mailbox: Any = ray.remote(num_cpus=0)(_Mailbox).remote()
        self._next_message: ray.ObjectRef = self._mailbox.take.remote()

    @property
    def capacity(self) -> int:
        """The number of tasks that the present nodes can run at the same time, at least 1."""
        if self._engine.workers:
            return self._engine.workers
        available = {name.lower(): amount for name, amount in ray.cluster_resources().items()}
        capacity = math.inf
        for name, amount in self._engine.resources.items():
            if amount:
                capacity = min(capacity, available.get(name.lower(), 0.0) // amount)
        if capacity == math.inf:
            return 1
        return max(1, int(capacity))

    def start(self, number: int, params: Any) -> None:
        task = self._remote_call.remote(self._work, number, params, self._mailbox, kbo.__version__)
        self.running[number] = _Task(task, self._mailbox)

    def _wait_for_message(self, seconds: float) -> None:
        tasks = {worker.task: worker for worker in self.running.values()}
        timeout = None if seconds == math.inf else seconds
        ready, _ = ray.wait([*tasks, self._next_message], timeout=timeout)
        for reference in ready:
            if reference in tasks:
                tasks[reference].is_done = True
            else:
                self._sort_in(*ray.get(reference))
                self._next_message = self._mailbox.take.remote()

    def _sort_in(self, number: int, identity: str, message: Message) -> None:
        """Give a message to its task. Messages of an earlier attempt at the same trial have another identity."""
        worker = self.running.get(number)
        if worker is not None and worker.identity == identity:
            worker.messages.append(message)

    def close(self) -> None:
        super().close()
        ray.kill(self._mailbox)


class _Task(Worker):
    """A task of Ray.

    Attributes:
        task: The reference to the result of the task.
        identity: The name of the task in the mailbox.
        is_done: Whether the task has returned or failed.
        messages: The messages that have arrived and are not yet received.
    """

    kind = "task"

    def __init__(self, task: ray.ObjectRef, mailbox: Any) -> None:
        super().__init__()
        self.task: ray.ObjectRef = task
        self.identity: str = task.task_id().hex()
        self.is_done: bool = False
        self.messages: deque[Message] = deque()
        self._is_cancelled = False
        self._mailbox = mailbox

    def receive(self) -> Message | None:
        if self._is_cancelled:
            return "died", "it was cancelled"
        if self.messages:
            return self.messages.popleft()
        if self.is_done:
            try:
                return "ended", ray.get(self.task)
            except (WorkerCrashedError, OutOfMemoryError, NodeDiedError, ObjectLostError) as error:
                return "died", f"its worker of Ray died ({_reason(error)})"
        return None

    def answer(self, stop: bool) -> None:
        self._mailbox.answer.remote(self.identity, stop)

    def end(self) -> None:
        ready, _ = ray.wait([self.task], timeout=0.0)
        if ready:
            self.is_done = True
        else:
            ray.cancel(self.task, force=True)
            self._is_cancelled = True


class _Mailbox:
    """An actor of Ray that keeps the messages of tasks, and the answers to their reports, until they are taken."""

    def __init__(self) -> None:
        self._messages: asyncio.Queue[Any] = asyncio.Queue()
        self._answers: defaultdict[str, asyncio.Queue[bool]] = defaultdict(asyncio.Queue)

    async def put(self, number: int, identity: str, message: Message) -> None:
        await self._messages.put((number, identity, message))

    async def take(self) -> Any:
        return await self._messages.get()

    async def answer(self, identity: str, stop: bool) -> None:
        await self._answers[identity].put(stop)

    async def take_answer(self, identity: str) -> bool:
        return await self._answers[identity].get()


def _call(work: Work, number: int, params: Any, mailbox: Any, version: str) -> CallOutcome:
    """Make one call in a task, send its messages, and return the outcome."""
    if kbo.__version__ != version:
        raise RuntimeError(
            f"this worker has kbo {kbo.__version__}, but the work is that of kbo {version}"
        )
    identity = ray.get_runtime_context().get_task_id()

    def put(kind: str, content: Any = None) -> None:
        ray.get(mailbox.put.remote(number, identity, (kind, content)))

    def send(value: float, step: int) -> None:
        put("report", (value, step))

    def answer() -> bool:
        return ray.get(mailbox.take_answer.remote(identity))

    put("loading")
    function = work.load()
    put("begun")
    trial = RunningTrial(number, params, send, answer)
    outcome = work.call(function, trial)
    trial.read_answers()  # answers that the objective did not read
    return outcome


@contextmanager
def connected(address: str, workers: int | None = None) -> Iterator[bool]:
    """Connect to Ray for a block: by the present connection, or else by one that closes after the block.

    Yields:
        Whether the connection stays open after the block.
    """
    if ray.is_initialized():
        yield True
        return
    try:
        if address == "local":
            _start(workers)
        else:
            _join(address)
        yield False
    finally:
        ray.shutdown()


_QUIET: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}


def _start(workers: int | None) -> None:
    """Start Ray on this machine."""
    try:
        ray.init("local", num_cpus=workers, include_dashboard=False, **_QUIET)
    except Exception as error:  # a bare one if Ray's processes take too long
        raise KboError(
            f"Ray does not start on this machine: {_reason(error)}. Is it very busy? Try again, or do without Ray."
        ) from error


def _join(address: str) -> None:
    """Connect to the cluster at an address, "auto" or HOST:PORT."""
    head = _head(address)
    if head is not None:
        try:
            socket.create_connection(head, timeout=5.0).close()  # Ray itself would try for minutes
        except OSError as error:
            raise InvalidInput(
                f"no answer from {address} ({error.strerror or error}): it must be the address of a running head of "
                "Ray (ray start --head) that this machine can reach."
            ) from error
    try:
        ray.init(address, **_QUIET)
    except (RayError, RuntimeError, ValueError, OSError) as error:
        reason = _reason(error)
        advice = f"this machine must be one of its nodes (ray start --address=HOST:PORT --num-cpus=0); got {address!r}."
        if "auth" in reason.lower():
            advice = (
                "set RAY_AUTH_MODE=token, and have the token of the cluster in ~/.ray/auth_token, RAY_AUTH_TOKEN or "
                "the file RAY_AUTH_TOKEN_PATH."
            )
        raise InvalidInput(f"the cluster cannot be joined ({reason}): {advice}") from error


def _head(address: str) -> tuple[str, int] | None:
    """Return host and port of an address; None for "auto" and "local"."""
    if address in ("auto", "local"):
        return None
    try:
        url = urlsplit(f"//{address}")
        if "://" not in address and url.hostname and url.port:
            return url.hostname, url.port
    except ValueError:  # the port is no number
        pass
    raise InvalidInput(
        f"the address of a Ray cluster must be HOST:PORT, 'auto' or 'local', got {address!r}; a machine "
        "becomes a node of a cluster by: ray start --address=HOST:PORT --num-cpus=0."
    )


def _reason(error: BaseException) -> str:
    """Return the first sentence in the last line of the cause of an error."""
    lines = str(error.__cause__ or error).strip().splitlines() or [type(error).__name__]
    return lines[-1].removeprefix("ray.exceptions.").split(". ")[0].strip().rstrip(".")
