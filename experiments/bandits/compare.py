"""Methods on the same problems: a table and a picture of their regret."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from experiments import lines
from experiments.bandits import BanditMethod, BanditProblem
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
"""Columns of rows that are measured, or number runs."""

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
        methods: Named methods and their options; equal ridges and multipliers.
        seeds: Number of seeds.
        out: The rows go to OUT/NAME.parquet, the picture to OUT/NAME.png, and finished runs to OUT/NAME/, where a later
            call with more methods or seeds finds them. NAME describes the problem.
        workers: As for ``experiments.sweep.runner.sweep``.
        progress: Show a progress bar.

    Returns:
        Regret, guarantees and where the files are, to print.

    Raises:
        CellsFailed: Some runs failed; it has the text for the others.
    """
    environment = problem.environment(0)
    if problem.first is not None and not 0 <= problem.first < environment.n_arms:
        raise InvalidInput(
            f"first must be the index of an arm, 0 to {environment.n_arms - 1}, got {problem.first}."
        )
    made = {
        method.method: problem.make(method) for method in methods
    }  # a mistake shows before the work begins
    words = f"{problem.label}{methods[0].settings}"
    folder = out / f"run-{words.replace(' ', '-').replace('=', '')}"
    runs = [problem.cell(method, seed) for method in methods for seed in range(seeds)]
    found = sweep(runs, folder, workers=workers, progress=progress)
    if found.rows.empty:
        return found.checked("")
    last = found.rows[found.rows["round"] == problem.rounds].groupby("method", sort=False)
    summary = (
        last["cumulative"]
        .agg(["mean", "std", "min", "max"])
        .assign(cpu_seconds=last["cpu_seconds"].mean())
    )
    if "m" in found.rows:
        summary["anchors"] = last["m"].mean()
    title = f"{words}, {seeds} seeds"
    stored, picture = (folder.with_name(folder.name + suffix) for suffix in (".parquet", ".png"))
    found.rows.to_parquet(stored)
    lines.regret(found.rows, picture, title=title)
    text = [
        f"cumulative regret: {title}",
        summary.to_string(float_format="{:.1f}".format, na_rep="-"),
    ]
    text += [f"{name}: {promise(method)}" for name, method in made.items()]
    if any(method.uses_norm_bound for method in methods) and not environment.norm_is_known:
        text.append(
            f"The norm bound of {problem.problem} is nominal: what is promised above may not hold on it."
        )
    return found.checked("\n".join([*text, f"rows     {stored}", f"picture  {picture}"]))


def promise(method: Method) -> str:
    """Describe in words the guarantee of the bounds of a method."""
    if method.confidence is None:
        return "no bound"
    if isinstance(method.confidence, Chaining) and not method.confidence.rigorous:
        return "ranks points and bounds nothing"
    state = method.state()
    proved = method.confidence.guarantee_on(state)
    if proved is None:
        return "a bound without a guarantee"
    if state.anchors is not None and isinstance(method.confidence, EKUCB):
        proved += f", as long as the sketch misses at most {method.confidence.projection:g} of the kernel matrix"
    return proved


def by_problem(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the rows of every problem by the settings that tell it from the others; "" if there is one problem."""
    different = [
        name for name in rows if name not in _WITHIN_A_PROBLEM and len(rows[name].unique()) > 1
    ]
    if not different:
        return {"": rows}
    found = {}
    for _, part in rows.groupby(different, sort=False, dropna=False):
        numbers = part[different].iloc[0].dropna()  # what is missing is as in the other problems
        found[", ".join(f"{name} {number}" for name, number in numbers.items())] = part
    return found


def redraw(path: Path, picture: Path) -> None:
    """Draw the regret in stored rows: a file of ``compare``, or a folder of finished runs; a panel for every problem.

    Args:
        path: A parquet file or a folder.
        picture: Where the PNG goes.

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
