"""Bandit problems, noisy test functions and tuning tasks; no algorithms.

They raise InvalidInput for arguments out of range, and draw from their own generators, which the argument ``seed``
determines.
"""

import functools
from collections.abc import Callable

from experiments.problems.base import TuningProblem
from experiments.problems.bbob import BBOB
from experiments.problems.bbob_constrained import ConstrainedBBOB
from experiments.problems.choice_of_function import ChoiceOfFunction
from experiments.problems.constrained import CONSTRAINED, ConstrainedFunction
from experiments.problems.contextual import (
    Bump,
    Chessboard,
    ClassificationBandit,
    ContextualBandit,
    StepDiagonal,
)
from experiments.problems.curves import TrainingCurves
from experiments.problems.gaussian_process import GaussianProcessBandit
from experiments.problems.graphs import GraphBandit, random_graphs, shortest_path_features
from experiments.problems.himmelblau import HimmelblauBandit
from experiments.problems.learners import AnyLearner, DiabetesSVR, DigitsMLP, LearnerOnData
from experiments.problems.rkhs import RKHSBandit, StreamingBandit, stationary_kernel
from experiments.problems.table import TuningTable
from experiments.problems.tuning import (
    GridBandit,
    NoisyFunction,
    TreeFunction,
    ackley,
    branin,
    hartmann6,
    levy,
)
from kbo.bandit.problem import Bandit

TUNING: dict[str, Callable[..., TuningProblem]] = {
    "digits": DigitsMLP,
    "diabetes": DiabetesSVR,
    "branin": branin,
    "hartmann6": hartmann6,
    "ackley": ackley,
    "levy": levy,
    "arms": GridBandit,
    "training": functools.partial(TrainingCurves, "network-digits"),
    "learners": AnyLearner,
    "tree": TreeFunction,
}
"""Tuning problems by name; each takes a ``seed``."""

BANDITS: dict[str, type[Bandit]] = {
    "bump": Bump,
    "chessboard": Chessboard,
    "step-diagonal": StepDiagonal,
    "streaming": StreamingBandit,
    "digits-bandit": ClassificationBandit,
    "tuning-table": TuningTable,
    "gp-draw": GaussianProcessBandit,
    "himmelblau": HimmelblauBandit,
    "graphs": GraphBandit,
}
"""Bandit problems by name; each takes a ``seed``."""

__all__ = [
    "BANDITS",
    "BBOB",
    "CONSTRAINED",
    "TUNING",
    "AnyLearner",
    "Bump",
    "Chessboard",
    "ChoiceOfFunction",
    "ClassificationBandit",
    "ConstrainedBBOB",
    "ConstrainedFunction",
    "ContextualBandit",
    "DiabetesSVR",
    "DigitsMLP",
    "GaussianProcessBandit",
    "GraphBandit",
    "GridBandit",
    "HimmelblauBandit",
    "LearnerOnData",
    "NoisyFunction",
    "RKHSBandit",
    "StepDiagonal",
    "StreamingBandit",
    "TrainingCurves",
    "TreeFunction",
    "TuningProblem",
    "TuningTable",
    "ackley",
    "branin",
    "hartmann6",
    "levy",
    "random_graphs",
    "shortest_path_features",
    "stationary_kernel",
]
