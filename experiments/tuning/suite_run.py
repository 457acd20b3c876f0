"""Tuners on half a suite of problems: tables and pictures of their standings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from experiments.output import lines
from experiments.papers.experiment import Frame, Plan, run, store
from experiments.sweep.cells import Cell
from experiments.sweep.runner import Workers
from experiments.tuning import ranks, suites
from experiments.tuning.comparison import cell
from experiments.tuning.tuners import LEFT_OUT, TUNERS, seeds_of, tuner
from kbo._base import checks

CHECKPOINTS = (15, 25, 50, 100, 200, 1000)
"""Numbers of trials after which runs are judged."""

_INTERVAL = "[95% of a bootstrap over the problems]"
_RATIOS = "median ratio of these regrets (share of runs that recommend the best visited point)"
_NOT_FIRST = "where kbo is not first: the first by mean rank, with medians"


def experiment(
    suite: str,
    half: str,
    names: Sequence[str],
    trials: int,
    instances: int,
    *,
    dim: int | None = None,
    noise: str | None = None,
) -> Callable[[Path, bool, Workers, bool], str]:
    """Return the comparison: ``experiments.papers.experiment.run`` without its first two arguments.

    Args:
        suite: Name of the suite, as for ``suites.half_of``.
        half: Half of the suite, as for ``suites.half_of``.
        names: Keys of ``tuners.TUNERS``.
        trials: Number of trials of a run. It is judged at smaller ``CHECKPOINTS`` and at the end.
        instances: Number of runs on a problem, with seeds 1, 2, ...
        dim: Dimension of functions, as for ``suites.half_of``.
        noise: Noise of functions, as for ``suites.half_of``.

    Raises:
        InvalidInput: There is no such suite or tuner.
        MissingExtra: The suite or a tuner needs a library that is not installed.
    """
    problems = suites.half_of(suite, half, dim, noise)
    names = [checks.one_of("tuners", name, TUNERS) for name in names]
    space = suites.PROBLEMS[problems[0]](seed=1).space
    for name in names:
        tuner(name, space, 1, trials)  # so that a missing library is found before the work begins
    checkpoints = [*(number for number in CHECKPOINTS if number < trials), trials]
    cells = [
        cell(problem, name, seed, checkpoints)
        for seed in range(1, instances + 1)
        for problem in problems
        for name in names
        if seed <= seeds_of(name, trials, instances)
    ]
    words = [suite, half]
    if suite != "hpo":
        dim = dim or 5
        words = [suite, f"d{dim}", noise or "gauss", half]
    title = f"{' '.join(words)}: {len(problems)} problems, {instances} runs each (of expensive tuners fewer)"
    plan = _plan(title, cells, dim, "kbo" in names)
    return partial(run, lambda quick: plan, "-".join([*words, f"T{trials}"]))


def _plan(title: str, cells: Sequence[Cell], dim: int | None, with_kbo: bool) -> Plan:
    """Return tables and pictures; ``dim`` is the dimension of functions of known regret, None for other problems."""
    scores = {"recommended": "value"}
    if dim is not None:
        scores = {"recommended": "regret", "best visited": "visited_regret"}
    recommended_score = scores["recommended"]
    shown = {}
    for point, score in scores.items():
        kind = score.rpartition("_")[2]
        shown[f"mean rank of the {point} point {_INTERVAL}"] = partial(ranks.ranks, score=score)
        shown[f"median {kind} of the {point} point"] = partial(ranks.medians, score=score)
    if dim is not None:
        shown[_RATIOS] = ranks.regret_ratios
    shown["CPU seconds of a run"] = ranks.cpu_seconds
    if with_kbo:
        shown[_NOT_FIRST] = partial(ranks.not_first, score=recommended_score)
    files: dict[str, Callable[[Frame, Path], object]] = {
        ".csv": store(lambda rows: rows),
        "-curves.png": partial(draw_scores, title=title, scores=scores),
    }
    if dim is not None:
        files["-ecdf.png"] = partial(draw_targets, title=title, dim=dim)
    return Plan(f"{title}\n{LEFT_OUT}", shown, files, cells)


def draw_scores(rows: Frame, path: Path, *, title: str, scores: dict[str, str]) -> None:
    """Draw median scores against trials, a panel for each kind of score."""
    lines.against_rounds(
        ranks.curves(rows, scores),
        path,
        title=title,
        panel="panel",
        xlabel="trials",
        values=["score"],
        ylabel=scores["recommended"],
        band="median",
        log="xy",
        note="all problems",
    )


def draw_targets(rows: Frame, path: Path, *, title: str, dim: int) -> None:
    """Draw the share of reached targets against the number of trials divided by the dimension."""
    reached = ranks.targets_reached(rows)
    lines.against_rounds(
        reached.assign(per_dimension=reached["round"] / dim),
        path,
        title=title,
        x="per_dimension",
        xlabel="trials / dimension",
        values=["share"],
        ylabel="share of targets reached",
        band="mean",
        log="x",
        note="51 targets of the regret of the best visited point, 100 to 1e-8, on every problem",
    )
