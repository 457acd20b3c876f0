"""Data and models that benchmarks share."""

from __future__ import annotations

import torch
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from botorch.posteriors.gpytorch import GPyTorchPosterior
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from torch import Tensor

from kbo.problems import stationary_kernel
from kbo.regression import FixedDictionary, NystromRidge


def mean_and_variance(model: Model, X: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance of every point, flat."""
    posterior = model.posterior(X)
    assert isinstance(posterior, GPyTorchPosterior)
    return posterior.mean.flatten(), posterior.variance.flatten()


def single_task_gp(X: Tensor, Y: Tensor, kernel: Kernel, likelihood: GaussianLikelihood) -> SingleTaskGP:
    """Return BoTorch's model with nothing fitted, targets and inputs as they are."""
    gp = SingleTaskGP(X, Y, likelihood=likelihood, covar_module=kernel, mean_module=ZeroMean(), outcome_transform=None)
    return gp.to(X).requires_grad_(False).eval()


def uniform(n: int, d: int, seed: int) -> Tensor:
    """Return uniform points [n d] of the unit cube."""
    return torch.rand(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def sketch(m: int, device: torch.device) -> NystromRidge:
    """Return a posterior of 2000 observations in three dimensions with about m anchors."""
    kernel, X = stationary_kernel("rbf", 0.2).to(device), uniform(2000, 3, seed=1).to(device)
    state = NystromRidge(kernel, 0.01, FixedDictionary.pivoted(kernel, X, m))
    state.update(X, torch.sin(5 * X).sum(-1))
    return state
