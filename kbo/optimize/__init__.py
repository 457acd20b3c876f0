"""Black-box optimisation: ``minimize``, ``maximize``, and the ask-tell ``Optimizer`` that both use.

A trial goes through these folders:

1. ``run/`` records it, first in the journal. ``evaluated/`` has results that were known before the run.
2. ``quantities/`` collects the values of each measured quantity: of the ``objectives/``, and of those with limits
   (``constraints/``).
3. ``settings/`` fit the ``surrogates/`` of the quantities under the ``assumptions/`` of the user.
4. ``proposal/`` begins a ``search/`` of the space and asks the ``strategies/`` for the parameters of the next trial.
5. ``loop/`` evaluates the objective at them, and repeats all this until there is a reason to stop.
6. ``insight/`` answers questions about the run, and ``tracking.py`` reports it to other tools. ``confirmation/``
   evaluates a few candidates again, without a model.
"""

from kbo.optimize.assumptions.hypotheses import Hypothesis, hypotheses
from kbo.optimize.confirmation.confirm import confirm
from kbo.optimize.confirmation.confirmation import Confirmation, Finalist
from kbo.optimize.constraints.constraint import Constraint
from kbo.optimize.constraints.feasibility import Feasibility
from kbo.optimize.insight.answers import Answers
from kbo.optimize.insight.comparison import Comparison, Estimate
from kbo.optimize.insight.credible_sets import CredibleSet, Effect
from kbo.optimize.insight.front import Front
from kbo.optimize.insight.gap.gap import Gap
from kbo.optimize.insight.gap.infeasibility import Infeasible
from kbo.optimize.insight.insight import Insight
from kbo.optimize.insight.outlier import Outlier
from kbo.optimize.loop.pruning import Curves, Pruner, Pruning
from kbo.optimize.minimize import maximize, minimize
from kbo.optimize.objectives.objective import Maximize, Minimize
from kbo.optimize.optimizer import Optimizer
from kbo.optimize.result import Result
from kbo.optimize.run.trials import Trial
from kbo.optimize.settings.certified import Certified
from kbo.optimize.settings.practical import Practical, default_strategies
from kbo.optimize.settings.safe import Safe
from kbo.optimize.surrogates.model import Fitted, fit_values
from kbo.optimize.surrogates.surrogate import Bound

__all__ = [
    "Answers",
    "Bound",
    "Certified",
    "Comparison",
    "Confirmation",
    "Constraint",
    "CredibleSet",
    "Curves",
    "Effect",
    "Estimate",
    "Feasibility",
    "Finalist",
    "Fitted",
    "Front",
    "Gap",
    "Hypothesis",
    "Infeasible",
    "Insight",
    "Maximize",
    "Minimize",
    "Optimizer",
    "Outlier",
    "Practical",
    "Pruner",
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
