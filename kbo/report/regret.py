"""Page of stored rows of bandits: regret of methods on the same problems."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbo.errors import InvalidInput, KboError
from kbo.experiments.bandits import BanditMethod, BanditProblem
from kbo.experiments.compare import RESULTS, by_problem, promise
from kbo.experiments.draw.canvas import legend_below, styles_of
from kbo.experiments.draw.lines import curves, draw_regret
from kbo.experiments.sweep.cells import read_rows
from kbo.recipes import Method
from kbo.report import figures
from kbo.report.page import embed, render

if TYPE_CHECKING:
    import pandas as pd

_NEEDED = ("method", "seed", "round", "cumulative")
_MOST_PROBLEMS = 12
_COLUMNS = {
    "method": "method",
    "count": "seeds",
    "rounds": "rounds",
    "mean": "mean",
    "std": "standard deviation",
    "min": "least",
    "max": "largest",
    "cpu_seconds": "CPU seconds",
    "m": "dictionary",
}


def read(path: Path) -> pd.DataFrame:
    """Read rows of ``kbo run``: a file of them, or a folder of finished runs."""
    rows = read_rows(path)
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
    """Return the page of such rows."""
    problems = by_problem(rows)
    return render(
        "regret.html",
        title=title,
        methods=rows["method"].nunique(),
        seeds=rows["seed"].nunique(),
        count=len(problems),
        problems=[_values(name or "Regret", part) for name, part in list(problems.items())[:_MOST_PROBLEMS]],
    )


def _values(name: str, rows: pd.DataFrame) -> dict[str, Any]:
    """Return the values of the template for one problem."""
    made, nominal = _methods(rows)
    methods, dictionaries, table = list(map(str, rows["method"].unique())), None, _table(rows)
    figure, axes = figures.picture("round", "cumulative regret")
    legend_below(figure, columns=2, lines=draw_regret(axes, rows))
    regret = embed(figure)
    sketched = rows.dropna(subset="m") if "m" in rows else rows.iloc[:0]
    if not sketched.empty:
        figure, axes = figures.picture("round", "points of the dictionary")
        curves(axes, sketched, styles_of(methods), "m")
        axes.set_ylim(bottom=0)
        dictionaries = embed(figures.finish(figure))
    same = [column for column in rows if column not in RESULTS | {"method"} and len(rows[column].unique()) == 1]
    return {
        "name": name,
        "methods": methods,
        "sketched": list(map(str, sketched["method"].unique())),
        "seeds": rows["seed"].nunique(),
        "regret": regret,
        "dictionaries": dictionaries,
        "columns": list(table.columns),
        "rows": list(table.itertuples(index=False)),
        "guarantees": {method: promise(made_method) for method, made_method in made.items()},
        "nominal": nominal,
        "settings": _plain(rows[same].iloc[0]),
    }


def _table(rows: pd.DataFrame) -> pd.DataFrame:
    """Return statistics of the cumulative regret after the last round, a row for each method."""
    last = rows.loc[rows.groupby(["method", "seed"], sort=False)["round"].idxmax()]
    by_method = last.groupby("method", sort=False)
    found = by_method["cumulative"].agg(["count", "mean", "std", "min", "max"])
    found.insert(1, "rounds", by_method["round"].min())
    for name in ("cpu_seconds", "m"):
        if name in last:
            found[name] = by_method[name].mean()
    return found.sort_values("mean", kind="stable").reset_index().rename(columns=_COLUMNS)


def _methods(rows: pd.DataFrame) -> tuple[dict[str, Method], str]:
    """Return the methods made again from the settings in their rows, and the problem if its norm bound is nominal.

    Methods of other versions of kbo, whose settings cannot be used, are left out.
    """
    made, problem, uses_norm_bound = {}, None, False
    for name, part in rows.groupby("method", sort=False):
        settings = _plain(part.iloc[0])
        try:
            known = BanditProblem(settings["problem"]).defaults()
            options = {option: settings[option] for option in known if option in settings}
            problem = BanditProblem(**_of(BanditProblem, settings), options=options)
            method = BanditMethod(**_of(BanditMethod, settings))
            made[str(name)] = problem.make(method)
            uses_norm_bound |= method.uses_norm_bound
        except (KboError, KeyError, TypeError, ValueError):
            continue
    if problem is None or not uses_norm_bound or problem.environment(0).norm_is_known:
        return made, ""
    return made, problem.problem


def _of(kind: type, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return those settings that are fields of a dataclass."""
    return {entry.name: settings[entry.name] for entry in fields(kind) if entry.name in settings}


def _plain(row: pd.Series) -> dict[str, Any]:
    """Return the values that are not missing, as Python values."""
    return {str(k): v.item() if hasattr(v, "item") else v for k, v in row.dropna().items()}
