"""Flipped bits of the files that kbo reads, each noticed or without effect: ``python -m tests.faults.flips 5000``."""

from __future__ import annotations

import logging
import random
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from experiments.sweep.cells import Cell, Folder, read_rows
from kbo import minimize
from kbo.errors import KboError
from kbo.optimize.run.journal_file import read_whole


def journal_file(folder: Path) -> tuple[Path, Callable[[Path], str]]:
    """Return a journal, and how it is read."""

    def objective(params: dict) -> float:
        if params["b"] == "bad":
            raise ValueError("no value")
        return params["a"]

    minimize(objective, {"a": (0.0, 1.0), "b": ["good", "bad"]}, 12, journal=folder / "run.jsonl")
    return folder / "run.jsonl", lambda path: repr(read_whole(path).events)


def cell_file(folder: Path) -> tuple[Path, Callable[[Path], str]]:
    """Return a result cell, and how it is read; one that is done again instead is fine."""
    cell, store = Cell("tests.chores:square", {"x": 3}, "chore"), Folder(folder)
    store.write(cell, [{"round": i, "value": i / 7, "name": f"arm {i}"} for i in range(40)])

    def read(path: Path) -> str:
        store.contains(cell)
        return repr(read_rows(path)[["round", "value", "name"]].to_dict("list"))

    return store.file(cell), read


def outcome(path: Path, content: bytes, read: Callable[[Path], str], expected: str) -> str:
    """Return the effect of the content of a file that has one flipped bit."""
    path.write_bytes(content)
    try:
        found = read(path)
    except KboError:
        return "noticed"
    except Exception as error:
        return f"RAW {type(error).__name__}: {error!s:.80}"
    return "harmless" if found == expected else "SILENT"


def run(n: int, seed: int, folder: Path) -> dict[str, Counter]:
    """Return the outcomes of n flipped bits, shared out among the files."""
    rng = random.Random(seed)
    counts: dict[str, Counter] = {}
    log = logging.getLogger("kbo")
    level = log.level
    log.setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for make in (journal_file, cell_file):
            path, read = make(folder)
            content = path.read_bytes()
            expected = read(path)
            found = counts[make.__name__] = Counter()
            for _ in range(n // 2 + 1):
                # Without its end, a last line counts as unfinished, with a warning: see tests/test_journal.py.
                place = rng.randrange(len(content) - 1)
                flipped = bytearray(content)
                flipped[place] ^= 1 << rng.randrange(8)
                found[outcome(path, bytes(flipped), read, expected)] += 1
    log.setLevel(level)
    return counts


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for name, counts in run(int(sys.argv[1]), 0, Path(place)).items():
            print(f"{name:18}", dict(counts))
