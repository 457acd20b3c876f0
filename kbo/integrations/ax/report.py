"""Reports on an Ax experiment: bounds of the outcomes, their guarantee, the recommended trial and the front."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from ax.api.client import Client
from ax.core.experiment import Experiment

from kbo._base import checks
from kbo._base.isolation import isolated
from kbo.errors import InvalidInput
from kbo.integrations.ax.history import directions_of, left_out, selected
from kbo.integrations.ax.node import KBONode
from kbo.integrations.ax.records import store_record
from kbo.integrations.replay import Replay
from kbo.optimize import Front, Practical
from kbo.optimize.constraints.feasibility import Feasibility
from kbo.optimize.run.outcome import OBJECTIVE
from kbo.optimize.surrogates.guarantee import NO_BOUND


@isolated
def interval(
    client: Client, parameters: Mapping[str, Any], outcome: str | None = None
) -> tuple[float, float, float]:
    """Return lower bound, mean and upper bound of an outcome without its noise, in its own units.

    Args:
        client: A client with a strategy of ``generation_strategy``.
        parameters: A point of the search space; fixed parameters may be left out.
        outcome: The name of an objective or of an outcome with a constraint; by default the only objective.

    Raises:
        InvalidInput: The client has another strategy or too few observations, there is no such outcome, or the point is
            outside the search space.
        RefutedAssumptions: The data contradict the assumptions (certified setting only).
    """
    checks.instance("parameters", parameters, Mapping)
    experiment, model = _model_of(client)
    config: Any = experiment.optimization_config
    names = list(directions_of(config))
    limited = [constraint.name for constraint in model.optimizer.constraints]
    if outcome is None and len(names) == 1:
        outcome = names[0]
    name = checks.one_of("outcome", outcome, [*names, *limited])
    if name == names[0]:
        name = OBJECTIVE
    bounds = model.optimizer.interval(dict(parameters), name)
    if bounds is None:
        raise InvalidInput("there is no bound yet: complete more trials first.")
    return bounds


@isolated
def recommended(client: Client) -> tuple[int, dict[str, Any]]:
    """Return index and parameters of the recommended trial, as ``kbo.Optimizer.recommended`` does.

    Candidates are the completed trials inside the search space whose pessimistic bounds keep all limits. The one with
    the best pessimistic bound is recommended. If there is no candidate, the trial closest to the limits is recommended;
    ``feasibility`` shows how certain that is. With several objectives it is the balanced trial of ``front``.

    Raises:
        InvalidInput: The client has another strategy, or no complete trial is inside the search space.
    """
    _, model = _model_of(client)
    best = model.recommended
    if best is None:
        raise InvalidInput(
            "no complete trial is inside the search space, so there is none to recommend: run some first."
        )
    params: Any = best.params
    index, _ = best.key
    return index, dict(params)


@isolated
def front(client: Client) -> Front | None:
    """Return the front: the complete trials that no other dominates in estimated true values, and the hypervolume.

    The numbers of the trials are the indices of Ax. None with one objective, or while there is no bound.

    Raises:
        InvalidInput: The client has another strategy.
    """
    _, model = _model_of(client)
    return model.front(lambda entry: (entry.key[0], copy.copy(entry.params)))


@isolated
def feasibility(client: Client) -> Feasibility | None:
    """Return bounds and limits of the outcomes at the recommended trial; None without constraints or trials.

    Raises:
        InvalidInput: The client has another strategy.
    """
    experiment, model = _model_of(client)
    return model.optimizer.insight.feasibility(selected(experiment))


@isolated
def guarantee(client: Client) -> str:
    """Return the guarantee of ``interval`` as text.

    There is no guarantee if a value was overwritten after kbo had read it for a proposal or a bound. Ax keeps no trace
    of values that were overwritten before, so the text names the assumption that there are none.

    Raises:
        InvalidInput: The client has another strategy.
    """
    experiment, model = _model_of(client)
    guarantee = model.optimizer.insight.guarantee(selected(experiment))
    if guarantee is None:
        return NO_BOUND
    if not guarantee:
        return guarantee.text
    return f"{guarantee.text}; and if no value was overwritten before kbo read it"


@isolated
def replayed(client: Client) -> tuple[Replay, list[int]]:
    """Return an optimiser after the trials of a client with any strategy, and the indices of trials that it leaves out.

    Raises:
        InvalidInput: kbo cannot do this optimisation; the message says why.
    """
    experiment = checks.instance("client", client, Client)._experiment
    model = KBONode("ucb", Practical()).learned(experiment)
    return model, left_out(experiment, model)


def _model_of(client: Client) -> tuple[Experiment, Replay]:
    """Return the experiment of a client, and the optimiser after its trials.

    This stores a record of the values in the newest trial, since a bound may be shown.

    Raises:
        InvalidInput: The client has another strategy.
    """
    strategy = checks.instance("client", client, Client)._maybe_generation_strategy
    node = None
    if strategy is not None:
        node = strategy.current_node
    if not isinstance(node, KBONode):
        raise InvalidInput(
            "the client has no strategy of kbo: call client.set_generation_strategy(generation_strategy(...)) first."
        )
    experiment = client._experiment
    model = node.learned(experiment)
    store_record(experiment, node.record)
    return experiment, model
