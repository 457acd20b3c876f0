"""Sweeps on Ray: ``kbo.experiments.sweep.runner.sweep(cells, folder, workers=Ray())``, on this machine or on a cluster.

Every cell is a task with one CPU. The result of a task travels back to the process that runs the sweep, so the nodes of
a cluster need kbo and whatever else the work imports, but no file system in common.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlsplit

import kbo
from kbo.errors import InvalidInput, KboError
from kbo.experiments.sweep.pool import Engine, Submit
from kbo.extras import require

require("kbo.experiments.sweep.ray", "ray", "ray")

import ray
from ray.exceptions import NodeDiedError, ObjectLostError, OutOfMemoryError, RayError, WorkerCrashedError


@dataclass(frozen=True)
class Ray(Engine):
    """Workers that are tasks of Ray, for the ``workers`` of ``kbo.experiments.sweep.runner.sweep``.

    If ``ray.init`` was called before, that session is used, whatever the address, and left open. Otherwise one is
    opened for the time of the work: on the cluster at the address, or with Ray started on this machine.

    Attributes:
        address: HOST:PORT of the head of a cluster that this machine is a node of, "auto" to find it, or "local". By
            default RAY_ADDRESS of the environment, or else "local".
        workers: The largest number of tasks at a time; by default as many as the CPUs can take.

    Raises:
        InvalidInput: An impossible address or number; when work begins: there is no such cluster, or it refuses.
        KboError: When work begins: Ray does not start, or its workers cannot do the work, for instance without kbo.
    """

    address: str | None = None
    workers: int | None = None

    crashes: ClassVar[tuple[type[Exception], ...]] = (
        WorkerCrashedError,
        OutOfMemoryError,
        NodeDiedError,
        ObjectLostError,
    )

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise InvalidInput(f"workers must be at least 1, got {self.workers}.")
        _head(self.cluster())

    def cluster(self) -> str:
        """Return the address, or where it is left open, the one of the environment."""
        if self.address not in (None, "auto"):
            return self.address
        return os.environ.get("RAY_ADDRESS") or self.address or "local"

    @contextmanager
    def session(self, items: int, retry: bool) -> Iterator[Submit]:  # noqa: D102
        # Ray would retry a task that takes all the memory of its node for ever, so ``run_all`` does the retries.
        task = ray.remote(num_cpus=1, max_retries=0)(_do)
        unfinished: set[ray.ObjectRef] = set()

        def submit(function: Callable[[Any], Any], item: Any) -> Future:
            reference = task.remote(function, item, kbo.__version__)
            unfinished.add(reference)
            future = reference.future()
            future.add_done_callback(lambda _: unfinished.discard(reference))
            return future

        with connected(self.cluster(), self.workers):
            try:
                yield submit
            except RayError as error:
                raise KboError(
                    f"the workers of Ray cannot do this work: {_reason(error)}. Every node needs kbo "
                    f"{kbo.__version__} and what the work imports, installed or sent along (runtime_env of Ray)."
                ) from error
            finally:
                for reference in list(unfinished):
                    ray.cancel(reference, force=True)

    def capacity(self) -> int:
        """Return how many tasks may be in progress at present: clusters grow when tasks wait."""
        cpus = max(1, int(ray.cluster_resources().get("CPU", 0)))
        return self.workers or 2 * cpus  # one that runs and one that waits for its turn


def _do(function: Callable[[Any], Any], item: Any, version: str) -> Any:
    """Do the work of a task, with one thread for the mathematics."""
    import torch

    if kbo.__version__ != version:
        raise RuntimeError(f"this worker has kbo {kbo.__version__}, but the work is that of kbo {version}")
    torch.set_num_threads(1)
    return function(item)


@contextmanager
def connected(address: str, workers: int | None = None) -> Iterator[None]:
    """A connection to Ray inside the block: the one there is, or else one that ends with the block."""
    if ray.is_initialized():
        yield
        return
    try:
        _connect(address, workers)
        yield
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
    patience = "RAY_gcs_server_port_wait_time_s"  # else Ray tries twenty times, each with a line on stderr
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
