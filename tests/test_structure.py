"""Rules about the code itself: methods have docstrings, and hand-made faults a place."""

import ast
from pathlib import Path

from tests import mutations

ROOT = Path(__file__).parent.parent


def test_every_public_method_has_a_docstring_of_its_own_or_of_what_it_overrides():
    """Of a base class, or of a protocol: by its name. Properties are attributes, which the class may document."""
    documented = set()
    bare = {}
    for path in [*(ROOT / "kbo").rglob("*.py"), *(ROOT / "experiments").rglob("*.py")]:
        tree = ast.parse(path.read_text("utf-8"))
        kinds = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name[0] != "_"]
        for method in (n for kind in kinds for n in kind.body if isinstance(n, ast.FunctionDef)):
            decorators = " ".join(map(ast.unparse, method.decorator_list))
            if ast.get_docstring(method):
                documented.add(method.name)
            elif method.name[0] != "_" and "property" not in decorators:
                bare[method.name] = path
    assert {name: path for name, path in bare.items() if name not in documented} == {}


def test_every_hand_made_fault_has_one_place_in_the_code():
    faults = mutations.load((ROOT / "tests" / "mutations.txt").read_text("utf-8"))
    assert len(faults) > 150
    for fault in faults:
        assert len(mutations.places(fault, (ROOT / fault.file).read_text("utf-8"))) == 1, fault
