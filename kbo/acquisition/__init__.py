"""BoTorch acquisition functions over the models of kbo: the rule of posterior x confidence x rule.

The first use of a name registers all of them with BoTorch, whose table of input constructors imports SciPy's statistics
(half a second). The loops of kbo do not need the table: they import from the modules of this package.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kbo.acquisition import input_constructors
    from kbo.acquisition.constrained import ConstrainedKernelUCB
    from kbo.acquisition.safe import SafeExpander, SafeUCB, optimize_safely
    from kbo.acquisition.thompson import (
        InflatedPosteriorSampling,
        InflatedThompsonSampling,
        inflated_draws,
    )
    from kbo.acquisition.ucb import AMMUCB, CMMUCB, DMMUCB, ChainingUCB, KernelUCB

__all__ = [
    "AMMUCB",
    "CMMUCB",
    "DMMUCB",
    "ChainingUCB",
    "ConstrainedKernelUCB",
    "InflatedPosteriorSampling",
    "InflatedThompsonSampling",
    "KernelUCB",
    "SafeExpander",
    "SafeUCB",
    "inflated_draws",
    "input_constructors",
    "optimize_safely",
]


_MODULES = ("base", "constrained", "input_constructors", "safe", "thompson", "ucb")


def __getattr__(name: str) -> Any:
    if name not in (*__all__, *_MODULES):
        raise AttributeError(f"module 'kbo.acquisition' has no attribute {name!r}")
    for part in _MODULES:
        module = import_module(f"kbo.acquisition.{part}")
        globals()[part] = module
        globals().update(
            {public: vars(module)[public] for public in __all__ if public in vars(module)}
        )
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
