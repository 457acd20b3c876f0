"""Named algorithms: posterior + confidence + rule."""

from kbo.recipes.elimination import StagedElimination
from kbo.recipes.inputs import Inputs
from kbo.recipes.method import Method, Rule, UniformChoice, UpperBound
from kbo.recipes.registry import PRACTICAL_WIDTHS, RECIPES, Recipe, get, make, names
from kbo.recipes.thompson import ThompsonSampling

__all__ = [
    "PRACTICAL_WIDTHS",
    "RECIPES",
    "Inputs",
    "Method",
    "Recipe",
    "Rule",
    "StagedElimination",
    "ThompsonSampling",
    "UniformChoice",
    "UpperBound",
    "get",
    "make",
    "names",
]
