"""Methods, each a posterior, a confidence and a rule, and the loop over the rounds of a bandit problem.

* ``problem.py``: ``Bandit``, the base of problems
* ``method.py``: ``Method``, made of posterior, confidence and rule
* ``methods.py``: the table of named methods
* ``loop.py``: ``play``, the rounds of a method on a problem
* ``pareto.py``, ``safe.py``: rules for finite sets, with several objectives or with limits
"""

from kbo.bandit.loop import play
from kbo.bandit.method import Method, Rule, ThompsonSampling, UniformChoice, UpperBound
from kbo.bandit.methods import (
    METHODS,
    PRACTICAL_WIDTHS,
    Facts,
    NamedMethod,
    get,
    make,
    names,
    register,
)
from kbo.bandit.pareto import ParetoSet, pareto_set
from kbo.bandit.problem import Bandit

__all__ = [
    "METHODS",
    "PRACTICAL_WIDTHS",
    "Bandit",
    "Facts",
    "Method",
    "NamedMethod",
    "ParetoSet",
    "Rule",
    "ThompsonSampling",
    "UniformChoice",
    "UpperBound",
    "get",
    "make",
    "names",
    "pareto_set",
    "play",
    "register",
]
