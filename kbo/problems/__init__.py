"""Bandit problems, noisy test functions and tuning tasks; no algorithms."""

from kbo.problems.base import Bandit, TuningProblem
from kbo.problems.classification import ClassificationBandit
from kbo.problems.contextual import Bump, Chessboard, ContextualBandit, StepDiagonal
from kbo.problems.gaussian_process import GaussianProcessBandit
from kbo.problems.graphs import GraphBandit, random_graphs, shortest_path_features
from kbo.problems.himmelblau import HimmelblauBandit
from kbo.problems.learners import DiabetesSVR, DigitsMLP
from kbo.problems.rkhs import RKHSBandit, stationary_kernel
from kbo.problems.streaming import StreamingBandit
from kbo.problems.synthetic import GridBandit, NoisyFunction, ackley, branin, hartmann6, levy
from kbo.problems.table import TuningTable

TUNING = {
    "digits": DigitsMLP,
    "diabetes": DiabetesSVR,
    "branin": branin,
    "hartmann6": hartmann6,
    "ackley": ackley,
    "levy": levy,
    "arms": GridBandit,
}
"""Tuning problems by name; each takes a ``seed``."""

BANDITS = {
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
    "TUNING",
    "Bandit",
    "Bump",
    "Chessboard",
    "ClassificationBandit",
    "ContextualBandit",
    "DiabetesSVR",
    "DigitsMLP",
    "GaussianProcessBandit",
    "GraphBandit",
    "GridBandit",
    "HimmelblauBandit",
    "NoisyFunction",
    "RKHSBandit",
    "StepDiagonal",
    "StreamingBandit",
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
