"""The pages for users: Python blocks and tutorials run as printed; every link, path, name and command exists."""

import ast
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from pydoc import locate

import pytest

from experiments.papers import catalogue
from tests import commands
from tests.processes import environment, python

ROOT = Path(__file__).parent.parent
FOLDERS = [".", "docs", "docs/theory", "experiments/records"]
PAGES = [page for folder in FOLDERS for page in sorted((ROOT / folder).glob("*.md"))]
PAGES.remove(ROOT / "CHANGELOG.md")
TUTORIALS = sorted((ROOT / "tutorials").glob("*.py"))
NAMES = ["quickstart", "howto", "extending", "guide", "integrations"]


def blocks_of(page: str) -> list[str]:
    """Return the Python blocks of a page, and the whole files of which it shows listings."""
    path = ROOT / f"{page}.md"
    fence = r"```(?:python|\{literalinclude\} (\S+\.py))\n(.*?)```"
    blocks = re.findall(fence, path.read_text(), re.DOTALL)
    return [(path.parent / file).read_text() if file else code for file, code in blocks]


def test_python_blocks_of_the_readme_run_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec("\n".join(blocks_of("README")), {"__name__": "__main__"})


def run(script: Path, folder: Path) -> None:
    """Run it in a process of its own: Ray leaves its signal handlers and files in a process."""
    quick = environment(PYTHONPATH=str(ROOT), MPLBACKEND="Agg", KBO_TUTORIAL_QUICK="1")
    python(script, cwd=folder, env=quick)


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
def test_python_blocks_of_a_page_run(name, tmp_path):
    script = tmp_path / "page.py"
    line = "from __future__ import annotations\n"
    blocks = [line, *(block.replace(line, "") for block in blocks_of(f"docs/{name}"))]
    script.write_text("\n".join(blocks))
    run(script, tmp_path)


@pytest.mark.thorough
@pytest.mark.parametrize("script", TUTORIALS, ids=lambda script: script.stem)
def test_a_tutorial_runs_and_leaves_nothing_behind(script, tmp_path):
    run(script, tmp_path)
    assert not list(tmp_path.iterdir())


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    words = [re.sub(r"[^\w\- ]", "", heading.lower()).strip() for heading in headings]
    return {text.replace(" ", "-") for text in words}


@cache
def arguments() -> set[str]:
    """Return the arguments and fields of kbo, and the arguments of other libraries that pages name."""
    names = {"n_jobs", "callbacks", "likelihood", "parallelism"}
    for path in (ROOT / "kbo").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.arg):
                names.add(node.arg)
            elif isinstance(node, ast.AnnAssign):
                names.add(ast.unparse(node.target))
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_files_names_and_arguments_exist(page):
    text = page.read_text()
    for path in re.findall(r"`((?:kbo|experiments|tests|docs|tutorials)/[\w/.*]+)`", text):
        assert list(ROOT.glob(path)), path
    names = re.findall(r"\{(?:class|func|meth|mod|attr)\}`~?(kbo[\w.]+)`", text)
    names += re.findall(r"autoclass:: (kbo[\w.]+)", text)
    for module, members in re.findall(r"automodule:: ([\w.]+)\n +:members:(.*)", text):
        names += [f"{module}.{name.strip()}" for name in members.split(",") if name.strip()]
    assert [name for name in names if locate(name) is None] == []
    for link in re.findall(r"\]\((?!http)([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        file = page.parent / path if path else page
        if path.startswith("tutorials/") and page.parent.name == "docs":  # copied by the build
            file = ROOT / f"{path}.py"
        assert file.exists(), link
        assert not anchor or anchor in anchors(file), link
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    assert set(re.findall(r"[`(](\w+)=[`)]", prose)) <= arguments()


@cache
def options_of(run, *words: str) -> set[str]:
    """Return the options that the help of a command shows."""
    return set(re.findall(r"(?<![\w-])--?[\w-]+", run(*words, "--help").stdout))


def test_quoted_commands_experiments_and_their_options_exist(monkeypatch):
    monkeypatch.setenv("COLUMNS", "4000")
    papers = {
        module.removeprefix("experiments."): name for name, module in catalogue.PAPERS.items()
    }
    for page in PAGES:
        text = page.read_text()
        lines = re.findall(r"`([^`\n]+)`", text)
        for block in re.findall(r"```(?:bash|sh)\n(.*?)```", text, re.DOTALL):
            lines += block.splitlines()
        for line in lines:
            options = set(re.findall(r"(?<= )--?[\w-]+", line.partition("#")[0]))
            if found := re.match(r"kbo ([a-z]+)\b", line):
                known = options_of(commands.kbo, found[1])
                assert found[1] == "journal" or options <= known, (page.name, line)
            found = re.search(r"\bpython -m experiments\.([a-z._]+)", line)
            if not found or found[1] == "papers.":
                continue
            assert find_spec(f"experiments.{found[1]}"), (page.name, line)
            if not found[1].startswith(("guarantees.", "bench.device")) and found[1] != "papers":
                known = options_of(commands.experiment, found[1])
                assert options - {"-m"} <= known, (page.name, line)
            for kind, name in re.findall(r"--(table|figure|study) (\w+)", line):
                number = int(name) if name.isdigit() else name
                assert catalogue.paper(papers[found[1]]).experiment(kind, number)
