"""A full disk (a small tmpfs) and folders without permission: an error in words, and nothing that was there is lost."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import kbo
from experiments.sweep.cells import Cell, read_rows
from experiments.sweep.runner import sweep
from kbo.errors import InvalidInput, JournalError
from kbo.optimize.run import journal

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(
        os.geteuid() != 0, reason="only root mounts file systems and becomes another user"
    ),
]

SPACE = {"a": (0.0, 1.0)}


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    """A file system of 64 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], capture_output=True
    ).returncode:
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
    optimizer = kbo.Optimizer(SPACE, method="random")
    for i in range(n):
        optimizer.tell(optimizer.ask(), i / 7)
    return optimizer


def cells(n: int) -> list[Cell]:
    return [Cell("tests.chores:square", {"x": x}, f"x {x}") for x in range(n)]


def swept(n: int, folder: Path) -> list:
    return sweep(cells(n), folder, workers=1, progress=False).failures


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith("error.txt"))


def test_a_full_disk_ends_a_run_and_the_same_call_continues_it(disk):
    values: list[float] = []

    def tuned(n: int) -> None:
        kbo.minimize(
            lambda x: values.append(x["a"]) or x["a"],
            SPACE,
            n,
            journal=disk / "run.jsonl",
            method="random",
        )

    def kept() -> list[float]:
        return [
            event.value for event in journal.read(disk / "run.jsonl")[1] if hasattr(event, "value")
        ]

    tuned(2)
    with full(disk, left=4096), pytest.raises(JournalError, match="No space left"):
        tuned(300)
    before = kept()
    assert before == values[: len(before)]
    assert len(values) - len(before) <= 1  # the trial whose value found no room
    tuned(len(before) + 3)
    assert kept()[: len(before)] == before


def test_a_full_disk_keeps_the_file_that_was_to_be_replaced_and_cells_are_done_later(disk):
    optimizer, longer, path, page = finished(), finished(40), disk / "run.jsonl", disk / "run.html"
    optimizer.save(path)
    page.write_text("an earlier page")
    swept(1, disk)
    before, there = path.read_bytes(), names(disk)
    with full(disk):
        with pytest.raises(JournalError, match="No space left"):
            longer.save(disk / "other.jsonl")
        with pytest.raises(InvalidInput, match="No space left"):
            kbo.report.write(optimizer, page)
        failures = swept(3, disk)
    assert [failure.cell for failure in failures] == cells(3)[1:]
    assert "No space left" in str(failures[0])
    assert (path.read_bytes(), page.read_text(), names(disk)) == (before, "an earlier page", there)
    assert swept(3, disk) == []


def test_a_folder_without_permission_is_named(tmp_path):
    folder = tmp_path / "there"
    swept(1, folder)
    finished().save(folder / "run.jsonl")
    kbo.report.write(
        folder / "run.jsonl", tmp_path / "warm.html"
    )  # whatever is imported later is imported now
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
            lambda: swept(2, folder),
        ):
            with pytest.raises((InvalidInput, JournalError), match=r"(?s)there.*Permission denied"):
                attempt()
    assert names(folder) == before
    for path in folder.iterdir():
        path.chmod(0)
    with nobody():
        for read in (lambda: kbo.report.Record.of(folder / "run.jsonl"), lambda: read_rows(folder)):
            with pytest.raises(
                (InvalidInput, JournalError), match=r"(?s)cannot read.*Permission denied"
            ):
                read()
