"""The ask-tell optimiser: what to try next, whatever evaluates it."""

from __future__ import annotations

import copy
import math
import os
import time
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from kbo.confidence import Confidence
from kbo.errors import InvalidInput, JournalError
from kbo.optimize.journal import Journal, differences, read, write
from kbo.optimize.search import KEPT, argmax
from kbo.optimize.settings import Certified, Practical, Settings
from kbo.optimize.trials import Trial
from kbo.regression import Hypothetical, KernelRidge, Regression
from kbo.space import Bounds, Params, Space

_MOST_POINTS = 10_000
"""Points of a finite space that are all looked at."""


class SpaceGap(NamedTuple):
    """The optimality gap over a space.

    Attributes:
        value: The optimum is at most this much better than the recommendation, if the bounds hold.
        exact: Whether every point of the space was looked at, or many starts were searched from.
    """

    value: float
    exact: bool


class Optimizer:
    """Chooses parameters, learns from values, remembers everything in a journal.

    The next point is a function of the seed and of the events so far, so a run that was killed and is opened again
    on its journal continues as if nothing had happened. Points that were asked but not told come first. Several
    points may be asked before any is told: each treats those before it as pending.

    Args:
        bounds: See ``kbo.space.Space``.
        setting: ``Practical()`` (default) or ``Certified(...)``.
        method: A name of ``kbo.recipes.names()``.
        maximize: Whether larger values are better.
        n_trials: The planned number of trials, if the method needs it ("igp-ucb").
        seed: Seed of every random choice.
        journal: Path of the journal; None keeps the run in memory.

    Raises:
        InvalidInput: Bounds, setting or method cannot be used.
        JournalError: The journal cannot be written, is damaged, or belongs to another problem.

    Example:
        >>> optimizer = Optimizer({"x": (0.0, 1.0)}, journal="run.jsonl")
        >>> x = optimizer.ask()
        >>> optimizer.tell(x, objective(x))
    """

    def __init__(
        self,
        bounds: Bounds | Space,
        *,
        setting: Settings | None = None,
        method: str = "dmm-ucb",
        maximize: bool = False,
        n_trials: int | None = None,
        seed: int = 0,
        journal: str | os.PathLike | None = None,
    ) -> None:
        self.space = Space(bounds)
        self.setting = Practical() if setting is None else setting
        if not isinstance(self.setting, (Practical, Certified)):
            raise InvalidInput(f"setting must be kbo.Practical() or kbo.Certified(...), got {setting!r}.")
        _check_method(method, n_trials)
        self.method, self.maximize, self.seed = method, maximize, seed
        self._n_trials = n_trials
        self._reset()
        self._journal: Journal | None = None
        if journal is not None:
            self._journal = Journal(journal, self._header())
            try:
                self._replay(self._journal.events)
            except BaseException:
                self._journal.close()
                raise

    def __repr__(self) -> str:
        done = f"{len(self.completed())} complete, {len(self.failed())} failed"
        return f"Optimizer(method={self.method!r}, setting={self.setting}, trials: {done})"

    def _reset(self) -> None:
        self.belief = self.setting.begin(self.method, self._n_trials, self.space)
        self.trials: list[Trial] = []
        self._units: list[Tensor] = []
        self._orphans: list[Trial] = []
        self._events: list[dict[str, Any]] = []

    def ask(self, n: int | None = None) -> Any:
        """The next parameters, or a list of n of them.

        Raises:
            RefutedAssumptions: In the certified setting, no function satisfies the assumptions.
        """
        if n is not None:
            return [self.ask() for _ in range(n)]
        while self._orphans:
            trial = self._orphans.pop(0)
            if trial.status == "pending":  # nobody has told it since the run was opened
                return copy.copy(trial.params)
        number = len(self.trials)
        params = self.space.params(self._propose(number))
        self._record({"event": "ask", "number": number, "params": params})
        return copy.copy(params)  # the caller may change its copy

    def tell(self, params: Params, value: float | None, seconds: float | None = None) -> Trial:
        """Report the value at parameters that were asked for, or at any others.

        None, NaN and infinite values are recorded as failures and never reach the model.
        """
        number = self._number_of(params)
        try:
            y = math.nan if value is None else float(value)
        except (TypeError, ValueError, OverflowError, RuntimeError):  # RuntimeError: a tensor of several numbers
            return self.fail(params, f"the objective returned {str(value)[:80]} instead of a number", seconds)
        if not math.isfinite(y):
            return self.fail(params, f"the objective returned {value}", seconds)
        self._record({"event": "tell", "number": number, "value": y, "seconds": seconds})
        return self.trials[number]

    def fail(self, params: Params, reason: str, seconds: float | None = None) -> Trial:
        """Report that the evaluation at these parameters failed."""
        number = self._number_of(params)
        self._record({"event": "fail", "number": number, "reason": reason, "seconds": seconds})
        return self.trials[number]

    def recommended(self) -> Trial | None:
        """The completed trial with the best pessimistic bound; by value while there is no bound; None if none."""
        complete = self.completed()
        if not complete:
            return None
        sign = self._sign
        if self.belief.state is None or self.belief.confidence() is None:
            return max(complete, key=lambda trial: sign * (trial.value or 0.0))
        lower, _, _ = self.belief.interval(self._features([t.number for t in complete]))
        return complete[int(lower.argmax())]

    def interval(self, params: Params) -> tuple[float, float, float] | None:
        """Lower bound, mean and upper bound of the objective (without noise); None while there is no bound."""
        if self.belief.state is None or self.belief.confidence() is None:
            return None
        features = self.space.features(self.space.unit(params).unsqueeze(0))
        low, mean, high = (self._sign * float(value) for value in self.belief.interval(features))
        return min(low, high), mean, max(low, high)

    def gap(self) -> SpaceGap | None:
        """How much better than the recommendation the optimum can still be, and whether that is exact.

        The largest upper bound of the space less the lower bound of the recommendation (for a maximum), in units of
        the objective. Over whole numbers and choices alone, up to 10 000 points, the largest bound is exact; otherwise
        it is the best that a search from many starts finds. None while there is no bound.
        """
        best, confidence = self.recommended(), None if self.belief.state is None else self.belief.reported()
        if best is None or confidence is None:
            return None
        state, points = self.belief.state, self.space.points(_MOST_POINTS)
        assert state is not None
        if points is None:
            generator = torch.Generator().manual_seed(1_000_003 * self.seed + len(self._events))
            point = self._most_promising(confidence, state, generator)
            farthest = confidence.upper(state, self.space.features(point.unsqueeze(0)))[0]
        else:
            farthest = torch.tensor(confidence.leader(state, self.space.features(points))[1], dtype=torch.float64)
        lower = self.belief.interval(self._features([best.number]))[0][0]
        return SpaceGap(float(self.belief.raw(farthest) - lower), points is not None)

    def completed(self) -> list[Trial]:
        """The trials that returned a value."""
        return [trial for trial in self.trials if trial.status == "complete"]

    def failed(self) -> list[Trial]:
        """The trials that failed."""
        return [trial for trial in self.trials if trial.status == "failed"]

    def save(self, path: str | os.PathLike) -> None:
        """Write the whole run as a journal, replacing ``path`` in one step."""
        write(path, self._header(), self._events)

    def load(self, path: str | os.PathLike) -> None:
        """Replace the run by a saved one of the same problem.

        Raises:
            JournalError: Not a journal, damaged, or of another problem.
        """
        if self._journal is not None:
            raise JournalError("this optimiser writes a journal already: pass journal=path to a new one instead.")
        header, events = read(path)
        different = differences(header, self._header())
        if different:
            raise JournalError(f"{path} belongs to another problem ({different}).")
        before = dict(vars(self))
        self._reset()
        try:
            self._replay(events)
        except BaseException:
            vars(self).update(before)
            raise

    def close(self) -> None:
        """Release the journal."""
        if self._journal is not None:
            self._journal.close()

    @property
    def _sign(self) -> int:
        return 1 if self.maximize else -1

    def _header(self) -> dict[str, Any]:
        return {
            "space": self.space.describe(),
            "named": self.space.named,
            "maximize": self.maximize,
            "method": self.method,
            "seed": self.seed,
            **({"n_trials": self._n_trials} if self.method in _NEED_HORIZON else {}),
            **self.setting.describe(self.space),
        }

    def _propose(self, number: int) -> Tensor:
        """A point [P] of the unit cube for trial ``number``."""
        generator = torch.Generator().manual_seed(1_000_003 * self.seed + number)
        state = self.belief.state
        if self.method == "random":
            return torch.rand(self.space.dimension, generator=generator, dtype=torch.float64)
        if state is None:
            sobol = SobolEngine(self.space.dimension, scramble=True, seed=self.seed)
            return sobol.fast_forward(number).draw(1, dtype=torch.float64)[0]
        confidence = self.belief.confidence()
        assert confidence is not None
        view = self._imagined(state)
        return self._most_promising(confidence, view, generator)

    def _most_promising(self, confidence: Confidence, view: Regression, generator: torch.Generator) -> Tensor:
        """A point [P] of the unit cube whose upper bound is nearly the largest."""

        def score(U: Tensor) -> Tensor:
            return confidence.quick_upper(view, self.space.features(U))

        def leader(U: Tensor) -> int:
            return confidence.leader(view, self.space.features(U))[0]

        return argmax(score, self._starts(), generator, leader)

    def _starts(self) -> Tensor:
        """The best points so far, [s P]."""
        best = sorted(self.completed(), key=lambda t: -self._sign * (t.value or 0.0))[:KEPT]
        return torch.stack([self._units[trial.number] for trial in best])

    def _imagined(self, state: KernelRidge) -> Regression:
        """The posterior in whose light the next point is chosen; what is reported never rests on it.

        Pending points are hallucinated at the mean. Failed ones are imagined as bad as the worst value seen, or the
        search would return to them: the data say nothing against them.
        """
        view: Regression = state
        failed = [trial.number for trial in self.failed()]
        if failed and state.data is not None:
            worst = state.data.y.min()  # as the posterior holds it: in its units, and cut if it was cut there
            view = Hypothetical(view, self._features(failed), worst.expand(len(failed)))
        pending = [trial.number for trial in self.trials if trial.status == "pending"]
        return Hypothetical(view, self._features(pending)) if pending else view

    def _features(self, numbers: list[int]) -> Tensor:
        return self.space.features(torch.stack([self._units[i] for i in numbers]))

    def _number_of(self, params: Params) -> int:
        """The pending trial with these parameters; parameters nobody asked for become a trial of their own."""
        params = self.space.canonical(params)
        for trial in self.trials:
            if trial.status == "pending" and trial.params == params:
                return trial.number
        number = len(self.trials)
        self._record({"event": "ask", "number": number, "params": params})
        return number

    def _record(self, event: dict[str, Any]) -> None:
        """Disk first, memory second: what the optimiser knows is always on disk."""
        if self._journal is not None:
            self._journal.append({**event, "time": round(time.time(), 3)})
        self._apply(event)

    def _replay(self, events: list[dict[str, Any]]) -> None:
        for event in events:
            try:
                self._apply(event)
            except (KeyError, IndexError, TypeError, InvalidInput) as error:
                raise JournalError(f"the journal has an event that does not fit: {event} ({error}).") from error
        self._orphans = [trial for trial in self.trials if trial.status == "pending"]

    def _apply(self, event: dict[str, Any]) -> None:
        kind, number = event["event"], event["number"]
        if kind == "ask":
            if number != len(self.trials):
                raise InvalidInput(f"trial {number} out of order")
            unit = self.space.unit(event["params"])
            self._units.append(unit)
            self.trials.append(Trial(number, event["params"]))
        elif kind == "tell":
            trial = self._pending(number)
            trial.value, trial.seconds = float(event["value"]), event.get("seconds")
            self._events.append(event)
            self.belief.observe(self._features([number]), self._sign * trial.value)
            return
        elif kind == "fail":
            trial = self._pending(number)
            trial.failure, trial.seconds = str(event["reason"]), event.get("seconds")
        else:
            raise InvalidInput(f"unknown event {kind!r}")
        self._events.append(event)

    def _pending(self, number: int) -> Trial:
        trial = self.trials[number]
        if trial.status != "pending":
            raise InvalidInput(f"trial {number} is already {trial.status}")
        return trial


_NEED_HORIZON, _NEED_FINITE_SET = {"igp-ucb"}, {"gp-ucb"}


def _check_method(method: str, n_trials: int | None) -> None:
    if method in _NEED_FINITE_SET:
        raise InvalidInput(f"method {method!r} is for finite sets of points (kbo.recipes, kbo.bandit), not for boxes.")
    if method in _NEED_HORIZON and n_trials is None:
        raise InvalidInput(f"method {method!r} depends on the number of trials: pass n_trials=... .")
