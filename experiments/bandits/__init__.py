"""Methods on bandit problems: ``runs`` has a run as a cell, ``compare`` the regret of some methods.

The command is ``python -m experiments.bandits``; ``python -m experiments.bandits.redraw`` draws stored rows again.
"""

from experiments.bandits.runs import (
    DICTIONARIES,
    NOISE,
    PROBLEMS,
    BanditMethod,
    BanditProblem,
    cells,
)

__all__ = ["DICTIONARIES", "NOISE", "PROBLEMS", "BanditMethod", "BanditProblem", "cells"]
