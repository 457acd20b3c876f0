"""Methods on the same problems: a table and a picture of their regret."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.bandits import BanditMethod, BanditProblem
from experiments.output import lines
from experiments.sweep.cells import concatenate, read_rows
from experiments.sweep.runner import Workers, sweep
from kbo.bandit.method import Method
from kbo.confidence import EKUCB, Chaining
from kbo.errors import InvalidInput

if TYPE_CHECKING:
    import pandas as pd

RESULTS = {
    "cell",
    "seed",
    "round",
    "arm",
    "regret",
    "cumulative",
    "best",
    "cpu_seconds",
    "m",
    "gap",
    "simple_regret",
}
"""Columns of rows with measured values, or with numbers of runs."""

_WITHIN_A_PROBLEM = {*RESULTS, "method", "recipe", "multiplier", "noise_bounds", "every"}


def compare(
    problem: BanditProblem,
    methods: Sequence[BanditMethod],
    seeds: int,
    out: Path,
    *,
    workers: Workers = None,
    progress: bool = True,
) -> str:
    """Run every method on the problems of seeds 0, 1, ...

    Args:
        problem: The problem and its rounds.
        methods: The methods and their options, with equal ridges and multipliers.
        seeds: Number of seeds.
        out: The folder of results: rows in OUT/NAME.parquet, the picture in OUT/NAME.png, and finished runs in
            OUT/NAME/, where a later call with more methods or seeds finds them. NAME describes the problem.
        workers: Number of processes or an engine, as for ``experiments.sweep.runner.sweep``.
        progress: Whether a progress bar is shown.

    Returns:
        A text with regret, guarantees and the paths of the files.

    Raises:
        CellsFailed: Some runs failed; the exception has the text for the others.
    """
    environment = problem.environment(0)
    if problem.first is not None and not 0 <= problem.first < environment.n_arms:
        raise InvalidInput(
            f"first must be the index of an arm, 0 to {environment.n_arms - 1}, got {problem.first}."
        )
    # Methods are made before the work begins, so that a mistake is found at once.
    promises = {method.method: promise(problem.make(method)) for method in methods}
    name = f"{problem.label}{methods[0].settings}"
    stem = out / f"run-{name.replace(' ', '-').replace('=', '')}"
    runs = [problem.cell(method, seed) for method in methods for seed in range(seeds)]
    found = sweep(runs, stem, workers=workers, progress=progress)
    if found.rows.empty:
        return found.checked("")
    title = f"{name}, {seeds} seeds"
    table_file = stem.with_name(f"{stem.name}.parquet")
    picture_file = stem.with_name(f"{stem.name}.png")
    found.rows.to_parquet(table_file)
    lines.regret(found.rows, picture_file, title=title)
    text = [f"cumulative regret: {title}", regret_table(found.rows, problem.rounds)]
    text += [f"{method}: {words}" for method, words in promises.items()]
    if any(method.uses_norm_bound for method in methods) and not environment.norm_is_known:
        text.append(
            f"The norm bound of {problem.problem} is nominal: what is promised above may not hold on it."
        )
    text += [f"rows     {table_file}", f"picture  {picture_file}"]
    return found.checked("\n".join(text))


def regret_table(rows: pd.DataFrame, rounds: int) -> str:
    """Return a table of the cumulative regret after the last round and the CPU seconds, a line for each method."""
    of_method = rows[rows["round"] == rounds].groupby("method", sort=False)
    table = of_method["cumulative"].agg(["mean", "std", "min", "max"])
    table["cpu_seconds"] = of_method["cpu_seconds"].mean()
    if "m" in rows:
        table["anchors"] = of_method["m"].mean()
    one_decimal: Any = "{:.1f}".format
    return table.to_string(float_format=one_decimal, na_rep="-")


def promise(method: Method) -> str:
    """Return the guarantee of the bounds of a method, as text."""
    if method.confidence is None:
        return "no bound"
    if isinstance(method.confidence, Chaining) and not method.confidence.rigorous:
        return "ranks points and bounds nothing"
    state = method.state()
    guarantee = method.confidence.guarantee_on(state)
    if guarantee is None:
        return "a bound without a guarantee"
    if state.anchors is not None and isinstance(method.confidence, EKUCB):
        projection = f"{method.confidence.projection:g}"
        return (
            f"{guarantee}, as long as the sketch misses at most {projection} of the kernel matrix"
        )
    return guarantee


def by_problem(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the rows of each problem, by the settings in which the problems differ; "" if there is one problem."""
    different = [
        name for name in rows if name not in _WITHIN_A_PROBLEM and len(rows[name].unique()) > 1
    ]
    if not different:
        return {"": rows}
    problems = {}
    for _, part in rows.groupby(different, sort=False, dropna=False):
        settings = (
            part[different].iloc[0].dropna()
        )  # a missing setting is the same as in the other problems
        problems[", ".join(f"{name} {value}" for name, value in settings.items())] = part
    return problems


def redraw(path: Path, picture: Path) -> None:
    """Draw the regret in stored rows, a panel for each problem.

    Args:
        path: A parquet file of ``compare``, or a folder of finished runs.
        picture: The path of the PNG.

    Raises:
        InvalidInput: There is no such file, or the folder has no finished runs.
    """
    problems = by_problem(read_rows(path).dropna(subset="cumulative"))
    if len(problems) == 1:
        lines.regret(*problems.values(), picture, title=path.name)
        return
    rows = concatenate(
        part.assign(panel=textwrap.fill(name, 32)) for name, part in problems.items()
    )
    lines.against_rounds(rows, picture, title=path.name, panel="panel")
