"""The explanation of a trial: the strategy that chose it, and the numbers that it compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from kbo.optimize.search.search import Search
from kbo.optimize.strategies.strategy import Proposal


@dataclass(frozen=True)
class Explanation:
    """The reason why a trial has its parameters, with numbers in units of the objective.

    Attributes:
        strategy: The strategy that chose them, in words.
        mean: The value that the surrogate expected at the parameters of the strategy; None before the first surrogate.
        std: The standard deviation of that value.
        bound: The optimistic bound there, which the search compares between points: an upper one if the objective is
            maximised. None if the method has no finite bound.
        best: The best value of a completed trial at that time; None if there was none.
        replaced: The reason why random parameters took the place of those of the strategy; empty if they did not.
    """

    strategy: str
    mean: float | None = None
    std: float | None = None
    bound: float | None = None
    best: float | None = None
    replaced: str = ""

    def __str__(self) -> str:
        sentences = [f"chosen by: {self.strategy}"]
        if self.mean is not None:
            sentences.append(f"expected value {self.mean:.4g}, standard deviation {self.std:.2g}")
        if self.bound is not None:
            sentences.append(f"optimistic bound {self.bound:.4g}")
        if self.best is not None:
            sentences.append(f"best value known then {self.best:.4g}")
        if self.replaced:
            sentences.append(f"replaced by random parameters, since {self.replaced}")
        return "; ".join(sentences)

    def record(self) -> dict[str, str | float]:
        """Return the explanation as an entry of a journal: what is known of it, by name."""
        return {name: value for name, value in asdict(self).items() if value not in (None, "")}


def explanation_of(record: Mapping[str, Any]) -> Explanation | None:
    """Return the explanation that an entry of a journal holds; None if it holds none."""
    if "strategy" not in record:
        return None
    return Explanation(**record)


@torch.no_grad()
def explained(proposal: Proposal, search: Search, sign: int, best: float | None) -> Explanation:
    """Return the explanation of a proposal.

    Args:
        proposal: The proposal.
        search: The search that it comes from.
        sign: 1 if the objective is maximised, else -1.
        best: The best value of a completed trial.
    """
    surrogate = search.surrogate
    bound = search.bound
    if surrogate is None or bound is None:
        return Explanation(proposal.strategy, best=best, replaced=proposal.replaced)
    features = search.space.features(search.space.unit(proposal.proposed).unsqueeze(0))
    mean, variance = bound.posterior.predict(features)
    std = variance.sqrt()
    low = surrogate.transform.inverse(mean - std)
    high = surrogate.transform.inverse(mean + std)
    upper = None
    if bound.confidence.finite_on(bound.posterior):
        upper = sign * float(
            surrogate.transform.inverse(bound.confidence.upper(bound.posterior, features))
        )
    return Explanation(
        strategy=proposal.strategy,
        mean=sign * float(surrogate.transform.inverse(mean)),
        std=float(high - low) / 2,
        bound=upper,
        best=best,
        replaced=proposal.replaced,
    )
