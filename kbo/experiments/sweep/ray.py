"""Sweeps on Ray: ``kbo.experiments.sweep.runner.sweep(cells, folder, workers=Ray())``, on this machine or on a cluster.

Every item of work is a task with one CPU. What a task returns travels back to the process that asked for it, so the
nodes of a cluster need kbo and whatever else the work imports, but no file system in common.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import kbo
from kbo.errors import InvalidInput, KboError

try:
    import ray
    from ray.exceptions import NodeDiedError, ObjectLostError, OutOfMemoryError, RayError, WorkerCrashedError
except ImportError as error:
    raise ImportError("kbo.experiments.sweep.ray needs Ray: pip install 'kbo[ray]'") from error

Item = TypeVar("Item")

_DIED = (WorkerCrashedError, OutOfMemoryError, NodeDiedError, ObjectLostError)
_IN_FLIGHT = 2
"""Tasks handed to Ray per CPU: one that runs and one that waits for its turn."""
_PATIENCE = 5.0
"""Seconds that the head of a cluster may take to accept a connection."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ray:
    """Workers that are tasks of Ray, for the ``workers`` of ``kbo.experiments.sweep.runner.sweep``.

    If ``ray.init`` was called before, that session is used, whatever the address, and left open. Otherwise one is
    opened for the time of the work: on the cluster at the address, or with Ray started on this machine.

    Attributes:
        address: HOST:PORT of the head of a cluster that this machine is a node of, "auto" to find it, or "local". By
            default RAY_ADDRESS of the environment, or else "local".
        workers: How many tasks at a time, at most; by default one per CPU.

    Raises:
        InvalidInput: It is no such address or number.
    """

    address: str | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise InvalidInput(f"workers must be at least 1, got {self.workers}.")
        _head(self._resolved)

    @property
    def _resolved(self) -> str:
        if self.address not in (None, "auto"):
            return self.address
        return os.environ.get("RAY_ADDRESS") or self.address or "local"

    def work_off(
        self,
        items: Iterable[Item],
        function: Callable[[Item], Any],
        retries: int,
        finished: Callable[[Item, Any], None],
        died: Callable[[Item], None],
    ) -> None:
        """Apply ``function`` to all items, in tasks.

        Args:
            items: What to work on; picklable.
            function: Picklable; should not raise.
            retries: How often an item whose worker died is tried again.
            finished: Called in this process with an item and its result, as they finish.
            died: Called in this process with an item whose worker died every time.

        Raises:
            InvalidInput: There is no such cluster, or it does not let us in.
            KboError: Ray does not start, or its workers cannot do any of this, for instance because they have no kbo.
            KeyboardInterrupt: Ctrl-C; the tasks have been cancelled then.
        """
        queue = deque((item, retries) for item in items)
        if not queue:
            return
        running: dict[ray.ObjectRef, tuple[Item, int]] = {}
        with _session(self._resolved, self.workers):
            # Ray would retry a task that takes all the memory of its node for ever, so that is done here.
            task = ray.remote(num_cpus=1, max_retries=0)(_do)
            try:
                while queue or running:
                    for _ in range(min(len(queue), self._at_a_time() - len(running))):
                        item, left = queue.popleft()
                        running[task.remote(function, item, kbo.__version__)] = item, left
                    (reference,), _ = ray.wait(list(running), num_returns=1)
                    item, left = running.pop(reference)
                    try:
                        result = ray.get(reference)
                    except _DIED:
                        queue.append((item, left - 1)) if left else died(item)
                    else:
                        finished(item, result)
            except RayError as error:
                raise KboError(
                    f"the workers of Ray cannot do this work: {_reason(error)}. Every node needs kbo "
                    f"{kbo.__version__} and what the work imports, installed or sent along (runtime_env of Ray)."
                ) from error
            finally:
                for reference in running:
                    ray.cancel(reference, force=True)

    def _at_a_time(self) -> int:
        """Asked again and again, since clusters grow when tasks wait."""
        return self.workers or _IN_FLIGHT * max(1, int(ray.cluster_resources().get("CPU", 0)))


def _do(function: Callable[[Item], Any], item: Item, version: str) -> Any:
    """What a task does, with one thread for the mathematics."""
    import torch

    if kbo.__version__ != version:
        raise RuntimeError(f"this worker has kbo {kbo.__version__}, but the work is that of kbo {version}")
    torch.set_num_threads(1)
    return function(item)


@contextlib.contextmanager
def _session(address: str, workers: int | None) -> Iterator[None]:
    """A session with Ray: the one there is, or else one that ends with the block."""
    if ray.is_initialized():
        yield
        return
    try:
        _open(address, workers)
        yield
    finally:
        ray.shutdown()


def _open(address: str, workers: int | None) -> None:
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
            socket.create_connection(head, _PATIENCE).close()  # Ray itself would try for minutes
        except OSError as error:
            raise InvalidInput(
                f"nobody answers at {address} ({error.strerror or error}): it must be the address of a running head of "
                "Ray (ray start --head) that this machine can reach."
            ) from error
    try:
        with _one_attempt():
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


def _head(address: str) -> tuple[str, int] | None:
    """Host and port in an address; None of "auto" and "local"."""
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


@contextlib.contextmanager
def _one_attempt() -> Iterator[None]:
    """Ray tries twenty times to join a cluster, each with a line on stderr; once tells as much."""
    name = "RAY_gcs_server_port_wait_time_s"
    before = os.environ.get(name)
    os.environ.setdefault(name, "1")
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]


def _reason(error: BaseException) -> str:
    """What it comes down to: the first sentence in the last line of what caused an error."""
    lines = str(error.__cause__ or error).strip().splitlines() or [type(error).__name__]
    return lines[-1].removeprefix("ray.exceptions.").split(". ")[0].strip().rstrip(".")
