"""The ask-tell optimiser: what to try next, whatever evaluates it."""

from __future__ import annotations

import copy
import math
import os
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kbo import recipes
from kbo.errors import InvalidInput, JournalError
from kbo.optimize import proposal
from kbo.optimize.context import Context, Question
from kbo.optimize.journal import Journal, differences, read, write
from kbo.optimize.search import KEPT
from kbo.optimize.settings import Settings, resolve
from kbo.optimize.trials import Trial
from kbo.regression import Posterior
from kbo.space import Bounds, Params, Space


class Optimizer:
    """Chooses parameters, learns from values, remembers everything in a journal.

    The next point is a function of the seed and of the events so far, so a run that was killed and is opened again
    on its journal continues as if nothing had happened. Points that were asked but not told come first, where they fit
    the context; ``fail`` those that will never be told. Several points may be asked before any is told: each treats
    those before it as pending.

    Some parameters may be given from outside, as the weather or the customer is: ``ask(context=...)`` chooses the
    others, ``ask(choices=...)`` among the settings that there are this time.

    Args:
        bounds: See ``kbo.space.Space``.
        setting: ``Practical()`` (default) or ``Certified(...)``.
        method: A name of ``kbo.recipes.names()``; by default "ucb" (practical setting) or "dmm-ucb" (certified).
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
        method: str | None = None,
        maximize: bool = False,
        n_trials: int | None = None,
        seed: int = 0,
        journal: str | os.PathLike | None = None,
    ) -> None:
        self.space = Space(bounds)
        self.setting, self.method = resolve(setting, method, n_trials)
        self.maximize, self.seed = maximize, seed
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
        trials = dict(Counter(trial.status for trial in self.trials))
        return f"Optimizer(method={self.method!r}, setting={self.setting}, trials={trials})"

    def _reset(self) -> None:
        self.belief = self.setting.begin(self.method, self._n_trials, self.space)
        self.trials: list[Trial] = []
        self._units: list[Tensor] = []
        self._orphans: list[Trial] = []
        self._events: list[dict[str, Any]] = []

    def ask(self, n: int | None = None, *, context: Context | None = None, choices: Sequence[Any] | None = None) -> Any:
        """The next parameters, or a list of n of them.

        Args:
            n: How many; None for one that is not in a list.
            context: Parameters whose values are given this time, by name (by index where the bounds are a list); the
                others are chosen.
            choices: The settings there are this time, complete or without the parameters of the context. The one with
                the largest upper bound is chosen; a random one while there is no bound.

        Raises:
            InvalidInput: A context or choices that do not fit the space, or leave nothing to choose.
            RefutedAssumptions: In the certified setting, no function satisfies the assumptions.
        """
        question = Question(self.space, context, choices)
        return self._ask(question) if n is None else [self._ask(question) for _ in range(n)]

    def _ask(self, question: Question) -> Params:
        self._orphans = [trial for trial in self._orphans if trial.status == "pending"]  # told since the run was opened
        for i, trial in enumerate(self._orphans):
            if question.accepts(trial.params):
                del self._orphans[i]
                return copy.copy(trial.params)
        params = question.params(self._propose(len(self.trials), question))
        return copy.copy(self.expect(params).params)  # the caller may change its copy

    def suggest(self, number: int | None = None, *, context: Context | None = None) -> Params:
        """What to try next, without recording that anybody does: for tools that keep trials of their own.

        Args:
            number: The number of the trial, which seeds the choice; by default the next one here. Suggestions under
                different numbers differ while there is no bound, those under the same number and data do not.
            context: As in ``ask``.
        """
        question = Question(self.space, context)
        return question.params(self._propose(len(self.trials) if number is None else number, question))

    def expect(self, params: Params) -> Trial:
        """Record that parameters are being evaluated, whoever chose them: a new pending trial."""
        number = len(self.trials)
        self._record({"event": "ask", "number": number, "params": self.space.canonical(params)})
        return self.trials[number]

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
        if self.belief.state is None or self.belief.reported() is None:
            return max(complete, key=lambda trial: self._sign * (trial.value or 0.0))
        lower, _, _ = self.belief.interval(self._features([t.number for t in complete]))
        return complete[int(lower.argmax())]

    def best(self, context: Context | None = None, *, choices: Sequence[Any] | None = None) -> Params | None:
        """The parameters with the best pessimistic bound in a context; None while there is no bound.

        Values of other contexts cannot be compared with those of this one, so unlike ``recommended`` this need not be a
        trial: it is the best that a search from many starts finds (among choices, exactly the best). ``interval`` says
        what is known there.

        Args:
            context: As in ``ask``; without one the context is optimised too.
            choices: As in ``ask``.
        """
        question, state = Question(self.space, context, choices), self.belief.state
        confidence = None if state is None else self.belief.reported()
        if state is None or confidence is None:
            return None
        generator = self._generator(len(self._events))
        return question.params(proposal.argmax_lower(confidence, state, self._search(question, generator)))

    def interval(self, params: Params) -> tuple[float, float, float] | None:
        """Lower bound, mean and upper bound of the objective (without noise); None while there is no bound."""
        if self.belief.state is None or self.belief.reported() is None:
            return None
        features = self.space.features(self.space.unit(params).unsqueeze(0))
        low, mean, high = (self._sign * float(value) for value in self.belief.interval(features))
        return min(low, high), mean, max(low, high)

    def gap(self) -> proposal.SpaceGap | None:
        """How much better than the recommendation the optimum can still be, and whether that is exact.

        The largest upper bound of the space less the lower bound of the recommendation (for a maximum), in units of
        the objective. Over whole numbers and choices alone, up to 10 000 points, the largest bound is exact; otherwise
        it is the best that a search from many starts finds. None while there is no bound.
        """
        best, state = self.recommended(), self.belief.state
        confidence = None if state is None else self.belief.reported()
        if best is None or state is None or confidence is None:
            return None
        generator = self._generator(len(self._events))
        farthest, exact = proposal.largest_upper(confidence, state, self.space, self._starts(), generator)
        lower = self.belief.interval(self._features([best.number]))[0][0]
        return proposal.SpaceGap(float(self.belief.raw(farthest) - lower), exact)

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
            **({"n_trials": self._n_trials} if recipes.get(self.method).needs_horizon else {}),
            **self.setting.describe(self.space),
        }

    def _generator(self, number: int) -> torch.Generator:
        return torch.Generator().manual_seed((1_000_003 * self.seed + number) % 2**63)

    def _propose(self, number: int, question: Question) -> Tensor:
        """A point [P] of the unit cube for trial ``number``."""
        generator, state = self._generator(number), self.belief.state
        if not recipes.get(self.method).has_bounds:
            return question.at_random(generator)
        if state is None:
            return proposal.filling(question, number, self.seed, generator)
        confidence, view = self.belief.confidence(), self._imagined(state)
        assert confidence is not None
        find = proposal.drawn if self.belief.draws else proposal.most_promising
        return find(confidence, view, self._search(question, generator))

    def _search(self, question: Question, generator: torch.Generator) -> proposal.Search:
        return proposal.Search(self.space, question, self._starts(), generator)

    def _starts(self) -> Tensor:
        """The best points so far, [s P]."""
        best = sorted(self.completed(), key=lambda t: -self._sign * (t.value or 0.0))[:KEPT]
        return torch.stack([self._units[trial.number] for trial in best])

    def _imagined(self, state: Posterior) -> Posterior:
        """The posterior with what is not known yet: failed and pending trials."""
        failed, pending = ([t.number for t in self.trials if t.status == status] for status in ("failed", "pending"))
        worst = min(self._sign * (trial.value or 0.0) for trial in self.completed())
        return proposal.imagined(
            state,
            self._features(failed) if failed else None,
            self.belief.target(worst),
            self._features(pending) if pending else None,
        )

    def _features(self, numbers: list[int]) -> Tensor:
        return self.space.features(torch.stack([self._units[i] for i in numbers]))

    def _number_of(self, params: Params) -> int:
        """The pending trial with these parameters; parameters nobody asked for become a trial of their own."""
        params = self.space.canonical(params)
        for trial in self.trials:
            if trial.status == "pending" and trial.params == params:
                return trial.number
        return self.expect(params).number

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
