"""The ask-tell optimiser: it returns the next parameters to try, and the caller evaluates them."""

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, overload

import torch
from torch import Tensor

from kbo._base import checks, devices
from kbo._base.arguments import naming_arguments
from kbo._base.isolation import isolated
from kbo.errors import InvalidInput
from kbo.optimize.assumptions.same_kernel import check_bounds_go_on
from kbo.optimize.constraints.constraint import Constraint, measured_only
from kbo.optimize.evaluated.results import known_results, unrecorded
from kbo.optimize.insight.gap.gap import Gap
from kbo.optimize.insight.gap.run_gap import run_gap
from kbo.optimize.insight.insight import Insight
from kbo.optimize.objectives.objective import Objective, main_of
from kbo.optimize.proposal.params import best_params, next_params, safe_units
from kbo.optimize.proposal.trial_search import search_after_trials
from kbo.optimize.quantities.new_run import journal_header, new_quantities
from kbo.optimize.quantities.quantities import Quantities
from kbo.optimize.quantities.recommendation import recommended_trial
from kbo.optimize.run.events import Event
from kbo.optimize.run.guard import Guard, guarded
from kbo.optimize.run.outcome import OBJECTIVE
from kbo.optimize.run.run import Run
from kbo.optimize.run.trials import Trial, Trials
from kbo.optimize.search.subspace import Context, Subspace
from kbo.optimize.settings.setting import Setting
from kbo.optimize.strategies.explanation import Explanation, explanation_of
from kbo.space import Bounds, Params, Space


class Optimizer:
    """Chooses parameters, learns from values, records everything in a journal.

    The next point is a function of the seed and of the events so far. So a run that was killed continues from its
    journal as if nothing had happened: ``ask`` first returns the pending trials that fit the context. Call ``fail`` for
    trials that will never be evaluated; a trial that was lost twice is failed. Several points may be requested before
    any value is reported: each is chosen with the earlier ones as pending.

    Threads may share an optimiser; its methods run one at a time. After an interrupted method the next one first
    restores the recorded state (docs/reliability.md).

    Some parameters may be given from outside (the context), for example the weather or the customer:
    ``ask(context=...)`` chooses the others. ``ask(choices=...)`` chooses one entry of a list.

    Args:
        bounds: See ``kbo.space.Space``.
        setting: ``Practical()`` (default), ``Certified(...)`` or ``Safe(...)``.
        method: A name of ``kbo.bandit.names()``; by default "ucb" (practical setting), "dmm-ucb" (certified), or
            "cmm-ucb" (safe).
        maximize: Whether larger values are better.
        n_trials: The planned number of trials, if the method needs it ("igp-ucb").
        constraints: Limits on measured quantities (``kbo.Constraint``), and on parameters (``kbo.Linear`` or functions
            that return whether given parameters are allowed).
        value_range: The least and the largest possible value, such as (0, 1) for an error rate. Intervals stay inside;
            a trial with a value outside has failed.
        objectives: Several quantities to optimise: names, which are minimised unless ``maximize``,
            ``kbo.Minimize(name)`` and ``kbo.Maximize(name)``. The objective returns a dict with them.
        reference: With several objectives: by name, the values of some of them that are just not acceptable.
        seed: Seed of every random choice.
        journal: Path of the journal; None keeps the run in memory.
        allow_change: Whether the space may differ from that of the journal. If it does, the run goes on in the new
            space, as by ``change``.
        was: Values of parameters, by name, for earlier trials and known results that do not have these parameters.
        evaluated: Known results: a DataFrame, or the path of a table (.csv) or of a journal; see ``kbo.minimize``.
        device: The device of posteriors and of searches, such as "cuda"; by default the CPU. Points differ between
            devices by rounding only, and a journal may be continued on another device.

    Attributes:
        run: The events and the trials so far, and the journal.
        space: The search space.
        insight: Statistics about the run: the surrogate, the expected gain of more trials, the importance of
            parameters.
        setting, method, constraints, maximize, value_range, seed: As given, or the defaults.
        left_out: Sentences about known results that are not used, one for each reason.

    Raises:
        InvalidInput: Bounds, setting, method, constraints or device cannot be used.
        JournalError: The journal cannot be written, is damaged, or belongs to another problem.

    Example:
        >>> optimizer = Optimizer({"x": (0.0, 1.0)}, journal="run.jsonl")
        >>> x = optimizer.ask()
        >>> optimizer.tell(x, objective(x))
    """

    @naming_arguments
    @isolated
    def __init__(
        self,
        bounds: Bounds | Space,
        *,
        setting: Setting | None = None,
        method: str | None = None,
        maximize: bool = False,
        n_trials: int | None = None,
        constraints: Sequence[Any] = (),
        value_range: tuple[float, float] | None = None,
        objectives: Sequence[Any] = (),
        reference: Any = None,
        seed: int = 0,
        journal: str | os.PathLike[str] | None = None,
        allow_change: bool = False,
        was: Mapping[str, Any] | None = None,
        evaluated: Any = None,
        device: str | torch.device | None = None,
    ) -> None:
        measured, on_parameters = measured_only(constraints)
        space = Space(bounds, on_parameters).on(devices.device("device", device))
        value_range = checks.maybe(checks.interval, "value_range", value_range)
        # Before a journal is opened, since this refuses arguments that cannot be used.
        quantities = new_quantities(
            space, setting, method, n_trials, measured, maximize, objectives, reference, value_range
        )
        self.setting: Setting = quantities.setting
        self.method: str = quantities.problem.method
        self.constraints: tuple[Constraint, ...] = tuple(measured)
        self.objectives: tuple[Objective, ...] = tuple(quantities.objectives)
        self.reference: dict[str, float] = dict(quantities.reference)
        self.maximize: bool = quantities.maximize
        self.value_range: tuple[float, float] | None = value_range
        self.seed: int = checks.seed(seed)
        self._n_trials: int | None = quantities.problem.n_trials
        needed = quantities.needed
        known = known_results(
            evaluated, space, self.maximize, needed, value_range, self.objectives, was
        )
        self.left_out: list[str] = known.left_out
        describe = partial(journal_header, quantities, self.seed, value_range)
        self.run: Run = Run(
            space,
            describe(space),
            journal,
            needed,
            value_range,
            allow_change,
            describe,
            main_of(self.objectives),
        )
        self.insight: Insight = Insight(self.run, quantities, self.seed)
        self.guard: Guard = self.run.guard
        try:
            if self.space.describe() != space.describe():
                self._change(space, was)
            for params, value in unrecorded(known.results, self.run.trials.all):
                self.run.add(params, value)
        except BaseException:
            self.close()
            raise

    @property
    def space(self) -> Space:
        """The search space, after the changes so far."""
        return self.run.space

    @property
    def _quantities(self) -> Quantities:
        return self.insight.quantities

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy or pickle: the copy holds the run in memory, on the CPU, and writes no journal."""
        options = {
            "setting": self.setting,
            "method": self.method,
            "maximize": self.maximize,
            "seed": self.seed,
            "n_trials": self._n_trials,
            "constraints": self.constraints,
            "value_range": self.value_range,
            "objectives": self.objectives,
            "reference": self.reference or None,
        }
        state = (self.run.events, self.space, self.left_out)
        return partial(Optimizer, self.run.first_space, **options), (), state

    @isolated
    def __setstate__(self, state: tuple[list[Event], Space, list[str]]) -> None:
        events, space, left_out = state
        self.left_out = list(left_out)
        self.run.restore(events, space)

    def __repr__(self) -> str:
        trials = dict(Counter(trial.status for trial in self.trials))
        return f"Optimizer(method={self.method!r}, setting={self.setting}, trials={trials})"

    # Ask

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
            n: The number of points, which are returned in a list; None for one point without a list.
            context: The values of parameters that are given for this trial, by name (by index where the bounds are a
                list). The others are chosen.
            choices: A list of parameters to choose from in this trial, each complete or without those of the context.
                The entry with the largest upper bound is chosen; a random one while there is no bound.

        Raises:
            InvalidInput: A context or choices that do not fit the space, or leave nothing to choose.
            RefutedAssumptions: In the certified setting, no function satisfies the assumptions.
        """
        subspace = Subspace(self.space, context, choices)
        count = 1
        if n is not None:
            count = checks.whole("n", n, 0)
        self.run.fail_lost()
        trials: list[Trial] = []
        try:
            while len(trials) < count:
                trials.append(self._begin(subspace))
            params = [copy.copy(trial.params) for trial in trials]  # the caller may change them
        except BaseException:
            self.run.abandon(trials)  # the next call returns them
            raise
        if n is None:
            return params[0]
        return params

    @guarded
    def begin(
        self, *, context: Context | None = None, choices: Sequence[Any] | None = None
    ) -> Trial:
        """Begin the next trial and return it, for callers that report by trial; arguments and errors as for ``ask``."""
        subspace = Subspace(self.space, context, choices)
        self.run.fail_lost()
        return self._begin(subspace)

    def _begin(self, subspace: Subspace) -> Trial:
        """Begin a trial: an abandoned one if there is any in the subspace, else a new one."""
        for trial in self.run.abandoned():
            if subspace.accepts(trial.params):
                return self.run.resume(trial)
        number = len(self.run.trials.all)
        params, explanation = next_params(self._quantities, self.seed, subspace, number)
        return self.run.begin(params, explanation.record())

    @guarded
    def suggest(self, *, context: Context | None = None) -> Params:
        """Return the parameters that ``ask`` would choose for a new trial, without recording them.

        ``proposal`` returns the reason as well, and has more options.

        Args:
            context: As in ``ask``.
        """
        params, _ = self.proposal(context=context)
        return params

    @guarded
    def proposal(
        self,
        number: int | None = None,
        *,
        context: Context | None = None,
        pending: Iterable[Params] = (),
        within: Mapping[str, tuple[float, float]] | None = None,
        among: Tensor | None = None,
    ) -> tuple[Params, Explanation]:
        """Return the next parameters without recording them, and why they were chosen.

        Args:
            number: The number of the trial, which decides its random choices; by default the next one.
            context: As in ``ask``.
            pending: Other parameters that are being evaluated, besides those of the pending trials.
            within: Narrower ranges for this proposal: the least and the largest value of some numbers, by name. Only
                for spaces without constraints and tables.
            among: Points [A P] of the unit cube to choose from, which are first moved into the context and the ranges;
                by default all points.
        """
        subspace = Subspace(self.space, context, within=within)
        if among is not None:
            checks.rows("among", among, dim=self.space.dimension)
            subspace = subspace.among(subspace.moved_inside(among), partial=True)
        if number is None:
            number = len(self.run.trials.all)
        number = checks.whole("number", number, 0)
        return next_params(self._quantities, self.seed, subspace, number, list(pending))

    @guarded
    def explain(self, trial: Trial | int) -> Explanation | None:
        """Return the explanation of a trial's parameters: the strategy that chose them, and the numbers it compared.

        None if the parameters were given, and if the journal has no explanation.

        Args:
            trial: The trial, or its number.

        Raises:
            InvalidInput: There is no such trial.
        """
        return explanation_of(self.run.trials.known(trial).proposal)

    # Tell

    def tell(self, params: Trial | int | Params, value: Any, seconds: float | None = None) -> Trial:
        """Report the value of a trial, or a value at any other parameters.

        The first argument is the trial, its number or the parameters. With other measurements the value is ``(value,
        {"memory": 7.2})`` or ``{"objective": value, "memory": 7.2}``; with its standard error it is ``(value, {"sem":
        0.02})``. With several objectives it is a dict with each of them.

        A value that is None, NaN, infinite or no real number (a boolean, a complex number, ...) is recorded as a
        failure and never reaches the model. So is a value outside ``value_range``, and a result without the measurement
        of a constraint; the measurements that it has are kept. A warning in the log says why the trial failed, and
        which measurements were not kept.

        Raises:
            InvalidInput: A trial that has ended, parameters outside the space, a text as the value, or seconds that are
                no finite number of at least 0.
        """
        if isinstance(value, str):
            raise InvalidInput(
                f"the value must be a number, got the text {checks.shown(value)}: convert it (14.7, with a point), or "
                "report a failure with fail(trial, reason)."
            )
        return self.run.complete(params, value, seconds)

    def fail(
        self,
        params: Trial | int | Params,
        reason: str,
        seconds: float | None = None,
        measured: Mapping[str, float] | None = None,
    ) -> Trial:
        """Report that the evaluation of a trial or of parameters failed, with the reason as text.

        What it ``measured`` for constraints before it failed counts.
        """
        return self.run.fail(params, reason, seconds, measured)

    def prune(
        self,
        params: Trial | int | Params,
        seconds: float | None = None,
        measured: Mapping[str, float] | None = None,
    ) -> Trial:
        """Record that a trial was stopped early because of its reports; it has no value.

        What it ``measured`` of other quantities counts.

        Raises:
            InvalidInput: The run has several objectives.
        """
        if self.objectives:
            raise InvalidInput("trials are stopped early with one objective only: use fail.")
        return self.run.prune(params, seconds, measured)

    def report(self, params: Trial | int | Params, value: float, *, step: int) -> Trial:
        """Record what a running trial reports at a step, for example the validation error after an epoch.

        Args:
            params: The trial, its number or its parameters.
            value: The value, a finite number.
            step: The step, a whole number of at least 0, as a keyword argument.

        Raises:
            InvalidInput: A trial that has ended, a step that is no such number, or a value that is not finite.
        """
        return self.run.report(params, value, step=step)

    # Corrections, and changes of the space

    @guarded
    def correct(self, trial: Trial | int, value: Any) -> Trial:
        """Replace the result of a trial that has ended, for example a mistyped one, and return the trial.

        The journal keeps what was reported before. A failed, pruned or removed trial counts again with the new value.
        In the certified setting a correction withdraws the guarantee, unless ``completion_independent_of_noise`` is
        declared: whether a value is corrected may depend on its noise (docs/theory/observations.md).

        Args:
            trial: The trial or its number.
            value: The value, with other measurements as for ``tell``; the former ones are dropped.

        Raises:
            InvalidInput: There is no such trial, it is pending, or the value is incomplete or not finite.
        """
        return self.run.correct(trial, value)

    @guarded
    def remove(self, trial: Trial | int, reason: str) -> Trial:
        """Leave out a trial, pending or not, and return it: nothing is learned from it.

        Its parameters may be proposed again. The journal keeps what was reported, and ``correct`` brings the trial
        back. In the certified setting this withdraws the guarantee, as ``correct`` does.

        Args:
            trial: The trial or its number.
            reason: The reason, as text.

        Raises:
            InvalidInput: There is no such trial, or it is removed already.
        """
        return self.run.remove(trial, reason)

    @guarded
    def change(
        self,
        bounds: Bounds | Space,
        was: Mapping[str, Any] | None = None,
        constraints: Sequence[Any] | None = None,
    ) -> None:
        """Go on in another space: ranges, scales, steps and options may change, and parameters may come and go.

        kbo still learns from every earlier trial that has a place in the new space, also outside of the new ranges;
        proposals and the recommended trial are inside. ``run.trials.misplaced`` holds the trials without a place, for
        example with a 0 on a logarithmic scale. Trials that differ only in a parameter that is left out count as
        repetitions.

        Args:
            bounds: The new space.
            was: By name, the values that new parameters had so far.
            constraints: The new constraints on parameters; None keeps those of the space.

        Raises:
            InvalidInput: The space cannot be used, or in the certified setting the kernel would be another function of
                the earlier parameters.
        """
        if constraints is None:
            constraints = self.space.constraints
        space = Space(bounds, list(constraints)).on(self.space.device)
        self._change(space, was)

    def _change(self, space: Space, was: Mapping[str, Any] | None) -> None:
        """Record a change of the space, if setting and constraints can be used there."""
        self._quantities.after(Trials(space))  # raises if it cannot be used
        if self.setting.certified:
            check_bounds_go_on(self.method, self.space, space)
        self.run.change(space, was, same_scale=self.setting.certified)

    # The run

    @property
    def trials(self) -> list[Trial]:
        """Every trial, in the order of their starts."""
        return self.run.trials.all

    def completed(self) -> list[Trial]:
        """Return the trials with a value."""
        return list(self.run.trials.complete)

    def summary(self, full: bool = False) -> str:
        """Return the summary of the run so far, at most nine lines; see ``Result.summary``.

        Args:
            full: Whether the details follow.
        """
        # By name: reports know optimisers, and not the other way round.
        return import_module("kbo.report.summary").of(self, full)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the whole run as a journal, replacing ``path`` in one step."""
        self.run.save(path)

    def close(self) -> None:
        """Release the journal; the trials and statistics can still be read."""
        self.run.close()

    # What the trials show

    @guarded
    def recommended(self) -> Trial | None:
        """Return the recommended trial; None if the parameters of no completed trial satisfy the constraints.

        In the practical setting it is the trial with the best mean less one standard deviation. If the objective has no
        noise, and while there is no bound, it is the one with the best value. In the certified setting it is the one
        with the best pessimistic bound (``criterion`` of the surrogate).

        With limits on measured quantities, trials that surely keep them come first. This is decided by the bounds in
        the certified setting, and by two standard deviations in the practical one.
        """
        return recommended_trial(self._quantities)

    @guarded
    def interval(self, params: Params, name: str = OBJECTIVE) -> tuple[float, float, float] | None:
        """Return lower bound, mean and upper bound of a quantity (without noise); None while there is no bound.

        Args:
            params: The parameters.
            name: "objective", or the name of another objective or of a constraint that the assumptions alone do not
                decide.

        Raises:
            InvalidInput: Parameters outside the space, or no such quantity.
            RefutedAssumptions: In the certified setting, no function satisfies the assumptions.
        """
        intervals = self._quantities.intervals(self.space.unit(params).unsqueeze(0), name)
        if intervals is None:
            return None
        lower, mean, upper = intervals
        return float(lower), float(mean), float(upper)

    @guarded
    def best(
        self, context: Context | None = None, *, choices: Sequence[Any] | None = None
    ) -> Params | None:
        """Return the parameters with the best pessimistic bound in a context; None while there is no bound.

        Values of other contexts cannot be compared with those of this one. So, unlike ``recommended``, the result need
        not be a trial: it is the best point that a search from many starts finds (among choices, exactly the best).
        ``interval`` gives the bounds there. Under constraints it is a point that keeps them by its pessimistic bounds,
        or the nearest one to this that the search finds.

        Args:
            context: As in ``ask``; without one the context is optimised too.
            choices: As in ``ask``.

        Raises:
            InvalidInput: The run has several objectives.
        """
        if self.objectives:
            raise InvalidInput(
                "best is for one objective: the best settings of several are insight.front()."
            )
        subspace = Subspace(self.space, context, choices)
        return best_params(self._quantities, self.seed, subspace)

    @guarded
    def safe_points(self) -> list[Params]:
        """Return the parameters that are certain to keep all limits.

        In a space of up to 100 000 points these are all such parameters; in a larger one those that a search finds.

        Raises:
            InvalidInput: The setting is not ``kbo.Safe``.
            RefutedAssumptions: No function satisfies the assumptions.
        """
        safe_points = self._quantities.safe_points
        if safe_points is None:
            raise InvalidInput(
                f"safe_points belongs to the setting kbo.Safe(...), and this one is {self.setting}."
            )
        self._quantities.learn()
        search = search_after_trials(self._quantities, self.seed)
        units = safe_units(self._quantities, safe_points, search)
        return [self.space.params(unit) for unit in units]

    @guarded
    def gap(self, evaluations: int = 0, goal: float = 0.0) -> Gap | None:
        """Return the optimality gap: if the bounds hold, the optimum improves on the recommendation by at most this.

        If the objective is maximised, the gap is the largest upper bound over the space, less the lower bound of the
        recommendation, in units of the objective. The largest upper bound is

        * exact in a space of whole numbers and choices with up to 10 000 points;
        * proved by branch and bound, where ``evaluations`` are given and a proof is possible;
        * otherwise the largest that a search from many starts finds. ``reason`` says why nothing is proved.

        With constraints the largest bound is taken over the points that may keep them. In the safe setting it is taken
        over the points that are certain to keep them, or over all points if they are proved to be safe. With several
        objectives the gap is a share of the extents of the front (``Front.extents``): for each point that may keep the
        constraints, there is a trial of the front, known to keep them, that is worse by at most the gap in every
        objective.

        None while there is no bound, and while the recommendation is not known to keep all constraints.

        Args:
            evaluations: The largest number of points at which a proof may compute bounds, for each hypothesis. A proof
                needs the certified setting, a kernel made of RBF and Matern kernels, and parameters without conditions.
            goal: The proof ends when the gap is at most this.

        Raises:
            Contradiction: A proof excludes a value that the bounds allow at some point, and no norm bound is the
                reason. This is a fault of kbo.
        """
        evaluations = checks.whole("evaluations", evaluations, 0)
        return run_gap(self._quantities, self.seed, evaluations, goal)
