"""The experiment behind ``kbo run``: methods on the same problems, as a table and a picture of their regret."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from kbo.errors import InvalidInput
from kbo.experiments import plots
from kbo.experiments.cells import read_file, read_folder
from kbo.experiments.games import Game
from kbo.experiments.runner import sweep


def compare(
    game: Game, methods: Sequence[str], seeds: int, out: Path, *, workers: int | None = None, progress: bool = True
) -> str:
    """Play every method on the problems of seeds 0, 1, ...

    Args:
        game: What is played.
        methods: Names of methods.
        seeds: How many problems.
        out: The rows go to OUT/NAME.parquet, the picture to OUT/NAME.png, and finished runs to OUT/NAME/, where a later
            call with more methods or seeds finds them. NAME says which game it is.
        workers: Processes, by default one per CPU.
        progress: Show a progress bar.

    Returns:
        Regret, guarantees and where the files are, to print.

    Raises:
        CellsFailed: Some runs failed; it has the text for the others.
    """
    players = {name: game.method(name) for name in methods}  # a mistake shows before the work begins
    problem = "rkhs-fixed" if game.fixed else "rkhs"
    numbers = f"{game.kernel}-l{game.lengthscale:g}-d{game.dim}-a{game.arms}-T{game.rounds}-delta{game.delta:g}"
    folder = out / f"run-{problem}-{numbers}"
    cells = [game.cell(name, seed) for name in players for seed in range(seeds)]
    found = sweep(cells, folder, workers=workers, progress=progress)
    if found.rows.empty:
        return found.checked("")
    last = found.rows[found.rows["round"] == game.rounds].groupby("method", sort=False)
    summary = last["cumulative"].agg(["mean", "std", "min", "max"]).assign(cpu_seconds=last["cpu_seconds"].mean())
    title = f"{problem}, {game.kernel} {game.lengthscale:g}, d = {game.dim}, T = {game.rounds}, {seeds} seeds"
    stored, picture = (folder.with_name(folder.name + suffix) for suffix in (".parquet", ".png"))
    found.rows.to_parquet(stored)
    plots.regret(found.rows, picture, title=title)
    guarantees = [
        f"{name}: {(player.confidence and player.confidence.guarantee) or 'no bound'}"
        for name, player in players.items()
    ]
    lines = [f"cumulative regret: {title}", summary.to_string(float_format="{:.1f}".format), *guarantees]
    return found.checked("\n".join([*lines, f"rows     {stored}", f"picture  {picture}"]))


def redraw(path: Path, picture: Path) -> None:
    """Draw the regret in stored rows: a file of ``kbo run``, or a folder of finished runs; a panel for every game.

    Args:
        path: A parquet file or a folder.
        picture: Where the PNG goes.

    Raises:
        InvalidInput: There is no such file, or the folder has no finished runs.
    """
    if not path.exists():
        raise InvalidInput(f"there is no file {path}.")
    rows = (read_folder if path.is_dir() else read_file)(path).dropna(subset="cumulative")
    named = [field.name for field in fields(Game) if field.name in rows and field.name != "every"]
    different = [name for name in named if len(rows[name].unique()) > 1]
    if not different:
        plots.regret(rows, picture, title=path.name)
        return
    panels = {}
    for _, part in rows.groupby(different, sort=False, dropna=False):
        numbers = part[different].iloc[0].dropna()  # what is missing is as in the other panels
        panels[textwrap.fill(", ".join(f"{name} {number}" for name, number in numbers.items()), 32)] = part
    plots.regret_grid(panels, picture, title=path.name)
