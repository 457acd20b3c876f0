"""``KBOSampler``: kbo as a sampler of Optuna, and through it in Ray Tune."""

from __future__ import annotations

import copy
import hashlib
import logging
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from kbo._base import checks, devices
from kbo._base.isolation import isolated
from kbo.errors import InvalidInput
from kbo.integrations.optuna.private import fixed_by_wrappers, process_constraints
from kbo.integrations.optuna.proposal import Request, propose
from kbo.integrations.optuna.ranges import Ranges, ranges_of
from kbo.integrations.optuna.space import SearchSpace, conditions_of
from kbo.integrations.optuna.study import (
    begun,
    chosen,
    constraints_of,
    ended,
    enqueued,
    finished,
    mark,
    pending_values,
    publish,
    selected,
    several_objectives,
)
from kbo.integrations.replay import Replay, replay
from kbo.integrations.setting_and_method import resolved
from kbo.optimize import Constraint, Front, Practical
from kbo.optimize.constraints.constraint import measured_only
from kbo.optimize.constraints.feasibility import Feasibility
from kbo.optimize.objectives.objective import Objective, check_has_bounds, reference_of
from kbo.optimize.run.outcome import OBJECTIVE
from kbo.optimize.settings.setting import Setting
from kbo.optimize.surrogates.guarantee import NO_BOUND

log: logging.Logger = logging.getLogger("kbo")

_ATTEMPTS = 4  # times a point is chosen, at most, while other workers choose theirs


class KBOSampler(BaseSampler):
    """Bayesian optimisation with confidence bounds, for studies of one or several objectives, also with constraints.

    **Model.** One model covers all parameters of finished trials. A parameter that complete trials have exactly where a
    choice suggested before has certain values is conditional, as with ``kbo.When``. Where a trial lacks one for another
    reason, it has the value of ``was``; without that, trials before the parameter was added are left out, and in others
    it counts as the middle of its range or the first choice. A parameter is sampled at random until a trial
    with it has finished (so the whole first trial is). Where its range differs from trial to trial, the model has the
    union of all, and proposals lie inside the range of their trial; choices that differ are sampled at random.
    Parameters of a single value are left to Optuna, those of ``PartialFixedSampler`` to that sampler, and the others
    are chosen for them. Features, for kernels of your own, are those of ``kbo.Space`` in the order of the
    parameters' names: one column for a number, in [0, 1] on its own scale (with a step too), and one per choice, in the
    order of the choices.

    **Data.** The values of complete trials. Bounds never rest on other trials. The guarantee needs all of them proposed
    in this study: one of ``study.add_trial``, or of another sampler or an earlier version, may have been selected by
    its noise, and removes it. For the choice of the next point, failed
    trials, and those with infinite values, have the worst value so far. The last value of a pruned trial is not used as
    such, because it is a value of another function, the objective of fewer steps: in the practical setting its final
    value is predicted from it, by completed trials with the same step, and enters the model with its error; in the
    certified setting it counts as failed. A value outside its distribution (``enqueue_trial`` allows that) is used if
    it is outside by at most the width of the range; otherwise, and in the certified setting, its trial is left out.
    What is left out is named in the log, once. Where ``enqueue_trial`` fixes some of the parameters, the others are
    chosen for them. The user attribute "sem" of a trial is the standard error of its value.

    **Constraints.** Those of the trials, by ``trial.set_constraint`` or ``constraints_func`` (then their names are "0",
    "1" and so on): values of at most 0 are feasible. Each has a model of its own, as with ``kbo.Constraint(name,
    upper=0.0)``. A complete trial that lacks a constraint which others have counts as failed.

    **Several objectives.** Each has a model of its own, and the next point is where the hypervolume of the front may
    grow most. ``front`` has the trials that no other dominates by their estimated true values; ``study.best_trials``
    are those by the observed ones. Trials with an infinite value, and pruned ones, count as failed.

    **Parallel and resumed studies.** The next point is a function of the seed, the number of the trial and the
    finished and running trials in the storage, so a study that is loaded with a sampler of the same arguments continues
    as if it had never stopped. (``load_study`` does not store the sampler: pass it again, or Optuna takes TPE.) Trials
    that run elsewhere count as pending, with the mean as their value, so that workers stay apart; a choice is in the
    storage as soon as it is made. The same point is not tried twice at once unless all others are far worse; once its
    value is known it may be tried again, as noise demands. A worker that was killed leaves its trial running, and so
    pending, until ``optuna.storages.fail_stale_trials`` (which a storage with a heartbeat calls itself) makes it a
    failure.

    Args:
        method: A name of ``kbo.bandit.names()``; by default "ucb" (practical setting) or "dmm-ucb" (certified).
        setting: ``kbo.Practical()`` (default): kernel, noise and norm bound are estimated, the bounds have no
            guarantee. ``kbo.Certified(...)``: the bounds hold if the given numbers are right; every trial must then
            have the same parameters, and the first trial their whole ranges.
        n_startup_trials: Values before the first model, from points that fill the space; by default 6, and 4 for one
            parameter. Only for the practical setting: the certified one has a model from the first value.
        n_trials: The planned number of trials, if the method needs it ("igp-ucb").
        seed: Seed of every random choice; None draws one.
        constraints_func: A function of a trial that returns its constraints, as in Optuna's samplers. It is called
            after each trial that is complete or was pruned.
        constraints: What is known of the constraints, such as ``[kbo.Constraint("memory", upper=0.0, noise_std=0.1,
            norm_bound=2.0)]``; needed in the certified setting. ``kbo.Constraint("objective", ...)`` is a limit on the
            value.
        was: The values of parameters in trials that lack them, by name, such as ``{"temperature": 20.0}`` where it is
            suggested since later trials only, or no longer.
        reference: With several objectives, values that are just not acceptable: a list in the order of
            ``study.directions``, or a dict by the names of ``study.set_metric_names``; by default a little worse than
            the worst values of the front.
        device: As in ``kbo.minimize``: "cuda", for example.

    Attributes:
        was: As given.

    Raises:
        InvalidInput: Arguments that cannot be used; during a trial, a study that cannot be (in the certified setting
            changing parameters and constraints that are not given).
        RefutedAssumptions: During a trial, in the certified setting: no function satisfies the assumptions.

    Example:
        >>> sampler = KBOSampler(seed=0)
        >>> study = optuna.create_study(sampler=sampler)
        >>> study.optimize(objective, n_trials=50)
        >>> best = sampler.recommended(study)
        >>> sampler.interval(study, best.params), sampler.guarantee(study)
    """

    @isolated
    def __init__(
        self,
        *,
        method: str | None = None,
        setting: Setting | None = None,
        n_startup_trials: int | None = None,
        n_trials: int | None = None,
        seed: int | None = None,
        constraints_func: Callable[[FrozenTrial], Sequence[float]] | None = None,
        constraints: Sequence[Constraint] = (),
        was: Mapping[str, Any] | None = None,
        reference: Any = None,
        device: str | torch.device | None = None,
    ) -> None:
        self._constraints_func = checks.maybe(checks.function, "constraints_func", constraints_func)
        if seed is None:
            seed = secrets.randbelow(2**31)
        self._seed: int = checks.whole("seed", seed, 0)
        setting, method = resolved(setting, method, n_trials)
        if n_startup_trials is not None:
            setting = _with_startup_trials(setting, n_startup_trials)
        self._setting: Setting = setting
        self.was: dict[str, Any] = dict(checks.instance("was", was or {}, Mapping))
        if self.was and setting.certified:
            raise InvalidInput(
                "was is for the practical setting: in the certified one every trial has all parameters. Leave it out."
            )
        self._constraints: list[Constraint] = _checked(constraints, setting)
        if constraints_func is not None and setting.certified and not self._constraints:
            raise InvalidInput(
                "constraints_func: the certified setting needs numbers for each of its constraints, as in "
                'constraints=[kbo.Constraint("0", upper=0.0, noise_std=0.1, norm_bound=2.0)].'
            )
        self._options: dict[str, Any] = {
            "setting": setting,
            "method": method,
            "n_trials": n_trials,
            "reference": reference,
            "seed": self._seed,
            "device": devices.device("device", device),
        }
        self._warnings: set[str] = set()
        self._forget()

    def _forget(self) -> None:
        """Begin without a model, which is a function of the trials."""
        self._lock: threading.RLock = threading.RLock()
        self._model: Replay | None = None

    def __getstate__(self) -> dict[str, Any]:
        state = dict(vars(self))
        del state["_lock"]
        del state["_model"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._forget()

    def __repr__(self) -> str:
        return f"KBOSampler(method={self._options['method']!r}, setting={self._setting}, seed={self._seed})"

    def reseed_rng(self) -> None:
        """Do nothing: choices depend on the number of the trial, so no two workers make the same ones."""

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Refuse a study whose objectives the arguments do not suit, and mark the trial as proposed here."""
        self._check_objectives(study)
        mark(study, trial)

    @isolated
    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return the ranges of the parameters of finished trials, without those that changed lately or are one value.

        The range of this trial is not known yet. Where the latest trials have different ones, the parameter is left to
        ``sample_independent``, which has the range as an argument.
        """
        self._check_objectives(study)
        ranges = self._ranges(study)
        lasting = ranges.settled - ranges.dropped.keys()
        settled = {name: d for name, d in ranges.expected.items() if name in lasting}
        return {name: d for name, d in settled.items() if not d.single()}

    @isolated
    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the next point; it is in the storage, for other workers to see, before this returns.

        Of parameters that are not in the search space a value is expected: the one that ``PartialFixedSampler`` or
        ``enqueue_trial`` gives, or otherwise the best one.
        """
        self._check_objectives(study)
        if not search_space:
            return {}
        with self._lock:
            return self._choose(study, trial, search_space)

    @isolated
    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Return the value that suits the parameters suggested before; a random one if no finished trial has it.

        Random values depend on the seed, the number of the trial and the name alone.
        """
        self._check_objectives(study)
        wanted = {param_name: param_distribution}
        SearchSpace(wanted)  # raises in the first trial if kbo cannot model the parameter
        with self._lock:
            params = self._choose(study, trial, wanted)
        if param_name in params:
            return params[param_name]
        digest = hashlib.sha256(f"{self._seed}/{trial.number}/{param_name}".encode()).digest()
        random = RandomSampler(seed=int.from_bytes(digest[:4], "big"))
        return random.sample_independent(study, trial, param_name, param_distribution)

    def _choose(
        self, study: Study, trial: FrozenTrial, wanted: Mapping[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the values of wanted parameters, without those that are not in the model.

        Args:
            study: The study.
            trial: The trial.
            wanted: The parameters with their ranges in this trial.
        """
        fixed_values = {**fixed_by_wrappers(study), **enqueued(trial), **trial.params}
        ranges = self._ranges(study, wanted, fixed_values)
        if not wanted.keys() & ranges.whole.keys():
            return {}
        space = self._space_of(study, ranges, wanted)
        for name, value in chosen(trial, space).items():
            if name not in wanted:
                fixed_values.setdefault(name, value)
        unknown = [name for name in ranges.whole if name not in ranges.settled | wanted.keys()]
        request = Request(trial.number, fixed_values, {**ranges.expected, **wanted}, unknown)
        params = self._choose_apart(study, trial, space, request)
        return {name: value for name, value in params.items() if name in wanted}

    def _choose_apart(
        self, study: Study, trial: FrozenTrial, space: SearchSpace, request: Request
    ) -> dict[str, Any]:
        """Return parameters apart from those of running trials, and store them.

        They are chosen again if another worker chose meanwhile; of two at once, the later trial gives way.
        """
        params: dict[str, Any] = {}
        explanation = ""
        pending = pending_values(study, space, trial)
        for _ in range(_ATTEMPTS):
            optimizer = self._model_of(study, space).optimizer
            params, explanation = propose(optimizer, space, request, pending, finished(study))
            considered = pending.keys()
            pending = pending_values(study, space, trial)
            if pending.keys() - considered:
                continue
            publish(study, trial, space, params, explanation)
            considered = pending.keys()
            pending = pending_values(study, space, trial)
            if not any(number < trial.number for number in pending.keys() - considered):
                return params
        publish(study, trial, space, params, explanation)
        return params

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Store the constraints of ``constraints_func`` where Optuna and its samplers look for them."""
        if self._constraints_func is not None:
            process_constraints(self._constraints_func, study, trial, state)

    @isolated
    def interval(
        self, study: Study, params: Mapping[str, Any], objective: int | None = None
    ) -> tuple[float, float, float] | None:
        """Return lower bound, mean and upper bound of an objective (without noise); None while there is no bound.

        Args:
            study: The study with the trials.
            params: As in ``trial.params``; parameters that are left out have the value of ``was``, or the middle of
                their range or the first choice.
            objective: The position of the objective in ``study.directions``, if there are several.

        Raises:
            InvalidInput: A value that its distribution does not contain, a name that no trial has, none of the study's
                parameters, or no such objective.
        """
        names = {name for trial in study.get_trials(deepcopy=False) for name in trial.params}
        unknown = [name for name in params if name not in names]
        if unknown and names:
            raise InvalidInput(
                f"no trial of the study has the parameters {unknown}: its parameters are {sorted(names)}."
            )
        quantity = _quantity(self._check_objectives(study), objective)
        with self._lock:
            space = self.search_space(study)
            if space is None:
                return None
            optimizer = self._model_of(study, space).optimizer
            values = space.complete(params)
            if values is None:
                raise InvalidInput(
                    f"expected values of the study's parameters {list(space.distributions)}, got {dict(params)!r}."
                )
            return optimizer.interval(values, quantity)

    @isolated
    def guarantee(self, study: Study) -> str:
        """Return the assumptions and the guarantee of the bounds, in words."""
        with self._lock:
            model = self.replayed(study)
            if model is None:
                return "none: there are too few trials for a bound"
            guarantee = model.optimizer.insight.guarantee(selected(study))
        if guarantee is None:
            return NO_BOUND
        return guarantee.text

    @isolated
    def recommended(self, study: Study) -> FrozenTrial:
        """Return the complete trial with the best pessimistic bound, or the best value while there is no bound.

        Under noise the best value is optimistically biased. Of trials with constraints it is the best of those that
        keep them by their pessimistic bounds (``feasibility`` says how certain that is); if none does, the nearest.
        It is inside the ranges that the latest trials share, and has none of the parameters that were dropped, as soon
        as there is such a trial; ``study.best_trial`` may be any. Of several objectives it is the balanced trial of
        ``front``.

        Raises:
            InvalidInput: No trial is complete.
        """
        with self._lock:
            model = self._present_of(study)
            best = None if model is None else model.recommended
        if best is None:
            raise InvalidInput(
                "no trial of the study is complete and has all constraints, so there is none to recommend: run "
                "some first, and let the objective set the constraints that the sampler is given."
            )
        numbers = {trial.number: trial for trial in study.get_trials(deepcopy=False)}
        return copy.deepcopy(numbers[best.key])

    @isolated
    def front(self, study: Study) -> Front | None:
        """Return the complete trials that no other dominates by their estimated true values, and the hypervolume.

        Its trials have the numbers and parameters of the study. None with one objective, and while there is no bound.
        """
        with self._lock:
            model = self._present_of(study)
            if model is None:
                return None
            params = {trial.number: trial.params for trial in study.get_trials(deepcopy=False)}
            return model.front(lambda entry: (entry.key, dict(params[entry.key])))

    @isolated
    def feasibility(self, study: Study) -> Feasibility | None:
        """Return bounds and limits of the constraints at the recommended trial; None without constraints or trials."""
        with self._lock:
            model = self._present_of(study)
            if model is None:
                return None
            return model.optimizer.insight.feasibility(selected(study))

    @isolated
    def replayed(self, study: Study) -> Replay | None:
        """Return the optimiser of kbo after the finished trials; None if they have no parameters."""
        space = self.search_space(study)
        if space is None:
            return None
        return self._model_of(study, space)

    def search_space(self, study: Study) -> SearchSpace | None:
        """Return the space of the model of the finished trials; None if they have no parameters."""
        self._check_objectives(study)
        ranges = self._ranges(study)
        if not ranges.whole:
            return None
        return self._space_of(study, ranges)

    def _check_objectives(self, study: Study) -> tuple[Objective, ...]:
        """Return the objectives of a study with several, none if there is one.

        Raises:
            InvalidInput: Method, setting or reference are not for them.
        """
        objectives = several_objectives(study)
        reference_of(self._options["reference"], objectives)
        if objectives:
            check_has_bounds(self._options["method"])
        if objectives and self._setting.certified:
            raise InvalidInput(
                "the certified setting needs numbers for each of several objectives, which a study does not have: use "
                "kbo.minimize(..., objectives=[...]), or the practical setting."
            )
        return objectives

    def _ranges(
        self,
        study: Study,
        present: Mapping[str, BaseDistribution] | None = None,
        fixed_values: Mapping[str, Any] | None = None,
    ) -> Ranges:
        """Return the ranges of finished and running trials, and log which trials and parameters the model lacks.

        Args:
            study: The study.
            present: The ranges of a trial that is begun.
            fixed_values: Values in that trial that this sampler does not choose.
        """
        widened = not self._setting.certified
        ranges = ranges_of(begun(study), present, fixed_values, self.was, widened)
        if self._setting.certified:
            _check_first_ranges(ranges)
        for name, reason in ranges.left_out.items():
            self._warn_once(
                f"parameter {name!r} is left out of the model, and sampled at random: {reason}"
            )
        for name, (number, value) in ranges.far.items():
            self._warn_once(
                f"trial {number} and others like it are left out of the model: {name} = {value} is far outside of "
                f"{ranges.whole.get(name, 'its range')}."
            )
        return ranges

    def _warn_once(self, text: str) -> None:
        """Log a warning that was not logged before."""
        if text not in self._warnings:
            self._warnings.add(text)
            log.warning("KBOSampler: %s", text)

    def _space_of(
        self, study: Study, ranges: Ranges, wanted: Mapping[str, Any] | None = None
    ) -> SearchSpace:
        """Return the space of the model, with the conditions that the trials show; certified models have none.

        Args:
            study: The study.
            ranges: The ranges of the trials.
            wanted: Parameters of a trial that is begun.
        """
        if self._setting.certified:
            return SearchSpace(ranges.whole)
        conditions = conditions_of(finished(study), ranges.whole)
        conditions = {name: c for name, c in conditions.items() if name not in self.was}
        unconditional = ranges.whole.keys() - conditions.keys()
        without_value = unconditional - self.was.keys()
        needed = ranges.added.keys() & without_value
        for name in sorted(needed):
            self._warn_once(
                f"parameter {name!r} was added in trial {ranges.added[name]}, and trials that lack it are left out of "
                f"the model: give the value that it had so far, as in KBOSampler(was={{{name!r}: value}})."
            )
        dropped = ranges.dropped.keys() & unconditional - (wanted or {}).keys()
        space = SearchSpace(ranges.whole, conditions, self.was, needed, dropped)
        for name in sorted(dropped & without_value):
            self._warn_once(
                f"parameter {name!r} was dropped after trial {ranges.dropped[name]}, and later trials count as "
                f"{space.defaults[name]!r}, which is a guess: give the value that it has now, as in "
                f"KBOSampler(was={{{name!r}: value}})."
            )
        return space

    def _present_of(self, study: Study) -> Replay | None:
        """Return the optimiser after the finished trials, in the ranges that the latest trials share.

        None if there are no parameters. In the ranges of all trials while no complete trial is inside of those.
        """
        space = self.search_space(study)
        if space is None:
            return None
        model = self._model_of(study, space)
        present = space.within(self._ranges(study).latest)
        if present.describe() == space.space.describe():
            return model
        optimizer = copy.copy(model.optimizer)
        optimizer.run.change(present, same_scale=True)
        if optimizer.recommended() is None:
            return model
        return model._replace(optimizer=optimizer)

    def _model_of(self, study: Study, space: SearchSpace) -> Replay:
        """Return the model of the finished trials: the last one with new trials added if these follow it."""
        trials = finished(study)
        if self._setting.certified:
            _check_complete(trials, space)
        objectives = several_objectives(study)
        options = {
            "bounds": space.space,
            "maximize": study.directions[0] == StudyDirection.MAXIMIZE,
            "objectives": objectives,
            "constraints": constraints_of(trials, self._constraints, objectives),
            **self._options,
        }
        entries = [ended(trial, space, objectives) for trial in trials]
        usable = [entry for entry in entries if entry is not None]
        self._model = replay(self._model, options, usable)
        return self._model


def _quantity(objectives: Sequence[Objective], position: int | None) -> str:
    """Return the name in the optimiser of one of several objectives, or of the only one.

    Raises:
        InvalidInput: There are several, and the position is missing or none of theirs.
    """
    if not objectives:
        return OBJECTIVE
    last = len(objectives) - 1
    if position is None:
        raise InvalidInput(f"the study has several objectives: give objective=0 to {last}.")
    return objectives[checks.whole("objective", position, 0, last)].name


def _with_startup_trials(setting: Setting, n_startup_trials: int) -> Practical:
    """Return the setting with a number of values before the first model."""
    if not isinstance(setting, Practical):
        raise InvalidInput(
            "n_startup_trials is for the practical setting: the certified one has a model from the first "
            "value. Leave it out."
        )
    return replace(setting, n_initial=checks.whole("n_startup_trials", n_startup_trials, 2))


def _checked(constraints: Any, setting: Setting) -> list[Constraint]:
    """Return the constraints.

    Raises:
        InvalidInput: One is no limit of at most 0 on a measurement, or lacks numbers that the setting needs.
    """
    measured, wrong = measured_only(constraints)
    for constraint in measured:
        if constraint.name != OBJECTIVE and constraint.upper != 0:
            wrong.append(constraint)
    if wrong:
        raise InvalidInput(
            "constraints must be those that Optuna measures, kept at values of at most 0, as in "
            f"kbo.Constraint('memory', upper=0.0), got {checks.shown(wrong[0])}."
        )
    for constraint in measured:
        setting.for_quantity(constraint, 1)
    return measured


def _check_first_ranges(ranges: Ranges) -> None:
    """Check that the first trial with each parameter has its whole range.

    Raises:
        InvalidInput: It has another range.
    """
    for name, reason in ranges.left_out.items():
        raise InvalidInput(
            f"the certified setting needs the same parameters in every trial; of {name!r} {reason}"
        )
    for name, d in ranges.whole.items():
        number, first = ranges.first[name]
        if first != d:
            raise InvalidInput(
                f"the certified setting needs the whole range of each parameter from the first trial on, because its "
                f"kernel compares values scaled by it: trial {number} has {name!r} in {first}, and with later trials "
                f"it is {d}. Give the whole range in the first trial (later ones may be narrower), or use "
                "kbo.Practical()."
            )


def _check_complete(trials: Sequence[FrozenTrial], space: SearchSpace) -> None:
    """Check that the complete trials have all parameters.

    Raises:
        InvalidInput: One lacks a parameter.
    """
    for trial in trials:
        missing = [name for name in space.distributions if name not in trial.params]
        if trial.state == TrialState.COMPLETE and missing:
            raise InvalidInput(
                f"the certified setting needs the same parameters in every trial: trial {trial.number} lacks "
                f"{missing}, which others have. Suggest all of them in every trial, or use kbo.Practical()."
            )
