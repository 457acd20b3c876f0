"""One random sequence of calls: its moves, the refused calls, and verdicts on its statements at the end."""

from __future__ import annotations

import copy
import io
import pickle
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch

from kbo.errors import KboError, RefutedAssumptions

T = TypeVar("T")


@dataclass
class Play:
    """Moves and verdicts of one sequence.

    Attributes:
        rng: The source of randomness.
        moves: The names of the calls, in their order.
        refused: The number of calls that kbo refused.
        verdicts: For each statement at the end its kind, delta, and whether it was wrong (None without a guarantee).
    """

    rng: random.Random
    moves: list[str] = field(default_factory=list)
    refused: int = 0
    verdicts: list[tuple[str, float, bool | None]] = field(default_factory=list)

    def do(self, name: str, call: Callable[[], T]) -> T | None:
        """Make a call, and return its value; None if kbo refuses it."""
        self.moves.append(name)
        try:
            return call()
        except (KboError, AttributeError) as error:
            self.moves[-1] += f" [{type(error).__name__}]"
            self.refused += 1
            return None

    def judge(
        self, kind: str, delta: float, guaranteed: Callable[[], bool], outside: Callable[[], bool]
    ) -> None:
        """Compare a statement with the truth. It is also wrong if true assumptions are refuted.

        Args:
            kind: The kind of statement.
            delta: The probability with which the statement may be wrong.
            guaranteed: Returns whether the statement is guaranteed; called after ``outside``.
            outside: Returns whether the truth is outside of the statement, or a number is NaN.
        """
        try:
            try:
                wrong = outside()
            except RefutedAssumptions:
                wrong = True
            has_guarantee = guaranteed()
        except KboError:
            self.refused += 1
            has_guarantee = False
            wrong = False
        if has_guarantee:
            self.verdicts.append((kind, delta, wrong))
        else:
            self.verdicts.append((kind, delta, None))

    def pick(self, *options: T) -> T:
        """Return one of the options at random."""
        return self.rng.choice(options)

    def noise(self, n: int, std: float, signs: bool) -> np.ndarray:
        """Return independent noise [n] of a standard deviation: random signs, or otherwise Gaussian."""
        if signs:
            draws = [self.rng.choice([-1, 1]) for _ in range(n)]
        else:
            draws = [self.rng.gauss(0, 1) for _ in range(n)]
        return std * np.array(draws, dtype=float)


def outside(lower: Any, upper: Any, truth: np.ndarray) -> bool:
    """Return whether the truth is outside an interval by more than rounding, or a bound is NaN."""
    lower = np.asarray(torch.as_tensor(lower).detach(), dtype=float)
    upper = np.asarray(torch.as_tensor(upper).detach(), dtype=float)
    rounding = 1e-9 * (1 + np.abs(truth))
    is_inside = (lower <= truth + rounding) & (upper >= truth - rounding)
    return not bool(is_inside.all())


COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
}


def through_file(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state dict that was saved and loaded."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)
