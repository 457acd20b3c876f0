"""The pages for users: every Python block and tutorial runs as printed; every link, path, name and command exists."""

import ast
import inspect
import re
import runpy
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import matplotlib.pyplot as plt
import pytest
import typer

import kbo
from experiments import changes, insight
from experiments.bandits import __main__ as bandits
from experiments.bandits import redraw
from experiments.bench import __main__ as bench
from experiments.papers import catalogue
from experiments.papers.command import command_of
from experiments.tuning import __main__ as tuning
from experiments.tuning import front_statistics, fronts
from kbo import bandit
from kbo.cli.app import app
from tests.parts import once
from tests.processes import environment, python

ROOT = Path(__file__).parent.parent
EXECUTED = [
    "README.md",
    *(f"docs/{name}.md" for name in ["quickstart", "howto", "extending", "guide"]),
]
COSTLY = ["time_budget=", "pareto_set(", "optuna.logging", "kbo.Safe(", "kbo.Linear(", ".plot("]
"""Blocks with these words run in the part "thorough" only."""
FOLDERS = [".", "docs", "docs/theory", "experiments/records"]
PAGES = [page for folder in FOLDERS for page in sorted((ROOT / folder).glob("*.md"))]
PAGES.remove(ROOT / "CHANGELOG.md")
TUTORIALS = sorted((ROOT / "tutorials").glob("*.py"))


def blocks_of(page: str) -> list[str]:
    """Return the Python blocks of a page, and the whole files of which it shows listings."""
    fence = r"```(?:python|\{literalinclude\} (\S+\.py))\n(.*?)```"
    blocks = []
    for file, code in re.findall(fence, (ROOT / page).read_text(), re.DOTALL):
        blocks.append(((ROOT / page).parent / file).read_text() if file else code)
    return blocks


@pytest.fixture
def _aside(tmp_path, monkeypatch):
    """Work in a folder, without windows; what pages add to kbo and to Matplotlib is taken away again."""
    monkeypatch.chdir(tmp_path)
    backend = plt.get_backend()
    plt.switch_backend("Agg")
    with patch.dict(bandit.METHODS), plt.rc_context():
        yield
    plt.close("all")
    plt.switch_backend(backend)


@pytest.mark.usefixtures("_aside")
@pytest.mark.parametrize("page", EXECUTED)
def test_python_blocks_run_in_order(page):
    names = {"__name__": "__main__"}
    for number, block in enumerate(blocks_of(page)):
        if not any(word in block for word in COSTLY):
            exec(compile(block, f"{page}, block {number}", "exec"), names)


@pytest.mark.thorough
@pytest.mark.parametrize("page", ["docs/howto.md", "docs/integrations.md"])
def test_every_block_of_costly_pages_runs(page, tmp_path):
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks_of(page)))
    # A process of its own: Ray leaves its signal handlers and files in a process.
    python(script, cwd=tmp_path, env=environment(MPLBACKEND="Agg"))


@pytest.mark.usefixtures("_aside")
@pytest.mark.parametrize("script", once(TUTORIALS), ids=lambda script: script.stem)
def test_a_tutorial_runs_and_leaves_nothing_behind(script, tmp_path, monkeypatch):
    monkeypatch.setenv("KBO_TUTORIAL_QUICK", "1")
    runpy.run_path(str(script), run_name="__main__")
    assert not list(tmp_path.iterdir())


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    words = [re.sub(r"[^\w\- ]", "", heading.lower()).strip() for heading in headings]
    return {text.replace(" ", "-") for text in words}


def target(link: str, page: Path) -> Path:
    """Return the file of a link; tutorials are copied to docs by the build."""
    path = link.partition("#")[0]
    if page.parent == ROOT / "docs" and path.startswith("tutorials/"):
        return ROOT / f"{path}.py"
    return page.parent / path if path else page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_files_and_names_exist(page):
    text = page.read_text()
    for path in re.findall(r"`((?:kbo|experiments|tests|docs|tutorials)/[\w/.*]+)`", text):
        assert list(ROOT.glob(path)), path
    for name in re.findall(r"\{(?:class|func|meth|mod|attr)\}`~?(kbo[\w.]+)`", text):
        assert resolved(name), name
    for link in re.findall(r"\]\((?!http)([^)\s]+)\)", text):
        assert target(link, page).exists(), link
        anchor = link.partition("#")[2]
        assert not anchor or anchor in anchors(target(link, page)), link


def test_the_readme_of_a_package_index_has_no_links_to_files():
    text = (ROOT / "README.md").read_text()
    hooks = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["metadata"][
        "hooks"
    ]
    for edit in hooks["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(edit["pattern"], edit["replacement"], text)
    assert "## Tune in Python" in text
    assert not re.findall(r"\]\((?!https?:).*\)", text)


def resolved(name: str) -> bool:
    """Whether a dotted name is a module or an attribute of one."""
    parts = name.split(".")
    for split in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:split]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[split:]:
            found = getattr(found, attribute, None)
        return found is not None
    return False


def test_the_api_page_lists_names_that_exist():
    page = (ROOT / "docs/api.md").read_text()
    names = re.findall(r"autoclass:: (kbo[\w.]+)", page)
    for module, members in re.findall(r"automodule:: ([\w.]+)\n +:members:(.*)", page):
        names += [f"{module}.{name.strip()}" for name in members.split(",") if name.strip()]
    assert [name for name in names if not resolved(name)] == []


FOREIGN = {"n_jobs", "callbacks", "likelihood", "parallelism"}
"""Arguments of other libraries that pages name."""


def public_callables() -> dict[str, Any]:
    """Return public functions and classes of kbo by their dotted names, and public methods by theirs."""
    found: dict[str, Any] = {}
    modules = [f"kbo.{name}" for name in kbo.__all__ if inspect.ismodule(getattr(kbo, name))]
    modules += ["kbo", "kbo.report", "kbo.bandit", "kbo.integrations.optuna", "kbo.integrations.ax"]
    for module in map(import_module, [*modules, "kbo.optimize.tracking"]):
        for name in getattr(module, "__all__", [name for name in vars(module) if name[0] != "_"]):
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                found[f"{module.__name__}.{name}"] = value
            if inspect.isclass(value):
                for key, method in inspect.getmembers(value, inspect.isroutine):
                    found[f"{module.__name__}.{name}.{key}"] = method
    return {name: value for name, value in found.items() if "._" not in name}


def parameters(function: Any) -> list[inspect.Parameter]:
    function = function.__init__ if inspect.isclass(function) else function
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # of one written in C
        return []


def arguments(function: Any) -> set[str]:
    return {parameter.name for parameter in parameters(function)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_arguments_that_pages_name_exist(page):
    """``name=`` in prose is an argument of something public; where the page says of what, it is one of that."""
    callables = public_callables()
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    known = FOREIGN.union(*map(arguments, callables.values()))
    assert set(re.findall(r"[`(](\w+)=[`)]", prose)) <= known
    of = r"`(\w+)=`\]?(?:\([^)]*\))? (?:of|in|to) (?:\{\w+\})?`~?([\w.]+)[`(]"
    for name, owner in re.findall(of, prose):
        owners = [value for path, value in callables.items() if f".{path}".endswith(f".{owner}")]
        assert not owners or any(name in arguments(value) for value in owners), (name, owner)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_calls_in_code_have_arguments_that_exist(page):
    """Also those of blocks that are not executed, as far as the names are written out: ``kbo.minimize(...)``."""
    callables = public_callables()
    calls = [
        node
        for block in blocks_of(page.relative_to(ROOT))
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.Call)
    ]
    for call in calls:
        function = callables.get(ast.unparse(call.func))
        if function is None or any(p.kind is p.VAR_KEYWORD for p in parameters(function)):
            continue
        given = {keyword.arg for keyword in call.keywords} - {None}
        assert given <= arguments(function), ast.unparse(call)


def unknown_options(command: Any, text: str) -> set[str]:
    """Return options of a command line that a command does not have."""
    known = {option for parameter in command.params for option in parameter.opts}
    return set(re.findall(r"(?<= )--?[\w-]+", text)) - known


def test_quoted_commands_and_options_exist():
    commands = typer.main.get_command(app).commands
    for page in PAGES:
        text = page.read_text()
        lines = re.findall(r"`([^`\n]+)`", text)
        for block in re.findall(r"```(?:bash|sh)\n(.*?)```", text, re.DOTALL):
            lines += block.splitlines()
        for found in filter(None, (re.match(r"kbo ([a-z]+)\b([^#]*)", line) for line in lines)):
            name, rest = found.groups()
            assert name in commands, (page.name, name)
            if name != "journal":
                assert not unknown_options(commands[name], rest), (page.name, name, rest)


EXPERIMENTS = {
    "bandits": bandits.run,
    "bandits.redraw": redraw.draw,
    "tuning": tuning.compare,
    "tuning.front_statistics": front_statistics.measure,
    "tuning.fronts": fronts.compare,
    "bench": bench.bench,
    "insight": insight.run,
    "changes": changes.run,
}


def test_quoted_experiments_and_their_options_exist():
    papers = {
        module.removeprefix("experiments."): name for name, module in catalogue.PAPERS.items()
    }
    functions = EXPERIMENTS | {module: command_of(name) for module, name in papers.items()}
    quoted = r"\bpython -m experiments\.([a-z._]+)([^`\n#]*)"
    for page in PAGES:
        for module, rest in re.findall(quoted, page.read_text()):
            if module in ("papers", "papers.NAME", "bench.device"):
                continue
            if module.startswith("guarantees."):
                assert resolved(f"experiments.{module}.main"), (page.name, module)
                continue
            command = typer.Typer()
            command.command()(functions[module])
            wrong = unknown_options(typer.main.get_command(command), rest)
            assert not wrong, (page.name, module, rest)
            for kind, name in re.findall(r"--(table|figure|study) (\w+)", rest):
                number = int(name) if name.isdigit() else name
                assert catalogue.paper(papers[module]).experiment(kind, number)
