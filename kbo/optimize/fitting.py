"""Kernel and noise from data: the maximum of marginal likelihood and prior, with its gradient in closed form.

    y = c + f(X) + noise,   f ~ GP(0, Matern 5/2 with a lengthscale per column),   noise ~ N(0, s^2)

    log lengthscale_d = m + e_d,   m ~ N(sqrt(2) + log(D) / 2, 3),   e_d ~ N(0, 0.2)
    log s^2 ~ N(-4, 1);  for targets without noise, where s^2 is the variance of what f leaves unexplained, N(-8, 16)

m has the prior of Hvarfner, Hellsten & Nardi (2024), which BoTorch gives every lengthscale on its own, and s^2 that of
BoTorch. That the lengthscales are alike unless the data say otherwise keeps fits to a dozen points in many dimensions
from explaining noise by one short lengthscale; of all variants tried on the practice problems, it mattered most.

With A = K + s^2 I, alpha = A^-1 (y - c) and M = alpha alpha' - A^-1, the derivative of the log marginal likelihood by a
parameter is trace(M dA) / 2, and the best constant is c = 1' A^-1 y / 1' A^-1 1.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

import torch
from gpytorch.kernels import Kernel, MaternKernel
from scipy.optimize import minimize
from torch import Tensor

log: logging.Logger = logging.getLogger("kbo")

MOST = 500
"""Observations that are fitted; of more, the first half of so many and random ones of the others.

Later observations are close to the best ones: from these alone the lengthscales are found too long."""

NOISE = -4.0, 1.0
"""Mean and variance of the logarithm of the noise variance."""

NOISELESS = -8.0, 16.0
"""The same where values have no noise: the variance is then that of what the kernel does not explain, from nothing for
a smooth objective to as much as in noise for a rugged one."""

LEAST_NOISE = 0.01
"""The least noise level that may be given, in standard deviations of the targets."""

COMMON, OWN = 3.0, 0.2
"""Variances of m and e_d: the common and the own part of the logarithms of the lengthscales."""

_RANGE = 7.0
"""Largest distance of a logarithm from the mean of its prior."""

_STARTS = ((0.0, 0.0), (-1.5, 2.0))
"""Starts of the search, relative to the prior means: smooth with little noise, and rough with much."""


def unit_kernel(columns: int) -> MaternKernel:
    """Return a Matern 5/2 kernel on the unit cube with a lengthscale per column, at the median of its prior."""
    kernel = MaternKernel(nu=2.5, ard_num_dims=columns).double().requires_grad_(False)
    kernel.initialize(lengthscale=math.exp(_lengthscale_mean(columns)))
    return kernel


def _lengthscale_mean(columns: int) -> float:
    return math.sqrt(2) + math.log(columns) / 2


class LogDensity:
    """The logarithm of the posterior density of the parameters, up to a constant, with its gradient.

    Args:
        X: Points [n D].
        y: Targets [n].
        noise: Mean and variance of the prior of the logarithm of the noise variance.
    """

    def __init__(self, X: Tensor, y: Tensor, noise: tuple[float, float] = NOISE) -> None:
        D = X.shape[-1]
        self.X = X - X.mean(0)
        self.y = y
        self.means: Tensor = y.new_tensor([_lengthscale_mean(D)] * D + [noise[0]])
        covariance = torch.diag(y.new_tensor([OWN] * D + [noise[1]]))
        covariance[:D, :D] += COMMON
        self.precision: Tensor = torch.linalg.inv(covariance)

    def __call__(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Return value [] and gradient [D + 1] at the logarithms theta [D + 1] of lengthscales and noise variance.

        Raises:
            torch.linalg.LinAlgError: The matrix is not positive definite at working precision.
        """
        n, X = len(self.y), self.X
        A, slope = self._covariance(theta)
        L = torch.linalg.cholesky(A)
        inverse = torch.cholesky_inverse(L)
        residual = self.y - self._constant(inverse)
        alpha = inverse @ residual
        log_likelihood = -(residual @ alpha + n * math.log(2 * math.pi)) / 2 - L.diagonal().log().sum()
        M = torch.outer(alpha, alpha) - inverse
        # d k(x, z) / d log lengthscale_d = slope (x_d - z_d)^2 / lengthscale_d^2, summed over all pairs unformed
        W = M * slope
        pairs = 2 * (W.sum(0) @ X.square() - (X * (W @ X)).sum(0))
        slopes = pairs * (-2 * theta[:-1]).exp() / 2
        away = theta - self.means
        pull = self.precision @ away
        gradient = torch.cat([slopes, (M.diagonal().sum() * theta[-1].exp() / 2).unsqueeze(0)]) - pull
        return log_likelihood - away @ pull / 2, gradient

    def constant(self, theta: Tensor) -> float:
        """Return the best constant at theta."""
        return float(self._constant(torch.linalg.inv(self._covariance(theta)[0])))

    def _covariance(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``K + s^2 I`` and ``5/3 (1 + sqrt(5) r) exp(-sqrt(5) r)``, [n n], r the scaled distance."""
        Z = self.X / theta[:-1].exp()
        scaled = math.sqrt(5) * torch.cdist(Z, Z, compute_mode="donot_use_mm_for_euclid_dist")
        decay = (-scaled).exp()
        A = (1 + scaled + scaled.square() / 3) * decay
        A.diagonal().add_(theta[-1].exp())
        return A, 5 / 3 * (1 + scaled) * decay

    def _constant(self, inverse: Tensor) -> Tensor:
        return (inverse @ self.y).sum() / inverse.sum()


@dataclass(frozen=True)
class Fit:
    """The parameters with the largest posterior density.

    Attributes:
        kernel: The kernel of f.
        noise_std: The standard deviation s of the noise.
        constant: The constant c.
        log_density: The logarithm of the density there, up to a constant that does not depend on the targets;
            minus infinity if it could not be computed.
    """

    kernel: Kernel
    noise_std: float
    constant: float
    log_density: float


def fit(X: Tensor, y: Tensor, noise_std: float | None = None, *, exact: bool = False) -> Fit:
    """Fit kernel, noise level and constant to standardised y [n] at X [n D]; a function of the data alone.

    Where the likelihood cannot be computed, the prior medians serve.

    Args:
        X: Points of the unit cube.
        y: Targets of mean 0 and standard deviation 1.
        noise_std: The noise level, if it is given and not to be fitted.
        exact: Whether the targets have no noise.
    """
    density = LogDensity(*_part(X, y), NOISELESS if exact else NOISE)

    def loss(theta) -> tuple[float, object]:
        value, gradient = density(torch.from_numpy(theta))
        return -float(value), -gradient.numpy()

    box = [(float(mean) - _RANGE, float(mean) + _RANGE) for mean in density.means]
    fallback = density.means.clone()
    if noise_std is not None:
        fallback[-1] = 2 * math.log(noise_std)
        box[-1] = float(fallback[-1]), float(fallback[-1])
    found = [(math.inf, fallback)]
    for lengthscales, noise in _STARTS:
        start = fallback.clone()
        start[:-1] += lengthscales
        start[-1] += noise if noise_std is None else 0.0
        try:
            best = minimize(loss, start.numpy(), jac=True, method="L-BFGS-B", bounds=box, options={"maxiter": 60})
            found.append((float(best.fun), torch.from_numpy(best.x)))
        except torch.linalg.LinAlgError as error:
            log.warning("kernel and noise could not be fitted from one start: %s", error)
    loss_there, theta = min(found, key=lambda pair: pair[0])
    kernel = unit_kernel(X.shape[-1])
    kernel.initialize(lengthscale=theta[:-1].exp())
    return Fit(kernel, float((theta[-1] / 2).exp()), density.constant(theta), -loss_there)


def _part(X: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return all data, or a part that is the same for the same number of them."""
    if len(y) <= MOST:
        return X, y
    first = MOST // 2
    others = torch.randperm(len(y) - first, generator=torch.Generator().manual_seed(len(y)))[: MOST - first]
    rows = torch.cat([torch.arange(first), first + others])
    return X[rows], y[rows]
