"""Named algorithms: posterior + confidence + rule."""

from kbo.recipes.elimination import StagedElimination
from kbo.recipes.method import Method, Rule, ThompsonSampling, UniformChoice, UpperBound
from kbo.recipes.pareto import ParetoSet, pareto_set
from kbo.recipes.registry import PRACTICAL_WIDTHS, RECIPES, Recipe, get, make, names, register

__all__ = [
    "PRACTICAL_WIDTHS",
    "RECIPES",
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
    "register",
]
