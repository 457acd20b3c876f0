"""Fair comparisons: the same work in one process, in turns, with the same answers; medians, and ratios that carry over.

A module of benchmarks is a table of ``Bench`` entries, each with a function that measures some lines at given sizes.
"""

from __future__ import annotations

import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

REPEATS = 5
"""Timed runs of each side."""

Work = Callable[[], Any]


@dataclass(frozen=True)
class Goal:
    """The promise that the figure of kbo is at most ``times`` the other one, plus ``more`` of the unit."""

    times: float = 0.0
    more: float = 0.0
    unit: str = "s"

    @property
    def text(self) -> str:
        """The promise in words."""
        if self.more:
            return f"at most {self.more:g} {self.unit}{' more' * bool(self.times)}"
        if self.times > 1:
            return f"at most {self.times:g} times"
        return f"at least {1 / self.times:g} times faster" if self.times < 1 else "no slower"

    def kept(self, kbo: float, other: float) -> bool:
        """Return whether the figures are as promised."""
        return kbo <= self.times * other + self.more


@dataclass(frozen=True)
class Result:
    """A measured line of the table.

    Attributes:
        name: What was measured.
        kbo: The figure of kbo.
        other: The figure that it is compared with, if any.
        goal: The promise, if any.
        n: The number of observations that is shown, if any.
        unit: Unit of both figures.
    """

    name: str
    kbo: float
    other: float | None = None
    goal: Goal | None = None
    n: int | None = None
    unit: str = "s"

    @property
    def ratio(self) -> float | None:
        """Ratio of the other figure to that of kbo."""
        return self.other / self.kbo if self.other and self.kbo else None

    @property
    def passed(self) -> bool | None:
        """Whether the promise is kept, if there is one."""
        return None if self.goal is None else self.goal.kept(self.kbo, self.other or 0.0)


@dataclass(frozen=True)
class Bench:
    """Lines that are measured together.

    Attributes:
        measure: Called with the device and the sizes.
        sizes: The sizes of the work.
        quick: Those that differ if only a quick look is wanted; None to leave it out then.
        fresh: Measure in a fresh interpreter with one thread, so that memory and imports of others do not count.
    """

    measure: Callable[..., list[Result]]
    sizes: Mapping[str, Any] = field(default_factory=dict)
    quick: Mapping[str, Any] | None = field(default_factory=dict)
    fresh: bool = False

    def run(self, device: torch.device, quick: bool = False) -> list[Result]:
        """Measure; goals are those of the full sizes, and not judged at quick ones."""
        if quick and self.quick is None:
            return []
        sizes = {**self.sizes, **(self.quick or {})} if quick else self.sizes
        if self.fresh:
            with ProcessPoolExecutor(
                1, multiprocessing.get_context("spawn"), torch.set_num_threads, (1,)
            ) as pool:
                results = pool.submit(self.measure, device, **sizes).result()
        else:
            results = self.measure(device, **sizes)
        return [replace(result, goal=None) for result in results] if quick else results


def table(results: Sequence[Result]) -> str:
    """Return the measured lines as plain text."""
    import pandas as pd

    verdicts = {True: "passed", False: "MISSED", None: ""}
    lines = [
        {
            "n": result.n or "",
            "kbo": f"{result.kbo:.4g} {result.unit}",
            "other": "" if result.other is None else f"{result.other:.4g} {result.unit}",
            "ratio": f"{result.ratio:.3g}" if result.ratio else "",
            "goal": result.goal.text if result.goal else "",
            "": verdicts[result.passed],
        }
        for result in results
    ]
    frame = pd.DataFrame(lines, index=[result.name for result in results])
    shown = frame.rename_axis(columns="kbo / BoTorch SingleTaskGP").to_string()
    return "\n".join(line.rstrip() for line in shown.splitlines())


def machine(device: torch.device) -> str:
    """Return what a small operation and a large product take on this machine, without which times say little."""
    one, A = (
        torch.ones(1, dtype=torch.float64, device=device),
        torch.ones(1024, 1024, dtype=torch.float64).to(device),
    )
    found = medians(device, small=[lambda: one.add_(1)] * 10_000, large=lambda: A @ A)
    rate = 2 * 1024**3 / found["large"] / 1e9
    return f"Here a small operation takes {1e6 * found['small']:.2g} µs, and a large product does {rate:.2g} Gflop/s."


def agree(*works: Work) -> None:
    """Do all works once, each of which returns a tensor or some: a race between different answers says nothing."""
    found = [work() for work in works]
    answers = [
        torch.cat([part.flatten() for part in (x if isinstance(x, tuple) else (x,))]) for x in found
    ]
    for answer in answers[1:]:
        torch.testing.assert_close(
            answer, answers[0], rtol=1e-5, atol=1e-5, check_dtype=False, check_device=False
        )


def race(
    device: torch.device,
    n: int | None,
    works: Mapping[str, Work | list[Work]],
    lines: Sequence[tuple[str, str, str, Goal | None]],
) -> list[Result]:
    """Time the works in turns, and compare two of them in every line: its name, that of kbo, the other, the goal."""
    found = medians(device, **works)
    return [Result(name, found[kbo], found[other], goal, n) for name, kbo, other, goal in lines]


def medians(device: torch.device, **works: Work | list[Work]) -> dict[str, float]:
    """Return the median seconds of each work, done in turns; of a list of works in a row, the mean of one."""
    turns = {name: work if isinstance(work, list) else [work] for name, work in works.items()}
    times = [
        {name: seconds(turn, device) / len(turn) for name, turn in turns.items()}
        for _ in range(REPEATS)
    ]
    return {name: statistics.median(time[name] for time in times) for name in turns}


def seconds(works: list[Work], device: torch.device) -> float:
    """Return the seconds of all works in a row: CPU time, or synchronised wall-clock time on an accelerator."""
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    synchronize(device)
    start = clock()
    for work in works:
        work()
    synchronize(device)
    return clock() - start


def wall_and_memory(work: Work, times: int = 3) -> tuple[float, float]:
    """Return the median wall-clock seconds of some work, and the memory in MB that it takes."""
    before, walls = megabytes(peak=True), []
    for _ in range(times):
        start = time.perf_counter()
        work()
        walls.append(time.perf_counter() - start)
    return statistics.median(walls), megabytes(peak=True) - before


def synchronize(device: torch.device) -> None:
    """Wait until a device has done all its work."""
    getattr(torch, device.type).synchronize(device)


def device_megabytes(device: torch.device, peak: bool) -> float:
    """Return the memory of tensors on a device, at its peak or at present; 0 where it counts none, as the CPU."""
    module = getattr(torch, device.type)
    count = getattr(module, "max_memory_allocated" if peak else "memory_allocated", None)
    return count(device) / 1e6 if count else 0.0


def megabytes(peak: bool) -> float:
    """Return the memory of this process, at its peak or at present (on Linux; elsewhere always at its peak)."""
    field = "VmHWM:" if peak else "VmRSS:"
    try:  # the rusage of a young process may still be that of its parent
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024 / 1e6
    except (OSError, StopIteration):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most / 1e6 * (1 if sys.platform == "darwin" else 1024)
