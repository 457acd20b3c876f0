"""Bounds of the objective of an Ax experiment, in its own units, and their guarantee."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ax.adapter.torch import TorchAdapter
from ax.api.client import Client
from ax.core.base_trial import BaseTrial, TrialStatus
from ax.core.generator_run import GeneratorRunType
from ax.core.observation import ObservationFeatures
from ax.core.parameter import FixedParameter

from kbo import checks
from kbo.errors import InvalidInput
from kbo.integrations.ax.models import MethodGP
from kbo.optimize.trials import in_words, overtaken


def interval(client: Client, parameters: Mapping[str, Any]) -> tuple[float, float, float]:
    """Return lower bound, mean and upper bound of the objective, without noise, in its own units.

    Args:
        client: With a strategy of ``generation_strategy``.
        parameters: A point of the search space; fixed parameters may be left out.

    Raises:
        InvalidInput: The client has another strategy or too few observations, or the point is not one of the space.
        RefutedAssumptions: The data contradict the assumptions (certified setting only).
    """
    checks.instance("parameters", parameters, Mapping)
    adapter, model = _fitted(client)
    features = [ObservationFeatures(parameters=_complete(client, parameters))]
    for transform in adapter.transforms.values():
        features = transform.transform_observation_features(features)
    row = [features[0].parameters[name] for name in adapter.parameters]
    X = model.transform_inputs(model.train_targets.new_tensor([row]))
    lower, mean, upper = (float(value) for value in model.belief.interval(X))
    return lower, mean, upper


def guarantee(client: Client) -> str:
    """Return in words the guarantee of ``interval`` and the estimated numbers.

    Raises:
        InvalidInput: The client has another strategy.
    """
    try:
        _, model = _fitted(client)
    except _TooFew:
        return "none: there are too few observations for a bound"
    said = model.belief.guarantee(_selected(list(_experiment(client).trials.values())))
    noise = model.belief.account().get("noise")
    return said if noise is None else f"{said} (noise: {noise})"


def _selected(trials: list[BaseTrial]) -> list[str]:
    """The ways in which the noise may have decided which values there are, in words; see ``kbo.optimize.trials``."""
    lost = (TrialStatus.FAILED, TrialStatus.ABANDONED, TrialStatus.EARLY_STOPPED)
    complete = [trial for trial in trials if trial.status == TrialStatus.COMPLETED]
    ended = sorted(complete, key=lambda trial: (trial.time_completed or datetime.min, trial.index))
    running = [trial for trial in trials if trial.status == TrialStatus.RUNNING]
    ways = {
        "failed, abandoned or stopped early": sum(trial.status in lost for trial in trials),
        "attached, perhaps with values that were known before": sum(map(_attached, complete)),
        "overtaken by later ones": overtaken(trial.index for trial in [*ended, *running]),
    }
    return in_words(ways)


def _attached(trial: BaseTrial) -> bool:
    return any(run.generator_run_type == GeneratorRunType.MANUAL.name for run in trial.generator_runs)


class _TooFew(InvalidInput):
    """There is no posterior yet."""


def _fitted(client: Client) -> tuple[TorchAdapter, MethodGP]:
    strategy = checks.instance("client", client, Client)._maybe_generation_strategy
    if strategy is None or not strategy.name.startswith("kbo "):
        raise InvalidInput(
            "the client has no strategy of kbo: call client.set_generation_strategy(generation_strategy(...)) first."
        )
    adapter = strategy.fit(_experiment(client)) if _experiment(client).trials else None
    model = adapter.botorch_model if isinstance(adapter, TorchAdapter) else None
    if not isinstance(adapter, TorchAdapter) or not isinstance(model, MethodGP):
        raise _TooFew("there is no bound yet: complete the trials that fill the space first.")
    return adapter, model


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
