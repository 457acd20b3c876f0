"""The papers whose experiments kbo repeats. A new paper is one module with a ``PAPER``, and one line here."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kbo.errors import InvalidInput
from kbo.experiments.sweep.runner import Workers

Experiment = Callable[[Path, bool, Workers, bool], str]
"""``(folder, quick, workers, progress) -> text to print``.

Cells go to ``folder / "cells"``, which all experiments of a paper share, tables and pictures to ``folder``. ``quick``
means tiny sizes, to see that it works. ``workers`` and ``progress`` are for ``kbo.experiments.sweep.runner.sweep``. An
experiment with failed cells returns the text of the others through ``Sweep.checked``.
"""

PAPERS = {
    "mixture": "kbo.experiments.papers.mixture_studies",
    "sketching": "kbo.experiments.papers.sketching_studies",
    "streaming": "kbo.experiments.papers.streaming_studies",
    "chaining": "kbo.experiments.papers.chaining_studies",
    "tuning": "kbo.experiments.tuning.comparison",
}
"""Name of a paper, or "tuning", a comparison of our own -> the module with its whole ``PAPER``, studies included."""


@dataclass(frozen=True)
class Paper:
    """A paper and its experiments.

    Attributes:
        title: Authors, title, year.
        tables: Its tables, by their numbers.
        figures: Its figures, by their numbers.
        studies: Experiments beyond the paper, by name.
    """

    title: str
    tables: Mapping[int, Experiment]
    figures: Mapping[int, Experiment]
    studies: Mapping[str, Experiment] = field(default_factory=dict)

    def contents(self) -> str:
        """The experiments in words."""
        lines = [
            f"--{what} {', '.join(map(str, experiments))}"
            for what, experiments in (("table", self.tables), ("figure", self.figures), ("study", self.studies))
            if experiments
        ]
        return "\n".join([self.title, *(f"  {line}" for line in lines)])

    def experiment(self, what: str, name: Any) -> Experiment:
        """The experiment that is called ``name`` among the tables, figures or studies.

        Args:
            what: "table", "figure" or "study".
            name: Number or name.

        Raises:
            InvalidInput: There is none; the message lists those that there are.
        """
        known: Mapping[Any, Experiment] = {"table": self.tables, "figure": self.figures, "study": self.studies}[what]
        if name not in known:
            there_are = ", ".join(map(str, known)) or "none yet"
            raise InvalidInput(f"no {what} {name} in this paper; known: {there_are}.{_near(name, known)}")
        return known[name]


def paper(name: str) -> Paper:
    """The paper of that name.

    Raises:
        InvalidInput: There is none; the message lists those that there are.
    """
    if name not in PAPERS:
        raise InvalidInput(f"unknown paper {name!r}; known: {', '.join(PAPERS)}.{_near(name, PAPERS)}")
    return importlib.import_module(PAPERS[name]).PAPER


def _near(name: Any, known: Mapping[Any, Any]) -> str:
    near = difflib.get_close_matches(str(name), [str(k) for k in known if isinstance(k, str)], n=1)
    return f" Did you mean {near[0]!r}?" if near else ""
