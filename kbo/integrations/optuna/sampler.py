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
from optuna.samplers._base import _process_constraints_after_trial
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from kbo._base import checks, devices
from kbo._base.isolation import isolated
from kbo.errors import InvalidInput
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
    fixed_by_wrappers,
    mark,
    pending_values,
    publish,
    selected,
    several_objectives,
)
from kbo.integrations.replay import Replay, replay, resolved
from kbo.optimize import Constraint, Front, Practical
from kbo.optimize.constraints.constraint import measured_only
from kbo.optimize.constraints.feasibility import Feasibility
from kbo.optimize.objectives.objective import Objective, check_has_bounds, reference_of
from kbo.optimize.run.outcome import OBJECTIVE
from kbo.optimize.settings.setting import Setting
from kbo.optimize.surrogates.guarantee import NO_BOUND

log: logging.Logger = logging.getLogger("kbo")

_ATTEMPTS = (
    4  # a point is chosen again at most so often if other workers choose points at the same time
)


class KBOSampler(BaseSampler):
    """Bayesian optimisation with confidence bounds, for studies of one or several objectives, also with constraints.

    **Model.** One model covers all parameters of the finished trials. A parameter is conditional, as with ``kbo.When``,
    if complete trials have it exactly when an earlier choice has certain values. If a trial lacks a parameter for
    another reason, the value of ``was`` is used. Without such a value, trials from before the parameter was added are
    left out, and for other trials the value is the middle of the range or the first choice. A parameter is sampled at
    random until a trial with it has finished, so the whole first trial is random. If its range differs from trial to
    trial, the model covers the union of all ranges, and a proposal lies inside the range of its trial. Choices that
    differ are sampled at random. Optuna sets parameters with a single value, ``PartialFixedSampler`` sets its own ones,
    and kbo chooses the other parameters to suit them. If you give a kernel, its input has the features of ``kbo.Space``
    in the order of the parameters' names: one column for a number (in [0, 1] on its own scale, also with a step), and
    one column for each option of a choice.

    **Data.** The bounds use the values of complete trials only. The guarantee needs that all of them were proposed in
    this study. A trial of ``study.add_trial``, of another sampler or of an earlier version may have been selected by
    its noise, so it removes the guarantee. For the choice of the next point, failed trials and trials with infinite
    values have the worst value so far. The last value of a pruned trial is a value of another function, the objective
    after fewer steps, and is not used directly. In the practical setting it predicts the final value, by means of
    completed trials with the same step; the prediction enters the model with its error. In the certified setting the
    trial counts as failed. A value outside its distribution (``enqueue_trial`` allows this) is used in the practical
    setting if it is outside by at most the width of the range; otherwise its trial is left out. The log names each
    parameter and trial that is left out, once. If ``enqueue_trial`` fixes some parameters, kbo chooses the others to
    suit them. The user attribute "sem" of a trial is the standard error of its value.

    **Constraints.** They come from ``trial.set_constraint`` or ``constraints_func`` (with the names "0", "1" and so
    on). Values of at most 0 are feasible. Each constraint has its own model, as with ``kbo.Constraint(name,
    upper=0.0)``. A complete trial counts as failed if it lacks a constraint that other trials have.

    **Several objectives.** Each objective has its own model. The next point is where the hypervolume of the front may
    grow most. ``front`` has the trials that no other dominates in estimated true values; ``study.best_trials`` compares
    observed values. Pruned trials and trials with an infinite value count as failed.

    **Parallel and resumed studies.** The next point is a function of the seed, the number of the trial, and the
    finished and running trials in the storage. So a study that is loaded with a sampler of the same arguments continues
    as if it had never stopped. (``load_study`` does not store the sampler: pass it again, or Optuna uses TPE.) Running
    trials of other workers are pending, with the mean as their value, so that workers choose different points; a choice
    is stored at once. A point is not tried twice at the same time unless all others are far worse. When its value is
    known, it may be tried again, if there is noise. If a worker is killed, its trial stays running, and so pending,
    until ``optuna.storages.fail_stale_trials`` makes it a failure (a storage with a heartbeat calls this itself).

    Args:
        method: A name of ``kbo.bandit.names()``; by default "ucb" (practical setting) or "dmm-ucb" (certified).
        setting: ``kbo.Practical()`` (default): kernel, noise and norm bound are estimated, and the bounds have no
            guarantee. ``kbo.Certified(...)``: the bounds hold if the given numbers are right. Every trial must then
            have the same parameters, and the first trial must have their whole ranges.
        n_startup_trials: The number of values before the first model, at points that fill the space; by default 6, or 4
            for one parameter. Only for the practical setting: the certified setting has a model from the first value.
        n_trials: The planned number of trials, if the method needs it ("igp-ucb").
        seed: Seed of every random choice; None draws a seed.
        constraints_func: A function of a trial that returns its constraints, as in Optuna's samplers. It is called
            after each complete or pruned trial.
        constraints: Noise levels and norm bounds of the constraints, such as ``[kbo.Constraint("memory", upper=0.0,
            noise_std=0.1, norm_bound=2.0)]``; needed in the certified setting. ``kbo.Constraint("objective", ...)`` is
            a limit on the value.
        was: By name, the value of a parameter in trials that lack it, such as ``{"temperature": 20.0}``; for parameters
            that only later or only earlier trials have.
        reference: With several objectives, values that are just not acceptable: a list in the order of
            ``study.directions``, or a dict by the names of ``study.set_metric_names``. By default a little worse than
            the worst values of the front.
        device: The device as in ``kbo.minimize``, for example "cuda".

    Attributes:
        was: The argument ``was`` as a dict.

    Raises:
        InvalidInput: An argument cannot be used. During a trial: the study cannot be used; in the certified setting its
            parameters change, or it has constraints without numbers.
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
        """Set a new lock and no model: the model is computed from the trials when it is needed."""
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
        """Do nothing: the random numbers depend on the number of the trial, so workers differ already."""

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Check the objectives of the study against the arguments, and mark the trial as proposed in this study."""
        self._check_objectives(study)
        mark(study, trial)

    @isolated
    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return the ranges of parameters of finished trials, if they did not change lately and have several values.

        The ranges in this trial are not known yet. If the latest trials have different ranges of a parameter, it is
        left to ``sample_independent``, which gets the range as an argument.
        """
        ranges = self._ranges(study)
        settled = ranges.latest.keys() - ranges.dropped.keys()
        return {
            name: d for name, d in ranges.expected.items() if name in settled and not d.single()
        }

    @isolated
    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the next point, after it was stored for other workers to see.

        For parameters outside of the search space a value is assumed: the value of ``PartialFixedSampler`` or
        ``enqueue_trial``, or otherwise the best one.
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
        """Return the best value given the parameters suggested before; a random one if no finished trial has it.

        A random value depends only on the seed, the number of the trial and the name of the parameter.
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
        """Return the values of wanted parameters; parameters that are not in the model are left out.

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
        unknown = [name for name in ranges.whole if name not in {**ranges.latest, **wanted}]
        request = Request(trial.number, fixed_values, {**ranges.expected, **wanted}, unknown)
        params = self._choose_apart(study, trial, space, request)
        return {name: value for name, value in params.items() if name in wanted}

    def _choose_apart(
        self, study: Study, trial: FrozenTrial, space: SearchSpace, request: Request
    ) -> dict[str, Any]:
        """Choose parameters that take running trials into account, store them and return them.

        They are chosen again if another worker has chosen in the meantime. If two workers choose at the same time, the
        trial with the larger number chooses again.
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
        """Store the constraints of ``constraints_func`` in the way of Optuna's own samplers."""
        if self._constraints_func is not None:
            _process_constraints_after_trial(self._constraints_func, study, trial, state)

    @isolated
    def interval(
        self, study: Study, params: Mapping[str, Any], objective: int | None = None
    ) -> tuple[float, float, float] | None:
        """Return lower bound, mean and upper bound of an objective without its noise; None while there is no bound.

        Args:
            study: The study with the trials.
            params: Parameters as in ``trial.params``. A missing one has the value of ``was``, or otherwise the middle
                of its range or the first choice.
            objective: The position of the objective in ``study.directions``, if there are several.

        Raises:
            InvalidInput: A value is outside its distribution, no trial has a parameter of this name, all parameters of
                the study are missing, or there is no such objective.
        """
        quantity = _quantity(self._check_objectives(study), objective)
        with self._lock:
            space = self.search_space(study)
            if space is None:
                return None
            names = {name for trial in begun(study) for name in trial.params}
            values = space.complete(params)
            if values is None or params.keys() - names:
                raise InvalidInput(
                    f"expected values of the study's parameters {space.distributions}, got {dict(params)!r}."
                )
            return self._model_of(study, space).optimizer.interval(values, quantity)

    @isolated
    def guarantee(self, study: Study) -> str:
        """Return the assumptions and the guarantee of the bounds, as text."""
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

        With noise the best observed value is optimistically biased. With constraints, candidates are the trials whose
        pessimistic bounds keep all constraints (``feasibility`` shows how certain that is); if there is none, the
        closest trial is returned. As soon as there is a trial inside the ranges that the latest trials share, without
        parameters that were dropped, such a trial is returned; ``study.best_trial`` may be outside. With several
        objectives it is the balanced trial of ``front``.

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
        return study.trials[best.key]

    @isolated
    def front(self, study: Study) -> Front | None:
        """Return the front: the complete trials that no other dominates in estimated true values, and the hypervolume.

        The trials have the numbers and parameters of the study. None with one objective, or while there is no bound.
        """
        with self._lock:
            model = self._present_of(study)
            if model is None:
                return None
            trials = study.trials
            return model.front(lambda entry: (entry.key, trials[entry.key].params))

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
        """Return an optimiser of kbo after the finished trials; None if they have no parameters."""
        space = self.search_space(study)
        if space is None:
            return None
        return self._model_of(study, space)

    def search_space(self, study: Study) -> SearchSpace | None:
        """Return the search space of the model of the finished trials; None if they have no parameters."""
        self._check_objectives(study)
        ranges = self._ranges(study)
        if not ranges.whole:
            return None
        return self._space_of(study, ranges)

    def _check_objectives(self, study: Study) -> tuple[Objective, ...]:
        """Return the objectives of a study with several; an empty tuple if there is one.

        Raises:
            InvalidInput: The method, the setting or the reference does not suit the objectives.
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
        """Return the ranges of finished and running trials, and log the parameters that the model leaves out.

        Args:
            study: The study.
            present: The known ranges of the trial that begins.
            fixed_values: Values of parameters in that trial that this sampler does not choose.
        """
        widened = not self._setting.certified
        trials = begun(study)
        ranges = ranges_of(trials, present, fixed_values, self.was, widened)
        if self._setting.certified:
            _check_same_parameters(trials, ranges)
        for name, reason in ranges.left_out.items():
            self._warn_once(
                f"parameter {name!r} is left out of the model, and sampled at random: {reason}"
            )
        return ranges

    def _warn_once(self, text: str) -> None:
        """Log a warning, unless it was logged before."""
        if text not in self._warnings:
            self._warnings.add(text)
            log.warning("KBOSampler: %s", text)

    def _space_of(
        self, study: Study, ranges: Ranges, wanted: Mapping[str, Any] | None = None
    ) -> SearchSpace:
        """Return the search space of the model, with the conditions found in the trials; a certified one has none.

        Args:
            study: The study.
            ranges: The ranges of the trials.
            wanted: Parameters of the trial that begins.
        """
        if self._setting.certified:
            return SearchSpace(ranges.whole)
        conditions = conditions_of(finished(study), ranges.whole)
        for name in self.was:
            conditions.pop(name, None)
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
        """Return the optimiser after the finished trials, with the ranges that the latest trials share.

        If no complete trial is inside these ranges, the ranges are those of all trials. None if there are no
        parameters.
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
        """Return the model of the finished trials; if possible, the last model is continued with the new trials."""
        trials = finished(study)
        objectives = several_objectives(study)
        options = {
            "bounds": space.space,
            "maximize": study.directions[0] == StudyDirection.MAXIMIZE,
            "objectives": objectives,
            "constraints": constraints_of(trials, self._constraints, objectives),
            **self._options,
        }
        usable = []
        for trial in trials:
            entry = ended(trial, space, objectives)
            if entry is not None:
                usable.append(entry)
            elif trial.params and space.needed <= trial.params.keys():
                self._warn_once(
                    f"trial {trial.number} is left out of the model: its parameters {trial.params} have no place there."
                )
        self._model = replay(self._model, options, usable)
        return self._model


def _quantity(objectives: Sequence[Objective], position: int | None) -> str:
    """Return the name that the optimiser has for an objective: the one at the position, or the only one.

    Raises:
        InvalidInput: There are several, and the position is missing or too large.
    """
    if not objectives:
        return OBJECTIVE
    last = len(objectives) - 1
    if position is None:
        raise InvalidInput(f"the study has several objectives: give objective=0 to {last}.")
    return objectives[checks.whole("objective", position, 0, last)].name


def _with_startup_trials(setting: Setting, n_startup_trials: int) -> Practical:
    """Return the setting with ``n_startup_trials`` values before the first model."""
    if not isinstance(setting, Practical):
        raise InvalidInput(
            "n_startup_trials is for the practical setting: the certified one has a model from the first "
            "value. Leave it out."
        )
    return replace(setting, n_initial=checks.whole("n_startup_trials", n_startup_trials, 2))


def _checked(constraints: Any, setting: Setting) -> list[Constraint]:
    """Return the constraints after a check.

    Raises:
        InvalidInput: A constraint is no limit of at most 0 on a measurement, or lacks numbers that the setting needs.
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


def _check_same_parameters(trials: Sequence[FrozenTrial], ranges: Ranges) -> None:
    """Check that all complete trials have all parameters, and that the first trial has their whole ranges.

    Raises:
        InvalidInput: A trial lacks a parameter, a parameter has no common range, or the first range is another one.
    """
    for name, reason in ranges.left_out.items():
        raise InvalidInput(
            f"the certified setting needs the same parameters in every trial; of {name!r} {reason}"
        )
    for name, d in ranges.whole.items():
        for trial in trials:
            if trial.state == TrialState.COMPLETE and name not in trial.params:
                raise InvalidInput(
                    f"the certified setting needs the same parameters in every trial: trial {trial.number} lacks "
                    f"{name!r}, which others have. Suggest it in every trial, or use kbo.Practical()."
                )
        first = next(trial for trial in trials if name in trial.distributions)
        if first.distributions[name] != d:
            raise InvalidInput(
                f"the certified setting needs the whole range of each parameter from the first trial on, because its "
                f"kernel compares values scaled by it: trial {first.number} has {name!r} in "
                f"{first.distributions[name]}, and with later trials it is {d}. Give the whole range in the first "
                "trial (later ones may be narrower), or use kbo.Practical()."
            )
