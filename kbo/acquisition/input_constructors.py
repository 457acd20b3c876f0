"""How BoTorch and Ax construct the acquisition functions of kbo: one entry each in BoTorch's table.

Ax says that a metric is minimised by a posterior transform with weight -1 only, and which trials are running by
``X_pending``: both are passed on, or a loss would be maximised and a running trial be proposed again. Constraints and
objectives of several outcomes cannot be passed on, so they are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from botorch.acquisition.input_constructors import acqf_input_constructor
from botorch.acquisition.objective import MCAcquisitionObjective, PosteriorTransform
from botorch.models.model import Model
from torch import Tensor

from kbo.acquisition.thompson import InflatedThompsonSampling
from kbo.acquisition.ucb import AMMUCB, CMMUCB, DMMUCB, ChainingUCB, KernelUCB
from kbo.confidence import Confidence
from kbo.errors import InvalidInput
from kbo.models import PosteriorModel


def common_inputs(
    model: Model,
    posterior_transform: PosteriorTransform | None = None,
    X_pending: Tensor | None = None,
    constraints: Sequence[Any] | None = None,
    objective: MCAcquisitionObjective | None = None,
) -> dict[str, Any]:
    """What every acquisition function of kbo gets.

    Raises:
        InvalidInput: There are several outcomes, constraints on outcomes, or an objective other than the outcome.
    """
    if constraints or objective is not None:
        raise InvalidInput(
            "the bounds of kbo are bounds of one outcome: outcome constraints and composite objectives are not "
            "supported. Drop the constraint, or return a bad value of the objective where it is violated."
        )
    if not isinstance(model, PosteriorModel):
        raise InvalidInput(
            f"the acquisition functions of kbo need one outcome and a model of kbo.models, got {type(model).__name__}: "
            "for several objectives or outcome constraints take other methods, for example qLogNEHVI."
        )
    return {"model": model, "posterior_transform": posterior_transform, "X_pending": X_pending}


def round_seed(seed: int, model: Model) -> int:
    """A seed for this round: another one as soon as there are other data, the same one after a restart."""
    assert isinstance(model, PosteriorModel)
    return 1_000_003 * seed + model.train_targets.shape[-1]


@acqf_input_constructor(KernelUCB)
def kernel_ucb_inputs(
    model: Model,
    confidence: Confidence,
    posterior_transform: PosteriorTransform | None = None,
    X_pending: Tensor | None = None,
    constraints: Sequence[Any] | None = None,
    objective: MCAcquisitionObjective | None = None,
) -> dict[str, Any]:
    """Arguments of ``KernelUCB``."""
    return {
        **common_inputs(model, posterior_transform, X_pending, constraints, objective),
        "confidence": confidence,
    }


@acqf_input_constructor(AMMUCB, DMMUCB, CMMUCB)
def mixture_ucb_inputs(
    model: Model,
    noise_std: float,
    norm_bound: float,
    delta: float,
    scale: float = 1.0,
    posterior_transform: PosteriorTransform | None = None,
    X_pending: Tensor | None = None,
    constraints: Sequence[Any] | None = None,
    objective: MCAcquisitionObjective | None = None,
) -> dict[str, Any]:
    """Arguments of ``AMMUCB``, ``DMMUCB`` and ``CMMUCB``."""
    return {
        **common_inputs(model, posterior_transform, X_pending, constraints, objective),
        "noise_std": noise_std,
        "norm_bound": norm_bound,
        "delta": delta,
        "scale": scale,
    }


@acqf_input_constructor(ChainingUCB)
def chaining_ucb_inputs(
    model: Model,
    points: Tensor,
    delta: float,
    rigorous: bool = False,
    smooth: bool = True,
    previous: ChainingUCB | None = None,
    posterior_transform: PosteriorTransform | None = None,
    X_pending: Tensor | None = None,
    constraints: Sequence[Any] | None = None,
    objective: MCAcquisitionObjective | None = None,
) -> dict[str, Any]:
    """Arguments of ``ChainingUCB``."""
    return {
        **common_inputs(model, posterior_transform, X_pending, constraints, objective),
        "points": points,
        "delta": delta,
        "rigorous": rigorous,
        "smooth": smooth,
        "previous": previous,
    }


@acqf_input_constructor(InflatedThompsonSampling)
def thompson_inputs(
    model: Model,
    confidence: Confidence,
    seed: int = 0,
    posterior_transform: PosteriorTransform | None = None,
    X_pending: Tensor | None = None,
    constraints: Sequence[Any] | None = None,
    objective: MCAcquisitionObjective | None = None,
) -> dict[str, Any]:
    """Arguments of ``InflatedThompsonSampling``; the seed of its draws follows from ``seed`` and the number of data."""
    return {
        **common_inputs(model, posterior_transform, X_pending, constraints, objective),
        "confidence": confidence,
        "seed": round_seed(seed, model),
    }
