"""How a run goes on: the command or the call that continues its journal."""

from __future__ import annotations

import os
import shlex

from kbo.optimize import Practical
from kbo.problems import TUNING
from kbo.report import markup
from kbo.report.record import Record

_MORE = 20
"""Trials that the command adds."""


def continuation(record: Record) -> list[str]:
    """Markup that says how to continue."""
    if record.path is None:
        text = "Save the run with optimizer.save(path); kbo.minimize(..., journal=path) then continues it:"
        return [markup.paragraph(text), markup.code(_call(record, "run.jsonl"))]
    path, n = os.fspath(record.path), len(record.trials) + _MORE
    if not (record.path.stem.startswith("tune-") and _by_command(record)):
        text = "The same call with the same journal continues the run; only the number of trials may differ:"
        return [markup.paragraph(text), markup.code(_call(record, path))]
    name = record.path.stem.removeprefix("tune-")
    known = name in TUNING
    parts = [
        "kbo",
        "tune",
        name if known else f"{name}.py",
        "--trials",
        str(n),
        "--method",
        str(record.header["method"]),
    ]
    parts += ["--seed", str(record.header["seed"]), *["--maximize"] * record.maximize, "--journal", path]
    text = f"This command adds {_MORE} trials" + ("" if known else f"; {name}.py stands for the script that was tuned")
    return [markup.paragraph(f"{text}:"), markup.code(shlex.join(parts))]


def _by_command(record: Record) -> bool:
    """Whether `kbo tune` could have made the run."""
    usual = Practical().describe(record.space)
    return record.space.named and {name: record.header.get(name) for name in usual} == usual


def _call(record: Record, path: str) -> str:
    """Python that continues a journal."""
    header, verb = record.header, "maximize" if record.maximize else "minimize"
    lines = ["import kbo", "", f"bounds = {_bounds(record)}"]
    if (setting := _setting(record)) is not None:
        lines.append(f"setting = {setting}")
    told = f"method={header['method']!r}, seed={header['seed']!r}, journal={path!r}"
    given = ", setting=setting" if setting is not None else ""
    n = header.get("n_trials") or len(record.trials) + _MORE
    return "\n".join([*lines, f"result = kbo.{verb}(objective, bounds, n_trials={n}, {told}{given})"])


def _bounds(record: Record) -> str:
    space = record.space
    if not space.named:
        return repr(space.pairs())
    return "{" + ", ".join(f"{name!r}: kbo.{p!r}" for name, p in space.parameters.items()) + "}"


def _setting(record: Record) -> str | None:
    """The setting as Python; None if it is the usual one."""
    header = record.header
    if header.get("setting") == "certified":
        names = ("noise_std", "norm_bound", "delta", "scale", "noise_upper")
        return f"kbo.Certified(kernel, {', '.join(f'{name}={header[name]!r}' for name in names if name in header)})"
    usual = Practical().describe(record.space)
    changed = {name: header[name] for name in usual if name in header and header[name] != usual[name]}
    return f"kbo.Practical({', '.join(f'{name}={value!r}' for name, value in changed.items())})" if changed else None
