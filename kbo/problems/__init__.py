"""Problems to solve: bandits, noisy test functions and real tuning tasks. No algorithms here."""

from kbo.problems.base import Bandit, TuningProblem
from kbo.problems.classification import ClassificationBandit
from kbo.problems.contextual import Bump, Chessboard, ContextualBandit, StepDiagonal
from kbo.problems.digits import DigitsMLP
from kbo.problems.rkhs import RKHSBandit, stationary_kernel
from kbo.problems.streaming import StreamingBandit
from kbo.problems.synthetic import NoisyFunction, ackley, branin, hartmann6
from kbo.problems.table import TuningTable

TUNING = {"digits": DigitsMLP, "branin": branin, "hartmann6": hartmann6, "ackley": ackley}
"""Tuning problems by name; each takes a ``seed``."""

BANDITS = {
    "bump": Bump,
    "chessboard": Chessboard,
    "step-diagonal": StepDiagonal,
    "streaming": StreamingBandit,
    "digits-bandit": ClassificationBandit,
    "tuning-table": TuningTable,
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
    "DigitsMLP",
    "NoisyFunction",
    "RKHSBandit",
    "StepDiagonal",
    "StreamingBandit",
    "TuningProblem",
    "TuningTable",
    "ackley",
    "branin",
    "hartmann6",
    "stationary_kernel",
]
