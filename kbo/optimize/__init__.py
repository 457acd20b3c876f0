"""Loops: ``minimize`` and ``maximize``, the ask-tell ``Optimizer`` they use, its settings and its journal."""

from kbo.optimize.constraint import Constraint
from kbo.optimize.hypotheses import Hypothesis, hypotheses
from kbo.optimize.insight.confirmation import Confirmation, confirm
from kbo.optimize.insight.front import Front
from kbo.optimize.minimize import maximize, minimize
from kbo.optimize.objective import Maximize, Minimize
from kbo.optimize.optimizer import Optimizer
from kbo.optimize.pruning import Curves, Pruning
from kbo.optimize.result import Result
from kbo.optimize.run.trials import Trial
from kbo.optimize.settings.certified import Certified
from kbo.optimize.settings.practical import Practical, default_strategies
from kbo.optimize.settings.safe import Safe
from kbo.optimize.surrogates.model import Fitted, fit_values

__all__ = [
    "Certified",
    "Confirmation",
    "Constraint",
    "Curves",
    "Fitted",
    "Front",
    "Hypothesis",
    "Maximize",
    "Minimize",
    "Optimizer",
    "Practical",
    "Pruning",
    "Result",
    "Safe",
    "Trial",
    "confirm",
    "default_strategies",
    "fit_values",
    "hypotheses",
    "maximize",
    "minimize",
]
