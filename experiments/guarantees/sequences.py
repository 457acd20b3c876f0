"""Random sequences of legal calls: guarantees must not be wrong more often than they say.

    python -m experiments.guarantees.sequences 5000 [--seed 0] [--group posteriors] [--only 17]

Each sequence takes a function at the edge of its norm bound (or a draw of the prior), makes calls as a user might,
and compares every statement that is guaranteed at the end with the truth. A call that kbo refuses is skipped. The
number of wrong statements of a kind may not exceed what delta allows, up to a probability of one in a million.
``--only`` replays one sequence.
"""

from __future__ import annotations

import argparse
import logging
import math
import random
import sys
import time
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import NamedTuple

import torch
from scipy.stats import poisson

from experiments.guarantees.attacks.play import Play
from experiments.guarantees.attacks.posteriors import posteriors, rounding
from experiments.guarantees.attacks.runs import models, settings

RARE = 1e-6
"""The probability with which a valid bound may fail this test."""

GROUPS: dict[str, tuple[Callable[[Play], None], float]] = {
    "posteriors": (posteriors, 0.6),
    "rounding": (rounding, 0.06),
    "models": (models, 0.16),
    "settings": (settings, 0.12),
}
"""How to play a sequence of each group, and its share of all sequences."""


class Statement(NamedTuple):
    """What a sequence said at its end: wrong or not, or None without a guarantee."""

    number: int
    delta: float
    wrong: bool | None
    moves: list[str]


class Report:
    """Statements by group and kind, refused calls and CPU seconds by group, and unexpected errors."""

    def __init__(self) -> None:
        self.statements: dict[tuple[str, str], list[Statement]] = defaultdict(list)
        self.refused: Counter[str] = Counter()
        self.seconds: dict[str, float] = defaultdict(float)
        self.errors: list[str] = []

    def guaranteed(self) -> int:
        """Return the number of statements with a guarantee."""
        return sum(s.wrong is not None for found in self.statements.values() for s in found)

    def __str__(self) -> str:
        lines = [
            f"{'group':12} {'statement':28} {'sequences':>9} {'guaranteed':>10} {'outside':>8} {'allowed':>8}"
        ]
        for (group, kind), found in sorted(self.statements.items()):
            deltas = [s.delta for s in found if s.wrong is not None]
            counts = f"{len(found):9} {len(deltas):10} {sum(bool(s.wrong) for s in found):8} {allowed(deltas):8}"
            lines.append(f"{group:12} {kind:28} {counts}")
        lines += [f"{group} {kind}: VIOLATED" for group, kind in self.violations()]
        for (group, kind), found in sorted(self.statements.items()):
            wrong = [s for s in found if s.wrong]
            lines += [
                f"outside: --group {group} --only {s.number}: {kind}: {'; '.join(s.moves)}"
                for s in wrong
            ]
        times = [
            f"{group}: {used:.0f} CPU s, {self.refused[group]} calls refused"
            for group, used in self.seconds.items()
        ]
        return "\n".join(lines + self.errors + times)

    def violations(self) -> list[tuple[str, str]]:
        """Return the kinds of statements that are wrong too often, and groups that are with all kinds together."""
        together: dict[tuple[str, str], list[Statement]] = defaultdict(list)
        for (group, kind), found in self.statements.items():
            together[group, kind] += found
            together[group, "all"] += found
        return [
            key
            for key, found in together.items()
            if sum(bool(s.wrong) for s in found)
            > allowed([s.delta for s in found if s.wrong is not None])
        ]


def allowed(deltas: list[float]) -> int:
    """The number of wrong statements that failure probabilities allow."""
    return int(poisson.isf(RARE, sum(deltas)))


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
        report.errors.append(
            f"error: --group {group} --only {number}: {text}: {'; '.join(sequence.moves)}"
        )
    report.seconds[group] += time.process_time() - begun
    report.refused[group] += sequence.refused
    for kind, delta, wrong in sequence.verdicts:
        report.statements[group, kind].append(Statement(number, delta, wrong, sequence.moves))
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
    parser = argparse.ArgumentParser(
        prog="python -m experiments.guarantees.sequences", description=__doc__
    )
    parser.add_argument("n", type=int, nargs="?", default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--group", action="append", choices=list(GROUPS))
    parser.add_argument("--only", type=int, help="replay this sequence of the group")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    if arguments.only is not None:
        report = Report()
        sequence = play(arguments.group[0], arguments.seed, arguments.only, report)
        print("\n".join(sequence.moves))
    else:
        report = run(arguments.n, arguments.seed, arguments.group)
    print(report)
    return bool(report.violations() or report.errors)


if __name__ == "__main__":
    sys.exit(main())
