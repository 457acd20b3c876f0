"""Figures of docs/reliability.md on confirmation: races of candidates whose medians and means are known.

``python -m experiments.guarantees.confirmation [RUNS]``; smaller values are better.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import kbo
from kbo.optimize import Confirmation

Random = np.random.Generator

DELTA = 0.05
BUDGET = 1000


@dataclass(frozen=True)
class Race:
    """Candidates whose distributions are known.

    Attributes:
        name: The name of the row in the table.
        draw: A function that draws a value of a candidate, given its number.
        medians: The median of each candidate.
        means: The mean of each candidate.
        tolerance: The tolerance of ``kbo.confirm``.
        value_range: The range of values of ``kbo.confirm``; None without one.
    """

    name: str
    draw: Callable[[Random, int], float]
    medians: list[float]
    means: list[float]
    tolerance: float = 0.25
    value_range: tuple[float, float] | None = None

    def run(self, seed: int, budget: int = BUDGET) -> Confirmation:
        """Return the outcome of the race with one seed."""
        rng = np.random.default_rng(seed)

        def objective(params: Any) -> float:
            return self.draw(rng, params["candidate"])

        candidates = [{"candidate": number} for number in range(len(self.means))]
        return kbo.confirm(
            objective,
            candidates,
            budget,
            tolerance=self.tolerance,
            delta=DELTA,
            value_range=self.value_range,
        )

    def wrong(self, confirmation: Confirmation, locations: list[float]) -> bool:
        """Return whether a statement was made that is false for these medians or means."""
        best: Any = confirmation.best
        if best is None or not math.isfinite(confirmation.largest_lead):
            return False
        loss = locations[best.params["candidate"]] - min(locations)
        return loss > confirmation.largest_lead + 1e-12

    def stated(self) -> list[float]:
        """Return the numbers of the statement: the medians, or the means if a range of values is declared."""
        if self.value_range is None:
            return self.medians
        return self.means


def shifted(
    name: str, noise: Callable[[Random], float], shifts: list[float], mean: float = 0.0
) -> Race:
    """Return a race in which all candidates have the same noise, with median 0 and the given mean."""
    means = [shift + mean for shift in shifts]
    return Race(name, lambda rng, i: shifts[i] + noise(rng), shifts, means)


def _lognormal(rng: Random) -> float:
    return float(np.exp(1.5 * rng.normal()) - 1)


def _diverging(rng: Random, candidate: int) -> float:
    """Return a value with noise 1. The first candidate has the best median, but 5% of its values are worse by 100."""
    return _first_diverges(rng, candidate, noise_std=1.0)


def _diverging_without_noise(rng: Random, candidate: int) -> float:
    """Return a value with hardly any noise. The first candidate has the best median, but 5% are worse by 100."""
    return _first_diverges(rng, candidate, noise_std=0.01)


def _first_diverges(rng: Random, candidate: int, noise_std: float) -> float:
    value = noise_std * float(rng.normal())
    if candidate > 0:
        return value
    value -= 1.0
    if rng.random() < 0.05:
        value += 100.0
    return value


_UNEQUAL = [math.sqrt(variance) for variance in (0.1, 1.0, 1.0, 0.5, 0.1)]
_SHARES = [0.2, 0.5, 0.5, 0.5, 0.5]
_ONE_BETTER = [-1.0, 0.0, 0.0, 0.0, 0.0]
_SKEW = math.exp(1.125) - 1

RACES = [
    shifted("all are equal", lambda rng: rng.normal(), [0.0] * 5),
    shifted("better by 0.5", lambda rng: rng.normal(), [-0.5, 0.0, 0.0, 0.0, 0.0]),
    shifted("better by 1", lambda rng: rng.normal(), _ONE_BETTER),
    shifted("better by 2", lambda rng: rng.normal(), [-2.0, 0.0, 0.0, 0.0, 0.0]),
    Race(
        "better by 1, variances 0.1 to 1",
        lambda rng, i: _ONE_BETTER[i] + _UNEQUAL[i] * rng.normal(),
        _ONE_BETTER,
        _ONE_BETTER,
    ),
    shifted("hardly any noise (0.01)", lambda rng: 0.01 * rng.normal(), _ONE_BETTER),
    shifted(
        "Student's t, 3 degrees, variance 1",
        lambda rng: rng.standard_t(3) / math.sqrt(3),
        _ONE_BETTER,
    ),
    shifted("Student's t, 2 degrees (no variance)", lambda rng: rng.standard_t(2), _ONE_BETTER),
    shifted("lognormal 1.5, the tail on the bad side", _lognormal, _ONE_BETTER, _SKEW),
    shifted(
        "lognormal 1.5, the tail on the good side",
        lambda rng: -_lognormal(rng),
        _ONE_BETTER,
        -_SKEW,
    ),
    Race(
        "5% of the best by median diverge (+100)",
        _diverging,
        _ONE_BETTER,
        [4.0, 0.0, 0.0, 0.0, 0.0],
    ),
    Race(
        "two candidates, hardly any noise, 5% of one diverge (+100)",
        _diverging_without_noise,
        [-1.0, 0.0],
        [4.0, 0.0],
    ),
    Race(
        "five again, cut at 10, range (-10, 10) declared",
        lambda rng, i: float(np.clip(_diverging(rng, i), -10, 10)),
        _ONE_BETTER,
        [-0.95 + 0.5, 0.0, 0.0, 0.0, 0.0],
        value_range=(-10.0, 10.0),
    ),
    Race(
        "values 0 and 1, no range declared",
        lambda rng, i: float(rng.random() < _SHARES[i]),
        [0.0] * 5,
        _SHARES,
        tolerance=0.2,
    ),
    Race(
        "values 0 and 1, range declared",
        lambda rng, i: float(rng.random() < _SHARES[i]),
        [0.0] * 5,
        _SHARES,
        tolerance=0.2,
        value_range=(0.0, 1.0),
    ),
]


TITLES = (
    "noise",
    "wrong",
    "of means: wrong",
    "and not said",
    "confirmed",
    "no statement",
    "evaluations (quartiles)",
)
"""Columns of the table."""


def row(race: Race, confirmations: list[Confirmation]) -> list[str]:
    """Return the row of the table of one race, under the ``TITLES``."""
    runs = len(confirmations)
    wrong = sum(race.wrong(confirmation, race.stated()) for confirmation in confirmations)
    wrong_of_means = [found for found in confirmations if race.wrong(found, race.means)]
    not_said = sum("by the mean" not in found.statement for found in wrong_of_means)
    confirmed = sum(confirmation.confirmed for confirmation in confirmations)
    without_statement = sum(not math.isfinite(found.largest_lead) for found in confirmations)
    evaluations = [confirmation.evaluations for confirmation in confirmations]
    quartiles = np.quantile(evaluations, [0.25, 0.5, 0.75])
    return [
        race.name,
        f"{wrong}",
        f"{len(wrong_of_means)}",
        f"{not_said}",
        f"{confirmed / runs:.0%}",
        f"{without_statement / runs:.0%}",
        ", ".join(f"{quartile:.0f}" for quartile in quartiles),
    ]


def main(runs: int = 300, budget: int = BUDGET) -> None:
    """Print a row for each race."""
    print(f"| {' | '.join(TITLES)} |")
    print("|---" * len(TITLES) + "|")
    for race in RACES:
        confirmations = [race.run(seed, budget) for seed in range(runs)]
        print(f"| {' | '.join(row(race, confirmations))} |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
