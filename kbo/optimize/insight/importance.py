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

N_DRAWS = 32
"""Draws from the posterior."""

_MOST_ROWS = 1024
_FEWEST_ROWS = 256
"""Points of either sample."""

_N_POINTS = 8192
"""Points of all samples together, where the limits of either sample allow."""

_DRAWN_PART = 4
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
def importance(space: Space, surrogate: Surrogate, n_draws: int = N_DRAWS) -> list[Importance]:
    """Return the importance of the parameters by a model, the largest total index first.

    The intervals hold the uncertainty of the posterior about the objective and that of the sample of points, which each
    draw takes with replacement; not that of the kernel.

    Args:
        space: The search space.
        surrogate: The model.
        n_draws: Draws of the posterior for the intervals.
    """
    P = space.dimension
    N = _MOST_ROWS
    while N > _FEWEST_ROWS and N * (P + 2) > _N_POINTS:
        N = N // 2
    A, B = sobol(N, 2 * P, seed=0).split(P, 1)
    samples = [A, B]
    for i in range(P):
        column = torch.tensor([i])
        samples.append(A.index_copy(1, column, B[:, column]))
    features = space.features(torch.cat(samples))
    mean = surrogate.posterior.predict(features)[0]
    first, total = _indices(surrogate.transform.inverse(mean).cpu().reshape(1, P + 2, N))
    draws = _draws(
        surrogate, features.unflatten(0, (P + 2, N)), mean.unflatten(0, (P + 2, N)), n_draws
    )
    if draws is not None:
        first_of_draws, total_of_draws = _indices(draws)
        first = torch.cat([first, first_of_draws])
        total = torch.cat([total, total_of_draws])
    entries = []
    for i, (name, parameter) in enumerate(space.parameters.items()):
        if parameter.columns:  # or it is fixed
            entries.append(Importance(name, _interval(first[:, i]), _interval(total[:, i])))
    return sorted(entries, key=lambda entry: -entry.total[1])


def _draws(surrogate: Surrogate, features: Tensor, mean: Tensor, n_draws: int) -> Tensor | None:
    """Return draws [s P+2 n] of the objective at a part of the points, which each draw takes with replacement.

    Args:
        surrogate: The model.
        features: Features [P+2 N D] of the points.
        mean: The posterior mean [P+2 N] there.
        n_draws: The number s of draws.

    Returns:
        The draws; None where there are none, since the kernel has no random features.
    """
    if not n_draws:
        return None
    generator = torch.Generator().manual_seed(0)
    n = mean.shape[1] // _DRAWN_PART
    features = features[:, :n]
    posterior = surrogate.posterior.at()
    try:
        functions = [posterior.draw_function(features, generator) for _ in range(n_draws)]
    except InvalidInput:  # of kernels without random features
        return None
    draws = torch.stack([mean[:, :n] + function(features) for function in functions])
    values = surrogate.transform.inverse(draws).cpu()
    rows = torch.randint(n, (n_draws, n), generator=generator)
    return values.gather(2, rows.unsqueeze(1).expand_as(values))


def _indices(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return first-order and total indices [s P] of functions with values [s P+2 N] at A, B and their mixtures."""
    values = values - values[:, :2].mean((1, 2), keepdim=True)
    at_A = values[:, :1]
    at_B = values[:, 1:2]
    at_mixed = values[:, 2:]
    variance = values[:, :2].square().mean((1, 2))
    variance = variance.clamp(min=torch.finfo(values.dtype).tiny).unsqueeze(-1)
    first = (at_B * (at_mixed - at_A)).mean(-1) / variance
    total = (at_A - at_mixed).square().mean(-1) / (2 * variance)
    return first.clamp(0, 1), total.clamp(0, 1)


def _interval(index: Tensor) -> Interval:
    """Return an index of the mean, the first of [1 + s], in an interval of the draws that contains it."""
    value = float(index[0])
    tail = (1 - LEVEL) / 2
    lower = float(index.quantile(tail))
    upper = float(index.quantile(1 - tail))
    return min(lower, value), value, max(upper, value)
