"""Problems to solve: bandits of known norm, noisy test functions and real tuning tasks. No algorithms here."""

from kbo.problems.base import TuningProblem
from kbo.problems.digits import DigitsMLP
from kbo.problems.rkhs import Bandit, RKHSBandit, stationary_kernel
from kbo.problems.synthetic import NoisyFunction, ackley, branin, hartmann6

TUNING = {"digits": DigitsMLP, "branin": branin, "hartmann6": hartmann6, "ackley": ackley}
"""Tuning problems by name; each takes a ``seed``."""

__all__ = [
    "TUNING",
    "Bandit",
    "DigitsMLP",
    "NoisyFunction",
    "RKHSBandit",
    "TuningProblem",
    "ackley",
    "branin",
    "hartmann6",
    "stationary_kernel",
]
