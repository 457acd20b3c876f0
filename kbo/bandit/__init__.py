"""Methods, that is posterior + confidence + rule, and the loop over the rounds of a bandit problem that they play."""

from kbo.bandit.elimination import StagedElimination
from kbo.bandit.loop import play
from kbo.bandit.method import Method, Rule, ThompsonSampling, UniformChoice, UpperBound
from kbo.bandit.methods import METHODS, PRACTICAL_WIDTHS, Recipe, get, make, names, register
from kbo.bandit.pareto import ParetoSet, pareto_set
from kbo.bandit.problem import Bandit

__all__ = [
    "METHODS",
    "PRACTICAL_WIDTHS",
    "Bandit",
    "Method",
    "ParetoSet",
    "Recipe",
    "Rule",
    "StagedElimination",
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
