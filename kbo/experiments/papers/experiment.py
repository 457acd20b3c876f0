"""An experiment as data, and the parts that experiments of several papers share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kbo.confidence import Confidence
from kbo.experiments.draw import tables
from kbo.experiments.sweep.cells import Cell, concatenate
from kbo.experiments.sweep.runner import Workers, sweep
from kbo.problems import Bandit
from kbo.recipes import Method
from kbo.regression import Posterior

Frame = Any
"""A ``pandas.DataFrame``; its own annotations are too wide for a type checker to follow its results."""

QUICK = "(--quick: tiny sizes, so the figures are not those of the paper)"

TOLERANCE = 1e-9
"""Rounding that a study does not count as a failure of a bound."""


@dataclass(frozen=True)
class Plan:
    """The cells of an experiment, and the tables and files that are made of their rows.

    Attributes:
        title: Heading of the printed text.
        tables: Heading -> makes a table to print of the rows.
        files: Ending of a name, such as ".png" -> writes the file, given the rows and the path.
        cells: The cells; there are none where everything is computed when the plan is made.
        alone: Further cells that take much memory: one at a time.
        prepare: Applied to the rows first.
    """

    title: str
    tables: Mapping[str, Callable[[Frame], Frame]] = field(default_factory=dict)
    files: Mapping[str, Callable[[Frame, Path], object]] = field(default_factory=dict)
    cells: Sequence[Cell] = ()
    alone: Sequence[Cell] = ()
    prepare: Callable[[Frame], Frame] = lambda rows: rows


@dataclass(frozen=True)
class Experiment:
    """An experiment that can be run, an ``Experiment`` of ``kbo.experiments.papers.catalogue``.

    Attributes:
        name: Stem of the names of its files.
        plan: ``quick`` -> what to do; ``quick`` means tiny sizes.
    """

    name: str
    plan: Callable[[bool], Plan]

    def __call__(self, folder: Path, quick: bool, workers: Workers, progress: bool) -> str:
        """Run the cells that are not done, write the files, and return the text to print.

        Raises:
            CellsFailed: Some cells failed; it has the text for the others.
        """
        plan = self.plan(quick)
        found = [
            sweep(cells, folder / "cells", workers=at_once, progress=progress)
            for cells, at_once in ((plan.cells, workers), (plan.alone, 1))
            if cells
        ]
        rows = concatenate(part.rows for part in found)
        text = self._show(plan, rows, folder, quick) if len(rows) or not found else ""
        for part in found:
            text = part.checked(text)
        return text

    def _show(self, plan: Plan, rows: Frame, folder: Path, quick: bool) -> str:
        rows, files = plan.prepare(rows) if len(rows) else rows, []
        for ending, write in plan.files.items():
            path = folder / f"{self.name}{ending}"
            write(rows, path)
            files.append(f"{'picture' if path.suffix == '.png' else 'table'}  {path}")
        shown = [f"{heading}\n{tables.text(table(rows))}" for heading, table in plan.tables.items()]
        return "\n".join([plan.title, *shown, "", *[QUICK] * bool(quick and plan.cells), *files])


def experiments(**plans: Callable[[bool], Plan]) -> dict[str, Experiment]:
    """Experiments by name."""
    return {name: Experiment(name, plan) for name, plan in plans.items()}


def figures(plans: Mapping[int, Callable[[bool], Plan]], kind: str = "figure") -> dict[int, Experiment]:
    """Experiments by the number of a figure or table."""
    return {number: Experiment(f"{kind}{number}", plan) for number, plan in plans.items()}


def by(rows: Frame, column: str) -> dict[str, Frame]:
    """The rows by the values of a column, as panels of a picture."""
    return {str(value): part for value, part in rows.groupby(column, sort=False)}


def store(table: Callable[[Frame], Frame]) -> Callable[[Frame, Path], object]:
    """Write the table of the rows as CSV or Markdown, by the ending of the path."""

    def write(rows: Frame, path: Path) -> None:
        made = table(rows)
        text = tables.markdown(made) + "\n" if path.suffix == ".md" else made.to_csv(index=False)
        path.write_text(text, encoding="utf-8")

    return write


def cells_of_runs(
    function: str, first: int, runs: int, label: str, *, at_once: int = 20, **arguments: Any
) -> list[Cell]:
    """Cells of a function of ``first``, ``runs`` and more arguments, for runs with seeds from ``first``."""
    size = min(runs, at_once)
    return [
        Cell(function, {**arguments, "first": start, "runs": size}, f"{label} {start}")
        for start in range(first, first + runs, size)
    ]


def rounds_of(
    method: Method, environment: Bandit, state: Posterior, rounds: int
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Rounds 1, 2, ... of a bandit: the chosen arm [1 d] and its reward [1], after the update of the posterior."""
    generator = torch.Generator().manual_seed(0)
    for t in range(1, rounds + 1):
        arms = environment.arms()
        index = method.choose(state, arms, generator)
        x = arms[index : index + 1]
        y = environment.observe(x)
        state.update(x, y)
        yield t, x, y


def misses(confidence: Confidence, state: Posterior, X: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """Distance [n] of the function from the centre of the bounds at X [n d], and half width [n] of the bounds."""
    lower, upper = confidence.interval(state, X)
    return (truth - (lower + upper) / 2).abs(), (upper - lower) / 2
