"""A candidates function for the ``BoTorchSampler`` of optuna-integration."""

from __future__ import annotations

import torch
from botorch.optim import optimize_acqf
from torch import Tensor

from kbo import checks
from kbo.acquisition import KernelUCB
from kbo.errors import InvalidInput
from kbo.models import KernelRidgeGP
from kbo.optimize import Practical
from kbo.space import Space


def kbo_candidates_func(
    train_x: Tensor,
    train_obj: Tensor,
    train_con: Tensor | None,
    bounds: Tensor,
    pending_x: Tensor | None = None,
) -> Tensor:
    """The point with the largest upper confidence bound, for ``BoTorchSampler(candidates_func=kbo_candidates_func)``.

    Kernel and noise are estimated, and the width is chosen, as in ``kbo.Practical``, on all data at every call.

    Args:
        train_x: Points [n d] in the coordinates of ``BoTorchSampler``.
        train_obj: Values [n 1], to be maximised; rows that are not finite are left out.
        train_con: Constraints; must be None.
        bounds: Lower and upper bounds [2 d].
        pending_x: Points [p d] that are being evaluated, or None to ignore them.

    Returns:
        The point [1 d]; a random one while there are fewer than two values.

    Raises:
        InvalidInput: There are constraints, or several objectives.

    Example:
        >>> sampler = optuna_integration.BoTorchSampler(candidates_func=kbo_candidates_func, seed=0)
    """
    if train_con is not None:
        raise InvalidInput(
            "train_con must be None, kbo_candidates_func does not support constraints: use a candidates_func of "
            "optuna_integration."
        )
    n = len(checks.rows("train_x", train_x))
    if checks.tensor("train_obj", train_obj).shape != (n, 1):
        raise InvalidInput(
            f"train_obj must be [{n} 1], one objective for each row of train_x, got {tuple(train_obj.shape)}."
        )
    if len(checks.rows("bounds", bounds, train_x, train_x.shape[-1])) != 2 or not bool((bounds[0] < bounds[1]).all()):
        raise InvalidInput("bounds must be lower bounds and larger upper bounds [2 d].")
    low, high = bounds.cpu()
    finite = train_obj.isfinite().squeeze(-1).cpu()
    X, y = ((train_x.cpu() - low) / (high - low))[finite], train_obj.cpu()[finite]
    if len(y) < 2:
        return (low + (high - low) * torch.rand(1, len(low), dtype=low.dtype)).to(train_x)
    acquisition = _acquisition(X, y)
    if pending_x is not None and len(checks.rows("pending_x", pending_x, train_x, train_x.shape[-1])):
        acquisition.set_X_pending((pending_x.cpu() - low) / (high - low))
    cube = torch.stack([torch.zeros_like(low), torch.ones_like(high)])
    unit, _ = optimize_acqf(acquisition, cube, q=1, num_restarts=4, raw_samples=256)
    return (low + (high - low) * unit).to(train_x)


def _acquisition(X: Tensor, y: Tensor) -> KernelUCB:
    """The upper confidence bound of values y [n 1] at points X [n d] of the unit cube, in the practical setting."""
    space = Space([(0.0, 1.0)] * X.shape[-1])
    learner = Practical(n_initial=len(y)).begin(Practical.default_method, None, space)
    for number, (x, value) in enumerate(zip(X, y.squeeze(-1).tolist(), strict=True)):
        learner.observe(number, x.unsqueeze(0), value)
    belief = learner.belief()
    assert belief is not None
    confidence = belief.confidence()
    assert confidence is not None
    targets = torch.tensor([[belief.target(value)] for value in y.squeeze(-1).tolist()], dtype=X.dtype)
    return KernelUCB(KernelRidgeGP(X, targets, belief.fitted.kernel, belief.posterior.ridge), confidence)
