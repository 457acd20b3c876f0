"""kbo: Bayesian optimisation with guarantees, at scale, on PyTorch, GPyTorch and BoTorch."""

from kbo import acquisition, confidence, models, recipes, regression
from kbo.errors import (
    IllConditionedWarning,
    InvalidInput,
    JournalError,
    KboError,
    NotPositiveDefinite,
    RefutedAssumptions,
    TooManyFailures,
)
from kbo.optimize import Certified, Optimizer, Practical, Result, maximize, minimize
from kbo.regression import KernelRidge
from kbo.space import Choice, Float, Int

__version__ = "0.1.0"

__all__ = [
    "Certified",
    "Choice",
    "Float",
    "IllConditionedWarning",
    "Int",
    "InvalidInput",
    "JournalError",
    "KboError",
    "KernelRidge",
    "NotPositiveDefinite",
    "Optimizer",
    "Practical",
    "RefutedAssumptions",
    "Result",
    "TooManyFailures",
    "acquisition",
    "confidence",
    "maximize",
    "minimize",
    "models",
    "recipes",
    "regression",
]
