"""The explanation of a trial: the strategy that chose its parameters, and the numbers that it compared."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import torch

from kbo.optimize.search.search import Search
from kbo.optimize.strategies.strategy import Proposal


@dataclass(frozen=True)
class Explanation:
    """The reason why a trial has its parameters, with numbers in units of the objective.

    Attributes:
        strategy: The strategy that chose the parameters, in words.
        mean: The posterior mean at the parameters that the strategy returned; None without a surrogate, and with
            several objectives.
        std: The posterior standard deviation there.
        width: The number of standard deviations between the mean and the optimistic bound; None without a bound.
        bound: The optimistic bound there: the upper bound if the objective is maximised, else the lower one. None if
            the strategy maximised no bound, or the bound is infinite.
        best: The best measured value at that time, of the trials that broke the fewest limits. None without a value,
            and where a context or choices are given, since values of other contexts are not comparable.
        replaced: The reason why random parameters replaced those of the strategy; empty if they did not.
    """

    strategy: str
    mean: float | None = None
    std: float | None = None
    width: float | None = None
    bound: float | None = None
    best: float | None = None
    replaced: str = ""

    def __str__(self) -> str:
        sentences = [f"chosen by: {self.strategy}"]
        if self.replaced:
            sentences = [f"random, in place of: {self.strategy}, since {self.replaced}"]
        if self.mean is not None:
            sentences.append(f"expected value {self.mean:.4g}")
        if self.std is not None:
            sentences.append(f"standard deviation {self.std:.2g}")
        if self.bound is not None:
            sentences.append(f"optimistic bound {self.bound:.4g}{self._width()}")
        if self.best is not None:
            sentences.append(f"best measured value then {self.best:.4g}")
        return "; ".join(sentences)

    def _width(self) -> str:
        """Return the width in words; empty without one."""
        if self.width is None:
            return ""
        plural = "" if self.width == 1 else "s"
        return f" ({self.width:.2g} standard deviation{plural} from it)"

    def record(self) -> dict[str, str | float]:
        """Return the explanation as an entry of a journal: finite numbers, with six digits, by name."""
        record: dict[str, str | float] = {}
        for name, value in asdict(self).items():
            if isinstance(value, str) and value:
                record[name] = value
            if isinstance(value, float) and math.isfinite(value):
                record[name] = float(f"{value:.6g}")
        return record


def explanation_of(record: Mapping[str, Any]) -> Explanation | None:
    """Return the explanation that an entry of a journal holds; None if it holds none."""
    if "strategy" not in record:
        return None
    names = [field.name for field in fields(Explanation)]
    return Explanation(**{name: record[name] for name in names if name in record})


@torch.no_grad()
def explained(proposal: Proposal, search: Search, sign: int, best: float | None) -> Explanation:
    """Return the explanation of a proposal.

    Args:
        proposal: The proposal.
        search: The search with which it was made.
        sign: 1 if the objective is maximised, else -1.
        best: The best value of a completed trial; None if there is none to compare with.
    """
    explanation = Explanation(proposal.strategy, best=best, replaced=proposal.replaced)
    surrogate = search.surrogate
    bound = search.bound
    if surrogate is None or bound is None or search.front is not None:
        return explanation
    features = search.space.features(search.space.unit(proposal.proposed).unsqueeze(0))
    mean, variance = bound.posterior.predict(features)
    std = variance.sqrt()
    upper = torch.full_like(mean, torch.inf)
    confidence = proposal.confidence
    if confidence is not None and confidence.finite_on(bound.posterior):
        upper = confidence.upper(bound.posterior, features)
    expected = mean.minimum(upper)  # as in every interval that is reported
    levels = torch.cat([mean - std, mean + std, expected, upper])
    low, high, middle, optimistic = surrogate.transform.inverse(levels).tolist()
    explanation = replace(explanation, mean=sign * middle, std=(high - low) / 2)
    if not bool(upper.isfinite()):
        return explanation
    explanation = replace(explanation, bound=sign * optimistic)
    if float(std) > 0:
        return replace(explanation, width=float((upper - expected) / std))
    return explanation
