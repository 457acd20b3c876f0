"""Figures of docs/reliability.md about safe exploration: violations, safe sets and regret of different bounds.

``python -m experiments.guarantees.safe RUNS [FILE]``; runs that are already in the file are not repeated.
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
    candidate_gap,
)

ROUNDS = 40
N_ARMS = 100
NOISE = 0.1
DELTA = 0.1

SEED = 120_000
"""Seed of the first run."""

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
    """Return violations, safe set and regret of safe exploration of one function with one of the ``bounds``.

    The function itself is limited from below, by its 30% quantile over the arms. The start has the 60% quantile.
    """
    kernel, lengthscale = KERNELS[seed % 4]
    norm = NORMS[seed // 4 % 3]
    bandit = RKHSBandit(kernel, lengthscale, 2, norm, NOISE, N_ARMS, fixed=True, seed=SEED + seed)
    X = bandit.fixed_arms
    f = bandit.mean(X)
    limit = float(f.quantile(0.3))
    arm = int(f.argsort()[6 * N_ARMS // 10])
    is_start = torch.zeros(N_ARMS, dtype=torch.bool)
    is_start[arm] = True
    safe_set = SafeSet(X, is_start)
    confidence = bounds(norm)[name]
    state = KernelRidge(bandit.kernel, NOISE**2)
    violations = 0
    for _ in range(rounds):
        violations += bool(f[arm] < limit)
        x = X[arm].unsqueeze(0)
        state.update(x, bandit.observe(x))
        safe_set.update([Limit(state, confidence, lower=limit)])
        arm = safe_set.widest(state, confidence)
    in_set = safe_set.safe.nonzero()[:, 0]
    recommended = in_set[candidate_gap(confidence, state, X[in_set]).recommended]
    is_safe = f >= limit
    return {
        "norm": norm,
        "violations": violations,
        "unsafe in S": int((f[in_set] < limit).sum()),
        "part of the safe points in S": float((safe_set.safe & is_safe).sum() / is_safe.sum()),
        "regret": float((f.max() - f[recommended]) / (f.max() - f.min())),
    }


def main(runs: int, path: Path, rounds: int = ROUNDS) -> None:
    """Make all runs that are missing, and print the table."""
    rows = []
    if path.exists():
        rows = [json.loads(line) for line in path.read_text().splitlines()]
    done = {(row["seed"], row["bound"]) for row in rows}
    with path.open("a") as file:
        for seed in range(runs):
            for name in bounds(norm=1.0):
                if (seed, name) in done:
                    continue
                row = {"seed": seed, "bound": name, **play(seed, name, rounds)}
                rows.append(row)
                print(json.dumps(row), file=file, flush=True)
    print_table([row for row in rows if row["seed"] < runs])


TITLES = (
    "bound",
    "runs that violate",
    "by norm",
    "evaluations",
    "unsafe points in S",
    "part of S",
    "by norm",
    "regret",
)
"""Columns of the table."""


def print_table(rows: list[dict]) -> None:
    """Print a line for each bound that has runs with every norm."""
    print(" | ".join(TITLES))
    for name in bounds(norm=1.0):
        own = [row for row in rows if row["bound"] == name]
        by_norm = [[row for row in own if row["norm"] == norm] for norm in NORMS]
        if all(by_norm):
            print(" | ".join([name, *cells_of(own, by_norm)]))


def cells_of(rows: list[dict], by_norm: list[list[dict]]) -> list[str]:
    """Return the cells of the runs of one bound under the ``TITLES`` after the first."""
    violations_by_norm = [str(count_violating(some)) for some in by_norm]
    parts_by_norm = [f"{mean_part(some):.2f}" for some in by_norm]
    regrets = [row["regret"] for row in rows]
    return [
        f"{count_violating(rows)} of {len(rows)}",
        " / ".join(violations_by_norm),
        f"{100 * mean(row['violations'] for row in rows) / ROUNDS:.2g}%",
        f"{sum(row['unsafe in S'] > 0 for row in rows)}",
        f"{mean_part(rows):.2f}",
        " / ".join(parts_by_norm),
        f"{mean(regrets):.2f}, {median(regrets):.3f}",
    ]


def count_violating(rows: list[dict]) -> int:
    """Return the number of runs with an evaluation that breaks the limit."""
    return sum(row["violations"] > 0 for row in rows)


def mean_part(rows: list[dict]) -> float:
    """Return the mean share of the safe points that the safe set contains."""
    return mean(row["part of the safe points in S"] for row in rows)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(*sys.argv[2:] or ["safe.jsonl"]))
