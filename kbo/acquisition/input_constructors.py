"""Entries of the acquisition functions in BoTorch's table of input constructors, for BoTorch and Ax.

For a metric to minimise, Ax passes a posterior transform with weight -1; for running trials it
passes ``X_pending``. Both reach the acquisition function. Only ``ConstrainedKernelUCB`` accepts
constraints on outcomes, and none accepts an objective of several outcomes.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, TypeVar

from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.input_constructors import acqf_input_constructor
from botorch.acquisition.objective import MCAcquisitionObjective, ScalarizedPosteriorTransform
from botorch.models import ModelListGP
from botorch.models.model import Model
from torch import Tensor

from kbo._base import checks
from kbo.errors import InvalidInput
from kbo.models.base import PosteriorModel

Kind = TypeVar("Kind", bound=type[AcquisitionFunction])


def register(kind: Kind) -> Kind:
    """Enter a ``ConfidenceAcquisition`` in BoTorch's table, with the options of its constructor.

    A ``seed`` is combined with the number of data, so draws change when data are added, and are the
    same after a restart. The entry raises InvalidInput if there are several outcomes, constraints
    on outcomes, or an objective other than the outcome.

    Returns:
        The class, for use as a decorator.
    """

    def construct(
        model: Model,
        constraints: Sequence[Any] | None = None,
        objective: MCAcquisitionObjective | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        if constraints or objective is not None:
            raise InvalidInput(
                f"{kind.__name__} is about one outcome: for outcome constraints take "
                "ConstrainedKernelUCB; composite objectives are not supported."
            )
        if not isinstance(model, PosteriorModel):
            raise InvalidInput(
                f"{kind.__name__} needs one outcome and a model of kbo.models, got "
                f"{type(model).__name__}: for outcome constraints take ConstrainedKernelUCB, for "
                "several objectives for example qLogNEHVI."
            )
        if "seed" in inspect.signature(kind).parameters:
            options["seed"] = 1_000_003 * (options.get("seed") or 0) + model.train_targets.shape[-1]
        return {"model": model, **options}

    _enter(kind, construct, "constraints", "objective")
    return kind


def register_constrained(kind: Kind) -> Kind:
    """Enter a ``ConstrainedKernelUCB`` in BoTorch's table, with confidences and pending points as options.

    The objective is the outcome with a weight in ``posterior_transform``. The limits are
    ``constraints_tuple``, A [k m] and b [k 1] with ``A f(x) <= b``, each on one outcome. The entry
    raises InvalidInput for other limits and objectives.

    Returns:
        The class, for use as a decorator.
    """

    def construct(
        model: Model,
        posterior_transform: ScalarizedPosteriorTransform,
        constraints_tuple: tuple[Tensor, Tensor],
        constraints: object = None,  # the limits of constraints_tuple, as functions of samples
        objective: MCAcquisitionObjective | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        checks.instance("model", model, ModelListGP)
        checks.instance("posterior_transform", posterior_transform, ScalarizedPosteriorTransform)
        weights: Any = posterior_transform.weights
        weighted = weights.nonzero().flatten().tolist()
        if objective is not None or len(weighted) != 1:
            raise InvalidInput(
                f"{kind.__name__} has an upper bound of one objective: give one outcome alone a "
                "weight in posterior_transform; for several objectives take for example qLogNEHVI."
            )
        return {
            "model": model,
            "objective_index": weighted[0],
            "constraints": _intervals(*constraints_tuple),
            "posterior_transform": ScalarizedPosteriorTransform(
                weights[weighted], posterior_transform.offset
            ),
            **options,
        }

    _enter(kind, construct, "constraints_tuple", "objective")
    return kind


def _enter(kind: Any, construct: Any, *further_options: str) -> None:
    """Enter an input constructor in BoTorch's table, with a signature that names its options.

    BoTorch passes only options that are in the signature.

    Args:
        kind: The class of the acquisition function.
        construct: The input constructor.
        further_options: Options of the input constructor besides the arguments of the class.
    """
    names = {*inspect.signature(kind).parameters, *further_options}
    construct.__signature__ = inspect.Signature(
        [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    )
    construct.__name__ = kind.__name__
    acqf_input_constructor(kind)(construct)


def _intervals(A: Tensor, b: Tensor) -> dict[int, tuple[float | None, float | None]]:
    """Return the lower and upper limit of each outcome, by its number, from ``A f(x) <= b``.

    Several limits on one side of an outcome give the narrowest one.

    Args:
        A: The weights [k m] of the m outcomes in k constraints; exactly one in each row is not 0.
        b: The limits [k 1].
    """
    limits: dict[int, tuple[float | None, float | None]] = {}
    for row, bound in zip(A.tolist(), b.flatten().tolist(), strict=True):
        weighted = [i for i, weight in enumerate(row) if weight]
        if len(weighted) != 1:
            raise InvalidInput(
                f"an outcome constraint must be about one outcome, got the weights {row}."
            )
        (i,) = weighted
        lower, upper = limits.get(i, (None, None))
        limit = bound / row[i]
        if row[i] > 0:
            if upper is None or limit < upper:
                upper = limit
        elif lower is None or limit > lower:
            lower = limit
        limits[i] = (lower, upper)
    return limits
