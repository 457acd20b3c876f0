"""The variance of a sketched posterior: the deterministic training conditional (DTC).

With features z = z(x) of the dictionary, B = [z(x_1) .. z(x_n)] and M = B B' + ridge I::

    variance(x) = k(x, x) - (B'z)'(B'B + ridge I)^-1 B'z                                        (1)
                = k(x, x) - |z|^2 + ridge z'M^-1 z                                              (2)

(Quinonero-Candela & Rasmussen 2005, Sec. 5; eq. 2 of BKB, Calandriello et al. 2019; Prop. 4.2 of
EK-UCB, Zenati et al. 2022). (1) is the variance of an exact posterior with the kernel matrix B'B
and the kernel column B'z, but with the true prior variance k(x, x). (2) follows from ``B (B'B +
ridge I)^-1 B' = I - ridge M^-1``. It is not an upper bound of the exact variance.

``dtc_variance`` is (2), for one ridge. ``across()`` computes (1), for every ridge, in the
eigenbasis of B'B, by the formula of the exact posterior (``SpectralRidges``). ``NystromAt.predict``
does the same for very many points. ``numerics.clamped`` then raises variances that rounding made
too small.
"""

from __future__ import annotations

import math
from typing import TypeVar

import torch
from torch import Tensor

Number = TypeVar("Number", float, Tensor)


def dtc_variance(residual: Number, form: Number, ridge: float) -> Number:
    """Return the variance of points, [...], in units of the kernel.

    Args:
        residual: ``k(x, x) - |z(x)|^2``, [...]: the variance that the dictionary does not explain.
        form: ``z(x)'M^-1 z(x)``, [...].
        ridge: The ridge.
    """
    return residual + ridge * form


def dtc_factors(z: Tensor, whitened: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """Return U and V, [2m N]: the covariance of two points is ``k(x, x') - U(x)'V(x')``.

    Args:
        z: Features [m N].
        whitened: ``S'z``, [m N], with ``S S' = M^-1``.
        ridge: The ridge.
    """
    scaled = math.sqrt(ridge) * whitened
    return torch.cat([z, -scaled]), torch.cat([z, scaled])


def residual_noise(X: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
    """Return standard normal numbers e [count N] for the residual part of draws at X [N d].

    A draw is ``z(x)'w + sqrt(residual) e`` with w from ``N(0, ridge M^-1)``: its variance is (2).
    """
    normal = torch.randn(count, len(X), generator=generator, dtype=torch.float64, device="cpu")
    return normal.to(X.device)
