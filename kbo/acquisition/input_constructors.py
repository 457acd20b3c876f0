"""Construction of the acquisition functions of kbo by BoTorch and Ax, through BoTorch's table of input constructors.

Ax states that a metric is minimised only by a posterior transform with weight -1, and which trials are running by
``X_pending``: both are passed on. Constraints and objectives of several outcomes cannot be, so they are refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from botorch.acquisition.input_constructors import acqf_input_constructor
from botorch.acquisition.objective import MCAcquisitionObjective
from botorch.models.model import Model

from kbo.acquisition.base import ConfidenceAcquisition
from kbo.acquisition.thompson import InflatedThompsonSampling
from kbo.acquisition.ucb import AMMUCB, CMMUCB, DMMUCB, ChainingUCB, KernelUCB
from kbo.errors import InvalidInput
from kbo.models import PosteriorModel


def register(kind: type[ConfidenceAcquisition], **made: Callable[[Any], Any]) -> None:
    """Enter an acquisition function in BoTorch's table; its options there are the arguments of its constructor.

    A ``seed`` is combined with the number of data: draws differ as soon as there are other data, and are the same after
    a restart. The entry raises InvalidInput if there are several outcomes, constraints on outcomes, or an objective
    other than the outcome.

    Args:
        kind: The class.
        made: Options that are made from the model.
    """

    def construct(
        model: Model,
        constraints: Sequence[Any] | None = None,
        objective: MCAcquisitionObjective | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        if constraints or objective is not None:
            raise InvalidInput(
                "the bounds of kbo are bounds of one outcome: outcome constraints and composite objectives are not "
                "supported. Drop the constraint, or return a bad value of the objective where it is violated."
            )
        if not isinstance(model, PosteriorModel):
            raise InvalidInput(
                f"{kind.__name__} needs one outcome and a model of kbo.models, got {type(model).__name__}: for several "
                "objectives or outcome constraints take other methods, for example qLogNEHVI."
            )
        if "seed" in own.parameters:
            options["seed"] = 1_000_003 * options.get("seed", 0) + model.train_targets.shape[-1]
        return {"model": model, **options, **{name: make(model) for name, make in made.items()}}

    own, general = inspect.signature(kind), inspect.signature(construct).parameters
    parameters = [*own.parameters.values(), general["constraints"], general["objective"]]
    construct.__signature__ = inspect.Signature(parameters)  # BoTorch accepts the options that it finds here
    construct.__name__ = kind.__name__
    acqf_input_constructor(kind)(construct)


for _kind in (KernelUCB, AMMUCB, DMMUCB, CMMUCB, ChainingUCB, InflatedThompsonSampling):
    register(_kind)
