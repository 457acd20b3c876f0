"""Failure probabilities far below what simulation can count, by importance sampling; ``python -m tests.test_tilting``.

Every bound is taken at delta = 1e-6 on one problem: a design on 12 points, kernel, noise level, and for the bounds that
assume a norm a function of that norm. Noise is drawn from a mixture of laws under which failures are common; a failure
counts with the likelihood ratio at the moment of the failure. The laws come from dense formulas and only decide how
exact the estimate is; whether a bound fails is up to kbo.

Gaussian noise is shifted to where a bound for the worst function fails (``worst``), drawn from the alternative of which
a martingale mixture is made, so that the ratio is the martingale itself (``mixtures``), or both that and of other
levels (``unknown_level``). Under a Gaussian-process prior function and noise are shifted together (``gaussian``).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pytest
import torch
from gpytorch.kernels import MaternKernel
from torch import Tensor

from kbo import AdaptiveRidge, KernelRidge
from kbo import confidence as c
from kbo.confidence import MIXED_SCALES, Confidence, norm_lower_bound, squared_radius
from kbo.confidence.confidence_set import mixture_ridges
from kbo.confidence.energy import LEAST_RATES, averaged
from kbo.errors import RefutedAssumptions
from kbo.regression import Posterior
from tests.dense import gram
from tests.dense_noise import noise_bounds
from tests.parts import once

DELTA, SIGMA, NORM = 1e-6, 0.3, 2.0
KERNEL = MaternKernel(nu=2.5).double()
KERNEL.lengthscale = 0.3
Z = torch.linspace(0, 1, 12, dtype=torch.float64).unsqueeze(-1)
DESIGN = torch.randint(12, (24,), generator=torch.Generator().manual_seed(0))
ROUNDS = (1, 2, 3, 5, 8, 12, 18, 24)

Failed = Callable[[Posterior, Tensor, Tensor], bool]
"""Whether a statement is false on a state, for the function f [12] and the noise so far."""

SUB_GAUSSIAN: dict[str, Callable[[], Confidence]] = {
    "SelfNormalized": lambda: c.SelfNormalized(SIGMA, NORM, DELTA),
    "SelfNormalized(least_ridge=)": lambda: c.SelfNormalized(
        SIGMA, NORM, DELTA, least_ridge=SIGMA**2 / 4
    ),
    "ImprovedGPUCB": lambda: c.ImprovedGPUCB(SIGMA, NORM, DELTA, 2 / 24),
    "BKB": lambda: c.BKB(SIGMA, NORM, DELTA),
    "EKUCB": lambda: c.EKUCB(SIGMA, NORM, DELTA, SIGMA**2),
    "KUCB": lambda: c.EKUCB(SIGMA, NORM, DELTA, 0.0),
    "AMM, the worst function": lambda: c.MartingaleMixture(SIGMA, NORM, DELTA, "amm"),
}
GAUSSIAN: dict[str, Callable[[], Confidence]] = {
    "FiniteSet, mixture": lambda: c.FiniteSet(12, DELTA),
    "FiniteSet, quantile": lambda: c.FiniteSet(12, DELTA, "quantile"),
    "FiniteSet, paper": lambda: c.FiniteSet(12, DELTA, "paper"),
    "Chaining, rigorous": lambda: c.Chaining(DELTA, rigorous=True, points=Z),
}
UNKNOWN_LEVEL = ("paper", "tight", "tight+grid", "mixture", "mixture+strict")


@dataclass
class Estimate:
    """Estimated failure probability over delta, its standard error, and the share of draws that failed."""

    ratio: float
    error: float
    failed: float


@dataclass
class Laws:
    """Normal laws of z [m] to draw from: means [J m], Cholesky factors [J m m], and logarithms of their shares [J]."""

    means: Tensor
    roots: Tensor
    log_shares: Tensor

    def draw(self, rng: torch.Generator) -> Tensor:
        j = int(torch.multinomial(self.log_shares.exp(), 1, generator=rng))
        return self.means[j] + self.roots[j] @ torch.randn(
            len(self.means[j]), generator=rng, dtype=torch.float64
        )

    def ratio(self, z: Tensor) -> float:
        """The density of z, the first of the m, under the standard normal law over that under the mixture."""
        roots = self.roots[
            :, : len(z), : len(z)
        ]  # leading blocks are the factors of leading blocks
        white = torch.linalg.solve_triangular(
            roots, (z - self.means[:, : len(z)]).unsqueeze(-1), upper=False
        )
        logs = -white.square().sum((-2, -1)) / 2 - roots.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return math.exp(float(-z @ z / 2 - torch.logsumexp(self.log_shares + logs, 0)))


def shifted(shifts: Tensor, most: int = 300) -> Laws:
    """The laws around the shortest of the shifts [j m]."""
    squares = shifts.square().sum(-1)
    kept = squares.topk(min(most, len(squares)), largest=False).indices
    roots = torch.eye(shifts.shape[1]).double().expand(len(kept), -1, -1)
    return Laws(
        shifts[kept], roots, torch.log_softmax(-squares[kept] / 2 / 4, 0)
    )  # flatter than their probabilities


def normal(means: Tensor, roots: Tensor) -> Laws:
    """Normal laws with equal shares."""
    return Laws(
        means,
        roots.expand(len(means), -1, -1),
        torch.full((len(means),), -math.log(len(means))).double(),
    )


def alternatives(f: Tensor, ridges: Sequence[float]) -> Laws:
    """The noise of observations ``N(0, sigma^2 (I + K / a))`` of f, in units of sigma."""
    K = gram(KERNEL, Z[DESIGN], Z[DESIGN])
    roots = torch.stack([torch.linalg.cholesky(torch.eye(24).double() + K / a) for a in ridges])
    return normal((-f[DESIGN] / SIGMA).expand(len(roots), -1), roots)


def empty() -> Posterior:
    return KernelRidge(KERNEL, SIGMA**2)


def estimates(
    cases: dict[str, Callable[[], Failed]],
    laws: Laws,
    count: int,
    f: Tensor | Callable[[Tensor], Tensor],
    begin: Callable[[], Posterior] = empty,
    design: Tensor = DESIGN,
    rounds: Sequence[int] = ROUNDS,
) -> dict[str, Estimate]:
    """Estimate the probability that each statement is false after some of the rounds.

    The last entries of z are the noise in units of sigma; those before them, if any, define the function.
    """
    rng, values = torch.Generator().manual_seed(0), {name: [0.0] * count for name in cases}
    for i in range(count):
        z, failed = laws.draw(rng), {name: make() for name, make in cases.items()}
        before = len(z) - len(design)
        truth = f if isinstance(f, Tensor) else f(z[:before])
        noise = SIGMA * z[before:]
        for t, state in zip(rounds, states(truth, noise, begin(), design, rounds), strict=True):
            for name in [name for name, false in failed.items() if false(state, truth, noise[:t])]:
                values[name][i] = laws.ratio(z[: before + t])
                del failed[name]
            if not failed:
                break
    return {name: summary(found) for name, found in values.items()}


def states(
    f: Tensor, noise: Tensor, state: Posterior, design=DESIGN, rounds=ROUNDS
) -> Iterator[Posterior]:
    """The state after each of the rounds; f [12] at the points."""
    for t in rounds:
        rows = slice(state.n, t)
        state.update(Z[design[rows]], f[design[rows]] + noise[rows])
        yield state


def outside(confidence: Confidence) -> Failed:
    """Whether the function is outside the interval at some point; also if a true assumption is refuted."""

    def failed(state: Posterior, f: Tensor, noise: Tensor) -> bool:
        if isinstance(confidence, c.UnknownNorm) and confidence.norm_bound_on(state) < NORM:
            return False  # nothing is said of these rounds
        try:
            lower, upper = confidence.interval(state, Z)
        except RefutedAssumptions:
            return True
        return not bool(((lower <= f) & (f <= upper)).all())

    return failed


def weights(t: int, ridge: float) -> Tensor:
    """The weights [12 24] of the observations in the mean at the points after t rounds."""
    X, full = Z[DESIGN[:t]], torch.zeros(12, 24, dtype=torch.float64)
    full[:, :t] = torch.linalg.solve(
        gram(KERNEL, X, X) + ridge * torch.eye(t).double(), gram(KERNEL, X, Z)
    ).mT
    return full


def summary(values: list[float]) -> Estimate:
    found = torch.tensor(values, dtype=torch.float64) / DELTA
    return Estimate(
        float(found.mean()),
        float(found.std() / len(found) ** 0.5),
        float((found > 0).double().mean()),
    )


def of_norm(w: Tensor) -> Tensor:
    """The values [12] of the function of norm ``NORM`` that is a multiple of the sum of the ``w_i k(x_i, .)``."""
    K = gram(KERNEL, Z, Z)
    return NORM * (K @ w) / torch.sqrt(w @ K @ w)


def worst_function(bound: Confidence) -> Tensor:
    """The function that is the worst at the point and round where the bound is narrowest."""
    zero, needed = torch.zeros(12).double(), list[tuple[float, int, int, float]]()
    for t, state in zip(ROUNDS, states(zero, torch.zeros(24).double(), empty()), strict=True):
        lower, upper = bound.interval(state, Z)
        ridge, half = bound.ridge(state), (upper - lower) / 2
        needed += [
            (float(half[i] / w.norm()), t, i, ridge) for i, w in enumerate(weights(t, ridge))
        ]
    _, t, i, ridge = min(needed)
    w = zero.index_add(0, DESIGN, -weights(t, ridge)[i])
    w[i] += 1  # the representer of f(x) - mean(x) without noise
    return of_norm(w)


def worst(make: Callable[[], Confidence], count: int) -> Estimate:
    """A bound for a norm, on the function for which it fails most easily."""
    bound = make()
    f, shifts, bound = worst_function(bound), [], make()
    for t, state in zip(ROUNDS, states(f, torch.zeros(24).double(), empty()), strict=True):
        lower, upper = bound.interval(state, Z)
        for i, w in enumerate(weights(t, bound.ridge(state))):
            for side, sign in ((f[i] - lower[i], 1), (upper[i] - f[i], -1)):
                shifts.append(sign * w / w.norm() * side / (SIGMA * w.norm()))
    return estimates({"": lambda: outside(make())}, shifted(torch.stack(shifts)), count, f)[""]


def gaussian(make: Callable[[], Confidence], count: int) -> Estimate:
    """For draws of the process: z are the function, by the root of its covariance, and the noise."""
    root, shifts, bound = torch.linalg.cholesky(gram(KERNEL, Z, Z)), [], make()
    for t, state in zip(
        ROUNDS, states(torch.zeros(12).double(), torch.zeros(24).double(), empty()), strict=True
    ):
        lower, upper = bound.interval(state, Z)
        w = weights(t, SIGMA**2)
        error = torch.cat(
            [(torch.eye(12).double() - w @ torch.eye(12).double()[DESIGN]) @ root, -SIGMA * w], -1
        )
        direction = error / error.norm(dim=-1, keepdim=True)
        reach = ((upper - lower) / 2 / error.norm(dim=-1)).unsqueeze(-1)
        shifts += [reach * direction, -reach * direction]
    laws = shifted(torch.cat(shifts), most=len(ROUNDS) * 24)
    return estimates({"": lambda: outside(make())}, laws, count, lambda z: root @ z)[""]


def mixtures(
    count: int, scale=1.0, kinds: Sequence[str] = ("amm", "dmm", "cmm")
) -> dict[str, Estimate]:
    """The events behind the mixtures, ``|y - f(X)| > R`` and a lower bound of the norm above the norm, and the bounds.

    Noise is drawn from the alternatives of which the mixture is made; the function is constant on the points.
    """
    f = of_norm(torch.linalg.solve(gram(KERNEL, Z, Z), torch.ones(12).double()))
    cases: dict[str, Callable[[], Failed]] = {
        "`squared_radius`": lambda: (
            lambda state, f, noise: bool(noise @ noise > squared_radius(state, SIGMA, DELTA, scale))
        ),
        "`norm_lower_bound`": lambda: (
            lambda state, f, noise: float(norm_lower_bound(state, SIGMA, DELTA, scale)) > NORM
        ),
        **{
            kind.upper(): lambda kind=kind: outside(
                c.MartingaleMixture(SIGMA, NORM, DELTA, kind, scale)
            )
            for kind in kinds
        },
        "UnknownNorm": lambda: outside(c.UnknownNorm(SIGMA, DELTA, scale=scale)),
    }
    return estimates(cases, alternatives(f, mixture_ridges(SIGMA, scale)), count, f)


def unknown_level(variant: str, count: int) -> dict[str, Estimate]:
    """Bounds of the noise level that miss it, and the bounds of the function that are built on them."""
    n = 240 if "mixture" in variant else 600  # the others learn more slowly
    design = torch.randint(12, (n,), generator=torch.Generator().manual_seed(0))
    f = of_norm(torch.linalg.solve(gram(KERNEL, Z, Z), torch.ones(12).double()))
    upper = 1.0 if variant in ("paper", "tight") else None

    def begin() -> AdaptiveRidge:
        bounds = noise_bounds(variant, NORM, DELTA, upper)
        return AdaptiveRidge(KernelRidge(KERNEL, bounds.ridge), bounds)

    def missed(state: Posterior, f: Tensor, noise: Tensor) -> bool:
        return not state.schedule.lower <= SIGMA <= state.schedule.upper

    eye, zero = torch.eye(n).double(), torch.zeros(1, n).double()
    levels = torch.tensor([0.1, 0.2, 0.3, 0.45, 0.55, 0.7, 1.35, 1.6, 2.0, 3.0, 5.0]).double()
    bumps = torch.cat(
        [
            sign * size * gram(KERNEL, Z[::4], Z[design])
            for size in (1, 2, 4, 8, 16)
            for sign in (-1, 1)
        ]
    )
    quiet = torch.tensor([0.5, 0.7, 1.0]).double().repeat_interleave(len(bumps)).view(-1, 1, 1)
    confidence = c.AdaptiveMixture if "mixture" in variant else c.AdaptiveSelfNormalized
    laws: dict[str, tuple[Callable[[], Failed], Laws]] = {
        f"NoiseBounds, {variant}": (
            lambda: missed,
            normal(zero.expand(11, -1), levels.view(-1, 1, 1) * eye),
        ),
        f"{confidence.__name__}, {variant}": (
            lambda: outside(confidence()),
            normal(bumps.repeat(3, 1), quiet * eye),
        ),
    }
    found = {}
    for name, (make, law) in laws.items():
        found |= estimates({name: make}, law, count, f, begin, design, range(20, n + 1, 20))
    return found


def energy_of_noise(strict: bool, count: int, n: int = 400) -> Estimate:
    """The energy of the noise below its lower bound: noise at the edge of the class, tilted as in the mixture."""
    rng, rates = torch.Generator().manual_seed(0), torch.tensor(LEAST_RATES).double()
    least = torch.tensor([averaged(t, DELTA, strict)[0] for t in range(1, n + 1)]).double()
    drawn = rates[torch.randint(len(rates), (count, 1), generator=rng)]
    if strict:  # three points of kurtosis 3
        laplace, tilted = (2 + (-3 * rates).exp()) / 3, 1 / (1 + 2 * (3 * drawn).exp())
        squares = 3 * (torch.rand(count, n, generator=rng, dtype=torch.float64) < tilted)
    else:
        laplace = (1 + 2 * rates) ** -0.5
        squares = torch.randn(count, n, generator=rng, dtype=torch.float64).square() / (
            1 + 2 * drawn
        )
    energy = squares.cumsum(-1)
    first, values = (energy < least).double().argmax(-1), []
    for S, t in zip(energy, first.tolist(), strict=True):
        log_ratio = torch.logsumexp(-rates * S[t] - (t + 1) * laplace.log(), 0) - math.log(
            len(rates)
        )
        values.append(math.exp(-float(log_ratio)) if S[t] < least[t] else 0.0)
    return summary(values)


def check(found: Estimate) -> None:
    assert found.ratio + 4 * found.error <= 1
    assert found.failed > 0.02  # the draws do reach the event


@pytest.mark.parametrize("name", ["SelfNormalized", "AMM, the worst function"])
def test_bounds_for_a_norm_fail_no_more_often_than_stated(name):
    check(worst(SUB_GAUSSIAN[name], 20))


@pytest.mark.parametrize("name", ["FiniteSet, mixture", "Chaining, rigorous"])
def test_bounds_for_a_gaussian_process_fail_no_more_often_than_stated(name):
    check(gaussian(GAUSSIAN[name], 30))


@pytest.mark.parametrize("scale", once([1.0, MIXED_SCALES]))
def test_the_events_behind_the_mixtures_fail_no_more_often_than_stated(scale):
    for found in mixtures(15, scale, ("amm",)).values():
        check(found)


@pytest.mark.thorough
def test_bounds_of_an_unknown_noise_level_fail_no_more_often_than_stated():
    for found in unknown_level("mixture", 6).values():
        check(found)


@pytest.mark.parametrize("strict", [True, False])
def test_the_energy_of_the_noise_is_below_its_bound_no_more_often_than_stated(strict):
    check(energy_of_noise(strict, 300))


def test_a_bound_that_is_too_narrow_is_seen():
    assert gaussian(lambda: c.FiniteSet(1, 20 * DELTA), 30).ratio > 1


def rows(part: str, count: int) -> Iterator[tuple[str, Estimate]]:
    """The rows of a part of the table in docs/reliability.md."""
    if part == "norm":
        yield from ((name, worst(make, count)) for name, make in SUB_GAUSSIAN.items())
    elif part == "gaussian":
        yield from ((name, gaussian(make, count)) for name, make in GAUSSIAN.items())
    elif part == "mixtures":
        for text, scale in (("", 1.0), (", `MIXED_SCALES`", MIXED_SCALES)):
            yield from ((name + text, found) for name, found in mixtures(count // 2, scale).items())
    elif part == "energy":
        for strict in (True, False):
            yield (
                f"energy of the noise, {'strict' if strict else 'Gaussian'}",
                energy_of_noise(strict, 10 * count),
            )
    else:
        yield from unknown_level(part, count // 4).items()


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    for part in sys.argv[2:] or ["norm", "gaussian", "mixtures", "energy", *UNKNOWN_LEVEL]:
        for name, found in rows(part, count):
            print(
                f"| {name} | {found.ratio:.2g} | {found.error:.1g} | {found.failed:.0%} |",
                flush=True,
            )
