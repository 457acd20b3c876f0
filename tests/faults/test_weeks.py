"""Random sequences of calls of a run, and of what happens to it in weeks: interrupts at any line, kills, changes.

After each of them the state is that of the events alone, no event that was written has changed, and the next point is
the one that an undisturbed run chooses after the same events.
"""

from __future__ import annotations

import json
import math
import random
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import kbo
from kbo.errors import InvalidInput
from kbo.optimize.run.journal_file import read_whole
from kbo.space import Space
from tests.faults import REPEATS, interrupted

VALUES = [0.0, -1.5, 0.25, 1e9, (0.5, {"memory": 2.0}), (0.1, {"sem": 0.2, "memory": math.nan})]
FAILURES = [None, math.nan, "no number"]
OBJECTIVES = [kbo.Maximize("speed"), kbo.Minimize("error"), kbo.Maximize("size")]
STEPS = 14


def parameter(rng: random.Random) -> Any:
    """Return a random range, choice or constant, some of them far from others."""
    low = rng.choice([0.0, 0.5, 1.0, -1.0])
    return rng.choice(
        [
            (low, low + rng.choice([0.5, 1.0, 3.0])),
            kbo.Float(abs(low) + 0.1, abs(low) + 2.0, log=True),
            kbo.Float(low, low + 1.0, step=0.25),
            kbo.Int(int(low), int(low) + 3),
            kbo.Choice(rng.sample([0, 1, 2, 0.5, "a"], 3)),
            kbo.Ordinal([0, 0.5, 1]),
            rng.choice([0.5, 1, "a"]),
        ]
    )


def bounds(rng: random.Random, former: Any = None) -> Any:
    """Return random bounds that have some parameters of former ones."""
    if isinstance(former, list) and not isinstance(former[0], dict):
        return [(0.0, rng.choice([0.5, 1.0, 2.0])) for _ in former]
    if former is None and rng.random() < 0.15:
        return [(0.0, 1.0), (0.0, 1.0)]
    names = rng.sample(["x", "y", "z"], rng.choice([1, 2, 2, 3]))
    chosen = {name: parameter(rng) for name in names}
    chosen[names[0]] = rng.choice([(0.0, 1.0), (0.2, 0.7), (-1.0, 3.0)])
    if rng.random() < 0.25:
        branch = kbo.When("c", "p", {"v": rng.choice([(0.0, 1.0), (0.5, 4.0), kbo.Int(0, 3)])})
        return [{**chosen, "c": rng.choice([["p", "q"], ["p", "q", "r"]])}, branch]
    return chosen


def was(rng: random.Random, space: Space) -> dict[str, Any]:
    """Return values that some of the parameters of a space had so far."""
    values = {}
    for name, spec in space.parameters.items():
        if rng.random() < 0.5:
            values[name] = rng.choice([spec.value(rng.random()), 0.5])
    return values


def state(optimizer: kbo.Optimizer) -> dict[str, Any]:
    """Return what is known of a run."""
    trials = optimizer.run.trials
    recommended = optimizer.recommended()
    facts: dict[str, Any] = {
        "all": trials.all,
        "space": optimizer.space.describe(),
        "labels": optimizer.space.labels,
        "pending": list(trials.pending),
        "n_asked_ended": trials.n_asked_ended,
        "recommended": None if recommended is None else recommended.number,
        "next": optimizer.suggest(),
    }
    front = optimizer.insight.front()
    if front is not None:
        assert front.balanced.trial.number == facts["recommended"]
        facts["front"] = [point.values for point in front.points], front.hypervolume
        facts["gap"] = optimizer.gap()
    for name in ("complete", "failed", "pruned", "misplaced", "finished"):
        facts[name] = [trial.number for trial in getattr(trials, name)]
    placed = [trial for trial in trials.all if trial not in trials.misplaced]
    facts["features"] = optimizer.insight.quantities.features(placed).tolist()
    return facts


class Weeks:
    """A run, and random calls of it.

    Attributes:
        lines: The lines of its journal, none of which may ever change.
    """

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = random.Random(seed)
        self.path = folder / "run.jsonl"
        self.saved = folder / "saved.jsonl"
        self.first: Any = bounds(self.rng)
        self.bounds = self.first
        self.options: dict[str, Any] = {"seed": seed, "maximize": seed % 2 == 0}
        self.steps = STEPS
        if seed % 8 == 4:
            self.steps = 2 * STEPS  # more values, so that there is a front
            self.options["objectives"] = OBJECTIVES[: self.rng.choice([2, 3])]
        elif seed % 8:
            self.options["method"] = "random"
        self.lines: list[bytes] = []
        self.next: Any = None
        self.open()
        self.compare_with_events()

    def open(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an unfinished last line
            self.optimizer = kbo.Optimizer(self.bounds, journal=self.path, **self.options)

    def number(self) -> int:
        """Return the number of a trial, rarely of one that is pending or that there is not."""
        trials = self.optimizer.run.trials
        ended = [trial.number for trial in trials.all if trial.number not in trials.pending]
        if ended and self.rng.random() < 0.8:
            return self.rng.choice(ended)
        return self.rng.randrange(len(trials.all) + 1)

    def value(self, more: Sequence[Any] = ()) -> Any:
        """Return a random value, or one of ``more``; with several objectives a dict, in which one may be missing."""
        objectives = self.optimizer.objectives
        if not objectives:
            return self.rng.choice([*VALUES, *more])
        numbers = [0.0, 1.0, -1.5, 0.25, self.rng.random(), 1e9]
        values: dict[str, Any] = {o.name: self.rng.choice(numbers) for o in objectives}
        if more and self.rng.random() < 0.3:
            name = self.rng.choice([*values])
            values[name] = self.rng.choice([None, math.nan, math.inf, "no number"])
            if values[name] is None:
                del values[name]
        return values

    def trial(self) -> Any:
        """Return a pending trial, its number or the parameters it began with; rarely one that has ended."""
        if self.rng.random() < 0.1:
            return self.number()
        if not self.optimizer.run.trials.pending:
            self.optimizer.ask()
        trials = self.optimizer.run.trials
        number = self.rng.choice(list(trials.pending))
        return self.rng.choice([number, trials.all[number], trials.begun[number]])

    def step(self) -> str:
        """Make a random call, which may be interrupted, and return its name."""
        calls = [self.ask, self.ask, *[self.tell] * 5, self.fail, self.prune]
        calls += [self.report, self.correct, self.remove, self.change, self.save, self.kill]
        call = self.rng.choice([*calls, self.known])
        line = self.rng.choice([0, 0, 0, self.rng.randrange(1, 120), self.rng.randrange(1, 1500)])
        try:
            if call == self.kill or not line:
                call()
            else:
                interrupted(line, call)
        except InvalidInput:
            return f"{call.__name__}, refused"
        except KeyboardInterrupt:
            return f"{call.__name__}, interrupted at line {line}"
        return call.__name__

    def ask(self) -> None:
        n_before = len(self.optimizer.trials)
        n = self.rng.choice([1, 1, 3])
        for params in self.optimizer.ask(n):
            assert self.optimizer.space.contains(params)
        if len(self.optimizer.trials) > n_before and n == 1:
            assert params == self.next, "another point than in an undisturbed run"

    def tell(self) -> None:
        self.optimizer.tell(self.trial(), self.value(FAILURES))

    def known(self) -> None:
        space = self.optimizer.space
        unit = self.optimizer.insight.quantities.units_of([]).new_tensor(
            [self.rng.random() for _ in range(space.dimension)]
        )
        self.optimizer.tell(space.params(unit), self.value())

    def fail(self) -> None:
        self.optimizer.fail(self.trial(), "broken")

    def prune(self) -> None:
        self.optimizer.prune(self.trial())

    def report(self) -> None:
        self.optimizer.report(self.trial(), self.rng.random(), step=self.rng.randrange(3))

    def correct(self) -> None:
        self.optimizer.correct(self.number(), self.value(FAILURES))

    def remove(self) -> None:
        self.optimizer.remove(self.number(), "a spill")

    def change(self) -> None:
        after = bounds(self.rng, self.bounds)
        try:
            self.optimizer.change(after, was(self.rng, Space(after)))
        finally:
            if self.optimizer.space.describe() == Space(after).describe():
                self.bounds = after

    def save(self) -> None:
        self.optimizer.save(self.saved)

    def kill(self) -> None:
        """The process dies, perhaps while it writes a line, and the run is opened again."""
        self.optimizer.close()
        if self.rng.random() < 0.5:
            cut = b'{"event":"correct","value":12345.6,"number":0,"sum":"0123abcd'
            with open(self.path, "ab") as file:
                file.write(cut[: self.rng.randrange(1, 60)])
        self.open()

    def check(self) -> None:
        """Compare the run with its events, and its journal with the one before."""
        text = self.path.read_bytes()
        lines = text.split(b"\n")[:-1]
        assert lines[: len(self.lines)] == self.lines, "an event changed"
        assert len(lines) == 1 + len(self.optimizer.run.events), "an event is lost"
        self.lines = lines
        trials = self.optimizer.run.trials
        groups = [trials.complete, trials.failed, trials.pruned, trials.misplaced]
        groups += [list(trials.pending.values()), [t for t in trials.all if t.removed is not None]]
        assert {t.number for group in groups for t in group} == set(range(len(trials.all)))
        begun = [json.loads(line)["params"] for line in lines if b'"event":"ask"' in line]
        assert begun == trials.begun, "parameters are lost"
        ended = [trial for trial in trials.all if trial.number not in trials.pending]
        assert trials.n_asked_ended == sum(trial.asked for trial in ended)
        self.compare_with_events()

    def compare_with_events(self) -> None:
        """Compare the run with trials and with an optimiser that are computed from its events."""
        known = state(self.optimizer)
        self.next = known["next"]
        self.optimizer.save(self.saved)
        assert read_whole(self.saved).trials.all == self.optimizer.trials
        fresh = kbo.Optimizer(self.first, **self.options)
        fresh.run.load(self.saved)
        found = state(fresh)
        for name, fact in known.items():
            assert found[name] == fact, name


@pytest.mark.faults
@pytest.mark.parametrize("first", range(4))
def test_the_state_of_a_run_is_that_of_its_events(first, tmp_path):
    for seed in range(first, 60 * REPEATS, 4):
        folder = tmp_path / str(seed)
        folder.mkdir()
        weeks = Weeks(seed, folder)
        calls = []
        try:
            for _ in range(weeks.steps):
                calls.append(weeks.step())
                weeks.check()
        except BaseException as error:
            error.add_note(f"seed {seed}: {', '.join(calls)}")
            raise
        finally:
            weeks.optimizer.close()
