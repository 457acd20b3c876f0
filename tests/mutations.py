"""Hand-made faults, each of which the tests must find: ``make mutations``, or ``python -m tests.mutations WORD ..``.

A fault replaces one expression or statement of one function in a copy of the project; the tests named beside it, all
part of ``make test``, must then fail. ``mutations.txt`` has the faults. Words select those that contain one of them.
"""

from __future__ import annotations

import ast
import os
import queue
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
AT_ONCE = 2
BECOMES = "  =>  "


class Fault(NamedTuple):
    """A change of a function.

    Attributes:
        file: The file, relative to the root of the project.
        function: The name of the function in its file, after those of the classes and functions around it; ``-`` for
            the whole file.
        old: An expression or a statement of it, which occurs once in it; layout and brackets do not matter.
        new: What replaces it; ``pass`` deletes a statement.
        tests: Arguments of pytest.
        device: The device of the tests.
    """

    file: str
    function: str
    old: str
    new: str
    tests: str
    device: str = "cpu"

    def __str__(self) -> str:
        return f"{self.file} {self.function}: {self.old} => {self.new}"


def load(text: str) -> list[Fault]:
    """Return the faults of a text, three lines each: ``file function``, ``old => new``, ``tests [on device]``."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and line[0] != "#"]
    faults = []
    for head, change, tests in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        file, function = head.split()
        old, new = change.split(BECOMES.strip())
        arguments, _, device = tests.partition(" on ")
        faults.append(Fault(file, function, old.strip(), new.strip(), arguments, device or "cpu"))
    return faults


parsed = cache(ast.parse)


def function_named(tree: ast.Module, name: str) -> ast.AST | None:
    """Return the function, or class, of a qualified name, the file for ``-``; None if there is none."""
    if name == "-":
        return tree
    found: ast.AST = tree
    for part in name.split("."):
        inside = [
            node
            for node in ast.walk(found)
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == part
        ]
        if not inside:
            return None
        found = inside[0]
    return found


def places(fault: Fault, source: str) -> list[tuple[int, int]]:
    """Return start and end in the UTF-8 source of every place of the old text in the function."""
    function = function_named(parsed(source), fault.function)
    if function is None:
        return []
    statement = ast.parse(fault.old).body[0]
    wanted = statement.value if isinstance(statement, ast.Expr) else statement
    text = ast.unparse(wanted)
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = set()
    for node in ast.walk(function):
        if type(node) is type(wanted) and ast.unparse(node) == text:
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            begin = starts[node.lineno - 1] + node.col_offset
            found.add((begin, starts[node.end_lineno - 1] + node.end_col_offset))
    return sorted(found)


def with_fault(fault: Fault, source: str) -> str | None:
    """Return the source with the fault; None if its old text does not occur exactly once."""
    found = places(fault, source)
    if len(found) != 1:
        return None
    begin, end = found[0]
    encoded = source.encode()
    new = fault.new
    if isinstance(ast.parse(fault.old).body[0], ast.Expr) and new != "pass":
        new = f"({new})"  # an operand stays one
    return (encoded[:begin] + new.encode() + encoded[end:]).decode()


def attempt(fault: Fault, copy: Path) -> str:
    """Return whether the tests of a fault fail on the copy with it: killed, SURVIVED, or what went wrong."""
    file = copy / fault.file
    source = file.read_text("utf-8")
    changed = with_fault(fault, source)
    if changed is None:
        return f"{len(places(fault, source))} PLACES"
    file.write_text(changed, "utf-8")
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", *fault.tests.split()]
    environment = {
        **os.environ,
        "PYTHONPATH": str(copy),
        "KBO_TEST_DEVICE": fault.device,
        "KBO_TEST_PATIENCE": "60",
    }
    try:
        run = subprocess.run(command, cwd=copy, capture_output=True, env=environment)
    finally:
        file.write_text(source, "utf-8")
    verdicts = {0: "SURVIVED", 1: "killed", 5: "NO TESTS"}
    return verdicts.get(run.returncode, f"ERROR {run.returncode}")


def main(words: list[str]) -> int:
    """Apply each fault, run its tests, and print what became of it; 1 if any was not found."""
    faults = load((ROOT / "tests" / "mutations.txt").read_text("utf-8"))
    chosen = []
    for fault in faults:
        text = " ".join(fault)
        if not words or any(word in text for word in words):
            chosen.append(fault)
    copies: queue.Queue[Path] = queue.Queue()

    def verdict_of(fault: Fault) -> bool:
        copy = copies.get()
        try:
            verdict = attempt(fault, copy)
        finally:
            copies.put(copy)
        print(f"{verdict:9s} {fault}", flush=True)
        return verdict == "killed"

    with tempfile.TemporaryDirectory() as folder:
        for number in range(AT_ONCE):
            copy = Path(folder, str(number))
            for part in ("kbo", "experiments", "tests"):
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / part, copy / part, ignore=ignored)
            shutil.copy(ROOT / "pyproject.toml", copy)
            copies.put(copy)
        with ThreadPoolExecutor(AT_ONCE) as threads:
            killed = sum(threads.map(verdict_of, chosen))
    print(f"{killed} of {len(chosen)} faults were found.")
    return int(killed < len(chosen))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
