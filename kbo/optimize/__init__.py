"""Loops: ``minimize`` and ``maximize``, the ask-tell ``Optimizer`` beneath them, its settings and journal."""

from kbo.optimize.loop import Result, maximize, minimize
from kbo.optimize.optimizer import Optimizer
from kbo.optimize.settings import Certified, Practical
from kbo.optimize.trials import Trial

__all__ = ["Certified", "Optimizer", "Practical", "Result", "Trial", "maximize", "minimize"]
