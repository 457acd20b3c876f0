"""``python -m experiments.tuning.heldout``: kbo and other tuners on problems that were never used to develop kbo.

One table has all problems on which the release is measured: functions of COCO of even number with instances from
``FIRST_SEED`` on, with and without whole numbers; learners on data; choices whose options have their own parameters;
constraints. A line of the table is a kind of problem, with the mean rank of each tuner over all runs
(``ranks.mean_ranks``), by the value of its recommended point without noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from experiments import commands
from experiments.commands import Out, Quiet, Verbose, Workers
from experiments.output import tables
from experiments.papers.experiment import Frame, Plan, run, store
from experiments.sweep.cells import Cell
from experiments.tuning import comparison, ranks, suites
from experiments.tuning.tuners import LEFT_OUT, TUNERS

FIRST_SEED = 201
"""The first seed, also the instance of a function; smaller ones were used before."""

CHECKPOINTS = (15, 50, 200)
"""Numbers of trials after which runs are judged."""

NOISES = ("none", "gauss", "gauss-0.5", "gauss-2")

CHEAP = ("kbo", "ngopt", "tpe", "cmaes", "random")
"""Tuners whose runs of 50 trials take at most some CPU seconds."""


@dataclass(frozen=True)
class Part:
    """Problems of one kind: a line of the table for each number of trials.

    Attributes:
        kind: The name of the kind.
        parameters: The number of parameters, as text.
        noise: A key of ``experiments.problems.bbob.NOISES``, or a text about the noise.
        problems: Keys of ``suites.PROBLEMS``.
        trials: Number of trials of a run.
        seeds: Number of runs on each problem, by tuner.
    """

    kind: str
    parameters: str
    noise: str
    problems: Sequence[str]
    trials: int
    seeds: dict[str, int]

    def cells(self, names: Sequence[str]) -> Iterator[Cell]:
        """Yield the runs of the tuners, seed by seed."""
        checkpoints = [number for number in CHECKPOINTS if number <= self.trials]
        for seed in range(max(self.seeds.values())):
            for problem in self.problems:
                for name in names:
                    if seed < self.seeds.get(name, 0):
                        yield comparison.cell(problem, name, FIRST_SEED + seed, checkpoints)


def parts() -> list[Part]:
    """Return all parts of the comparison."""
    return [
        *functions(),
        *long_runs(),
        *whole_numbers(),
        *learners(),
        *choices(),
        *constraints(),
    ]


def functions() -> Iterator[Part]:
    """Yield the functions of COCO with 50 trials."""
    for dim in (2, 3, 5, 10, 20, 40):
        count = 3
        if dim > 10:
            count = 2
        for noise in NOISES:
            seeds = runs(CHEAP, count)
            if dim in (5, 20):
                seeds["gpsampler"] = 1
            if dim == 5 and noise in ("none", "gauss-0.5"):
                seeds |= runs(("qlognei", "ax", "smac"), 1)
            problems = suites.half_of("bbob", "held-out", dim, noise)
            yield Part("functions", str(dim), noise, problems, 50, seeds)


def long_runs() -> Iterator[Part]:
    """Yield some functions of COCO with 200 trials."""
    for dim, count in ((5, 2), (20, 1)):
        for noise in NOISES:
            problems = suites.half_of("bbob", "held-out", dim, noise)
            yield Part("functions", str(dim), noise, problems, 200, runs(CHEAP, count))


def whole_numbers() -> Iterator[Part]:
    """Yield the functions of COCO with whole numbers."""
    for dim in (5, 20):
        for noise in ("none", "gauss", "gauss-0.5"):
            problems = suites.half_of("bbob-mixint", "held-out", dim, noise)
            yield Part("whole numbers", str(dim), noise, problems, 50, runs(CHEAP, 2))


def learners() -> Iterator[Part]:
    """Yield the learners on data."""
    problems = suites.half_of("hpo", "held-out")
    seeds = runs(("kbo", "tpe", "cmaes", "random"), 2)
    yield Part("learners", "3 to 6", "splits of data", problems, 50, seeds)


def choices() -> Iterator[Part]:
    """Yield choices of a function and choices of a learner, whose options have their own parameters."""
    names = ("kbo", "tpe", "cmaes", "random")
    for noise, problems in suites.CHOICES.items():
        yield Part("choices of a function", "11", noise, list(problems), 50, runs(names, 6))
    problems = list(suites.ANY_LEARNER)
    yield Part("choices of a learner", "19", "splits of data", problems, 50, runs(names, 2))


def constraints() -> Iterator[Part]:
    """Yield the functions of COCO with constraints."""
    for dim, problems in suites.CONSTRAINED.items():
        seeds = runs(("kbo", "tpe", "random"), 2)
        seeds["gpsampler"] = 1
        if dim == 5:
            seeds["qlognei"] = 1
        yield Part("constraints", str(dim), "gauss", list(problems), 50, seeds)


def runs(names: Sequence[str], count: int) -> dict[str, int]:
    """Return the number of runs on each problem, the same for each of some tuners."""
    return dict.fromkeys(names, count)


def table(rows: Frame, compared: Sequence[Part]) -> Frame:
    """Return mean ranks: a line for each part and number of trials, a column for each tuner.

    The rank of kbo has the 95% interval of a bootstrap over the problems. Other tuners have the number of runs, if it
    is smaller. The last column says whether kbo is first, or its interval overlaps the interval of the first.
    """
    lines = {}
    for part in compared:
        is_of_part = rows["problem"].isin(part.problems) & rows["name"].isin(list(part.seeds))
        of_part: Any = rows[is_of_part & (rows["last"] == part.trials)]
        for trials, scores in ranks.scores_at(of_part, "value"):
            if trials < part.trials and part.trials > 50:
                continue  # another part has more runs with this number of trials
            lines[part.kind, part.parameters, part.noise, str(trials)] = _line(scores)
    index = ["problems", "parameters", "noise", "trials"]
    shown = pd.DataFrame(lines).T.rename_axis(index).fillna(tables.NONE)
    names = [name for name in TUNERS if name in shown]
    return shown[[*names, "kbo is"]]


def _line(scores: Frame) -> dict[str, str]:
    """Return a line of the table, given the scores by (problem, seed), a column for each tuner."""
    standing = ranks.mean_ranks(scores)
    line = {}
    for name, tuner in standing.iterrows():
        line[str(name)] = f"{tuner['rank']:.2f}"
        n_runs = int(scores[name].notna().sum())
        if name == "kbo":
            line["kbo"] += f" ({tuner['low']:.2f} to {tuner['high']:.2f})"
        elif n_runs < len(scores):
            line[str(name)] += f" [{n_runs}]"
    line["kbo is"] = _verdict(standing)
    return line


def _verdict(standing: Frame) -> str:
    """Return the place of kbo among the tuners: "first", "level with ..." or "behind ..."."""
    if "kbo" not in standing.index:
        return tables.NONE
    first = standing["rank"].idxmin()
    if first == "kbo":
        return "first"
    overlaps = standing["low"]["kbo"] <= standing["high"][first]
    if overlaps:
        return f"level with {first}"
    return f"behind {first}"


def cpu_seconds(rows: Frame) -> Frame:
    """Return mean CPU seconds of whole runs: a line for each tuner, a column for each number of trials."""
    return ranks.cpu_seconds(rows[rows["trials"] == rows["last"]])


def plan(names: Sequence[str], kinds: Sequence[str]) -> Plan:
    """Return the comparison of some tuners on some kinds of problems."""
    compared = [part for part in parts() if part.kind in kinds]
    cells: list[Cell] = []
    for part in compared:
        cells += part.cells(names)
    cells = list(dict.fromkeys(cells))  # parts have runs in common
    last = {cell.key: max(cell.arguments["checkpoints"]) for cell in cells}

    def shown(rows: Frame) -> Frame:
        return table(rows, compared)

    return Plan(
        "Mean rank by the value without noise of the recommended point, on held-out problems; in brackets the 95% "
        f"interval of a bootstrap over the problems, or the number of runs where it is smaller. {LEFT_OUT}",
        {"": shown, "CPU seconds of whole runs": cpu_seconds},
        {".md": store(shown), ".csv": store(lambda rows: rows)},
        cells,
        prepare=lambda rows: rows.assign(last=rows["cell"].map(last)),
    )


_KINDS = tuple(dict.fromkeys(part.kind for part in parts()))


def heldout(
    tuners: Annotated[
        str, typer.Option(help=f"Of {', '.join(TUNERS)}; with commas between.")
    ] = "kbo,ngopt,tpe,cmaes,random,gpsampler,qlognei,ax,smac",
    kinds: Annotated[
        str, typer.Option(help=f"Of {', '.join(_KINDS)}; with commas between.")
    ] = ",".join(_KINDS),
    workers: Workers = None,
    out: Out = Path("kbo-runs"),
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Compare kbo with other tuners on all held-out problems.

    Finished runs are kept: the same command continues after Ctrl-C. If the code of kbo has changed, its runs are
    repeated.

    Example:  python -m experiments.tuning.heldout --tuners kbo,tpe,random --kinds functions
    """
    commands.apply_verbosity(quiet, verbose)
    names = commands.names_in("tuners", tuners, TUNERS)
    chosen = commands.names_in("kinds", kinds, _KINDS)
    processes = commands.engine_of("processes", None, workers)
    folder = commands.folder(out / "heldout")
    with commands.shown():
        typer.echo(
            run(lambda quick: plan(names, chosen), "heldout", folder, False, processes, not quiet)
        )


def main() -> None:
    """Run the command."""
    commands.run(heldout)


if __name__ == "__main__":
    main()
