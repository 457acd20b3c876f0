"""Bounds of the outcomes of an Ax experiment, in their own units, their guarantee, and the recommended trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import torch
from ax.adapter.torch import TorchAdapter
from ax.api.client import Client
from ax.core.base_trial import BaseTrial, TrialStatus
from ax.core.generator_run import GeneratorRunType
from ax.core.observation import ObservationFeatures
from ax.core.parameter import FixedParameter
from torch import Tensor

from kbo import checks
from kbo.confidence import FixedWidth
from kbo.errors import InvalidInput
from kbo.integrations.ax.constraints import limits_of
from kbo.integrations.ax.models import MethodGP
from kbo.integrations.ax.seen import Seen
from kbo.optimize import Constraint
from kbo.optimize.constrained import Feasibility
from kbo.optimize.slacks import feasible_first
from kbo.optimize.trials import in_words, overtaken


def interval(client: Client, parameters: Mapping[str, Any], outcome: str | None = None) -> tuple[float, float, float]:
    """Return lower bound, mean and upper bound of an outcome, without noise, in its own units.

    Args:
        client: With a strategy of ``generation_strategy``.
        parameters: A point of the search space; fixed parameters may be left out.
        outcome: The name of the objective (default) or of an outcome with a constraint.

    Raises:
        InvalidInput: The client has another strategy or too few observations, there is no such outcome, or the point is
            not one of the space.
        RefutedAssumptions: The data contradict the assumptions (certified setting only).
    """
    checks.instance("parameters", parameters, Mapping)
    fitted = _fitted(client)
    name = fitted.objective if outcome is None else checks.one_of("outcome", outcome, fitted.models)
    lower, mean, upper = (float(value) for value in fitted.intervals(name, [_complete(client, parameters)]))
    return lower, mean, upper


def recommended(client: Client) -> tuple[int, dict[str, Any]]:
    """Return index and parameters of the completed trial with the best pessimistic bound that keeps all limits by such.

    That is the bound of the certified setting, and in the practical one a standard deviation from the mean. If no trial
    keeps the limits, it is the one that is nearest to that; ``feasibility`` says how certain it is.

    Raises:
        InvalidInput: The client has another strategy or too few observations.
    """
    fitted = _fitted(client)
    trials = [t for t in _experiment(client).trials.values() if t.status == TrialStatus.COMPLETED]
    points = [trial.arm.parameters for trial in trials]
    name = fitted.objective
    towards = Constraint(name, upper=0.0) if fitted.minimize else Constraint(name, lower=0.0)
    score, _ = fitted.margins(towards, points)
    slacks = [slack / width for slack, width in (fitted.margins(limit, points) for limit in fitted.limits)]
    best = feasible_first(score, torch.stack([torch.ones_like(score), *slacks]).amin(0)).argmax()
    return trials[best].index, dict(points[best])


def feasibility(client: Client) -> Feasibility | None:
    """Return bounds and limits of the outcomes at the recommended trial; None without outcome constraints.

    Raises:
        InvalidInput: The client has another strategy or too few observations.
    """
    fitted = _fitted(client)
    if not fitted.limits:
        return None
    _, point = recommended(client)
    bounds, kept, probability = {}, True, 1.0
    for limit in fitted.limits:
        lower, mean, upper = (float(value) for value in fitted.intervals(limit.name, [point]))
        bounds[limit.name] = lower, mean, upper
        kept &= limit.kept_by(upper if limit.sign < 0 else lower)
        reached = fitted.models[limit.name].belief.probability(
            fitted.features(limit.name, [point]), limit.sign * limit.limit
        )
        probability *= reached if limit.sign > 0 else 1 - reached
    if not fitted.models[fitted.objective].certified:
        return Feasibility(tuple(fitted.limits), bounds, kept, probability, False)
    ways = _selected(client, fitted)
    certified = all(model.belief.proved(ways) is not None for model in fitted.models.values())
    proved = 1 - sum(model.belief.assumptions()["delta"] for model in fitted.models.values())
    return Feasibility(tuple(fitted.limits), bounds, kept, proved if certified else None, certified)


def guarantee(client: Client) -> str:
    """Return in words the guarantee of ``interval`` and the estimated numbers.

    It is gone once a value is overwritten after kbo has read it, which it does when a trial is proposed or a bound
    computed. Ax keeps no trace of what was overwritten before that, so the sentence assumes that nothing was.

    Raises:
        InvalidInput: The client has another strategy.
    """
    try:
        fitted = _fitted(client)
    except _TooFew:
        return "none: there are too few observations for a bound"
    model = fitted.models[fitted.objective]
    ways = _selected(client, fitted)
    said = model.belief.guarantee(ways)
    if model.belief.proved(ways) is not None:
        said += "; and if no value was replaced by another one before the next trial was proposed"
    noise = model.belief.account().get("noise")
    return said if noise is None else f"{said} (noise: {noise})"


def _selected(client: Client, fitted: _Fitted) -> list[str]:
    """The ways in which the noise may have decided which values there are, in words; see ``kbo.optimize.trials``."""
    trials: list[BaseTrial] = list(_experiment(client).trials.values())
    lost = (TrialStatus.FAILED, TrialStatus.ABANDONED, TrialStatus.EARLY_STOPPED)
    complete = [trial for trial in trials if trial.status == TrialStatus.COMPLETED]
    ended = sorted(complete, key=lambda trial: (trial.time_completed or datetime.min, trial.index))
    running = [trial for trial in trials if trial.status == TrialStatus.RUNNING]
    ways = {
        "failed, abandoned or stopped early": sum(trial.status in lost for trial in trials),
        "attached, perhaps with values that were known before": sum(map(_attached, complete)),
        "overtaken by later ones": overtaken(trial.index for trial in [*ended, *running]),
        "proposed, or bounds computed, with values that were overwritten later": fitted.seen.overwritten(trials),
    }
    return in_words(ways)


def _attached(trial: BaseTrial) -> bool:
    return any(run.generator_run_type == GeneratorRunType.MANUAL.name for run in trial.generator_runs)


class _TooFew(InvalidInput):
    """There is no posterior yet."""


@dataclass(frozen=True)
class _Fitted:
    """The models of all outcomes after the data."""

    adapter: TorchAdapter
    models: Mapping[str, MethodGP]
    objective: str
    minimize: bool
    limits: Sequence[Constraint]

    @property
    def seen(self) -> Seen:
        """The data as they are."""
        found = self.adapter.transforms.get("Seen")
        return found if isinstance(found, Seen) else Seen()  # a strategy of an earlier version has none

    def features(self, name: str, points: Sequence[Mapping[str, Any]]) -> Tensor:
        """The features [n D] of points for the model of an outcome."""
        found = [ObservationFeatures(parameters=dict(point)) for point in points]
        for transform in self.adapter.transforms.values():
            found = transform.transform_observation_features(found)
        model = self.models[name]
        rows = [[one.parameters[parameter] for parameter in self.adapter.parameters] for one in found]
        return model.transform_inputs(model.train_targets.new_tensor(rows))

    def intervals(self, name: str, points: Sequence[Mapping[str, Any]]) -> tuple[Tensor, Tensor, Tensor]:
        """Lower bound, mean and upper bound [n] of an outcome at points."""
        return self.models[name].belief.interval(self.features(name, points))

    def margins(self, limit: Constraint, points: Sequence[Mapping[str, Any]]) -> tuple[Tensor, Tensor]:
        """By how much a limit is kept at points for sure enough to be recommended, and widths of the bounds [n]."""
        model, X = self.models[limit.name], self.features(limit.name, points)
        confidence = model.confidence() if model.certified else FixedWidth(1.0)
        lower, upper = (model.belief.raw(side) for side in confidence.interval(model.state, X))
        return (limit.sign * (upper if limit.sign < 0 else lower) - limit.limit), upper - lower


def _fitted(client: Client) -> _Fitted:
    strategy = checks.instance("client", client, Client)._maybe_generation_strategy
    if strategy is None or not strategy.name.startswith("kbo "):
        raise InvalidInput(
            "the client has no strategy of kbo: call client.set_generation_strategy(generation_strategy(...)) first."
        )
    experiment = _experiment(client)
    adapter = strategy.fit(experiment) if experiment.trials else None
    model: Any = adapter.botorch_model if isinstance(adapter, TorchAdapter) else None
    models = list(getattr(model, "models", [model]))
    if not isinstance(adapter, TorchAdapter) or not all(isinstance(one, MethodGP) for one in models):
        raise _TooFew("there is no bound yet: complete the trials that fill the space first.")
    config = experiment.optimization_config
    (objective,) = config.objective.metric_names
    by_name = dict(zip(adapter.outcomes, models, strict=True))
    fitted = _Fitted(adapter, by_name, objective, config.objective.minimize, limits_of(config))
    fitted.seen.note(experiment.trials[max(experiment.trials)])
    return fitted


def _experiment(client: Client) -> Any:
    return client._experiment


def _complete(client: Client, parameters: Mapping[str, Any]) -> dict[str, Any]:
    space = _experiment(client).search_space
    fixed = {name: p.value for name, p in space.parameters.items() if isinstance(p, FixedParameter)}
    point = {**fixed, **parameters}
    try:
        space.check_membership(point, raise_error=True, check_all_parameters_present=True)
    except ValueError as error:
        raise InvalidInput(f"parameters must be a point of the search space: {error}") from error
    return point
