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
from kbo import bandit
from tests.parts import once
from tests.processes import environment, python

ROOT = Path(__file__).parent.parent
EXECUTED = [
    "README.md",
    *(f"docs/{name}.md" for name in ("quickstart", "howto", "extending", "guide")),
]
# Blocks with these words run in the part "thorough" only.
COSTLY = (
    "time_budget=",
    "pareto_set(",
    "optuna.logging",
    "kbo.Safe(",
    "kbo.Linear(",
    ".plot(",
)
PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "experiments/records").glob("*.md"),
        *(ROOT / "docs" / "theory").glob("*.md"),
    ]
)
TUTORIALS = sorted((ROOT / "tutorials").glob("*.py"))


def blocks_of(page: str) -> list[str]:
    """Return the Python blocks of a page, and the whole files of which it shows listings."""
    found = re.findall(
        r"```(?:python|\{literalinclude\} (\S+\.py))\n(.*?)```",
        (ROOT / page).read_text(),
        re.DOTALL,
    )
    return [((ROOT / page).parent / file).read_text() if file else code for file, code in found]


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
    script = (
        tmp_path / "page.py"
    )  # a process of its own: Ray leaves its signal handlers and files in a process
    script.write_text("\n".join(blocks_of(page)))
    python(script, cwd=tmp_path, env=environment(MPLBACKEND="Agg"))


@pytest.mark.usefixtures("_aside")
@pytest.mark.parametrize("script", once(TUTORIALS), ids=lambda script: script.stem)
def test_a_tutorial_runs_and_leaves_nothing_behind(script, tmp_path, monkeypatch):
    monkeypatch.setenv("KBO_TUTORIAL_QUICK", "1")
    runpy.run_path(str(script), run_name="__main__")
    assert not list(tmp_path.iterdir())


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_files_and_names_exist(page):
    text = page.read_text()
    for path in re.findall(r"`((?:kbo|experiments|tests|docs|tutorials)/[\w/.*]+)`", text):
        assert list(ROOT.glob(path)), path
    for name in re.findall(r"\{(?:class|func|meth|mod|attr)\}`~?(kbo[\w.]+)`", text):
        assert resolved(name), name
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith("http"):
            continue
        path, _, anchor = link.partition("#")
        target = page if not path else page.parent / path
        if page.parent == ROOT / "docs" and path.startswith(
            "tutorials/"
        ):  # copied to docs by the build
            target = ROOT / f"{path}.py"
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_readme_of_a_package_index_has_no_links_to_files():
    text, project = (
        (ROOT / "README.md").read_text(),
        tomllib.loads((ROOT / "pyproject.toml").read_text()),
    )
    for edit in project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
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
    for module, members in re.findall(r"automodule:: ([\w.]+)\n +:members:(.*)", page):
        assert all(
            resolved(f"{module}.{name.strip()}") for name in members.split(",") if name.strip()
        ), members
    assert all(resolved(name) for name in re.findall(r"autoclass:: (kbo[\w.]+)", page))


FOREIGN = {"n_jobs", "callbacks", "likelihood", "parallelism"}
"""Arguments of other libraries that pages name."""


def public_callables() -> dict[str, Any]:
    """Public functions and classes of kbo by their dotted names, and public methods by theirs."""
    found: dict[str, Any] = {}
    modules = [
        "kbo",
        *(f"kbo.{name}" for name in kbo.__all__ if inspect.ismodule(getattr(kbo, name))),
    ]
    more = [
        "kbo.report",
        "kbo.bandit",
        "kbo.integrations.optuna",
        "kbo.integrations.ax",
        "kbo.optimize.tracking",
    ]
    for module in map(import_module, [*modules, *more]):
        names = getattr(module, "__all__", [name for name in vars(module) if name[0] != "_"])
        for name, value in ((name, getattr(module, name)) for name in names):
            if inspect.isclass(value) or inspect.isfunction(value):
                found[f"{module.__name__}.{name}"] = value
            if inspect.isclass(value):
                methods = inspect.getmembers(value, inspect.isroutine)
                found |= {
                    f"{module.__name__}.{name}.{key}": one for key, one in methods if key[0] != "_"
                }
    return found


def parameters(function: Any) -> list[inspect.Parameter]:
    function = function.__init__ if inspect.isclass(function) else function
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # of one written in C
        return []


def arguments(function: Any) -> set[str]:
    return {parameter.name for parameter in parameters(function)}


def prose(page: Path) -> str:
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_arguments_that_pages_name_exist(page):
    """``name=`` in prose is an argument of something public; where the page says of what, it is one of that."""
    callables = public_callables()
    known = {name for function in callables.values() for name in arguments(function)} | FOREIGN
    assert set(re.findall(r"[`(](\w+)=[`)]", prose(page))) <= known
    for name, owner in re.findall(
        r"`(\w+)=`\]?(?:\([^)]*\))? (?:of|in|to) (?:\{\w+\})?`~?([\w.]+)[`(]", prose(page)
    ):
        owners = [value for path, value in callables.items() if f".{path}".endswith(f".{owner}")]
        assert not owners or any(name in arguments(one) for one in owners), (name, owner)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_calls_in_code_have_arguments_that_exist(page):
    """Also those of blocks that are not executed, as far as the names are written out: ``kbo.minimize(...)``."""
    callables = public_callables()
    for block in blocks_of(page.relative_to(ROOT)):
        for call in ast.walk(ast.parse(block)):
            function = callables.get(ast.unparse(call.func)) if isinstance(call, ast.Call) else None
            if function is None or any(one.kind is one.VAR_KEYWORD for one in parameters(function)):
                continue
            assert {keyword.arg for keyword in call.keywords} - {None} <= arguments(function), (
                ast.unparse(call)
            )


def options_of(function) -> set[str]:
    """The options of a command."""
    return {option for parameter in function.params for option in parameter.opts}


def test_quoted_commands_and_options_exist():
    from kbo.cli.app import app

    commands = typer.main.get_command(app).commands
    for page in PAGES:
        text = page.read_text()
        code = [
            *re.findall(r"`([^`\n]+)`", text),
            *"\n".join(re.findall(r"```(?:bash|sh)\n(.*?)```", text, re.DOTALL)).splitlines(),
        ]
        for name, rest in (
            found.groups() for line in code if (found := re.match(r"kbo ([a-z]+)\b([^#]*)", line))
        ):
            assert name in commands, (page.name, name)
            if name != "journal":
                used = set(re.findall(r"(?<= )--?[\w-]+", rest))
                assert used <= options_of(commands[name]), (page.name, name, rest)


def test_quoted_experiments_and_their_options_exist():
    from experiments import changes, insight
    from experiments.bandits import redraw
    from experiments.bandits.__main__ import run
    from experiments.bench.__main__ import bench
    from experiments.papers import catalogue
    from experiments.papers.command import command_of
    from experiments.tuning import front_statistics, fronts
    from experiments.tuning.__main__ import compare

    functions = {
        "bandits": run,
        "bandits.redraw": redraw.draw,
        "tuning": compare,
        "tuning.front_statistics": front_statistics.measure,
        "tuning.fronts": fronts.compare,
        "bench": bench,
        "insight": insight.run,
        "changes": changes.run,
    }
    papers = {
        module.removeprefix("experiments."): name for name, module in catalogue.PAPERS.items()
    }
    functions |= {module: command_of(name) for module, name in papers.items()}
    for page in PAGES:
        for module, rest in re.findall(
            r"\bpython -m experiments\.([a-z._]+)([^`\n#]*)", page.read_text()
        ):
            if module.startswith("guarantees."):
                assert resolved(f"experiments.{module}.main"), (page.name, module)
                continue
            if module in ("papers", "papers.NAME", "bench.device"):
                continue
            app = typer.Typer()
            app.command()(functions[module])
            used = set(re.findall(r"(?<= )--?[\w-]+", rest))
            assert used <= options_of(typer.main.get_command(app)), (page.name, module, rest)
            for kind, name in re.findall(r"--(table|figure|study) (\w+)", rest):
                assert catalogue.paper(papers[module]).experiment(
                    kind, int(name) if name.isdigit() else name
                )
