"""The best of many arms, and draws of functions over many points, through anchors."""

from __future__ import annotations

import torch
from torch import Tensor

from kbo.experiments.bench.straight import gaussian


def best(anchors: Tensor, G: Tensor, By: Tensor, X: Tensor, ridge: float, width: float) -> int:
    """Return the arm among X [N d] with the largest bound, through anchors [m d] with ``G = B B'`` and ``B y``."""
    identity = torch.eye(len(G)).to(G)
    W = torch.linalg.solve_triangular(torch.linalg.cholesky(gaussian(anchors, anchors)), identity, upper=False)
    values, vectors = torch.linalg.eigh(G)
    V = (values.clamp_min(0) / (values + ridge)).clamp_min(0).sqrt().unsqueeze(-1) * vectors.mT @ W
    alpha = vectors @ ((vectors.mT @ By) / (values + ridge)) @ W
    scores = X.new_empty(len(X))
    rows = 2**19 // len(G)
    for start in range(0, len(X), rows):
        columns = gaussian(anchors, X[start : start + rows])
        std = (1 - (V @ columns).square_().sum(0)).clamp_min_(0).sqrt_()
        scores[start : start + rows] = (alpha @ columns).add_(std, alpha=width)
    return int(scores.argmax())


def draw(anchors: Tensor, G: Tensor, By: Tensor, X: Tensor, ridge: float, normal: Tensor, noise: Tensor) -> Tensor:
    """Return a joint draw [N] over X [N d]: of the features by normal numbers [m], of the rest by noise [N]."""
    identity = torch.eye(len(G)).to(G)
    W = torch.linalg.solve_triangular(torch.linalg.cholesky(gaussian(anchors, anchors)), identity, upper=False)
    L = torch.linalg.cholesky(G + ridge * identity)
    S = torch.linalg.solve_triangular(L, identity, upper=False).mT
    weights = S @ (S.mT @ By + ridge**0.5 * normal)
    out, rows = X.new_empty(len(X)), 2**19 // len(G)
    for start in range(0, len(X), rows):
        z = W @ gaussian(anchors, X[start : start + rows])
        std = (1 - z.square().sum(0)).clamp_min_(0).sqrt_()
        out[start : start + rows] = (weights @ z).addcmul_(std, noise[start : start + rows])
    return out
