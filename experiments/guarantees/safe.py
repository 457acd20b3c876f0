"""Figures of docs/reliability.md about safe exploration: violations, safe sets and regret of different bounds.

``python -m experiments.guarantees.safe RUNS [FILE]``; runs that are in the file already are not made again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import mean, median

import torch

from experiments.problems import RKHSBandit
from kbo import KernelRidge
from kbo.bandit.safe import SafeSet
from kbo.confidence import (
    Confidence,
    FiniteSet,
    FixedWidth,
    ImprovedGPUCB,
    Limit,
    MartingaleMixture,
    SelfNormalized,
    optimality_gap,
)

ROUNDS, N_ARMS, NOISE, DELTA, SEED = 40, 100, 0.1, 0.1, 120_000
KERNELS = [("rbf", 0.3), ("matern52", 0.4), ("matern32", 0.5), ("rbf", 0.5)]
NORMS = [2.0, 5.0, 10.0]


def bounds(norm: float) -> dict[str, Confidence]:
    """Return the bounds by name."""
    return {
        "CMM": MartingaleMixture(NOISE, norm, DELTA),
        "beta = 2": FixedWidth(2.0),
        "Srinivas": FiniteSet(N_ARMS, DELTA, "paper"),
        "AY": SelfNormalized(NOISE, norm, DELTA),
        "Chowdhury & Gopalan": ImprovedGPUCB(NOISE, norm, DELTA, 2 / ROUNDS),
    }


def play(seed: int, name: str, rounds: int = ROUNDS) -> dict[str, float]:
    """Explore one function safely, and return what the run did.

    The function is its own limit, from below at its 30% quantile over the arms; the start has its 60% quantile.
    """
    (kernel, lengthscale), norm = KERNELS[seed % 4], NORMS[seed // 4 % 3]
    bandit = RKHSBandit(kernel, lengthscale, 2, norm, NOISE, N_ARMS, fixed=True, seed=SEED + seed)
    X = bandit.fixed_arms
    f, confidence, state = bandit.mean(X), bounds(norm)[name], KernelRidge(bandit.kernel, NOISE**2)
    h, start = float(f.quantile(0.3)), int(f.argsort()[6 * N_ARMS // 10])
    given = torch.zeros(N_ARMS, dtype=torch.bool)
    given[start] = True
    found, row, violations = SafeSet(X, given), start, 0
    for _ in range(rounds):
        violations += bool(f[row] < h)
        state.update(X[row : row + 1], bandit.observe(X[row : row + 1]))
        found.update([Limit(state, confidence, lower=h)])
        row = found.widest(state, confidence)
    inside = found.safe.nonzero()[:, 0]
    best = int(inside[optimality_gap(confidence, state, X[inside]).recommended])
    return {
        "norm": norm,
        "violations": violations,
        "unsafe in S": int((f[inside] < h).sum()),
        "part of the safe points in S": float((found.safe & (f >= h)).sum() / (f >= h).sum()),
        "regret": float((f.max() - f[best]) / (f.max() - f.min())),
    }


def main(runs: int, path: Path, rounds: int = ROUNDS) -> None:
    """Make all runs that are missing, and print the table."""
    done = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    known = {(row["seed"], row["bound"]) for row in done}
    with path.open("a") as file:
        for seed, name in ((seed, name) for seed in range(runs) for name in bounds(1.0)):
            if (seed, name) not in known:
                done.append({"seed": seed, "bound": name, **play(seed, name, rounds)})
                print(json.dumps(done[-1]), file=file, flush=True)
    table([row for row in done if row["seed"] < runs])


def table(rows: list[dict]) -> None:
    """Print for each bound what its runs did, in all and by norm."""
    part = "part of the safe points in S"
    print(
        "bound | runs that violate | by norm | evaluations | unsafe points in S | part of S | by norm | regret"
    )
    for name in bounds(1.0):
        own = [row for row in rows if row["bound"] == name]
        by_norm = [[row for row in own if row["norm"] == norm] for norm in NORMS]
        if all(by_norm):
            cells = [
                name,
                f"{_violate(own)} of {len(own)}",
                " / ".join(str(_violate(some)) for some in by_norm),
            ]
            cells.append(f"{100 * mean(row['violations'] for row in own) / ROUNDS:.2g}%")
            cells += [
                f"{sum(row['unsafe in S'] > 0 for row in own)}",
                f"{mean(row[part] for row in own):.2f}",
            ]
            cells.append(" / ".join(f"{mean(row[part] for row in some):.2f}" for some in by_norm))
            cells.append(
                f"{mean(row['regret'] for row in own):.2f}, {median(row['regret'] for row in own):.3f}"
            )
            print(" | ".join(cells))


def _violate(rows: list[dict]) -> int:
    return sum(row["violations"] > 0 for row in rows)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2] if len(sys.argv) > 2 else "safe.jsonl"))
