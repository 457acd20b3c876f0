"""The bowl, the trend of the practical model: a quadratic function of the features that is least in the centre.

    q(x) = sum_d q_d / sqrt(4 D / 45),   q_d = (2 x_d - 1)^2 - 1/3

Over the unit cube it has mean 0 and variance 1. The columns of a choice have a constant length, so they add a constant.

An inactive parameter counts as in the middle of its range. Its features are zeros (``kbo.space.space``). By this
formula they are far from the centre, so that options with few parameters would be expected to be bad. So conditional
parameters have other terms: q_d = 8 x_d^2 - 4 x_d - 1/3 for the two columns (sin, cos) / sqrt(2) of a number, whose sum
equals the formula where the number is active, and q_d = -1/3 for the columns of a choice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from kbo.space import Space


@dataclass(frozen=True)
class Bowl:
    """The function q of the features of a space.

    Args:
        numbers: The columns of conditional numbers, two for each; none by default.
        choices: The columns of conditional choices; none by default.
    """

    numbers: tuple[int, ...] = ()
    choices: tuple[int, ...] = ()

    @classmethod
    def of(cls, space: Space) -> Bowl:
        """Return the bowl for the features of a space."""
        numbers: list[int] = []
        choices: list[int] = []
        first = 0
        for name, parameter in space.compared.items():
            n_columns = parameter.columns
            if name in space.conditions:
                kind = choices
                if n_columns == 1:
                    kind = numbers
                    n_columns = 2
                kind.extend(range(first, first + n_columns))
            first += n_columns
        return cls(tuple(numbers), tuple(choices))

    def __call__(self, X: Tensor) -> Tensor:
        """Return q(x) [...] at features X [... D]."""
        squares = (2 * X - 1).square()
        if self.numbers:
            of_numbers = X[..., self.numbers]
            squares[..., self.numbers] = 8 * of_numbers.square() - 4 * of_numbers
        if self.choices:
            squares[..., self.choices] = 0.0
        return (squares - 1 / 3).sum(-1) / math.sqrt(4 * X.shape[-1] / 45)


PLAIN = Bowl()
"""The bowl of a space without conditions."""


@dataclass(frozen=True)
class Trend:
    """The prior mean ``-h q(x)`` of targets at points of the unit cube.

    Args:
        height: The height h of the bowl.
        bowl: The bowl q.
    """

    height: float
    bowl: Bowl

    def __call__(self, X: Tensor) -> Tensor:
        """Return the prior mean [...] at points X [... D]."""
        return -self.height * self.bowl(X)
