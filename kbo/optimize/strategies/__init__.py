"""Strategies: each proposes the parameters of the next trial, or leaves the trial to the next strategy.

* ``strategy.py``: the interface, and how a list of strategies is tried; ``explanation.py``: why a trial was chosen
* ``first_trials.py``: without a bound; ``upper_bounds.py``: for one or several objectives, also under limits
* ``without_noise.py``: for objectives without noise
* ``safe_exploration.py``: for ``kbo.Safe``
"""

from kbo.optimize.strategies.explanation import Explanation
from kbo.optimize.strategies.first_trials import InitialDesign, RandomPoint, Repetition
from kbo.optimize.strategies.safe_exploration import SafeExploration
from kbo.optimize.strategies.strategy import Alternate, Strategy
from kbo.optimize.strategies.upper_bounds import (
    FeasibleUpperBound,
    HypervolumeUpperBound,
    NewParameter,
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
