"""The features of ``kbo.space`` for an Ax search space, from the numbers that Ax passes to models."""

from __future__ import annotations

import math

import torch
from ax.core.search_space import SearchSpaceDigest
from botorch.models.transforms.input import InputTransform
from torch import Tensor

from kbo.errors import InvalidInput
from kbo.space import Choice, Float, Int, Parameter, Space


class UnitFeatures(InputTransform):
    """Numbers scaled to [0, 1], choices without an order as one-hot columns of length 1/sqrt(2).

    Ax itself takes logarithms, numbers the choices that are no numbers, and leaves out parameters of one value. Choices
    with an order are numbers; Ax assumes an order of two options.

    Args:
        bounds: Lower and upper ends [2 d] of the parameters.
        options: The values of those without an order, by column.
    """

    def __init__(self, bounds: Tensor, options: dict[int, list[float]]) -> None:
        super().__init__()
        self.transform_on_train = self.transform_on_eval = self.transform_on_fantasize = True
        self.low: Tensor
        self.width: Tensor
        self.register_buffer("low", bounds[0])
        self.register_buffer("width", bounds[1] - bounds[0])
        self.options = options

    @property
    def columns(self) -> int:
        """Number of feature columns D."""
        return len(self.low) + sum(len(values) - 1 for values in self.options.values())

    def transform(self, X: Tensor) -> Tensor:
        """Features [... D] of points X [... d]."""
        unit = (X - self.low) / self.width
        if not self.options:
            return unit
        parts = [column.unsqueeze(-1) for column in unit.unbind(-1)]
        for i, options in self.options.items():
            values = torch.tensor(options).to(X)
            index = (X[..., i, None] - values).abs().argmin(-1)
            parts[i] = torch.nn.functional.one_hot(index, len(values)).to(X) / math.sqrt(2)
        return torch.cat(parts, -1)


def features_of(digest: SearchSpaceDigest) -> UnitFeatures:
    """The features of a search space.

    Raises:
        InvalidInput: It has tasks or fidelities, of which kbo has no model.
    """
    if digest.task_features or digest.fidelity_features:
        names = [digest.feature_names[i] for i in (*digest.task_features, *digest.fidelity_features)]
        raise InvalidInput(f"kbo has no model of tasks and fidelities: fix the parameters {names}.")
    options = {i: [float(v) for v in digest.discrete_choices[i]] for i in digest.categorical_features}
    return UnitFeatures(torch.tensor(digest.bounds, dtype=torch.float64).T, options)


def space_of(digest: SearchSpaceDigest) -> Space:
    """The search space as one of kbo, with the same features; ordered options that are no range count as a range."""
    return Space({name: _parameter(digest, i) for i, name in enumerate(digest.feature_names)})


def _parameter(digest: SearchSpaceDigest, i: int) -> Parameter:
    values, (low, high) = digest.discrete_choices.get(i), digest.bounds[i]
    if values is None:
        return Float(float(low), float(high))
    if i in digest.categorical_features:
        return Choice(values)
    if list(values) == list(range(int(low), int(high) + 1)):
        return Int(int(low), int(high))
    return Float(float(low), float(high))
