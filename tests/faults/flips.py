"""Flipped bits of the files that kbo reads, each noticed or without effect: ``python -m tests.faults.flips 5000``."""

from __future__ import annotations

import contextlib
import logging
import random
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kbo import minimize
from kbo.errors import KboError
from kbo.experiments.sweep.cells import Cell, Folder, read_rows
from kbo.optimize import journal


@dataclass(frozen=True)
class File:
    """The bytes of a file, how they are read, and what must come out: something that compares by value."""

    content: bytes
    read: Callable[[bytes], Any]
    end: int = 0  # bytes at the end that stay as they are


def file_of(path: Path, read: Callable[[Path], Any]) -> File:
    content = path.read_bytes()

    def again(changed: bytes) -> Any:
        path.write_bytes(changed)
        try:
            return read(path)
        finally:
            path.write_bytes(content)

    return File(content, again)


def journal_file(folder: Path) -> File:
    def objective(params: dict) -> float:
        if params["b"] == "bad":
            raise ValueError("no value")
        return params["a"]

    minimize(objective, {"a": (0.0, 1.0), "b": ["good", "bad"]}, 12, journal=folder / "run.jsonl")
    # A last line without its end counts as unfinished, with a warning: see tests/test_journal.py.
    return replace(file_of(folder / "run.jsonl", lambda path: repr(journal.read(path))), end=1)


def cell_file(folder: Path) -> File:
    cell, store = Cell("tests.chores:square", {"x": 3}, "chore"), Folder(folder)
    store.write(cell, [{"round": i, "value": i / 7, "name": f"arm {i}"} for i in range(40)])

    def read(path: Path) -> str:
        rows = read_rows(path)
        return repr((rows[["round", "value", "name"]].to_dict("list"), store.contains(cell) or "done again"))

    return file_of(store.file(cell), lambda path: read(path).replace("'done again'", "True"))


def files(folder: Path) -> dict[str, File]:
    return {"journal": journal_file(folder), "cell": cell_file(folder)}


def outcome(file: File, expected: Any, at: int, bit: int) -> str:
    """Return what came of one flipped bit."""
    changed = bytearray(file.content)
    changed[at] ^= 1 << bit
    try:
        found = file.read(bytes(changed))
    except KboError:
        return "noticed"
    except Exception as error:
        return f"RAW {type(error).__name__}: {error!s:.80}"
    return "harmless" if found == expected else f"SILENT at byte {at}, bit {bit}"


def run(n: int, seed: int, folder: Path) -> dict[str, Counter]:
    """Return the outcomes of n flipped bits, shared out among the files."""
    rng, counts, log = random.Random(seed), {}, logging.getLogger("kbo")
    with warnings.catch_warnings(), contextlib.ExitStack() as after:
        after.callback(log.setLevel, log.level)
        log.setLevel(logging.ERROR)
        warnings.simplefilter("ignore")
        cases = files(folder)
        for name, file in cases.items():
            expected, counts[name] = file.read(file.content), Counter()
            for _ in range(n // len(cases) + 1):
                counts[name][
                    outcome(file, expected, rng.randrange(len(file.content) - file.end), rng.randrange(8))
                ] += 1
    return counts


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for name, counts in run(int(sys.argv[1]), 0, Path(place)).items():
            print(f"{name:18}", dict(counts))
