"""Random sequences of legal calls: guarantees must not be wrong more often than they say.

    python -m tests.attacks.sequences 5000 [--seed 0] [--group posteriors] [--only 17]

Each sequence takes a function at the edge of its norm bound (or a draw of the prior), makes calls as a user might,
and compares every statement that is guaranteed at the end with the truth. A call that kbo refuses is skipped. The
number of wrong statements of a kind may not exceed what delta allows, up to a probability of one in a million.
``--only`` replays one sequence.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
import traceback
import warnings
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from scipy.stats import binom, poisson

from tests.attacks.integrations import in_ax, in_optuna
from tests.attacks.play import Play
from tests.attacks.posteriors import posteriors, rounding
from tests.attacks.runs import models, settings

RARE = 1e-6
"""The probability with which a valid bound may fail this test."""

GROUPS: dict[str, tuple[Callable[[Play], None], float]] = {
    "posteriors": (posteriors, 0.6),
    "rounding": (rounding, 0.06),
    "models": (models, 0.16),
    "settings": (settings, 0.12),
    "optuna": (in_optuna, 0.05),
    "ax": (in_ax, 0.01),
}
"""How to play a sequence of each group, and its share of all sequences."""


@dataclass
class Row:
    """Counts of one kind of statement."""

    sequences: int = 0
    guaranteed: int = 0
    wrong: list[tuple[str, int, list[str]]] = field(default_factory=list)
    delta: float = 0.0

    @property
    def allowed(self) -> int:
        """The number of wrong statements that delta allows."""
        return int(binom.isf(RARE, self.guaranteed, self.delta)) if self.guaranteed else 0

    @property
    def violated(self) -> bool:
        """Whether there are more."""
        return len(self.wrong) > self.allowed


@dataclass
class Report:
    """Counts by group and kind of statement, refused calls by group, and unexpected errors."""

    rows: dict[tuple[str, str], Row] = field(default_factory=lambda: defaultdict(Row))
    refused: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    errors: list[tuple[str, int, list[str], str]] = field(default_factory=list)

    def violations(self) -> list[tuple[str, str]]:
        """Return the kinds of statements that are wrong too often, and groups that are with all kinds together."""
        found = [key for key, row in self.rows.items() if row.violated]
        for group in {group for group, _ in self.rows}:
            rows = [row for key, row in self.rows.items() if key[0] == group]
            allowed = int(poisson.isf(RARE, sum(row.guaranteed * row.delta for row in rows)))
            found += [(group, "all")] * (sum(len(row.wrong) for row in rows) > allowed)
        return found

    def __str__(self) -> str:
        lines = [f"{'group':12} {'statement':28} {'sequences':>9} {'guaranteed':>10} {'outside':>8} {'allowed':>8}"]
        for (group, kind), row in sorted(self.rows.items()):
            counts = f"{row.sequences:9} {row.guaranteed:10} {len(row.wrong):8} {row.allowed:8}"
            lines.append(f"{group:12} {kind:28} {counts}" + "  VIOLATED" * row.violated)
        lines += [f"{group} {kind}: VIOLATED" for group, kind in self.violations()]
        for (group, kind), row in sorted(self.rows.items()):
            lines += [
                f"outside: --group {group} --only {number}: {kind}: {'; '.join(moves)}"
                for _, number, moves in row.wrong
            ]
        for group, number, moves, error in self.errors:
            lines.append(f"error: --group {group} --only {number}: {error}: {'; '.join(moves)}")
        for group, seconds in self.seconds.items():
            lines.append(f"{group}: {seconds:.0f} CPU s, {self.refused[group]} calls refused")
        return "\n".join(lines)


def play(group: str, seed: int, number: int, report: Report) -> Play:
    """Play one sequence, and count what came of it."""
    sequence = Play(random.Random(f"{group} {seed} {number}"))
    torch.manual_seed(number)
    begun = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            GROUPS[group][0](sequence)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {str(error)[:200]} ({where.filename.rsplit('/', 1)[-1]}:{where.lineno})"
        report.errors.append((group, number, sequence.moves, text))
    report.seconds[group] += time.process_time() - begun
    report.refused[group] += sequence.refused
    for kind, delta, wrong in sequence.verdicts:
        row = report.rows[group, kind]
        row.sequences += 1
        row.guaranteed += wrong is not None
        row.delta = max(row.delta, delta)
        if wrong:
            row.wrong.append((group, number, list(sequence.moves)))
    return sequence


def run(n: int, seed: int = 0, groups: list[str] | None = None) -> Report:
    """Play n sequences, shared among the groups."""
    chosen, report = groups or list(GROUPS), Report()
    total = sum(GROUPS[group][1] for group in chosen)
    for group in chosen:
        for number in range(math.ceil(n * GROUPS[group][1] / total)):
            play(group, seed, number, report)
    return report


def main() -> int:
    """Run as a command."""
    parser = argparse.ArgumentParser(prog="python -m tests.attacks.sequences", description=__doc__)
    parser.add_argument("n", type=int, nargs="?", default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--group", action="append", choices=list(GROUPS))
    parser.add_argument("--only", type=int, help="replay this sequence of the group")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.only is not None:
        report = Report()
        sequence = play(arguments.group[0], arguments.seed, arguments.only, report)
        print("\n".join(sequence.moves))
    else:
        report = run(arguments.n, arguments.seed, arguments.group)
    print(report)
    return bool(report.violations())


if __name__ == "__main__":
    sys.exit(main())
