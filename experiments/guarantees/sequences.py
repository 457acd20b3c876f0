"""Random sequences of legal calls: guarantees must not be wrong more often than they say.

    python -m experiments.guarantees.sequences 5000 [--seed 0] [--group posteriors] [--only 17]

Each sequence takes a function whose norm is nearly its bound (or a draw of the prior), makes calls as a user might,
and compares each guaranteed statement at the end with the truth. A call that kbo refuses is skipped. The number of
wrong statements of a kind must be plausible for delta, at a level of one in a million. ``--only`` replays one sequence.
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
from pathlib import Path
from typing import NamedTuple

import torch
from scipy.stats import poisson

from experiments.guarantees.attacks.models import models
from experiments.guarantees.attacks.play import Play
from experiments.guarantees.attacks.posteriors import posteriors, rounding
from experiments.guarantees.attacks.settings import settings

RARE = 1e-6
"""The probability with which a valid bound may fail this test."""

GROUPS: dict[str, tuple[Callable[[Play], None], float]] = {
    "posteriors": (posteriors, 0.6),
    "rounding": (rounding, 0.06),
    "models": (models, 0.16),
    "settings": (settings, 0.12),
}
"""By group, the function that plays a sequence, and the share of all sequences."""


class Statement(NamedTuple):
    """A statement at the end of one sequence.

    Attributes:
        number: The number of the sequence in its group.
        delta: The probability with which the statement may be wrong.
        wrong: Whether it is wrong; None without a guarantee.
        moves: The names of the calls of the sequence.
    """

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
        return sum(len(with_guarantee(statements)) for statements in self.statements.values())

    def violations(self) -> list[tuple[str, str]]:
        """Return group and kind of statements that are wrong too often; kind "all" means all statements of a group."""
        statements: dict[tuple[str, str], list[Statement]] = defaultdict(list)
        for (group, kind), of_kind in self.statements.items():
            statements[group, kind] += of_kind
            statements[group, "all"] += of_kind
        return [key for key, some in statements.items() if count_wrong(some) > count_allowed(some)]

    def __str__(self) -> str:
        violated = [f"{group} {kind}: VIOLATED" for group, kind in self.violations()]
        lines = [*self._table(), *violated, *self._wrong_sequences(), *self.errors]
        for group, seconds in self.seconds.items():
            lines.append(f"{group}: {seconds:.0f} CPU s, {self.refused[group]} calls refused")
        return "\n".join(lines)

    def _table(self) -> list[str]:
        """Return the lines of the table: a title, and a line for each kind of statement."""
        counts = f"{'sequences':>9} {'guaranteed':>10} {'outside':>8} {'allowed':>8}"
        lines = [f"{'group':12} {'statement':28} {counts}"]
        for (group, kind), statements in sorted(self.statements.items()):
            n_guaranteed = len(with_guarantee(statements))
            n_wrong = count_wrong(statements)
            n_allowed = count_allowed(statements)
            counts = f"{len(statements):9} {n_guaranteed:10} {n_wrong:8} {n_allowed:8}"
            lines.append(f"{group:12} {kind:28} {counts}")
        return lines

    def _wrong_sequences(self) -> list[str]:
        """Return a line for each wrong statement, with the options that replay it."""
        lines = []
        for (group, kind), statements in sorted(self.statements.items()):
            for statement in statements:
                if statement.wrong:
                    options = f"--group {group} --only {statement.number}"
                    lines.append(f"outside: {options}: {kind}: {'; '.join(statement.moves)}")
        return lines


def with_guarantee(statements: list[Statement]) -> list[Statement]:
    """Return the statements that have a guarantee."""
    return [statement for statement in statements if statement.wrong is not None]


def count_wrong(statements: list[Statement]) -> int:
    """Return the number of guaranteed statements that are wrong."""
    return sum(bool(statement.wrong) for statement in statements)


def count_allowed(statements: list[Statement]) -> int:
    """Return the largest number of wrong statements that their deltas allow; a larger one has probability ``RARE``.

    The number of rare independent events has nearly a Poisson distribution.
    """
    expected = sum(statement.delta for statement in with_guarantee(statements))
    return int(poisson.isf(RARE, expected))


def play(group: str, seed: int, number: int, report: Report) -> Play:
    """Play one sequence, and add its statements, refused calls, CPU time and error to the report."""
    sequence = Play(random.Random(f"{group} {seed} {number}"))
    torch.manual_seed(number)
    play_sequence, _ = GROUPS[group]
    start = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            play_sequence(sequence)
    except Exception as error:
        moves = "; ".join(sequence.moves)
        report.errors.append(f"error: --group {group} --only {number}: {described(error)}: {moves}")
    report.seconds[group] += time.process_time() - start
    report.refused[group] += sequence.refused
    for kind, delta, wrong in sequence.verdicts:
        report.statements[group, kind].append(Statement(number, delta, wrong, sequence.moves))
    return sequence


def described(error: Exception) -> str:
    """Return the type and text of an error, and the line of code that raised it."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"{type(error).__name__}: {str(error)[:200]} ({Path(frame.filename).name}:{frame.lineno})"
    )


def run(n: int, seed: int = 0, groups: list[str] | None = None) -> Report:
    """Play n sequences, shared among the groups."""
    groups = groups or list(GROUPS)
    report = Report()
    shares = {group: GROUPS[group][1] for group in groups}
    total = sum(shares[group] for group in groups)
    for group in groups:
        for number in range(math.ceil(n * shares[group] / total)):
            play(group, seed, number, report)
    return report


def main() -> int:
    """Run the command, and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.guarantees.sequences", description=__doc__
    )
    parser.add_argument("n", type=int, nargs="?", default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--group", action="append", choices=list(GROUPS))
    parser.add_argument("--only", type=int, help="replay this sequence of the group")
    arguments = parser.parse_args()
    if arguments.only is not None and arguments.group is None:
        parser.error("--only replays a sequence of one group: name it with --group.")
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    if arguments.only is None:
        report = run(arguments.n, arguments.seed, arguments.group)
    else:
        report = Report()
        sequence = play(arguments.group[0], arguments.seed, arguments.only, report)
        print("\n".join(sequence.moves))
    print(report)
    return bool(report.violations() or report.errors)


if __name__ == "__main__":
    sys.exit(main())
