"""The page of stored bandit rows: regret of methods on the same problems."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbo.confidence import Chaining, FiniteSet
from kbo.errors import InvalidInput, KboError
from kbo.experiments.bandits import PROBLEMS, BanditMethod, BanditProblem
from kbo.experiments.compare import promise
from kbo.experiments.draw.canvas import legend_below, styles_of
from kbo.experiments.draw.lines import curves, draw_regret
from kbo.experiments.sweep.cells import read_file, read_folder
from kbo.report import markup, pictures

if TYPE_CHECKING:
    import pandas as pd

_NEEDED = ("method", "seed", "round", "cumulative")
_PER_RUN = {*_NEEDED, "cell", "regret", "best", "arm", "cpu_seconds", "m", "gap", "simple_regret"}
_PER_METHOD = {"recipe", "multiplier", "ridge", "noise_variant", "every"}
_MOST_GAMES = 12


def read(path: Path) -> pd.DataFrame:
    """Rows of ``kbo run``: a file of them, or a folder of finished runs.

    Raises:
        InvalidInput: There are none, they cannot be read, or they are of another kind.
    """
    if not path.exists():
        raise InvalidInput(f"there is no file {path}.")
    try:
        rows = (read_folder if path.is_dir() else read_file)(path)
    except (OSError, ValueError) as error:  # pyarrow's errors of damaged files are one or the other
        if isinstance(error, KboError):
            raise
        raise InvalidInput(f"cannot read {path}: {error}. Run the experiment again, or choose another file.") from error
    missing = [name for name in _NEEDED if name not in rows]
    if missing:
        raise InvalidInput(
            f"{path} has no column {', '.join(missing)}: a report needs rows of `kbo run`, one for every round with "
            f"{', '.join(_NEEDED)}."
        )
    rows = rows.dropna(subset="cumulative")
    if rows.empty:
        raise InvalidInput(f"{path} has no rows with a regret.")
    return rows


def page(rows: pd.DataFrame, title: str) -> str:
    """The whole page of such rows."""
    games = _games(rows)
    seeds, methods = rows["seed"].nunique(), rows["method"].nunique()
    lead = f"{methods} method{'s' * (methods > 1)}, {seeds} seed{'s' * (seeds > 1)}, the same problems for all."
    sections = []
    for i, (words, part) in enumerate(list(games.items())[:_MOST_GAMES]):
        sections.append(markup.section(f"game{i}", words or "Regret", *_game(part)))
    if len(games) > _MOST_GAMES:
        text = f"The first {_MOST_GAMES} of {len(games)} games; write a report of each of the others by itself."
        sections.append(markup.section("more", "More games", markup.paragraph(text)))
    return markup.page(title, markup.paragraph(lead, "lead"), sections)


def _games(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The rows by what was played, in words; one game has none."""
    different = [name for name in rows if name not in _PER_RUN | _PER_METHOD and len(rows[name].unique()) > 1]
    if not different:
        return {"": rows}
    found = {}
    for _, part in rows.groupby(different, sort=False, dropna=False):
        numbers = part[different].iloc[0].dropna()
        found[", ".join(f"{name} {value}" for name, value in numbers.items())] = part
    return found


def _game(rows: pd.DataFrame) -> list[str]:
    promises = _promises(rows)
    return [
        markup.pictures(_of_regret(rows), _of_dictionaries(rows)),
        _table(rows),
        "<h3>What each method guarantees</h3>" + markup.definitions_long(promises) if promises else "",
        markup.paragraph(_nominal(rows), "warn") if promises and _nominal(rows) else "",
        "<h3>What was played</h3>" + markup.definitions(_settings(rows)),
    ]


def _of_regret(rows: pd.DataFrame) -> str:
    figure, axes = pictures.picture("round", "cumulative regret")
    legend_below(figure, columns=2, lines=draw_regret(axes, rows))
    seeds = len(rows["seed"].unique())
    band = f" Band: from the least to the largest of {seeds} seeds." if seeds > 1 else ""
    caption = (
        "How much reward was lost so far against the best arm of each round; a line that flattens has found it. Line: "
        f"mean over seeds, its end in brackets.{band}"
    )
    alt = f"Cumulative regret over rounds of {', '.join(map(str, rows['method'].unique()))}."
    return markup.picture(figure, "Regret", caption, alt)


def _of_dictionaries(rows: pd.DataFrame) -> str:
    if "m" not in rows or len(rows["m"].dropna()) == 0:
        return ""
    sketched = rows.dropna(subset="m")
    figure, axes = pictures.picture("round", "points of the dictionary")
    curves(axes, sketched, styles_of(list(rows["method"].unique())), "m")
    axes.set_ylim(bottom=0)
    caption = (
        "Through how many points a sketched posterior sees the data: what a round costs. Mean over seeds and range."
    )
    alt = f"Dictionary size over rounds of {', '.join(map(str, sketched['method'].unique()))}."
    return markup.picture(pictures.finish(figure), "Dictionaries", caption, alt)


def _table(rows: pd.DataFrame) -> str:
    last = rows.loc[rows.groupby(["method", "seed"], sort=False)["round"].idxmax()]
    found = []
    for method, part in last.groupby("method", sort=False):
        ends = part["cumulative"]
        spread = float(ends.std()) if len(ends) > 1 else None
        row = [str(method), len(ends), int(part["round"].min()), float(ends.mean()), spread, float(ends.min())]
        row += [float(ends.max())]
        row += [float(part["cpu_seconds"].mean())] if "cpu_seconds" in part else []
        row += [float(part["m"].mean())] if "m" in part else []
        found.append(row)
    found.sort(key=lambda row: row[3])
    columns = ["method", "seeds", "rounds", "mean", "standard deviation", "least", "largest"]
    columns += ["CPU seconds"] * ("cpu_seconds" in last) + ["dictionary"] * ("m" in last)
    note = "Cumulative regret after the last round, least first; CPU time of the method alone."
    return markup.table(note, columns, found)


def _promises(rows: pd.DataFrame) -> dict[str, str]:
    """What is proved about the bounds of every method, worked out from the settings in the rows where they tell."""
    found = {}
    for method, part in rows.groupby("method", sort=False):
        try:
            settings = _plain(part.iloc[0])
            game = _game_of(settings)
            player = BanditMethod(**{e.name: settings[e.name] for e in fields(BanditMethod) if e.name in settings})
            found[str(method)] = promise(game.make(player))
        except (KboError, KeyError, TypeError, ValueError):  # rows of another kind, or of another version
            continue
    return found


def _nominal(rows: pd.DataFrame) -> str:
    """A warning where the norm bound that the methods were given is none."""
    try:
        settings = _plain(rows.iloc[0])
        game = _game_of(settings)
        methods = [game.make(str(settings.get("recipe", name))) for name in rows["method"].unique()]
        known = game.environment(0).norm_is_known
    except (KboError, KeyError, TypeError, ValueError):
        return ""
    if known or all(isinstance(method.confidence, Chaining | FiniteSet | None) for method in methods):
        return ""
    return f"The norm bound of {game.problem} is nominal: what is said above may not hold on it."


def _game_of(settings: Mapping[str, Any]) -> BanditProblem:
    """The game that the settings of a run describe."""
    if settings["problem"] not in PROBLEMS:
        raise KeyError(settings["problem"])
    told = {entry.name: settings[entry.name] for entry in fields(BanditProblem) if entry.name in settings}
    known = BanditProblem(settings["problem"]).defaults()
    return BanditProblem(**told, options={name: settings[name] for name in known if name in settings})


def _settings(rows: pd.DataFrame) -> dict[str, Any]:
    """What is equal in all rows."""
    names = [name for name in rows if name not in _PER_RUN and len(rows[name].unique()) == 1]
    return {str(name): value for name, value in _plain(rows[names].iloc[0]).items()}


def _plain(row: pd.Series) -> dict[str, Any]:
    """The values that there are, as Python has them."""
    return {str(k): v.item() if hasattr(v, "item") else v for k, v in row.dropna().items()}
