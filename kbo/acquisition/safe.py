"""Acquisition functions for safe exploration: every point certainly keeps limits on other functions.

For loops of BoTorch with models of kbo. ``kbo.Safe`` (``kbo/optimize/strategies/safe_exploration.py``)
makes whole safe runs, and ``kbo/bandit/safe.py`` explores a finite set with posteriors and bounds alone.
"""

from __future__ import annotations

from typing import Any

import torch
from botorch.optim import optimize_acqf
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from kbo._base import checks
from kbo._base.linalg import safe_sqrt
from kbo.acquisition.constrained import ConstrainedKernelUCB
from kbo.acquisition.input_constructors import register_constrained
from kbo.errors import InvalidInput

_SCALES = (0.3, 0.1, 0.03, 0.01)
"""Standard deviations of the random steps from safe points to initial conditions, relative to the box."""

_MARGIN = 1e-6
"""Least slack in the search, because BoTorch keeps constraints only up to a tolerance."""


@register_constrained
class SafeUCB(ConstrainedKernelUCB):
    """The upper confidence bound of one function where limits on others are certainly kept.

    For experiments in which a broken limit does harm. Where the pessimistic bounds are within the
    limits, the value is ``KernelUCB``. Elsewhere it is lower, by the largest possible violation.
    Before the first data nothing is certain, so begin with points that are known to be safe.

    With ``optimize_acqf_discrete`` the best choice is certainly safe if any choice is. Instead of
    ``optimize_acqf`` use ``optimize_safely``, which never leaves the safe points. Arguments are
    those of ``ConstrainedKernelUCB``.

    Example:
        >>> acqf = SafeUCB(ModelListGP(yield_, heat), bounds, 0, {1: (None, 80.0)})
        >>> x, value = optimize_safely(acqf, box, X_safe)
    """

    certain = True


@register_constrained
class SafeExpander(SafeUCB):
    """The uncertainty of points that certainly keep the limits; trials at its maximum teach most.

    Where the limits are certainly kept, the value is the largest relative standard deviation
    (posterior over prior) of all functions, given the pending points. Elsewhere it is negative, by
    the largest possible violation. Such trials make the set of safe points grow, and ``SafeUCB``
    finds the best safe point; alternate the two (Sui et al. 2018). Arguments are those of
    ``ConstrainedKernelUCB``.
    """

    @t_batch_mode_transform(expected_q=1, assert_output_shape=False)  # pyright: ignore[reportArgumentType]
    def forward(self, X: Tensor) -> Tensor:
        """Return the values [b] of the points X [b 1 d]."""
        located = self.located(X)
        slack = self._slack(located)
        widths = []
        for i, (state, P) in located.items():
            _, variance = self.terms[i].with_pending(state).predict(P)
            prior = state.prior_variance(P).clamp_min(torch.finfo(P.dtype).tiny)
            widths.append(safe_sqrt(variance / prior))
        widest = torch.stack(torch.broadcast_tensors(*widths)).amax(0)
        return torch.where(slack >= 0, widest, slack).squeeze(-1)


def optimize_safely(
    acqf: SafeUCB,
    bounds: Tensor,
    X_safe: Tensor,
    num_restarts: int = 4,
    raw_samples: int = 512,
    seed: int | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor]:
    """Maximise an acquisition function over the points that certainly keep the limits.

    ``optimize_acqf`` starts at such points near ``X_safe``. If no point is certain, the best of
    ``X_safe`` is returned.

    Args:
        acqf: The acquisition function.
        bounds: The box [2 d].
        X_safe: Points [s d] that are known to keep the limits, for example all that were evaluated.
        num_restarts: Number of searches.
        raw_samples: Number of random points among which they start.
        seed: Seed of the random points. None takes a seed from torch's global generator.
        options: Further arguments of ``optimize_acqf``.

    Returns:
        The point [1 d] and its value [].

    Raises:
        InvalidInput: An argument of another kind or shape, or no safe point.
    """
    checks.instance("acqf", acqf, SafeUCB)
    box = checks.rows("bounds", bounds)
    X = checks.rows("X_safe", X_safe)
    if box.shape != (2, X.shape[-1]) or not len(X):
        raise InvalidInput(
            "bounds must have shape [2 d] and X_safe [s d], with at least one row, got "
            f"{tuple(box.shape)} and {tuple(X.shape)}."
        )
    n_samples = checks.whole("raw_samples", raw_samples, 1)
    n_searches = checks.whole("num_restarts", num_restarts, 1)
    if seed is None:
        seed = int(torch.randint(2**31, (), device="cpu"))
    generator = torch.Generator().manual_seed(checks.seed(seed))
    candidates = torch.cat([X, _near(X, box, n_samples, generator)])
    with torch.no_grad():
        certain = candidates[acqf.slack(candidates) >= _MARGIN]
    if len(certain):
        starts = _best(acqf, certain, n_searches)
        candidates = torch.cat([starts, _search(acqf, box, starts, options)])
    else:
        candidates = _best(acqf, X, n_searches)
    with torch.no_grad():
        value, row = acqf(candidates.unsqueeze(-2)).max(0)
    return candidates[row].unsqueeze(0), value


@torch.no_grad()
def _best(acqf: SafeUCB, X: Tensor, count: int) -> Tensor:
    """Return the ``count`` points of X [n d] with the largest values, or all if there are fewer."""
    values = acqf(X.unsqueeze(-2))
    return X[values.topk(min(count, len(X))).indices]


def _search(acqf: SafeUCB, box: Tensor, starts: Tensor, options: dict[str, Any]) -> Tensor:
    """Return the results [m d] of ``optimize_acqf`` from starts [n d] that are certainly safe.

    Results that are not certainly safe are left out.
    """
    ends, _ = optimize_acqf(
        acqf,
        box,
        q=1,
        num_restarts=len(starts),
        batch_initial_conditions=starts.unsqueeze(-2),
        nonlinear_inequality_constraints=[(lambda x: acqf.slack(x) - _MARGIN, True)],
        **options,
    )
    return ends[acqf.slack(ends) >= 0]


def _near(X: Tensor, box: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return random points [count d] of a box [2 d]: X [s d] plus normal steps of several sizes."""
    sizes = torch.randint(len(_SCALES), (count, 1), generator=generator, device="cpu")
    directions = torch.randn(count, X.shape[-1], generator=generator, device="cpu").to(X)
    rows = torch.randint(len(X), (count,), generator=generator, device="cpu")
    steps = X.new_tensor(_SCALES)[sizes] * directions
    centres = X[rows]
    return (centres + steps * (box[1] - box[0])).clamp(*box)
