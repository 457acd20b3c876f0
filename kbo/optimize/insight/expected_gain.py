"""Expected gain: the expected improvement on the recommended parameters by a batch of further trials.

    gain = E[ f(x') - f(x) ], x the recommended point now, x' the one after the batch

f is a draw of the objective. The further trials are at the optima of other draws (Thompson sampling of a batch,
Kandasamy et al. 2018), and their values are those of f with noise. x' is the best point after them by the rule of the
recommendation. So the gain is the knowledge gradient of a batch (Wu & Frazier 2016).

Without noise x' has the largest value of all points, x among them, so no draw of the gain is negative. With noise x'
has the largest posterior mean less standard deviation. If x' is known better than x, its mean may be lower, so the
expectation can be negative. The reported gain is at least 0, because a user may keep x in any case.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kbo.optimize.insight.comparison import N_DRAWS, Estimate, varies
from kbo.optimize.surrogates.surrogate import Surrogate

N_MORE = 20
"""Number of further trials whose expected gain is reported."""

STOP = "stop"
GO_ON = "go on"
UNDECIDED = "undecided"
"""The decisions about further trials."""

_PROBABILITY = 0.9
"""Least probability of a gain above the tolerance for the decision "go on"."""

_ROUNDING = 1e-9
"""Share of the usual size of values below which a gain is a rounding error."""


def gains(
    surrogate: Surrogate, evaluated: Tensor, proposed: Tensor, generator: torch.Generator
) -> Tensor:
    """Return draws [s] of the gain of further trials, in units of the objective; zeros if all values so far are equal.

    Args:
        surrogate: The surrogate of the objective, which has a prior.
        evaluated: Features [n D] of trials, the recommended one first.
        proposed: Features [k D] of the further trials.
        generator: Source of randomness.
    """
    if not varies(surrogate):
        return torch.zeros(N_DRAWS, dtype=torch.float64)
    points = torch.cat([evaluated, proposed])
    if surrogate.noiseless:  # then the best observed value is recommended
        values = surrogate.draws(points, N_DRAWS, generator)
        assert values is not None
        criterion = values
    else:
        functions = surrogate.functions(N_DRAWS, generator)
        assert functions is not None
        values = functions(points)
        mean, variance = functions.updated(proposed, points, generator)
        criterion = mean - variance.sqrt()
    recommended = criterion.argmax(1, keepdim=True)
    return (values.gather(1, recommended).squeeze(1) - values[:, 0]).cpu()


def expected_gain(gains: Tensor, noiseless: bool | None, size: float) -> Estimate:
    """Return the expected gain, at least 0, and its 90% interval, by draws [s].

    Without noise the interval begins at 0, since all further trials may be worse: unlike the draws, they depend on each
    other. Numbers of the size of rounding errors become 0.

    Args:
        gains: The draws [s].
        noiseless: Whether the objective has no noise.
        size: The usual absolute value of the objective.
    """
    value = max(float(gains.mean()), 0.0)  # a user may keep the recommended parameters
    lower = 0.0
    if not noiseless:
        lower = min(float(gains.quantile(0.05)), value)
    upper = max(float(gains.quantile(0.95)), value)
    numbers = (lower, value, upper)
    return Estimate(*(0.0 if abs(number) <= _ROUNDING * size else number for number in numbers))


def decision(gains: Tensor, tolerance: float, is_open: bool = False) -> str:
    """Return whether further trials are worth it: "stop", "go on" or "undecided"; see ``Answers.decision``.

    Args:
        gains: Draws [s] of their gain.
        tolerance: The loss that does not matter.
        is_open: Whether it is open which option of a choice is the best.
    """
    if float(gains.mean()) <= tolerance and is_open:
        return UNDECIDED
    if float(gains.mean()) <= tolerance:
        return STOP
    if float((gains > tolerance).double().mean()) >= _PROBABILITY:
        return GO_ON
    return UNDECIDED
