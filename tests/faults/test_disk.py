"""A full disk (a small tmpfs) and folders without permission: an error in words, and nothing that was there is lost."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import kbo
from kbo.errors import InvalidInput, JournalError
from kbo.experiments.sweep.cells import Cell, read_rows
from kbo.experiments.sweep.runner import sweep
from kbo.optimize import journal

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts file systems and becomes another user"),
]

SPACE = {"a": (0.0, 1.0)}


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    """A file system of 64 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], capture_output=True).returncode:
        pytest.skip("file systems cannot be mounted here")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


@contextmanager
def full(disk: Path, left: int = 0) -> Iterator[None]:
    """Leave so many bytes free for a while, rounded to pages of 4096."""
    with open(disk / "filler", "wb", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(b"x" * 4096)
    size = (disk / "filler").stat().st_size
    os.truncate(disk / "filler", size - left)
    try:
        yield
    finally:
        (disk / "filler").unlink()


@contextmanager
def nobody() -> Iterator[None]:
    """Be a user without rights for a while."""
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def finished(n: int = 4) -> kbo.Optimizer:
    optimizer = kbo.Optimizer(SPACE)
    for i in range(n):
        optimizer.tell(optimizer.ask(), i / 7)
    return optimizer


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_full_disk_ends_a_run_and_the_same_call_continues_it(disk):
    values: list[float] = []

    def objective(params: dict) -> float:
        values.append(params["a"])
        return params["a"]

    path = disk / "run.jsonl"
    kbo.minimize(objective, SPACE, 2, journal=path)
    with full(disk, left=4096), pytest.raises(JournalError, match="No space left"):
        kbo.minimize(objective, SPACE, 300, journal=path)
    told = len(values)
    kept = [event.value for event in journal.read(path)[1] if hasattr(event, "value")]
    assert kept == values[: len(kept)]
    assert told - len(kept) <= 1  # the trial whose value found no room
    kbo.minimize(objective, SPACE, len(kept) + 3, journal=path)
    assert [e.value for e in journal.read(path)[1] if hasattr(e, "value")][: len(kept)] == kept


def test_a_full_disk_keeps_the_file_that_was_to_be_replaced(disk):
    optimizer, path, page = finished(), disk / "run.jsonl", disk / "run.html"
    optimizer.save(path)
    page.write_text("an earlier page")
    before = path.read_bytes()
    longer = finished(40)
    with full(disk):
        with pytest.raises(JournalError, match="No space left"):
            longer.save(disk / "other.jsonl")
        with pytest.raises(InvalidInput, match="No space left"):
            kbo.report.write(optimizer, page)
    assert path.read_bytes() == before
    assert page.read_text() == "an earlier page"
    assert names(disk) == ["run.html", "run.jsonl"]


def test_cells_without_room_fail_and_are_done_later(disk):
    cells = [Cell("tests.chores:square", {"x": x}, f"x {x}") for x in range(3)]
    sweep(cells[:1], disk, workers=1, progress=False)
    with full(disk):
        found = sweep(cells, disk, workers=1, progress=False)
    assert [failure.cell for failure in found.failures] == cells[1:]
    assert "No space left" in str(found.failures[0])
    assert not list(disk.glob(".*.tmp"))
    assert sweep(cells, disk, workers=1, progress=False).failures == []


def test_a_folder_without_permission_is_named(tmp_path):
    cells, folder = [Cell("tests.chores:square", {"x": x}, f"x {x}") for x in range(2)], tmp_path / "there"
    sweep(cells[:1], folder, workers=1, progress=False)
    finished().save(folder / "run.jsonl")
    kbo.report.write(folder / "run.jsonl", tmp_path / "warm.html")  # whatever is imported later is imported now
    for parent in (tmp_path, *tmp_path.parents):
        if parent.name.startswith(("test_", "pytest-", "popen-")):
            parent.chmod(0o755)
    folder.chmod(0o555)
    before = names(folder)
    with nobody():
        assert len(read_rows(folder)) == 2
        assert kbo.report.Record.of(folder / "run.jsonl").trials
        for attempt in (
            lambda: kbo.minimize(lambda params: 0.0, SPACE, 2, journal=folder / "new.jsonl"),
            lambda: kbo.minimize(lambda params: 0.0, SPACE, 2, journal=folder / "run.jsonl"),
            lambda: finished().save(folder / "new.jsonl"),
            lambda: kbo.report.write(folder / "run.jsonl"),
            lambda: sweep(cells, folder, workers=1, progress=False),
        ):
            with pytest.raises((InvalidInput, JournalError), match=r"(?s)there.*Permission denied"):
                attempt()
    assert names(folder) == before
    for path in folder.iterdir():
        path.chmod(0)
    with nobody():
        for read in (lambda: kbo.report.Record.of(folder / "run.jsonl"), lambda: read_rows(folder)):
            with pytest.raises((InvalidInput, JournalError), match=r"(?s)cannot read.*Permission denied"):
                read()
