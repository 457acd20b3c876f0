"""Names beside statements of papers exist in the code; those that are roles of Sphinx: tests/test_docs.py."""

import ast
import re
from pathlib import Path

from experiments.bandits.methods import PAPER_METHODS
from kbo.bandit import methods

ROOT = Path(__file__).parent.parent


def names_in_kbo() -> set[str]:
    """Return the names that modules of kbo define or use, and the words of the names of methods."""
    names = {"True"}
    for path in (ROOT / "kbo").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            for attribute in ("name", "id", "attr", "arg"):
                names.add(str(getattr(node, attribute, "")))
    for method in [*methods.names(), *(row.name for row in PAPER_METHODS)]:
        names |= set(method.split("-"))
    return names


def test_every_name_in_the_table_of_papers_exists():
    known = names_in_kbo()
    page = (ROOT / "docs/papers.md").read_text()
    table = page.split("## Papers → functions")[1].split("\n## ")[0]
    rows = [line.strip("| ") for line in table.splitlines() if line.startswith("| ")]
    assert len(rows) > 40
    for row in rows[1:]:
        cell = re.sub(r"\{\w+\}`.*?`", "", row.rsplit(" | ", 1)[1])
        for entry in re.findall(r"`([^`/]+)`", cell):
            words = re.findall(r"[A-Za-z_]\w*", re.sub(r'".*?"', "", entry))
            assert [word for word in words if word not in known] == [], (cell, entry)
