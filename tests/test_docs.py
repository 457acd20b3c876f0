"""The pages for users: every Python block runs as it is printed, and every link, path, name and command exists."""

import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
import typer

ROOT = Path(__file__).parent.parent
EXECUTED = ["README.md", *(f"docs/{name}.md" for name in ("quickstart", "guide", "howto", "integrations", "extending"))]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])


@pytest.mark.parametrize("page", EXECUTED)
def test_python_blocks_run_in_order(page, tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert blocks
    script = tmp_path / "page.py"  # a process of its own: Ray leaves its signal handlers and files in a process
    future = "from __future__ import annotations\n"  # belongs to the beginning
    script.write_text(future * any(future in block for block in blocks) + "\n".join(blocks).replace(future, ""))
    environment = {**os.environ, "MPLBACKEND": "Agg"}
    done = subprocess.run([sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if link.startswith("http"):
            continue
        path, _, anchor = link.partition("#")
        target = page if not path else page.parent / path
        if page.parent == ROOT / "docs" and path.startswith("tutorials/"):  # copied to docs by the build
            target = ROOT / f"{path}.py"
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_readme_of_a_package_index_has_no_links_to_files():
    text, project = (ROOT / "README.md").read_text(), tomllib.loads((ROOT / "pyproject.toml").read_text())
    for edit in project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(edit["pattern"], edit["replacement"], text)
    assert "## Tune in Python" in text
    assert not re.findall(r"\]\((?!https?:).*\)", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_names_exist(page):
    text = page.read_text()
    for path in re.findall(r"`((?:kbo|tests|docs|tutorials)/[\w/.*]+)`", text):
        assert list(ROOT.glob(path)), path
    for name in re.findall(r"\{(?:class|func|meth|mod|attr)\}`~?(kbo[\w.]+)`", text):
        assert resolved(name), name


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
        assert all(resolved(f"{module}.{name.strip()}") for name in members.split(",") if name.strip()), members
    assert all(resolved(name) for name in re.findall(r"autoclass:: (kbo[\w.]+)", page))


def test_quoted_commands_and_their_options_exist():
    from kbo.cli import app

    commands = typer.main.get_command(app).commands
    for page in PAGES:
        for name, rest in re.findall(
            r"\bkbo (tune|run|compare|reproduce|report|plot|bench)\b([^`\n#]*)", page.read_text()
        ):
            options = {option for parameter in commands[name].params for option in parameter.opts}
            assert set(re.findall(r"(?<= )--?[\w-]+", rest)) <= options, (page.name, name, rest)


def test_quoted_experiments_exist():
    from kbo.experiments.papers import catalogue

    for page in PAGES:
        for paper, options in re.findall(r"kbo reproduce (\w+)((?: --\w+ [\w]+)*)", page.read_text()):
            for what, name in re.findall(r"--(table|figure|study) (\w+)", options):
                assert catalogue.paper(paper).experiment(what, int(name) if name.isdigit() else name), page.name
