"""Methods, that is posterior x confidence x rule, and the loop over the rounds of a bandit problem.

``methods.py`` is the table of named methods, ``method.py`` what they are made of, ``loop.py`` plays
them on a problem (``problem.py``). Two rules for finite sets stand beside: ``pareto.py`` for
several objectives, ``safe.py`` for limits.
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
