"""Fair comparisons: the same work in one process, in turns, with the same answers; medians, and ratios that carry over.

A module of benchmarks is a table of ``Bench`` entries. Each has a function that measures named figures at given sizes,
and the rows that show and judge them.
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
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from botorch.posteriors.gpytorch import GPyTorchPosterior
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from torch import Tensor

REPEATS = 5
"""Timed runs of each side."""

Work = Callable[[], Any]
Figures = dict[str, Any]
"""What was measured, by name; words too, for the names of rows."""


@dataclass(frozen=True)
class Goal:
    """A promise about the figure of kbo and the one that it is compared with, in words and as a test."""

    text: str
    kept: Callable[[float, float], bool]


def faster(times: float) -> Goal:
    """Return the promise to be so many times faster."""
    text = f"at least {times:g} times faster" if times > 1 else "no slower"
    return Goal(text, lambda kbo, other: other >= times * kbo)


def at_most(most: float, unit: str = "s") -> Goal:
    """Return the promise of a small figure."""
    return Goal(f"at most {most:g} {unit}", lambda kbo, _: kbo <= most)


def at_most_times(times: float) -> Goal:
    """Return the promise of at most so many times the other figure."""
    return Goal(f"at most {times:g} times", lambda kbo, other: kbo <= times * other)


def at_most_more(most: float, unit: str = "s") -> Goal:
    """Return the promise to exceed the other figure by at most so much."""
    return Goal(f"at most {most:g} {unit} more", lambda kbo, other: kbo - other <= most)


@dataclass(frozen=True)
class Row:
    """A line of the table to be measured.

    Attributes:
        name: A template, filled in with the sizes and figures.
        kbo: The name of the figure of kbo.
        other: The name of the figure that it is compared with, if any.
        goal: The promise, if any.
        unit: Unit of both figures.
        n: The name of the size or figure that is shown as the number of observations; empty for none.
    """

    name: str
    kbo: str
    other: str = ""
    goal: Goal | None = None
    unit: str = "s"
    n: str = "n"


@dataclass(frozen=True)
class Result:
    """A measured line of the table; None and "" where there is nothing to compare or to judge."""

    name: str
    n: int | None
    kbo: float
    other: float | None
    unit: str
    goal: str = ""
    passed: bool | None = None

    @property
    def ratio(self) -> float | None:
        """How many times smaller the figure of kbo is."""
        return self.other / self.kbo if self.other and self.kbo else None


@dataclass(frozen=True)
class Bench:
    """Figures that are measured together.

    Attributes:
        measure: Called with the device and the sizes.
        rows: What is shown.
        sizes: The sizes of the work.
        quick: Those that differ if only a quick look is wanted; None to leave it out then.
        fresh: Measure in a fresh interpreter, so that memory and imports of others do not count.
        devices: Types of devices that it is for.
    """

    measure: Callable[..., Figures]
    rows: Sequence[Row]
    sizes: Mapping[str, Any] = field(default_factory=dict)
    quick: Mapping[str, Any] | None = field(default_factory=dict)
    fresh: bool = False
    devices: Sequence[str] = ("cpu", "cuda")

    def run(self, device: torch.device, quick: bool = False) -> list[Result]:
        """Measure; goals are those of the full sizes, and not judged at quick ones."""
        if device.type not in self.devices or (quick and self.quick is None):
            return []
        sizes = {**self.sizes, **(self.quick or {})} if quick else dict(self.sizes)
        if self.fresh:
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                figures = pool.submit(self.measure, device, **sizes).result()
        else:
            figures = self.measure(device, **sizes)
        return [_result(row, {**sizes, **figures}, None if quick else row.goal) for row in self.rows]


def _result(row: Row, values: Figures, goal: Goal | None) -> Result:
    kbo, other = values[row.kbo], values[row.other] if row.other else None
    result = Result(row.name.format(**values), values.get(row.n), kbo, other, row.unit)
    return replace(result, goal=goal.text, passed=goal.kept(kbo, other or 0.0)) if goal else result


def table(results: Sequence[Result]) -> str:
    """Return the measured lines as plain text."""
    from rich.console import Console
    from rich.table import Table

    grid = Table("kbo / BoTorch SingleTaskGP", box=None, pad_edge=False)
    for title in ("n", "kbo", "other", "ratio", "goal"):
        grid.add_column(title, justify="right")
    grid.add_column()
    for result in results:
        figures = (f"{x:.4g} {result.unit}" if x is not None else "" for x in (result.kbo, result.other))
        ratio = f"{result.ratio:.3g}" if result.ratio else ""
        verdict = {True: "passed", False: "MISSED", None: ""}[result.passed]
        grid.add_row(result.name, str(result.n or ""), *figures, ratio, result.goal, verdict)
    console = Console(width=220, markup=False, highlight=False, color_system=None)
    with console.capture() as captured:
        console.print(grid)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def agree(*works: Work) -> None:
    """Do all works once, each of which returns a tensor or some: a race between different answers says nothing."""
    found = [work() for work in works]
    answers = [torch.cat([part.flatten() for part in (x if isinstance(x, tuple) else (x,))]) for x in found]
    for answer in answers[1:]:
        torch.testing.assert_close(answer, answers[0], rtol=1e-5, atol=1e-5, check_dtype=False, check_device=False)


def medians(device: torch.device, **works: Work | list[Work]) -> dict[str, float]:
    """Return the median seconds of each work, done in turns; of a list of works in a row, the mean of one."""
    turns = {name: work if isinstance(work, list) else [work] for name, work in works.items()}
    times = [{name: seconds(turn, device) / len(turn) for name, turn in turns.items()} for _ in range(REPEATS)]
    return {name: statistics.median(time[name] for time in times) for name in turns}


def seconds(works: list[Work], device: torch.device) -> float:
    """Return the seconds of all works in a row: CPU time, or synchronised wall-clock time on a GPU."""
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


def wall_and_memory(work: Callable[[], Any], times: int = 3) -> Figures:
    """Return the median wall-clock seconds of some work, and the memory in MB that it takes."""
    before, walls = megabytes(peak=True), []
    for _ in range(times):
        start = time.perf_counter()
        work()
        walls.append(time.perf_counter() - start)
    return {"wall": statistics.median(walls), "memory": megabytes(peak=True) - before}


def megabytes(peak: bool) -> float:
    """Return the memory of this process, at its peak or at present (on Linux; elsewhere always at its peak)."""
    field = "VmHWM:" if peak else "VmRSS:"
    try:  # the rusage of a young process may still be that of its parent
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024 / 1e6
    except (OSError, StopIteration):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most / 1e6 * (1 if sys.platform == "darwin" else 1024)


def mean_and_variance(model: Model, X: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance of every point, flat."""
    posterior = model.posterior(X)
    assert isinstance(posterior, GPyTorchPosterior)
    return posterior.mean.flatten(), posterior.variance.flatten()


def single_task_gp(X: Tensor, Y: Tensor, kernel: Kernel, likelihood: GaussianLikelihood) -> SingleTaskGP:
    """Return BoTorch's model with nothing fitted, targets and inputs as they are."""
    gp = SingleTaskGP(X, Y, likelihood=likelihood, covar_module=kernel, mean_module=ZeroMean(), outcome_transform=None)
    return gp.to(X).requires_grad_(False).eval()


def uniform(n: int, d: int, seed: int) -> Tensor:
    """Return uniform points [n d] of the unit cube."""
    return torch.rand(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
