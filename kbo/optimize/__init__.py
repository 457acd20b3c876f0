"""Loops: ``minimize`` and ``maximize``, the ask-tell ``Optimizer`` they use, its settings and its journal."""

from kbo.optimize.confirmation import Confirmation, confirm
from kbo.optimize.constraint import Constraint
from kbo.optimize.hypotheses import Hypothesis, hypotheses
from kbo.optimize.loop import maximize, minimize
from kbo.optimize.optimizer import Optimizer
from kbo.optimize.pruning import Curves, Pruning
from kbo.optimize.result import Result
from kbo.optimize.settings import Certified, Practical, Safe
from kbo.optimize.settings.model import Fitted, fit_values
from kbo.optimize.trials import Trial

__all__ = [
    "Certified",
    "Confirmation",
    "Constraint",
    "Curves",
    "Fitted",
    "Hypothesis",
    "Optimizer",
    "Practical",
    "Pruning",
    "Result",
    "Safe",
    "Trial",
    "confirm",
    "fit_values",
    "hypotheses",
    "maximize",
    "minimize",
]
