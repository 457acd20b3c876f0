"""The command or the Python code that resumes a run."""

from __future__ import annotations

import os
import shlex
from dataclasses import fields
from typing import Any

from kbo._base import checks
from kbo.optimize import Certified, Practical, Safe
from kbo.report.record import Record
from kbo.space import Linear

_MORE = 20  # trials that the command to resume adds

EXAMPLES = ("digits", "branin")
"""Names of the problems that ``kbo tune`` tunes without a script (``kbo.cli.examples``)."""


def resume(record: Record) -> dict[str, str]:
    """Return the ``code`` that resumes a run, and a ``text`` about it."""
    if record.path is None:
        text = "Save the run with optimizer.save(path); kbo.minimize(..., journal=path) then continues it:"
        return {"text": text, "code": _call(record, "run.jsonl")}
    path, name = os.fspath(record.path), record.path.stem.removeprefix("tune-")
    # `kbo tune` has no options for the numbers of a setting.
    by_command = (
        record.space.named and record.header.get("setting") == "practical" and not _changed(record)
    )
    by_command = by_command and "class" not in record.header
    by_command = by_command and not record.constraints
    if name == record.path.stem or not by_command:
        text = "The same call with the same journal continues the run; only the number of trials may differ:"
        return {"text": text, "code": _call(record, path)}
    known = name in EXAMPLES
    text = f"This command adds {_MORE} trials" + (
        "" if known else f"; {name}.py stands for the script that was tuned"
    )
    ends: Any = record.header.get("value_range", ())
    words = ["kbo", "tune", name if known else f"{name}.py", "--trials", len(record.trials) + _MORE]
    words += ["--method", record.header["method"], "--seed", record.header["seed"]]
    words += [
        *["--maximize"] * record.maximize,
        *(["--value-range", *ends] if ends else []),
        "--journal",
        path,
    ]
    return {"text": f"{text}:", "code": shlex.join(map(str, words))}


def _changed(record: Record) -> list[str]:
    """Return the arguments of ``Practical`` with which a run differs from the default."""
    header = record.header
    names = (
        entry.name
        for entry in fields(Practical)
        if header.get(entry.name, entry.default) != entry.default
    )
    return [f"{name}={header[name]!r}" for name in names]


def _call(record: Record, path: str) -> str:
    """Return Python code that resumes a journal."""
    header, space = record.header, record.space
    parameters = ", ".join(f"{name!r}: kbo.{p!r}" for name, p in space.parameters.items())
    bounds = f"{{{parameters}}}" if space.named else f"{space.pairs()!r}"
    if space.conditions:
        entries = {
            name: entry for name, entry in space.to_dict().items() if name in space.parameters
        }
        bounds = f"kbo.Space.from_dict({entries!r})"
    if space.table is not None:
        bounds = f"table  # of the {len(space.table)} candidates"
    lines = ["import kbo", "", f"bounds = {bounds}"]
    given = f"method={header['method']!r}, seed={header['seed']!r}, journal={path!r}"
    given += f", value_range={header.get('value_range')}" * ("value_range" in header)
    if header.get("setting") == "certified":
        kind = Safe if "start" in header else Certified
        names = (entry.name for entry in fields(kind)[1:] if entry.name in header)
        numbers = ", ".join(f"{name}={header[name]!r}" for name in names)
        kernels = "hypotheses" if "hypotheses" in header else "kernel"
        lines.append(f"setting = kbo.{kind.__name__}({kernels}, {numbers})")
    elif _changed(record) or "class" in header:
        lines.append(
            f"setting = {header.get('class', 'kbo.Practical')}({', '.join(_changed(record))})"
        )
    given += ", setting=setting" * any(line.startswith("setting") for line in lines)
    rules = [
        f"kbo.{c!r}" if isinstance(c, Linear) else checks.name_of(c) for c in space.constraints
    ]
    rules += [f"kbo.{c!r}" for c in record.constraints]
    if rules:
        lines.append(f"constraints = [{', '.join(rules)}]")
        given += ", constraints=constraints"
    n_trials, verb = (
        header.get("n_trials") or len(record.trials) + _MORE,
        "maximize" if record.maximize else "minimize",
    )
    return "\n".join(
        [*lines, f"result = kbo.{verb}(objective, bounds, n_trials={n_trials}, {given})"]
    )
