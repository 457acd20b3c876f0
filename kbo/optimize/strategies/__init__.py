"""Strategies: each proposes the parameters of the next trial, or leaves the trial to the next strategy.

* ``strategy.py``: the interface, and how a list of strategies is tried; ``explanation.py``: why a trial was chosen
* first trials: ``initial_design.py``, ``repeat_once.py``, ``random_point.py``; after a change of the space:
  ``new_parameter.py``
* one objective: ``upper_bound_point.py``, ``thompson_point.py``, ``trust_region.py``, ``expected_improvement.py``
* limits: ``feasible_upper_bound.py``, ``safe_exploration.py``; several objectives: ``hypervolume_bound.py``
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
