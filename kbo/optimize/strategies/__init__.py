"""Strategies of search: each proposes the parameters of the next trial, or leaves the trial to the next strategy.

One file holds one strategy. ``strategy.py`` has the interface and how they are tried, ``explanation.py`` the reason
why a trial was chosen.
"""

from kbo.optimize.strategies.expected_improvement import ExpectedImprovement
from kbo.optimize.strategies.explanation import Explanation
from kbo.optimize.strategies.feasible_upper_bound import FeasibleUpperBound
from kbo.optimize.strategies.hypervolume_bound import HypervolumeUpperBound
from kbo.optimize.strategies.initial_design import InitialDesign
from kbo.optimize.strategies.new_parameter import NewParameter
from kbo.optimize.strategies.random_point import RandomPoint
from kbo.optimize.strategies.repeat_once import RepeatOnce
from kbo.optimize.strategies.safe_exploration import SafeExploration
from kbo.optimize.strategies.strategy import Alternate, Strategy
from kbo.optimize.strategies.thompson_point import ThompsonPoint
from kbo.optimize.strategies.trust_region import TrustRegion
from kbo.optimize.strategies.upper_bound_point import UpperBoundPoint

__all__ = [
    "Alternate",
    "ExpectedImprovement",
    "Explanation",
    "FeasibleUpperBound",
    "HypervolumeUpperBound",
    "InitialDesign",
    "NewParameter",
    "RandomPoint",
    "RepeatOnce",
    "SafeExploration",
    "Strategy",
    "ThompsonPoint",
    "TrustRegion",
    "UpperBoundPoint",
]
