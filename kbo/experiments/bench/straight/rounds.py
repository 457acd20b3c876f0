"""Rounds of bandits: the largest bound among the arms of a round, then one row more."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from kbo.experiments.bench.straight import gaussian


def exact(arms: Tensor, X: Tensor, y: Tensor, ridge: float, width: float) -> list[float]:
    """Return the largest ``mean + width std`` of arms [T A d], row X[t], y[t] following: a Cholesky factor L grows."""
    T, most = len(X), []
    z, L = torch.empty_like(y), X.new_zeros(T, T).mT
    for t in range(T):
        V = torch.linalg.solve_triangular(L[:t, :t], gaussian(X[:t], arms[t]), upper=False)
        std = (1 - V.square().sum(0)).clamp_min_(0).sqrt_()
        most.append(float((z[:t] @ V).add_(std, alpha=width).max()))
        v = torch.linalg.solve_triangular(L[:t, :t], gaussian(X[:t], X[t : t + 1]), upper=False)[:, 0]
        L[t, :t], L[t, t] = v, (1 + ridge - float(v @ v)) ** 0.5
        z[t] = (y[t] - v @ z[:t]) / L[t, t]
    return most


def sketched(anchors: Tensor, arms: Tensor, X: Tensor, y: Tensor, ridge: float, width: float) -> list[float]:
    """Return the same through anchors [m d] that stay: ``S S' = (B B' + ridge I)^-1`` follows every reward."""
    m, identity = len(anchors), torch.eye(len(anchors)).to(anchors)
    W = torch.linalg.solve_triangular(torch.linalg.cholesky(gaussian(anchors, anchors)), identity, upper=False)
    S, By, G, B, most = identity / ridge**0.5, X.new_zeros(m), X.new_zeros(m, m), X.new_empty(len(X), m), []
    for t in range(len(X)):
        most.append(_largest(W @ gaussian(anchors, arms[t]), S, By, ridge, width))
        b = (W @ gaussian(anchors, X[t : t + 1]))[:, 0]
        v = b @ S
        a = 1 + float(v @ v)
        S.addr_(S @ v, v, alpha=-1 / (a + a**0.5))
        G.addr_(b, b)
        By.add_(b, alpha=float(y[t]))
        B[t] = b
    return most


def batched(
    arms: Tensor,
    X: Tensor,
    y: Tensor,
    ridge: float,
    width: float,
    oversampling: float,
    growth: float,
    uniforms: Callable[[int], Tensor],
) -> list[float]:
    """Return the same of BBKB: rows enter by leverage, once the leverages since then exceed ``growth - 1``.

    ``uniforms(n)`` gives the random numbers [n] of a draw of the anchors.
    """
    W, S, By, B, spent, most = X[:0, :0], X[:0, :0], X[0, :0], X[:, :0], 0.0, []
    anchors, old = X[:0], S
    for t in range(len(X)):
        most.append(_largest(W @ gaussian(anchors, arms[t]), S, By, ridge, width))
        b = (W @ gaussian(anchors, X[t : t + 1]))[:, 0]
        v, before = b @ S, b @ old
        square, missing, leverage = torch.stack([v @ v, 1 - b @ b, before @ before]).tolist()
        a = 1 + square
        S.addr_(S @ v, v, alpha=-1 / (a + a**0.5))
        By.add_(b, alpha=float(y[t]))
        B[t, :] = b
        spent += max(missing, 0.0) / ridge + leverage
        if t and 1 + spent <= growth:
            continue
        rows = B[: t + 1]
        leverages = (1 - rows.square().sum(1)).clamp_min_(0).div_(ridge).add_((rows @ S).square_().sum(1))
        drawn = (uniforms(t + 1) < (oversampling * leverages).cpu()).nonzero()[:, 0].tolist() or [t]
        anchors, B = X[drawn], X.new_empty(len(X), len(drawn))
        identity = torch.eye(len(drawn)).to(X)
        W = torch.linalg.solve_triangular(torch.linalg.cholesky(gaussian(anchors, anchors)), identity, upper=False)
        rows = torch.mm(gaussian(X[: t + 1], anchors), W.mT, out=B[: t + 1])
        By = rows.mT @ y[: t + 1]
        L = torch.linalg.cholesky(rows.mT @ rows + ridge * identity)
        S, spent = torch.linalg.solve_triangular(L, identity, upper=False).contiguous().mT, 0.0
        old = S.clone()
    return most


def _largest(z: Tensor, S: Tensor, By: Tensor, ridge: float, width: float) -> float:
    """Return the largest ``mean + width std`` of arms with features z [m A]."""
    form = (S.mT @ z).square_().sum(0)
    std = (1 - z.square().sum(0)).clamp_min_(0).add_(form, alpha=ridge).sqrt_()
    return float(((S @ (By @ S)) @ z).add_(std, alpha=width).max())


def mixture(
    n: int, arms: Tensor, X: Tensor, y: Tensor, ridges: list[float], noise_std: float, norm: float, delta: float
) -> list[float]:
    """Return the largest DMM bound of arms [T A d] after n of the rows X [n + T d]: a growing factor for each ridge.

    The first ridge is that of the mixture: ``R^2 = quad + noise_std^2 (log_det + 2 ln(1 / delta))`` there.
    """
    K, identity, factors, most = gaussian(X[:n], X[:n]), torch.eye(n).to(X), [], []
    for ridge in ridges:
        L, z = X.new_zeros(len(X), len(X)).mT, torch.empty_like(y)
        L[:n, :n] = torch.linalg.cholesky(K + ridge * identity)
        z[:n] = torch.linalg.solve_triangular(L[:n, :n], y[:n].unsqueeze(-1), upper=False)[:, 0]
        factors.append((ridge, L, z))
    for t, points in enumerate(arms, start=n):
        columns = gaussian(X[:t], points)
        (ridge, L, z), upper = factors[0], []
        log_det = 2 * float(L.diagonal()[:t].log().sum()) - t * math.log(ridge)
        square = ridge * float(z[:t] @ z[:t]) + noise_std**2 * (log_det - 2 * math.log(delta))
        for ridge, L, z in factors:
            V = torch.linalg.solve_triangular(L[:t, :t], columns, upper=False)
            slack = square / ridge + norm**2 - float(z[:t] @ z[:t])
            upper.append((z[:t] @ V).add_((1 - V.square().sum(0)).clamp_min_(0).sqrt_(), alpha=slack**0.5))
        most.append(float(torch.stack(upper).amin(0).max()))
        column = gaussian(X[:t], X[t : t + 1])
        for ridge, L, z in factors:
            v = torch.linalg.solve_triangular(L[:t, :t], column, upper=False)[:, 0]
            L[t, :t], L[t, t] = v, (1 + ridge - float(v @ v)) ** 0.5
            z[t] = (y[t] - v @ z[:t]) / L[t, t]
    return most
