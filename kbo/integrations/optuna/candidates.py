"""A candidates function for the ``BoTorchSampler`` of optuna-integration."""

from __future__ import annotations

from typing import NamedTuple

import torch
from botorch.models import ModelListGP
from botorch.optim import optimize_acqf
from torch import Tensor

from kbo import checks
from kbo.acquisition import ConstrainedKernelUCB, KernelUCB
from kbo.confidence import Confidence
from kbo.errors import InvalidInput
from kbo.models import KernelRidgeGP
from kbo.optimize import Practical
from kbo.optimize.belief import Evaluation, Problem
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
        train_con: Constraints [n c], feasible at values of at most 0; None without them.
        bounds: Lower and upper bounds [2 d].
        pending_x: Points [p d] that are being evaluated, or None to ignore them.

    Returns:
        The point [1 d]; a random one while there are fewer than two values.

    Raises:
        InvalidInput: There are several objectives, or shapes that do not fit.

    Example:
        >>> sampler = optuna_integration.BoTorchSampler(candidates_func=kbo_candidates_func, seed=0)
    """
    n = len(checks.rows("train_x", train_x))
    if checks.tensor("train_obj", train_obj).shape != (n, 1):
        raise InvalidInput(
            f"train_obj must be [{n} 1], one objective for each row of train_x, got {tuple(train_obj.shape)}."
        )
    if train_con is not None and (checks.tensor("train_con", train_con).ndim != 2 or len(train_con) != n):
        raise InvalidInput(f"train_con must be [{n} c], one row for each of train_x, got {tuple(train_con.shape)}.")
    if len(checks.rows("bounds", bounds, train_x, train_x.shape[-1])) != 2 or not bool((bounds[0] < bounds[1]).all()):
        raise InvalidInput("bounds must be lower bounds and larger upper bounds [2 d].")
    low, high = bounds.cpu()
    values = torch.cat([train_obj.cpu(), *([] if train_con is None else [-train_con.cpu()])], -1)
    finite = values.isfinite().all(-1)
    X, y = ((train_x.cpu() - low) / (high - low))[finite], values[finite]
    if len(y) < 2:
        return (low + (high - low) * torch.rand(1, len(low), dtype=low.dtype)).to(train_x)
    acquisition = _acquisition(X, y)
    if pending_x is not None and len(checks.rows("pending_x", pending_x, train_x, train_x.shape[-1])):
        acquisition.set_X_pending((pending_x.cpu() - low) / (high - low))
    cube = torch.stack([torch.zeros_like(low), torch.ones_like(high)])
    unit, _ = optimize_acqf(acquisition, cube, q=1, num_restarts=4, raw_samples=256)
    return (low + (high - low) * unit).to(train_x)


class _Output(NamedTuple):
    """A model of one output, its bound, and the value 0 in units of the model."""

    model: KernelRidgeGP
    confidence: Confidence
    zero: float


def _output(X: Tensor, y: Tensor) -> _Output:
    """The practical setting after values y [n] at points X [n d] of the unit cube."""
    setting, space = Practical(n_initial=len(y)), Space([(0.0, 1.0)] * X.shape[-1])
    ends = enumerate(zip(map(tuple, X.tolist()), y.tolist(), strict=True))
    evaluations = [Evaluation(number, features, value) for number, (features, value) in ends]
    belief = setting.fit(Problem(setting.default_method, None, space), evaluations)
    assert belief is not None
    confidence = belief.confidence
    assert confidence is not None
    targets = torch.tensor([[belief.target(value)] for value in y.tolist()], dtype=X.dtype)
    model = KernelRidgeGP(X, targets, belief.fitted.kernel, belief.posterior.ridge)
    return _Output(model, confidence, belief.target(0.0))


def _acquisition(X: Tensor, y: Tensor) -> KernelUCB | ConstrainedKernelUCB:
    """The upper confidence bound of the first column of y [n 1+c] where the others can be at least 0."""
    first, *others = outputs = [_output(X, column) for column in y.unbind(-1)]
    if not others:
        return KernelUCB(first.model, first.confidence)
    limits = {i: (output.zero, None) for i, output in enumerate(others, 1)}
    return ConstrainedKernelUCB(
        ModelListGP(*(output.model for output in outputs)), [output.confidence for output in outputs], 0, limits
    )
