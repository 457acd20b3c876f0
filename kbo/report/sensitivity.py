"""The importance of the parameters of a run."""

from __future__ import annotations

from gpytorch.kernels import Kernel

from kbo._base.isolation import isolated
from kbo.errors import InvalidInput
from kbo.optimize.insight.credible_sets import Effect
from kbo.optimize.insight.importance import importance as importance_of
from kbo.report.record import Record, Run


@isolated
def importance(run: Run, kernel: Kernel | None = None) -> list[Effect]:
    """Return the share of each parameter in the variation of the model, the largest share first.

    Args:
        run: The run.
        kernel: The kernel of a journal in the certified setting.

    Raises:
        InvalidInput: There is no model yet.
        RefutedAssumptions: In the certified setting, no function satisfies the assumptions.
    """
    optimizer = Record.of(run, kernel).reopened()
    surrogate = optimizer.insight.report_surrogate()
    if surrogate is None:
        raise InvalidInput("there is no importance: too few evaluations for a model.")
    return importance_of(optimizer.space, surrogate)
