"""Fair comparisons of time: the same work in one process, in turns, with equal results; medians and ratios.

A module of benchmarks is a list of ``Bench`` entries, each with a function that measures some lines at given sizes.
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
"""Number of timed runs of each side."""

Work = Callable[[], Any]


@dataclass(frozen=True)
class Goal:
    """The goal that the figure of kbo is at most ``times`` the other figure, plus ``more`` in its unit."""

    times: float = 0.0
    more: float = 0.0
    unit: str = "s"

    @property
    def text(self) -> str:
        """The goal as text."""
        if self.more and self.times:
            return f"at most {self.more:g} {self.unit} more"
        if self.more:
            return f"at most {self.more:g} {self.unit}"
        if self.times > 1:
            return f"at most {self.times:g} times"
        if self.times < 1:
            return f"at least {1 / self.times:g} times faster"
        return "no slower"

    def kept(self, kbo: float, other: float) -> bool:
        """Return whether the figures reach the goal."""
        return kbo <= self.times * other + self.more


@dataclass(frozen=True)
class Result:
    """A measured line of the table.

    Attributes:
        name: The name of the measured work.
        kbo: The figure of kbo.
        other: The figure for comparison; None without one.
        goal: The goal; None without one.
        n: The number of observations to show; None for none.
        unit: The unit of both figures.
    """

    name: str
    kbo: float
    other: float | None = None
    goal: Goal | None = None
    n: int | None = None
    unit: str = "s"

    @property
    def ratio(self) -> float | None:
        """The other figure divided by the figure of kbo; None without another figure."""
        if self.other and self.kbo:
            return self.other / self.kbo
        return None

    @property
    def passed(self) -> bool | None:
        """Whether the goal is reached; None without a goal."""
        if self.goal is None:
            return None
        return self.goal.kept(self.kbo, self.other or 0.0)


@dataclass(frozen=True)
class Bench:
    """Lines that are measured together.

    Attributes:
        measure: A function of the device and the sizes that returns the lines.
        sizes: The sizes of the work.
        quick: The sizes that differ in a quick run; None if a quick run leaves these lines out.
        fresh: Whether a fresh interpreter with one thread is used, so that memory and imports of others do not count.
    """

    measure: Callable[..., list[Result]]
    sizes: Mapping[str, Any] = field(default_factory=dict)
    quick: Mapping[str, Any] | None = field(default_factory=dict)
    fresh: bool = False

    def run(self, device: torch.device, quick: bool = False) -> list[Result]:
        """Return the measured lines. Goals are for the full sizes, so a quick run does not judge them."""
        if not quick:
            return self._measured(device, self.sizes)
        if self.quick is None:
            return []
        results = self._measured(device, {**self.sizes, **self.quick})
        return [replace(result, goal=None) for result in results]

    def _measured(self, device: torch.device, sizes: Mapping[str, Any]) -> list[Result]:
        """Return the lines at these sizes."""
        if not self.fresh:
            return self.measure(device, **sizes)
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, spawn, torch.set_num_threads, (1,)) as pool:
            return pool.submit(self.measure, device, **sizes).result()


def table(results: Sequence[Result]) -> str:
    """Return the measured lines as plain text."""
    import pandas as pd

    frame = pd.DataFrame(map(_cells, results), index=[result.name for result in results])
    shown = frame.rename_axis(columns="kbo / BoTorch SingleTaskGP").to_string()
    return "\n".join(line.rstrip() for line in shown.splitlines())


def _cells(result: Result) -> dict[str, str]:
    """Return the cells of a line of the table; a missing figure is an empty cell."""
    verdicts = {True: "passed", False: "MISSED", None: ""}
    cells = {
        "n": "",
        "kbo": f"{result.kbo:.4g} {result.unit}",
        "other": "",
        "ratio": "",
        "goal": "",
    }
    if result.n:
        cells["n"] = str(result.n)
    if result.other is not None:
        cells["other"] = f"{result.other:.4g} {result.unit}"
    if result.ratio:
        cells["ratio"] = f"{result.ratio:.3g}"
    if result.goal:
        cells["goal"] = result.goal.text
    cells[""] = verdicts[result.passed]
    return cells


def machine(device: torch.device) -> str:
    """Return the time of a small operation and the rate of a large product on this machine, as a sentence."""
    one = torch.ones(1, dtype=torch.float64, device=device)
    A = torch.ones(1024, 1024, dtype=torch.float64, device=device)
    times = medians(device, small=[lambda: one.add_(1)] * 10_000, large=lambda: A @ A)
    microseconds = 1e6 * times["small"]
    rate = 2 * 1024**3 / times["large"] / 1e9
    return f"Here a small operation takes {microseconds:.2g} µs, and a large product does {rate:.2g} Gflop/s."


def agree(*works: Work) -> None:
    """Do each work once, and check that all return equal tensors: times of different results cannot be compared."""
    answers = []
    for work in works:
        answer = work()
        if isinstance(answer, tuple):
            answer = torch.cat([part.flatten() for part in answer])
        answers.append(answer.flatten())
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
    """Time the works in turns, and return lines that compare two of them.

    Args:
        device: The device of the works.
        n: The number of observations to show; None for none.
        works: The works by name.
        lines: For each line its name, the work of kbo, the other work, and the goal.
    """
    times = medians(device, **works)
    return [Result(name, times[kbo], times[other], goal, n) for name, kbo, other, goal in lines]


def medians(device: torch.device, **works: Work | list[Work]) -> dict[str, float]:
    """Return the median seconds of each work, done in turns; for a list of works in a row, the mean over the list."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(REPEATS):
        for name, work in works.items():
            turn = work
            if not isinstance(turn, list):
                turn = [turn]
            times[name].append(seconds(turn, device) / len(turn))
    return {name: statistics.median(taken) for name, taken in times.items()}


def seconds(works: list[Work], device: torch.device) -> float:
    """Return the seconds of all works in a row: CPU time, or synchronised wall-clock time on an accelerator."""
    clock = time.perf_counter
    if device.type == "cpu":
        clock = time.process_time
    synchronize(device)
    start = clock()
    for work in works:
        work()
    synchronize(device)
    return clock() - start


def wall_and_memory(work: Work, times: int = 3) -> tuple[float, float]:
    """Return the median wall-clock seconds of some work, and the memory in MB that it takes."""
    before = megabytes(peak=True)
    walls = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        walls.append(time.perf_counter() - start)
    return statistics.median(walls), megabytes(peak=True) - before


def synchronize(device: torch.device) -> None:
    """Wait until a device has done all its work."""
    getattr(torch, device.type).synchronize(device)


def device_megabytes(device: torch.device, peak: bool) -> float:
    """Return the memory of tensors on a device in MB, at its peak or at present; 0 on the CPU, which does not count."""
    name = "memory_allocated"
    if peak:
        name = "max_memory_allocated"
    count = getattr(getattr(torch, device.type), name, None)
    if count is None:
        return 0.0
    return count(device) / 1e6


def megabytes(peak: bool) -> float:
    """Return the memory of this process, at its peak or at present (on Linux; elsewhere always at its peak)."""
    name = "VmRSS:"
    if peak:
        name = "VmHWM:"
    status = Path(
        "/proc/self/status"
    )  # the rusage of a young process may still be that of its parent
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024 / 1e6
    peak_size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if sys.platform == "darwin":  # in bytes there, elsewhere in KiB
        return peak_size / 1e6
    return peak_size * 1024 / 1e6
