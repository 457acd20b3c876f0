"""Hand-made faults, each of which the tests must find: ``make mutations``, or ``python -m tests.mutations WORD ..``.

A fault replaces one piece of text in one file of a copy of the project; the tests named beside it, all part of ``make
test``, must then fail. ``mutations.txt`` has the faults. Words select those whose file, new text, tests or device
contain one of them.
"""

from __future__ import annotations

import os
import queue
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
AT_ONCE = 2


class Fault(NamedTuple):
    """A piece of text ``old`` of a file, what replaces it, arguments of pytest, and the device of the tests.

    The file is in kbo, or its name begins with experiments/.
    """

    file: str
    old: str
    new: str
    tests: str
    device: str = "cpu"

    def __str__(self) -> str:
        return f"{self.file}: {self.new.strip()[:80]!r}"


def load(text: str) -> list[Fault]:
    """The faults of a text: ``file: tests [on device]``, then the lines of old after ``- `` and of new after ``+ ``."""
    entries: list[tuple[str, dict[str, list[str]]]] = []
    for line in text.splitlines():
        if line[:1] in ("-", "+"):
            entries[-1][1][line[0]].append(line[2:])
        elif line.strip() and not line.startswith("#"):
            entries.append((line, {"-": [], "+": []}))
    faults = []
    for head, lines in entries:
        file, _, rest = head.partition(": ")
        tests, _, device = rest.partition(" on ")
        faults.append(
            Fault(file, "\n".join(lines["-"]), "\n".join(lines["+"]), tests, device or "cpu")
        )
    return faults


def path_of(file: str, root: Path) -> Path:
    """Return the path of a file of the package, or of one in experiments/."""
    return root / file if file.startswith("experiments/") else root / "kbo" / file


def places(fault: Fault, root: Path = ROOT) -> int:
    """How often the text of a fault occurs in its file: once, or the fault says nothing."""
    file = path_of(fault.file, root)
    return file.read_text("utf-8").count(fault.old) if file.exists() else 0


def attempt(fault: Fault, copy: Path) -> str:
    """Whether the tests of a fault fail on the copy with it: killed, SURVIVED, or what went wrong."""
    if (found := places(fault, copy)) != 1:
        return f"{found} PLACES"
    file = path_of(fault.file, copy)
    text = file.read_text("utf-8")
    file.write_text(text.replace(fault.old, fault.new), "utf-8")
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
        file.write_text(text, "utf-8")
    return {0: "SURVIVED", 1: "killed", 5: "NO TESTS"}.get(
        run.returncode, f"ERROR {run.returncode}"
    )


def main(words: list[str]) -> int:
    """Apply each fault, run its tests, and print what became of it; 1 if any was not found."""
    faults = load((ROOT / "tests" / "mutations.txt").read_text("utf-8"))
    texts = [" ".join((fault.file, fault.new, fault.tests, fault.device)) for fault in faults]
    chosen = [
        fault
        for fault, text in zip(faults, texts, strict=True)
        if not words or any(w in text for w in words)
    ]
    copies: queue.Queue[Path] = queue.Queue()

    def one(fault: Fault) -> bool:
        copy = copies.get()
        try:
            verdict = attempt(fault, copy)
        finally:
            copies.put(copy)
        print(f"{verdict:9s} {fault}", flush=True)
        return verdict == "killed"

    with tempfile.TemporaryDirectory() as folder:
        for number in range(AT_ONCE):
            copies.put(copy := Path(folder, str(number)))
            for part in ("kbo", "experiments", "tests"):
                shutil.copytree(
                    ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__")
                )
            shutil.copy(ROOT / "pyproject.toml", copy)
        with ThreadPoolExecutor(AT_ONCE) as threads:
            killed = sum(threads.map(one, chosen))
    print(f"{killed} of {len(chosen)} faults were found.")
    return int(killed < len(chosen))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
