"""The page of a running optimisation, served to browsers on the same machine."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import pickle
import secrets
import sys
import threading
import time
from datetime import datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import cloudpickle

from kbo._base import checks
from kbo.errors import InvalidInput
from kbo.optimize import Result, Trial
from kbo.report import page as pages
from kbo.report.record import Record
from kbo.report.rendering import POLL, render
from kbo.workers.call import Session, error_text
from kbo.workers.in_process import Threads
from kbo.workers.processes import Processes

_REST = 2.0
"""Seconds of pause for each second that a page takes, so pages take at most a third of the time of one CPU."""

_PAUSE = 0.1
"""Seconds between checks whether a new page is needed."""


class Live:
    """Serve the page of a run while it goes on: an ``on_trial`` of ``minimize``.

    The page is at ``address``, on 127.0.0.1, so only this machine can reach it. The address ends in a secret word, so
    other users of the machine cannot read the page. The page refreshes itself without a reload. It has no bounds of
    earlier times. At the end it says that the run has ended, unless Ctrl-C ended it. A separate process makes the page,
    while a browser shows it, after new trials and with pauses of a few seconds or more.

    Args:
        port: The port; 0 for any free port.
        title: The title of the page.
        quiet: Whether the address is not printed.

    Attributes:
        address: The address for a browser; empty before the run.

    Raises:
        InvalidInput: At the start of a run, if the port is taken.

    Example:
        >>> kbo.minimize(objective, bounds, 100, workers=4, on_trial=kbo.report.Live())
    """

    def __init__(self, port: int = 0, *, title: str = "A run of kbo", quiet: bool = False) -> None:
        self._port = checks.whole("port", port, 0, 65535)
        self._title = checks.text("title", title)
        self._quiet = checks.flag("quiet", quiet)
        self.address: str = ""

    def __enter__(self) -> Self:
        self._page = self._waiting(
            "The page follows a few seconds after the first trial has ended."
        )
        path = f"/{secrets.token_urlsafe(16)}/"
        self._server = self._started_server(path)
        self.address = f"http://127.0.0.1:{self._server.server_port}{path}"
        self._last_request = -math.inf  # the time at which a browser last asked for the page
        self._ended = threading.Event()
        self._result: Result | None = None
        self._update: tuple[Result, str] | None = None  # the result and the state of the next page
        self._maker = threading.Thread(target=self._make_pages, name="kbo live page", daemon=True)
        self._maker.start()
        serve = self._server.serve_forever
        threading.Thread(target=serve, name="kbo live server", daemon=True).start()
        if not self._quiet:
            print(f"live page      {self.address}", file=sys.stderr)
        return self

    def __call__(self, trial: Trial, result: Result) -> None:
        """Keep the result after a trial that has ended, for the next page."""
        self._result = result
        self._update = result, f"The run goes on; as of {_clock()}, after trial {trial.number}."

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        interrupted = kind is KeyboardInterrupt  # Ctrl-C does not wait for the last page
        if self._result is not None and not interrupted:
            state = f"The run ended at {_clock()}."
            if kind is not None:
                state = f"The run ended at {_clock()} with {kind.__name__}."
            self._update = self._result, state
        with contextlib.suppress(KeyboardInterrupt):
            self._ended.set()
            if not interrupted:
                self._maker.join()
                if self._is_watched():
                    time.sleep(1.2 * POLL)  # for the last page to be fetched
        self._server.shutdown()
        self._server.server_close()

    def page(self) -> bytes:
        """Return the latest page."""
        self._last_request = time.monotonic()
        return self._page.encode()

    def _started_server(self, path: str) -> _Server:
        """Return a server on the port, with the page at a path.

        Raises:
            InvalidInput: The port is taken or not allowed.
        """
        try:
            return _Server(("127.0.0.1", self._port), partial(_Handler, self.page, path))
        except OSError as error:
            hint = error.strerror
            if error.errno == errno.EADDRINUSE:
                hint = "another program uses it"
            raise InvalidInput(
                f"port = {self._port} cannot be used: {hint}. Choose another, or 0 for a free one."
            ) from error

    def _is_watched(self) -> bool:
        """Return whether a browser shows the page."""
        return time.monotonic() < self._last_request + 3 * POLL

    def _make_pages(self) -> None:
        """Make pages until the run has ended, and then the last page."""
        engine = Threads(1)
        if os.name == "posix":
            engine = Processes(1)
        earliest = 0.0  # the time of the next page
        ended = False
        shown = None  # the result and the state of the last page
        with engine.session(_content, None, lambda number, value, step: False) as session:
            while not ended:
                ended = self._ended.wait(_PAUSE)
                update = self._update
                if update is None or update is shown or not self._is_watched():
                    continue
                if time.monotonic() < earliest and not ended:
                    continue
                shown = update
                result, state = update
                begin = time.monotonic()
                self._page = self._page_of(session, result, state)
                end = time.monotonic()
                earliest = end + max(POLL, _REST * (end - begin))

    def _page_of(self, session: Session, result: Result, state: str) -> str:
        """Return the page of a result, or a page with the reason why there is none."""
        try:
            session.start(0, (cloudpickle.dumps(result), self._title, state))
            (outcome,) = session.wait()
        except Exception as error:  # the caller's own functions cannot be copied
            return self._waiting(f"{state} The page cannot be made: {error_text(error)}")
        if outcome.value:
            return outcome.value
        return self._waiting(f"{state} The page cannot be made: {outcome.failure}")

    def _waiting(self, state: str) -> str:
        """Return a page that has only the state of the run."""
        return render("waiting.html", title=self._title, live=state)


def _content(job: tuple[bytes, str, str]) -> str:
    """Return the page of a job: a pickled result, a title and a state. This runs in the separate process."""
    result, title, state = job
    return pages.content_of(Record.of(pickle.loads(result)), title, live=state)


def _clock() -> str:
    """Return the time of day as text."""
    return f"{datetime.now():%H:%M:%S}"


class _Server(ThreadingHTTPServer):
    """A server that prints nothing if a browser closes the connection early."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """A handler of requests: it returns the latest page at the secret path, and refuses others."""

    def __init__(self, page: Any, path: str, *arguments: Any) -> None:
        self._latest = page
        self._path = path
        super().__init__(*arguments)

    def do_GET(self) -> None:
        host = self.headers.get("Host", "").partition(":")[0]
        status = 403  # for requests under other host names (DNS rebinding), and for a wrong path
        page = b""
        is_known = secrets.compare_digest(self.path.encode(), self._path.encode())
        if is_known and host in ("127.0.0.1", "localhost"):
            status = 200
            page = self._latest()
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""
