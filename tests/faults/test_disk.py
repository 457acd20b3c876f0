"""A full disk (a small tmpfs) and folders without permission: an error in words, and nothing that was there is lost."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import kbo
from experiments.sweep.cells import Cell
from experiments.sweep.runner import sweep
from kbo.errors import InvalidInput, JournalError

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
def full(disk: Path) -> Iterator[None]:
    """Leave no byte free for a while."""
    with open(disk / "filler", "wb", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(b"x" * 4096)
    try:
        yield
    finally:
        (disk / "filler").unlink()


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


def test_a_full_disk_keeps_the_file_that_was_to_be_replaced_and_cells_are_done_later(disk):
    page = disk / "run.html"
    page.write_text("an earlier page")
    swept(1, disk)
    there = names(disk)
    with full(disk):
        with pytest.raises(JournalError, match="No space left"):
            finished(40).save(disk / "other.jsonl")
        with pytest.raises(InvalidInput, match="No space left"):
            kbo.report.write(finished(), page)
        failures = swept(3, disk)
    assert [failure.cell for failure in failures] == cells(3)[1:]
    assert "No space left" in str(failures[0])
    assert (page.read_text(), names(disk)) == ("an earlier page", there)
    assert swept(3, disk) == []


def test_a_folder_without_permission_is_named(tmp_path):
    folder = tmp_path / "there"
    folder.mkdir()
    run = folder / "run.jsonl"
    finished().save(run)
    kbo.report.write(run, tmp_path / "warm.html")  # whatever is imported later is imported now
    for parent in (tmp_path, *tmp_path.parents):
        if parent.name.startswith(("test_", "pytest-", "popen-")):
            parent.chmod(0o755)
    folder.chmod(0o555)
    os.seteuid(65534)  # a user without rights
    try:
        assert kbo.report.Record.of(run).trials
        for attempt in (
            lambda: kbo.minimize(lambda params: 0.0, SPACE, 2, journal=folder / "new.jsonl"),
            lambda: kbo.minimize(lambda params: 0.0, SPACE, 2, journal=run),
            lambda: finished().save(folder / "new.jsonl"),
            lambda: kbo.report.write(run),
            lambda: swept(2, folder),
        ):
            with pytest.raises((InvalidInput, JournalError), match=r"there.*Permission denied"):
                attempt()
    finally:
        os.seteuid(0)
    assert names(folder) == ["run.jsonl"]
