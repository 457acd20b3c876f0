"""Rules about the code itself: private names stay in their module, and posteriors are not told apart by their type."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import experiments
import kbo
from tests import mutations, parts

FOLDERS = [Path(package.__file__).parent for package in (kbo, experiments)]
MODULES = {
    path.relative_to(folder.parent): ast.parse(path.read_text("utf-8"))
    for folder in FOLDERS
    for path in sorted(folder.rglob("*.py"))
}


PUBLIC = {"_replace", "_asdict", "_exit"}
"""Documented names of the standard library that begin with an underscore."""

LIBRARIES = {
    "kbo/integrations/ax/history.py": {"_parsed"},
    "kbo/integrations/ax/node.py": {"_gen_metadata"},
    "kbo/integrations/ax/report.py": {"_maybe_generation_strategy", "_experiment"},
    "kbo/integrations/optuna/sampler.py": {
        "_process_constraints_after_trial",
        "_fixed_params",
        "_base_sampler",
    },
    "kbo/integrations/optuna/study.py": {"_trial_id", "_study_id", "_storage"},
}
"""Private names of Ax and Optuna for which they have no public one."""


def private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name not in PUBLIC


def defined(tree: ast.Module) -> set[str]:
    """Private names that a module defines: functions, methods, variables, and attributes of its own objects."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and of_this_object(node.value)
        ):
            names.add(node.attr)
    return {name for name in names if private(name)}


def of_this_object(value: ast.expr) -> bool:
    """Whether that is ``self``, ``cls`` or ``super()``."""
    called = value.func if isinstance(value, ast.Call) else value
    return isinstance(called, ast.Name) and called.id in ("self", "cls", "super")


def copies(tree: ast.Module) -> set[str]:
    """Variables that are made by ``__new__`` or ``copy``: objects of the class at hand."""
    makers = ("__new__", "copy", "deepcopy")
    made: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            maker = node.value.func
            if isinstance(maker, ast.Attribute) and maker.attr in makers:
                made |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return made


def foreign(tree: ast.Module) -> Iterator[str]:
    """Private names of other modules that a module reads."""
    own, made = defined(tree), copies(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (
                f"line {node.lineno}: import of {alias.name}"
                for alias in node.names
                if private(alias.name)
            )
        if not isinstance(node, ast.Attribute) or not private(node.attr) or node.attr in own:
            continue
        if of_this_object(node.value) or (
            isinstance(node.value, ast.Name) and node.value.id in made
        ):
            continue
        yield f"line {node.lineno}: {ast.unparse(node)}"


def test_no_module_reads_private_names_of_another():
    found = [
        f"{path} {what}"
        for path, tree in MODULES.items()
        for what in foreign(tree)
        if what.split()[-1].rpartition(".")[2] not in LIBRARIES.get(path.as_posix(), ())
    ]
    assert not found, "\n".join(found)


def subclasses(base: type) -> set[type]:
    return {base} | {found for child in base.__subclasses__() for found in subclasses(child)}


def test_posteriors_are_hardly_ever_told_apart_by_their_type():
    """Outside the file that defines a class, at most three tests: the interface answers all else."""
    from kbo.regression import Posterior

    kinds = subclasses(Posterior) - {Posterior}
    names = {cls.__name__: cls.__module__ for cls in kinds if cls.__module__.startswith("kbo.")}
    found = []
    for path, tree in MODULES.items():
        module = ".".join(path.with_suffix("").parts)
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "isinstance"
            ):
                tested = {name.id for name in ast.walk(node.args[1]) if isinstance(name, ast.Name)}
                if any(name in names and names[name] != module for name in tested):
                    found.append(f"{path} line {node.lineno}: {ast.unparse(node)}")
    assert len(found) <= 3, "\n".join(found)


def functions(tree: ast.Module) -> Iterator[ast.AST]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    return (node for node in ast.walk(tree) if isinstance(node, kinds))


def test_no_function_imports_by_name():
    """What needs an extra, or loads PyTorch before a command needs it, is a ``Lazy`` module, or a lazy package."""
    found = {
        f"{path} line {node.lineno}: {ast.unparse(node)}"
        for path, tree in MODULES.items()
        if path.parts[0] == "kbo"
        for function in functions(tree)
        for node in ast.walk(function)
        if isinstance(node, (ast.Import, ast.ImportFrom))
    }
    assert not found, "\n".join(sorted(found))


def test_no_two_modules_import_each_other_even_through_others():
    """Beside the contract of import-linter, which compares modules of one folder: packages and their modules too."""
    grimp, networkx = pytest.importorskip("grimp"), pytest.importorskip("networkx")
    graph = grimp.build_graph("kbo", "experiments", cache_dir=None)
    imports = networkx.DiGraph()
    for module in graph.modules:
        imports.add_edges_from(
            (module, other) for other in graph.find_modules_directly_imported_by(module)
        )
    cycles = [
        sorted(group) for group in networkx.strongly_connected_components(imports) if len(group) > 1
    ]
    assert not cycles


def test_pytest_says_which_tests_it_leaves_out(monkeypatch, pytestconfig):
    monkeypatch.setattr(
        parts,
        "MISSING",
        {"Ray: its tests": lambda: None, "Chromium: pages": lambda: "/bin/chromium"},
    )
    lines = parts.pytest_report_header(pytestconfig)
    assert lines[1:] == ["left out, since this machine lacks Ray: its tests"]


def test_every_part_of_the_tests_is_a_target():
    makefile = (Path(__file__).parent.parent / "Makefile").read_text()
    (named,) = re.findall(r"^PARTS := (.*)$", makefile, re.MULTILINE)
    assert all(f"\n{name}:" in makefile for name in named.split())


def test_every_public_method_has_a_docstring_of_its_own_or_of_what_it_overrides():
    """Of a base class, or of a protocol: by its name. Properties are attributes, which the class may document."""
    methods = [
        (f"{path}: {kind.name}.{method.name}", method)
        for path, tree in MODULES.items()
        for kind in tree.body
        if isinstance(kind, ast.ClassDef) and kind.name[0] != "_"
        for method in kind.body
        if isinstance(method, ast.FunctionDef) and method.name[0] != "_"
        if not any(
            word in ast.unparse(one)
            for one in method.decorator_list
            for word in ("property", "setter")
        )
    ]
    documented = {method.name for _, method in methods if ast.get_docstring(method)}
    assert [place for place, method in methods if method.name not in documented] == []


def test_every_hand_made_fault_has_one_place_in_the_code():
    root = Path(__file__).parent.parent
    faults = mutations.load((root / "tests" / "mutations.txt").read_text("utf-8"))
    assert len(faults) > 150
    lost = []
    for fault in faults:
        path = root / fault.file
        found = len(mutations.places(fault, path.read_text("utf-8"))) if path.exists() else 0
        if found != 1:
            lost.append(f"{found} places: {fault}")
    assert not lost, "\n".join(lost)
