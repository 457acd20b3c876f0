"""The parameters of the next trial: the strategies of a run are asked in turn."""

from __future__ import annotations

from collections.abc import Sequence

from kbo.optimize.proposal.begin_search import search_for_trial
from kbo.optimize.quantities.quantities import Quantities
from kbo.optimize.search.subspace import Subspace
from kbo.optimize.strategies.explanation import Explanation, explained
from kbo.optimize.strategies.safe_exploration import SafeExploration
from kbo.optimize.strategies.strategy import Strategy, propose
from kbo.space import Params


def next_params(
    quantities: Quantities,
    seed: int,
    subspace: Subspace,
    number: int,
    pending: Sequence[Params] = (),
) -> tuple[Params, Explanation]:
    """Return the parameters of a trial, and the explanation of this choice.

    Args:
        quantities: The quantities of the run.
        seed: The seed of the run.
        subspace: The part of the space to choose from.
        number: The number of the trial.
        pending: Parameters that are being evaluated, besides those of the pending trials.

    Raises:
        RefutedAssumptions: In the certified setting, no function satisfies the assumptions.
    """
    search = search_for_trial(quantities, seed, subspace, number, pending)
    proposal = propose(_strategies(quantities), search)
    leading = quantities.leading()
    best = None
    if leading and not subspace.partial:
        best = leading[0].value
    return proposal.params, explained(proposal, search, quantities.sign, best)


def _strategies(quantities: Quantities) -> Sequence[Strategy]:
    """Return the strategies that propose the next trial, tried in order."""
    if quantities.safe_points is None:
        return quantities.setting.strategies_for(quantities.problem.method)
    return [SafeExploration(quantities.safe_points)]
