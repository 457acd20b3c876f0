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
"""The module with the ``PAPER``, by the name of a paper; "tuning" is a comparison of kbo and no paper."""


def paper(name: str) -> Paper:
    """The paper with a name.

    Raises:
        InvalidInput: There is no such paper; the message lists all papers.
    """
    return importlib.import_module(entry(PAPERS, "paper", name)).PAPER
