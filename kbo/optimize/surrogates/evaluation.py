"""An evaluation: the value that one quantity has at the end of a trial, for surrogates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Evaluation(NamedTuple):
    """The end of a trial, for the surrogate of one quantity.

    Attributes:
        number: The number of the trial, from 0 in the order of the starts.
        features: Its features [D].
        value: The value of the quantity; None without one.
        selected: Those of ``kbo.optimize.run.trials.WAYS`` in which its noise may have decided which values were
            observed.
        error: The standard error of the value, as reported or of a prediction; None without one.
        predicted: Whether the value is predicted, because the trial was stopped early.
    """

    number: int
    features: tuple[float, ...]
    value: float | None
    selected: Sequence[str] = ()
    error: float | None = None
    predicted: bool = False


def data(
    evaluations: Sequence[Evaluation], device: torch.device | None = None
) -> tuple[Tensor, Tensor]:
    """Return features [n D] and values [n] of evaluations, which all have a value, on a device; by default the CPU."""
    X = torch.tensor([e.features for e in evaluations], dtype=torch.float64, device=device)
    return X, X.new_tensor([e.value for e in evaluations])
