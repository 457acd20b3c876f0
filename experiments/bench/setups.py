"""Data and models that several benchmarks use."""

from __future__ import annotations

import torch
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from botorch.posteriors.gpytorch import GPyTorchPosterior
from gpytorch.kernels import Kernel, MaternKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from torch import Tensor

from experiments.problems import stationary_kernel
from kbo.models import KernelRidgeGP
from kbo.regression import FixedDictionary, NystromRidge

RIDGE = 0.01
"""Ridge and noise variance of the comparisons with BoTorch."""


def mean_and_variance(model: Model, X: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean [n] and variance [n] of every point."""
    posterior = model.posterior(X)
    assert isinstance(posterior, GPyTorchPosterior)
    return posterior.mean.flatten(), posterior.variance.flatten()


def single_task_gp(
    X: Tensor, Y: Tensor, kernel: Kernel, likelihood: GaussianLikelihood
) -> SingleTaskGP:
    """Return BoTorch's model without a fit and without transforms of targets and inputs."""
    gp = SingleTaskGP(
        X,
        Y,
        likelihood=likelihood,
        covar_module=kernel,
        mean_module=ZeroMean(),
        outcome_transform=None,
    )
    return gp.to(X).requires_grad_(False).eval()


def uniform(n: int, d: int, seed: int) -> Tensor:
    """Return uniform points [n d] of the unit cube."""
    return torch.rand(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def sketch(m: int, device: torch.device) -> NystromRidge:
    """Return a posterior of 2000 observations in three dimensions with about m anchors."""
    kernel = stationary_kernel("rbf", 0.2).to(device)
    X = uniform(2000, 3, seed=1).to(device)
    state = NystromRidge(kernel, 0.01, FixedDictionary.pivoted(kernel, X, m))
    state.update(X, torch.sin(5 * X).sum(-1))
    return state


def example_kernel() -> ScaleKernel:
    """Return the kernel of the comparisons with BoTorch."""
    base = MaternKernel(nu=2.5).double()
    base.lengthscale = torch.tensor(0.3)
    kernel = ScaleKernel(base).double()
    kernel.outputscale = torch.tensor(1.5)
    return kernel


def noisy_data(n: int, *more: int, device: torch.device) -> list[Tensor]:
    """Return X [n 3] and y [n] of a noisy function, then further points [m 3] for every m in ``more``."""
    rng = torch.Generator().manual_seed(0)
    X, *others = [torch.rand(m, 3, generator=rng, dtype=torch.float64) for m in (n, *more)]
    y = torch.sin(5 * X).sum(-1) + 0.1 * torch.randn(n, generator=rng, dtype=torch.float64)
    return [tensor.to(device) for tensor in (X, y, *others)]


def matched_models(X: Tensor, y: Tensor) -> tuple[SingleTaskGP, KernelRidgeGP]:
    """Return the same posterior in BoTorch and in kbo, with their caches filled."""
    likelihood = GaussianLikelihood().double()
    likelihood.noise = torch.tensor(RIDGE, dtype=torch.float64)
    gp = single_task_gp(X, y.unsqueeze(-1), example_kernel(), likelihood)
    model = KernelRidgeGP(X, y.unsqueeze(-1), example_kernel(), RIDGE)
    torch.testing.assert_close(
        mean_and_variance(model, X[:1]), mean_and_variance(gp, X[:1]), rtol=1e-5, atol=1e-5
    )
    return gp, model
