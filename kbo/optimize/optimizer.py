"""The ask-tell optimiser: the next parameters to try, whatever evaluates them."""

from __future__ import annotations

import copy
import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, overload

import torch
from torch import Tensor

from kbo._base import checks
from kbo._base.surroundings import fixed
from kbo._base.terminal import Bar
from kbo.bandit import methods
from kbo.confidence import Confidence, Limit
from kbo.errors import InvalidInput
from kbo.optimize.constrained import ConstraintBelief, limits
from kbo.optimize.inference import Inference
from kbo.optimize.insight.branch import Ceiling, kept_everywhere, largest_proved, obstacle, slacks
from kbo.optimize.run.events import Event
from kbo.optimize.run.guarded import guarded
from kbo.optimize.run.trials import Trial
from kbo.optimize.search.bounds import (
    NOT_ASKED,
    SpaceGap,
    argmax_lower,
    largest_upper,
    whichever_holds,
)
from kbo.optimize.search.search import MOST_POINTS, N_BEST, Search
from kbo.optimize.search.subspace import Context, Subspace
from kbo.optimize.strategies.explanation import Explanation, explained, explanation_of
from kbo.optimize.strategies.safe_exploration import Exploration, SafeExploration
from kbo.optimize.strategies.strategy import propose
from kbo.optimize.surrogates.surrogate import Bound, Surrogate
from kbo.space import Params

MANY = 500
"""Completed trials from which on the practical setting scores half as many points in the search for the next one: each
is expensive, and the starts are good."""


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
        method: A name of ``kbo.bandit.names()``; by default "ucb" (practical setting) or "dmm-ucb" (certified).
        maximize: Whether larger values are better.
        n_trials: The planned number of trials, if the method needs it ("igp-ucb").
        constraints: Limits on measured quantities (``kbo.Constraint``), and on parameters (``kbo.Linear`` or functions
            that return whether given parameters are allowed).
        value_range: The least and the largest possible value, such as (0, 1) for an error rate: intervals stay inside,
            and other values are failures.
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
        options = {
            "setting": self.setting,
            "method": self.method,
            "maximize": self.maximize,
            "seed": self.seed,
        }
        options |= {"n_trials": self._problem.n_trials, "constraints": self.constraints}
        options |= {"value_range": self.value_range}
        return partial(Optimizer, self.space, **options), (), self.events

    @fixed
    def __setstate__(self, events: list[Event]) -> None:
        self._open(events)

    def __repr__(self) -> str:
        trials = dict(Counter(trial.status for trial in self.trials))
        return f"Optimizer(method={self.method!r}, setting={self.setting}, trials={trials})"

    @overload
    def ask(
        self,
        n: None = None,
        *,
        context: Context | None = None,
        choices: Sequence[Any] | None = None,
    ) -> Params: ...

    @overload
    def ask(
        self, n: int, *, context: Context | None = None, choices: Sequence[Any] | None = None
    ) -> list[Params]: ...

    @guarded
    def ask(
        self,
        n: int | None = None,
        *,
        context: Context | None = None,
        choices: Sequence[Any] | None = None,
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
        region, running = Subspace(self.space, context, choices), self._running.copy()
        self._fail_lost()
        count = 1 if n is None else checks.whole("n", n, 0)
        # Copies, which the caller may change.
        params = [copy.copy(self._begin(region, running).params) for _ in range(count)]
        self._running = running
        return params[0] if n is None else params

    @guarded
    def begin(
        self, *, context: Context | None = None, choices: Sequence[Any] | None = None
    ) -> Trial:
        """Begin the next trial and return it: ``ask`` for callers that report by trial; arguments as there."""
        region = Subspace(self.space, context, choices)
        self._fail_lost()
        return self._begin(region, self._running)

    def _begin(self, region: Subspace, running: set[int]) -> Trial:
        """Begin a trial, first those that nobody evaluates, and add it to those that are running."""
        idle = (trial for trial in self._idle(running) if region.accepts(trial.params))
        if (trial := next(idle, None)) is None:
            params, explanation = self._next(len(self._trials.all), region)
            trial = self._expect(params, proposal=explanation.record())
        else:
            self._again(trial)
        running.add(trial.number)
        return trial

    @guarded
    def suggest(
        self,
        number: int | None = None,
        *,
        context: Context | None = None,
        pending: Iterable[Params] = (),
        within: Mapping[str, tuple[float, float]] | None = None,
        among: Tensor | None = None,
    ) -> Params:
        """Return the next parameters without recording them.

        Args:
            number: The number of the trial, which decides its random choices; by default the next one.
            context: As in ``ask``.
            pending: More parameters that are being evaluated, besides the pending trials.
            within: The least and the largest value that numbers may have this time, by name, where these are closer
                than the bounds of the space; for spaces without constraints and tables.
            among: Points [A P] of the unit cube to choose from, moved to where they agree with the context and the
                ranges; by default all.
        """
        region = Subspace(self.space, context, within=within)
        if among is not None:
            region = region.among(region.place(among), partial=True)
        number = len(self._trials.all) if number is None else checks.whole("number", number, 0)
        return self._next(number, region, list(pending))[0]

    @guarded
    def best(
        self, context: Context | None = None, *, choices: Sequence[Any] | None = None
    ) -> Params | None:
        """Return the parameters with the best pessimistic bound in a context; None while there is no bound.

        Values of other contexts cannot be compared with those of this one, so unlike ``recommended`` this need not be a
        trial: it is the best that a search from many starts finds (among choices, exactly the best). ``interval`` gives
        the bounds there. With constraints it is certain to keep them by these bounds, or as near to that as is found.

        Args:
            context: As in ``ask``; without one the context is optimised too.
            choices: As in ``ask``.
        """
        region, known = Subspace(self.space, context, choices), self._bounded()
        if known is None:
            return None
        latest = known[0].latest
        assert latest is not None
        search = self._search(region, len(self._trials.finished))
        if self._exploration is not None:
            units = self._exploration.safe(search, self._units_of(self._trials.all))[0]
            search = replace(search, subspace=region.among(units))
        return region.params(
            argmax_lower(latest.confidence, latest.posterior, search, limits(self._limited()))
        )

    @guarded
    def gap(
        self, evaluations: int = 0, goal: float = 0.0, progress: bool = False
    ) -> SpaceGap | None:
        """Return by how much the optimum can still be better than the recommendation, and whether that is proved.

        The largest upper bound of the space less the lower bound of the recommendation (for a maximum), in units of
        the objective. Over whole numbers and choices alone, up to 10 000 points, the largest bound is exact; otherwise
        it is the best that a search from many starts finds, or with ``evaluations`` one that branch and bound proves;
        ``reason`` is why nothing is proved, or which bound proves more than those of the method.
        With constraints it is that of the points which possibly keep them, and in the safe setting that of the points
        which are certain to: of the whole space, if it is proved that all are. None while there is no bound, and while
        the recommendation is not known to keep all constraints.

        Args:
            evaluations: Points at which bounds may be computed for a proof, at most, for each hypothesis. There is one
                in the certified setting, for kernels made of RBF and Matern kernels and parameters without conditions.
            goal: The proof ends when the gap is at most this.
            progress: Whether a bar shows how much of the proof is done.

        Raises:
            Contradiction: A proof excludes what the bounds allow at some point, and no norm bound accounts for it: a
                fault of kbo.
        """
        checks.whole("evaluations", evaluations, 0)
        best, known = self._recommended(), self._bounded()
        if best is None or known is None:
            return None
        if self.constraints and not self._feasibility(best).kept:
            return None
        belief, limited, every = known[0], self._limited(), "over the whole space"
        here, reason = self._features([best]), self._uncertified(belief, limited)
        search = self._search(Subspace(self.space), len(self._trials.finished))
        searches = len(belief.bounds) + len(limited) * (self._exploration is not None)
        with Bar(
            total=evaluations * searches, desc="proof of the gap", disable=not progress
        ) as bar:
            if self._exploration is not None:
                safe = self._gap_of_safe(*known, search, float(belief.interval(here)[0]))
                if safe.exact or reason or not evaluations:
                    return safe if safe.proved else safe._replace(reason=reason or NOT_ASKED)
                if not kept_everywhere(limited, self.space, evaluations, bar.update):
                    return safe._replace(
                        reason="it is not proved that every point of the space is safe"
                    )
                limited, every = [], f"{every}, every point of which is certain to be safe"
            found = []
            for bound in belief.bounds:  # of the hypothesis that is true, whichever it is
                tried = 0 if reason else evaluations
                found.append(
                    self._gap_of_bound(
                        bound, belief, limited, here, search, tried, goal, bar.update
                    )
                )
        if found[0].exact and self.space.constraints:
            every = "over all points that satisfy the constraints"
        return whichever_holds(found, every, reason)

    def _gap_of_bound(
        self,
        bound: Bound,
        belief: Surrogate,
        limited: Sequence[ConstraintBelief],
        here: Tensor,
        search: Search,
        evaluations: int,
        goal: float,
        counted: Callable[[int], object],
    ) -> SpaceGap:
        """Return the gap by the bound of one hypothesis, without its scope; ``here`` are the recommended features."""
        lower = bound.confidence.lower(bound.posterior, here)[0]
        largest = largest_upper(bound.confidence, bound.posterior, search, limits(limited))
        found = max(
            float(belief.transform.inverse(largest.value) - belief.transform.inverse(lower)), 0.0
        )
        if largest.unit is None:
            return SpaceGap(found, True, "", proved=True, found=found)
        if not evaluations:
            return SpaceGap(found, False, "", found=found, reason=NOT_ASKED)
        least = float(lower)
        proof = largest_proved(
            [Ceiling([bound])],
            self.space,
            evaluations,
            lower=least,
            goal=goal,
            within=slacks(limited, self.space),
            witnesses=largest.unit.unsqueeze(0),
            counted=counted,
        )
        if proof is None:
            return SpaceGap(
                found, False, "", found=found, reason=obstacle([Ceiling([bound])], self.space)
            )
        value = max(proof.largest - least, 0.0)
        if math.isfinite(proof.largest):
            value = min(
                value,
                max(
                    float(
                        belief.transform.inverse(lower.new_tensor(proof.largest))
                        - belief.transform.inverse(lower)
                    ),
                    0.0,
                ),
            )
        return SpaceGap(
            value, False, "", proved=True, found=found, reason=proof.reason if value < found else ""
        )

    def _uncertified(self, belief: Surrogate, limited: Sequence[ConstraintBelief]) -> str:
        """Return the reason why the bounds of the objective or of a limit have no guarantee; empty if all have one."""
        beliefs = {"": belief} | {f"{one.constraint.name}: ": one.belief for one in limited}
        for name, one in beliefs.items():
            if not one.guarantee():
                guarantee = one.guarantee().text.removeprefix("not certified: ")
                causes = [
                    t.number
                    for t in self._trials.finished
                    if any(way in guarantee for way in t.selected)
                ]
                first = f" (first trial {causes[0]})" if causes else ""
                return f"{name}{guarantee}{first}"
        return ""

    def _gap_of_safe(
        self, belief: Surrogate, reported: Confidence, search: Search, lower: float
    ) -> SpaceGap:
        """Return the gap over the points that are known to be safe, given the lower bound of the recommendation."""
        assert self._exploration is not None
        units, grows = self._exploration.safe(search, self._units_of(self._trials.all))
        largest = reported.argmax_upper(belief.posterior, self.space.features(units))[1]
        upper = float(belief.transform.inverse(torch.tensor(largest, dtype=torch.float64)))
        value = max(upper - lower, 0.0)
        exact = self._exploration.whole
        scope = f"over {len(units)} points that are certain to be safe{', to which others may be added' * grows}"
        return SpaceGap(
            value,
            exact,
            scope,
            not grows,
            bool(belief.guarantee()) and exact and not grows,
            value,
        )

    @guarded
    def safe_points(self) -> list[Params]:
        """Return the parameters that are certain to keep all limits: of up to 100 000 points all, else those found.

        Raises:
            InvalidInput: The setting is not ``kbo.Safe``.
            RefutedAssumptions: No function satisfies the assumptions.
        """
        if self._exploration is None:
            raise InvalidInput(
                f"safe_points belongs to the setting kbo.Safe(...), and this one is {self.setting}."
            )
        self._learn()
        search = self._search(Subspace(self.space), len(self._trials.finished))
        return [
            self.space.params(unit)
            for unit in self._exploration.safe(search, self._units_of(self._trials.all))[0]
        ]

    @guarded
    def exhausted(self) -> bool:
        """Return whether the objective has no noise and every point of a small finite space has been evaluated."""
        points = self.space.points(MOST_POINTS) if self._exact() else None
        if points is None:
            return False
        return set(map(tuple, self._units_of(self._trials.finished).tolist())).issuperset(
            map(tuple, points.tolist())
        )

    def _next(
        self, number: int, region: Subspace, pending: Sequence[Params] = ()
    ) -> tuple[Params, Explanation]:
        """Return the parameters of trial ``number``, and why; ``pending`` ones are evaluated besides the trials."""
        search = self._search_with_surrogates(number, region, pending)
        proposal = propose(self._strategies, search)
        values = [trial.value for trial in self._leading() if trial.value is not None]
        best = values[0] if values else None
        return proposal.params, explained(proposal, search, self._sign, best)

    def _search_with_surrogates(
        self, number: int, region: Subspace, pending: Sequence[Params]
    ) -> Search:
        """Return the search for the parameters of trial ``number``, with everything that is known before it."""
        pending_units = self.space.units(pending)
        running = torch.cat([self._units_of(list(self._trials.pending.values())), pending_units])
        tried = torch.cat([self._units_of(self._trials.all), pending_units])
        has_bounds = methods.get(self.method).has_bounds
        surrogate = self._belief() if has_bounds else None
        many = len(self._trials.complete) >= MANY and not self.setting.certified
        search = self._search(region, number, 0.5 if many else 1.0)
        bound = None
        if surrogate is not None:
            bound = self._with_failed(surrogate.bound(number), surrogate)
            bound = self._with_pending(bound, running)
        limits = []
        if surrogate is not None or self._exploration is not None:
            for limited in self._limited():
                own = self._with_pending(limited.belief.bound(number), running)
                limits.append(Limit(own.posterior, own.confidence, lower=limited.level))
        search = replace(
            search,
            seed=self.seed,
            tried=tried,
            surrogate=surrogate,
            bound=bound,
            limits=limits,
            recommend=self._recommended_params,
        )
        repeats_nothing = search.is_noiseless
        if has_bounds and surrogate is None:
            repeats_nothing = self.space.table is not None
        if repeats_nothing:
            return search.untried()
        return search

    def _recommended_params(self) -> Params | None:
        trial = self._recommended()
        return None if trial is None else trial.params

    @guarded
    def explain(self, number: int) -> Explanation | None:
        """Return why a trial has its parameters: the strategy that chose them, and the numbers that it compared.

        None for trials whose parameters were given, and for those of journals that were written before version 0.25.

        Args:
            number: The number of the trial.

        Raises:
            InvalidInput: There is no such trial.
        """
        number = checks.whole("number", number, 0)
        if number >= len(self._trials.all):
            raise InvalidInput(
                f"there is no trial {number}: the run has {len(self._trials.all)} trials, from 0."
            )
        return explanation_of(self._trials.all[number].proposal)

    def _search(self, region: Subspace, number: int, effort: float = 1.0) -> Search:
        """Return a search from the best points so far, with the random numbers of trial ``number``."""
        starts, generator = self._starts(region), self._generator(number)
        if self.space.constraints:
            region = region.knowing(self._units_of(self._trials.all))
            starts = starts[
                self.space.satisfies(starts)
            ]  # not known results that exceed a limit by rounding
            starts = starts if len(starts) else region.sample(generator).unsqueeze(0)
        return Search(self.space, region, starts, number, generator, effort)

    def _starts(self, region: Subspace) -> Tensor:
        """Return the best points [s P] so far; where a region has a box, those in the box, if there are any."""
        if region.boxed:
            complete = self._trials.complete
            inside = region.in_box(self._units_of(complete)).tolist()
            best = [trial for trial, is_inside in zip(complete, inside, strict=True) if is_inside]
            if best:
                return self._units_of(heapq.nlargest(N_BEST, best, self._precedence))
        return self._units_of(self._leading())

    def _leading(self) -> list[Trial]:
        """Return the trials with the best values, of equal ones those that were begun first."""
        fresh = [
            trial for trial in self._trials.finished[self._ranked :] if trial.status == "complete"
        ]
        ranked = self._best + self._allowed(fresh)
        self._best = heapq.nlargest(N_BEST, ranked, self._precedence)
        self._ranked = len(self._trials.finished)
        return self._best

    def _precedence(self, trial: Trial) -> tuple[tuple[int, float], int]:
        """Return the sort key of a completed trial: ``_rank``, then the earlier trial first."""
        return self._rank(trial), -trial.number

    def _with_failed(self, bound: Bound, belief: Surrogate) -> Bound:
        """Return a bound of the objective to search with, with failed trials observed at the worst value so far.

        Otherwise the search would return to them: the data say nothing against them. Pruned trials of whose value
        nothing is predicted count as failed ones.
        """
        predicted = {one.number for one in belief.values if one.predicted}
        unpredicted = [trial for trial in self._trials.pruned if trial.number not in predicted]
        without_value = self._trials.failed + unpredicted
        if not without_value:
            return bound
        worst = belief.transform.target(min(map(self._signed, self._trials.complete)))
        X = self._features(without_value)
        return bound.given(X, X.new_full((len(X),), worst))

    def _with_pending(self, bound: Bound, pending: Tensor) -> Bound:
        """Return a bound to search with, with pending points [n P] of the unit cube observed at the mean."""
        if not len(pending):
            return bound
        return bound.given(self.space.features(pending))

    def _after_learning(self) -> None:
        if self._exploration is not None:
            self._exploration.learn(self._known_limits())

    def _compute(self) -> None:
        super()._compute()
        start, n_limits = self.setting.start, len(self._limited_by)
        self._exploration = Exploration(self.space, start, n_limits) if start else None
        if self._exploration is None:
            self._strategies = self.setting.strategies_for(self.method)
        else:
            self._strategies = [SafeExploration(self._exploration)]
        self._best: list[Trial] = []
        self._ranked = 0
