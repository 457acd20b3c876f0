"""The benchmark behind ``kbo bench``: kbo against BoTorch's ``SingleTaskGP`` on the same work.

Both sides have the same data, kernel, hyper-parameters and noise, run in one process on one thread and in
turns (A, B, A, B, ...), and must give the same numbers before they are timed. The figures are medians: of CPU
time on the CPU, of synchronised wall-clock time on a GPU. Only ratios carry over to another machine.
"""

from __future__ import annotations

import itertools
import os
import statistics
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from botorch.exceptions.warnings import InputDataWarning
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from botorch.posteriors.gpytorch import GPyTorchPosterior
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from torch import Tensor
from tqdm import tqdm

from kbo.experiments.bench import bounds as speed_bounds
from kbo.experiments.bench import chaining as speed_chaining
from kbo.experiments.bench import noise as speed_noise
from kbo.experiments.bench import sketch as speed_sketch
from kbo.experiments.bench.race import (
    REPEATS,
    MeanVariance,
    Row,
    Work,
    agree,
    faster,
    in_fresh_process,
    medians,
    one_thread,
    race,
    seconds,
)
from kbo.models import KernelRidgeGP
from kbo.regression import KernelRidge, Tracked

_DIMENSION, _RIDGE, _IN_A_ROW, _CANDIDATES, _FRESH, _ARMS, _UPDATES = 3, 0.01, 10, 10_000, 1000, 100, 2000


def run(device: str = "cpu", quick: bool = False) -> list[Row]:
    """Measure everything; progress goes to stderr.

    Args:
        device: Where the data live, for example "cuda".
        quick: Leave out what takes more than a few seconds per run (n = 4000).
    """
    rows: list[Row] = []
    with one_thread(), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", InputDataWarning)  # targets are deliberately not standardised
        modules = (speed_bounds, speed_sketch, speed_noise, speed_chaining)
        others = (benchmark for module in modules for benchmark in module.BENCHMARKS)
        for benchmark in tqdm([*_BENCHMARKS, *others], desc="kbo bench"):
            rows += benchmark(torch.device(device), quick)
    return rows


def _new_row(device: torch.device, quick: bool) -> list[Row]:
    """One new observation and a prediction after it: ``KernelRidge.update`` in place, or a conditioned model."""
    return [row for n, goal in ((1000, 100), (4000, 200)) if n == 1000 or not quick for row in _grow(n, goal, device)]


def _grow(n: int, goal: float, device: torch.device) -> list[Row]:
    X, y, new, point = _data(n, 1 + (1 + REPEATS) * (1 + _IN_A_ROW), 1, device=device)
    gp, rebuilt, model = _single_task_gp(X, y), _single_task_gp(X, y), _kernel_ridge_gp(X, y)
    _warm_up(gp, model, point)
    state, rows, target = model.state.fork(), iter(new.split(1)), new.new_zeros(1, 1)
    X_grown, y_grown = torch.cat([X, new[:1]]), torch.cat([y, target[0]])

    def condition() -> MeanVariance:
        return _scores(model.condition_on_observations(new[:1], target), point)

    def in_place() -> MeanVariance:
        state.update(next(rows), target[0])
        return state.predict(point)

    def their_condition() -> MeanVariance:
        return _scores(gp.condition_on_observations(new[:1], target), point)

    def their_rebuild() -> MeanVariance:
        rebuilt.set_train_data(X_grown, y_grown, strict=False)
        return _scores(rebuilt, point)

    agree(condition, in_place, their_condition, their_rebuild)
    theirs, rebuild, once, once_in_place, many, many_in_place = medians(
        device, their_condition, their_rebuild, condition, in_place, [condition] * _IN_A_ROW, [in_place] * _IN_A_ROW
    )
    return [
        faster("one row in place / condition_on_observations", n, many_in_place, theirs, goal),
        faster("one row in place, processor caches cold / the same", n, once_in_place, theirs, goal),
        faster("one row, new model / condition_on_observations", n, many, theirs, goal),
        faster("one row, new model, processor caches cold / the same", n, once, theirs, None),
        faster("one row, new model, processor caches cold / set_train_data", n, once, rebuild, None),
    ]


def _rescoring(device: torch.device, quick: bool) -> list[Row]:
    """Mean and variance of fixed candidates after each new observation."""
    n = 1000
    X, y, new, candidates = _data(n, 4 * REPEATS, _CANDIDATES, device=device)
    gp, model = _single_task_gp(X, y), _kernel_ridge_gp(X, y)
    _warm_up(gp, model, candidates[:1])
    target = new.new_zeros(1, 1)
    updated = gp.condition_on_observations(new[:1], target)
    how, score = _fastest_scoring(updated, candidates, device)

    def tracked() -> Work:
        view, rows = Tracked(model.state.fork(), candidates), iter(new.split(1))
        view.predict()

        def step() -> MeanVariance:
            view.update(next(rows), target[0])
            return view.predict()

        return step

    name = f"{_CANDIDATES} fixed candidates after a row / {how}"
    return [
        race(name, n, tracked(), lambda: score(gp.condition_on_observations(new[:1], target)), 30, device),
        race(f"{name}, row not counted", n, tracked(), lambda: score(updated), 30, device),
    ]


def _fastest_scoring(gp: Model, X: Tensor, device: torch.device) -> tuple[str, Callable[..., MeanVariance]]:
    """The fastest way to have a SingleTaskGP score many points: as t-batch or jointly, in chunks."""

    def scoring(size: int, joint: bool) -> Callable[..., MeanVariance]:
        def score(gp: Model) -> MeanVariance:
            parts = [_scores(gp, part if joint else part.unsqueeze(1)) for part in X.split(size)]
            mean, variance = zip(*parts, strict=True)
            return torch.cat(mean), torch.cat(variance)

        return score

    sizes = (50, 100, 200, 500) if device.type == "cpu" else (1000, len(X))
    ways = {
        f"chunks [{size} d]" if joint else f"chunks [{size} 1 d]": scoring(size, joint)
        for size, joint in itertools.product(sizes, (True, False))
    }
    times = {way: min(seconds([lambda s=score: s(gp)], device) for _ in range(2)) for way, score in ways.items()}
    best = min(times, key=lambda way: times[way])
    return best, ways[best]


def _fresh_candidates(device: torch.device, quick: bool) -> list[Row]:
    """Mean and variance of points that were never seen before."""
    n = 1000
    X, y, points = _data(n, _FRESH, device=device)
    gp, model = _single_task_gp(X, y), _kernel_ridge_gp(X, y)
    return [
        race(
            f"{_FRESH} fresh candidates {shape}",
            n,
            lambda P=P: _scores(model, P),
            lambda P=P: _scores(gp, P),
            1,
            device,
        )
        for shape, P in ((f"[{_FRESH} 1 d]", points.unsqueeze(1)), (f"[{_FRESH} d]", points))
    ]


def _memory(device: torch.device, quick: bool) -> list[Row]:
    """Memory of a stream of repeated arms, in a fresh process: freed memory of others would hide growth."""
    code = f"from kbo.experiments import speed; print(*speed.stream('{device}'))"
    half, full = map(float, in_fresh_process(code).split())
    name = f"memory after {_UPDATES} updates on {_ARMS} arms / after {_UPDATES // 2}"
    return [Row(name, _UPDATES, full, half, "at most 20 MB more", full - half <= 20, "MB")]


def stream(device: str) -> tuple[float, float]:
    """Memory in MB of this process after half and after all of a stream of tracked, repeated arms."""
    (arms,) = _data(_ARMS, device=torch.device(device))[:1]
    view = Tracked(KernelRidge(_kernel(), _RIDGE), arms)
    used = []
    for half in range(2):
        for step in range(_UPDATES // 2):
            arm = arms[(7 * step + half) % _ARMS]
            view.update(arm.unsqueeze(0), arm[:1])
            view.predict()
        used.append(_megabytes(device))
    return used[0], used[1]


def _import(device: torch.device, quick: bool) -> list[Row]:
    """What importing kbo costs on top of BoTorch, in fresh processes."""
    pairs = {
        "import botorch, kbo / import botorch": ("import botorch, kbo", "import botorch"),
        "import KernelRidgeGP / import SingleTaskGP": (
            "from kbo.models import KernelRidgeGP",
            "from botorch.models import SingleTaskGP",
        ),
    }
    rows = []
    for name, statements in pairs.items():
        ours, theirs = _import_seconds(*statements)
        rows.append(Row(name, 0, ours, theirs, "at most 0.1 s more", ours - theirs <= 0.1))
    return rows


def _import_seconds(*statements: str) -> list[float]:
    clock = "import time; start = time.process_time(); {}; print(time.process_time() - start)"
    times = [[float(in_fresh_process(clock.format(statement))) for statement in statements] for _ in range(1 + REPEATS)]
    return [statistics.median(column) for column in zip(*times[1:], strict=True)]


_BENCHMARKS: list[Callable[[torch.device, bool], list[Row]]] = [
    _new_row,
    _rescoring,
    _fresh_candidates,
    _memory,
    _import,
]


def _megabytes(device: str) -> float:
    """Memory that this process holds, on its host (Linux; elsewhere the peak) and on the device."""
    on_device = torch.cuda.memory_allocated(device) if device.startswith("cuda") else 0
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return (on_device + pages * os.sysconf("SC_PAGE_SIZE")) / 1e6
    except OSError:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return (on_device + peak * (1 if sys.platform == "darwin" else 1024)) / 1e6


def _kernel() -> ScaleKernel:
    base = MaternKernel(nu=2.5).double()
    base.lengthscale = torch.tensor(0.3)
    kernel = ScaleKernel(base).double()
    kernel.outputscale = torch.tensor(1.5)
    return kernel


def _data(n: int, *more: int, device: torch.device) -> list[Tensor]:
    """X [n d] and y [n] of a noisy function, then further points [m d] for every m in ``more``."""
    random = torch.Generator().manual_seed(0)
    X, *others = (torch.rand(m, _DIMENSION, generator=random, dtype=torch.float64) for m in (n, *more))
    y = torch.sin(5 * X).sum(-1) + 0.1 * torch.randn(n, generator=random, dtype=torch.float64)
    return [tensor.to(device) for tensor in (X, y, *others)]


def _kernel_ridge_gp(X: Tensor, y: Tensor) -> KernelRidgeGP:
    return KernelRidgeGP(X, y.unsqueeze(-1), _kernel(), _RIDGE)


def _single_task_gp(X: Tensor, y: Tensor) -> SingleTaskGP:
    """The same posterior in BoTorch: nothing fitted, targets and inputs as they are."""
    likelihood = GaussianLikelihood().double()
    likelihood.noise = torch.tensor(_RIDGE, dtype=torch.float64)
    Y, kernel = y.unsqueeze(-1), _kernel()
    gp = SingleTaskGP(X, Y, likelihood=likelihood, covar_module=kernel, mean_module=ZeroMean(), outcome_transform=None)
    return gp.to(X).requires_grad_(False).eval()


def _warm_up(gp: Model, model: Model, X: Tensor) -> None:
    """Fill the caches of BoTorch and the factor of kbo."""
    agree(lambda: _scores(model, X), lambda: _scores(gp, X))


def _scores(model: Model, X: Tensor) -> MeanVariance:
    """Mean and variance of every point, flat."""
    posterior = model.posterior(X)
    assert isinstance(posterior, GPyTorchPosterior)
    return posterior.mean.flatten(), posterior.variance.flatten()
