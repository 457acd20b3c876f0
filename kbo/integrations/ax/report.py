"""Bounds of the outcomes of an Ax experiment, in their own units, their guarantee, and the recommended trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ax.api.client import Client
from ax.core.experiment import Experiment

from kbo._base import checks
from kbo._base.surroundings import fixed
from kbo.errors import InvalidInput
from kbo.integrations.ax.history import left_out, note, selected
from kbo.integrations.ax.node import KBONode
from kbo.integrations.replay import Replay
from kbo.optimize import Practical
from kbo.optimize.feasibility import Feasibility
from kbo.optimize.run.outcome import OBJECTIVE
from kbo.optimize.surrogates.surrogate import NO_BOUND


@fixed
def interval(
    client: Client, parameters: Mapping[str, Any], outcome: str | None = None
) -> tuple[float, float, float]:
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
    node, experiment, known = _known(client)
    config: Any = experiment.optimization_config
    (objective,) = config.objective.metric_names
    names = [objective, *(constraint.name for constraint in known.optimizer.constraints)]
    name = objective if outcome is None else checks.one_of("outcome", outcome, names)
    found = known.optimizer.interval(
        {**node.fixed, **parameters}, OBJECTIVE if name == objective else name
    )
    if found is None:
        raise InvalidInput("there is no bound yet: complete more trials first.")
    return found


@fixed
def recommended(client: Client) -> tuple[int, dict[str, Any]]:
    """Return index and parameters of the recommended trial, as ``kbo.Optimizer.recommended`` does.

    It is the completed trial with the best pessimistic bound that keeps all limits by such. If no trial keeps the
    limits, it is the one that is nearest to that; ``feasibility`` says how certain it is.

    Raises:
        InvalidInput: The client has another strategy, or no trial is complete.
    """
    best = _known(client)[-1].recommended
    if best is None:
        raise InvalidInput("no trial is complete, so there is none to recommend: run some first.")
    params: Any = best.params
    return best.key[0], {**params}


@fixed
def feasibility(client: Client) -> Feasibility | None:
    """Return bounds and limits of the outcomes at the recommended trial; None without outcome constraints or trials.

    Raises:
        InvalidInput: The client has another strategy.
    """
    node, experiment, known = _known(client)
    return known.optimizer.insight.feasibility(selected(experiment, node.data))


@fixed
def guarantee(client: Client) -> str:
    """Return in words the guarantee of ``interval`` and the estimated numbers.

    It is gone once a value is overwritten after kbo has read it, which it does when a trial is proposed or a bound
    computed. Ax keeps no trace of what was overwritten before that, so the sentence assumes that nothing was.

    Raises:
        InvalidInput: The client has another strategy.
    """
    node, experiment, known = _known(client)
    belief, ways = known.optimizer.insight.surrogate(), selected(experiment, node.data)
    if belief is None:
        return NO_BOUND
    guarantee = belief.guarantee(ways)
    said = guarantee.text
    if guarantee:
        said += "; and if no value was replaced by another one before the next trial was proposed"
    noise = belief.account().get("noise")
    return said if noise is None else f"{said} (noise: {noise})"


@fixed
def replayed(client: Client) -> tuple[Replay, list[int]]:
    """Return the optimiser after the trials of a client with any strategy, and the ended trials that it leaves out.

    Raises:
        InvalidInput: The optimisation is not one that kbo can do.
    """
    experiment = checks.instance("client", client, Client)._experiment
    node = KBONode("ucb", Practical(), None, [], 0, "cpu")
    replay = node.learned(experiment)
    return replay, left_out(experiment, replay.trials)


def _known(client: Client) -> tuple[KBONode, Experiment, Replay]:
    """Return the strategy of a client, its experiment, and the optimiser after its trials."""
    strategy = checks.instance("client", client, Client)._maybe_generation_strategy
    node = None if strategy is None else strategy.current_node
    if not isinstance(node, KBONode):
        raise InvalidInput(
            "the client has no strategy of kbo: call client.set_generation_strategy(generation_strategy(...)) first."
        )
    experiment: Experiment = client._experiment
    known = node.learned(experiment)
    if experiment.trials:
        note(experiment.trials[max(experiment.trials)], node.data)
    return node, experiment, known
