"""The ask-tell optimiser: the next parameters to try, whatever evaluates them."""

from __future__ import annotations

import copy
import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, overload

import torch
from torch import Tensor

from kbo import checks, recipes
from kbo.errors import InvalidInput
from kbo.optimize import constrained, proposal
from kbo.optimize.belief import Belief
from kbo.optimize.context import Context, Restriction
from kbo.optimize.events import Event
from kbo.optimize.exploration import Exploration
from kbo.optimize.guarded import guarded
from kbo.optimize.inference import Inference
from kbo.optimize.pruning import matched_values
from kbo.optimize.trials import Trial
from kbo.regression import Hypothetical, Posterior
from kbo.space import Params

MANY = 500
"""Completed trials from which on the practical setting scores half as many points in the search for the next one: each
is expensive, and the starts are good."""

_DOUBLINGS = 5
"""Times that the hypothetical evaluations of a pending point are doubled, at most, before it is tried again."""


class Optimizer(Inference):
    """Chooses parameters, learns from values, records everything in a journal.

    The next point is a function of the seed and of the events so far, so a run that was killed and is opened again
    on its journal continues as if nothing had happened. After reopening, pending trials are returned first, where they
    fit the context; ``fail`` those that will never be evaluated. A trial that was lost twice is failed. Several points
    may be requested before any value is reported: each treats those before it as pending.

    Threads may share an optimiser; its methods run one at a time. After a method was interrupted, the next one begins
    with what is on record (docs/reliability.md).

    Some parameters may be given from outside, for example the weather or the customer: ``ask(context=...)`` chooses the
    others, ``ask(choices=...)`` one of a list.

    Args:
        bounds: See ``kbo.space.Space``.
        setting: ``Practical()`` (default), ``Certified(...)`` or ``Safe(...)``.
        method: A name of ``kbo.recipes.names()``; by default "ucb" (practical setting) or "dmm-ucb" (certified).
        maximize: Whether larger values are better.
        n_trials: The planned number of trials, if the method needs it ("igp-ucb").
        constraints: Limits on measured quantities (``kbo.Constraint``), and on parameters (``kbo.Linear`` or functions
            that return whether given parameters are allowed).
        seed: Seed of every random choice.
        journal: Path of the journal; None keeps the run in memory.
        device: Where posteriors are, and points of a search are scored, such as "cuda"; the CPU by default. It decides
            neither the journal nor, but for rounding, the points.

    Raises:
        InvalidInput: Bounds, setting, method, constraints or device cannot be used.
        JournalError: The journal cannot be written, is damaged, or belongs to another problem.

    Example:
        >>> optimizer = Optimizer({"x": (0.0, 1.0)}, journal="run.jsonl")
        >>> x = optimizer.ask()
        >>> optimizer.tell(x, objective(x))
    """

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy has the run in memory, on the CPU, and writes no journal."""
        options = {"setting": self.setting, "method": self.method, "maximize": self.maximize, "seed": self.seed}
        options |= {"n_trials": self._n_trials, "constraints": self.constraints}
        return partial(Optimizer, self.space, **options), (), self.events

    def __setstate__(self, events: list[Event]) -> None:
        self._open(events)

    def __repr__(self) -> str:
        trials = dict(Counter(trial.status for trial in self.trials))
        return f"Optimizer(method={self.method!r}, setting={self.setting}, trials={trials})"

    @overload
    def ask(
        self, n: None = None, *, context: Context | None = None, choices: Sequence[Any] | None = None
    ) -> Params: ...

    @overload
    def ask(self, n: int, *, context: Context | None = None, choices: Sequence[Any] | None = None) -> list[Params]: ...

    @guarded
    def ask(
        self, n: int | None = None, *, context: Context | None = None, choices: Sequence[Any] | None = None
    ) -> Params | list[Params]:
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
        restriction, running = Restriction(self.space, context, choices), self._running.copy()
        self._fail_lost()
        count = 1 if n is None else checks.whole("n", n, 0)
        # Copies, which the caller may change.
        params = [copy.copy(self._begin(restriction, running).params) for _ in range(count)]
        self._running = running
        return params[0] if n is None else params

    @guarded
    def begin(self, *, context: Context | None = None, choices: Sequence[Any] | None = None) -> Trial:
        """Begin the next trial and return it: ``ask`` for callers that report by trial; arguments as there."""
        restriction = Restriction(self.space, context, choices)
        self._fail_lost()
        return self._begin(restriction, self._running)

    def _begin(self, restriction: Restriction, running: set[int]) -> Trial:
        """Begin a trial, first those that nobody evaluates, and add it to those that are running."""
        idle = (trial for trial in self._idle(running) if restriction.accepts(trial.params))
        if (trial := next(idle, None)) is None:
            trial = self._expect(self._next(len(self._trials.all), restriction))
        else:
            self._again(trial)
        running.add(trial.number)
        return trial

    @guarded
    def suggest(
        self, number: int | None = None, *, context: Context | None = None, pending: Iterable[Params] = ()
    ) -> Params:
        """Return the next parameters without recording them.

        Args:
            number: The number of the trial, which decides its random choices; by default the next one.
            context: As in ``ask``.
            pending: More parameters that are being evaluated, besides the pending trials.
        """
        restriction = Restriction(self.space, context)
        number = len(self._trials.all) if number is None else checks.whole("number", number, 0)
        return self._next(number, restriction, list(pending))

    @guarded
    def best(self, context: Context | None = None, *, choices: Sequence[Any] | None = None) -> Params | None:
        """Return the parameters with the best pessimistic bound in a context; None while there is no bound.

        Values of other contexts cannot be compared with those of this one, so unlike ``recommended`` this need not be a
        trial: it is the best that a search from many starts finds (among choices, exactly the best). ``interval`` gives
        the bounds there. With constraints it is certain to keep them by these bounds, or as near to that as is found.

        Args:
            context: As in ``ask``; without one the context is optimised too.
            choices: As in ``ask``.
        """
        restriction, known = Restriction(self.space, context, choices), self._bounded()
        if known is None:
            return None
        belief, reported = known
        search = self._search(restriction, len(self._trials.finished))
        if self._exploration is not None:
            units = self._exploration.safe(search, self._units_of(self._trials.all))[0]
            search = replace(search, restriction=restriction.among(units))
        limits = constrained.limits(self._limited())
        return restriction.params(proposal.argmax_lower(reported, belief.searched, search, limits))

    @guarded
    def gap(self) -> proposal.SpaceGap | None:
        """Return by how much the optimum can still be better than the recommendation, and whether that is exact.

        The largest upper bound of the space less the lower bound of the recommendation (for a maximum), in units of
        the objective. Over whole numbers and choices alone, up to 10 000 points, the largest bound is exact; otherwise
        it is the best that a search from many starts finds. With constraints it is that of the points which possibly
        keep them, and in the safe setting that of the points which are certain to. None while there is no bound, and
        while the recommendation is not known to keep all constraints.
        """
        best, known = self._recommended(), self._bounded()
        if best is None or known is None:
            return None
        if self.constraints and not self._feasibility(best).kept:
            return None
        belief, reported = known
        search = self._search(Restriction(self.space), len(self._trials.finished))
        lower = float(belief.interval(self._features([best]))[0][0])
        if self._exploration is not None:
            units, grows = self._exploration.safe(search, self._units_of(self._trials.all))
            largest = reported.argmax_upper(belief.posterior, self.space.features(units))[1]
            exact, scope = self._exploration.whole, f"over {len(units)} points that are certain to be safe"
            scope += ", to which others may be added" * grows
            return proposal.SpaceGap(float(belief.raw(torch.tensor(largest))) - lower, exact, scope, not grows)
        largest, exact = proposal.largest_upper(reported, belief.posterior, search, constrained.limits(self._limited()))
        every = "over all points that satisfy the constraints" if self.space.constraints else "over the whole space"
        scope = every if exact else "by a search from many starts"
        return proposal.SpaceGap(float(belief.raw(largest)) - lower, exact, scope)

    @guarded
    def safe_points(self) -> list[Params]:
        """Return the parameters that are certain to keep all limits: of up to 100 000 points all, else those found.

        Raises:
            InvalidInput: The setting is not ``kbo.Safe``.
            RefutedAssumptions: No function satisfies the assumptions.
        """
        if self._exploration is None:
            raise InvalidInput(f"safe_points belongs to the setting kbo.Safe(...), and this one is {self.setting}.")
        self._learn()
        search = self._search(Restriction(self.space), len(self._trials.finished))
        return [self.space.params(unit) for unit in self._exploration.safe(search, self._units_of(self._trials.all))[0]]

    @guarded
    def exhausted(self) -> bool:
        """Return whether the objective has no noise and every point of a small finite space has been evaluated."""
        points = self.space.points(proposal.MOST_POINTS) if self._exact() else None
        if points is None:
            return False
        return set(map(tuple, self._units_of(self._trials.finished).tolist())).issuperset(map(tuple, points.tolist()))

    def _next(self, number: int, restriction: Restriction, pending: Sequence[Params] = ()) -> Params:
        """Return the parameters of trial ``number``; ``pending`` ones are being evaluated besides the trials."""
        units = self.space.units(pending)
        if (again := self._repetition(restriction, units)) is not None:
            return again
        trials, exact = self._trials, self._exact() and not restriction.partial
        known = [*(trial.params for trial in (trials.all if exact else trials.pending.values())), *pending]
        params = restriction.params(self._propose(number, restriction, units))
        for doubling in range(0 if exact else _DOUBLINGS):
            if params not in known:
                break
            # As if it were evaluated more often, until another point is better.
            units = torch.cat([units, self.space.units([params] * 2**doubling)])
            params = restriction.params(self._propose(number, restriction, units))
        if exact and params in known:  # without noise its value is known, or will be
            search = self._search(restriction, number)
            params = restriction.params(search.restriction.sample(search.generator))
        return params

    def _repetition(self, restriction: Restriction, pending: Tensor) -> Params | None:
        """Return the recommended parameters if they are to be repeated; None after the first repetition."""
        if restriction.partial or not recipes.get(self.method).has_bounds:
            return None
        belief = self._belief()
        if belief is None or belief.exact is not None:
            return None
        known = torch.cat([self._units_of(self._trials.all), pending])
        best = self._recommended() if len(known.unique(dim=0)) == len(known) else None
        return None if best is None else best.params

    def _propose(self, number: int, restriction: Restriction, pending: Tensor) -> Tensor:
        """Return a point [P] of the unit cube for trial ``number``; points [n P] are pending besides the trials."""
        many = len(self._trials.complete) >= MANY and not self.setting.certified
        running = torch.cat([self._units_of(list(self._trials.pending.values())), pending])
        search = self._search(restriction, number, 0.5 if many else 1.0)
        if not recipes.get(self.method).has_bounds:
            return search.restriction.sample(search.generator)
        belief = self._belief()
        if self._exploration is not None:
            tried = torch.cat([self._units_of(self._trials.all), pending])
            states = [one.posterior for one in self._limited(running)]
            if belief is not None:
                states.append(self._hypothetical(belief, running))
            return self._exploration.propose(belief, states, search, tried)
        if self.space.table is not None if belief is None else belief.exact:
            search = search.unvisited(torch.cat([self._units_of(self._trials.all), pending]))
        if belief is None:
            centre_first = not self.setting.certified
            return proposal.filling(search.restriction, number, self.seed, search.generator, centre_first=centre_first)
        posterior = self._hypothetical(belief, running)
        limited = self._limited(running) if self.constraints else []
        return constrained.propose(belief, posterior, limited, search) if limited else belief.propose(posterior, search)

    def _search(self, restriction: Restriction, number: int, effort: float = 1.0) -> proposal.Search:
        """Return a search from the best points so far, with the random numbers of trial ``number``."""
        starts, generator = self._units_of(self._leading()), self._generator(number)
        if self.space.constraints:
            restriction = restriction.knowing(self._units_of(self._trials.all))
            starts = starts if len(starts) else restriction.sample(generator).unsqueeze(0)
        return proposal.Search(self.space, restriction, starts, number, generator, effort)

    def _leading(self) -> list[Trial]:
        """Return the trials with the best values, of equal ones those that were begun first."""
        fresh = [trial for trial in self._trials.finished[self._ranked :] if trial.status == "complete"]
        ranked = self._best + self._allowed(fresh)
        self._best = heapq.nlargest(proposal.KEPT, ranked, lambda t: (self._rank(t), -t.number))
        self._ranked = len(self._trials.finished)
        return self._best

    def _hypothetical(self, belief: Belief, pending: Tensor) -> Posterior:
        """Return the posterior from which the next point is chosen; no reported bound ever rests on it.

        Points [n P] that are ``pending`` count as observed at the mean. Failed trials count as observed at the worst
        value so far, or the search would return to them: the data say nothing against them. So do pruned ones, in the
        practical setting at the value that matches their last report.
        """
        posterior, trials = belief.searched, self._trials
        if without := trials.failed + trials.pruned:
            worst = self._sign * min(map(self._signed, trials.complete))
            matched = {} if self.setting.certified else matched_values(trials.pruned, trials.complete)
            values = [belief.target(self._sign * matched.get(trial.number, worst)) for trial in without]
            X = self._features(without)
            posterior = Hypothetical(posterior, X, X.new_tensor(values))
        return Hypothetical(posterior, self.space.features(pending)) if len(pending) else posterior

    def _after_learning(self) -> None:
        if self._exploration is not None:
            self._exploration.learn(self._known_limits())

    def _compute(self) -> None:
        super()._compute()
        start, limits = self.setting.start, len(self._limited_by)
        self._exploration = Exploration(self.space, start, limits) if start else None
        self._best: list[Trial] = []
        self._ranked = 0
