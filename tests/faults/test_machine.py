"""Random sequences of faults against ``Optimizer``, compared with a plain model of what must be true.

A run is a list of events. Whatever happens (interrupts at any line, kills, forks, reopening), the journal
holds exactly the events of the calls that returned, and of an interrupted call a beginning of its events; the optimiser
agrees with it; and every new point is the one that an undisturbed run chooses after the same events.
"""

from __future__ import annotations

import itertools
import json
import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from gpytorch.kernels import RBFKernel
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import kbo
from kbo.errors import JournalError
from tests.faults import REPEATS, interrupted

SPACE = {"x": (0.0, 1.0), "k": kbo.Int(1, 4)}
VALUES = st.sampled_from([0.0, -1.5, 0.25, 1e-9, 1e9, None, float("nan"), "no number"])
LINES = st.one_of(st.none(), st.none(), st.integers(1, 120), st.integers(1, 1500))
"""Lines of kbo that a call executes before it is interrupted; None leaves it alone."""


def certified() -> kbo.Certified:
    kernel = RBFKernel().double()
    kernel.lengthscale = 0.3
    return kbo.Certified(kernel=kernel, noise_std=1.0, norm_bound=1e12)


def on_disk(path: Path) -> list[dict[str, Any]]:
    """Return the events of the whole lines of a journal, read without kbo."""
    lines = path.read_bytes().split(b"\n")[1:-1]
    return [
        {k: v for k, v in json.loads(line).items() if k not in ("time", "sum", "seconds")}
        for line in lines
    ]


class Trial:
    """A trial of the plain model.

    ``running`` is None if the call that began it was interrupted, perhaps too late; ``lost`` if it was handed out by a
    process that has died.
    """

    def __init__(self, params: dict[str, Any], running: bool) -> None:
        self.params: dict[str, Any] = params
        self.running: bool | None = running
        self.status, self.value, self.starts, self.lost = "pending", None, 1, False


class Machine(RuleBasedStateMachine):
    """Calls of an optimiser with faults, and the events that they may leave."""

    @initialize(
        setting=st.sampled_from(["random", "random", "random", "certified"]), seed=st.integers(0, 9)
    )
    def begin(self, setting: str, seed: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "run.jsonl"
        self.options = {"setting": certified()} if setting == "certified" else {"method": "random"}
        self.options |= {"seed": seed, "maximize": True}
        self.trials: list[Trial] = []
        self.events: list[dict[str, Any]] = []
        self.open()

    def open(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an unfinished last line
            self.optimizer = kbo.Optimizer(SPACE, journal=self.path, **self.options)

    def teardown(self) -> None:
        if hasattr(self, "optimizer"):
            self.optimizer.close()
            self.same_as_undisturbed()
            self.folder.cleanup()

    # The plain model

    def apply(self, event: dict[str, Any]) -> None:
        """Apply an event that was found on disk."""
        number = event["number"]
        if event["event"] == "ask":
            assert number == len(self.trials)
            self.trials.append(Trial(event["params"], running=False))
        else:
            trial = self.trials[number]
            assert trial.status == "pending", "two ends of one trial"
            if event["event"] == "again":
                assert not trial.running, "a running trial was begun again"
                assert trial.lost, "a trial that nobody was given was counted as begun again"
                trial.starts, trial.lost = trial.starts + 1, False
                assert trial.starts <= 2
            else:
                trial.status = {"tell": "complete", "fail": "failed"}[event["event"]]
                trial.value, trial.running = event.get("value"), False
        self.events.append(event)

    def idle(self) -> list[list[int]]:
        """Return the trials that nobody evaluates, as they may be."""
        pending = [
            i
            for i, trial in enumerate(self.trials)
            if trial.status == "pending" and not trial.running
        ]
        sure = [(True,) if self.trials[i].running is False else (True, False) for i in pending]
        return [list(itertools.compress(pending, taken)) for taken in itertools.product(*sure)]

    def running(self) -> list[int]:
        return [i for i, trial in enumerate(self.trials) if trial.running]

    def call(
        self, lines: int | None, method: Callable[[], Any]
    ) -> tuple[list[dict[str, Any]], Any]:
        """Call a method, return the events that it left and what it returned; None if it was interrupted."""
        try:
            found = method() if lines is None else interrupted(lines, method)
        except KeyboardInterrupt:
            found = None
        events = on_disk(self.path)
        assert events[: len(self.events)] == self.events, "the past was changed"
        new = events[len(self.events) :]
        for event in new:
            self.apply(event)
        return new, found

    # Calls

    @rule(n=st.sampled_from([None, None, 1, 3]), lines=LINES)
    def ask(self, n: int | None, lines: int | None) -> None:
        """Lost trials come back first, those lost twice fail, then new ones begin."""
        expected = [self.expected(n or 1, idle) for idle in self.idle()]
        events, found = self.call(lines, lambda: self.optimizer.ask(n))
        happened = [(event["event"], event["number"]) for event in events]
        if found is None:
            assert happened in [events[: len(happened)] for events, _ in expected]
            possible = {
                number for _, begun in expected for number in begun if number < len(self.trials)
            }
            begun = [number for number in possible if not self.trials[number].lost]
        else:
            given = [found] if n is None else found
            begun = next(
                b
                for e, b in expected
                if e == happened and [self.trials[i].params for i in b] == given
            )
        for number in begun:
            self.trials[number].running = None if found is None else True

    def expected(self, count: int, idle: list[int]) -> tuple[list[tuple[str, int]], list[int]]:
        """Return the events of ``ask`` for so many trials, and the trials."""
        dead = [i for i in idle if self.trials[i].lost and self.trials[i].starts >= 2]
        back = [i for i in idle if i not in dead][:count]
        new = [len(self.trials) + j for j in range(count - len(back))]
        again = [("again", i) for i in back if self.trials[i].lost]
        return [("fail", i) for i in dead] + again + [("ask", i) for i in new], back + new

    @precondition(lambda self: self.running())
    @rule(which=st.integers(0, 99), value=VALUES, lines=LINES)
    def tell(self, which: int, value: Any, lines: int | None) -> None:
        running = self.running()
        self.report(running[which % len(running)], value, lines)

    def report(self, number: int, value: Any, lines: int | None) -> None:
        same = [
            i
            for i, t in enumerate(self.trials)
            if t.status == "pending" and t.params == self.trials[number].params
        ]
        number, params = same[-1], self.trials[number].params  # of equal points the last one
        events, found = self.call(lines, lambda: self.optimizer.tell(params, value))
        assert len(events) == 1 or (found is None and not events)
        if events:
            (event,) = events
            is_number = isinstance(value, float) and value == value
            assert (event["event"], event["number"]) == ("tell" if is_number else "fail", number)
            assert not is_number or event["value"] == value

    @precondition(lambda self: self.running())
    @rule(which=st.integers(0, 99), lines=LINES)
    def fail(self, which: int, lines: int | None) -> None:
        number = self.running()[which % len(self.running())]
        events, found = self.call(
            lines, lambda: self.optimizer.fail(self.trials[number].params, "broken")
        )
        assert len(events) == 1 or (found is None and not events)
        assert all(event["event"] == "fail" for event in events)

    @rule(x=st.floats(0, 1), k=st.integers(1, 4), value=st.floats(-1, 1), lines=LINES)
    def tell_unasked(self, x: float, k: int, value: float, lines: int | None) -> None:
        params = {"x": x, "k": k}
        if any(trial.status == "pending" and trial.params == params for trial in self.trials):
            return
        events, found = self.call(lines, lambda: self.optimizer.tell(params, value))
        kinds = [event["event"] for event in events]
        assert (
            kinds == ["ask", "tell"]
            if found is not None
            else kinds == ["ask", "tell"][: len(kinds)]
        )
        assert not events or events[0]["asked"] is False

    @rule(lines=LINES)
    def look(self, lines: int | None) -> None:
        events, _ = self.call(
            lines, lambda: (self.optimizer.recommended(), self.optimizer.suggest())
        )
        assert not events

    # Faults

    @rule(cut=st.integers(1, 60), lines=LINES)
    def kill(self, cut: int, lines: int | None) -> None:
        """The process dies, perhaps while it writes a line, and the run is opened again, perhaps interrupted."""
        self.optimizer.close()
        with open(self.path, "ab") as file:
            file.write(b'{"event":"tell","number":0,"value":12345.678,"sum":"0123abcd'[:cut])
        for trial in self.trials:
            trial.running, trial.lost = False, trial.status == "pending"
        if lines is not None:
            try:
                interrupted(lines, self.open)
            except KeyboardInterrupt:
                self.optimizer = None  # its file must not stay locked
        self.optimizer.close() if self.optimizer else None
        self.open()

    @precondition(lambda self: self.running())
    @rule()
    def fork(self) -> None:
        """A forked child is refused, leaves the file alone, and holds no lock."""
        params, before = self.trials[self.running()[0]].params, self.path.read_bytes()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                self.optimizer.tell(params, 77.0)
            except JournalError:
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert self.path.read_bytes() == before

    # What must be true

    @invariant()
    def memory_is_the_disk(self) -> None:
        if not hasattr(self, "optimizer"):
            return
        ours = [(t.params, t.status, t.value, t.starts) for t in self.trials]
        assert ours == [(t.params, t.status, t.value, t.starts) for t in self.optimizer.trials]

    def same_as_undisturbed(self) -> None:
        """Every point was chosen as in a run in which nothing happens."""
        twin = kbo.Optimizer(SPACE, **self.options)
        for event in self.events:
            kind, params = event["event"], self.trials[event["number"]].params
            if kind == "ask" and not event.get("asked", True):
                twin.run.begin(params)
            elif kind == "ask":
                assert twin.ask() == params, "another point than in an undisturbed run"
            elif kind == "tell":
                twin.tell(params, event["value"])
            elif kind == "fail":
                twin.fail(params, event["reason"])


@pytest.mark.faults
def test_no_sequence_of_faults_loses_repeats_or_changes_anything():
    plan = settings(
        max_examples=60 * REPEATS,
        stateful_step_count=12,
        deadline=None,
        derandomize=REPEATS == 1,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(Machine, settings=plan)
