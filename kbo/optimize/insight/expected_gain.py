"""Expected gain: the improvement on the recommended parameters that a batch of further trials brings.

    gain = E[ f(x') - f(x) ],   x the recommended point, x' the recommended one after the batch

f is a draw of the objective. The further trials are the optima of other draws (Thompson sampling, Kandasamy et al. 2018,
for a batch), their values are those of f with noise, and x' has the largest mean after them: the knowledge gradient of a
batch (Wu & Frazier 2016). Since x is one of the points of which x' is the best one, it is never negative.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kbo.optimize.insight.comparison import N_DRAWS, Estimate
from kbo.optimize.surrogates.surrogate import Surrogate

N_MORE = 20
"""Number of further trials whose expected gain is reported."""


STOP = "stop"
GO_ON = "go on"
UNDECIDED = "undecided"


def expected_gain(
    surrogate: Surrogate, evaluated: Tensor, proposed: Tensor, generator: torch.Generator
) -> Estimate | None:
    """Return the expected gain of further trials, and the 90% interval of the gain; None without a prior.

    Args:
        surrogate: The surrogate of the objective.
        evaluated: Features [n D] of trials, the recommended one first.
        proposed: Features [k D] of the further trials.
        generator: Source of randomness.
    """
    points = torch.cat([evaluated, proposed])
    if surrogate.noiseless:  # then the best observed value is recommended
        values = surrogate.draws(points, N_DRAWS, generator)
        if values is None:
            return None
        criterion = values
    else:
        functions = surrogate.functions(N_DRAWS, generator)
        if functions is None:
            return None
        values = functions(points)
        mean, variance = functions.updated(proposed, points, generator)
        criterion = mean - variance.sqrt()
    chosen = criterion.argmax(1, keepdim=True)
    scale = float(values.abs().max()) or 1.0  # differences of very large values would overflow
    values = values / scale
    gain = values.gather(1, chosen).squeeze(1) - values[:, 0]
    value = max(float(gain.mean()), 0.0)  # below 0 by the random numbers alone
    lower = min(float(gain.quantile(0.05)), value)
    upper = max(float(gain.quantile(0.95)), value)
    return Estimate(scale * value, scale * lower, scale * upper)


def decision(gain: Estimate, tolerance: float) -> str:
    """Return whether further trials are worth it: "stop", "go on" or "undecided".

    "stop" if the gain is below the tolerance with a probability of 95%, "go on" if the expected gain is above it.
    """
    if gain.upper <= tolerance:
        return STOP
    if gain.value > tolerance:
        return GO_ON
    return UNDECIDED
