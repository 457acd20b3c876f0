"""Command or call that resumes a run on its journal."""

from __future__ import annotations

import os
import shlex

from kbo.optimize import Practical
from kbo.problems import TUNING
from kbo.report.record import Record

_MORE = 20
"""Trials that the command adds."""


def resume(record: Record) -> dict[str, str]:
    """Return the ``code`` that resumes a run, and a ``text`` about it."""
    if record.path is None:
        text = "Save the run with optimizer.save(path); kbo.minimize(..., journal=path) then continues it:"
        return {"text": text, "code": _call(record, "run.jsonl")}
    path, name = os.fspath(record.path), record.path.stem.removeprefix("tune-")
    if name == record.path.stem or not _by_command(record):
        text = "The same call with the same journal continues the run; only the number of trials may differ:"
        return {"text": text, "code": _call(record, path)}
    known = name in TUNING
    text = f"This command adds {_MORE} trials" + ("" if known else f"; {name}.py stands for the script that was tuned")
    options = {
        "--trials": len(record.trials) + _MORE,
        "--method": record.header["method"],
        "--seed": record.header["seed"],
    }
    words = ["kbo", "tune", name if known else f"{name}.py"]
    words += [str(word) for option in options.items() for word in option]
    words += [*["--maximize"] * record.maximize, "--journal", path]
    return {"text": f"{text}:", "code": shlex.join(words)}


def _by_command(record: Record) -> bool:
    """Whether `kbo tune` could have made the run."""
    usual = Practical().describe(record.space)
    return record.space.named and {name: record.header.get(name) for name in usual} == usual


def _call(record: Record, path: str) -> str:
    """Return Python code that resumes a journal."""
    header, space = record.header, record.space
    verb = "maximize" if record.maximize else "minimize"
    parameters = ", ".join(f"{name!r}: kbo.{p!r}" for name, p in space.parameters.items())
    lines = ["import kbo", "", f"bounds = {{{parameters}}}" if space.named else f"bounds = {space.pairs()!r}"]
    setting = _setting(record)
    lines += [f"setting = {setting}"] * bool(setting)
    n_trials = header.get("n_trials") or len(record.trials) + _MORE
    given = f"method={header['method']!r}, seed={header['seed']!r}, journal={path!r}" + ", setting=setting" * bool(
        setting
    )
    return "\n".join([*lines, f"result = kbo.{verb}(objective, bounds, n_trials={n_trials}, {given})"])


def _setting(record: Record) -> str:
    """Return the setting as Python code; empty if it is the default."""
    header = record.header
    if header.get("setting") == "certified":
        names = ("noise_std", "norm_bound", "delta", "scale", "noise_upper")
        return f"kbo.Certified(kernel, {', '.join(f'{name}={header[name]!r}' for name in names if name in header)})"
    usual = Practical().describe(record.space)
    changed = [f"{name}={header[name]!r}" for name in usual if name in header and header[name] != usual[name]]
    return f"kbo.Practical({', '.join(changed)})" if changed else ""
