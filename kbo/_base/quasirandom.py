"""Scrambled Sobol points that do not depend on PyTorch's default dtype."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine


def sobol(n: int, columns: int, seed: int | None, first: int = 0) -> Tensor:
    """Return n points [n columns] of the unit cube from a scrambled Sobol sequence, in float64.

    Args:
        n: The number of points, at least 1.
        columns: The number of columns.
        seed: The seed of the scrambling; None for a seed from torch's global generator.
        first: The position of the first returned point in the sequence.
    """
    engine = SobolEngine(columns, scramble=True, seed=seed)
    if first:
        return engine.fast_forward(first).draw(n, dtype=torch.float64)
    # PyTorch rounds the first point of a sequence to the default dtype, usually float32, and no other point.
    start = (engine.quasi.double() / 2**engine.MAXBIT).float()
    points = engine.draw(n, dtype=torch.float64)
    points[0] = start.double()
    return points
