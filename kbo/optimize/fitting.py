"""Kernel and noise from data, by marginal likelihood."""

from __future__ import annotations

import copy
import logging
import warnings

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

log = logging.getLogger("kbo")


def unit_kernel(columns: int) -> Kernel:
    """A Matern 5/2 kernel on the unit cube with a lengthscale per column, and BoTorch's priors of them."""
    from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior

    return get_covar_module_with_dim_scaled_prior(ard_num_dims=columns, use_rbf_kernel=False).double()


def fit(X: Tensor, y: Tensor) -> tuple[Kernel, float, float]:
    """Kernel, noise standard deviation and constant of standardised y [n] at X [n D] by marginal likelihood.

    A function of the data alone: the optimiser's random restarts do not touch the global generator. If it fails, the
    means of the prior serve until the next fit.
    """
    from botorch.exceptions import ModelFittingError
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from gpytorch.mlls import ExactMarginalLogLikelihood
    from linear_operator.utils.errors import NanError, NotPSDError

    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")  # about targets that are standardised already
        torch.manual_seed(len(y))
        model = SingleTaskGP(X, y.unsqueeze(-1), covar_module=unit_kernel(X.shape[-1]), outcome_transform=None)
        try:
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        except (ModelFittingError, NanError, NotPSDError) as error:
            log.warning("kernel and noise could not be fitted (%s); their prior is used", error)
            model = SingleTaskGP(X, y.unsqueeze(-1), covar_module=unit_kernel(X.shape[-1]), outcome_transform=None)
    kernel = copy.deepcopy(model.covar_module).requires_grad_(False)
    assert isinstance(kernel, Kernel)
    return kernel, float(model.likelihood.noise.detach().sqrt()), float(model.mean_module.constant.detach())
