"""The worker process: it waits for parameters, calls the function, and ends with its parent.

It is started by ``kbo.workers.processes`` with two file descriptors: one to talk over, and one that is closed when the
parent ends. The parent sends the work, then parameters of one trial at a time, and an answer to each report of the
trial; None asks for a normal end.
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
from kbo.workers.call import CallOutcome, RunningTrial, error_text


def serve(descriptor: int, parent_pipe: int) -> None:
    """Work until the parent asks for the end, closes the connection or ends."""
    _end_with(parent_pipe)
    _prepare_output()
    connection = Connection(descriptor)
    work, sys.path[:], sys.argv[:] = pickle.loads(connection.recv_bytes())
    received: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, received), daemon=True).start()
    function = None
    obstacle = ""
    try:
        function = work.load()
    except BaseException as error:
        obstacle = f"the worker process could not load the objective: {error_text(error)}"

    def send(value: float, step: int) -> None:
        connection.send(("report", (value, step)))

    while (task := received.get()) is not None:
        number, params = task
        connection.send(("begun", None))
        trial = RunningTrial(number, params, send, received.get)
        outcome = CallOutcome(number, failure=obstacle)
        if function is not None:
            outcome = work.call(function, trial)
        _flush_output()
        connection.send_bytes(_pickled(outcome))
        trial.read_answers()  # that the objective did not ask for


def _prepare_output() -> None:
    """Write each line at once, so that it is not lost when a trial is ended; a trial goes on if nobody reads it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    sys.stdout = lasting(sys.stdout, "standard output")
    sys.stderr = lasting(sys.stderr, "standard error")
    if on_terminal():
        sys.stdout = AboveBar(sys.stdout)
        sys.stderr = AboveBar(sys.stderr)


def _flush_output() -> None:
    """Write what the function has printed."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # the objective has closed or replaced it
            stream.flush()


def _pickled(outcome: CallOutcome) -> bytes:
    """Return the message of an outcome."""
    try:
        return pickle.dumps(("ended", outcome))
    except Exception as error:
        failure = f"the value cannot be sent to the main process: {error_text(error)}"
        failed = CallOutcome(outcome.number, failure=failure, seconds=outcome.seconds)
        return pickle.dumps(("ended", failed))


def _receive(connection: Connection, received: queue.SimpleQueue[Any]) -> None:
    """Receive messages until the parent is gone, or one cannot be read; then end this process and its children."""
    try:
        while True:
            received.put(connection.recv())
    finally:
        os.killpg(0, signal.SIGKILL)


def _end_with(parent_pipe: int) -> None:
    """Let the system end this process and its children when the parent ends, on Linux.

    A thread cannot if compiled code never returns, and is too late if the system ends this process alone.
    """
    if sys.platform == "linux":
        fcntl.fcntl(parent_pipe, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(parent_pipe, fcntl.F_SETSIG, signal.SIGKILL)
        flags = fcntl.fcntl(parent_pipe, fcntl.F_GETFL)
        fcntl.fcntl(parent_pipe, fcntl.F_SETFL, flags | os.O_ASYNC)
