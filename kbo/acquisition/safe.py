"""Acquisition functions of safe exploration: only points that are certain to keep limits on other functions."""

from __future__ import annotations

from typing import Any

import torch
from botorch.optim import optimize_acqf
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from kbo._base import checks
from kbo._base.linalg import safe_sqrt
from kbo.acquisition.constrained import ConstrainedKernelUCB
from kbo.errors import InvalidInput

_SCALES = (0.3, 0.1, 0.03, 0.01)
"""Standard deviations of the steps from safe points to initial conditions, in units of the box."""

_MARGIN = 1e-6
"""Slack that the search keeps: the constraints of BoTorch hold up to a tolerance."""


class SafeUCB(ConstrainedKernelUCB):
    """The upper confidence bound of one function over the points that are certain to keep limits on others.

    Where the pessimistic bounds are within the limits, the value is ``KernelUCB``; elsewhere it is lower, by how far
    they are outside at most. Before the first data nothing is certain: begin with points that are known to be safe.

    In ``optimize_acqf_discrete`` the best choice is certain to be safe if any choice is. For ``optimize_acqf`` there is
    ``optimize_safely``, which never leaves the safe points. Arguments as ``ConstrainedKernelUCB``.

    Example:
        >>> acqf = SafeUCB(ModelListGP(yield_, heat), bounds, 0, {1: (None, 80.0)})
        >>> x, value = optimize_safely(acqf, box, X_safe)
    """

    certain = True


class SafeExpander(SafeUCB):
    """The width of the bounds over the points that are certain to keep limits: where a safe observation tells most.

    The value is the standard deviation relative to that of the prior, the largest of all functions, given the points
    that are pending; elsewhere it is negative, by how far the pessimistic bounds are outside. Such points make the set
    of safe points grow, and ``SafeUCB`` finds the best among them (Sui et al. 2018 alternate so). Arguments as
    ``ConstrainedKernelUCB``.
    """

    @t_batch_mode_transform(expected_q=1, assert_output_shape=False)  # pyright: ignore[reportArgumentType]
    def forward(self, X: Tensor) -> Tensor:
        """Return the values [b] of the points X [b 1 d]."""
        found = self.located(X)
        parts, slack = [], self._slack(found)
        for term, (state, Z) in found.items():
            if self.X_pending is not None:
                state = term.with_pending(state)
            prior = state.prior_variance(Z).clamp_min(torch.finfo(Z.dtype).tiny)
            parts.append(safe_sqrt(state.predict(Z)[1] / prior))
        widest = torch.stack(torch.broadcast_tensors(*parts)).amax(0)
        return torch.where(slack >= 0, widest, slack).squeeze(-1)


def optimize_safely(
    acqf: SafeUCB,
    bounds: Tensor,
    X_safe: Tensor,
    num_restarts: int = 4,
    raw_samples: int = 512,
    **options: Any,
) -> tuple[Tensor, Tensor]:
    """Maximise an acquisition function over points that are certain to keep the limits, by ``optimize_acqf``.

    The search starts at such points near ``X_safe``. As long as none is certain, the best of ``X_safe`` is returned.

    Args:
        acqf: The acquisition function.
        bounds: The box [2 d].
        X_safe: Points [s d] that are known to keep the limits, for example all that were evaluated.
        num_restarts: Number of searches.
        raw_samples: Number of random points among which they start.
        options: More arguments of ``optimize_acqf``.

    Returns:
        The point [1 d] and its value [].

    Raises:
        InvalidInput: An argument of another kind or shape, or no safe point.
    """
    checks.instance("acqf", acqf, SafeUCB)
    box, X = checks.rows("bounds", bounds), checks.rows("X_safe", X_safe)
    if box.shape != (2, X.shape[-1]) or not len(X):
        raise InvalidInput(
            f"bounds must have shape [2 d] and X_safe [s d], with at least one row, got {tuple(box.shape)} and "
            f"{tuple(X.shape)}."
        )
    count = checks.whole("raw_samples", raw_samples, 1)
    scales = X.new_tensor(_SCALES)[torch.randint(len(_SCALES), (count, 1), device="cpu")]
    steps = scales * torch.randn(count, X.shape[-1], device="cpu").to(X)
    near = (X[torch.randint(len(X), (count,), device="cpu")] + steps * (box[1] - box[0])).clamp(
        *box
    )
    starts = torch.cat([X, near])
    with torch.no_grad():
        safe = starts[acqf.slack(starts) >= _MARGIN]
        known = safe if len(safe) else X
        best = (
            acqf(known.unsqueeze(-2))
            .topk(min(checks.whole("num_restarts", num_restarts, 1), len(known)))
            .indices
        )
        known = known[best]
    if len(safe):
        found, _ = optimize_acqf(
            acqf,
            box,
            q=1,
            num_restarts=len(known),
            batch_initial_conditions=known.unsqueeze(-2),
            nonlinear_inequality_constraints=[(lambda x: acqf.slack(x) - _MARGIN, True)],
            **options,
        )
        known = torch.cat([known, found[acqf.slack(found) >= 0]])
    with torch.no_grad():
        value, row = acqf(known.unsqueeze(-2)).max(0)
    return known[row].unsqueeze(0), value
