"""``python -m experiments.bandits.redraw``: the picture of stored rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from experiments import commands
from experiments.bandits.compare import redraw
from kbo.errors import InvalidInput

_ROWS = "Rows of `python -m experiments.bandits` (.parquet), or the folder of its finished runs."


def draw(
    rows: Annotated[Path, typer.Argument(help=_ROWS)],
    picture: Annotated[
        Path | None, typer.Option("--to", help="The PNG; by default beside the input.")
    ] = None,
) -> None:
    """Draw the regret in stored rows again."""
    name = rows.stem
    if rows.is_dir():
        name = rows.name
    target = picture or rows.with_name(f"{name}-plot.png")
    if target.suffix != ".png":
        raise InvalidInput(f"the picture must be a .png file, got {target}: change --to.")
    try:
        redraw(rows, target)
    except (OSError, KeyError) as error:  # pyarrow raises OSError for damaged files
        raise InvalidInput(f"cannot draw {rows} to {target}: {error}") from error
    typer.echo(f"picture  {target}")


def main() -> None:
    """Run the command."""
    commands.run(draw)


if __name__ == "__main__":
    main()
