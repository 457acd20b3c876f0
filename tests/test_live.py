"""The live page: on this machine only, never often, and gone with the run."""

import dataclasses
import http.client
import os
import socket
import struct
import threading
import time
from types import SimpleNamespace
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

import kbo
from kbo import report
from kbo.errors import InvalidInput
from kbo.optimize.result import result_of
from kbo.report import live
from tests.commands import kbo as kbo_command
from tests.processes import wait_until


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(live, "POLL", 0.5)
    monkeypatch.setattr(live, "_REST", 0.01)


@pytest.fixture
def run():
    optimizer = kbo.Optimizer([(0.0, 1.0)], method="random")
    trial = optimizer.tell([0.5], 0.25)
    return trial, result_of(optimizer, "", None)


def text(page) -> str:
    with urlopen(page.address) as answer:
        assert answer.headers["Cache-Control"] == "no-store"
        return answer.read().decode()


def state(page) -> str:
    return text(page).partition('role="status">')[2].partition("<")[0]


def soon(page, words) -> str:
    """Return the page as soon as its state has these words."""
    wait_until(lambda: words in state(page), lambda: state(page))
    return text(page)


def test_the_page_follows_the_run_with_trials_that_end_while_it_is_made_and_ends_with_it(
    run, capsys, monkeypatch
):
    trial, result = run
    seen = []
    watcher = threading.Thread(target=lambda: seen.append(soon(page, "The run ended at ")))
    looks = []

    def monotonic():
        if threading.current_thread().name == "kbo live page" and page._update is not None:
            looks.append(page)
            if len(looks) == 2:  # the page of the first state is begun
                page._update = result, "The second state."
        return time.monotonic()

    monkeypatch.setattr(report.Live, "_is_watched", lambda self: True)
    # The last page stays until it was seen, however slow the machine is.
    clock = SimpleNamespace(monotonic=monotonic, sleep=lambda seconds: watcher.join())
    monkeypatch.setattr(live, "time", clock)
    with report.Live(title="digits") as page:
        assert page.address in capsys.readouterr().err
        assert page.address.startswith("http://127.0.0.1:")
        assert state(page) == "The page follows a few seconds after the first trial has ended."
        page(trial, result)
        assert "1 trial." in soon(page, "The second state.")
        result.optimizer.tell([0.25], 0.5)
        page(trial, result)
        watcher.start()
    assert "2 trials." in seen[0]
    with pytest.raises(URLError):
        text(page)


def test_the_first_page_has_the_trials_and_does_not_wait_for_the_model(run, monkeypatch):
    monkeypatch.setattr(report.Live, "_page_of", lambda self, *_: self._page)
    with report.Live(quiet=True) as page:
        page(*run)
        first = soon(page, "The answers of the model follow.")
    assert "The best observed value is 0.25, of trial 0" in first


def test_without_a_browser_no_page_is_made(run):
    with report.Live(quiet=True) as page:
        page(*run)
    assert b"The page follows a few seconds after" in page.page()


def test_the_page_is_for_this_machine_only_and_says_what_keeps_it_from_being_made(run, capsys):
    def serving():
        return any("process_request" in thread.name for thread in threading.enumerate())

    trial, result = run
    with report.Live(quiet=True) as page:
        page(trial, dataclasses.replace(result, stopped=threading.Lock()))
        assert "The page cannot be made: TypeError: cannot pickle" in soon(page, "cannot be made")
        host = page.address.removeprefix("http://").partition("/")[0]
        port = int(host.rpartition(":")[2])
        with pytest.raises(HTTPError, match="403"):
            urlopen(Request(page.address, headers={"Host": "evil.example"}))
        for path in ("", "/", "/index.html", "/" + page.address[-6:]):
            with pytest.raises(HTTPError, match="403"):
                urlopen(f"http://{host}{path}")
        connection = http.client.HTTPConnection(host)
        connection.request("POST", "/")
        assert connection.getresponse().status == 501
        with pytest.raises(InvalidInput, match="another program uses it"), report.Live(port):
            pass
        client = socket.create_connection(("127.0.0.1", port))
        client.sendall(b"GET / HT")
        wait_until(serving)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()  # with a reset
        wait_until(lambda: not serving())
    assert capsys.readouterr().err == ""  # a client that leaves is no news


SCRIPT = """
import os
from urllib.request import urlopen
bounds = [(0.0, 1.0)]
def objective(x):
    print("page:", b"The page follows" in urlopen(os.environ["PAGE"]).read())
    return x[0]
"""


def test_the_command_serves_the_page_during_the_run_only(tmp_path, monkeypatch):
    class Known(report.Live):
        def __enter__(self):
            found = super().__enter__()
            monkeypatch.setenv("PAGE", self.address)
            return found

    monkeypatch.setattr(report, "Live", Known)
    monkeypatch.setattr(report.Live, "_is_watched", lambda self: False)  # no page is made
    (tmp_path / "script.py").write_text(SCRIPT)
    done = kbo_command("tune", tmp_path / "script.py", "-n", "2", "--live", "--out", tmp_path)
    assert f"live page      {os.environ['PAGE']}" in done.stderr
    assert done.stdout.count("page: True") == 2
    with pytest.raises(URLError):
        urlopen(os.environ["PAGE"])
