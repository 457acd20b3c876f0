"""Statements of papers have a function that exists, and the classes named beside it reach it.

The names stand in the table of docs/papers.md and in the "On paper | in code" tables of docstrings.
Here is only what a call of a name in docs/papers.md is. In a row with such a call, every other
function must be reached by one of its calls, and every call of a bound must reach one of them.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest
import torch
from gpytorch.kernels import RBFKernel

import kbo
from experiments.bandits.methods import PAPER_METHODS
from kbo import acquisition, confidence, regression
from kbo.bandit import methods
from kbo.models import KernelRidgeGP

ROOT = Path(__file__).parent.parent
ROLE = re.compile(r"\{(?:class|func|meth|mod)\}`([\w.]+)`")
CODE = re.compile(r"`([^`]+)`")
NAMES = {*methods.names(), *(row.name for row in PAPER_METHODS)}
NUMBERS = 0.3, 8.0, 0.1  # noise_std, norm_bound, delta
X = torch.linspace(0, 1, 12, dtype=torch.float64).unsqueeze(-1)
Y = torch.sin(4 * X[:, 0])
Z = torch.tensor([[0.13], [0.71]], dtype=torch.float64)


def fed(state: regression.Posterior) -> regression.Posterior:
    state.update(X, Y)
    return state


def exact() -> Any:
    return fed(kbo.KernelRidge(RBFKernel().double(), 0.09))


def sketch() -> Any:
    return fed(kbo.NystromRidge(RBFKernel().double(), 0.09, regression.FixedDictionary(X[::3])))


def adaptive() -> Any:
    empty = kbo.KernelRidge(RBFKernel().double(), 0.09)
    return fed(kbo.AdaptiveRidge(empty, confidence.NoiseBounds(8.0, 0.1, upper=1.0)))


def model() -> KernelRidgeGP:
    return KernelRidgeGP(X, Y.unsqueeze(-1), RBFKernel().double(), 0.09)


def mixture(kind: str = "dmm", scale: Any = 1.0) -> confidence.MartingaleMixture:
    return confidence.MartingaleMixture(*NUMBERS, kind, scale)


BOUNDS: dict[str, Callable[[], confidence.Confidence]] = {
    "kbo.confidence.SelfNormalized": lambda: confidence.SelfNormalized(*NUMBERS),
    "kbo.confidence.ImprovedGPUCB": lambda: confidence.ImprovedGPUCB(*NUMBERS, 0.1),
    'FiniteSet(..., variant="paper")': lambda: confidence.FiniteSet(9, 0.1, "paper"),
    'FiniteSet(..., variant="quantile")': lambda: confidence.FiniteSet(9, 0.1, "quantile"),
    "kbo.confidence.FiniteSet": lambda: confidence.FiniteSet(9, 0.1),
    "kbo.confidence.MartingaleMixture": mixture,
    "MartingaleMixture(..., scale=MIXED_SCALES)": lambda: mixture(scale=confidence.MIXED_SCALES),
    'MartingaleMixture(..., kind="cmm")': lambda: mixture("cmm"),
    "kbo.confidence.UnknownNorm": lambda: confidence.UnknownNorm(0.3, 0.1),
    "kbo.confidence.BKB": lambda: confidence.BKB(*NUMBERS),
    "kbo.confidence.EKUCB": lambda: confidence.EKUCB(*NUMBERS, 0.0),
    "kbo.confidence.AdaptiveSelfNormalized": confidence.AdaptiveSelfNormalized,
    "kbo.confidence.Chaining": lambda: confidence.Chaining(0.1, points=Z),
}
STATES = {
    "kbo.confidence.MartingaleMixture": sketch,
    "kbo.confidence.AdaptiveSelfNormalized": adaptive,
}
"""States of these bounds, where it is not the exact one."""


def interval(name: str) -> Any:
    return BOUNDS[name]().interval(STATES.get(name, exact)(), Z)


CALLS: dict[str, Callable[[], Any]] = {
    **{name: partial(interval, name) for name in BOUNDS},
    **{
        f"kbo.acquisition.{name}": partial(
            lambda name: getattr(acquisition, name)(model(), *NUMBERS)(Z.unsqueeze(-2)), name
        )
        for name in ("AMMUCB", "DMMUCB", "CMMUCB")
    },
    "kbo.confidence.squared_radius": lambda: confidence.squared_radius(exact(), 0.3, 0.1),
    "kbo.confidence.certify": lambda: confidence.certify(mixture("cmm"), exact(), Z[0]),
    "kbo.confidence.cone_program": lambda: confidence.cone_program(mixture("cmm"), exact(), Z[0]),
    "kbo.confidence.refuse_if_refuted": lambda: confidence.refuse_if_refuted(exact(), *NUMBERS),
    "kbo.confidence.norm_lower_bound": lambda: confidence.norm_lower_bound(exact(), 0.3, 0.1),
    "kbo.confidence.unexplained.unexplained": lambda: named(
        "kbo.confidence.unexplained.unexplained"
    )(mixture(), exact()),
    "kbo.regression.NystromRidge": lambda: sketch().at().predict(Z),
}
"""Calls of names in docs/papers.md. A name without one is only resolved."""


def papers() -> list[str]:
    """Return the code cells of the table of docs/papers.md."""
    page = (ROOT / "docs" / "papers.md").read_text()
    table = page.split("## Papers → functions")[1].split("\n## ")[0]
    rows = [line.strip("| ") for line in table.splitlines() if line.startswith("| ")]
    return [row.rsplit(" | ", 1)[1] for row in rows[1:]]


def codes(cell: str) -> list[str]:
    """Return the other entries of a cell: paths, calls and arguments."""
    return CODE.findall(ROLE.sub("", cell))


@cache
def named(path: str) -> Any:
    """Return the object with this dotted path; AttributeError or ModuleNotFoundError if there is none."""
    parts = path.split(".")
    for split in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:split]))
        except ModuleNotFoundError:
            continue
        for part in parts[split:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(path)


def test_the_table_of_papers_is_read():
    assert len(papers()) > 40
    entries = {entry for cell in papers() for entry in [*ROLE.findall(cell), *codes(cell)]}
    assert set(CALLS) <= entries, "CALLS has a name that docs/papers.md does not have"


@pytest.mark.parametrize("cell", papers())
def test_every_name_in_the_table_of_papers_exists(cell):
    entries = ROLE.findall(cell)
    for name in entries:
        named(name)
    classes = [named(name) for name in entries if inspect.isclass(named(name))]
    for text in codes(cell):
        if "/" in text:
            assert (ROOT / text).exists(), text
        elif text.endswith("-..."):
            assert any(name.startswith(text.removesuffix("...")) for name in methods.names()), text
        elif text in NAMES:
            assert "method" in cell, text
        elif "(" in text:
            owner, *attributes = text.split("(")[0].split(".")
            found = getattr(confidence, owner, None) or getattr(regression, owner, None)
            for attribute in attributes:
                found = getattr(found, attribute)
            assert found is not None, text
        else:
            taken = [inspect.signature(one.__init__).parameters for one in classes]
            assert any(text.split("=")[0] in parameters for parameters in taken), text


def code_of(function: Any) -> CodeType:
    if isinstance(function, property):
        function = function.fget
    return inspect.unwrap(function).__code__


def reached_by(call: Callable[[], Any]) -> set[CodeType]:
    """Return the code of the functions that a call enters."""
    entered: set[CodeType] = set()

    def profile(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            entered.add(frame.f_code)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sys.setprofile(profile)
        try:
            call()
        finally:
            sys.setprofile(None)
    return entered


WITH_CALLS = [cell for cell in papers() if {*ROLE.findall(cell), *codes(cell)}.intersection(CALLS)]


@pytest.mark.parametrize("cell", WITH_CALLS)
def test_the_classes_of_a_row_reach_its_functions(cell):
    entries = [*ROLE.findall(cell), *codes(cell)]
    callers = [name for name in entries if name in CALLS]
    entered = {name: reached_by(CALLS[name]) for name in callers}
    functions = [
        name for name in ROLE.findall(cell) if name not in CALLS and inspect.isroutine(named(name))
    ]
    for name in functions:
        reaching = [caller for caller in callers if code_of(named(name)) in entered[caller]]
        assert reaching, f"none of {callers} calls {name}"
    for caller in callers:
        if functions and not caller.startswith(
            "kbo.regression."
        ):  # posteriors, on which bounds are
            reached = [name for name in functions if code_of(named(name)) in entered[caller]]
            assert reached, f"{caller} calls none of {functions}"


def tables() -> Iterator[tuple[ModuleType, str]]:
    """Yield the modules with an "On paper | in code" table, and the entries in its code cells."""
    for info in pkgutil.walk_packages(kbo.__path__, "kbo."):
        path = ROOT / (info.name.replace(".", "/") + ("/__init__.py" if info.ispkg else ".py"))
        if "| in code" not in path.read_text():
            continue
        documentation = ast.get_docstring(ast.parse(path.read_text())) or ""
        table = documentation.split("| in code")[1].split("\n\n")[0]
        for line in table.splitlines():
            if " | " in line or line.count("| ``"):
                for entry in re.findall(r"``(.+?)``", line.rsplit("| ", 1)[1]):
                    yield importlib.import_module(info.name), entry


def dotted(entry: str) -> list[str] | None:
    """Return the names of ``a.b(x)[0]``, a and b; None for an expression."""
    try:
        node: ast.AST = ast.parse(entry, mode="eval").body
    except SyntaxError:
        return None
    names: list[str] = []
    while isinstance(node, ast.Call | ast.Subscript | ast.Attribute):
        if isinstance(node, ast.Attribute):
            names.insert(0, node.attr)
            node = node.value
        else:
            node = node.func if isinstance(node, ast.Call) else node.value
    return [node.id, *names] if isinstance(node, ast.Name) else None


def has(owner: Any, name: str) -> bool:
    """Return True if a module, a class of it or an object of that class has an attribute."""
    if hasattr(owner, name):
        return True
    classes = [owner] if inspect.isclass(owner) else []
    if inspect.ismodule(owner):
        classes = [one for one in vars(owner).values() if inspect.isclass(one)]
    for one in classes:
        mine = one.__module__.startswith("kbo")
        if hasattr(one, name) or (mine and f"self.{name}" in inspect.getsource(one)):
            return True
    return False


@pytest.mark.parametrize(
    ("module", "entry"),
    [pytest.param(*row, id=f"{row[0].__name__}: {row[1]}") for row in tables()],
)
def test_every_name_in_the_tables_of_docstrings_exists(module, entry):
    if entry.endswith(".py"):
        folders = Path(module.__file__).parents
        assert any((folder / entry).exists() for folder in folders[:2])
        return
    names = dotted(entry)
    if names is None:
        return  # an expression
    folder = module.__name__.rpartition(".")[0]
    owner: Any = module
    if not has(module, names[0]) and has(module, names[-1]):
        return  # a method, of a variable
    if not has(module, names[0]):
        owner = importlib.import_module(f"{folder}.{names[0]}")
        names = names[1:]
    for name in names:
        assert owner is None or has(owner, name), f"{entry}: no {name} in {owner}"
        owner = getattr(owner, name, None)
        if not (inspect.isclass(owner) or inspect.ismodule(owner)):
            owner = None  # a value, of which only the run knows more


def test_the_tables_of_docstrings_are_read():
    found = [f"{module.__name__}: {entry}" for module, entry in tables()]
    assert "kbo.confidence.mixture.bound: radius.radius_of" in found
    assert len(found) > 20
