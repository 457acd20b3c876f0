"""Importance of parameters: Sobol indices of the model, with intervals from draws of its posterior.

Parameters are independent and uniform in the unit cube of the space: uniform in the logarithm on a logarithmic scale,
whether or not they satisfy its constraints.
Of the variance of the objective, the first-order index of a parameter is the part that it explains alone, and the total
index is the part that is lost without it, interactions included (Sobol 2001). Estimators: Saltelli et al. (2010),
Table 2 (b) and (f), on a scrambled Sobol sequence.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kbo._base.quasirandom import sobol
from kbo.errors import InvalidInput
from kbo.optimize.surrogates.surrogate import Surrogate
from kbo.space import Space

DRAWS = 32
"""Draws from the posterior."""

_LEAST, _MOST, _POINTS = 256, 1024, 8192
"""Points of either sample, and of all samples together where these limits allow."""

_DRAWN = 4
"""Draws take the first points of a sample, one in so many, since their random features take most of the time."""

LEVEL = 0.9
"""Part of the draws that an interval covers."""

Interval = tuple[float, float, float]
"""Lower end, value and upper end; the ends are equal to the value where no function can be drawn."""


@dataclass(frozen=True)
class Importance:
    """Sobol indices of a parameter.

    Attributes:
        name: The parameter.
        first: The first-order index of the posterior mean, between the ends of the interval of draws.
        total: The total index.
    """

    name: str
    first: Interval
    total: Interval


@torch.no_grad()
def importance(space: Space, belief: Surrogate, draws: int = DRAWS) -> list[Importance]:
    """Return the importance of the parameters by a model, the largest total index first.

    The intervals hold the uncertainty of the posterior about the objective and that of the sample of points, which each
    draw takes with replacement; not that of the kernel.

    Args:
        space: The search space.
        belief: The model.
        draws: Draws of the posterior for the intervals.
    """
    P, generator = space.dimension, torch.Generator().manual_seed(0)
    N = next(n for n in (_MOST, _MOST // 2, _LEAST) if n * (P + 2) <= _POINTS or n == _LEAST)
    A, B = sobol(N, 2 * P, seed=0).split(P, 1)
    mixed = [A.index_copy(1, torch.tensor([i]), B[:, i : i + 1]) for i in range(P)]
    features = space.features(torch.cat([A, B, *mixed]))
    mean = belief.posterior.predict(features)[0]
    first, total = _indices(belief.transform.inverse(mean).cpu().reshape(1, P + 2, N))
    drawn = _drawn(
        belief, features.unflatten(0, (P + 2, N)), mean.unflatten(0, (P + 2, N)), draws, generator
    )
    if drawn is not None:
        first_drawn, total_drawn = _indices(drawn)
        first, total = torch.cat([first, first_drawn]), torch.cat([total, total_drawn])
    found = []
    for i, name in enumerate(space.parameters):
        if space.parameters[name].columns:  # or it is fixed
            found.append(Importance(name, _interval(first[:, i]), _interval(total[:, i])))
    return sorted(found, key=lambda entry: -entry.total[1])


def _drawn(
    belief: Surrogate, features: Tensor, mean: Tensor, draws: int, generator: torch.Generator
) -> Tensor | None:
    """Return draws [s P+2 n] of the objective at a part of the points, which each draw takes with replacement.

    Args:
        belief: The model.
        features: Features [P+2 N D] of the points.
        mean: The posterior mean [P+2 N] there.
        draws: The number s of draws.
        generator: Source of randomness.

    Returns:
        The draws; None where there are none, since the kernel has no random features.
    """
    n = mean.shape[1] // _DRAWN
    features, mean = features[:, :n], mean[:, :n]
    try:
        functions = [belief.posterior.at().draw_function(features, generator) for _ in range(draws)]
    except InvalidInput:  # of kernels without random features
        return None
    if not functions:
        return None
    values = belief.transform.inverse(
        torch.stack([mean + function(features) for function in functions])
    ).cpu()
    rows = torch.randint(values.shape[2], (draws, values.shape[2]), generator=generator)
    return values.gather(2, rows.unsqueeze(1).expand_as(values))


def _indices(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return first-order and total indices [s P] of functions with values [s P+2 N] at A, B and their mixtures."""
    values = values - values[:, :2].mean((1, 2), keepdim=True)
    a, b, mixed = values[:, :1], values[:, 1:2], values[:, 2:]
    variance = (
        values[:, :2].square().mean((1, 2)).clamp(min=torch.finfo(values.dtype).tiny).unsqueeze(-1)
    )
    first = (b * (mixed - a)).mean(-1) / variance
    total = (a - mixed).square().mean(-1) / (2 * variance)
    return first.clamp(0, 1), total.clamp(0, 1)


def _interval(found: Tensor) -> Interval:
    """Return the index of the mean, and an interval of draws [s] that contains it."""
    value = float(found[0])
    tail = (1 - LEVEL) / 2
    lower, upper = (float(found.quantile(q)) for q in (tail, 1 - tail))
    return min(lower, value), value, max(upper, value)
