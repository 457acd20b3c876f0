"""The page of a run while it goes on, for browsers on the same machine."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import pickle
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
from kbo.report import tuning
from kbo.report.page import POLL, render
from kbo.report.record import Record
from kbo.workers.call import described
from kbo.workers.engine import Session
from kbo.workers.processes import Processes
from kbo.workers.threads import Threads

_SHARE = 0.5
"""Part of the time of one CPU that pages may take."""

_PAUSE = 0.1
"""Seconds between looks at whether there is a page to make."""


class Live:
    """Serve the page of a run while it goes on: an ``on_trial`` of ``minimize``.

    The page is at ``address``, on 127.0.0.1 and so for this machine only. It refreshes itself without a reload, has no
    bounds of earlier times, and says when the run has ended, unless Ctrl-C ended it. It is made beside the run, in a
    process of its own, again after new trials while a browser shows it, with a few seconds or more in between.

    Args:
        port: The port; by default a free one.
        title: The title of the page.
        quiet: Whether not to print the address.

    Attributes:
        address: The address for a browser; empty before the run.

    Raises:
        InvalidInput: At the start of a run, if the port is taken.

    Example:
        >>> kbo.minimize(objective, bounds, 100, workers=4, on_trial=kbo.report.Live())
    """

    def __init__(self, port: int = 0, *, title: str = "A run of kbo", quiet: bool = False) -> None:
        self._port = checks.whole("port", port, 0, 65535)
        self._title, self._quiet = checks.text("title", title), checks.flag("quiet", quiet)
        self.address: str = ""

    def __enter__(self) -> Self:
        self._page = self._without(
            "The page follows a few seconds after the first trial has ended."
        )
        try:
            self._server = _Server(("127.0.0.1", self._port), partial(_Handler, self.page))
        except OSError as error:
            hint = "another program uses it" if error.errno == errno.EADDRINUSE else error.strerror
            raise InvalidInput(
                f"port = {self._port} cannot be used: {hint}. Choose another, or 0 for a free one."
            ) from error
        self.address = f"http://127.0.0.1:{self._server.server_port}/"
        self._seen, self._ended = -math.inf, threading.Event()
        self._result: Result | None = None
        self._news: tuple[Result, str] | None = None  # of which there is no page yet
        self._maker = threading.Thread(target=self._make_pages, name="kbo live page", daemon=True)
        self._maker.start()
        threading.Thread(
            target=self._server.serve_forever, name="kbo live server", daemon=True
        ).start()
        if not self._quiet:
            print(f"live page      {self.address}", file=sys.stderr)
        return self

    def __call__(self, trial: Trial, result: Result) -> None:
        """Take note of a trial that has ended."""
        self._result = result
        self._news = result, f"The run goes on; as of {_clock()}, after trial {trial.number}."

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        interrupted = kind is KeyboardInterrupt  # who ends a run does not wait for its last page
        if self._result is not None and not interrupted:
            how = "" if kind is None else f" with {kind.__name__}"
            self._news = self._result, f"The run ended at {_clock()}{how}."
        with contextlib.suppress(KeyboardInterrupt):
            self._ended.set()
            if not interrupted:
                self._maker.join()
                if self._watched():
                    time.sleep(1.2 * POLL)  # for the last page to be fetched
        self._server.shutdown()
        self._server.server_close()

    def page(self) -> bytes:
        """Return the latest page."""
        self._seen = time.monotonic()
        return self._page.encode()

    def _watched(self) -> bool:
        return time.monotonic() < self._seen + 3 * POLL

    def _make_pages(self) -> None:
        """Make pages until the run has ended and the last one is made."""
        engine, after, ended = Processes(1) if os.name == "posix" else Threads(1), 0.0, False
        with engine.session(_made, None, lambda number, value, step: False) as session:
            while not ended:
                ended = self._ended.wait(_PAUSE)
                if (
                    self._news is None
                    or not self._watched()
                    or (time.monotonic() < after and not ended)
                ):
                    continue
                news, self._news, begin = self._news, None, time.monotonic()
                self._page = self._page_of(session, *news)
                after = time.monotonic() + max(POLL, (time.monotonic() - begin) / _SHARE)

    def _page_of(self, session: Session, result: Result, state: str) -> str:
        try:
            session.start(0, (cloudpickle.dumps(result), self._title, state))
            (outcome,) = session.wait()
        except (
            Exception
        ) as error:  # of what the caller's own functions in the run do when they are copied
            return self._without(f"{state} The page cannot be made: {described(error)}")
        return outcome.value or self._without(f"{state} The page cannot be made: {outcome.failure}")

    def _without(self, state: str) -> str:
        return render("waiting.html", title=self._title, live=state)


def _made(job: tuple[bytes, str, str]) -> str:
    """Return a page, in a process of its own."""
    result, title, state = job
    return tuning.page(Record.of(pickle.loads(result)), title, live=state)


def _clock() -> str:
    return f"{datetime.now():%H:%M:%S}"


class _Server(ThreadingHTTPServer):
    """A server that says nothing of clients that leave before they have their page."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Answers with the latest page, whatever the path."""

    def __init__(self, page: Any, *arguments: Any) -> None:
        self._latest = page
        super().__init__(*arguments)

    def do_GET(self) -> None:
        host = self.headers.get("Host", "").partition(":")[0]
        page = (
            self._latest() if host in ("127.0.0.1", "localhost") else b""
        )  # not for pages of other hosts (rebinding)
        self.send_response(200 if page else 403)
        for name, value in {
            "Content-Type": "text/html; charset=utf-8",
            "Content-Length": str(len(page)),
            "Cache-Control": "no-store",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""
