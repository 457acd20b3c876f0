"""Figures of docs/reliability.md, confirmation: races of candidates whose medians and means are known.

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
    """Candidates of which the distributions are known.

    Attributes:
        name: The row of the table.
        draw: Returns a value of a candidate, given its number.
        medians: The median of each candidate.
        means: The mean of each candidate.
        tolerance: As for ``kbo.confirm``.
        value_range: As for ``kbo.confirm``.
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

    def wrong(self, found: Confirmation, locations: list[float]) -> bool:
        """Return whether a statement was made, and is false of these medians or means."""
        best: Any = found.best
        if best is None or not math.isfinite(found.within):
            return False
        loss = locations[best.params["candidate"]] - min(locations)
        return loss > found.within + 1e-12

    def stated(self) -> list[float]:
        """Return the medians or the means, of which the statement is."""
        return self.medians if self.value_range is None else self.means


def shifted(
    name: str, noise: Callable[[Random], float], shifts: list[float], mean: float = 0.0
) -> Race:
    """Return a race with the same noise, of median 0, for all candidates."""
    return Race(
        name, lambda rng, i: shifts[i] + noise(rng), shifts, [shift + mean for shift in shifts]
    )


def _lognormal(rng: Random) -> float:
    return float(np.exp(1.5 * rng.normal()) - 1)


def _diverging(rng: Random, candidate: int) -> float:
    """Return a value with noise 1; of the candidate with the best median 5% are worse by 100."""
    value = float(rng.normal()) - (candidate == 0)
    if candidate == 0 and rng.random() < 0.05:
        value += 100.0
    return value


def _rarely_diverging(rng: Random, candidate: int) -> float:
    """Return a value with hardly any noise; of the first candidate 5% are worse by 100."""
    value = 0.01 * float(rng.normal()) - (candidate == 0)
    if candidate == 0 and rng.random() < 0.05:
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
        _rarely_diverging,
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


def main(runs: int, budget: int = BUDGET) -> None:
    """Print a row for each race."""
    print(
        "| noise | wrong | of means: wrong | and not said | confirmed | no statement | evaluations (quartiles) |"
    )
    print("|---|---|---|---|---|---|---|")
    for race in RACES:
        found = [race.run(seed, budget) for seed in range(runs)]
        wrong = sum(race.wrong(one, race.stated()) for one in found)
        by_mean = [one for one in found if race.wrong(one, race.means)]
        unsaid = sum("by the mean" not in one.statement for one in by_mean)
        confirmed = sum(one.confirmed for one in found)
        silent = sum(not math.isfinite(one.within) for one in found)
        quartiles = np.quantile([one.evaluations for one in found], [0.25, 0.5, 0.75])
        shown = ", ".join(f"{number:.0f}" for number in quartiles)
        row = (
            race.name,
            f"{wrong}",
            f"{len(by_mean)}",
            f"{unsaid}",
            f"{confirmed / runs:.0%}",
            f"{silent / runs:.0%}",
            shown,
        )
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
