"""The program of a worker process: it waits for parameters, calls the function, and ends with its parent.

``kbo.workers.processes`` starts it with two file descriptors: a connection, and a pipe that is closed when the parent
ends. The parent first sends the work. Then it sends the parameters of one trial at a time, and answers each report of
the trial. None asks for a normal end.
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
    """Make calls until the parent sends None, closes the connection or ends."""
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
        trial.read_answers()  # answers that the objective did not read


def _prepare_output() -> None:
    """Flush output after each line, so that a kill loses no line; a trial goes on if its output cannot be written."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    sys.stdout = lasting(sys.stdout, "standard output")
    sys.stderr = lasting(sys.stderr, "standard error")
    if on_terminal():
        sys.stdout = AboveBar(sys.stdout)
        sys.stderr = AboveBar(sys.stderr)


def _flush_output() -> None:
    """Flush what the function has printed."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # the objective has closed or replaced it
            stream.flush()


def _pickled(outcome: CallOutcome) -> bytes:
    """Return the message with an outcome; if its value cannot be pickled, the outcome is a failure."""
    try:
        return pickle.dumps(("ended", outcome))
    except Exception as error:
        failure = f"the value cannot be sent to the main process: {error_text(error)}"
        failed = CallOutcome(outcome.number, failure=failure, seconds=outcome.seconds)
        return pickle.dumps(("ended", failed))


def _receive(connection: Connection, received: queue.SimpleQueue[Any]) -> None:
    """Receive messages until the connection ends or a message cannot be read; then kill this process group."""
    try:
        while True:
            received.put(connection.recv())
    finally:
        os.killpg(0, signal.SIGKILL)


def _end_with(parent_pipe: int) -> None:
    """Let Linux kill this process and its children when the parent ends.

    The thread that receives messages does not suffice: it cannot run while compiled code holds the interpreter, and it
    does not reach the children if the system kills this process first.
    """
    if sys.platform == "linux":
        fcntl.fcntl(parent_pipe, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(parent_pipe, fcntl.F_SETSIG, signal.SIGKILL)
        flags = fcntl.fcntl(parent_pipe, fcntl.F_GETFL)
        fcntl.fcntl(parent_pipe, fcntl.F_SETFL, flags | os.O_ASYNC)
