"""The papers whose experiments kbo repeats. A new paper is one module with a ``PAPER``, and one line here."""

from __future__ import annotations

import importlib

from experiments.papers.experiment import Paper, entry

PAPERS = {
    "mixture": "experiments.papers.mixture",
    "sketching": "experiments.papers.sketching",
    "streaming": "experiments.papers.streaming",
    "chaining": "experiments.papers.chaining",
    "tuning": "experiments.tuning.comparison",
}
"""Name of a paper, or "tuning", a comparison of our own -> the module with its ``PAPER``."""


def paper(name: str) -> Paper:
    """The paper of that name.

    Raises:
        InvalidInput: There is none; the message lists those that there are.
    """
    return importlib.import_module(entry(PAPERS, "paper", name)).PAPER
