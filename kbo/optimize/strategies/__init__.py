"""Strategies: each proposes the parameters of the next trial, or leaves the trial to the next strategy.

* ``strategy.py``: the interface, and how a list of strategies is tried; ``explanation.py``: why a trial was chosen
* ``first_trials.py``: without a bound; ``new_parameter.py``: after a change of the space
* ``upper_bounds.py``, ``without_noise.py``: for one or several objectives, under limits, and without noise
* ``safe_exploration.py``: for ``kbo.Safe``
"""

from kbo.optimize.strategies.explanation import Explanation
from kbo.optimize.strategies.first_trials import InitialDesign, RandomPoint, Repetition
from kbo.optimize.strategies.new_parameter import NewParameter
from kbo.optimize.strategies.safe_exploration import SafeExploration
from kbo.optimize.strategies.strategy import Alternate, Strategy
from kbo.optimize.strategies.upper_bounds import (
    FeasibleUpperBound,
    HypervolumeUpperBound,
    ThompsonPoint,
    UpperBoundPoint,
)
from kbo.optimize.strategies.without_noise import ExpectedImprovement, TrustRegion

__all__ = [
    "Alternate",
    "ExpectedImprovement",
    "Explanation",
    "FeasibleUpperBound",
    "HypervolumeUpperBound",
    "InitialDesign",
    "NewParameter",
    "RandomPoint",
    "Repetition",
    "SafeExploration",
    "Strategy",
    "ThompsonPoint",
    "TrustRegion",
    "UpperBoundPoint",
]
