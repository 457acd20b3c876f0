"""The recursion of online noise bounds, dense and as on paper, in extended precision; only ``noise_bounds`` is kbo's.

Durand, Maillard & Pineau (2018), Sec. 4 and 5, with the corrections of the specification; "mixture" rests on eq. 8 of
Flynn & Reeb (2024). ``K`` [T T] is the kernel matrix of all data in their order. In
extended precision: where kbo and this recursion differ it is kbo that lacks digits, as far as K itself has them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import logsumexp

from experiments.durand_noise import DurandNoiseBounds
from kbo.confidence import MixtureNoiseBounds, NoiseBounds, NoiseLevel

N_MIXTURE = 12
"""Ridges of the mixture, each a quarter of the one before."""


@dataclass(frozen=True)
class Step:
    """What is known after t observations. ``D``, ``radius`` and ``rss`` are at ``ridge``."""

    t: int
    upper: float
    lower: float
    ridge: float
    rss: float
    gamma: float
    D: float
    radius: float

    @property
    def sh(self) -> float:
        return math.sqrt(self.rss / self.t) if self.t else 0.0


class Fit:
    """The ridge regression of the first t targets at one ridge, from one Cholesky factor for every t."""

    def __init__(self, K: np.ndarray, y: np.ndarray, ridge: float) -> None:
        K, self.ridge = K.astype(np.longdouble), np.longdouble(ridge)
        n = len(y)
        self.L, self.z = np.zeros_like(K), np.zeros(n, np.longdouble)
        for j in range(n):
            column = K[j:, j] - self.L[j:, :j] @ self.L[j, :j]
            column[0] += self.ridge
            self.L[j:, j] = column / np.sqrt(column[0])
            self.z[j] = (y[j] - self.L[j, :j] @ self.z[:j]) / self.L[j, j]

    def log_det(self, t: int) -> float:
        """``ln det(I + K / ridge)``."""
        return float(np.sum(2 * np.log(np.diagonal(self.L)[:t]) - np.log(self.ridge)))

    def quad(self, t: int) -> float:
        """``ridge y'(K + ridge I)^-1 y``."""
        return float(self.ridge * self.z[:t] @ self.z[:t])

    def rss(self, t: int) -> float:
        """``|y - K (K + ridge I)^-1 y|^2 = ridge^2 |(K + ridge I)^-1 y|^2``."""
        x = self.z[:t].copy()
        for j in reversed(range(t)):
            x[j] /= self.L[j, j]
            x[:j] -= self.L[j, :j] * x[j]
        return float(self.ridge**2 * (x @ x))


def printed_deviation(t: int, delta: float) -> float:
    """``C_t``, with the c_t that the proof needs."""
    c = math.log(math.pi**2 * (1 + math.log(t)) ** 2 / 6)
    return math.log(math.e / delta) * (1 + c / math.log(1 / delta))


def paper_bounds(t, sh, lam, D, C, delta, error):
    """Raw lower and upper bound, Theorem 3 (case 2)."""
    C_t = printed_deviation(t, delta)
    X = C * math.sqrt(lam * D + missed(lam, D, error, (1 + math.sqrt(2 * C_t / t)) ** 2 * t))
    lower = (sh - C * math.sqrt(squared_bias(lam, error) / t)) / (1 + math.sqrt(2 * C_t / t))
    alpha = max(0.0, 1 - math.sqrt(C_t / t) - math.sqrt((C_t + 2 * D) / t))
    if alpha == 0:
        return lower, math.inf
    return lower, (math.sqrt(sh * alpha + X / (2 * t)) + math.sqrt(X / (2 * t))) ** 2 / alpha**2


def stitched(t: int, delta: float) -> tuple[float, float]:
    """Least and most ``|xi|^2 / sigma^2``."""
    L = math.log(1 / delta) + math.log(math.pi**2 * (1 + math.floor(math.log(t))) ** 2 / 6)
    eta = (math.exp(1 / 4) + math.exp(-1 / 4)) / 2
    return t * (1 - 2 * eta * math.sqrt(L / t)), t * (1 + 2 * eta * math.sqrt(L / t) + 2 * L / t)


def tight_bounds(t, sh, lam, D, C, delta, error):
    """Raw lower and upper bound by the exact root."""
    least, most = stitched(t, delta)
    X = C * math.sqrt(lam * D + missed(lam, D, error, most))
    lower = (sh - C * math.sqrt(squared_bias(lam, error) / t)) / math.sqrt(most / t)
    a, b = least / t - 2 * D / t, 2 * X / t
    return lower, (b + math.sqrt(b**2 + 4 * a * sh**2)) / (2 * a) if a > 0 else math.inf


@cache
def squared_bias(lam: float, error: float) -> float:
    """Largest squared length of noiseless residuals, norm 1: a numerical maximum over the eigenvalues of the sketch."""

    def negative(log_ratio: float) -> float:
        eigenvalue = lam * math.exp(log_ratio)
        return -(lam**2) * (eigenvalue + error) / (eigenvalue + lam) ** 2

    found = minimize_scalar(negative, bounds=(-40, 10), method="bounded", options={"xatol": 1e-9})
    return max(-found.fun, error)


def missed(lam, D, error, most):
    """What the part of the function that a sketch does not see adds to ``X^2 / C^2``."""
    return (
        min(D * (math.sqrt(lam + error) + math.sqrt(32 * error / 27)) ** 2, most * error)
        if error
        else 0.0
    )


def averaged(t: int, delta: float, strict: bool) -> tuple[float, float]:
    """Least and most ``|xi|^2 / sigma^2``: the average of supermartingales at 12 rates each stays below 1 / delta.

    For noise of variance 1 ``E exp(r xi^2) <= (1 - 2 r)^-1/2`` and ``E exp(-r xi^2)`` is at most ``(1 + 2 r)^-1/2``, or
    if it is just strictly sub-Gaussian that of three points.
    """
    low, high = 2.0 / 2.0 ** np.arange(12), 0.45 / 2.0 ** np.arange(12)
    laplace = 2 / 3 + np.exp(-3 * low) / 3 if strict else (1 + 2 * low) ** -0.5
    logs = -t * np.log(laplace), t / 2 * np.log(1 - 2 * high)
    return (
        brentq(lambda S: logsumexp(logs[0] - low * S, b=delta / 12), -1e4, t),
        brentq(lambda S: logsumexp(logs[1] + high * S, b=delta / 12), 0.0, 100.0 * t + 1e4),
    )


def hadamard(residuals, ridge: float) -> float:
    """Hadamard's bound of what a sketch misses of the log-determinant."""
    return float(np.log1p(residuals / ridge).sum())


def recursion(
    K,
    y,
    C,
    delta,
    upper=None,
    lower=0.0,
    variant="tight+grid",
    largest_ridge=None,
    sketch=None,
    errors=None,
) -> list[Step]:
    """Every state of the noise bounds, t = 0 .. T.

    Args:
        K: Kernel matrix [T T].
        y: Targets [T].
        C: Norm bound.
        delta: Probability of each of the three events, a third of what a user passes.
        upper: Known upper bound of the noise level, None if there is none.
        lower: Known lower bound.
        variant: "paper", "tight", "tight+grid", "mixture" or "mixture+strict".
        largest_ridge: First ridge of the grid; by default ``upper^2 / C^2`` for "tight+grid", and else 1.
        sketch: Nystrom matrices [t t], t = 0 .. T; None if exact.
        errors: Operator norm of ``K_t - sketch_t`` and its diagonal, repeats merged, t = 0 .. T; None if exact.
    """
    K, y = np.asarray(K), np.asarray(y)
    fitted = [K[:t, :t] for t in range(len(y) + 1)] if sketch is None else sketch
    errors = [(0.0, np.zeros(0))] * (len(y) + 1) if errors is None else errors
    floors = np.maximum.accumulate(1e-10 * np.diagonal(K))
    moving = sketch is not None or variant in ("paper", "tight")

    @cache
    def fit_of(ridge: float, t: int) -> Fit:
        return Fit(fitted[t], y[:t], ridge)

    def fit(ridge: float, t: int) -> Fit:
        """A ridge that moves at every step is fitted to the data so far only; one of a grid once for all t."""
        return fit_of(ridge, t if moving else len(y))

    strict = partial(_mixture, strict=True)
    run = {
        "paper": _sandwich,
        "tight": _sandwich,
        "tight+grid": _grid,
        "mixture": _mixture,
        "mixture+strict": strict,
    }
    sp, lam0 = math.inf if upper is None else upper, largest_ridge
    if lam0 is None:
        lam0 = sp**2 / C**2 if "mixture" not in variant and upper is not None else 1.0
    raw = paper_bounds if variant == "paper" else tight_bounds
    return list(
        run[variant](fit, len(y), C, delta, sp, lower, lam0, errors, [0.0, *floors.tolist()], raw)
    )


def _sandwich(fit, T, C, delta, sp, sm, lam0, errors, floors, raw):
    """Section 5 of the specification, with one event of probability delta for the deviation at the least ridge."""
    lam, log = sp**2 / C**2, 2 * math.log(1 / delta)
    yield Step(0, sp, sm, lam, 0.0, 0.0, log, math.sqrt(lam) * C + sp * math.sqrt(log))
    for t in range(1, T + 1):
        error, residuals = errors[t]
        sh = math.sqrt(fit(lam, t).rss(t) / t)
        raw_lower = raw(t, sh, lam, 0.0, C, delta, error)[0]  # it does not depend on D
        sm = max(sm, raw_lower)
        least = max(sm**2 / C**2, floors[t])
        D = log + fit(least, t).log_det(t) + hadamard(residuals, least)
        raw_upper = raw(t, sh, lam, D, C, delta, error)[1]
        sp = min(sp, raw_upper)
        lam = max(sp**2 / C**2, floors[t])
        now, radius = fit(lam, t), math.sqrt(lam) * C + sp * math.sqrt(D)
        yield Step(t, sp, sm, lam, now.rss(t), now.log_det(t) / 2, D, radius)


def _grid(fit, T, C, delta, sp, sm, lam0, errors, floors, raw):
    """Ridges ``lam0 2^-j``, each with an event of probability ``6 delta / (pi^2 (j + 1)^2)``."""

    def follow(sp: float, floor: float) -> int:
        j = 0
        while lam0 * 2.0 ** -(j + 1) >= max(sp**2 / C**2, floor):
            j += 1
        return j

    def deviation(j: int, t: int) -> float:
        ridge, delta_j = lam0 * 2.0**-j, 6 * delta / (math.pi**2 * (j + 1) ** 2)
        return 2 * math.log(1 / delta_j) + (
            fit(ridge, t).log_det(t) + hadamard(errors[t][1], ridge) if t else 0.0
        )

    def step(t: int, j: int) -> Step:
        lam, D = lam0 * 2.0**-j, deviation(j, t)
        rss, gamma = (fit(lam, t).rss(t), fit(lam, t).log_det(t) / 2) if t else (0.0, 0.0)
        return Step(t, sp, sm, lam, rss, gamma, D, math.sqrt(lam) * C + sp * math.sqrt(D))

    j = follow(sp, floors[0])
    yield step(0, j)
    for t in range(1, T + 1):
        lam = lam0 * 2.0**-j
        sh = math.sqrt(fit(lam, t).rss(t) / t)
        raw_lower, raw_upper = raw(t, sh, lam, deviation(j, t), C, delta, errors[t][0])
        sm, sp = max(sm, raw_lower), min(sp, raw_upper)
        j = follow(sp, floors[t])
        yield step(t, j)


def _mixture(fit, T, C, delta, sp, sm, lam0, errors, floors, raw, strict=False):
    """One average of the martingales at ridges ``lam0 4^-j``."""
    log = 2 * math.log(1 / delta)
    yield Step(0, sp, sm, lam0, 0.0, 0.0, log, sp * math.sqrt(log))
    for t in range(1, T + 1):
        error, residuals = errors[t]
        ridges = [max(lam0 * 4.0**-j, floors[t]) for j in range(N_MIXTURE)]
        quads = np.array([fit(a, t).quad(t) for a in ridges])
        D = np.array([fit(a, t).log_det(t) + hadamard(residuals, a) for a in ridges])
        least, most = averaged(t, delta, strict)

        def square(level2, quads=quads, D=D):
            """The squared radius at a noise level, over its square."""
            return log - 2 * logsumexp(-quads / (2 * level2) - D / 2, b=1 / N_MIXTURE)

        def excess(log_level2, square=square, least=least):
            return square(math.exp(log_level2)) - least

        around, raw_upper = math.log(float(quads.max())), math.inf
        if square(math.inf) < least:
            raw_upper = math.exp(brentq(excess, around - 40, around + 40, xtol=1e-14) / 2)
        lowers = [
            max(math.sqrt(max(quad - a * C**2, 0.0)) - C * math.sqrt(error), 0.0) ** 2 / most
            for a, quad in zip(ridges, quads, strict=True)
        ]
        raw_lower = math.sqrt(max(lowers))
        sp, sm = min(sp, raw_upper), max(sm, raw_lower)
        squares = (quads + sp**2 * D).tolist()
        j = squares.index(min(squares)) if math.isfinite(sp) else 0
        a = ridges[j]
        radius = math.sqrt(sp**2 * square(sp**2)) if math.isfinite(sp) else math.inf
        rss, gamma = fit(a, t).rss(t), fit(a, t).log_det(t) / 2
        yield Step(t, sp, sm, a, rss, gamma, D[j] + log, radius)


def noise_bounds(
    variant: str,
    norm_bound: float,
    delta: float,
    upper: float | None = None,
    lower: float = 0.0,
    first=None,
) -> NoiseLevel:
    """Return the bounds of ``run`` of this variant; ``first`` is the largest ridge."""
    if variant in ("paper", "tight"):
        return DurandNoiseBounds(norm_bound, delta, upper, lower, printed=variant == "paper")
    if variant == "tight+grid":
        return NoiseBounds(norm_bound, delta, upper, lower, first)
    return MixtureNoiseBounds(
        norm_bound, delta, upper, lower, first, strict=variant == "mixture+strict"
    )
