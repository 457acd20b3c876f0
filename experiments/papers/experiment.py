"""An experiment as data, and parts that experiments of several papers use."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiments.output import lines, tables
from experiments.sweep.cells import Cell, Rows, concatenate
from experiments.sweep.runner import Workers, sweep
from kbo.bandit import Bandit, Method
from kbo.confidence import Confidence
from kbo.errors import InvalidInput
from kbo.regression import Posterior

Frame = Any
"""A ``pandas.DataFrame``. It is ``Any``, since a type checker cannot follow the annotations of pandas."""

QUICK = "(--quick: tiny sizes, so the figures are not those of the paper)"

TOLERANCE = 1e-9
"""Largest rounding error that a study does not count as a failure of a bound."""


@dataclass(frozen=True)
class Plan:
    """The cells of an experiment, and functions that make tables and files of their rows.

    Attributes:
        title: Heading of the printed text.
        tables: By heading, a function from rows to a table to print.
        files: By the end of a file name, such as ".png", a function of rows and path that writes the file.
        cells: The cells; empty if everything is computed when the plan is made.
        alone: Further cells that take much memory; they run one at a time.
        prepare: A function that is applied to the rows first.
    """

    title: str
    tables: Mapping[str, Callable[[Frame], Frame]] = field(default_factory=dict)
    files: Mapping[str, Callable[[Frame, Path], object]] = field(default_factory=dict)
    cells: Sequence[Cell] = ()
    alone: Sequence[Cell] = ()
    prepare: Callable[[Frame], Frame] = lambda rows: rows


Experiment = Callable[[bool], Plan]
"""A function of ``quick`` that returns the plan; ``quick`` means tiny sizes, to test that it works."""


@dataclass(frozen=True)
class Paper:
    """A paper and its experiments, which share their cells.

    Attributes:
        title: Authors, title, year.
        tables: The tables, by number.
        figures: The figures, by number.
        studies: Experiments that are not in the paper, by name.
    """

    title: str
    tables: Mapping[int, Experiment] = field(default_factory=dict)
    figures: Mapping[int, Experiment] = field(default_factory=dict)
    studies: Mapping[str, Experiment] = field(default_factory=dict)

    @property
    def kinds(self) -> dict[str, Mapping[Any, Experiment]]:
        """The experiments by "table", "figure" and "study"."""
        return {"table": self.tables, "figure": self.figures, "study": self.studies}

    def contents(self) -> str:
        """A list of the experiments, as text."""
        lines = [self.title]
        for kind, experiments in self.kinds.items():
            if experiments:
                lines.append(f"  --{kind} {', '.join(map(str, experiments))}")
        return "\n".join(lines)

    def experiment(self, kind: str, name: Any) -> Callable[[Path, bool, Workers, bool], str]:
        """The experiment with a number or name in ``kinds[kind]``: ``run`` without its first two arguments."""
        stem = f"{kind}{name}"
        if kind == "study":
            stem = name
        return partial(run, entry(self.kinds[kind], kind, name), stem)


def entry(entries: Mapping[Any, Any], kind: str, name: Any) -> Any:
    """The entry with a name.

    Raises:
        InvalidInput: There is no such entry; the message lists all entries.
    """
    if name in entries:
        return entries[name]
    names = list(map(str, entries))
    listed = ", ".join(names) or "none yet"
    message = f"no {kind} {name}; known: {listed}."
    if isinstance(name, str):
        for similar in difflib.get_close_matches(name, names, n=1):
            message += f" Did you mean {similar!r}?"
    raise InvalidInput(message)


def run(
    experiment: Experiment, stem: str, folder: Path, quick: bool, workers: Workers, progress: bool
) -> str:
    """Run the cells that are not done, write the files, and return the text to print.

    Args:
        experiment: The experiment.
        stem: Beginning of the names of the files.
        folder: The folder of the files; finished cells go to ``folder / "cells"``.
        quick: Whether sizes are tiny.
        workers: Number of processes or an engine, as for ``experiments.sweep.runner.sweep``.
        progress: Whether a progress bar is shown.

    Raises:
        CellsFailed: Some cells failed; the exception has the text for the others.
    """
    plan = experiment(quick)
    sweeps = []
    if plan.cells:
        sweeps.append(sweep(plan.cells, folder / "cells", workers=workers, progress=progress))
    if plan.alone:
        sweeps.append(sweep(plan.alone, folder / "cells", workers=1, progress=progress))
    rows = concatenate(part.rows for part in sweeps)
    text = ""
    if len(rows):
        text = _results(plan, plan.prepare(rows), folder / stem, quick)
    elif not sweeps:
        text = _results(plan, rows, folder / stem, quick)
    for part in sweeps:
        text = part.checked(text)
    return text


def _results(plan: Plan, rows: Frame, stem: Path, quick: bool) -> str:
    """Write the files of a plan, and return its tables and the paths of the files as text."""
    files = []
    for ending, write in plan.files.items():
        path = stem.with_name(f"{stem.name}{ending}")
        write(rows, path)
        kind = "table"
        if path.suffix == ".png":
            kind = "picture"
        files.append(f"{kind}  {path}")
    lines = [plan.title]
    for heading, table in plan.tables.items():
        lines += [heading, tables.text(table(rows))]
    lines.append("")
    if quick and plan.cells:
        lines.append(QUICK)
    return "\n".join([*lines, *files])


def store(table: Callable[[Frame], Frame]) -> Callable[[Frame, Path], object]:
    """A function that writes the table of the rows as CSV or Markdown, by the suffix of the path."""

    def write(rows: Frame, path: Path) -> None:
        made = table(rows)
        if path.suffix == ".csv":
            text = made.to_csv(index=made.index.names != [None])
        else:
            text = tables.markdown(made) + "\n"
        path.write_text(text, encoding="utf-8")

    return write


def cells_of(
    function: Callable[..., Rows],
    seeds: Sequence[int],
    arguments: Sequence[Mapping[str, Any]] = ({},),
    *,
    at_once: int = 1,
) -> list[Cell]:
    """Cells of a function of ``seed`` and arguments, ordered by seed, so that an unfinished sweep is balanced.

    Args:
        function: A function at the top level of a module that returns rows.
        seeds: The seeds.
        arguments: The other arguments; each of them is combined with each seed.
        at_once: Number of seeds in a cell.
    """
    name = f"{function.__module__}:{function.__name__}"
    cells = []
    for start in range(0, len(seeds), at_once):
        some = list(seeds[start : start + at_once])
        for others in arguments:
            words = " ".join(map(str, others.values()))
            label = f"{function.__name__} {words} seed{some[0]}"
            definition = {"function": name, "seeds": some, **others}
            cells.append(Cell(f"{__name__}:rows_of_seeds", definition, label))
    return cells


def rows_of_seeds(function: str, seeds: Sequence[int], **arguments: Any) -> Rows:
    """Rows of a function for each of the seeds."""
    measure = Cell(function, arguments, function).resolve()
    rows = []
    for seed in seeds:
        rows += [{"seed": seed, **row} for row in measure(seed=seed, **arguments)]
    return rows


def plan_of_regret(
    title: str,
    cells: Sequence[Cell],
    prepare: Callable[[Frame], Frame] = lambda rows: rows,
    published: tables.Published | None = None,
    draw: Callable[..., None] = lines.against_rounds,
    **look: Any,
) -> Plan:
    """Runs of bandits as a picture, and as a table of regret, anchors and time at the end, by ``problem``."""
    table = partial(tables.final, published=published)
    picture = partial(draw, title=title, **look)
    return Plan(title, {"": table}, {".png": picture}, cells, prepare=prepare)


def plan_of_table(
    title: str,
    cells: Sequence[Cell],
    prepare: Callable[[Frame], Frame],
    published: tables.Published,
) -> Plan:
    """Runs of bandits as a table of regret beside published values, by ``problem``."""
    table = partial(tables.final, published=published)
    summary = partial(tables.summary, published=published)
    files = {".csv": store(summary), ".md": store(lambda rows: tables.crossed(summary(rows)))}
    return Plan(title, {"": table}, files, cells, prepare=prepare)


def intervals(
    methods: Mapping[str, Method], X: Tensor, y: Tensor, grid: Tensor
) -> dict[str, lines.Interval]:
    """Lower and upper bounds [g] by every method at the grid [g d], after the observations X [n d] and y [n]."""
    found = {}
    for name, method in methods.items():
        assert method.confidence is not None
        state = method.state()
        state.update(X, y)
        found[name] = method.confidence.interval(state, grid)
    return found


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


def misses(
    confidence: Confidence, state: Posterior, X: Tensor, truth: Tensor
) -> tuple[Tensor, Tensor]:
    """Distance [n] between the function and the centre of the bounds at X [n d], and half width [n] of the bounds."""
    lower, upper = confidence.interval(state, X)
    return (truth - (lower + upper) / 2).abs(), (upper - lower) / 2
