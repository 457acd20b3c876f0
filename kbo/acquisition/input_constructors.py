"""Construction of the acquisition functions of kbo by BoTorch and Ax, through BoTorch's table of input constructors.

Ax states that a metric is minimised only by a posterior transform with weight -1, and which trials are running by
``X_pending``: both are passed on. Constraints on outcomes are for ``ConstrainedKernelUCB``; the others refuse them, and
all refuse objectives of several outcomes.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from botorch.acquisition.input_constructors import acqf_input_constructor
from botorch.acquisition.objective import MCAcquisitionObjective, ScalarizedPosteriorTransform
from botorch.models import ModelListGP
from botorch.models.model import Model
from torch import Tensor

from kbo._base import checks
from kbo.acquisition.base import ConfidenceAcquisition
from kbo.acquisition.constrained import ConstrainedKernelUCB, Interval
from kbo.acquisition.safe import SafeExpander, SafeUCB
from kbo.acquisition.thompson import InflatedThompsonSampling
from kbo.acquisition.ucb import AMMUCB, CMMUCB, DMMUCB, ChainingUCB, KernelUCB
from kbo.errors import InvalidInput
from kbo.models import PosteriorModel


def register(kind: type[ConfidenceAcquisition]) -> None:
    """Enter an acquisition function in BoTorch's table; its options there are the arguments of its constructor.

    A ``seed`` is combined with the number of data: draws differ as soon as there are other data, and are the same after
    a restart. The entry raises InvalidInput if there are several outcomes, constraints on outcomes, or an objective
    other than the outcome.
    """

    def construct(
        model: Model,
        constraints: Sequence[Any] | None = None,
        objective: MCAcquisitionObjective | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        if constraints or objective is not None:
            raise InvalidInput(
                f"{kind.__name__} is about one outcome: for outcome constraints take ConstrainedKernelUCB; composite "
                "objectives are not supported."
            )
        if not isinstance(model, PosteriorModel):
            raise InvalidInput(
                f"{kind.__name__} needs one outcome and a model of kbo.models, got {type(model).__name__}: for outcome "
                "constraints take ConstrainedKernelUCB, for several objectives for example qLogNEHVI."
            )
        if "seed" in inspect.signature(kind).parameters:
            options["seed"] = 1_000_003 * options.get("seed", 0) + model.train_targets.shape[-1]
        return {"model": model, **options}

    _enter(kind, construct, "constraints", "objective")


def register_constrained(kind: type[ConstrainedKernelUCB]) -> None:
    """Enter an acquisition function under limits; its options are confidences and pending points.

    The objective is the outcome with a weight in ``posterior_transform``. Limits are ``constraints_tuple``: A [k m] and
    b [k 1] with ``A f(x) <= b``, each on one outcome. The entry raises InvalidInput for other limits and objectives.
    """

    def construct(
        model: Model,
        posterior_transform: ScalarizedPosteriorTransform,
        constraints_tuple: tuple[Tensor, Tensor],
        constraints: object = None,  # the same limits as functions of samples
        objective: MCAcquisitionObjective | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        checks.instance("model", model, ModelListGP)
        transform = checks.instance(
            "posterior_transform", posterior_transform, ScalarizedPosteriorTransform
        )
        weights: Any = transform.weights
        if objective is not None or len(weighted := weights.nonzero().flatten().tolist()) != 1:
            raise InvalidInput(
                f"{kind.__name__} has an upper bound of one objective: give one outcome alone a weight in "
                "posterior_transform; for several objectives take for example qLogNEHVI."
            )
        given = {
            "model": model,
            "objective_index": weighted[0],
            "constraints": _intervals(*constraints_tuple),
            "posterior_transform": ScalarizedPosteriorTransform(
                weights[weighted], transform.offset
            ),
        }
        return {**given, **options}

    _enter(kind, construct, "constraints_tuple", "objective")


def _enter(kind: Any, construct: Any, *more: str) -> None:
    """Enter a constructor whose options are the arguments of the class, and these."""
    names = {
        *inspect.signature(kind).parameters,
        *more,
    }  # BoTorch accepts the options that it finds in the signature
    construct.__signature__ = inspect.Signature(
        [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY) for n in names]
    )
    construct.__name__ = kind.__name__
    acqf_input_constructor(kind)(construct)


def _intervals(A: Tensor, b: Tensor) -> dict[int, Interval]:
    """Limits ``A f(x) <= b``, the narrowest for each function."""
    limits: dict[int, Interval] = {}
    for row, bound in zip(A.tolist(), b.flatten().tolist(), strict=True):
        if len(used := [i for i, weight in enumerate(row) if weight]) != 1:
            raise InvalidInput(
                f"an outcome constraint must be about one outcome, got the weights {row}."
            )
        (i,) = used
        lower, upper = limits.get(i, (None, None))
        limit = bound / row[i]
        if row[i] > 0:
            limits[i] = lower, limit if upper is None else min(upper, limit)
        else:
            limits[i] = limit if lower is None else max(lower, limit), upper
    return limits


for _kind in (KernelUCB, AMMUCB, DMMUCB, CMMUCB, ChainingUCB, InflatedThompsonSampling):
    register(_kind)
for _joint in (ConstrainedKernelUCB, SafeUCB, SafeExpander):
    register_constrained(_joint)
