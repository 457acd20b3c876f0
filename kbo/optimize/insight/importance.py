"""Importance of parameters: Shapley effects of the model, with intervals from draws of its posterior.

Parameters are independent and uniform in the unit cube of the space, whether or not they satisfy its constraints; on a
logarithmic scale the logarithm is uniform. The Shapley effect of a parameter is its share of the variance of the
objective: the variance that it explains alone, and an equal part of the variance that it explains only together with
others (Owen 2014, "Sobol' indices and Shapley value"). The shares add up to 1. The estimator is Algorithm 1 of Goda
(2021), "A simple algorithm for global sensitivity analysis with Shapley effects", on a scrambled Sobol sequence:

    effect_i = E (f(x) - f(y)) (f(z) - f(z')) / 2

x and y are independent points. On a walk from x to y the parameters change from those of x to those of y, one after the
other in a random order; z and z' are the points before and after parameter i changes. E is the mean over walks. Half of
the orders are the reverses of the other half, but each walk has its own points x and y. The effects add up to E (f(x) -
f(y))^2 / 2, which is the variance.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kbo._base.quasirandom import sobol
from kbo.errors import InvalidInput
from kbo.optimize.insight.comparison import Estimate, varies
from kbo.optimize.insight.credible_sets import Effect
from kbo.optimize.surrogates.functions import DrawnFunctions
from kbo.optimize.surrogates.surrogate import Surrogate
from kbo.space import Space

N_DRAWS = 64
"""Number of draws from the posterior."""

_MOST_WALKS = 1024
_FEWEST_WALKS = 64
"""Largest and least number of walks from a point x to a point y."""

_N_POINTS = 4096
"""Largest number of points of all walks together, unless ``_FEWEST_WALKS`` walks need more."""

LEVEL = 0.9
"""Nominal probability of an interval."""

_TAIL = 0.01
"""Share of the draws beyond either end of an interval. By the model 5% would do. But on the development functions of
experiments/insight.py intervals between 5% and 95% of the draws held 79% of the true shares, and these hold 88%."""

VISIBLE_SHARE = 0.02
"""A parameter has a visible effect if the interval of its share is above this."""

_LEAST_EXPLAINED = 0.2
"""Share of the variance of the draws that their mean must have; with less, no parameter has a visible effect."""

NEGLIGIBLE_SHARE = 0.1
"""A parameter has a negligible effect if the interval of its share is below this."""


@torch.no_grad()
def importance(space: Space, surrogate: Surrogate) -> list[Effect]:
    """Return the effects of the parameters by a model, largest share first, without credible sets.

    The intervals contain two uncertainties: about the objective and its kernel, by draws, and of the sample of walks,
    by a bootstrap in which each draw takes the walks with replacement.

    Args:
        space: The search space.
        surrogate: The model.
    """
    varied = [i for i, parameter in enumerate(space.parameters.values()) if parameter.columns]
    order, points = walks(space.dimension, varied, n_walks(len(varied)))
    features = space.features(points.flatten(0, 1))
    values = _values(surrogate, features).cpu().unflatten(1, points.shape[:2])
    if not varies(surrogate):
        values = torch.zeros_like(values)
    is_present = _is_present(surrogate, values)
    s, n, _ = values.shape
    rows = torch.arange(n).expand(s, n)
    if s > 1:
        rows = torch.randint(n, (s, n), generator=torch.Generator().manual_seed(0))
    share = shapley_shares(values, order, rows)
    names = list(space.parameters)
    entries = []
    for column, i in enumerate(varied):
        estimate = _estimate(share[:, column])
        visible = is_present and estimate.lower > VISIBLE_SHARE
        negligible = not visible and estimate.upper < NEGLIGIBLE_SHARE
        entries.append(Effect(names[i], estimate, visible, negligible))
    return sorted(entries, key=lambda entry: -entry.share.value)


def n_walks(n_varied: int) -> int:
    """Return the number of walks for a number of varied parameters."""
    n = _MOST_WALKS
    while n > _FEWEST_WALKS and n * (n_varied + 1) > _N_POINTS:
        n = n // 2
    return n


def walks(P: int, varied: Sequence[int], n: int) -> tuple[Tensor, Tensor]:
    """Draw n walks between random points: orders [n V] of the varied parameters, and points [n V+1 P].

    A walk begins at a point x. Its parameters become those of y, one after the other in the order.

    Args:
        P: The number of parameters.
        varied: The positions [V] of those that vary.
        n: The number of walks; even, since half of the orders are the reverses of the others.
    """
    x, y = sobol(n, 2 * P, seed=0).split(P, 1)
    generator = torch.Generator().manual_seed(0)
    random = torch.rand(n // 2, len(varied), generator=generator, dtype=torch.float64)
    order = random.argsort(1)
    order = torch.cat([order, order.flip(1)])
    point = x.clone()
    points = [point]
    columns = torch.tensor(varied)[order]
    for step in range(len(varied)):
        column = columns[:, step : step + 1]
        point = point.scatter(1, column, y.gather(1, column))
        points.append(point)
    return order, torch.stack(points, 1)


def shapley_shares(values: Tensor, order: Tensor, rows: Tensor) -> Tensor:
    """Return the Shapley effects [s V] of s functions, as shares of their variance; 0 if a function does not vary.

    Args:
        values: The values [s n V+1] of s functions along n walks.
        order: The parameter [n V] that changes with each step of a walk.
        rows: The walks [s n] that count for each function.
    """
    values = values / values.abs().amax((1, 2), keepdim=True).clamp_min(
        torch.finfo(values.dtype).tiny
    )
    values = values - values.mean((1, 2), keepdim=True)
    from_x_to_y = values[:, :, :1] - values[:, :, -1:]  # f(x) - f(y)
    products = from_x_to_y * (values[:, :, :-1] - values[:, :, 1:])
    s, n, V = products.shape
    by_parameter = torch.zeros_like(products).scatter(2, order.expand(s, n, V), products)
    chosen = by_parameter.gather(1, rows.unsqueeze(2).expand(s, n, V))
    effect = chosen.mean(1).clamp_min(0)  # the sample makes small ones negative
    variance = effect.sum(1, keepdim=True)
    return torch.where(variance > 1e-24, effect / variance.clamp_min(1e-24), 0.0)


def _values(surrogate: Surrogate, features: Tensor) -> Tensor:
    """Return the values [s N] of draws at features [N D]; of the mean alone if the kernel has no random features.

    Where the surrogate has no draws, they come from its posterior, half as many.
    """
    generator = torch.Generator().manual_seed(0)
    posterior = surrogate.posterior
    transform = surrogate.transform
    try:
        functions = surrogate.functions(N_DRAWS, generator)
        if functions is None:
            n = N_DRAWS // 2
            functions = DrawnFunctions(transform, posterior, 0.0, n, features[:1], generator)
        return functions(features)
    except InvalidInput:
        return transform.inverse(posterior.predict(features)[0]).unsqueeze(0)


def _is_present(surrogate: Surrogate, values: Tensor) -> bool:
    """Return whether the objective varies visibly, by values [s n m] of draws."""
    if not surrogate.has_effects:
        return False
    if surrogate.noiseless:
        return varies(surrogate)
    return _explained(values) >= _LEAST_EXPLAINED


def _explained(values: Tensor) -> float:
    """Return the share of the variance of draws [s n m] that their mean explains, corrected for chance.

    The mean of s draws has on average the variance ``(v_mean (s - 1) + v_draws) / s``, where ``v_mean`` is the variance
    of the posterior mean. The share estimates ``v_mean / v_draws``; it may be negative.
    """
    s = len(values)
    values = values.flatten(1)
    values = values / values.abs().amax().clamp_min(torch.finfo(values.dtype).tiny)
    variance = float(values.var(1).mean())
    if s == 1 or not variance > 1e-24:
        return float(variance > 1e-24)
    of_mean = float(values.mean(0).var())
    return (s * of_mean - variance) / (s - 1) / variance


def _estimate(share: Tensor) -> Estimate:
    """Return the mean of shares [s] and their interval, widened to contain the mean."""
    value = float(share.mean())
    lower = float(share.quantile(_TAIL))
    upper = float(share.quantile(1 - _TAIL))
    return Estimate(min(lower, value), value, max(upper, value))
