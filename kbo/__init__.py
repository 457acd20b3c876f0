"""kbo: Bayesian optimisation with guarantees, at scale, on PyTorch, GPyTorch and BoTorch.

Names are imported when they are first used, as BoTorch does, so that ``import kbo`` costs next to nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kbo import acquisition, bandit, confidence, covers, kernels, models, problems, recipes, regression
    from kbo.confidence import NoiseBounds
    from kbo.errors import (
        IllConditionedWarning,
        InvalidInput,
        JournalError,
        KboError,
        MissingExtra,
        NotPositiveDefinite,
        RefutedAssumptions,
        Stop,
        TooManyFailures,
    )
    from kbo.optimize import Certified, Constraint, Curves, Optimizer, Practical, Result, Safe, maximize, minimize
    from kbo.regression import AdaptiveRidge, KernelRidge, NystromRidge
    from kbo.space import Choice, Fixed, Float, Int, Linear, Ordinal, Space, When
    from kbo.workers.call import RunningTrial
    from kbo.workers.processes import Processes
    from kbo.workers.threads import Threads

__version__ = "0.17.0"

__all__ = [
    "AdaptiveRidge",
    "Certified",
    "Choice",
    "Constraint",
    "Curves",
    "Fixed",
    "Float",
    "IllConditionedWarning",
    "Int",
    "InvalidInput",
    "JournalError",
    "KboError",
    "KernelRidge",
    "Linear",
    "MissingExtra",
    "NoiseBounds",
    "NotPositiveDefinite",
    "NystromRidge",
    "Optimizer",
    "Ordinal",
    "Practical",
    "Processes",
    "RefutedAssumptions",
    "Result",
    "RunningTrial",
    "Safe",
    "Space",
    "Stop",
    "Threads",
    "TooManyFailures",
    "When",
    "acquisition",
    "bandit",
    "confidence",
    "covers",
    "kernels",
    "maximize",
    "minimize",
    "models",
    "problems",
    "recipes",
    "regression",
]

_HOME = {
    "kbo.errors": (
        "IllConditionedWarning",
        "InvalidInput",
        "JournalError",
        "KboError",
        "MissingExtra",
        "NotPositiveDefinite",
        "RefutedAssumptions",
        "Stop",
        "TooManyFailures",
    ),
    "kbo.optimize": (
        "Certified",
        "Constraint",
        "Curves",
        "Optimizer",
        "Practical",
        "Result",
        "Safe",
        "maximize",
        "minimize",
    ),
    "kbo.confidence": ("NoiseBounds",),
    "kbo.regression": ("AdaptiveRidge", "KernelRidge", "NystromRidge"),
    "kbo.space": ("Choice", "Fixed", "Float", "Int", "Linear", "Ordinal", "Space", "When"),
    "kbo.workers.call": ("RunningTrial",),
    "kbo.workers.processes": ("Processes",),
    "kbo.workers.threads": ("Threads",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}
_SUBMODULES = {*__all__, "errors", "integrations", "optimize", "report", "space"} - set(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    elif name in _SUBMODULES:
        value = importlib.import_module(f"kbo.{name}")
    else:
        raise AttributeError(f"module 'kbo' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
