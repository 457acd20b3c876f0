"""Bandit problems, noisy test functions and tuning tasks; no algorithms."""

import functools
from collections.abc import Callable

from kbo.problems.base import Bandit, TuningProblem
from kbo.problems.bbob import BBOB
from kbo.problems.constrained import CONSTRAINED, ConstrainedFunction
from kbo.problems.contextual import Bump, Chessboard, ClassificationBandit, ContextualBandit, StepDiagonal
from kbo.problems.curves import TrainingCurves
from kbo.problems.gaussian_process import GaussianProcessBandit
from kbo.problems.graphs import GraphBandit, random_graphs, shortest_path_features
from kbo.problems.himmelblau import HimmelblauBandit
from kbo.problems.learners import AnyLearner, DiabetesSVR, DigitsMLP, LearnerOnData
from kbo.problems.rkhs import RKHSBandit, StreamingBandit, stationary_kernel
from kbo.problems.table import TuningTable
from kbo.problems.tuning import GridBandit, NoisyFunction, TreeFunction, ackley, branin, hartmann6, levy

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
    "Bandit",
    "Bump",
    "Chessboard",
    "ClassificationBandit",
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
