"""Methods on bandit problems, by their regret.

``runs``: a run of a method as a cell. ``methods`` and ``elimination``: methods of papers that only experiments use.
``compare``: table and picture of the regret of several methods. ``redraw``: the picture of stored rows.

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
