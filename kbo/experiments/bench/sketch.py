"""Sketched posteriors: whole bandit runs, long streams, a million candidates, and GPyTorch's inducing points."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable

import torch
from botorch.models import SingleTaskGP
from botorch.posteriors.gpytorch import GPyTorchPosterior
from gpytorch.kernels import InducingPointKernel, RBFKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from gpytorch.settings import sgpr_diagonal_correction
from torch import Tensor

from kbo import bandit
from kbo.confidence import FixedWidth
from kbo.experiments.bandits import BanditMethod, BanditProblem
from kbo.experiments.bench.race import (
    MeanVariance,
    Row,
    agree,
    faster,
    in_fresh_process,
    least,
    medians,
    one_thread,
    peak_megabytes,
    threads,
    wall_and_memory,
)
from kbo.kernels import freeze
from kbo.models import NystromGP
from kbo.problems import stationary_kernel
from kbo.regression import FixedDictionary, NystromRidge

_RIDGE, _MULTIPLIER = 10.0, 0.1
_PLAYERS = {
    "EK-UCB": BanditMethod("ek-ucb", ridge=_RIDGE, multiplier=_MULTIPLIER),
    "K-UCB": BanditMethod("k-ucb", ridge=_RIDGE, multiplier=_MULTIPLIER),
    "BBKB": BanditMethod(
        "bbkb", ridge=_RIDGE, multiplier=_MULTIPLIER, dictionary={"kind": "bbkb", "oversampling": 30, "growth": 3}
    ),
}
_GOALS = {"EK-UCB": (0.25, 0.5), "K-UCB": (0.6, 3.5), "BBKB": (0.5, 1.0)}
"""CPU seconds of 1000 and of 2000 rounds."""

_STREAMS = {
    "EK-UCB on Chessboard": (BanditProblem("chessboard", rounds=100_000), _PLAYERS["EK-UCB"]),
    "BBKB on 1000 fixed arms, RBF 0.5, d = 3": (
        BanditProblem("rkhs-fixed", {"n_arms": 1000}, rounds=100_000, delta=0.1),
        BanditMethod("bbkb"),
    ),
}
_ARMS = 1_000_000


def _runs(device: torch.device, quick: bool) -> list[Row]:
    """Whole runs on Chessboard, fresh arms every round; the median of three."""
    rows = []
    for position, rounds in enumerate((100,) if quick else (1000, 2000)):
        game = BanditProblem("chessboard", rounds=rounds)
        for name, player in _PLAYERS.items():
            found = statistics.median(cpu_seconds(game, player)[-1] for _ in range(3))
            goal = _GOALS[name][position]
            rows.append(least(f"{rounds} rounds of {name} on Chessboard, CPU", rounds, found, goal))
    return rows


def cpu_seconds(game: BanditProblem, player: BanditMethod) -> list[float]:
    """CPU seconds of the method alone, so far, after every round."""
    rows = bandit.play(game.make(player), game.environment(0), game.rounds)
    return [row["cpu_seconds"] for row in rows]


def _streams(device: torch.device, quick: bool) -> list[Row]:
    """Runs of 10^5 rounds, each in a fresh process; left out if quick."""
    rows = []
    for name in () if quick else _STREAMS:
        rounds = _STREAMS[name][0].rounds
        code = f"from kbo.experiments import speed_sketch; print(*speed_sketch.stream({name!r}))"
        total, early, late, peak = map(float, in_fresh_process(code).split())
        rows += [
            least(f"{rounds} rounds of {name}, CPU", rounds, total, 60),
            Row("  a step then / at a tenth of them", rounds, late, early, "at most 1.3 times", late <= 1.3 * early),
            least("  peak memory of the process", rounds, peak, 1000, "MB"),
        ]
    return rows


def stream(name: str) -> tuple[float, float, float, float]:
    """CPU seconds of a whole stream, of a step at a tenth of it and at its end, and the peak memory in MB."""
    with one_thread():
        seconds = cpu_seconds(*_STREAMS[name])
    few = len(seconds) // 50
    tenth = len(seconds) // 10
    early, late = ((seconds[end - 1] - seconds[end - 1 - few]) / few for end in (tenth, len(seconds)))
    return seconds[-1], early, late, peak_megabytes()


def _million(device: torch.device, quick: bool) -> list[Row]:
    """The leader among a million fresh arms on two threads, in a fresh process: wall-clock time, and memory."""
    arms = _ARMS // 100 if quick else _ARMS
    code = f"from kbo.experiments import speed_sketch; print(*speed_sketch.million({arms}))"
    wall, memory = map(float, in_fresh_process(code).split())
    name = f"{arms} fresh arms scored, m = 200, d = 3, two threads, wall clock"
    return [least(name, 0, wall, 1.5), least("  memory beyond the arms", 0, memory, 250, "MB")]


def million(arms: int, on_threads: int = 2) -> tuple[float, float]:
    """Wall-clock seconds to find the leader among so many arms, and the memory in MB that it takes beside them."""
    with threads(on_threads):
        state, confidence = sketch(200, torch.device("cpu")), FixedWidth(1.0)
        confidence.argmax_upper(state, uniform(1000, 3, seed=3))
        X = uniform(arms, 3, seed=4)
        return wall_and_memory(lambda: confidence.argmax_upper(state, X))


def _inducing_points(device: torch.device, quick: bool) -> list[Row]:
    """The same sketch as GPyTorch's inducing-point regression: mean and variance of fresh candidates."""
    n, m, points, chunk = (500, 30, 20, 10) if quick else (4000, 100, 1000, 100)
    X, P = uniform(n, 3, seed=1).to(device), uniform(points, 3, seed=2).to(device)
    y = torch.sin(5 * X).sum(-1, keepdim=True)
    kernel = RBFKernel().double().initialize(lengthscale=0.3).to(device)
    dictionary = FixedDictionary.pivoted(kernel, X[:2000], m)
    likelihood = GaussianLikelihood().double().initialize(noise=0.01).to(device)
    inducing = InducingPointKernel(copy.deepcopy(kernel), dictionary.points.clone(), likelihood)
    ours = NystromGP(X, y, kernel, 0.01, dictionary)

    def theirs() -> SingleTaskGP:
        gp = SingleTaskGP(
            X, y, likelihood=likelihood, covar_module=inducing, mean_module=ZeroMean(), outcome_transform=None
        )
        return gp.to(X).requires_grad_(False).eval()

    with sgpr_diagonal_correction(False):  # with it the training set has another noise; the mean must be the same
        few = P[:10]
        plain = theirs()
        agree(lambda: _means(ours, few), lambda: _means(plain, few))
    gp = theirs()
    batch, joint, batch_in_kbo, joint_in_kbo = medians(
        device,
        lambda: _scores(gp, P[:chunk].unsqueeze(1)),
        lambda: _scores(gp, P),
        lambda: _scores(ours, P.unsqueeze(1)),
        lambda: _scores(ours, P),
    )
    name = f"{points} candidates [{{}}] / InducingPointKernel, m = {m}"
    goal = None if quick else 500
    return [
        faster(name.format(f"{points} 1 d") + f", in chunks of {chunk}", n, batch_in_kbo, batch * points / chunk, goal),
        faster(name.format(f"{points} d"), n, joint_in_kbo, joint, None),
    ]


def _throughput(device: torch.device, quick: bool) -> list[Row]:
    """A million arms scored on a GPU with m = 512, against the device's own pace in the product that it takes."""
    if device.type != "cuda":
        return []
    m, arms = 512, _ARMS // 100 if quick else _ARMS
    state, confidence, X = sketch(m, device), FixedWidth(1.0), uniform(arms, 3, seed=4).to(device)
    left = torch.rand(m, m, device=device, dtype=torch.float64)
    right = torch.rand(m, arms, device=device, dtype=torch.float64)
    k = freeze(state.kernel, X)

    def ours() -> MeanVariance:
        leader = confidence.argmax_upper(state, X)
        return (found := torch.tensor(leader)), found

    def product() -> MeanVariance:
        return (found := left @ right), found

    def product_and_kernel() -> MeanVariance:
        found = left @ right
        return found, k(state.anchors, X)

    for work in (ours, product, product_and_kernel):
        work()
    scored, plain, both = medians(device, ours, product, product_and_kernel)
    return [
        Row(f"{arms} arms scored, m = {m} / the product of [m m] and [m {arms}] alone", arms, scored, plain, "", True),
        Row("  the same / that product and the kernel", arms, scored, both, "", True),
        Row("  arms a second, in millions", arms, arms / scored / 1e6, arms / plain / 1e6, "", True, ""),
    ]


BENCHMARKS: list[Callable[[torch.device, bool], list[Row]]] = [
    _runs,
    _streams,
    _million,
    _inducing_points,
    _throughput,
]


def sketch(m: int, device: torch.device) -> NystromRidge:
    """A posterior of 2000 observations in three dimensions with about m anchors."""
    kernel, X = stationary_kernel("rbf", 0.2).to(device), uniform(2000, 3, seed=1).to(device)
    state = NystromRidge(kernel, 0.01, FixedDictionary.pivoted(kernel, X, m))
    state.update(X, torch.sin(5 * X).sum(-1))
    return state


def uniform(n: int, d: int, seed: int) -> Tensor:
    """Uniform points [n d] of the unit cube."""
    return torch.rand(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _scores(model: SingleTaskGP | NystromGP, X: Tensor) -> MeanVariance:
    posterior = model.posterior(X)
    assert isinstance(posterior, GPyTorchPosterior)
    return posterior.mean.flatten(), posterior.variance.flatten()


def _means(model: SingleTaskGP | NystromGP, X: Tensor) -> MeanVariance:
    mean = _scores(model, X)[0]
    return mean, mean
