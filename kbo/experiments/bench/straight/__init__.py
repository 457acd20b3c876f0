"""Hot paths as straight-line functions: the arithmetic alone, without classes, checks or choices.

They are what the same arithmetic costs in PyTorch on this machine, so the time of kbo is divided by theirs. Kernels
have variance 1. An update and a prediction each make their own solve, because a posterior does not know
which point a rule will choose.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def gaussian(X: Tensor, Z: Tensor) -> Tensor:
    """Return the kernel matrix [... n m] of points [... n d] and [... m d] in units of the lengthscale."""
    return torch.cdist(X, Z, compute_mode="donot_use_mm_for_euclid_dist").square_().mul_(-0.5).exp_()


def matern(X: Tensor, Z: Tensor) -> Tensor:
    """Return the same for the Matern 5/2 kernel."""
    r = torch.cdist(X, Z, compute_mode="donot_use_mm_for_euclid_dist").mul_(math.sqrt(5))
    return torch.addcmul(1 + r, r, r, value=1 / 3).mul_(r.neg_().exp_())
