"""Misfits: trials whose value is far from what all others predict, such as a slip in a table."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kbo.optimize.surrogates.surrogate import Surrogate


@dataclass(frozen=True)
class Misfit:
    """A trial whose value is far from what all others predict.

    Attributes:
        number: The trial.
        value: Its value.
        lower, upper: The 90% interval of its value by the others.
    """

    number: int
    value: float
    lower: float
    upper: float


def misfits(surrogate: Surrogate, maximize: bool) -> list[Misfit]:
    """Return the trials whose value is far from what the others predict, the farthest first.

    Args:
        surrogate: The surrogate of the objective, larger values better.
        maximize: Whether larger values of the objective are better.
    """
    found = []
    for row, lower, upper in surrogate.misfits():
        evaluation = surrogate.values[row]
        assert evaluation.value is not None
        ends = surrogate.transform.inverse(torch.tensor([lower, upper], dtype=torch.float64))
        lower, upper = ends.tolist()
        if maximize:
            found.append(Misfit(evaluation.number, evaluation.value, lower, upper))
        else:
            found.append(Misfit(evaluation.number, -evaluation.value, -upper, -lower))
    return found
