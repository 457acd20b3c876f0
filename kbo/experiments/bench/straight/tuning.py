"""A step of ``minimize``: a fit of kernel and noise, and a search for the largest upper bound."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from kbo.experiments.bench.straight import matern


def fit(X: Tensor, y: Tensor) -> tuple[Tensor, float]:
    """Return the logarithms [D + 1] of lengthscales and noise variance of the largest log-density, and that density.

    Model, priors, starts, optimiser and, of more than 500 observations, the part are those of ``kbo.optimize.fitting``.
    """
    if len(y) > 500:
        others = torch.randperm(len(y) - 250, generator=torch.Generator().manual_seed(len(y)))[:250]
        rows = torch.cat([torch.arange(250), 250 + others])
        X, y = X[rows], y[rows]
    (n, D), X = X.shape, X - X.mean(0)
    middle = math.sqrt(2) + math.log(D) / 2
    means, variances = np.array([middle] * D + [-4.0]), np.diag([0.2] * D + [1.0])
    variances[:D, :D] += 3.0
    precision, both = np.linalg.inv(variances), torch.stack([y, torch.ones_like(y)], 1)

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        noise, scales = math.exp(theta[-1]), torch.from_numpy(np.exp(-theta[:-1]))
        Z = X * scales
        r = torch.cdist(Z, Z, compute_mode="donot_use_mm_for_euclid_dist").mul_(math.sqrt(5))
        decay = r.neg().exp_()
        slope = (1 + r).mul_(decay)
        A = torch.addcmul(slope, r.square_(), decay, value=1 / 3)
        A.diagonal().add_(noise)
        L = torch.linalg.cholesky(A)
        solved = torch.cholesky_solve(both, L)
        of_y, of_ones = solved.sum(0).tolist()
        constant = of_y / of_ones
        alpha = solved[:, 0] - constant * solved[:, 1]
        fitted = float((y - constant) @ alpha) / 2 + float(L.diagonal().log().sum()) + n * math.log(2 * math.pi) / 2
        M = torch.cholesky_inverse(L).addr_(alpha, alpha, alpha=-1)
        by_noise = float(M.trace()) * noise / 2
        M.mul_(slope).mul_(5 / 3)
        by_scales = (Z.square().mul_(M.sum(1, keepdim=True)) - Z * (M @ Z)).sum(0).neg_()
        away = theta - means
        pull = precision @ away
        return fitted + float(away @ pull) / 2, np.append(-by_scales.numpy(), by_noise) + pull

    found, box = [], [(mean - 7.0, mean + 7.0) for mean in means.tolist()]
    for lengthscales, noise in ((0.0, 0.0), (-1.5, 2.0)):
        start = means + np.array([lengthscales] * D + [noise])
        best = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=box, options={"maxiter": 60})
        found.append((best.fun, best.x))
    least, theta = min(found, key=lambda pair: pair[0])
    return torch.from_numpy(theta), -least


def search(
    Z: Tensor, L: Tensor, alpha: Tensor, scales: Tensor, starts: Tensor, width: float, generator: torch.Generator
) -> Tensor:
    """Return the point [d] with nearly the largest ``mean + width std`` of the unit cube.

    Z [n d] are observed points, ``L L' = K + ridge I`` and ``A alpha = y``; scales [d] divide the lengthscales out.
    Candidates are those of ``kbo.optimize.proposal``: random ones, then children of the best at shrinking steps.
    """
    d, Z, options = Z.shape[1], Z * scales, {"generator": generator, "dtype": torch.float64}

    def score(points: Tensor) -> Tensor:
        K = matern(Z, points.to(Z) * scales)
        std = (1 - torch.linalg.solve_triangular(L, K, upper=False).square_().sum(0)).clamp_min_(0).sqrt_()
        return (alpha @ K).add_(std, alpha=width).cpu()

    points = torch.cat([torch.rand(1024, d, **options), starts])
    values = score(points)
    for step in (0.2, 0.1, 0.03, 0.01, 0.003, 0.001):
        best = values.topk(min(8, len(values))).indices
        points, values = points[best], values[best]
        parents = points.repeat_interleave(32, 0)
        moves = torch.rand(parents.shape, **options) < 2 / d
        moves[torch.arange(len(parents)), torch.randint(d, (len(parents),), generator=generator)] = True
        noise = torch.randn(parents.shape, **options)
        children = torch.where(moves, (parents + step * noise).clamp_(0, 1), parents)
        jumps = moves & (torch.rand(parents.shape, **options) < 0.1)
        children = torch.where(jumps, torch.rand(parents.shape, **options), children)
        points, values = torch.cat([points, children]), torch.cat([values, score(children)])
    return points[values.argmax()]
