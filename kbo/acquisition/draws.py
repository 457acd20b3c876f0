"""Inflated draws of a function: joint draws over a set of points, as wide as a confidence sequence.

Kernel TS of Durand, Maillard & Pineau (2018, Sec. 6.4) draws from ``N(mean, width^2 covariance)``
with the width of its confidence sequence. For any confidence with the interval c(x) +- r(x), a
joint draw g of the posterior less its mean, and its standard deviation s,

    draw(x) = c(x) + r(x) g(x) / s(x),                                          ``Confidence.inflated``

which is the same for bounds ``mean +- width s``. Plain Thompson sampling is ``FixedWidth(1.0)`` if
the ridge is the noise variance. At ridge ``noise_std^2 / c`` it is ``FixedWidth(sqrt(c))``, because
the prior variance is then c times the kernel.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kbo._base import checks
from kbo.confidence import Confidence
from kbo.regression import Posterior


def inflated_draws(
    confidence: Confidence,
    state: Posterior,
    X: Tensor,
    count: int,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Return independent draws [count N] of the function over the points X, as wide as the bounds.

    Args:
        confidence: The bounds.
        state: The posterior.
        X: Points [N d].
        count: Number of draws.
        generator: Source of randomness, as for ``PosteriorAt.draw``.
    """
    checks.instance("confidence", confidence, Confidence)
    checks.instance("state", state, Posterior)
    g = state.at(confidence.ridge(state)).draw(X, count, generator)
    return confidence.inflated(state, X, g)
