"""Fair races: the same work in one process, in turns, with the same answers; medians, and ratios that carry over."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

REPEATS = 5
"""Timed runs of each side."""

MeanVariance = tuple[Tensor, Tensor]
Work = Callable[[], MeanVariance]


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        name: What is compared with what.
        n: Observations.
        kbo: The figure of kbo.
        other: The figure that it is compared with; 0 for none.
        goal: The promise, in words; empty for a figure without one.
        passed: Whether the promise is kept.
        unit: Of ``kbo`` and ``other``.
    """

    name: str
    n: int
    kbo: float
    other: float
    goal: str
    passed: bool
    unit: str = "s"

    @property
    def ratio(self) -> float:
        """How many times smaller the figure of kbo is."""
        return self.other / self.kbo if self.kbo else float("nan")


def table(rows: list[Row]) -> str:
    """The rows as plain text."""
    cells: list[tuple[str, ...]] = [("kbo / BoTorch SingleTaskGP", "n", "kbo", "other", "ratio", "goal", "")]
    for row in rows:
        verdict = ("passed" if row.passed else "MISSED") if row.goal else ""
        figures = (f"{figure:.4g} {row.unit}" if figure else "" for figure in (row.kbo, row.other))
        cells.append((row.name, str(row.n or ""), *figures, f"{row.ratio:.3g}" if row.other else "", row.goal, verdict))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    aligned = (
        [cell.ljust(w) if i in (0, 6) else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))]
        for line in cells
    )
    return "\n".join("  ".join(line).rstrip() for line in aligned)


def race(name: str, n: int, ours: Work, theirs: Work, goal: float, device: torch.device) -> Row:
    """Ours against theirs, after a check that they agree."""
    agree(ours, theirs)
    return faster(name, n, *medians(device, ours, theirs), goal)


def agree(*works: Work) -> None:
    """Do all works once: a race between different answers says nothing."""
    first, *others = (work() for work in works)
    for other in others:
        for mine, theirs in zip(first, other, strict=True):
            torch.testing.assert_close(mine.flatten(), theirs.flatten(), rtol=1e-5, atol=1e-5)


def medians(device: torch.device, *works: Work | list[Work]) -> list[float]:
    """Median seconds of each work, done in turns; of a list of works, the mean of one."""
    turns = [work if isinstance(work, list) else [work] for work in works]
    times = [[seconds(turn, device) / len(turn) for turn in turns] for _ in range(REPEATS)]
    return [statistics.median(column) for column in zip(*times, strict=True)]


def faster(name: str, n: int, ours: float, theirs: float, goal: float | None) -> Row:
    """A row from two times, with the promise to be so many times faster."""
    wanted = "" if goal is None else f"at least {goal:g} times faster" if goal > 1 else "no slower"
    return Row(name, n, ours, theirs, wanted, goal is None or theirs >= goal * ours)


def seconds(works: list[Work], device: torch.device) -> float:
    """Seconds of all works in a row: CPU time, or synchronised wall-clock time on a GPU."""
    cuda = device.type == "cuda"
    clock = time.perf_counter if cuda else time.process_time
    if cuda:
        torch.cuda.synchronize(device)
    start = clock()
    for work in works:
        work()
    if cuda:
        torch.cuda.synchronize(device)
    return clock() - start


def in_fresh_process(code: str) -> str:
    """What ``code`` prints in a fresh interpreter."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


@contextmanager
def threads(count: int) -> Iterator[None]:
    """PyTorch on so many threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def one_thread() -> AbstractContextManager[None]:
    """PyTorch on one thread inside the block."""
    return threads(1)


def wall_and_memory(work: Callable[[], Any]) -> tuple[float, float]:
    """Wall-clock seconds of some work, the median of three times, and the memory in MB that it takes."""
    before, times = peak_megabytes(), []
    for _ in range(3):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times), peak_megabytes() - before


def least(name: str, n: int, found: float, goal: float, unit: str = "s") -> Row:
    """A row of a figure that should be small."""
    return Row(name, n, found, 0.0, f"at most {goal:g} {unit}", found <= goal, unit)


def peak_megabytes() -> float:
    """Peak memory of this process; the rusage of a young process may still be that of its parent."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024 / 1e6
    except (OSError, StopIteration):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / 1e6 * (1 if sys.platform == "darwin" else 1024)
