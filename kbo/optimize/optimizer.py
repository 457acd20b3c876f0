"""The ask-tell optimiser: the next parameters to try, whatever evaluates them."""

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

from kbo import checks, recipes
from kbo.confidence import Confidence
from kbo.errors import InvalidInput, JournalError
from kbo.optimize import proposal
from kbo.optimize.belief import Belief
from kbo.optimize.context import Context, Restriction
from kbo.optimize.journal import Journal, differences, read, write
from kbo.optimize.settings import Setting, resolve
from kbo.optimize.trials import Trial, apply
from kbo.regression import Hypothetical, Posterior
from kbo.space import Bounds, Params, Space


class Optimizer:
    """Chooses parameters, learns from values, records everything in a journal.

    The next point is a function of the seed and of the events so far, so a run that was killed and is opened again
    on its journal continues as if nothing had happened. After reopening, pending trials are returned first, where they
    fit the context; ``fail`` those that will never be evaluated. Several points may be requested before any value is
    reported: each treats those before it as pending.

    Some parameters may be given from outside, for example the weather or the customer: ``ask(context=...)`` chooses the
    others, ``ask(choices=...)`` one of a list.

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
        setting: Setting | None = None,
        method: str | None = None,
        maximize: bool = False,
        n_trials: int | None = None,
        seed: int = 0,
        journal: str | os.PathLike | None = None,
    ) -> None:
        self.space = Space(bounds)
        n_trials = None if n_trials is None else checks.whole("n_trials", n_trials, 1)
        self.setting, self.method = resolve(setting, method, n_trials)
        self.maximize, self.seed = checks.flag("maximize", maximize), checks.seed(seed)
        self._n_trials, self._sign = n_trials, 1 if maximize else -1
        self._reset()
        self._journal: Journal | None = None
        if journal is not None:
            self._journal = Journal(checks.path("journal", journal), self._header())
            try:
                self._replay(self._journal.events)
            except BaseException:
                self._journal.close()
                raise

    def __repr__(self) -> str:
        trials = dict(Counter(trial.status for trial in self.trials))
        return f"Optimizer(method={self.method!r}, setting={self.setting}, trials={trials})"

    def _reset(self) -> None:
        self.learner = self.setting.begin(self.method, self._n_trials, self.space)
        self.trials: list[Trial] = []
        self._units: list[Tensor] = []
        self._orphans: list[Trial] = []
        self._events: list[dict[str, Any]] = []

    def ask(self, n: int | None = None, *, context: Context | None = None, choices: Sequence[Any] | None = None) -> Any:
        """Return the next parameters, or a list of n of them, and record them as pending.

        Args:
            n: Their number; None for one that is not in a list.
            context: Parameters whose values are given this time, by name (by index where the bounds are a list); the
                others are chosen.
            choices: The parameters to choose from this time, complete or without those of the context. The one with
                the largest upper bound is chosen; a random one while there is no bound.

        Raises:
            InvalidInput: A context or choices that do not fit the space, or leave nothing to choose.
            RefutedAssumptions: In the certified setting, no function satisfies the assumptions.
        """
        restriction = Restriction(self.space, context, choices)
        if n is None:
            return self._ask(restriction)
        return [self._ask(restriction) for _ in range(checks.whole("n", n, 0))]

    def _ask(self, restriction: Restriction) -> Params:
        self._orphans = [trial for trial in self._orphans if trial.status == "pending"]
        for i, trial in enumerate(self._orphans):
            if restriction.accepts(trial.params):
                del self._orphans[i]
                self._record({"event": "again", "number": trial.number})
                return copy.copy(trial.params)
        params = restriction.params(self._propose(len(self.trials), restriction))
        return copy.copy(self.expect(params).params)  # the caller may change its copy

    def suggest(self, number: int | None = None, *, context: Context | None = None) -> Params:
        """Return the next parameters without recording them, for tools that keep trials of their own.

        Args:
            number: The number of the trial, which seeds the choice; by default the next one here. Suggestions under
                different numbers differ while there is no bound, those under the same number and data do not.
            context: As in ``ask``.
        """
        restriction = Restriction(self.space, context)
        number = len(self.trials) if number is None else checks.whole("number", number, 0)
        return restriction.params(self._propose(number, restriction))

    def expect(self, params: Params) -> Trial:
        """Record that parameters are being evaluated, whoever chose them: a new pending trial."""
        return self._expect(params, {})

    def _expect(self, params: Params, how: dict[str, Any]) -> Trial:
        number = len(self.trials)
        self._record({"event": "ask", "number": number, "params": self.space.canonical(params), **how})
        return self.trials[number]

    def tell(self, params: Params, value: float | None, seconds: float | None = None) -> Trial:
        """Report the value at parameters returned by ``ask``, or at any others.

        None, NaN, infinite values and what is no real number (text, booleans, complex numbers) are recorded as failures
        and never reach the model.

        Raises:
            InvalidInput: Parameters outside the space, or seconds that are no finite number of at least 0.
        """
        seconds = None if seconds is None else checks.non_negative("seconds", seconds)
        number = self._number_of(params)
        try:
            y = math.nan if value is None else checks.real(value)
        except Exception:  # whatever a conversion of the caller's own raises
            return self.fail(params, f"the objective returned {checks.shown(value)} instead of a number", seconds)
        if not math.isfinite(y):
            return self.fail(params, f"the objective returned {checks.shown(value)}", seconds)
        self._record({"event": "tell", "number": number, "value": y, "seconds": seconds})
        return self.trials[number]

    def fail(self, params: Params, reason: str, seconds: float | None = None) -> Trial:
        """Report that the evaluation at these parameters failed, with the reason as text."""
        reason = checks.text("reason", reason)
        seconds = None if seconds is None else checks.non_negative("seconds", seconds)
        number = self._number_of(params)
        self._record({"event": "fail", "number": number, "reason": reason, "seconds": seconds})
        return self.trials[number]

    def belief(self) -> Belief | None:
        """Compute the posterior and the bounds after all values; None while there are too few.

        Where larger values are worse, it is about the objective times -1.

        Raises:
            RefutedAssumptions: In the certified setting, no function satisfies the assumptions.
        """
        return self.learner.belief()

    def recommended(self) -> Trial | None:
        """Return the completed trial with the best pessimistic bound, or value while there is no bound."""
        complete, known = self.completed(), self._bounded()
        if not complete or known is None:
            return max(complete, key=self._signed, default=None)
        belief, reported = known
        return complete[int(reported.lower(belief.searched, self._features(complete)).argmax())]

    def best(self, context: Context | None = None, *, choices: Sequence[Any] | None = None) -> Params | None:
        """Return the parameters with the best pessimistic bound in a context; None while there is no bound.

        Values of other contexts cannot be compared with those of this one, so unlike ``recommended`` this need not be a
        trial: it is the best that a search from many starts finds (among choices, exactly the best). ``interval`` gives
        the bounds there.

        Args:
            context: As in ``ask``; without one the context is optimised too.
            choices: As in ``ask``.
        """
        restriction, known = Restriction(self.space, context, choices), self._bounded()
        if known is None:
            return None
        belief, reported = known
        search = self._search(restriction, len(self._events))
        return restriction.params(proposal.argmax_lower(reported, belief.searched, search))

    def interval(self, params: Params) -> tuple[float, float, float] | None:
        """Return lower bound, mean and upper bound of the objective (without noise); None while there is no bound."""
        known = self._bounded()
        if known is None:
            return None
        features = self.space.features(self.space.unit(params).unsqueeze(0))
        low, mean, high = (self._sign * float(value) for value in known[0].interval(features))
        return min(low, high), mean, max(low, high)

    def gap(self) -> proposal.SpaceGap | None:
        """Return by how much the optimum can still be better than the recommendation, and whether that is exact.

        The largest upper bound of the space less the lower bound of the recommendation (for a maximum), in units of
        the objective. Over whole numbers and choices alone, up to 10 000 points, the largest bound is exact; otherwise
        it is the best that a search from many starts finds. None while there is no bound.
        """
        best, known = self.recommended(), self._bounded()
        if best is None or known is None:
            return None
        belief, reported = known
        search = self._search(Restriction(self.space), len(self._events))
        largest, exact = proposal.largest_upper(reported, belief.posterior, search)
        lower = belief.interval(self._features([best]))[0][0]
        return proposal.SpaceGap(float(belief.raw(largest) - lower), exact)

    def completed(self) -> list[Trial]:
        """Return the trials with a value."""
        return self._with_status("complete")

    def failed(self) -> list[Trial]:
        """Return the trials that failed."""
        return self._with_status("failed")

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

    def _bounded(self) -> tuple[Belief, Confidence] | None:
        """Return the belief and its reported bound; None while there is no bound."""
        belief = self.belief()
        reported = None if belief is None else belief.reported()
        return None if belief is None or reported is None else (belief, reported)

    def _propose(self, number: int, restriction: Restriction) -> Tensor:
        """Return a point [P] of the unit cube for trial ``number``."""
        search = self._search(restriction, number)
        if not recipes.get(self.method).has_bounds:
            return restriction.sample(search.generator)
        belief = self.belief()
        if belief is None:
            return proposal.filling(restriction, number, self.seed, search.generator)
        confidence = belief.confidence()
        assert confidence is not None
        find = proposal.argmax_draw if belief.draws else proposal.argmax_upper
        return find(confidence, self._hypothetical(belief), search)

    def _search(self, restriction: Restriction, number: int) -> proposal.Search:
        """Return a search from the best points so far, with the random numbers of trial ``number``."""
        best = sorted(self.completed(), key=self._signed, reverse=True)[: proposal.KEPT]
        starts = torch.stack([self._units[t.number] for t in best]) if best else torch.empty(0, self.space.dimension)
        generator = torch.Generator().manual_seed((1_000_003 * self.seed + number) % 2**63)
        return proposal.Search(self.space, restriction, starts, generator)

    def _hypothetical(self, belief: Belief) -> Posterior:
        """Return the posterior from which the next point is chosen; no reported bound ever rests on it.

        Pending points count as observed at the mean. Failed ones count as observed at the worst value so far, or the
        search would return to them: the data say nothing against them.
        """
        posterior, failed, pending = belief.searched, self.failed(), self._with_status("pending")
        if failed:
            X, worst = self._features(failed), belief.target(min(map(self._signed, self.completed())))
            posterior = Hypothetical(posterior, X, X.new_full((len(failed),), worst))
        return Hypothetical(posterior, self._features(pending)) if pending else posterior

    def _signed(self, trial: Trial) -> float:
        """Return the value of a completed trial, larger if better."""
        return self._sign * (trial.value or 0.0)

    def _with_status(self, status: str) -> list[Trial]:
        return [trial for trial in self.trials if trial.status == status]

    def _features(self, trials: list[Trial]) -> Tensor:
        return self.space.features(torch.stack([self._units[trial.number] for trial in trials]))

    def _number_of(self, params: Params) -> int:
        """Return the number of the pending trial with these parameters; of a new one if there is none.

        Of several the one that was started last: then the first one, for which reported bounds wait, reports when all
        have, and nobody can choose which of their values comes first.
        """
        params = self.space.canonical(params)
        for trial in reversed(self.trials):
            if trial.status == "pending" and trial.params == params:
                return trial.number
        return self._expect(params, {"asked": False}).number

    def _record(self, event: dict[str, Any]) -> None:
        """Write an event to disk, then apply it, so that the disk is never behind."""
        if self._journal is not None:
            self._journal.append({**event, "time": round(time.time(), 3)})
        self._apply(event)

    def _replay(self, events: list[dict[str, Any]]) -> None:
        for event in events:
            try:
                self._apply(event)
            except (KeyError, IndexError, TypeError, InvalidInput) as error:
                raise JournalError(f"the journal has an event that does not fit: {event} ({error}).") from error
        self._orphans = self._with_status("pending")

    def _apply(self, event: dict[str, Any]) -> None:
        unit = self.space.unit(event["params"]) if event["event"] == "ask" else None  # raises before anything changes
        trial = apply(self.trials, event)
        if unit is not None:
            self._units.append(unit)
        self._events.append(event)
        if trial.status == "complete":
            self.learner.observe(trial.number, self._features([trial]), self._signed(trial))
        elif trial.status == "failed":
            self.learner.lose(trial.number)
