"""The trials of a study as data of an optimiser of kbo, and the points that run elsewhere."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import torch
from optuna.distributions import CategoricalDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState
from torch import Tensor

from kbo.errors import InvalidInput
from kbo.integrations.optuna.ranges import nearest
from kbo.integrations.optuna.space import SearchSpace
from kbo.integrations.replay import Ended, Replay
from kbo.optimize import Constraint
from kbo.optimize.run.outcome import OBJECTIVE, SEM
from kbo.optimize.run.trials import in_words, out_of_order

_FINISHED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
# Points to choose from where ranges are not known, and the width of the cube around a trial in which half of them are.
_POINTS, _NEAR = 1024, 0.2
# The system attribute of a running trial with the point chosen for it, before the objective requests parameters.
_CHOSEN = "kbo:chosen"
# System attribute of a trial: the reason why it has its parameters, in words.
_EXPLANATION = "kbo:explanation"
# Begin of the system attributes of a study that name it, one for each sampler that found none; and the attribute of a
# trial that was proposed there: such a name and the number of the trial. Copies in other studies keep the latter.
_STUDY, _PROPOSED = "kbo:study:", "kbo:proposed"


def suggested(
    model: Replay,
    search_space: SearchSpace,
    study: Study,
    trial: FrozenTrial,
    given: Mapping[str, Any],
    ranges: Mapping[str, Any],
    unknown: Sequence[str],
    pending: Mapping[int, Any],
) -> tuple[dict[str, Any], str]:
    """Return the next parameters of Optuna, and why they were chosen; an empty text if others chose them.

    Args:
        model: The optimiser.
        search_space: Its space.
        study: The study.
        trial: The trial.
        given: The values of some parameters; those outside the space do not count.
        ranges: The ranges of the parameters in this trial, as far as they are known.
        unknown: The parameters of which they are not.
        pending: The values in the space that others evaluate, by the numbers of their trials.
    """
    one_value = {
        name: d.low
        for name, d in ranges.items()
        if not isinstance(d, CategoricalDistribution) and d.single()
    }
    context = search_space.inside({**one_value, **given})
    if context.keys() >= set(search_space.space.active_names(context)):
        active = search_space.space.active_names(context)
        return search_space.decode({name: context[name] for name in active}), ""
    within = {}
    for name, d in search_space.distributions.items():
        today = ranges.get(name, d)
        if name not in context and today != d:
            within[name] = today.low, today.high
    among = None
    if free := [
        name for name in unknown if name not in context and name in search_space.distributions
    ]:
        among = _likely_points(search_space, finished(study), free, trial.number)
    others = [pending[number] for number in sorted(pending)]
    values: Any
    values, explanation = model.optimizer.proposal(
        trial.number, context=context, pending=others, within=within, among=among
    )
    params = search_space.decode(values)
    for name in within:
        if name in params:
            params[name] = nearest(ranges[name], params[name])
    return params, str(explanation)


def _likely_points(
    search_space: SearchSpace, trials: Sequence[FrozenTrial], free: Sequence[str], number: int
) -> Tensor | None:
    """Return points [A P] of the unit cube where some parameters are in ranges that they are likely to have there.

    A range may depend on other parameters, and only the objective knows how. So the range of a parameter is taken to be
    that of the trial whose other parameters are nearest. Half of the points are near trials, and of the values in a
    range a quarter are at either end, where the best one often is.

    Args:
        search_space: The space.
        trials: The finished trials.
        free: The parameters whose ranges are not known.
        number: The number of the trial, which decides the random numbers.
    """
    known = [
        t
        for t in trials
        if all(name in t.distributions for name in free)
        and _or_none(search_space.complete, t.params)
    ]
    if not known:
        return None
    space = search_space.space
    units = space.units([search_space.complete(t.params) for t in known])
    generator = torch.Generator().manual_seed(number)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    points = uniform(_POINTS, space.dimension)
    parents = units[torch.randint(len(units), (_POINTS // 2,), generator=generator)]
    points[::2] = (parents + _NEAR * (uniform(*parents.shape) - 0.5)).clamp(0, 1)
    columns = [i for i, name in enumerate(space.parameters) if name not in free]
    if columns:
        nearest_trials = torch.cdist(points[:, columns], units[:, columns], 1).argmin(-1)
    else:
        nearest_trials = torch.randint(len(units), (_POINTS,), generator=generator)
    for name in free:
        p = space.parameters[name]
        found: list[Any] = [t.distributions[name] for t in known]
        ends = [(p.unit(d.low), p.unit(d.high)) for d in found]
        low, high = units.new_tensor(ends)[nearest_trials].unbind(-1)
        share = (2 * uniform(_POINTS) - 0.5).clamp(0, 1)
        points[:, list(space.parameters).index(name)] = low + (high - low) * share
    return points


def begun(study: Study) -> list[FrozenTrial]:
    """The finished and the running trials in the order of their numbers."""
    return study.get_trials(deepcopy=False, states=(*_FINISHED, TrialState.RUNNING))


def finished(study: Study) -> list[FrozenTrial]:
    """The finished trials in the order of their ends, which is the same in every process."""
    trials = study.get_trials(deepcopy=False, states=_FINISHED)
    return sorted(trials, key=lambda trial: (trial.datetime_complete or datetime.min, trial.number))


def selected(study: Study) -> list[str]:
    """Return the ways in which the noise may have decided which values there are (``kbo.optimize.run.trials``)."""
    ended, running = finished(study), study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    names = _names(study)
    ways = {
        "failed or pruned": sum(result_of(trial) is None for trial in ended),
        "that KBOSampler did not propose in this study, perhaps with values that were known before": sum(
            trial.system_attrs.get(_PROPOSED) not in [[name, trial.number] for name in names]
            for trial in ended
        ),
        "that ended after later ones": out_of_order(
            (t.datetime_start or datetime.min, t.number) for t in [*ended, *running]
        ),
    }
    return in_words(ways)


def ended(trial: FrozenTrial, search_space: SearchSpace) -> Ended | None:
    """A finished trial; None if it has no parameter of this space or a value outside its distribution."""
    values = _or_none(search_space.complete, trial.params)
    if values is None:
        return None
    reports = tuple(
        (step, y) for step, y in sorted(trial.intermediate_values.items()) if math.isfinite(y)
    )
    pruned, measured, error = (
        trial.state == TrialState.PRUNED,
        dict(trial.constraints),
        trial.user_attrs.get(SEM),
    )
    if isinstance(error, float | int) and 0 <= error < math.inf:  # NaN if it is not known
        measured[SEM] = float(error)
    return Ended(trial.number, values, result_of(trial), measured, pruned, reports)


def constraints_of(trials: Iterable[FrozenTrial], given: Sequence[Constraint]) -> list[Constraint]:
    """The constraints of complete trials, which are kept at values of at most 0: as given, others by their names."""
    names = {
        name for trial in trials if trial.state == TrialState.COMPLETE for name in trial.constraints
    }
    if OBJECTIVE in names:
        raise InvalidInput(
            f"constraint {OBJECTIVE!r}: that is the name of the value; call the constraint another way."
        )
    known = {constraint.name for constraint in given}
    return [*given, *(Constraint(name, upper=0.0) for name in sorted(names - known))]


def result_of(trial: FrozenTrial) -> float | None:
    """The value of a finished trial; None if it failed, was pruned or is not finite."""
    value = trial.value if trial.state == TrialState.COMPLETE else None
    return value if value is not None and math.isfinite(value) else None


def running(study: Study, search_space: SearchSpace, own: FrozenTrial) -> dict[int, dict[str, Any]]:
    """The values that other trials are evaluating, by number: the suggested ones or, before that, the chosen ones."""
    found = {}
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        params = {**chosen(trial, search_space), **enqueued(trial), **trial.params}
        values = _or_none(search_space.complete, params)
        if trial.number != own.number and values is not None:
            found[trial.number] = values
    return found


def chosen(trial: FrozenTrial, search_space: SearchSpace) -> dict[str, Any]:
    """Return the values that were chosen for a trial, those that the objective has not asked for among them."""
    internal = trial.system_attrs.get(_CHOSEN, {})
    return {
        name: d.to_external_repr(internal[name])
        for name, d in search_space.distributions.items()
        if name in internal
    }


def publish(
    study: Study, trial: FrozenTrial, search_space: SearchSpace, params: Mapping[str, Any]
) -> None:
    """Let other workers see the point that was chosen for a trial."""
    internal = {
        n: search_space.distributions[n].to_internal_repr(value) for n, value in params.items()
    }
    # Optuna has no public way to write an attribute of a frozen trial.
    study._storage.set_trial_system_attr(trial._trial_id, _CHOSEN, internal)


def explain(study: Study, trial: FrozenTrial, explanation: str) -> None:
    """Record why a trial has its parameters."""
    study._storage.set_trial_system_attr(trial._trial_id, _EXPLANATION, explanation)


def mark(study: Study, trial: FrozenTrial) -> None:
    """Note that a trial was proposed in this study, before it has a value."""
    if not (names := _names(study)):
        names = [f"{_STUDY}{secrets.token_hex(8)}"]
        study._storage.set_study_system_attr(study._study_id, names[0], True)
    study._storage.set_trial_system_attr(trial._trial_id, _PROPOSED, [names[0], trial.number])


def _names(study: Study) -> list[str]:
    return [
        name
        for name in study._storage.get_study_system_attrs(study._study_id)
        if name.startswith(_STUDY)
    ]


def enqueued(trial: FrozenTrial) -> dict[str, Any]:
    """The parameters that ``enqueue_trial`` gave."""
    return trial.system_attrs.get("fixed_params", {})


def _or_none(
    encode: Callable[[Mapping[str, Any]], dict[str, Any] | None], params: Mapping[str, Any]
) -> Any:
    """The encoded values of parameters; None if one of them is outside its distribution."""
    try:
        return encode(params)
    except InvalidInput:
        return None
