"""Chaining: covers of a finite set under the distance of the posterior, and the bounds that follow from their sizes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kbo.experiments.bench.straight import gaussian


def rounds(n: int, arms: Tensor, X: Tensor, y: Tensor, ridge: float, delta: float) -> list[float]:
    """Return the largest bound of arms [N d] after n of the rows X [n + T d], and after every further one.

    W, mean and variance of the arms follow a growing Cholesky factor. Covers stay until the data have doubled.
    """
    W, L, z = X.new_zeros(len(X), len(arms)), X.new_zeros(len(X), len(X)).mT, torch.empty_like(y)
    L[:n, :n] = torch.linalg.cholesky(gaussian(X[:n], X[:n]) + ridge * torch.eye(n).to(X))
    W[:n] = torch.linalg.solve_triangular(L[:n, :n], gaussian(X[:n], arms), upper=False)
    z[:n] = torch.linalg.solve_triangular(L[:n, :n], y[:n].unsqueeze(-1), upper=False)[:, 0]
    mean, variance, most = z[:n] @ W[:n], 1 - W[:n].square().sum(0), []
    known, sizes, chosen = n, [], torch.zeros(0, dtype=torch.long, device=X.device)
    for t in range(n, len(X)):
        std = variance.sqrt()
        depth = max(1, math.floor(1 - math.log2(float(std.min()))))
        if t > 2 * known:
            known, sizes, chosen = t, [], chosen[:0]
        if depth > len(sizes):
            added, chosen = covers(arms, W[:t], variance, chosen, [2.0**-i for i in range(len(sizes), depth)])
            sizes += added
        scaled = [(size + 1) * (t + 1) ** 2 * math.pi**4 / (36 * delta) for size in sizes[:depth]]
        heights = [2.0**-i * math.sqrt(2 * math.log((i + 1) ** 2 * a)) for i, a in enumerate(scaled)]
        sums = X.new_tensor([0.0, *heights[::-1]]).cumsum(0)
        below = torch.searchsorted(X.new_tensor([2.0**-i * (1 + 1e-15) for i in range(depth)][::-1]), std)
        most.append(float((mean + sums[below]).max()))
        v = torch.linalg.solve_triangular(L[:t, :t], gaussian(X[:t], X[t : t + 1]), upper=False)[:, 0]
        L[t, :t], L[t, t] = v, (1 + ridge - float(v @ v)) ** 0.5
        z[t] = (y[t] - v @ z[:t]) / L[t, t]
        W[t] = (gaussian(X[t : t + 1], arms)[0] - v @ W[:t]) / L[t, t]
        mean.add_(W[t] * z[t])
        variance.sub_(W[t].square())
    return most


def covers(arms: Tensor, W: Tensor, variance: Tensor, chosen: Tensor, radii: list[float]) -> tuple[list[int], Tensor]:
    """Return the sizes of greedy covers of arms [N d] at radii that decrease, each beginning with the one before."""
    N, size, W = len(arms), 362, W.mT.contiguous()
    ranks, sizes = torch.empty(N, N, dtype=torch.uint8, device=arms.device), []
    for i in range(0, N, size):
        for j in range(i, N, size):
            a, b = slice(i, i + size), slice(j, j + size)
            covariance = torch.addmm(gaussian(arms[a], arms[b]), W[a], W[b].mT, alpha=-1)
            squared = covariance.mul_(-2).add_(variance[a].unsqueeze(-1)).add_(variance[b])
            rank = torch.zeros_like(squared, dtype=torch.uint8)
            for radius in radii:
                rank += squared <= radius * radius
            ranks[a, b], ranks[b, a] = rank, rank.mT
    ranks.fill_diagonal_(len(radii))
    for level in range(len(radii)):
        near, alive = (ranks > level).view(torch.uint8), torch.ones(N, dtype=torch.uint8, device=arms.device)
        if len(chosen):
            alive = (ranks[chosen].amax(0) <= level).view(torch.uint8)
        degrees, new = _sum(near, alive.nonzero()[:, 0]) * alive, []
        while True:
            best = degrees.argmax(0, keepdim=True)
            fresh = (near[best[0]] & alive).nonzero()[:, 0]
            if len(fresh) < 2:
                break
            new.append(best)
            alive[fresh] = 0
            degrees -= _sum(near, fresh)
            degrees[fresh] = 0
        chosen = torch.cat([chosen, *new, alive.nonzero()[:, 0]])
        sizes.append(len(chosen))
    return sizes, chosen


def _sum(near: Tensor, rows: Tensor) -> Tensor:
    """Return the sum [N] of some of the rows of zeros and ones, in bytes as long as these can count."""
    total = torch.zeros(len(near), dtype=torch.int32, device=near.device)
    for some in rows.split(255):
        total += near.index_select(0, some).sum(0, dtype=torch.uint8)
    return total
