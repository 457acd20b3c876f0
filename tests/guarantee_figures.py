"""Tables of experiments/records/bounds.md: what the bounds of 0.8 gain over those of 0.7, on the same data.

``python -m tests.guarantee_figures PART``, a function of this module. The formulas of 0.7 are written out.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from functools import partial
from statistics import mean, median

import torch
from scipy.stats import norm
from torch import Generator, Tensor

from experiments.papers import chaining, streaming
from experiments.papers.streaming_uniform import problem
from experiments.problems import GaussianProcessBandit, RKHSBandit, stationary_kernel
from kbo import AdaptiveRidge, KernelRidge, NystromRidge, bandit
from kbo.bandit.method import Method
from kbo.confidence import (
    MIXED_SCALES,
    AdaptiveMixture,
    Confidence,
    FiniteSet,
    MartingaleMixture,
)
from kbo.confidence.energy import averaged
from kbo.errors import RefutedAssumptions
from kbo.regression import FixedDictionary, Posterior
from tests.dense import gram
from tests.dense_noise import noise_bounds
from tests.test_sketched import Traced, random_problem

DELTA, SIGMA, NORM = 0.1, 0.1, 5.0
KERNELS = {"RBF 0.2": ("rbf", 0.2), "RBF 0.5": ("rbf", 0.5), "Matérn 5/2 0.5": ("matern52", 0.5)}
KERNELS |= {"Matérn 3/2 0.2": ("matern32", 0.2)}
GAUSSIAN = ("paper", "quantile", "mixture")
RIDGES = [4.0**-j for j in range(12)]


class Unions:
    """Bounds of the noise level of 0.7, "mixture": a union over 12 ridges and one over 24 rates."""

    def __init__(self) -> None:
        self.lower, self.upper, self.ridge = 0.0, math.inf, 1.0
        self.log = math.log(3 * 12 / DELTA)

    def update(self, state: Posterior) -> None:
        cost = math.log(3 * 24 / DELTA)
        rates = [(2.0 * 2 ** (-i / 2), 0.45 * 2 ** (-i / 2)) for i in range(24)]
        least = max((state.n / 2 * math.log1p(2 * g) - cost) / g for g, _ in rates)
        most = min((-state.n / 2 * math.log1p(-2 * g) + cost) / g for _, g in rates)
        answers = state.across()
        quads, gains = (f(RIDGES).tolist() for f in (answers.quad, answers.log_det))
        for a, quad, gain in zip(RIDGES, quads, gains, strict=True):
            if least > gain + 2 * self.log:
                self._upper = min(self.upper, math.sqrt(quad / (least - gain - 2 * self.log)))
            self._lower = max(self.lower, math.sqrt(max(quad - a * NORM**2, 0) / most))
        if math.isfinite(self.upper):
            radii = [quad + self.upper**2 * gain for quad, gain in zip(quads, gains, strict=True)]
            self.ridge = RIDGES[radii.index(min(radii))]

    def confidence(self, kind: str) -> Confidence:
        return MartingaleMixture(self.upper, NORM, DELTA / 36, kind, self.upper**2 / self.ridge)


def half(confidence: Confidence, state: Posterior, Z: Tensor) -> float:
    """The mean half width at Z [N d]; infinite as long as it is unknown."""
    if not confidence.finite_on(state):
        return math.inf
    lower, upper = confidence.interval(state, Z)
    return float((upper - lower).mean() / 2)


def followed(
    game: object, arms: Tensor, X: Tensor, y: Tensor, marks: tuple[int, ...], kind: str
) -> Iterator[tuple[str, int, float, float, float]]:
    """Yield the variant, n, both bounds of the noise level and the half width of the mixture on them."""
    plain, unions = KernelRidge(game.kernel, 1.0), Unions()
    adaptive = {
        variant: noise_bounds(variant, NORM, DELTA) for variant in ("mixture", "mixture+strict")
    }
    adaptive = {
        name: AdaptiveRidge(KernelRidge(game.kernel, 1.0), bounds)
        for name, bounds in adaptive.items()
    }
    for x, target in zip(X[: max(marks)].split(1), y.split(1), strict=False):
        for state in (plain, *adaptive.values()):
            state.update(x, target)
        unions.update(plain)
        if plain.n in marks:
            finite = math.isfinite(unions.upper)
            width = half(unions.confidence(kind), plain, arms) if finite else math.inf
            yield "0.7", plain.n, unions.lower, unions.upper, width
            for name, state in adaptive.items():
                bounds = state.schedule
                yield (
                    name,
                    plain.n,
                    bounds.lower,
                    bounds.upper,
                    half(AdaptiveMixture(kind), state, arms),
                )


def widths(seeds: int = 2, marks: tuple[int, ...] = (100, 400, 1000)) -> None:
    """Mean half widths at 100 arms in two dimensions, before and after, on the same observations."""
    for name, (kernel, lengthscale) in KERNELS.items():
        found: dict[tuple[str, int], list[tuple[float, float]]] = {}
        for seed in range(seeds):
            game = RKHSBandit(kernel, lengthscale, dim=2, norm=NORM, seed=seed)
            rng = Generator().manual_seed(seed)
            arms = torch.rand(100, 2, generator=rng, dtype=torch.float64)
            X = arms[torch.randint(100, (max(marks),), generator=rng)]
            y, dictionary = game.observe(X), FixedDictionary.pivoted(game.kernel, arms, 15)
            exact, sketch = (
                KernelRidge(game.kernel, SIGMA**2),
                NystromRidge(game.kernel, SIGMA**2, dictionary),
            )
            cmm = MartingaleMixture(SIGMA, NORM, DELTA)
            many = MartingaleMixture(SIGMA, NORM, DELTA, scale=MIXED_SCALES)
            noisy = (
                torch.arange(len(X)) % 2
            ).double()  # every second observation has five times the noise
            loud = y + 2 * math.sqrt(6) * SIGMA * noisy * torch.randn(
                len(X), generator=rng, dtype=torch.float64
            )
            weighted, loudest = (
                KernelRidge(game.kernel, SIGMA**2),
                KernelRidge(game.kernel, 25 * SIGMA**2),
            )
            for start in range(0, len(X), 10):
                rows = slice(start, start + 10)
                for state in (exact, sketch):
                    state.update(X[rows], y[rows])
                weighted.update(X[rows], loud[rows], 1 / (1 + 24 * noisy[rows]))
                loudest.update(X[rows], loud[rows])
                if (n := exact.n) not in marks:
                    continue
                pairs = {
                    "sketch of 15 points, CMM": (
                        half(cmm, Traced(sketch), arms),
                        half(cmm, sketch, arms),
                    ),
                    "`FiniteSet`": tuple(
                        half(FiniteSet(100, DELTA, v), exact, arms) for v in ("paper", "mixture")
                    ),
                    "scales, CMM": (half(cmm, exact, arms), half(many, exact, arms)),
                    "scales, DMM": tuple(
                        half(MartingaleMixture(SIGMA, NORM, DELTA, "dmm", scale), exact, arms)
                        for scale in (1.0, MIXED_SCALES)
                    ),
                    "weights, CMM": (
                        half(MartingaleMixture(5 * SIGMA, NORM, DELTA), loudest, arms),
                        half(cmm, weighted, arms),
                    ),
                }
                for gain, pair in pairs.items():
                    found.setdefault((gain, n), []).append(pair)
            each = followed(game, arms, X, y, marks, "dmm")
            level = {(variant, n): width for variant, n, _, _, width in each}
            for n in marks:
                found.setdefault(("unknown noise, DMM", n), []).append(
                    (level["0.7", n], level["mixture", n])
                )
        for gain in dict.fromkeys(gain for gain, _ in found):
            cells = [
                " → ".join(f"{mean(side):.3g}" for side in zip(*found[gain, n], strict=True))
                for n in marks
            ]
            print(f"| {name} | {gain} | {' | '.join(cells)} |", flush=True)


def noise(seeds: int = 10, marks: tuple[int, ...] = (75, 150, 300, 600, 1000)) -> None:
    """The noise interval and the half width of DMM on the points and noise of figure 3 (Durand et al. 2018)."""
    found: dict[tuple[str, int], list[tuple[float, ...]]] = {}
    for seed in range(seeds):
        game = problem(quick=False).environment(seed)
        rng = Generator().manual_seed(40_000 + seed)
        X = game.fixed_arms[torch.randint(len(game.fixed_arms), (max(marks),), generator=rng)]
        y = torch.cat([game.observe(x) for x in X.split(1)])
        for name, n, *numbers in followed(game, game.fixed_arms, X, y, marks, "dmm"):
            found.setdefault((name, n), []).append(tuple(numbers))
    columns = {name: [list(zip(*found[name, n], strict=True)) for n in marks] for name, _ in found}
    rows: dict[str, Callable[[list[tuple[float, ...]]], str]] = {
        "": lambda c: f"{median(c[0]):.4f} to {median(c[1]):.4f}",
        "upper / lower, ": lambda c: (
            f"{median(u / low for low, u in zip(c[0], c[1], strict=True)):.2f}"
        ),
        "half width, ": lambda c: f"{mean(c[2]):.3g}",
    }
    for text, show in rows.items():
        for name, cells in columns.items():
            print(f"| {text}{name} | {' | '.join(map(show, cells))} |")


def laws(size: tuple[int, int], rng: Generator) -> dict[str, Tensor]:
    """Noise of variance 1."""
    u, normal = (f(size, generator=rng, dtype=torch.float64) for f in (torch.rand, torch.randn))
    sign = torch.where(torch.rand(size, generator=rng) < 0.5, -1.0, 1.0).double()
    return {
        "Gaussian": normal,
        "Rademacher": sign,
        "uniform": math.sqrt(3) * (2 * u - 1),
        "zero with probability 1/2, else of two values": math.sqrt(2) * sign * (u < 0.5),
        "three points, kurtosis 3": math.sqrt(3) * sign * (u < 1 / 3),
        "spikes: zero with probability 0.98": math.sqrt(50) * sign * (u < 0.02),
    }


def classes(runs: int = 4000, n: int = 2000) -> None:
    """The share of sequences in which the energy of the noise is ever outside one of its bounds."""
    bounds = [
        (averaged(t, DELTA / 3, False), averaged(t, DELTA / 3, True)) for t in range(1, n + 1)
    ]
    sides = torch.tensor(
        [(gaussian[0], strict[0], strict[1]) for gaussian, strict in bounds]
    ).double()
    for name, e in laws((runs, n), Generator().manual_seed(0)).items():
        energy = e.square().cumsum(-1)
        outside = [
            (energy < sides[:, 0]).any(-1),
            (energy < sides[:, 1]).any(-1),
            (energy > sides[:, 2]).any(-1),
        ]
        print(
            f"| {name} | {' | '.join(f'{float(column.double().mean()):.3f}' for column in outside)} |",
            flush=True,
        )


def sketch(seeds: int = 300) -> None:
    """Problems in which a bound on a sketch lies inside the exact CMM, or inside the exact bound of its own kind."""
    inside: dict[tuple[str, str], list[float]] = {}
    for seed in range(seeds):
        exact, sketched, Z, level = random_problem(seed)
        norm, scale = 3.3 if seed % 5 else 60.0, (1.0, 0.2)[seed % 2]
        try:
            best = MartingaleMixture(level, norm, DELTA, "cmm", scale).interval(exact, Z)
            for kind in ("cmm", "dmm", "amm"):
                bound = MartingaleMixture(level, norm, DELTA, kind, scale)
                low, high = bound.interval(sketched, Z)
                for of, (lower, upper) in (
                    ("exact CMM", best),
                    ("its own kind", bound.interval(exact, Z)),
                ):
                    by = torch.maximum(low - lower, upper - high) / ((upper - lower) / 2)
                    inside.setdefault((kind, of), []).append(float(by.max()))
        except RefutedAssumptions:
            continue
    for (kind, of), by in inside.items():
        count = sum(value > 1e-7 for value in by)
        print(f"| {kind} | {of} | {count} of {len(by)} | {max(0.0, *by):.1g} |", flush=True)


def coverage(form: str, noise: str, runs: int = 60) -> None:
    """The first runs of the study "coverage" of ``experiments.papers.streaming``: failures, and the closest."""
    start = {"gaussian": 90_000, "rademacher": 90_500}[noise]
    rows = [streaming.watch(form, noise, start + run, 300, 0.3)[0] for run in range(runs)]
    failed = [str(sum(row[name] for row in rows)) for name in streaming.FAILURES]
    level = [f"{median(row[side] for row in rows):.3f}" for side in ("upper", "lower")]
    print(
        " | ".join(
            [noise, form, str(runs), *failed, f"{max(row['closest'] for row in rows):.2f}", *level]
        )
    )


def chains(runs: int = 500) -> None:
    """The first runs of the study "coverage" of ``experiments.papers.chaining``."""
    rows = [row for run in range(runs) for row in chaining.watch(97_000 + run, 300, 40)]
    for name in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == name]
        numbers = [f"{mean(row[key] for row in own):.5g}" for key in ("outside", "half")]
        failed = sum(row["outside"] > 0 for row in own)
        print(
            " | ".join(
                [name, f"{failed} of {runs}", *numbers, f"{max(row['closest'] for row in own):.3f}"]
            )
        )


def ratio_half(mean: Tensor, variance: Tensor, n_points: int) -> Tensor:
    """Half widths of the prior-posterior ratio at 0.9 delta, cut by the prior's interval at 0.1 delta; ``k = 1``."""
    left = (1 - variance).clamp_min(1e-12)
    half = (
        variance
        / left
        * (-variance.log() + 2 * math.log(n_points / (0.9 * DELTA)) + mean.square() / left)
    )
    prior = norm.isf(0.1 * DELTA / n_points / 2)
    upper = (mean / left + half.sqrt()).clamp_max(prior)
    return (upper - (mean / left - half.sqrt()).clamp_min(-prior)) / 2


def compared(name: str, n_points: int, rounds: tuple[int, ...]) -> dict[int, dict[str, float]]:
    """Mean half widths of ``FiniteSet`` at 400 points after uniform observations in two dimensions of a draw."""
    kernel, rng = stationary_kernel(*KERNELS[name]), Generator().manual_seed(0)
    X = torch.rand(max(rounds) + 400, 2, generator=rng, dtype=torch.float64)
    root = torch.linalg.cholesky(gram(kernel, X, X) + 1e-8 * torch.eye(len(X)).double())
    y = root @ torch.randn(len(X), generator=rng, dtype=torch.float64)
    y = y + SIGMA * torch.randn(len(X), generator=rng, dtype=torch.float64)
    state, Z, found = KernelRidge(kernel, SIGMA**2), X[-400:], {}
    for n in rounds:
        state.update(X[state.n : n], y[state.n : n])
        found[n] = {
            variant: half(FiniteSet(n_points, DELTA, variant), state, Z) for variant in GAUSSIAN
        }
        found[n]["prior-posterior ratio"] = float(ratio_half(*state.predict(Z), n_points).mean())
    return found


def gaussian() -> None:
    """Widths of the bounds for draws of the Gaussian process, relative to those of the paper."""
    for name in KERNELS:
        for n_points in (100, 1000, 10_000):
            for n, halves in compared(name, n_points, (0, 5, 20, 60, 120, 400, 1000)).items():
                ratios = "  ".join(
                    f"{key} {half / halves['paper']:.3f}" for key, half in halves.items()
                )
                print(
                    f"{name:15} N = {n_points:<6} n = {n:<5} {halves['paper']:.4f}  {ratios}",
                    flush=True,
                )


def regret(seeds: int = 12) -> None:
    """Cumulative regret of GP-UCB with these bounds on 500 points, 120 rounds."""
    found: dict[str, Tensor] = {}
    for variant in GAUSSIAN:
        sums = []
        for seed in range(seeds):
            game = GaussianProcessBandit(500, 5.0, 1.0, noise_std=SIGMA, seed=seed)
            method = Method(
                partial(KernelRidge, game.kernel, SIGMA**2), FiniteSet(500, DELTA, variant)
            )
            sums.append(
                sum(row["regret"] for row in bandit.play(method, game, 120, seed=100 + seed))
            )
        found[variant] = torch.tensor(sums)
        less = found[variant] - found["paper"]
        print(
            f"{variant:10} {mean(sums):.1f}  {less.mean():.1f} +- {less.std() / len(less) ** 0.5:.1f}",
            flush=True,
        )


if __name__ == "__main__":
    parts = {
        part.__name__: part
        for part in (widths, noise, classes, sketch, coverage, chains, gaussian, regret)
    }
    parts[sys.argv[1]](*(int(word) if word.isdigit() else word for word in sys.argv[2:]))
