"""Statements of papers have a function that exists, and the classes named beside it reach it.

The names stand in the table of docs/papers.md and in the "On paper | in code" tables of docstrings.
Here is only what a call of a name in docs/papers.md is. In a row with such a call, every other
function must be reached by one of its calls, and every call of a bound must reach one of them.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from types import CodeType
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


def is_known(text: str, cell: str) -> bool:
    """Return whether a path, a method, a call, or an argument of a class of the cell exists."""
    if "/" in text:
        return (ROOT / text).exists()
    if text.endswith("-..."):
        return any(name.startswith(text.removesuffix("...")) for name in methods.names())
    if text in NAMES:
        return "method" in cell
    if "(" in text:
        path = text.split("(")[0]
        owner = confidence if hasattr(confidence, path.split(".")[0]) else regression
        return named(f"{owner.__name__}.{path}") is not None
    classes = [named(name) for name in ROLE.findall(cell) if inspect.isclass(named(name))]
    taken = [inspect.signature(kind.__init__).parameters for kind in classes]
    return any(text.split("=")[0] in parameters for parameters in taken)


def test_every_name_in_the_table_of_papers_exists():
    assert len(papers()) > 40
    entries = set()
    for cell in papers():
        for name in ROLE.findall(cell):
            named(name)
        for text in codes(cell):
            assert is_known(text, cell), (cell, text)
        entries |= {*ROLE.findall(cell), *codes(cell)}
    assert set(CALLS) <= entries, "CALLS has a name that docs/papers.md does not have"


def code_of(function: Any) -> CodeType:
    return inspect.unwrap(getattr(function, "fget", function)).__code__


@cache
def reached_by(name: str) -> set[CodeType]:
    """Return the code of the functions that the call of a name enters."""
    entered: set[CodeType] = set()

    def profile(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            entered.add(frame.f_code)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sys.setprofile(profile)
        try:
            CALLS[name]()
        finally:
            sys.setprofile(None)
    return entered


@pytest.mark.parametrize("cell", [cell for cell in papers() if any(name in cell for name in CALLS)])
def test_the_classes_of_a_row_reach_its_functions(cell):
    """Each function is reached by one of them, and each of them reaches one, but posteriors, on which bounds are."""
    callers = [name for name in [*ROLE.findall(cell), *codes(cell)] if name in CALLS]
    functions = {}
    for name in ROLE.findall(cell):
        if name not in CALLS and inspect.isroutine(named(name)):
            functions[name] = code_of(named(name))
    for name, code in functions.items():
        assert any(code in reached_by(caller) for caller in callers), f"no call of {name}"
    for caller in callers:
        if functions and not caller.startswith("kbo.regression."):
            assert reached_by(caller).intersection(functions.values()), f"{caller} calls none"


def tables() -> Iterator[tuple[str, str]]:
    """Yield the entries in the code cells of "On paper | in code" tables, each with its file."""
    for path in sorted((ROOT / "kbo").rglob("*.py")):
        text = path.read_text()
        if "| in code" not in text:
            continue
        docstring = ast.get_docstring(ast.parse(text)) or ""
        table = docstring.split("| in code")[1].split("\n\n")[0]
        for line in table.splitlines():
            if " | " in line or line.count("| ``"):
                for entry in re.findall(r"``(.+?)``", line.rsplit("| ", 1)[1]):
                    yield str(path.relative_to(ROOT)), entry


@cache
def names_in(folder: Path) -> set[str]:
    """Return the names that modules of a folder, and of the one above, define or use, and of the modules."""
    names: set[str] = set()
    for path in [*folder.parent.glob("*.py"), *folder.rglob("*.py")]:
        names |= {path.name, path.stem, path.parent.name}
        for node in ast.walk(ast.parse(path.read_text())):
            for attribute in ("name", "id", "attr", "arg"):
                names.add(str(getattr(node, attribute, "")))
    return names


def test_every_name_in_the_tables_of_docstrings_exists():
    entries = list(tables())
    assert len(entries) > 20
    assert ("kbo/confidence/mixture/bound.py", "radius.radius_of") in entries
    lost = []
    for file, entry in entries:
        words = [entry] if entry.endswith(".py") else re.findall(r"[A-Za-z_]\w*", entry)
        known = names_in((ROOT / file).parent)
        lost += [(file, entry, word) for word in words if word not in known]
    assert lost == []
