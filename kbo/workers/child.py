"""The worker process: it waits for parameters, calls the function, and ends with its parent.

It is started by ``kbo.workers.processes`` with two file descriptors: one to talk over, and one that is closed when the
parent ends. Messages from the parent are the function, then parameters of one trial at a time, and decisions about what
the trial reported; None asks for a normal end.
"""

from __future__ import annotations

import fcntl
import io
import os
import pickle
import queue
import signal
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from kbo._base.streams import AboveBar, lasting
from kbo._base.terminal import on_terminal
from kbo.workers.call import Outcome, RunningTrial, call, described, pipe
from kbo.workers.preserved import preserved


def serve(descriptor: int, parent_pipe: int) -> None:
    """Work until the parent asks for the end, closes the connection or ends."""
    _end_with(parent_pipe)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                line_buffering=True
            )  # what a trial printed is not lost when it is ended
    sys.stdout = lasting(
        sys.stdout, "standard output"
    )  # a trial does not fail since nobody reads what it prints
    sys.stderr = lasting(sys.stderr, "standard error")
    if on_terminal():
        sys.stdout, sys.stderr = AboveBar(sys.stdout), AboveBar(sys.stderr)
    connection = Connection(descriptor)
    payload, settings, sys.path[:], sys.argv[:] = pickle.loads(connection.recv_bytes())
    received: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, received), daemon=True).start()
    function, obstacle = None, ""
    try:
        function = pickle.loads(payload)
    except BaseException as error:
        obstacle = f"the worker process could not load the objective: {described(error)}"
    obstacle = obstacle or settings.obstacle()
    while True:
        if (task := received.get()) is None:
            return
        number, params = task
        connection.send(("begun", None))
        report, decide = pipe(
            lambda value, step: connection.send(("report", (value, step))), received.get
        )
        if function is None or obstacle:
            outcome = Outcome(number, failure=obstacle)
        else:
            with preserved(), settings.applied():
                outcome = call(
                    function, RunningTrial(number, params, report, decide), (BaseException,)
                )
        for stream in (sys.stdout, sys.stderr):
            with suppress(
                Exception
            ):  # a stream that the objective has closed, or replaced by an object of its own
                stream.flush()
        try:
            message = pickle.dumps(("ended", outcome))
        except Exception as error:
            failure = f"the value cannot be sent to the main process: {described(error)}"
            message = pickle.dumps(
                ("ended", Outcome(number, failure=failure, seconds=outcome.seconds))
            )
        connection.send_bytes(message)
        decide()  # takes the answers that nobody asked for


def _receive(connection: Connection, received: queue.SimpleQueue[Any]) -> None:
    """Receive messages until the parent is gone, or one cannot be read; then end this process and what it started."""
    try:
        while True:
            received.put(connection.recv())
    finally:
        os.killpg(0, signal.SIGKILL)


def _end_with(parent_pipe: int) -> None:
    """Let the system end this process and those that it started with the parent, where it can.

    A thread cannot if compiled code never returns, and is too late if the system ends this process alone.
    """
    if sys.platform == "linux":
        fcntl.fcntl(parent_pipe, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(parent_pipe, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(
            parent_pipe, fcntl.F_SETFL, fcntl.fcntl(parent_pipe, fcntl.F_GETFL) | os.O_ASYNC
        )
