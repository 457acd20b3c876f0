"""Text and pictures of a run, whatever its names, values and failures are."""

from __future__ import annotations

import logging

import pytest

import kbo
from kbo.errors import InvalidInput, JournalError

ESCAPE = "\x1b[31m"


def finished(values, name: str = "a", maximize: bool = False) -> kbo.Optimizer:
    optimizer = kbo.Optimizer({name: (0.0, 1.0)}, maximize=maximize)
    for value in values:
        optimizer.tell(optimizer.ask(), value)
    return optimizer


def test_terminal_escapes_are_shown_and_not_sent(tmp_path, caplog):
    def objective(params):
        raise ValueError(f"{ESCAPE}\nbad \ud800")

    with caplog.at_level(logging.WARNING), pytest.raises(kbo.TooManyFailures) as error:
        kbo.minimize(objective, {f"a{ESCAPE}": (0.0, 1.0)}, 2, max_failures=2)
    optimizer = finished([0.3], f"a{ESCAPE}")
    optimizer.fail(optimizer.ask(), f"{ESCAPE}bad")
    page = kbo.report.write(optimizer, tmp_path / "run.html", title=f"{ESCAPE}\udfff").read_text()
    result = str(kbo.minimize(lambda params: 0.0, {f"a{ESCAPE}": (0.0, 1.0)}, 1))
    for shown in (caplog.text, str(error.value), page, result):
        assert "\x1b" not in shown
        assert "\\x1b[31m" in shown


@pytest.mark.faults
@pytest.mark.parametrize("maximize", [False, True])
def test_the_largest_numbers_can_be_drawn(tmp_path, maximize):
    values = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.3]
    for far in ([1.7e308], [1.7e308, -1.7e308], [1.7e308] * 9):
        optimizer = finished([*values, *far, 0.1], maximize=maximize)
        assert kbo.report.write(optimizer, tmp_path / "run.html").exists()


def test_a_run_or_a_page_that_is_none_is_refused_by_name(tmp_path):
    (folder := tmp_path / "there.html").mkdir()
    for run in (None, 3, "a\0", folder):
        with pytest.raises((InvalidInput, JournalError), match=r"run|there"):
            kbo.report.write(run, tmp_path / "a.html")
    for page in (3, "run.txt", folder, "a\0.html"):
        with pytest.raises(InvalidInput, match="page"):
            kbo.report.write(finished([0.3]), page)
